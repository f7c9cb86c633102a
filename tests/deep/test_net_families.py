"""The families `tabm` and `tabnet` of `raresight fit`: a small search each on the bundled sample."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

import raresight
from deep.deep_tables import ring_table
from raresight.automl.space import candidates, make_space
from raresight.deep import DeepClassifier
from raresight.metrics import roc_auc
from raresight.model import Candidate, fit_candidates
from raresight.model.families import FAMILIES
from raresight.tables import load_sample

SETTINGS = {"tabm": {"dropout": 0.1}, "tabnet": {"steps": 3}}
TITLES = {"tabm": "TabM", "tabnet": "TabNet"}


@pytest.fixture(scope="module")
def table():
    """All frauds of the bundled sample, and every fortieth other payment."""
    whole = load_sample().to_pandas()
    return whole[(whole.Class == 1) | (np.arange(len(whole)) % 40 == 0)]


@pytest.fixture(scope="module")
def runs(table, tmp_path_factory):
    """One candidate of each family, with the family's defaults."""
    options = {"losses": "crossentropy", "fpr": 0.01, "max_fpr": 0.1, "jobs": 1, "trials": 1}
    folder = tmp_path_factory.mktemp("runs")
    return {
        family: raresight.fit(table, target="Class", families=family, out=folder / family, **options)
        for family in SETTINGS
    }, folder


@pytest.mark.parametrize("family", SETTINGS)
def test_a_search_on_the_sample(family, table, runs):
    result, folder = runs[0][family], runs[1] / family
    assert result.model.members[0].fitted.candidate == Candidate(family, "crossentropy")
    assert roc_auc(result.held_out.y, result.held_out.log_odds) > 0.9
    page = (folder / "report.html").read_text()
    assert f"<dt>Model</dt><dd>{TITLES[family]}</dd>" in page
    for name, value in SETTINGS[family].items():
        assert f"{name} {value}" in page
    described = json.loads((folder / "model" / "model.json").read_text())
    assert described["members"][0]["candidate"]["family"] == family
    assert ("tabm" in described["versions"]) == (family == "tabm")
    again = raresight.load(folder)
    assert np.array_equal(again.log_odds(table), result.model.log_odds(table))


@pytest.mark.parametrize("family", SETTINGS)
def test_a_candidate_is_the_classifier(family):
    X, y = ring_table(600)
    sizes = {"tabm": {"width": 8, "dropout": 0.2}, "tabnet": {"width": 4, "steps": 2}}[family]
    chosen = {"epochs": 3, "learning_rate": 0.01, **sizes}
    (fitted,) = fit_candidates([Candidate(family, "tbl", tuple(chosen.items()))], X, y, [], [], seed=5)
    model = DeepClassifier(
        net=family,
        **sizes,
        max_epochs=3,
        learning_rate=0.01,
        early_stopping=False,
        random_state=5,
        n_jobs=1,
    ).fit(X, y)
    assert fitted.part.classifier.nets_.plan.name == family
    assert np.array_equal(fitted.log_odds(X), model.predict_log_odds(X))


@pytest.mark.parametrize("family", SETTINGS)
def test_the_search_chooses_every_setting_within_reach(family):
    space = make_space(f"linear,{family}", "tbl")
    assert space.families == ("linear", family)
    reaches = FAMILIES[family].parameters
    drawn = [group[0] for group in islice(candidates(make_space(family, "tbl"), (990, 10), 0), 12)][2:]
    assert {trial.origin for trial in drawn} == {"random"}
    for trial in drawn:
        settings = dict(trial.candidate.parameters)
        assert set(settings) == set(reaches)
        assert all(reaches[name].low <= value <= reaches[name].high for name, value in settings.items())


def test_a_library_that_is_missing_is_named_with_its_extra(runs):
    tries = [
        ("tabm", "make_space('tabm')"),
        ("tabm", f"raresight.load({str(runs[1] / 'tabm')!r})"),
        ("torch", "make_space('tabm')"),
        ("torch", "make_space('tabnet')"),
    ]
    script = (
        "import sys\n"
        "import raresight\n"
        "from raresight.automl.space import make_space\n"
        f"for library, call in {tries!r}:\n"
        "    sys.modules[library] = None\n"
        "    try:\n"
        "        eval(call)\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == [
        "the family tabm needs the package tabm: pip install 'raresight[tabm]'",
        "the family tabm needs the package tabm: pip install 'raresight[tabm]'",
        "the family tabm needs PyTorch: pip install 'raresight[tabm]'",
        "the family tabnet needs PyTorch: pip install 'raresight[torch]'",
    ]
