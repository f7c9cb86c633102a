"""The curves and tables of the page against direct counts."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from raresight.losses import Focal, param, parse, registry
from raresight.metrics import recall_at_fpr
from raresight.model.families import Candidate
from raresight.report import fit_content
from raresight.report.fit_content import map_place
from raresight.report.fit_measures import band_of, curve_of, distribution_of, information_of, reliability_of
from report.fit_page_sample import outcome_of, scores


@pytest.fixture(scope="module")
def rows():
    return scores(20_000, 0.01, seed=2)


@pytest.mark.parametrize("most", [10, 100, 1_000, 5_000, 100_000])
def test_every_point_of_the_curve_counts_its_alerts(rows, most):
    y, score = rows
    curve = curve_of(y, score, most_points=most)
    assert len(curve) <= max(most, 10)
    assert curve.thresholds[0] == np.inf
    assert np.all(np.diff(curve.thresholds) < 0)
    ascending = {label: np.sort(score[y == label]) for label in (0, 1)}
    for label, counts in ((0, curve.false_positives), (1, curve.true_positives)):
        above = len(ascending[label]) - np.searchsorted(ascending[label], curve.thresholds, side="left")
        np.testing.assert_array_equal(counts, above)
    assert curve.true_positives[-1] == curve.positives == y.sum()
    assert curve.false_positives[-1] == curve.negatives == len(y) - y.sum()


@pytest.mark.parametrize("most", [100, 1_000, 5_000])
def test_curve_is_complete_as_far_as_it_says(rows, most):
    y, score = rows
    curve = curve_of(y, score, most_points=most)
    assert 0 < curve.exact_to_fpr < 1
    complete = curve.false_positives / curve.negatives <= curve.exact_to_fpr
    top = np.unique(score)[::-1][: np.count_nonzero(complete) - 1]
    np.testing.assert_array_equal(curve.thresholds[complete][1:], top)


def test_whole_curve_is_exact_everywhere(rows):
    assert curve_of(*rows, most_points=50_000).exact_to_fpr == 1.0


def test_positives_alone_at_the_top_leave_nothing_complete():
    y = np.repeat([1, 0], [500, 500])
    curve = curve_of(y, np.arange(1000.0)[::-1], most_points=100)
    assert curve.exact_to_fpr == 0.0
    assert len(curve) <= 100
    assert curve.false_positives[np.argmax(curve.true_positives)] >= 0


def test_curve_of_one_score():
    curve = curve_of([0, 1, 0], [2.0, 2.0, 2.0])
    assert curve.thresholds.tolist() == [np.inf, 2.0]
    assert curve.false_positives.tolist() == [0, 2]


def test_too_few_points_are_refused():
    with pytest.raises(ValueError, match="most_points must be at least 10, but is 3"):
        curve_of([0, 1], [0.0, 1.0], most_points=3)


def test_band_holds_the_recall(rows):
    band = band_of(*rows, points=9, draws=200)
    assert [p.fpr for p in band] == sorted(p.fpr for p in band)
    assert band[0].fpr == pytest.approx(1 / np.sum(rows[0] == 0))
    assert band[-1].fpr == 1.0
    for point in band:
        assert point.recall == recall_at_fpr(*rows, fpr=point.fpr)
        assert point.low <= point.recall <= point.high


def test_bands_and_information_count_groups():
    """Each row is there eight times, so the rows say no more than one in eight of them would."""
    random = np.random.default_rng(0)
    y, groups = np.repeat(np.arange(1_000) < 50, 8).astype(int), np.repeat(np.arange(1_000), 8)
    scores = np.repeat(random.normal(size=1_000), 8) + 2 * y
    rows, units = (band_of(y, scores, groups=own, points=5, draws=200) for own in (None, groups))
    for row, unit in zip(rows[:-1], units[:-1], strict=True):
        assert unit.recall == row.recall
        assert unit.high - unit.low > 1.5 * (row.high - row.low)
    (row,), (unit,) = (information_of(y, scores, ["tbl"], 0.05, groups=own) for own in (None, groups))
    assert unit.explained_high - unit.explained_low > 1.5 * (row.explained_high - row.explained_low)


def test_the_content_of_a_fit_counts_its_groups(rows, monkeypatch):
    groups = np.arange(len(rows[0])) // 4
    outcome = outcome_of(*rows)
    seen = []
    for name in ("band_of", "information_of"):
        monkeypatch.setattr(fit_content, name, lambda *_, groups, **__: seen.append(groups) or ())
    monkeypatch.setattr(fit_content, "_importance", lambda _: ())
    fit_content.content_of(replace(outcome, held_out=replace(outcome.held_out, units=groups)))
    assert seen[0] is seen[1] is groups


def test_reliability_counts_every_row_and_covers_the_truth():
    random = np.random.default_rng(0)
    p = 10 ** random.uniform(-4, -0.3, 50_000)
    y = (random.random(50_000) < p).astype(int)
    bins = reliability_of(y, p)
    assert 6 <= len(bins) <= 12
    assert sum(b.count for b in bins) == 50_000
    assert sum(b.count * b.observed for b in bins) == pytest.approx(y.sum())
    assert all(b.low <= b.observed <= b.high for b in bins)
    assert sum(b.low <= b.predicted <= b.high for b in bins) >= len(bins) - 2


def test_reliability_of_a_bin_without_positives_has_an_upper_end():
    bins = reliability_of([0] * 98 + [1] * 2, [0.01] * 90 + [0.2] * 10)
    assert bins[0].low == bins[0].observed == 0
    # 90 rows without an event: the exact upper end is 1 - 0.025**(1/90).
    assert bins[0].high == pytest.approx(1 - 0.025 ** (1 / 90))


def clumped():
    """A model that is nearly sure of most positives: little lies between the bulk and the clump."""
    random = np.random.default_rng(4)
    log_odds = np.concatenate(
        [random.normal(-9, 1, 40_000), random.uniform(-6, 3, 120), random.normal(7, 1, 60)]
    )
    p = 1 / (1 + np.exp(-log_odds))
    return (random.random(len(p)) < p).astype(int), p


def test_reliability_covers_the_middle():
    y, p = clumped()
    bins = reliability_of(y, p)
    assert 6 <= len(bins) <= 12
    predicted = [b.predicted for b in bins]
    assert predicted == sorted(predicted)
    assert sum(10 * y.mean() < value < 0.9 for value in predicted) >= 3
    assert sum(value > 0.9 for value in predicted) <= 2
    assert sum(b.count for b in bins) == len(y)
    # A bin is expected to hold enough to say something, or it is of the bulk.
    share = y.sum() / p.sum()
    assert all(b.count * b.predicted * share >= 2 - 1e-9 or b.count >= len(y) / 5 for b in bins)


def test_intervals_of_the_reliability_cover_as_often_as_they_say():
    _, p = clumped()
    random = np.random.default_rng(6)
    held = []
    for _ in range(150):
        bins = reliability_of((random.random(len(p)) < p).astype(int), p)
        held += [b.low <= b.predicted <= b.high for b in bins]
    assert len(held) > 900
    assert np.mean(held) > 0.95


def test_reliability_before_the_link_has_as_many_bins():
    y, p = clumped()
    for before in (p / 20, np.sqrt(p), p**1.5):
        assert 6 <= len(reliability_of(y, before)) <= 12


@pytest.mark.parametrize("p", [np.full(50, 0.1), np.linspace(0, 1, 50), np.repeat([0.0, 1.0], 25)])
def test_reliability_of_few_or_certain_rows_counts_them_all(p):
    y = np.repeat([0, 1], [45, 5])
    bins = reliability_of(y, p)
    assert sum(b.count for b in bins) == 50
    assert sum(b.observed * b.count for b in bins) == pytest.approx(5)
    assert all(0 <= b.low <= b.observed <= b.high <= 1 for b in bins)


def test_distribution_counts_every_row(rows):
    y, score = rows
    found = distribution_of(y, score)
    assert len(found.edges) == len(found.positives) + 1 == len(found.negatives) + 1
    assert sum(found.positives) == y.sum()
    assert sum(found.negatives) == len(y) - y.sum()


def test_distribution_of_infinite_or_equal_scores():
    infinite = distribution_of([0, 1, 1, 0], [-np.inf, 0.0, np.inf, 1.0])
    assert sum(infinite.positives) == sum(infinite.negatives) == 2
    assert np.all(np.isfinite(infinite.edges))
    assert sum(distribution_of([0, 1], [3.0, 3.0]).positives) == 1


def test_information_orders_the_losses(rows):
    found = information_of(*rows, ["alpha(alpha=0.5)", "crossentropy", "squared"], 0.001)
    index = [row.index for row in found]
    explained = [row.explained_fraction for row in found]
    assert index == pytest.approx([0.5, 1.0, 2.0], abs=0.05)
    assert explained == sorted(explained, reverse=True)
    assert all(0 < share < 1 for share in explained)
    assert all(row.explained_low < row.explained_fraction < row.explained_high for row in found)


def test_information_names_a_loss_as_it_was_given(rows):
    given = "vectorscaling(delta=0.6603)"
    (found,) = information_of(*rows, [given], 0.001)
    assert found.loss == given
    (found,) = information_of(*rows, [parse(given)], 0.001)
    assert found.loss == str(parse(given)) != given


def test_missing_plotly_is_named():
    script = (
        "import sys; sys.modules['plotly'] = None\n"
        "from raresight.report.fit_page.page import packed_plotly\npacked_plotly()"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "pip install 'raresight[fit]'" in run.stderr.splitlines()[-1]


def test_a_map_shows_one_loss_by_the_axes_of_its_grid(monkeypatch):
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))

    @registry.register
    @dataclass(frozen=True)
    class Mine(Focal):
        alpha: float = param(0.5, search=(0.1, 0.9))
        name = "mine"
        search_grid: ClassVar = {"gamma": (1.0, 2.0), "alpha": (0.2, 0.5)}

    def place(text):
        return map_place(Candidate("linear", text))

    assert place("tbl(alpha=0.7,C=0.25)") == ("linear", "TBL", "alpha", 0.7, "C", 0.25)
    assert place("mine(gamma=1.0,alpha=0.2)") == ("linear", "Mine", "gamma", 1.0, "alpha", 0.2)
    assert place("alpha(alpha=0.7)") is None
