"""The factor on the scores: the likeliest on held-out rows, and nothing changes its place in the ranking."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, softmax

from raresight.common.posterior import log_posterior
from raresight.deep import DeepClassifier
from raresight.deep import scale as scale_module
from raresight.deep.level import at_level, score_shift
from raresight.deep.scale import ScoredRows, _thinned, carried_over, score_scale
from raresight.losses import parse
from raresight.metrics import roc_auc

CROSS_ENTROPY = parse("crossentropy")
# One epoch of small steps: the ranking is right, the scores are far too small.
SHORT = {"net": "tabm", "width": 32, "members": 4, "max_epochs": 1, "random_state": 0, "n_jobs": 1}


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
    return ScoredRows(factor * z, (random.random(rows) < expit(z)).astype(np.int64), None)


def three_class_rows(rows, *, factor=1.0, seed=0):
    random = np.random.default_rng(seed)
    z = 1.5 * random.normal(size=(rows, 3)) - [0.0, 1.0, 3.0]
    codes = (z + random.gumbel(size=z.shape)).argmax(1)
    return ScoredRows(factor * z, codes, None)


def shares_of(rows):
    return np.bincount(rows.codes) / len(rows.codes)


def found(rows, held=None, loss=CROSS_ENTROPY):
    return score_scale(loss, rows, rows if held is None else held, shares_of(rows))


@pytest.fixture(scope="module")
def short():
    X, y = straight_table(10_000, seed=0)
    return X, y, {name: DeepClassifier(**SHORT, calibration=name).fit(X, y) for name in ("scale", "level")}


def test_nets_that_stop_early_have_the_right_slope(short):
    _, _, models = short
    X, y = straight_table(50_000, seed=1)
    assert slope_of(y, models["level"].predict_log_odds(X)) > 5
    assert 0.7 < slope_of(y, models["scale"].predict_log_odds(X)) < 1.4
    top = np.argsort(models["scale"].decision_function(X))[-500:]
    assert models["scale"].predict_proba(X)[top, 1].mean() == pytest.approx(y[top].mean(), rel=0.3)
    assert models["level"].predict_proba(X)[top, 1].mean() < 0.2 * y[top].mean()


def test_score_decision_and_probability_stay_one_thing(short):
    X, y, models = short
    scale, level = models["scale"], models["level"]
    assert (level.score_scale_, scale.score_scale_ > 5) == (1, True)
    scores, p = scale.decision_function(X), scale.predict_proba(X)[:, 1]
    before = level.decision_function(X)
    assert np.array_equal(np.argsort(scores, kind="stable"), np.argsort(before, kind="stable"))
    assert roc_auc(y, scores) == roc_auc(y, before)
    assert p.mean() == pytest.approx(y.mean(), rel=1e-9)
    assert np.array_equal(scale.predict(X), (scores > 0).astype(int))
    assert np.array_equal(scores > 0, p > 0.5)
    assert 0 < np.mean(scores > 0) < y.mean()
    assert not np.any(before > 0)


def test_without_held_out_rows_there_is_no_factor(short):
    X, y, _ = short
    options = {"net": "mlp", "width": 4, "max_epochs": 1, "early_stopping": False, "n_jobs": 1}
    model = DeepClassifier(**options).fit(X[:500], y[:500])
    assert model.score_scale_ == 1


@pytest.mark.parametrize("factor", [0.02, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("make", [two_class_rows, three_class_rows])
def test_the_factor_is_taken_out(make, factor):
    assert found(make(30_000, factor=factor)) == pytest.approx(1 / factor, rel=0.06)


@pytest.mark.parametrize(
    "text", ["tbl", "focal", "erf", "alpha(alpha=0.4)", "classweighted(tbl,weights=(1.0,9.0))"]
)
@pytest.mark.parametrize("make", [two_class_rows, pytest.param(three_class_rows, marks=pytest.mark.slow)])
def test_no_other_factor_is_likelier(make, text):
    text = text.replace("9.0)", "9.0,2.0)") if make is three_class_rows else text
    loss, rows, held = parse(text), make(3000, factor=0.2), make(2000, factor=0.2, seed=1)

    def gain(scale):
        shift = score_shift(loss, scale * rows.scores, shares_of(rows), None)
        log_p = log_posterior(loss, at_level(held.scores, shift, scale))
        return log_p[np.arange(2000), held.codes].sum() - np.log(scale) ** 2 / 2

    best = found(rows, held, loss)
    assert best > 1
    assert gain(best) == pytest.approx(max(gain(best * step) for step in np.geomspace(0.2, 5, 41)), abs=0.02)


def test_few_positives_move_it_little():
    many = two_class_rows(40_000, factor=0.02, prior=-4.0)
    places = np.flatnonzero(many.codes)[:2].tolist() + np.flatnonzero(many.codes == 0)[:200].tolist()
    few = ScoredRows(many.scores[places], many.codes[places], None)
    assert found(many) > 30
    assert 0.5 < found(many, few) < 4


def test_rows_that_say_nothing_leave_it_at_one():
    rows = ScoredRows(np.full(500, -2.0), np.arange(500) // 490, None)
    assert found(rows) == pytest.approx(1, abs=0.01)
    assert found(ScoredRows(np.full(500, np.nan), rows.codes, None)) == 1


def test_weights_count_as_repetitions_and_by_proportion():
    rows = two_class_rows(6000, factor=0.3)
    repeats = np.random.default_rng(1).integers(1, 4, 6000)
    shares = np.bincount(rows.codes, repeats) / repeats.sum()
    times = np.repeat(np.arange(6000), repeats)
    many = ScoredRows(rows.scores[times], rows.codes[times], None)
    expected = score_scale(CROSS_ENTROPY, many, many, shares)
    for unit in (1.0, 2.0**-900):
        weighed = ScoredRows(rows.scores, rows.codes, unit * repeats)
        assert score_scale(CROSS_ENTROPY, weighed, weighed, shares) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("factor", [1e-4, 1 / 400, 1, 50])
def test_scores_of_any_size_find_their_factor(factor, classes):
    """Around a = 1 the prior has a hill of its own, on which a search from there alone stays."""
    random = np.random.default_rng(0)
    logits = random.normal(size=(1600, classes)) + np.array([2.8, 0.0, 0.5][:classes])
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    codes = (random.random((1600, 1)) > chances.cumsum(1)).sum(1).clip(max=classes - 1)
    scores = logits if classes > 2 else logits[:, 1] - logits[:, 0]
    shares = np.bincount(codes) / len(codes)
    rows = [ScoredRows(size * scores, codes, None) for size in (1.0, factor)]
    plain, found = (score_scale(CROSS_ENTROPY, one, one, shares) for one in rows)
    assert plain == pytest.approx(1, abs=0.25)
    # The prior pulls towards 1, by little of so many rows.
    assert found * factor == pytest.approx(plain, rel=0.15)


def test_a_spread_is_carried_over():
    random = np.random.default_rng(0)
    codes, weights = random.integers(0, 3, 50), random.uniform(0.1, 2, 50)
    logits = random.normal(size=(50, 3))
    before = ScoredRows(logits, codes, weights)
    # What is common to the logits of a row means nothing.
    after = ScoredRows(4 * logits + random.normal(size=(50, 1)), codes, weights)
    assert carried_over(6.0, before, after) == pytest.approx(1.5)
    flat = ScoredRows(np.ones(50), codes, None)
    for spoilt in (flat, ScoredRows(np.full(50, np.nan), codes, None)):
        assert carried_over(6.0, spoilt, flat) == carried_over(6.0, flat, spoilt) == 6.0


def test_weights_of_held_out_rows_reach_the_search():
    X, y = straight_table(2000, seed=0)
    valid, labels = straight_table(4000, seed=1)
    shuffled = np.random.default_rng(2).permutation(labels[2000:])
    mixed = np.append(labels[:2000], shuffled)
    options = {"net": "mlp", "max_epochs": 1, "learning_rate": 0.01, "random_state": 0, "n_jobs": 1}
    half = np.arange(4000) < 2000
    plain = DeepClassifier(**options).fit(X, y, eval_set=(valid[:2000], labels[:2000]))
    weighed = DeepClassifier(**options).fit(X, y, eval_set=(valid, mixed), eval_sample_weight=half)
    both = DeepClassifier(**options).fit(X, y, eval_set=(valid, mixed))
    assert weighed.score_scale_ == pytest.approx(plain.score_scale_, rel=1e-9)
    assert both.score_scale_ < 0.8 * plain.score_scale_


def test_three_classes_have_one_factor_and_their_shares():
    random = np.random.default_rng(0)
    X = random.normal(size=(6000, 2))
    z = np.column_stack([np.zeros(6000), 2 * X[:, 0] - 2, 2 * X[:, 1] - 3])
    y = (z + random.gumbel(size=z.shape)).argmax(1)
    models = {name: DeepClassifier(**SHORT, calibration=name).fit(X, y) for name in ("scale", "level")}
    p = {name: model.predict_proba(X) for name, model in models.items()}
    assert models["scale"].score_scale_ > 3
    assert isinstance(models["scale"].score_scale_, float)
    for values in p.values():
        assert values.mean(0) == pytest.approx(shares_of(ScoredRows(z, y, None)), rel=1e-6)
    gaps = {name: np.abs(values - softmax(z, axis=1)).mean() for name, values in p.items()}
    assert gaps["scale"] < 0.7 * gaps["level"]
    model = models["scale"]
    raw = model.nets_.scores(model._encoder.apply(X), "cpu")
    expected = model.score_scale_ * raw.astype(float) + model.score_shift_
    assert np.array_equal(model.decision_function(X), expected)
    assert np.array_equal(model.predict(X), expected.argmax(1))


@pytest.mark.parametrize("make", [two_class_rows, pytest.param(three_class_rows, marks=pytest.mark.slow)])
def test_fewer_rows_stand_for_all(make, monkeypatch):
    rows = make(60_000, factor=0.3)
    weights = np.random.default_rng(1).uniform(0.5, 2, 60_000)
    rows = ScoredRows(rows.scores, rows.codes, weights)
    classes = len(shares_of(rows))
    some = _thinned(rows, classes, 9000)
    assert len(some.codes) * classes <= 9000
    sums = np.bincount(rows.codes, weights)
    assert np.bincount(some.codes, some.weights) == pytest.approx(sums, rel=1e-12)
    thin = found(rows)
    monkeypatch.setattr(scale_module, "_MOST_FITTED", 10**12)
    monkeypatch.setattr(scale_module, "_MOST_HELD", 10**12)
    assert thin == pytest.approx(found(rows), rel=0.005)
