"""The examples run as they are, and say what they claim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.more

EXAMPLES = Path(__file__).parent.parent / "examples"
SAID = {
    "linear.py": "against cross entropy on the same fresh rows",
    "boosting.py": "threshold set on validation rows",
    "influence.py": "wrong labels among",
    "deep_map.py": "nets trained together",
}
# What makes a long example short.
ARGUMENTS = {"deep_map.py": ["--epochs", "1"]}


def test_every_example_is_here():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_example_runs(name, tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *ARGUMENTS.get(name, [])],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert run.returncode == 0, run.stderr
    assert SAID[name] in run.stdout
