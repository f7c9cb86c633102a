"""Pictures of ranking are drawn, and say what was measured."""

from __future__ import annotations

import numpy as np
import pytest

from raresight.metrics import interval, recall_at_fpr
from reproduction.roc_figure import draw_intervals, draw_roc


@pytest.fixture
def rows():
    generator = np.random.default_rng(0)
    y = np.repeat([0, 1], [5000, 50])
    return y, generator.normal(size=5050) + 2 * y


def test_roc_names_its_figures(rows, tmp_path):
    y, s = rows
    path = draw_roc(y, {"first": s, "second": -s}, tmp_path / "deep" / "roc.svg", fpr=0.01)
    text = path.read_text()
    assert f"first: {recall_at_fpr(y, s, 0.01):.2f}" in text
    assert "second: AUC" in text


def test_intervals(rows, tmp_path):
    y, s = rows
    found = [(f"day {day}", interval("recall_at_fpr", y, s, seed=day)) for day in range(3)]
    text = draw_intervals(found, tmp_path / "intervals.svg", truth=0.2, title="three days").read_text()
    assert "three days" in text
    assert "day 2" in text


def test_other_files_are_refused(rows, tmp_path):
    with pytest.raises(ValueError, match=r"\.png, \.svg or \.pdf"):
        draw_roc(*rows, tmp_path / "roc.gif")
