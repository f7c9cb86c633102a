"""Empirical minimisers and the influence of one row: references, refits, and bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from raresight.losses import (
    LDAM,
    TBL,
    Alpha,
    CrossEntropy,
    Erf,
    Focal,
    LogitAdjusted,
    Poly,
    Squared,
    VectorScaling,
    from_callable,
)
from raresight.theory import erm
from raresight.theory.erm import LinearRule, empirical_minimiser
from raresight.theory.gaussian import GaussianMixture, linear_auc, population_minimiser
from raresight.theory.influence import deletion_effect, influence, leverage

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_gaussian.json").read_text())
MIXTURE = GOLDEN["theorem2"]["M2_paper_sec2.3"]["mixture"]
MINORITY = GaussianMixture(MIXTURE["w_pos"], MIXTURE["mu_pos"], MIXTURE["Sigma_pos"])
MAJORITY = GaussianMixture(MIXTURE["w_neg"], MIXTURE["mu_neg"], MIXTURE["Sigma_neg"])


def vector(rule: LinearRule) -> np.ndarray:
    return np.append(rule.w, rule.b)


def sample(positives: int, negatives: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    X = np.vstack([MINORITY.sample(positives, [seed, 1]), MAJORITY.sample(negatives, [seed, 0])])
    return X, np.repeat([1, 0], [positives, negatives])


def overlapping(n: int, seed: int = 0, dim: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Standard normal points with logistic labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, dim))
    z = X @ np.linspace(1.0, -0.5, dim) - 1.0
    return X, (rng.random(n) < 1 / (1 + np.exp(-z))).astype(int)


# ---- the empirical minimiser -------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [
        CrossEntropy(),
        Erf(),
        Focal(2.0),
        Squared(),
        Poly(1.0),
        Alpha(0.3),
        TBL(),
        VectorScaling(0.5),
        LDAM((900, 100)),
        LogitAdjusted(CrossEntropy(), 0.1),
        from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * z), name="mine"),
    ],
    ids=str,
)
def test_every_loss_is_stationary(loss):
    X, y = overlapping(400)
    rule = empirical_minimiser(loss, X, y)
    z = rule.score(X)
    pull = loss.gradient(z, y)[:, None] * np.column_stack([X, np.ones(len(X))])
    assert np.linalg.norm(pull.sum(axis=0)) < 1e-7 * np.abs(pull).sum()
    assert rule.gradient_norm < 1e-8
    assert rule.risk == pytest.approx(loss.value(z, y).mean(), rel=1e-12)
    assert rule.prior == pytest.approx(y.mean(), rel=1e-12)


@pytest.mark.parametrize("l2", [1e-4, 0.1])
def test_agrees_with_scikit_learn(l2):
    X, y = overlapping(500)
    rule = empirical_minimiser(CrossEntropy(), X, y, l2=l2)
    reference = LogisticRegression(C=1 / (l2 * len(y)), tol=1e-12, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(rule.w, reference.coef_[0], rtol=1e-5)
    assert rule.b == pytest.approx(reference.intercept_[0], rel=1e-5)


def test_weights_are_repetitions():
    X, y = overlapping(100)
    times = np.random.default_rng(1).integers(0, 4, len(y))
    weighted = empirical_minimiser(TBL(), X, y, sample_weight=times)
    repeated = empirical_minimiser(TBL(), np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(vector(weighted), vector(repeated), rtol=1e-7)


def test_chunks_units_and_starts_do_not_matter(monkeypatch):
    X, y = overlapping(300)
    plain = empirical_minimiser(Alpha(0.6), X, y, l2=0.01)
    monkeypatch.setattr(erm, "_CHUNK", 7)
    np.testing.assert_allclose(
        vector(empirical_minimiser(Alpha(0.6), X, y, l2=0.01)), vector(plain), rtol=1e-9
    )
    free = empirical_minimiser(Alpha(0.6), X, y)
    scale = np.array([1e6, 1e-6, 1.0])
    moved = empirical_minimiser(Alpha(0.6), X * scale + 3 * scale, y)
    np.testing.assert_allclose(moved.w * scale, free.w, rtol=1e-7)
    again = empirical_minimiser(Alpha(0.6), X, y, start=free)
    assert again.iterations <= 1
    far = empirical_minimiser(Alpha(0.6), X, y, start=[1.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(vector(far), vector(free), rtol=1e-7)


def test_large_samples_tend_to_the_population():
    X, y = sample(20_000, 200_000, seed=3)
    found = empirical_minimiser(TBL(0.7, 0.5), X.astype(np.float32), y)
    exact = population_minimiser(TBL(0.7, 0.5), MINORITY, MAJORITY, 1 / 11)
    np.testing.assert_allclose(vector(found), vector(exact), atol=0.05)


@pytest.mark.parametrize(
    ("loss", "group", "key"),
    [(CrossEntropy(), "alpha", "1.0"), (Alpha(0.5), "alpha", "0.5"), (Focal(2.0), "others", "focal2")],
    ids=str,
)
def test_golden_finite_samples(loss, group, key):
    reference = GOLDEN["finite"]["200 vs 100000, 60 seeds"][group][key]
    rules = [empirical_minimiser(loss, *sample(200, 100_000, seed)) for seed in range(3)]
    auc = np.mean([linear_auc(rule.w, MINORITY, MAJORITY) for rule in rules])
    # Three samples against sixty, each with its spread: four standard errors of the difference.
    error = 4 * reference["auc_sd"] * math.sqrt(1 / 3 + 1 / 60)
    assert auc == pytest.approx(reference["auc_mean"], abs=error)
    angle = np.mean([rule.angle for rule in rules])
    assert angle == pytest.approx(
        reference["angle_mean"], abs=4 * reference["angle_sd"] * math.sqrt(1 / 3 + 1 / 60)
    )


def test_separable_classes():
    X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    with pytest.raises(RuntimeError, match=r"a hyperplane separates the classes .* set l2 > 0"):
        empirical_minimiser(CrossEntropy(), X, y)
    assert empirical_minimiser(CrossEntropy(), X, y, l2=0.1).w[0] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": [1.0, 2.0]}, "X must be a table"),
        ({"y": [0, 1]}, r"y of shape \(2,\) does not fit X of shape \(4, 1\)"),
        ({"y": [0, 1, 2, 0]}, r"labels must be 0 or 1: y\[2\] is 2"),
        ({"y": [0, 0, 0, 0]}, "no row of class 1"),
        ({"X": [[0.0], [math.nan], [1.0], [2.0]]}, r"X\[1, 0\] is nan"),
        ({"sample_weight": [1.0, 1.0]}, "sample_weight of shape"),
        ({"sample_weight": [1.0, -1.0, 1.0, 1.0]}, "not negative"),
        ({"sample_weight": [0.0, 1.0, 1.0, 0.0]}, "no row of class 0"),
        ({"l2": -1.0}, "l2 must be at least 0"),
        ({"start": [1.0]}, "start must be a rule in 1 dimensions"),
        ({"loss": Alpha(math.inf)}, "has no unique minimiser"),
        ({"loss": LDAM((5, 3, 1))}, "class logits"),
    ],
)
def test_refusals_of_the_minimiser(arguments, message):
    given = {"loss": CrossEntropy(), "X": [[0.0], [2.0], [1.0], [3.0]], "y": [0, 1, 1, 0], **arguments}
    with pytest.raises(ValueError, match=message):
        empirical_minimiser(**given)


# ---- influence ---------------------------------------------------------------------------


@pytest.mark.parametrize("fit", GOLDEN["influence"]["fits"], ids=lambda fit: str(fit["params"]))
def test_golden_influence(fit):
    X, y, loss = GOLDEN["influence"]["X"], GOLDEN["influence"]["y"], Alpha(**fit["params"])
    rule = empirical_minimiser(loss, X, y)
    np.testing.assert_allclose(vector(rule), fit["theta"], rtol=1e-9)
    np.testing.assert_allclose(influence(loss, X, y, rule)[:8], fit["influence_first8"], rtol=1e-9)
    np.testing.assert_allclose(leverage(loss, X, y, rule)[:8], fit["leverage_first8"], rtol=1e-9)
    truth = np.array(fit["loo_delta_first8"])
    plain = deletion_effect(loss, X, y, rule, leverage_corrected=False)[:8]
    corrected = deletion_effect(loss, X, y, rule)[:8]
    # math.md 5: O(1/n), 4e-2 at n = 200; here n = 60, and the correction is several times nearer.
    for effect, tolerance in ((plain, 0.15), (corrected, 0.03)):
        errors = np.linalg.norm(effect - truth, axis=1) / np.linalg.norm(truth, axis=1)
        assert errors.max() < tolerance


def test_deletion_effects_approach_refits():
    loss, worst = TBL(0.7, 0.5), {}
    for n in (200, 2000):
        X, y = overlapping(n, seed=4)
        rule = empirical_minimiser(loss, X, y)
        rows = np.flatnonzero(y)[:10]
        truth = []
        for row in rows:
            rest = np.arange(n) != row
            truth.append(vector(empirical_minimiser(loss, X[rest], y[rest], start=rule)) - vector(rule))
        for corrected in (False, True):
            effect = deletion_effect(loss, X, y, rule, leverage_corrected=corrected)[rows]
            worst[n, corrected] = np.linalg.norm(effect - truth) / np.linalg.norm(truth)
    assert worst[200, False] < 0.08
    assert worst[2000, False] < 0.2 * worst[200, False]
    assert worst[200, True] < 0.3 * worst[200, False]
    assert worst[2000, True] < 0.3 * worst[2000, False]


@pytest.mark.parametrize("loss", [CrossEntropy(), Focal(1.0), Alpha(0.4)], ids=str)
def test_influence_is_the_derivative_by_weight(loss):
    X, y = overlapping(150, seed=2)
    rule = empirical_minimiser(loss, X, y)
    expected = influence(loss, X, y, rule)
    for row in (0, 7):
        shifted = []
        for step in (1e-3, -1e-3):
            weight = np.ones(len(y))
            weight[row] += step
            shifted.append(vector(empirical_minimiser(loss, X, y, sample_weight=weight, start=rule)))
        slope = (shifted[0] - shifted[1]) / 2e-3 * len(y)
        np.testing.assert_allclose(slope, expected[row], rtol=1e-4, atol=1e-6)


def test_influences_balance_and_leverages_count(monkeypatch):
    X, y = overlapping(500, dim=4)
    rule = empirical_minimiser(TBL(), X, y)
    effects = influence(TBL(), X, y, rule)
    assert effects.shape == (500, 5)
    # The gradients sum to zero at the optimum: the paper's denominator, errata.
    np.testing.assert_allclose(effects.sum(axis=0), 0.0, atol=1e-6 * np.abs(effects).sum())
    shares = leverage(TBL(), X, y, rule)
    assert shares.sum() == pytest.approx(5.0, rel=1e-10)
    monkeypatch.setattr(erm, "_CHUNK", 33)
    np.testing.assert_allclose(influence(TBL(), X, y, rule), effects, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(leverage(TBL(), X, y, rule), shares, rtol=1e-9)
    np.testing.assert_allclose(
        deletion_effect(TBL(), X, y, rule), -effects / (500 * (1 - shares[:, None])), rtol=1e-9, atol=1e-14
    )


def test_unbounded_gradient_is_unbounded_influence():
    X, y = sample(200, 20_000, seed=5)
    strongest = {}
    for loss in (CrossEntropy(), Alpha(0.5), TBL(0.5, 1.0)):
        rule = empirical_minimiser(loss, X, y)
        size = np.linalg.norm(influence(loss, X, y, rule), axis=1)
        strongest[loss] = size.max() / np.sort(size)[-20]
    assert strongest[Alpha(0.5)] > 2 * strongest[CrossEntropy()]
    assert strongest[TBL(0.5, 1.0)] > 2 * strongest[CrossEntropy()]


def test_refusals_of_influence():
    X, y = overlapping(50, dim=2)
    rule = empirical_minimiser(CrossEntropy(), X, y)
    with pytest.raises(ValueError, match=r"a rule in 2 dimensions does not fit X of shape \(50, 3\)"):
        influence(CrossEntropy(), np.hstack([X, X[:, :1]]), y, rule)
    with pytest.raises(ValueError, match="y of shape"):
        leverage(CrossEntropy(), X, y[:-1], rule)
    twice = np.hstack([X, X[:, :1]])
    with pytest.raises(ValueError, match="not positive definite: the columns of X and a one, combined by"):
        influence(CrossEntropy(), twice, y, LinearRule([1.0, 0.0, 0.0], 0.0))
    constant = np.column_stack([X[:, 0], np.zeros(50)])
    with pytest.raises(ValueError, match="its diagonal is"):
        deletion_effect(CrossEntropy(), constant, y, rule)
    with pytest.raises(ValueError, match="not positive definite"):
        influence(Squared(), X, y, LinearRule([0.0, 0.0], 9.0))
    alone = np.zeros((50, 1))
    alone[3] = 1.0
    with pytest.raises(ValueError, match="row 3 has leverage 1"):
        deletion_effect(CrossEntropy(), alone, y, LinearRule([0.1], -1.0))
