"""Calibrated log-odds of nets: the likeliest slope on held-out rows, the class shares on those of `fit`."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax
from sklearn.exceptions import ConvergenceWarning

from raresight.deep import DeepClassifier
from raresight.deep import net_calibration as module
from raresight.deep.net_calibration import (
    NetScores,
    _subsample,
    calibrated_likelihood,
    held_out_slope,
    net_calibrator,
    slope_after_refit,
)
from raresight.losses import parse
from raresight.metrics import roc_auc

CROSS_ENTROPY = parse("crossentropy")
# One epoch of small steps: the ranking is right, the scores are far too small.
SHORT = {"net": "tabm", "width": 32, "members": 4, "max_epochs": 1, "random_state": 1, "n_jobs": 1}

LIKE = ("crossentropy", "tbl", "alpha(alpha=0.4)", "focal", "poly(epsilon=-1.0)", "squared", "erf")
UNLIKE = (
    "ldam(class_counts=(990,10))",
    "vectorscaling(delta=0.5)",
    "logitadjusted(tbl,prior=0.01)",
    "classweighted(tbl,weights=(1.0,50.0))",
)
SEVERAL = (
    "ldam(class_counts=(990,10,50,50))",
    "logitadjusted(focal,prior=(0.7,0.1,0.1,0.1))",
    "classweighted(tbl,weights=(1.0,50.0,3.0,4.0))",
)


def straight_table(rows, seed):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 2))
    return X, (random.random(rows) < expit(2 * X[:, 0] - 5)).astype(int)


def slope_of(y, log_odds):
    """Of the true log-odds in the predicted ones, by logistic regression; one where they are right."""

    def mean_loss(line):
        z = line[0] + line[1] * log_odds
        return np.mean(np.logaddexp(0, z) - y * z)

    return minimize(mean_loss, [0.0, 1.0], method="BFGS").x[1]


def two_class_rows(rows, *, factor=1.0, seed=0, prior=-3.0):
    """Scores that are `factor` times the true log-odds."""
    random = np.random.default_rng(seed)
    z = 1.5 * random.normal(size=rows) + prior
    return NetScores(factor * z, (random.random(rows) < expit(z)).astype(np.int64), None)


def three_class_rows(rows, *, factor=1.0, seed=0):
    random = np.random.default_rng(seed)
    z = 1.5 * random.normal(size=(rows, 3)) - [0.0, 1.0, 3.0]
    codes = (z + random.gumbel(size=z.shape)).argmax(1)
    return NetScores(factor * z, codes, None)


def shares_of(rows):
    return np.bincount(rows.codes) / len(rows.codes)


@pytest.fixture(scope="module")
def short():
    X, y = straight_table(10_000, seed=0)
    judging = straight_table(5_000, seed=2)
    models = {
        name: DeepClassifier(**SHORT, calibration=name).fit(X, y, eval_set=judging)
        for name in ("slope", "level")
    }
    return X, y, models


def test_nets_that_stop_early_have_the_right_slope(short):
    _, _, models = short
    X, y = straight_table(20_000, seed=1)
    assert slope_of(y, models["level"].predict_log_odds(X)) > 5
    assert 0.7 < slope_of(y, models["slope"].predict_log_odds(X)) < 1.4
    top = np.argsort(models["slope"].decision_function(X))[-200:]
    assert models["slope"].predict_proba(X)[top, 1].mean() == pytest.approx(y[top].mean(), rel=0.3)
    assert models["level"].predict_proba(X)[top, 1].mean() < 0.2 * y[top].mean()


def test_ranking_decision_and_probability_stay_one_thing(short):
    X, y, models = short
    sloped, level = models["slope"], models["level"]
    assert (level.calibrator_.slope, sloped.calibrator_.slope > 5) == (1, True)
    decision, p = sloped.decision_function(X), sloped.predict_proba(X)[:, 1]
    before = level.raw_scores(X)
    assert np.array_equal(np.argsort(decision, kind="stable"), np.argsort(before, kind="stable"))
    assert roc_auc(y, decision) == roc_auc(y, before)
    assert p.mean() == pytest.approx(y.mean(), rel=1e-9)
    assert np.array_equal(sloped.predict(X), (decision > 0).astype(int))
    assert np.array_equal(decision > 0, p > 0.5)
    assert 0 < np.mean(decision > 0) < y.mean()
    assert not np.any(level.decision_function(X) > 0)


def test_without_held_out_rows_the_slope_is_one(short):
    X, y, _ = short
    options = {"net": "mlp", "width": 4, "max_epochs": 1, "early_stopping": False, "n_jobs": 1}
    assert DeepClassifier(**options).fit(X[:500], y[:500]).calibrator_.slope == 1


@pytest.mark.parametrize("factor", [0.04, 1.0, 4.0])
@pytest.mark.parametrize("make", [two_class_rows, three_class_rows])
def test_the_factor_is_taken_out(make, factor):
    assert held_out_slope(CROSS_ENTROPY, make(15_000, factor=factor)) == pytest.approx(1 / factor, rel=0.07)


@pytest.mark.parametrize("text", ["tbl", "focal", "erf", "classweighted(tbl,weights=(1.0,9.0))"])
def test_no_other_slope_is_likelier(text):
    loss, held = parse(text), two_class_rows(2000, factor=0.2, seed=1)
    shares, log_p = shares_of(held), loss.log_posterior(held.scores)

    def gain(slope):
        calibrated = net_calibrator(loss, held, shares, slope).log_posterior(log_p)
        return calibrated[np.arange(2000), held.codes].sum() - np.log(slope) ** 2 / 2

    best = held_out_slope(loss, held)
    assert gain(best) == pytest.approx(max(gain(best * step) for step in np.geomspace(0.2, 5, 41)), abs=0.02)


def test_few_positives_move_it_little():
    many = two_class_rows(40_000, factor=0.05, prior=-4.0)
    places = np.flatnonzero(many.codes)[:2].tolist() + np.flatnonzero(many.codes == 0)[:200].tolist()
    few = many.at(np.array(places))
    assert held_out_slope(CROSS_ENTROPY, many) > 15
    assert 0.5 < held_out_slope(CROSS_ENTROPY, few) < 4


def test_rows_that_say_nothing_leave_it_at_one():
    rows = NetScores(np.full(500, -2.0), np.arange(500) // 490, None)
    assert held_out_slope(CROSS_ENTROPY, rows) == pytest.approx(1, abs=0.01)
    lost = NetScores(np.full(500, np.nan), rows.codes, None)
    assert held_out_slope(CROSS_ENTROPY, lost) == 1
    with pytest.warns(ConvergenceWarning, match="not finite"):
        assert net_calibrator(CROSS_ENTROPY, lost, shares_of(rows), 1.0).levels == (0.0,)


@pytest.mark.parametrize("spread", [0.1, 3.0, 600.0])
@pytest.mark.parametrize("prior", [0.3, 1e-6])
@pytest.mark.parametrize("text", LIKE + UNLIKE)
def test_two_classes_have_their_shares(text, prior, spread):
    loss = parse(text)
    scores = (np.random.default_rng(0).normal(size=2000) * spread).astype(np.float32)
    weights = np.random.default_rng(1).uniform(0.1, 2, 2000)
    rows = NetScores(scores, np.zeros(2000, np.int64), weights)
    calibrator = net_calibrator(loss, rows, np.array([1 - prior, prior]), 1.5)
    log_odds = calibrator.log_odds(loss.log_odds(scores.astype(float)))
    assert np.average(expit(log_odds), weights=weights) == pytest.approx(prior, rel=1e-6)


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
@pytest.mark.parametrize("text", LIKE + SEVERAL)
def test_several_classes_have_their_shares(text, spread):
    loss = parse(text)
    scores = (np.random.default_rng(0).normal(size=(600, 4)) * spread).astype(np.float32)
    shares, weights = np.array([0.9, 0.07, 0.02, 0.01]), np.random.default_rng(1).uniform(0.1, 2, 600)
    calibrator = net_calibrator(loss, NetScores(scores, np.zeros(600, np.int64), weights), shares, 0.7)
    p = np.exp(calibrator.log_posterior(loss.log_posterior(scores)))
    assert np.average(p, axis=0, weights=weights) == pytest.approx(shares, rel=1e-6)


def test_a_spread_is_kept_after_a_refit():
    random = np.random.default_rng(0)
    codes, weights = random.integers(0, 3, 50), random.uniform(0.1, 2, 50)
    logits = random.normal(size=(50, 3))
    before = NetScores(logits, codes, weights)
    # What is common to the logits of a row means nothing.
    after = NetScores(4 * logits + random.normal(size=(50, 1)), codes, weights)
    assert slope_after_refit(CROSS_ENTROPY, 6.0, before, after) == pytest.approx(1.5)
    flat = NetScores(np.ones(50), codes, None)
    for spoilt in (flat, NetScores(np.full(50, np.nan), codes, None)):
        for pair in ((spoilt, flat), (flat, spoilt)):
            assert slope_after_refit(CROSS_ENTROPY, 6.0, *pair) == 6.0


def test_weights_of_held_out_rows_reach_the_search():
    X, y = straight_table(2000, seed=0)
    valid, labels = straight_table(4000, seed=1)
    mixed = np.append(labels[:2000], np.random.default_rng(2).permutation(labels[2000:]))
    options = {"net": "mlp", "width": 32, "max_epochs": 1, "learning_rate": 0.01, "random_state": 0}
    half = np.arange(4000) < 2000

    def slope(rows, y_of_rows, weights=None):
        model = DeepClassifier(**options, n_jobs=1)
        model.fit(X, y, eval_set=(rows, y_of_rows), eval_sample_weight=weights)
        return model.calibrator_.slope

    plain = slope(valid[:2000], labels[:2000])
    assert slope(valid, mixed, half) == pytest.approx(plain, rel=1e-9)
    assert slope(valid, mixed) < 0.8 * plain


def test_three_classes_have_one_slope_and_their_shares():
    random = np.random.default_rng(0)
    X = random.normal(size=(6000, 2))
    z = np.column_stack([np.zeros(6000), 2 * X[:, 0] - 2, 2 * X[:, 1] - 3])
    y = (z + random.gumbel(size=z.shape)).argmax(1)
    models = {name: DeepClassifier(**SHORT, calibration=name).fit(X, y) for name in ("slope", "level")}
    p = {name: model.predict_proba(X) for name, model in models.items()}
    model = models["slope"]
    assert model.calibrator_.slope > 3
    assert len(model.calibrator_.levels) == 2
    for values in p.values():
        assert values.mean(0) == pytest.approx(np.bincount(y) / 6000, rel=1e-6)
    gaps = {name: np.abs(values - softmax(z, axis=1)).mean() for name, values in p.items()}
    assert gaps["slope"] < 0.7 * gaps["level"]
    assert np.array_equal(model.predict(X), p["slope"].argmax(1))


def test_fewer_rows_stand_for_all(monkeypatch):
    rows = two_class_rows(60_000, factor=0.3)
    weights = np.random.default_rng(1).uniform(0.5, 2, 60_000)
    rows = NetScores(rows.scores, rows.codes, weights)
    monkeypatch.setattr(module, "_MOST_ROWS", 4000)
    some = _subsample(rows, 2)
    assert len(some.codes) <= 8000
    assert np.bincount(some.codes, some.weights) == pytest.approx(np.bincount(rows.codes, weights), rel=1e-12)
    shares = np.bincount(rows.codes, weights) / weights.sum()
    thin = calibrated_likelihood(CROSS_ENTROPY, rows, shares, with_slope=True)
    monkeypatch.setattr(module, "_MOST_ROWS", 10**12)
    assert thin == pytest.approx(
        calibrated_likelihood(CROSS_ENTROPY, rows, shares, with_slope=True), rel=1e-4
    )
