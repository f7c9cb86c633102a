"""Progress on a terminal, in a log, and where there is neither."""

from __future__ import annotations

import io
import sys

import pytest

from raresight.common import progress
from raresight.common.progress import FaultTolerantStream, Silent, Status, show_progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Broken(Terminal):
    def write(self, text):
        raise OSError(5, "Input/output error")


def test_a_log_gets_lines_that_are_apart_unless_they_are_urgent(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    log = io.StringIO()
    with show_progress(True, log) as display:
        display.show(Status("epoch 1"))
        display.show(Status("epoch 2"))
        display.show(Status("stage", urgent=True))
        display.note("look", warning=True)
        now[0] = 2.5
        display.show(Status("epoch 3"))
        display.show(Status("epoch 3", urgent=True))
    assert log.getvalue().splitlines() == ["epoch 1", "stage", "warning: look", "epoch 3"]


def test_a_terminal_gets_a_line_and_a_table_that_go_away():
    terminal = Terminal()
    with show_progress(True, terminal) as display:
        display.show(Status("searching", share=0.5, header=("model", "AUC"), rows=[("tbl", "0.9")]))
        shown = terminal.getvalue()
        display.note("kept")
    assert all(text in shown for text in ("searching", "model", "tbl", "0.9"))
    assert "kept" in terminal.getvalue()
    assert "\x1b[2K" in terminal.getvalue()[len(shown) :]  # the lines are erased


@pytest.mark.parametrize("wanted", [False, "auto"])
def test_nothing_is_shown_unasked_in_a_log(wanted):
    log = io.StringIO()
    with show_progress(wanted, log) as display:
        display.show(Status("line", urgent=True))
        display.note("note")
    assert isinstance(display, Silent)
    assert log.getvalue() == ""


def test_auto_waits_some_seconds_on_a_terminal(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    terminal = Terminal()
    with show_progress("auto", terminal) as display:
        display.show(Status("early", urgent=True))
        assert terminal.getvalue() == ""
        now[0] = 4.0
        display.show(Status("late"))
        assert "late" in terminal.getvalue()


def test_a_process_without_standard_error_works(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with show_progress() as display:
        display.show(Status("line"))


def test_a_terminal_that_was_closed_does_not_stop_the_work():
    with show_progress(True, Broken()) as display:
        display.show(Status("line", header=("a",), rows=[("b",)]))
        display.note("note")
    stream = FaultTolerantStream(Broken())
    assert stream.write("text") == 4
    stream.flush()
