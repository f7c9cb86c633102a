"""The operating-point explorer against raresight.metrics, in a real browser."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from raresight.automl.evaluation import find_threshold
from raresight.metrics import recall_at_fpr, threshold_at_fpr
from raresight.report.fit_measures import curve_of
from report.fit_page_browser import agrees
from report.fit_page_sample import FPR, scores


def test_first_figures_are_those_of_the_answer(page, rows, content):
    agrees(page, *rows, FPR)
    assert page.chosen() == content.outcome.held_out.threshold.log_odds
    recall = content.outcome.evaluation["recall_at_fpr"]
    low, high = recall.low, recall.high
    assert page.text("out-recall-note") == f"95 % interval about {low * 100:.1f} % to {high * 100:.1f} %"
    lead = page.text("answer-head")
    assert f"{recall.estimate * 100:.1f} %" in lead
    assert "0.1 %" in page.text("answer")


def test_slider_moved_by_keys(page, rows):
    page.page.focus("#slider")
    seen = set()
    for key, presses in (("ArrowRight", 9), ("ArrowLeft", 40), ("PageUp", 1), ("Home", 1), ("End", 1)):
        for _ in range(presses):
            page.page.keyboard.press(key)
        budget = float(page.state()["budget"])
        seen.add(budget)
        agrees(page, *rows, budget)
        assert page.page.input_value("#budget").replace("\u00a0", " ").endswith(" %")
    assert len(seen) == 5
    negatives = int(np.sum(rows[0] == 0))
    assert min(seen) == 1 / negatives
    assert max(seen) == 0.1


def test_slider_moved_by_a_script(page, rows):
    for place in (0, 77, 310, 500, 681, 850, 999):
        page.slide(place)
        agrees(page, *rows, float(page.state()["budget"]))


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("0.7 %", 0.007),
        ("0,05%", 0.0005),
        ("0.0123", 0.0123),
        ("2e-4", 0.0002),
        ("3.5e-1 %", 0.0035),
        (".5%", 0.005),
    ],
)
def test_budget_typed(page, rows, text, budget):
    page.fill("budget", text)
    assert float(page.state()["budget"]) == budget
    agrees(page, *rows, budget)


@pytest.mark.parametrize("text", ["", "many", "0", "-1", "1.5", "120 %", "0.1 % of all"])
def test_budget_that_cannot_be_read_is_marked_and_changes_nothing(page, text):
    before = page.chosen()
    page.fill("budget", text)
    assert page.page.get_attribute("#budget", "aria-invalid") == "true"
    assert page.chosen() == before
    page.page.locator("#budget").blur()
    assert page.page.get_attribute("#budget", "aria-invalid") == "false"
    assert page.page.input_value("#budget").replace("\u00a0", " ") == "0.1 %"


def test_budget_of_everything_alerts_on_every_case(page):
    page.fill("budget", "100 %")
    assert page.chosen() == -np.inf
    assert page.text("out-threshold") == "below every score"
    assert page.number("out-recall") == 1


def test_thinned_part_of_the_curve_says_so(page, content):
    assert content.curve.exact_to_fpr < 0.5
    assert page.text("thinned") == ""
    page.fill("budget", "60 %")
    assert "keeps only some of the thresholds" in page.text("thinned")


def test_markers_follow(page, rows):
    y, log_odds = rows
    page.fill("budget", "1 %")
    alert = log_odds >= page.chosen()
    recall, fpr = alert[y == 1].mean(), alert[y == 0].mean()
    assert page.marker("chart-roc") == pytest.approx([fpr, recall])
    assert page.marker("chart-pr") == pytest.approx([recall, y[alert].mean()])
    line = page.page.evaluate("document.getElementById('chart-distribution').layout.shapes[0].x0")
    assert line == page.chosen()


@pytest.mark.parametrize("capacity", [0, 1, 12, 37.5, 400, 1e6])
def test_capacity_gives_the_lowest_threshold_that_it_can_bear(page, rows, capacity):
    _, log_odds = rows
    volume = 20_000
    page.fill("volume", str(volume))
    page.fill("capacity", str(capacity))
    share = np.mean(log_odds >= page.chosen())
    assert share * volume <= capacity * (1 + 1e-12)
    lower = log_odds[log_odds < page.chosen()]
    if len(lower):
        assert np.mean(log_odds >= lower.max()) * volume > capacity * (1 + 1e-12)
    assert page.number("out-daily") == pytest.approx(share * volume, rel=5e-3)
    assert "capacity" in page.text("set-by")
    assert "within the capacity" in page.text("out-daily-note")
    page.fill("capacity", "")
    assert float(page.state()["threshold"]) == find_threshold(*rows, FPR).log_odds


def test_budget_says_by_how_much_it_is_over_the_capacity(page, rows):
    _, log_odds = rows
    page.fill("capacity", "10")
    page.fill("budget", "1 %")
    over = np.mean(log_odds >= page.chosen()) * 100_000 - 10
    note = page.text("out-daily-note")
    assert note.endswith(" over the capacity")
    assert float(note.split()[0].replace(",", "")) == pytest.approx(over, rel=5e-3)


@pytest.mark.parametrize(("miss", "false_alert"), [(500, 5), (1, 1), (10_000, 1), (1, 10_000), (1, 0)])
def test_cheapest_threshold(page, rows, miss, false_alert):
    y, log_odds = rows
    assert page.page.is_disabled("#cheapest")
    page.fill("miss-cost", str(miss))
    page.fill("alert-cost", str(false_alert))
    page.page.click("#cheapest")
    order = np.argsort(-log_odds, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(log_odds[order])), len(y) - 1)
    true = np.append(0, np.cumsum(y[order])[ends])
    false = np.append(0, np.cumsum(1 - y[order])[ends])
    cost = (miss * (y.sum() - true) + false_alert * false) / len(y) * 1e5
    alert = log_odds >= page.chosen()
    own = (miss * np.sum(y[~alert]) + false_alert * np.sum(1 - y[alert])) / len(y) * 1e5
    assert own == pytest.approx(cost.min())
    if false_alert == 0:
        # Among equal costs the fewest alerts.
        assert alert.sum() == (true + false)[np.argmin(cost)]
    assert page.number("out-cost") == pytest.approx(cost.min(), rel=5e-3)
    assert "lowest expected cost" in page.text("set-by")


def test_share_of_positives_reweights(page, rows):
    y, log_odds = rows
    page.fill("prior", "0.01 %")
    alert = log_odds >= page.chosen()
    recall, fpr = alert[y == 1].mean(), alert[y == 0].mean()
    caught, false = 1e-4 * recall, (1 - 1e-4) * fpr
    assert page.chosen() == find_threshold(y, log_odds, FPR).log_odds
    assert page.number("out-recall") == pytest.approx(recall, rel=5e-3)
    assert page.number("out-precision") == pytest.approx(caught / (caught + false), rel=5e-3)
    assert page.number("out-alerts") == pytest.approx((caught + false) * 1e5, rel=5e-3)
    assert page.marker("chart-pr") == pytest.approx([recall, caught / (caught + false)])
    page.page.click("#reset-prior")
    assert page.number("out-precision") == pytest.approx(y[alert].mean(), rel=5e-3)


def test_explorer_arithmetic_on_random_curves_with_ties(page):
    random = np.random.default_rng(5)
    cases, expected = [], []
    for trial in range(150):
        n = int(random.integers(3, 400))
        y = random.integers(0, 2, n)
        y[:2] = 0, 1
        score = np.round(random.normal(size=n) * 3 + y, int(random.integers(0, 4)))
        if trial % 5 == 0:
            score[int(random.integers(n))] = -np.inf
        negatives = int(np.sum(y == 0))
        curve = curve_of(y, score)
        # Rates that counts attain exactly, and others.
        budgets = [*(random.integers(0, negatives + 1, 4) / negatives), *random.random(4), 1.0]
        budgets = [float(b) for b in budgets if b > 0]
        cases.append({**as_script(curve), "budgets": budgets})
        expected += [(threshold_at_fpr(y, score, b), recall_at_fpr(y, score, b)) for b in budgets]
    found = operating_points(page, cases)
    assert len(found) > 1000
    assert found == expected


def test_explorer_arithmetic_on_a_thinned_curve(page):
    y, score = scores(30_000, 0.01, seed=8)
    curve = curve_of(y, score, most_points=2_000)
    assert len(curve) <= 2_000
    assert 0.01 < curve.exact_to_fpr < 1
    exact = [float(b) for b in np.geomspace(1e-4, curve.exact_to_fpr * 0.999, 40)]
    beyond = [float(b) for b in np.geomspace(curve.exact_to_fpr * 1.001, 0.99, 40)]
    found = operating_points(page, [{**as_script(curve), "budgets": exact + beyond}])
    for budget, (threshold, recall) in zip(exact, found):
        assert threshold == threshold_at_fpr(y, score, budget)
        assert recall == recall_at_fpr(y, score, budget)
    for budget, (threshold, recall) in zip(beyond, found[len(exact) :]):
        assert np.mean(score[y == 0] >= threshold) <= budget
        assert np.mean(score[y == 1] >= threshold) == recall == recall_at_fpr(y, score, budget)


def as_script(curve):
    thresholds = [str(t).replace("inf", "Infinity") for t in map(float, curve.thresholds)]
    return {
        "thresholds": thresholds,
        "tp": curve.true_positives.tolist(),
        "fp": curve.false_positives.tolist(),
        "positives": curve.positives,
        "negatives": curve.negatives,
        "exactToFpr": curve.exact_to_fpr,
    }


def operating_points(page, cases):
    found = page.page.evaluate(
        """cases => cases.flatMap(c => {
            const curve = {...c, thresholds: c.thresholds.map(Number)};
            return c.budgets.map(b => {
                const i = explorer.withinBudget(curve, b);
                return [String(explorer.thresholdAt(curve, i)), explorer.rates(curve, i, 0.1).recall];
            });
        })""",
        cases,
    )
    return [(float(threshold.replace("Infinity", "inf")), recall) for threshold, recall in found]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2,5", 2.5),
        ("2.5", 2.5),
        (",5", 0.5),
        ("1,234", 1234),
        ("1,234,567.5", 1234567.5),
        ("1.234.567", 1234567),
        ("1.234,5", 1234.5),
        ("1 000 000", 1e6),
        ("1'000", 1000),
        ("3e5", 3e5),
    ],
)
def test_costs_and_volumes_are_read_as_they_are_written(page, text, number):
    assert page.page.evaluate("text => explorer.readNumber(text)", text) == number
    page.fill("miss-cost", "500")
    page.fill("alert-cost", text)
    dots = page.text("out-cost")
    page.fill("alert-cost", repr(number))
    assert page.text("out-cost") == dots


@pytest.mark.parametrize("text", ["1,23,4", "1.23.4", "five", "--2", "2,5,"])
def test_a_number_that_cannot_be_read_is_marked(page, text):
    page.fill("alert-cost", text)
    assert page.page.get_attribute("#alert-cost", "aria-invalid") == "true"


def test_the_interval_at_a_capacity_is_of_the_positives_that_it_finds(page):
    """By Wilson, of the share that is shown; where nothing is alerted there is none."""
    page.fill("capacity", "50")
    found, of = (int(word) for word in page.text("out-caught").split() if word.isdigit())
    interval = binomtest(found, of).proportion_ci(method="wilson")
    shown = [float(part.split()[0]) for part in page.text("out-recall-note").split("about ")[1].split(" to ")]
    assert 0 < found < of
    assert shown == pytest.approx([100 * interval.low, 100 * interval.high], abs=0.06)
    page.fill("capacity", "0")
    assert page.text("out-recall-note") == ""
