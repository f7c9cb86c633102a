"""Files that are written from the code are as the code would write them: `make generated` mends them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_generated_files_are_current():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    stale = [path.name for path, text in generate.generated().items() if path.read_text() != text]
    assert not stale, f"run `make generated`: {stale}"
