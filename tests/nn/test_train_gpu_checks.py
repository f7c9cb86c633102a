"""The checks for a GPU: PyTorch and NumPy are enough, and what cannot be checked is said."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).parents[1] / "gpu"


@pytest.fixture
def checks(monkeypatch):
    """The modules of that folder, which are no part of the tests otherwise."""
    monkeypatch.syspath_prepend(str(CHECKS))
    yield lambda name: importlib.import_module(name)
    for name in ("run", "check_training", "check_deep"):
        sys.modules.pop(name, None)


def test_a_check_passes_fails_or_is_skipped(checks):
    run = checks("run")

    def fails():
        raise AssertionError("weights differ")

    assert run.outcome_of(lambda: None) == "passed"
    assert run.outcome_of(lambda: run.skipped("no disk")) == "skipped: no disk"
    outcome = run.outcome_of(fails)
    assert outcome.startswith("FAILED\n")
    assert "weights differ" in outcome


def test_without_safetensors_resuming_is_skipped(checks, monkeypatch):
    run, training = checks("run"), checks("check_training")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    outcome = run.outcome_of(training.check_a_training_goes_on_where_it_stopped)
    assert outcome == "skipped: weights on disk need safetensors"


@pytest.mark.parametrize("missing", ["scipy", "sklearn"])
def test_without_scikit_learn_the_estimator_is_skipped(checks, monkeypatch, missing):
    run, deep = checks("run"), checks("check_deep")
    monkeypatch.setitem(sys.modules, missing, None)
    named = [value for name, value in vars(deep).items() if name.startswith("check_")]
    assert len(named) == 4
    for check in named:
        assert run.outcome_of(check) == f"skipped: DeepClassifier needs {missing}"
