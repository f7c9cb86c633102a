"""The influence of one row: golden values, refits without it, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from raresight.losses import (
    TBL,
    Alpha,
    CrossEntropy,
    Focal,
    Squared,
)
from raresight.theory.gaussian import GaussianMixture
from raresight.theory.influence import deletion_effect, influence, leverage
from raresight.theory.linear_rule import LinearRule
from reproduction.erm import empirical_minimiser

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
    monkeypatch.setattr("raresight.theory.influence._CHUNK", 33)
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
