"""The paper's errors, each shown by the numbers; docs/errata.md names these tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from raresight.losses import TBL, Alpha, CrossEntropy, Erf, Focal, LogitAdjusted, Poly, VectorScaling
from raresight.theory import bayes_risk, f_function, limiting_f_function
from raresight.theory.gaussian import GaussianMixture, least_squares_rule, linear_auc, population_minimiser
from raresight.theory.limits import limiting_rule
from reproduction.erm import empirical_minimiser
from reproduction.gaussian_figures import paper_mixture, single_clusters

Z = np.linspace(-4, 4, 81)
ONES = np.ones_like(Z)


def test_erf_loss_as_printed_rises_with_the_score():
    u = -Z  # the paper's u = log((1 - y^)/y^)
    printed = u * ndtr(u) - u + norm.pdf(u)
    assert np.all(np.diff(printed) > 0)
    corrected = Z * ndtr(Z) - Z + norm.pdf(Z)
    assert np.all(np.diff(corrected) < 0)
    np.testing.assert_allclose(Erf().value(Z, ONES), corrected, rtol=1e-9, atol=1e-12)


def test_erf_is_a_probit_loss_and_no_approximation_of_cross_entropy():
    eta = 1e-8
    assert bayes_risk(Erf(), eta) == pytest.approx(norm.pdf(norm.ppf(eta)), rel=1e-9)
    assert bayes_risk(CrossEntropy(), eta) / bayes_risk(Erf(), eta) > 3
    np.testing.assert_allclose(Erf().probability(Z), ndtr(Z), rtol=1e-12)


def test_square_loss_of_the_theorem_has_labels_plus_and_minus_one():
    minority, majority = single_clusters()
    rho = 1e-6
    rule = least_squares_rule(minority, majority, rho / (1 + rho))
    direction = np.linalg.solve(majority.covariance, minority.mean - majority.mean)
    np.testing.assert_allclose(rule.w / rho, 2 * direction, rtol=1e-5)
    assert rule.b == pytest.approx(-1, abs=1e-5)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7])
def test_alpha_limit_is_alpha_times_the_printed_direction(alpha):
    minority, majority = single_clusters()
    printed = np.linalg.solve(
        alpha * majority.covariance + (1 - alpha) * minority.covariance, minority.mean - majority.mean
    )
    np.testing.assert_allclose(limiting_rule(Alpha(alpha), minority, majority).w, alpha * printed, rtol=1e-9)
    exact = population_minimiser(Alpha(alpha), minority, majority, 1e-12)
    np.testing.assert_allclose(exact.w, alpha * printed, rtol=1e-3)


@pytest.mark.parametrize("alpha", [0.3, 0.5, 0.7])
def test_alpha_intercept_goes_with_alpha_log_rho(alpha):
    minority, majority = single_clusters()
    low, high = (population_minimiser(Alpha(alpha), minority, majority, prior) for prior in (1e-12, 1e-8))
    slope = (low.b - high.b) / math.log(1e-12 / 1e-8)
    assert slope == pytest.approx(alpha, rel=1e-3)  # printed: 1/alpha


def test_focal_poly_and_vector_scaling_share_a_direction_only_in_the_limit():
    minority, majority = paper_mixture()
    limit = limiting_rule(CrossEntropy(), minority, majority).w
    np.testing.assert_allclose(limiting_rule(Focal(2.0), minority, majority).w, limit / 3, rtol=1e-9)
    angles = [
        population_minimiser(loss, minority, majority, 1 / 501).angle
        for loss in (CrossEntropy(), Focal(5.0), Poly(-0.5), VectorScaling(0.5))
    ]
    assert angles == pytest.approx([180.57, 183.43, 181.01, 180.22], abs=0.01)


def test_best_alpha_is_not_0_4():
    minority, majority = paper_mixture()
    alphas = [0.38, 0.40, 0.42, 0.44, 0.45, 0.46, 0.48, 0.50]
    rules = [population_minimiser(Alpha(alpha), minority, majority, 1 / 501) for alpha in alphas]
    aucs = [float(linear_auc(rule.w, minority, majority)) for rule in rules]
    assert alphas[int(np.argmax(aucs))] == 0.45


def test_tbl_is_not_unchanged_in_table_1():
    ratio = f_function(TBL(0.5, 1.0), 3.0, 1e-300) / f_function(Alpha(0.5), 3.0, 1e-300)
    assert ratio == pytest.approx(math.exp(-0.5), rel=1e-9)
    assert limiting_f_function(TBL(0.5, 1.0), 3.0, 1e-9) / limiting_f_function(
        Alpha(0.5), 3.0, 1e-9
    ) == pytest.approx(math.exp(-0.5))


def test_bayes_risk_of_alpha_loss_is_positive():
    alpha, eta = 0.7, 0.2
    inner = (eta**alpha + (1 - eta) ** alpha) ** (1 / alpha)
    assert alpha / (1 - alpha) * (1 - inner) < 0  # as printed
    assert bayes_risk(Alpha(alpha), eta) == pytest.approx(alpha / (alpha - 1) * (1 - inner), rel=1e-12)


def test_poly_root_and_constant():
    epsilon, eta, prior, t = 2.0, 1e-9, 1e-200, 3.0
    loss = Poly(epsilon)
    estimate = 1 / (1 + math.exp(-float(loss.score(math.log(eta)))))
    assert estimate == pytest.approx(eta / (1 + epsilon), rel=1e-6)  # printed: eta
    constant = f_function(loss, t, prior) / (prior * (1 - t)) + math.log(prior) - t * math.log(t) / (1 - t)
    assert constant == pytest.approx(1 + epsilon + math.log(1 + epsilon), rel=1e-9)  # printed: 2 epsilon


def test_vector_scaling_estimate_and_the_sign_of_its_risk():
    eta, delta = 1e-6, 0.5
    loss = VectorScaling(delta)
    assert float(loss.score(math.log(eta))) == pytest.approx(math.log(delta * eta), rel=1e-3)
    assert bayes_risk(loss, eta) == pytest.approx(-delta * eta * math.log(eta), rel=0.2)


def test_sum_of_slopes_vanishes_at_the_optimum():
    """The denominator of the printed influence formula is the intercept's own optimality condition."""
    minority, majority = single_clusters()
    X = np.concatenate([minority.sample(50, 0), majority.sample(950, 1)])
    y = np.repeat([1.0, 0.0], [50, 950])
    rule = empirical_minimiser(Alpha(0.7), X, y)
    slopes = Alpha(0.7).gradient(rule.score(X), y)
    assert abs(slopes.sum()) < 1e-7 * np.abs(slopes).sum()


def test_margins_of_binary_vector_scaling():
    rho, tau = 0.01, 1.3
    adjusted = LogitAdjusted(CrossEntropy(), rho / (1 + rho), tau)
    corrected = VectorScaling(1.0, iota_pos=-tau * math.log(rho), iota_neg=tau * math.log(rho))
    prior = rho / (1 + rho)
    printed = VectorScaling(1.0, iota_pos=tau * math.log(prior), iota_neg=tau * math.log(1 - prior))
    for label in (0.0, 1.0):
        expected = adjusted.value(Z, label * ONES)
        np.testing.assert_allclose(corrected.value(Z, label * ONES), expected, rtol=1e-12)
    assert np.max(np.abs(printed.value(Z, ONES) - adjusted.value(Z, ONES))) > 5


def test_tbl_negatives_have_coefficient_one():
    for C in (0.25, 1.0):
        gradient = TBL(0.7, C).gradient(np.array([-30.0]), np.array([0]))[0]
        assert gradient == pytest.approx(math.exp(-30), rel=1e-9)  # printed: C e^-C + 1 times that


def test_square_loss_uses_the_spread_of_the_majority():
    _, majority = paper_mixture()
    minority = GaussianMixture([1.0], [[-2.0, 1.0]], [np.eye(2)])  # one cluster: its means have no spread
    rho = 1e-8
    rule = least_squares_rule(minority, majority, rho / (1 + rho))
    spread = np.eye(2) + np.diag([0.0, 4.0])
    expected = 2 * np.linalg.solve(spread, minority.mean - majority.mean)
    np.testing.assert_allclose(rule.w / rho, expected, rtol=1e-5)
