"""How far a fit is, in lines."""

from __future__ import annotations

import io
import sys

import pytest

from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier, telling

SMALL = {"net": "mlp", "width": 8, "max_epochs": 2, "random_state": 0, "n_jobs": 1}


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(telling, "_SECONDS", 0.0)


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ({}, "5 parts in turn: epoch {} of at most 2", "training: epoch {} of {}"),
        (
            {"early_stopping": True},
            "training: epoch {} of at most 2",
            "training on all rows: epoch {} of at most {}",
        ),
        ({"early_stopping": False}, "training: epoch {} of 2", None),
    ],
)
def test_every_way_of_training_tells_how_far_it_is(options, first, second, at_once, capsys):
    X, y = ring_table(400)
    model = DeepClassifier(verbose=True, **SMALL, **options).fit(X, y)
    told = capsys.readouterr().err.splitlines()
    lines = [first.format(epoch) for epoch in (1, 2)]
    if second is not None:
        count = max(model.best_epochs_)
        lines += [second.format(epoch, count) for epoch in range(1, count + 1)]
    assert [line.split(", the best")[0] for line in told] == lines
    DeepClassifier(**SMALL, **options).fit(X, y)
    assert capsys.readouterr() == ("", "")


def test_lines_come_seldom_and_not_without_a_place(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    tell = telling.told(True, "it")
    for k in range(3):
        tell(f"epoch {k}")
    assert stream.getvalue() == "it: epoch 0\n"
    monkeypatch.setattr(sys, "stderr", None)
    telling.told(True, "it")("nowhere")
