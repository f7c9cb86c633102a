"""The exact empirical minimiser: references, invariances and bad input."""

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
from raresight.theory import influence
from raresight.theory.gaussian import GaussianMixture, linear_auc, population_minimiser
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
    monkeypatch.setattr(influence, "_CHUNK", 7)
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
