"""How far a fit is, in lines."""

from __future__ import annotations

import io
import os
import sys

import numpy as np
import pytest
from joblib import Parallel, delayed

from broken_streams import BrokenStream
from deep.deep_tables import ring_table
from raresight.deep import DeepClassifier, epoch_selection, telling

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
    with telling.telling(True) as about:
        tell = about("it")
        for k in range(3):
            tell(f"epoch {k}")
            tell(f"step {k}", within=True)
        about("another")("epoch 1")
    assert stream.getvalue() == "it: epoch 0\nanother: epoch 1\n"
    monkeypatch.setattr(sys, "stderr", None)
    with telling.telling(True) as about:
        about("it")("nowhere")


def test_long_epochs_tell_of_their_steps(at_once, monkeypatch, capsys):
    monkeypatch.setattr(telling, "_SECONDS_WITHIN", 0.0)
    X, y = ring_table(400)
    DeepClassifier(verbose=True, batch_size=100, **SMALL, early_stopping=False).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    of_an_epoch = [[f"epoch {k} of 2, step {step} of 4" for step in range(1, 5)] for k in (1, 2)]
    told = [[*steps, f"epoch {k} of 2"] for k, steps in enumerate(of_an_epoch, 1)]
    assert lines == [f"training: {text}" for text in told[0] + told[1]]
    # Small nets of all parts are one stack; larger ones take turns.
    monkeypatch.setattr(epoch_selection, "_NUMBERS_OF_A_STACK", 1)
    DeepClassifier(verbose=True, batch_size=100, **SMALL).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    in_turn = [
        *(
            f"epoch 1 of at most 2, part {part} of 5, step {step} of 4"
            for part in range(1, 6)
            for step in range(1, 5)
        ),
        "epoch 1 of at most 2, the best so far 1",
    ]
    assert lines[: len(in_turn)] == [f"5 parts in turn: {text}" for text in in_turn]


def test_parts_of_one_stack_are_not_told_apart(at_once, monkeypatch, capsys):
    monkeypatch.setattr(telling, "_SECONDS_WITHIN", 0.0)
    # 100 rows make five parts of 20: the same batches, and one stack.
    X, y = ring_table(400)
    rows = np.concatenate([np.flatnonzero(y == 0)[:90], np.flatnonzero(y == 1)[:10]])
    DeepClassifier(verbose=True, batch_size=25, **SMALL).fit(X[rows], y[rows])
    told = [f"epoch 1 of at most 2, step {step} of 4" for step in range(1, 5)]
    told.append("epoch 1 of at most 2, the best so far 1")
    lines = capsys.readouterr().err.splitlines()
    assert lines[:5] == [f"5 parts in turn: {text}" for text in told]


@pytest.fixture
def terminal(monkeypatch):
    """A call makes a terminal of standard error; what comes to it is what the result returns."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as stream:

        def shown():
            # Up to an end that is written here: what was written arrives a little later.
            stream.write("\0")
            stream.flush()
            text = ""
            while not text.endswith("\0"):
                text += os.read(master, 1 << 16).decode()
            return text[:-1]

        def connect():
            # In the test itself: pytest puts its own in place before it.
            monkeypatch.setattr(sys, "stderr", stream)
            return shown

        yield connect
    os.close(master)


@pytest.mark.parametrize(
    ("verbose", "long", "is_told"),
    [("auto", False, False), ("auto", True, True), (True, False, True), (False, True, False)],
)
def test_on_a_terminal_long_fits_tell_unasked_in_one_line(verbose, long, is_told, terminal, monkeypatch):
    monkeypatch.setattr(telling, "_UNASKED_AFTER", 0.0 if long else 3600.0)
    monkeypatch.setattr(telling, "_SECONDS_REDRAWN", 0.0)
    X, y = ring_table(400)
    read = terminal()
    DeepClassifier(verbose=verbose, **SMALL, early_stopping=False).fit(X, y)
    shown = read()
    assert ("training: epoch 1 of 2" in shown) == is_told
    assert ("training: epoch 2 of 2" in shown) == is_told
    # Nothing of it stays: no line is begun, and the last one is written over.
    assert "\n" not in shown
    assert on_screen(shown) == ""


def test_unasked_is_the_default_and_begins_after_seconds(terminal, monkeypatch):
    assert DeepClassifier().verbose == "auto"
    read = terminal()
    now = 100.0
    monkeypatch.setattr(telling.time, "monotonic", lambda: now)
    with telling.telling("auto") as about:
        tell = about("training")
        tell("epoch 1")
        now = 102.9
        tell("epoch 2", within=True)
        assert read() == ""
        now = 103.1
        tell("epoch 3, which is the last", within=True)
        assert on_screen(read()) == "training: epoch 3, which is the last"
        tell("epoch 4")
        assert read() == ""
        now = 103.4
        tell("epoch 5")
        assert on_screen(read()) == "training: epoch 5"


def test_a_line_is_not_longer_than_the_terminal_is_wide(terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    read = terminal()
    with telling.telling(True) as about:
        about("training")("epoch 1 of at most 100")
        assert on_screen(read()) == "training: epoch 1 o"


def test_a_fit_that_fails_leaves_no_line(terminal):
    read = terminal()
    X, y = ring_table(400)
    options = {**SMALL, "learning_rate": 1e30, "early_stopping": False}
    with pytest.raises(ValueError, match="no net learned anything"):
        DeepClassifier(verbose=True, **options).fit(X, y)
    shown = read()
    assert "training: epoch 1" in shown
    assert on_screen(shown) == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_fit_outlives_what_it_tells_of_itself(is_terminal, at_once, monkeypatch):
    X, y = ring_table(400)
    options = {**SMALL, "early_stopping": False}
    quiet = DeepClassifier(verbose=False, **options).fit(X, y)
    monkeypatch.setattr(sys, "stderr", BrokenStream(is_terminal))
    told = DeepClassifier(verbose=True, **options).fit(X, y)
    assert (told.predict_proba(X) == quiet.predict_proba(X)).all()
    # Nor does it take the place of what ends a fit.
    with pytest.raises(ValueError, match="no net learned anything"):
        DeepClassifier(verbose=True, **{**options, "learning_rate": 1e30}).fit(X, y)


def test_what_is_no_terminal_is_told_nothing_unasked(monkeypatch):
    monkeypatch.setattr(telling, "_UNASKED_AFTER", 0.0)
    closed = io.StringIO()
    closed.close()
    without = type("Log", (), {"write": lambda self, text: pytest.fail(text)})()
    for stream in (io.StringIO(), closed, without, None):
        monkeypatch.setattr(sys, "stderr", stream)
        with telling.telling("auto") as about:
            assert about("training") is telling.quiet


def test_processes_of_joblib_are_not_the_first():
    assert telling._is_first_process()
    assert Parallel(n_jobs=2)(delayed(telling._is_first_process)() for _ in range(2)) == [False, False]


def test_another_process_tells_nothing_unasked(terminal, monkeypatch):
    monkeypatch.setattr(telling, "_UNASKED_AFTER", 0.0)
    monkeypatch.setattr(telling, "_is_first_process", lambda: False)
    read = terminal()
    with telling.telling("auto") as about:
        about("training")("epoch 1")
    assert read() == ""
    with telling.telling(True) as about:
        about("training")("epoch 1")
    assert "epoch 1" in read()


def on_screen(shown):
    """What is on a line after all that was written to it."""
    line = ""
    for text in shown.split("\r"):
        line = text + line[len(text) :]
    return line.rstrip()
