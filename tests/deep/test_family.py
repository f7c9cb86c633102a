"""The family `deep` of `raresight fit`: candidates, a search, a model folder, scores of files."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice

import numpy as np
import pandas as pd
import pytest

import raresight
from deep.deep_tables import mixed_frame, ring_table
from raresight.automl.space import candidates, make_space
from raresight.deep import DeepClassifier
from raresight.metrics import roc_auc
from raresight.model import Candidate, fit_candidates, score_file
from raresight.tables.sample import sample_path

FEW = (("epochs", 4), ("learning_rate", 0.01), ("width", 16))


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    frame, y = mixed_frame(1500)
    return frame.assign(fraud=y, shop=frame.shop.astype(object))


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "fit"
    options = {"losses": "crossentropy,tbl", "fpr": 0.01, "max_fpr": 0.1, "jobs": 1, "trials": 3}
    return raresight.fit(table, target="fraud", families="deep", out=folder, **options), folder


def test_a_search_of_nets_ends_with_a_model(run, table):
    result, folder = run
    assert {row.candidate.family for row in result.leaderboard} == {"deep"}
    assert len(result.leaderboard) == 3
    y, log_odds = result.held_out.y, result.held_out.log_odds
    assert roc_auc(y, log_odds) > 0.75
    described = json.loads((folder / "model" / "model.json").read_text())
    assert described["members"][0]["candidate"]["family"] == "deep"
    assert sorted(described["parts"]) == [
        "held_out.npz",
        "member-1/deep.json",
        "member-1/deep.safetensors",
    ]
    assert {"torch", "safetensors"} <= set(described["versions"])
    assert "Deep net" in (folder / "report.html").read_text()


def test_the_model_is_read_again_and_scores_files(run, table, tmp_path):
    result, folder = run
    model = raresight.load(folder)
    expected = result.model.log_odds(table)
    assert np.array_equal(model.log_odds(table), expected)
    table.to_csv(tmp_path / "rows.csv", index=False)
    # A batch at a time gives the scores of all at once.
    scored = score_file(model, tmp_path / "rows.csv", tmp_path / "scores.csv", batch_rows=400)
    assert scored.rows == len(table)
    assert pd.read_csv(tmp_path / "scores.csv").log_odds.to_numpy() == pytest.approx(expected, rel=1e-9)


def test_a_candidate_is_the_classifier():
    X, y = ring_table(1000)
    (fitted,) = fit_candidates([Candidate("deep", "tbl", FEW)], X, y, [], [], seed=5)
    model = DeepClassifier(
        net="mlp",
        width=16,
        max_epochs=4,
        learning_rate=0.01,
        early_stopping=False,
        random_state=5,
        n_jobs=1,
    ).fit(X, y)
    assert np.array_equal(fitted.scores(X), model.raw_scores(X))
    assert fitted.calibrator == model.calibrator_
    assert np.array_equal(fitted.log_odds(X), model.predict_log_odds(X))
    # A search tells how far it is by itself.
    assert fitted.part.classifier.verbose is False


def test_nets_that_fail_are_reported_with_the_candidate():
    X, y = ring_table(500)
    wild = Candidate("deep", "alpha(alpha=0.3)", (("epochs", 3), ("learning_rate", 1e12)))
    with pytest.raises(ValueError, match="not finite in epoch 1"):
        fit_candidates([wild], X, y, [], [])


def test_nets_are_tried_only_where_they_are_named():
    assert "deep" not in make_space().families
    space = make_space("linear,deep", "tbl")
    assert space.families == ("linear", "deep")
    first = [group[0].candidate for group in islice(candidates(space, (990, 10), 0), 2)]
    assert first == [Candidate("linear", "crossentropy"), Candidate("deep", "crossentropy")]
    *_, last = islice(candidates(make_space("deep", "tbl"), (990, 10), 0), 3)
    assert last[0].origin == "random"
    assert set(dict(last[0].candidate.parameters)) == {"learning_rate", "epochs", "width", "weight_decay"}


def test_without_torch_the_family_names_the_extra():
    script = (
        "import sys\n"
        "from raresight.automl.space import make_space\n"
        "sys.modules['torch'] = None\n"
        "print(make_space().families)\n"
        "make_space('deep')"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "deep" not in run.stdout
    assert run.stderr.splitlines()[-1] == (
        "ImportError: the family deep needs PyTorch: pip install 'raresight[torch]'"
    )


@pytest.mark.slow
def test_the_command_on_the_sample(tmp_path):
    out = tmp_path / "out"
    options = ["--families", "deep,linear", "--losses", "tbl", "--budget", "30s", "--jobs", "2", "--quiet"]
    command = ["fit", str(sample_path()), "--target", "Class", "--out", str(out), "--json", *options]
    run = subprocess.run(
        [sys.executable, "-m", "raresight", *command], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    board = pd.read_csv(out / "leaderboard.csv")
    assert set(board.family) == {"deep", "linear"}
    assert board.partial_auc.max() > 0.9
