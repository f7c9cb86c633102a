"""Linear rules on Gaussian mixtures and influence, against references."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from loss_cases import golden_loss
from raresight.losses import TBL, Alpha, CrossEntropy, Erf, Focal, LogitAdjusted, Poly, VectorScaling
from raresight.theory.erm import LinearRule, empirical_minimiser
from raresight.theory.gaussian import (
    GaussianMixture,
    best_linear_auc,
    least_squares_rule,
    limiting_rule,
    linear_auc,
    population_minimiser,
)
from raresight.theory.influence import deletion_effect, influence, leverage

GOLDEN = json.loads((Path(__file__).parent.parent / "data" / "golden_mixtures.json").read_text())


def mixtures(name: str) -> tuple[GaussianMixture, GaussianMixture]:
    m = GOLDEN["theorem2"][name]["mixture"]
    return (
        GaussianMixture(m["w_pos"], m["mu_pos"], m["Sigma_pos"]),
        GaussianMixture(m["w_neg"], m["mu_neg"], m["Sigma_neg"]),
    )


CASES = [
    pytest.param(name, case, id=f"{name}-{case['loss']}-{list(case['params'].values())}-{case['pi']}")
    for name, group in GOLDEN["theorem2"].items()
    for case in group["minimisers"]
]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_population_minimisers(name, case):
    minority, majority = mixtures(name)
    prior = float(case["pi"])
    if case["loss"] == "square_identity_pm1":
        rule = least_squares_rule(minority, majority, prior)
    else:
        rule = population_minimiser(golden_loss(case["loss"], case["params"]), minority, majority, prior)
    theta = np.array([float(value) for value in case["theta"]])
    assert np.linalg.norm(np.append(rule.w, rule.b) - theta) < 1e-6 * np.linalg.norm(theta)
    assert linear_auc(rule.w, minority, majority) == pytest.approx(case["auc"], abs=1e-9)


@pytest.mark.parametrize("name", GOLDEN["theorem2"])
def test_limits(name):
    minority, majority = mixtures(name)
    log_rho = math.log(1e-9) - math.log1p(-1e-9)
    for key, limit in GOLDEN["theorem2"][name]["limits"].items():
        if key == "square_identity_pm1":
            rule = least_squares_rule(minority, majority, 1e-9)
            np.testing.assert_allclose(rule.w / math.exp(log_rho), limit["w_over_rho"], rtol=1e-6, atol=1e-9)
            assert rule.b == pytest.approx(limit["b"], abs=1e-6)
        elif key == "ce":
            rule = limiting_rule(CrossEntropy(), minority, majority)
            np.testing.assert_allclose(rule.w, limit["w"], rtol=1e-9, atol=1e-12)
            assert rule.at(1e-9).b - log_rho == pytest.approx(limit["b_minus_log_rho"], abs=1e-9)
        elif key == "erf":
            theta = limiting_rule(Erf(), minority, majority).w
            np.testing.assert_allclose(theta, limit["theta=|b|w"], rtol=1e-9, atol=1e-12)
        else:
            alpha = float(key.removeprefix("alpha="))
            rule = limiting_rule(Alpha(alpha), minority, majority)
            np.testing.assert_allclose(rule.w, limit["w"], rtol=1e-9, atol=1e-12)
            shifted = rule.at(1e-9).b / alpha - log_rho
            assert shifted == pytest.approx(limit["b_over_alpha_minus_log_rho"], abs=1e-9)


@pytest.mark.parametrize(
    ("loss", "tolerance"),
    [
        (CrossEntropy(), 1e-10),
        (Poly(1.0), 1e-10),
        (VectorScaling(0.5), 1e-5),
        (Focal(1.0), 1e-4),
        (Alpha(0.7), 1e-7),
        (TBL(0.7, 1.0), 1e-7),
        (Alpha(0.5), 1e-12),
        (LogitAdjusted(CrossEntropy(), 0.001), 1e-10),
    ],
    ids=str,
)
def test_exact_minimisers_reach_their_limits(loss, tolerance):
    minority, majority = mixtures("M1_single")
    exact, limit = (
        population_minimiser(loss, minority, majority, 1e-12),
        limiting_rule(loss, minority, majority),
    )
    assert np.linalg.norm(exact.w - limit.w) < tolerance * np.linalg.norm(exact.w)
    assert exact.b == pytest.approx(limit.at(1e-12).b, rel=tolerance)


def test_stationarity_of_the_alpha_limit():
    """K+'(-u w) = K-'(w), the equation behind Theorem 2(iii)."""
    minority, majority = mixtures("M2_paper_sec2.3")
    for alpha in (0.3, 0.6, 0.9):
        w = limiting_rule(Alpha(alpha), minority, majority).w
        u = 1 / alpha - 1
        np.testing.assert_allclose(minority.log_mgf(-u * w)[1], majority.log_mgf(w)[1], rtol=1e-9, atol=1e-9)


def test_tbl_shares_its_limit_with_alpha():
    minority, majority = mixtures("M2_paper_sec2.3")
    base = limiting_rule(Alpha(0.7), minority, majority)
    for C in (0.25, 1.0):
        damped = limiting_rule(TBL(0.7, C), minority, majority)
        np.testing.assert_allclose(damped.w, base.w, rtol=1e-12)
        assert damped.at(1e-6).b == pytest.approx(base.at(1e-6).b - 0.7 * C, rel=1e-12)


def test_simulation_of_section_2_3():
    minority, majority = mixtures("M2_paper_sec2.3")
    reference = GOLDEN["simulation"]["rho=1/500"]
    for alpha, row in reference["alpha"].items():
        rule = population_minimiser(Alpha(float(alpha)), minority, majority, 1 / 501)
        assert np.append(rule.w, rule.b) == pytest.approx(row["theta"], rel=1e-6)
        assert rule.angle == pytest.approx(row["angle_deg"], rel=1e-6)
    for key, row in reference["tbl"].items():
        alpha, C = map(float, key.split(","))
        rule = population_minimiser(TBL(alpha, C), minority, majority, 1 / 501)
        assert np.append(rule.w, rule.b) == pytest.approx(row["theta"], rel=1e-6)
    best = best_linear_auc(minority, majority)
    assert best.auc == pytest.approx(GOLDEN["simulation"]["best_linear"]["auc"], abs=1e-9)


def test_one_cluster_each_is_best_at_one_half():
    minority, majority = mixtures("M1_single")
    assert best_linear_auc(minority, majority).auc == pytest.approx(GOLDEN["auc"]["M1_best_auc"], abs=1e-9)
    for prior in (0.3, 1e-6):
        rule = population_minimiser(Alpha(0.5), minority, majority, prior)
        assert linear_auc(rule.w, minority, majority) == pytest.approx(GOLDEN["auc"]["M1_best_auc"], abs=1e-9)


@pytest.mark.parametrize(
    "key", [k for k in GOLDEN["auc"]["mixture_auc"] if k.split("|")[0] in GOLDEN["theorem2"]]
)
def test_auc_of_a_direction(key):
    name, text = key.split("|w=")
    assert linear_auc(json.loads(text), *mixtures(name)) == pytest.approx(
        float(GOLDEN["auc"]["mixture_auc"][key]), abs=1e-12
    )


@pytest.mark.parametrize("fit", GOLDEN["influence"]["fits"], ids=lambda fit: str(fit["params"]))
def test_influence(fit):
    X, y = np.array(GOLDEN["influence"]["X"], dtype=float), np.array(GOLDEN["influence"]["y"], dtype=float)
    loss = golden_loss(fit["loss"], fit["params"])
    fitted = empirical_minimiser(loss, X, y)
    assert np.append(fitted.w, fitted.b) == pytest.approx(fit["theta"], rel=1e-6)
    rule = LinearRule(fit["theta"][:-1], fit["theta"][-1])
    np.testing.assert_allclose(influence(loss, X, y, rule)[:8], fit["influence_first8"], rtol=1e-9)
    np.testing.assert_allclose(leverage(loss, X, y, rule)[:8], fit["leverage_first8"], rtol=1e-9)
    truth = np.array(fit["loo_delta_first8"])
    plain = deletion_effect(loss, X, y, rule, leverage_corrected=False)[:8]
    corrected = deletion_effect(loss, X, y, rule)[:8]
    assert np.linalg.norm(corrected - truth) < 0.03 * np.linalg.norm(truth)
    assert np.linalg.norm(corrected - truth) < 0.5 * np.linalg.norm(plain - truth)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GaussianMixture([0.5, 0.6], [[0.0], [1.0]], [[[1.0]], [[1.0]]]), "sum to one"),
        (
            lambda: GaussianMixture([1.0], [[0.0, 0.0]], [[[1.0, 1.0], [1.0, 1.0]]]),
            "singular|positive definite",
        ),
        (lambda: population_minimiser(TBL(), *mixtures("M1_single"), prior=1.5), "prior"),
        (lambda: population_minimiser(Alpha(math.inf), *mixtures("M1_single"), prior=0.1), "minimiser"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_samples_are_reproducible():
    minority, _ = mixtures("M2_paper_sec2.3")
    np.testing.assert_array_equal(minority.sample(50, 7), minority.sample(50, 7))
    big = minority.sample(200_000, 1)
    np.testing.assert_allclose(big.mean(0), minority.mean, atol=0.03)
    np.testing.assert_allclose(np.cov(big.T), minority.covariance, atol=0.05)
