"""How far a fit is, shown while it lasts."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from broken_streams import BrokenStream
from deep.deep_tables import ring_table
from raresight.common import progress
from raresight.deep import DeepClassifier, epoch_selection

SMALL = {"net": "mlp", "width": 8, "max_epochs": 2, "random_state": 0, "n_jobs": 1}


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({}, "5-fold cross-validation: epoch {} of at most 2", "training: epoch {} of {}"),
        (
            {"early_stopping": True},
            "training: epoch {} of at most 2",
            "training on all rows: epoch {} of at most {}",
        ),
        ({"early_stopping": False}, "training: epoch {} of 2", None),
    ],
)
def test_every_way_of_training_shows_how_far_it_is(options, first, second, at_once, capsys):
    X, y = ring_table(400)
    model = DeepClassifier(verbose=True, **SMALL, **options).fit(X, y)
    shown = [line for line in capsys.readouterr().err.splitlines() if ", step " not in line]
    lines = [first.format(epoch) for epoch in (1, 2)]
    if second is not None:
        count = max(model.best_epochs_)
        lines += [second.format(epoch, count) for epoch in range(1, count + 1)]
    assert [line.split(", the best")[0] for line in shown] == lines
    DeepClassifier(**SMALL, **options).fit(X, y)
    assert capsys.readouterr() == ("", "")


def test_long_epochs_show_their_steps(at_once, monkeypatch, capsys):
    X, y = ring_table(400)
    DeepClassifier(verbose=True, batch_size=100, **SMALL, early_stopping=False).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    of_an_epoch = [[f"epoch {k} of 2, step {step} of 4" for step in range(1, 5)] for k in (1, 2)]
    expected = [[*steps, f"epoch {k} of 2"] for k, steps in enumerate(of_an_epoch, 1)]
    assert lines == [f"training: {text}" for text in expected[0] + expected[1]]
    # Small nets of all folds are one stack; larger ones are trained fold by fold.
    monkeypatch.setattr(epoch_selection, "_CPU_STACK_NUMBERS", 1)
    DeepClassifier(verbose=True, batch_size=100, **SMALL).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    expected = [
        *(
            f"epoch 1 of at most 2, fold {part} of 5, step {step} of 4"
            for part in range(1, 6)
            for step in range(1, 5)
        ),
        "epoch 1 of at most 2, the best so far 1",
    ]
    assert lines[: len(expected)] == [f"5-fold cross-validation: {text}" for text in expected]


def test_folds_of_one_stack_are_shown_together(at_once, capsys):
    # 100 rows make five parts of 20: the same batches, and one stack.
    X, y = ring_table(400)
    rows = np.concatenate([np.flatnonzero(y == 0)[:90], np.flatnonzero(y == 1)[:10]])
    DeepClassifier(verbose=True, batch_size=25, **SMALL).fit(X[rows], y[rows])
    expected = [f"epoch 1 of at most 2, step {step} of 4" for step in range(1, 5)]
    expected.append("epoch 1 of at most 2, the best so far 1")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:5] == [f"5-fold cross-validation: {text}" for text in expected]


@pytest.mark.parametrize(
    ("verbose", "long", "is_shown"),
    [("auto", False, False), ("auto", True, True), (True, False, True), (False, True, False)],
)
def test_on_a_terminal_long_fits_show_it_unasked(verbose, long, is_shown, monkeypatch):
    pty = pytest.importorskip("pty")
    monkeypatch.setattr(progress, "_UNASKED_AFTER", 0.0 if long else 3600.0)
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    X, y = ring_table(400)
    with open(slave, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        DeepClassifier(verbose=verbose, **SMALL, early_stopping=False).fit(X, y)
        stream.write("\0")
        stream.flush()
        text = ""
        while not text.endswith("\0"):
            text += os.read(master, 1 << 16).decode()
    os.close(master)
    assert DeepClassifier().verbose == "auto"
    assert ("training: epoch 1 of 2" in text) == is_shown


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_fit_outlives_its_display(is_terminal, at_once, monkeypatch):
    X, y = ring_table(400)
    options = {**SMALL, "early_stopping": False}
    quiet = DeepClassifier(verbose=False, **options).fit(X, y)
    monkeypatch.setattr(sys, "stderr", BrokenStream(is_terminal))
    shown = DeepClassifier(verbose=True, **options).fit(X, y)
    assert (shown.predict_proba(X) == quiet.predict_proba(X)).all()
    # Nor does it take the place of what ends a fit.
    with pytest.raises(ValueError, match="no net learned anything"):
        DeepClassifier(verbose=True, **{**options, "learning_rate": 1e30}).fit(X, y)
