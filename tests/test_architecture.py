"""Imports point one way, and the light parts stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import raresight
import reproduction

SOURCE = Path(raresight.__file__).parent
LABORATORY = Path(reproduction.__file__).parent

_FAMILIES = {"common", "losses", "metrics", "tables"}
_MODEL = _FAMILIES | {"linear", "boosting", "nn", "deep", "engines"}
_AUTOML = _MODEL | {"model"}
_REPORT = _AUTOML | {"automl", "theory"}
_CLI = _REPORT | {"report", "fitting"}

# What each room may import of ours, itself apart: the table of docs/architecture.md.
ALLOWED: dict[str, set[str]] = {
    "common": set(),
    "losses": {"common"},
    "metrics": {"common"},
    "tables": {"common"},
    "theory": {"common", "losses"},
    "linear": _FAMILIES,
    "boosting": _FAMILIES,
    "nn": _FAMILIES,
    "deep": _FAMILIES | {"nn"},
    "engines": {"common", "metrics", "tables"},
    "model": _MODEL,
    "automl": _AUTOML,
    "report": _REPORT,
    # `raresight.fit`: the walk from the options to the report.
    "fitting": {"automl", "common", "engines", "report", "tables"},
    "cli": _CLI,
    "__main__": {"cli"},
    # `raresight.fit` and `raresight.load`, imported when they are first used.
    "__init__": {"fitting", "model"},
    # The laboratory knows the tool; the tool never knows it.
    "reproduction": _CLI,
}


def package_of(path: Path) -> str:
    if LABORATORY in path.parents:
        return "reproduction"
    relative = path.relative_to(SOURCE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def own_imports(path: Path) -> set[str]:
    """The packages of ours that a file imports, at its top or inside a function."""
    root = LABORATORY if LABORATORY in path.parents else SOURCE
    parts = path.relative_to(root.parent).with_suffix("").parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [] if node.level == 0 else list(parts[: len(parts) - node.level])
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "raresight" else [module]
        found |= {name.split(".")[1] for name in names if name.startswith("raresight.")}
        found |= {"reproduction" for name in names if name.split(".")[0] == "reproduction"}
    return found - {"__version__"}


FILES = [*sorted(SOURCE.rglob("*.py")), *sorted(LABORATORY.rglob("*.py"))]


@pytest.mark.parametrize("path", FILES, ids=lambda p: "/".join(p.parts[-3:]))
def test_imports_point_one_way(path):
    package = package_of(path)
    assert package in ALLOWED, f"{package} has no place in the architecture yet"
    assert own_imports(path) <= ALLOWED[package] | {package}


def test_the_page_shows_the_same_rooms():
    """The table of the page, where a row may begin with what another room may import."""
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| (.*?) ?\|$", page.split("| room | may import |")[1], flags=re.M)
    shown: dict[str, set[str]] = {}
    for rooms, imports in rows[: len(ALLOWED)]:
        named = re.findall(r"`(\w+)`", imports)
        base = shown[named.pop(0)] if imports.startswith("what") else set()
        shown |= {room: base | set(named) for room in re.findall(r"`(\w+)`", rooms) if room in ALLOWED}
    private = {"__main__", "__init__", "reproduction"}
    assert {room: shown.get(room) for room in ALLOWED if room not in private} == {
        room: allowed for room, allowed in ALLOWED.items() if room not in private
    }


def test_the_reader_of_imports_sees_them():
    assert own_imports(SOURCE / "nn" / "start.py") == {"losses"}
    assert own_imports(SOURCE / "cli" / "losses.py") == {"common", "losses", "report"}
    assert own_imports(LABORATORY / "fraud" / "experiment.py") >= {"common", "reproduction"}


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(' '.join(sys.modules))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_losses_need_numpy_alone():
    loaded = modules_after(
        "from raresight.losses import TBL\nimport numpy as np\nTBL().derivatives(np.zeros(3), np.ones(3))"
    )
    assert not loaded & {"scipy", "sklearn", "torch", "matplotlib", "typer", "rich"}


def test_nn_needs_torch_and_numpy_alone():
    loaded = modules_after(
        "from raresight.nn import TBLLoss\nimport torch\nTBLLoss()(torch.zeros(3), torch.ones(3))"
    )
    assert not loaded & {"scipy", "sklearn", "matplotlib", "typer", "rich"}


def test_ranking_metrics_need_numpy_alone():
    loaded = modules_after("from raresight.metrics import partial_auc\npartial_auc([0, 1], [0.1, 0.2])")
    assert not loaded & {"scipy", "sklearn", "torch", "matplotlib", "typer", "rich", "pandas"}


def test_command_line_starts_without_the_heavy_parts():
    assert not modules_after("import raresight.cli") & {"torch", "scipy", "sklearn", "matplotlib"}


@pytest.mark.parametrize(
    ("block", "code", "extra"),
    [
        ("torch", "import raresight.nn", "raresight[torch]"),
        ("torch", "import raresight.deep", "raresight[torch]"),
        (
            "torch",
            "from raresight.losses import from_callable; from_callable(lambda z, y: z)",
            "raresight[torch]",
        ),
        ("plotly", "import raresight; raresight.fit('sample', target='Class')", "raresight[fit]"),
        ("pyarrow", "import raresight; raresight.fit('sample', target='Class')", "raresight[fit]"),
        (
            "matplotlib",
            "from raresight.report.loss_tables import draw_losses; draw_losses([], 'x.png')",
            "raresight[report]",
        ),
    ],
)
def test_missing_extra_is_named(block, code, extra):
    script = f"import sys; sys.modules[{block!r}] = None\n{code}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert f"pip install '{extra}'" in run.stderr.splitlines()[-1]
