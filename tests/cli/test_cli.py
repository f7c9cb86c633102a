"""The command line, run as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import raresight
from raresight.losses import all_losses


def run(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-m", "raresight", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1", **environment},
    )


def test_version():
    result = run("--version")
    assert result.returncode == 0
    assert result.stdout.strip() == f"raresight {raresight.__version__}"


def test_losses_table_has_every_loss():
    result = run("losses")
    assert result.returncode == 0, result.stderr
    for loss in all_losses():
        assert loss.name in result.stdout
    assert "alpha=0.8" in result.stdout
    assert "-(1-p)^gamma log p" in result.stdout
    assert "partialauc" in result.stdout


def test_losses_as_json():
    rows = json.loads(run("losses", "tbl(alpha=0.7,C=1)", "squared", "partialauc", "--json").stdout)
    assert [row["name"] for row in rows] == ["tbl", "squared", "partialauc"]
    assert rows[2]["link"] == "no link"
    assert rows[0]["parameters"] == {"alpha": 0.7, "C": 1.0}
    assert rows[0]["convex"] is True
    assert rows[1]["convex"] is False


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_losses_picture(tmp_path, ending):
    target = tmp_path / "new" / f"losses.{ending}"
    result = run("losses", "--plot", str(target))
    assert result.returncode == 0, result.stderr
    assert target.stat().st_size > 5000
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert target.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("losses", "tlb"), "did you mean 'tbl'"),
        (("losses", "tbl(C=5)"), "C_uniq"),
        (("losses", "--plot", "x.gif"), ".png, .svg or .pdf"),
        (("losses", "vectorscaling(class_counts=(5,1))", "--plot", "x.png"), "class logits"),
    ],
)
def test_errors_are_one_line(tmp_path, arguments, message):
    result = run(*arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert message in result.stderr
    assert result.stderr.startswith("error:")
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.iterdir())


def test_debug_shows_the_traceback():
    for arguments in (("--debug", "losses", "tlb"), ("losses", "tlb", "--debug")):
        result = run(*arguments)
        assert result.returncode == 1
        assert "Traceback" in result.stderr
        assert "ValueError" in result.stderr


def test_unknown_command_is_refused():
    result = run("nonsense")
    assert result.returncode == 2
    assert "No such command" in result.stderr


def test_shell_completion():
    result = run("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert result.returncode == 0, result.stderr
    assert "_RARESIGHT_COMPLETE" in result.stdout
    script = {"_RARESIGHT_COMPLETE": "complete_bash", "COMP_WORDS": "raresight lo", "COMP_CWORD": "1"}
    executable = Path(sys.executable).parent / "raresight"
    import os

    completed = subprocess.run(
        [executable], capture_output=True, text=True, check=False, env={**os.environ, **script}
    )
    assert completed.stdout.split() == ["losses"]


def test_infinite_parameters_are_valid_json():
    rows = json.loads(run("losses", "alpha(alpha=inf)", "--json").stdout, parse_constant=pytest.fail)
    assert rows[0]["parameters"] == {"alpha": "inf"}


def test_warnings_are_one_line_too():
    result = run("losses", "tbl(C=1.7)")
    assert result.returncode == 0
    assert result.stderr.strip().startswith("warning: tbl(alpha=0.8,C=1.7) is not convex")
    assert ".py" not in result.stderr


def test_table_fits_a_narrow_terminal():
    text = run("losses", COLUMNS="80").stdout
    assert "- delta_y m))" in text
    assert max(map(len, text.splitlines())) <= 80


def test_analyze_table():
    result = run("analyze", "tbl(alpha=0.8,C=0.5)", "focal(gamma=2)", "--prior", "1e-3")
    assert result.returncode == 0, result.stderr
    assert "0.7967" in result.stdout  # index of TBL at this prior
    assert "a mislabelled row can pull without limit" in " ".join(result.stdout.split())


def test_analyze_json_and_page(tmp_path):
    page = tmp_path / "page.html"
    result = run("analyze", "crossentropy", "squared", "--prior", "1e-4", "--json", "--html", str(page))
    rows = json.loads(result.stdout)
    assert [row["beta_limit"] for row in rows] == [1.0, 2.0]
    assert rows[0]["explained"] == pytest.approx(0.048962, rel=1e-4)
    text = page.read_text()
    assert "gives up on rare events" in text
    assert "<script src=" not in text  # one file, nothing fetched


def test_analyze_a_loss_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def exponential(z, y):\n    return torch.exp((1 - 2 * y) * z)\n"
        "def wavy(z, y):\n    m = (2 * y - 1) * z\n"
        "    return torch.nn.functional.softplus(-m) + 2 * torch.sin(m)\n"
        "def hinge(z, y):\n    return torch.relu(1 - (2 * y - 1) * z)\n"
    )
    (tmp_path / "light.py").write_text("number = 3\n")
    (tmp_path / "broken.py").write_text("number = 1 / 0\n")
    losses = ("mine:exponential", "mine:wavy", "mine:hinge")
    result = run("analyze", *losses, "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    good, wavy, hinge = json.loads(result.stdout)
    assert good["beta"] == pytest.approx(0.5, abs=1e-3)
    assert not good["bounded_influence"]
    assert "not monotone: l(1, z) rises at z = " in wavy["verdict"]
    assert "l(1, z) is flat from z = 1.0" in hinge["verdict"]
    for name, message in (
        ("light:nothing", "has no 'nothing'"),
        ("light:number", "neither a loss"),
        ("none:x", "import"),
        ("broken:x", "import"),
        (":x", "import"),
    ):
        failed = run("analyze", name, cwd=tmp_path)
        assert failed.returncode == 1
        assert message in failed.stderr
        assert "Traceback" not in failed.stderr


def test_analyze_scores_of_ones_own_model(tmp_path):
    rows = ["y,score", *(f"{int(i % 5 == 0)},{i % 7 + 3 * (i % 5 == 0)}" for i in range(200))]
    (tmp_path / "scores.csv").write_text("\n".join(rows))
    result = run("analyze", "tbl", "--prior", "0.2", "--scores", "scores.csv", "--json", cwd=tmp_path)
    found = json.loads(result.stdout)[0]
    assert 0.1 < found["explained_interval"][0] < found["explained"] < found["explained_interval"][1] < 1
    shown = run("analyze", "tbl", "--prior", "0.2", "--scores", "scores.csv", cwd=tmp_path).stdout
    assert "its 95 % interval" in shown
    assert "its 95 % interval" not in run("analyze", "tbl", "--prior", "0.2").stdout
    failed = run("analyze", "tbl", "--scores", "scores.csv", "--target", "label", cwd=tmp_path)
    assert "no column 'label'; it has y, score" in failed.stderr
    (tmp_path / "bad.csv").write_text("y,score\n1,2\n0,many\n")
    (tmp_path / "scores.parquet").write_bytes(b"PAR1\xc0\xff")
    failed = run("analyze", "tbl", "--scores", "scores.parquet", cwd=tmp_path)
    assert failed.returncode != 0
    assert "scores.parquet is not text in UTF-8" in failed.stderr
    failed = run("analyze", "tbl", "--scores", "bad.csv", cwd=tmp_path)
    assert "line 3" in failed.stderr
    assert run("analyze", "tbl", "--prior", "2").stderr.startswith("error: prior must lie strictly")
