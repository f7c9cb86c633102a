"""Linear rules on Gaussian mixtures: reference values, and properties that need no reference."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from loss_cases import SOME_LOSSES, non_convex_tbl
from raresight.losses import (
    LDAM,
    TBL,
    Alpha,
    ClassWeighted,
    CrossEntropy,
    Erf,
    Focal,
    LogitAdjusted,
    Loss,
    Poly,
    Squared,
    VectorScaling,
    from_callable,
)
from raresight.theory.gaussian import (
    GaussianMixture,
    LinearRule,
    best_linear_auc,
    least_squares_rule,
    limiting_rule,
    linear_auc,
    population_minimiser,
)

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "golden_gaussian.json").read_text())


def golden_pair(name: str) -> tuple[GaussianMixture, GaussianMixture]:
    m = GOLDEN["theorem2"][name]["mixture"]
    return (
        GaussianMixture(m["w_pos"], m["mu_pos"], m["Sigma_pos"]),
        GaussianMixture(m["w_neg"], m["mu_neg"], m["Sigma_neg"]),
    )


PAIRS = {name: golden_pair(name) for name in GOLDEN["theorem2"]}
SINGLE, PAPER = PAIRS["M1_single"], PAIRS["M2_paper_sec2.3"]
GOLDEN_KINDS = {"ce": CrossEntropy, "focal": Focal, "erf": Erf, "alpha": Alpha, "tbl": TBL}


def random_mixture(seed: int, dim: int, clusters: int, shift: float = 0.0) -> GaussianMixture:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((clusters, dim, dim + 2)) / math.sqrt(dim + 2)
    return GaussianMixture(
        rng.dirichlet(np.full(clusters, 3.0)),
        rng.standard_normal((clusters, dim)) + shift,
        root @ root.swapaxes(1, 2),
    )


def vector(rule: LinearRule) -> np.ndarray:
    return np.append(rule.w, rule.b)


def panel_risk(
    loss: Loss, minority: GaussianMixture, majority: GaussianMixture, prior: float, theta
) -> float:
    """The population risk by Gauss-Legendre panels: nothing in common with the trapezoid rule."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    total = 0.0
    for label, mixture, share in ((1, minority, prior / (1 - prior)), (0, majority, 1.0)):
        for pi, mean, covariance in zip(mixture.weights, mixture.means, mixture.covariances):
            m, s = mean @ theta[:-1] + theta[-1], math.sqrt(theta[:-1] @ covariance @ theta[:-1])
            edges = np.linspace(m - 12 * s - 6 * s * s, m + 12 * s + 6 * s * s, 601)
            half = np.diff(edges)[:, None] / 2
            z = (edges[:-1, None] + half * (1 + nodes)).ravel()
            mass = (half * weights).ravel() * norm.pdf(z, m, s)
            total += share * pi * float(mass @ loss.value(z, np.full(z.shape, float(label))))
    return total


def panel_gradient(loss: Loss, pair, prior: float, theta: np.ndarray, step: float) -> np.ndarray:
    """Central differences of the fourth order."""

    def slope(direction: np.ndarray) -> float:
        values = [panel_risk(loss, *pair, prior, theta + k * step * direction) for k in (-2, -1, 1, 2)]
        return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)

    return np.array([slope(direction) for direction in np.eye(theta.size)])


# ---- reference values --------------------------------------------------------------------

MINIMISERS = [(name, case) for name, group in GOLDEN["theorem2"].items() for case in group["minimisers"]]


@pytest.mark.parametrize(
    ("name", "case"), MINIMISERS, ids=[f"{n[:2]}-{c['loss']}{c['params']}-{c['pi']}" for n, c in MINIMISERS]
)
def test_golden_minimisers(name, case):
    pair, prior = PAIRS[name], float(case["pi"])
    if case["loss"] == "square_identity_pm1":
        rule = least_squares_rule(*pair, prior)
    else:
        parameters = {key: float(value) for key, value in case["params"].items()}
        rule = population_minimiser(GOLDEN_KINDS[case["loss"]](**parameters), *pair, prior)
        assert rule.gradient_norm < 1e-10
    np.testing.assert_allclose(vector(rule), np.array(case["theta"], dtype=float), rtol=1e-9, atol=1e-14)
    assert linear_auc(rule.w, *pair) == pytest.approx(case["auc"], abs=1e-12)
    assert rule.prior == prior


def simulation_cases():
    group = GOLDEN["simulation"]["rho=1/500"]
    yield from ((Alpha(float(alpha)), case) for alpha, case in group["alpha"].items())
    yield from ((TBL(*map(float, text.split(","))), case) for text, case in group["tbl"].items())
    kinds = {"ce": lambda _: CrossEntropy(), "focal": Focal, "poly": Poly, "vs": VectorScaling}
    for text, case in group["others"].items():
        kind = next(key for key in kinds if text.startswith(key))
        yield kinds[kind](float(text.removeprefix(kind) or 0)), case


SIMULATION = list(simulation_cases())


@pytest.mark.parametrize(("loss", "case"), SIMULATION, ids=[str(loss) for loss, _ in SIMULATION])
def test_golden_simulation(loss, case):
    rule = population_minimiser(loss, *PAPER, (1 / 500) / (1 + 1 / 500))
    np.testing.assert_allclose(vector(rule), case["theta"], rtol=1e-9)
    assert rule.angle == pytest.approx(case["angle_deg"], abs=1e-6)
    assert linear_auc(rule.w, *PAPER) == pytest.approx(case["auc"], abs=1e-12)


def test_best_alpha_of_the_simulation():
    from scipy.optimize import minimize_scalar

    prior = (1 / 500) / (1 + 1 / 500)
    group = GOLDEN["simulation"]["rho=1/500"]

    def loss_of_ranking(alpha):
        return -linear_auc(population_minimiser(Alpha(alpha), *PAPER, prior).w, *PAPER)

    best = minimize_scalar(loss_of_ranking, bounds=(0.4, 0.5), method="bounded", options={"xatol": 1e-7})
    assert best.x == pytest.approx(group["argmax_alpha"], abs=1e-4)  # the curve is flat at its top
    assert -best.fun == pytest.approx(group["max_auc"], abs=1e-12)
    limit = minimize_scalar(
        lambda alpha: -linear_auc(limiting_rule(Alpha(alpha), *PAPER).w, *PAPER),
        bounds=(0.4, 0.5),
        method="bounded",
        options={"xatol": 1e-7},
    )
    assert limit.x == pytest.approx(GOLDEN["simulation"]["limit_argmax_alpha"], abs=1e-4)


@pytest.mark.parametrize("name", PAIRS)
def test_golden_limits(name):
    pair, limits = PAIRS[name], GOLDEN["theorem2"][name]["limits"]
    minority, majority = pair
    for key, case in limits.items():
        if not key.startswith("alpha"):
            continue
        alpha = float(key.split("=")[1])
        limit = limiting_rule(Alpha(alpha), *pair)
        np.testing.assert_allclose(limit.w, case["w"], atol=1e-12)
        np.testing.assert_allclose(limit.w / alpha, case["theta=w/alpha"], atol=1e-12)
        log_rho = math.log(1e-7) - math.log1p(-1e-7)
        calibrated = limit.at(1e-7).b / alpha - log_rho
        assert calibrated == pytest.approx(case["b_over_alpha_minus_log_rho"], abs=1e-11)
        tilt = -(1 / alpha - 1) * limit.w
        np.testing.assert_allclose(minority.tilted_weights(tilt), case["omega_pos"], atol=1e-12)
        np.testing.assert_allclose(majority.tilted_weights(limit.w), case["omega_neg"], atol=1e-12)
        assert linear_auc(limit.w, *pair) == pytest.approx(case["auc"], abs=1e-12)
    entropy = limiting_rule(CrossEntropy(), *pair)
    np.testing.assert_allclose(entropy.w, limits["ce"]["w"], atol=1e-12)
    assert entropy.at(0.5).b == pytest.approx(limits["ce"]["b_minus_log_rho"], abs=1e-12)
    np.testing.assert_allclose(limiting_rule(Erf(), *pair).w, limits["erf"]["theta=|b|w"], atol=1e-12)
    square = least_squares_rule(*pair, 1e-12)
    np.testing.assert_allclose(square.w / 1e-12, limits["square_identity_pm1"]["w_over_rho"], atol=1e-9)
    assert square.b == pytest.approx(limits["square_identity_pm1"]["b"], abs=1e-10)


def test_golden_auc():
    for text, reference in GOLDEN["auc"]["mixture_auc"].items():
        name, w = text.split("|w=")
        assert linear_auc(json.loads(w), *PAIRS[name]) == pytest.approx(float(reference), abs=1e-14)
    assert best_linear_auc(*SINGLE).auc == pytest.approx(GOLDEN["auc"]["M1_best_auc"], abs=1e-14)
    best, reference = best_linear_auc(*PAPER), GOLDEN["simulation"]["best_linear"]
    assert best.auc == pytest.approx(reference["auc"], abs=1e-14)
    assert LinearRule(best.w, 0.0).angle == pytest.approx(reference["angle_deg"], abs=1e-6)
    vertical = linear_auc([-1.0, 0.0], *PAPER)
    assert vertical == pytest.approx(GOLDEN["simulation"]["auc_vertical_e1"], abs=1e-14)


# ---- the population minimiser ------------------------------------------------------------


@pytest.mark.parametrize("prior", [0.3, 1e-4])
@pytest.mark.parametrize("loss", SOME_LOSSES, ids=str)
def test_every_loss_is_stationary_at_its_minimiser(loss, prior):
    pair = random_mixture(1, 2, 2, shift=0.7), random_mixture(2, 2, 1)
    rule = population_minimiser(loss, *pair, prior)
    assert rule.gradient_norm < 1e-10
    theta = vector(rule)
    assert panel_risk(loss, *pair, prior, theta) == pytest.approx(rule.risk, rel=1e-9)
    step = 1e-3 * float(np.linalg.norm(theta))
    gradient = panel_gradient(loss, pair, prior, theta, step)
    beside = panel_gradient(loss, pair, prior, theta * 1.01, step)
    # A hundredth away the gradient is what it is; at the minimiser it is nothing beside that.
    assert np.linalg.norm(gradient) < 1e-4 * np.linalg.norm(beside)


def test_rare_and_many_dimensional():
    pair = random_mixture(3, 10, 2, shift=0.4), random_mixture(4, 10, 3)
    for loss in (CrossEntropy(), Focal(2.0), Alpha(0.6), TBL(), Erf(), LDAM((9900, 100))):
        rule = population_minimiser(loss, *pair, 1e-12)
        assert rule.gradient_norm < 1e-10
        assert rule.w.shape == (10,)


def test_prior_beyond_a_half_is_the_mirror_image():
    rare = population_minimiser(TBL(0.7, 0.5), *PAPER, 1e-3)
    common = population_minimiser(TBL(0.7, 0.5), PAPER[1], PAPER[0], 1 - 1e-3)
    np.testing.assert_allclose(vector(rare), -vector(common), rtol=1e-9)


@pytest.mark.parametrize("loss", [CrossEntropy(), Squared(), TBL(0.6, 1.0)], ids=str)
def test_units_and_origin_do_not_matter(loss):
    minority, majority = random_mixture(5, 3, 2, shift=1.0), random_mixture(6, 3, 2)
    stretch = np.diag([1e5, 1e-4, 1.0]) @ np.array([[1.0, 0.0, 0.0], [3.0, 1.0, 0.0], [0.1, 0.0, 1.0]])
    origin = np.array([1e6, -2.0, 40.0])
    moved = [
        GaussianMixture(m.weights, m.means @ stretch.T + origin, stretch @ m.covariances @ stretch.T)
        for m in (minority, majority)
    ]
    plain = population_minimiser(loss, minority, majority, 1e-3)
    other = population_minimiser(loss, *moved, 1e-3)
    points = minority.sample(5, seed=0)
    np.testing.assert_allclose(other.score(points @ stretch.T + origin), plain.score(points), rtol=1e-7)


def test_alpha_one_half_has_the_same_w_at_every_prior():
    rules = [population_minimiser(Alpha(0.5), *PAPER, prior) for prior in (0.5, 1e-3, 1e-12)]
    for rule in rules[1:]:
        np.testing.assert_allclose(rule.w, rules[0].w, rtol=1e-11)
    odds = math.log(1e-12) - math.log1p(-1e-12)
    assert rules[2].b - rules[0].b == pytest.approx(0.5 * odds, abs=1e-10)


def test_compositions_move_the_rule_as_they_should():
    base = population_minimiser(Focal(1.0), *PAPER, 1e-4)
    adjusted = LogitAdjusted(Focal(1.0), 1e-4, tau=1.5)
    rule = population_minimiser(adjusted, *PAPER, 1e-4)
    np.testing.assert_allclose(rule.w, base.w, rtol=1e-9)
    assert rule.b == pytest.approx(base.b - adjusted.shift, abs=1e-9)
    # A weight of 9 on the minority is 9 times the odds.
    weighted = population_minimiser(ClassWeighted(TBL(), (2.0, 18.0)), *PAPER, 0.01)
    odds = 9 * 0.01 / 0.99
    np.testing.assert_allclose(
        vector(weighted), vector(population_minimiser(TBL(), *PAPER, odds / (1 + odds))), rtol=1e-9
    )


def test_users_own_losses():
    logistic = from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * z), name="mine")
    own = population_minimiser(logistic, *PAPER, 1e-6)
    np.testing.assert_allclose(
        vector(own), vector(population_minimiser(CrossEntropy(), *PAPER, 1e-6)), rtol=1e-9
    )
    square = from_callable(lambda z, y: (2 * y - 1 - z) ** 2, name="identity square")
    exact = least_squares_rule(*PAPER, 1e-3)
    found = population_minimiser(square, *PAPER, 1e-3)
    np.testing.assert_allclose(vector(found), vector(exact), rtol=1e-8, atol=1e-12)
    assert found.risk == pytest.approx(exact.risk, rel=1e-10)


def test_a_kink_costs_accuracy_not_the_answer():
    hinge = from_callable(lambda z, y: torch.relu(1 - (2 * y - 1) * z) ** 2, name="squared hinge")
    rule = population_minimiser(hinge, *SINGLE, 0.2)
    assert rule.gradient_norm < 1e-6
    step = 1e-2
    gradient = panel_gradient(hinge, SINGLE, 0.2, vector(rule), step)
    beside = panel_gradient(hinge, SINGLE, 0.2, vector(rule) * 1.01, step)
    assert np.linalg.norm(gradient) < 1e-2 * np.linalg.norm(beside)


def test_a_bounded_loss_finds_the_lower_of_two_minima():
    # The minority has a near cluster of weight 0.3 and a far one on the other side.
    minority = GaussianMixture([0.3, 0.7], [[6.0, 0.0], [0.0, -6.0]], [np.eye(2), np.eye(2)])
    majority = GaussianMixture([1.0], [[0.0, 0.0]], [np.eye(2)])
    rule = population_minimiser(Squared(), minority, majority, 0.05)
    rng = np.random.default_rng(0)
    for _ in range(50):
        theta = np.append(rng.standard_normal(2) * 3, -rng.uniform(0, 20))
        assert panel_risk(Squared(), minority, majority, 0.05, theta) > rule.risk


def test_equal_means_have_no_direction():
    minority = GaussianMixture([1.0], [[1.0, 2.0]], [np.diag([1.0, 3.0])])
    majority = GaussianMixture([1.0], [[1.0, 2.0]], [np.eye(2)])
    rule = population_minimiser(CrossEntropy(), minority, majority, 0.1)
    np.testing.assert_allclose(rule.w, 0.0, atol=1e-12)
    assert rule.b == pytest.approx(math.log(0.1 / 0.9), abs=1e-12)


def test_refusals_of_the_minimiser():
    with pytest.raises(ValueError, match="prior must lie strictly between 0 and 1, got 0"):
        population_minimiser(CrossEntropy(), *SINGLE, 0.0)
    with pytest.raises(ValueError, match=r"got 1\.5"):
        least_squares_rule(*SINGLE, 1.5)
    with pytest.raises(ValueError, match="the minority has 2 dimensions and the majority 3"):
        population_minimiser(CrossEntropy(), SINGLE[0], random_mixture(0, 3, 1), 0.1)
    with pytest.raises(ValueError, match="is for 3 class logits"):
        population_minimiser(VectorScaling.from_counts((5, 3, 1)), *SINGLE, 0.1)
    with pytest.raises(ValueError, match=r"alpha\(alpha=inf\) has no unique minimiser: its link .* increase"):
        population_minimiser(Alpha(math.inf), *SINGLE, 0.1)
    with pytest.raises(TypeError, match="must be a loss"):
        population_minimiser("crossentropy", *SINGLE, 0.1)
    naive = from_callable(
        lambda z, y: -(y * torch.sigmoid(z).log() + (1 - y) * (1 - torch.sigmoid(z)).log()), name="naive"
    )
    with pytest.raises(ValueError, match=r"naive or a derivative of it is NaN at z = .*softplus"):
        population_minimiser(naive, *PAPER, 0.1)
    apart = [GaussianMixture([1.0], [[m]], [[[1.0]]]) for m in (300.0, 0.0)]
    with pytest.raises(RuntimeError, match="crossentropy: the population risk has a relative gradient of"):
        population_minimiser(CrossEntropy(), *apart, 0.1)


# ---- the limits --------------------------------------------------------------------------

LIMITS = [
    (CrossEntropy(), 1e-10),
    (Alpha(1.0), 1e-10),
    (Alpha(0.7), 1e-7),
    (Alpha(0.3), 1e-3),
    (Alpha(2.0), 1e-10),
    (TBL(0.7, 0.5), 1e-7),
    (TBL(1.0, 1.0), 1e-9),
    (non_convex_tbl(2.0, 0.3), 1e-7),
    (Focal(1.0), 1e-4),
    (Focal(2.0), 2e-3),
    (Poly(1.0), 1e-10),
    (Poly(-0.5), 1e-9),
    (Poly(-1.0), 1e-5),
    (VectorScaling(0.5), 1e-5),
    (VectorScaling(2.0, delta_neg=0.5, iota_pos=1.5, iota_neg=-0.7), 1e-9),
    (LDAM((1000, 10), max_margin=1.0, scale=1.0), 1e-10),
    (LDAM((9900, 100)), 1e-10),
    (Squared(), 1e-8),
    (LogitAdjusted(Focal(1.0), 0.001, tau=1.5), 1e-4),
    (LogitAdjusted(VectorScaling(0.5), 0.1), 1e-5),
    (ClassWeighted(Alpha(0.6), (1.0, 20.0)), 1e-5),
    (Erf(), 0.02),
    (LogitAdjusted(Erf(), 0.01), 0.02),
]


@pytest.mark.parametrize(("loss", "tolerance"), LIMITS, ids=[str(loss) for loss, _ in LIMITS])
def test_minimisers_tend_to_the_limit(loss, tolerance):
    limit = limiting_rule(loss, *SINGLE)
    errors = []
    for prior in (1e-6, 1e-12):
        rule, guess = population_minimiser(loss, *SINGLE, prior), limit.at(prior)
        errors.append(np.linalg.norm(guess.w - rule.w) / np.linalg.norm(rule.w))
        errors.append(abs(guess.b - rule.b))
    assert errors[2] < tolerance
    assert errors[3] < tolerance
    assert errors[2] < errors[0]


@pytest.mark.parametrize("alpha", [0.3, 0.7, 0.9])
def test_the_rate_of_the_alpha_limit(alpha):
    limit = limiting_rule(Alpha(alpha), *SINGLE)
    priors = (1e-5, 1e-8)
    near, nearer = (
        np.linalg.norm(population_minimiser(Alpha(alpha), *SINGLE, p).w - limit.w) for p in priors
    )
    assert math.log(near / nearer) / math.log(1e3) == pytest.approx(alpha, abs=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_stationarity_of_the_limit(seed):
    minority, majority = random_mixture(seed, 4, 3, shift=1.0), random_mixture(seed + 50, 4, 2)
    for alpha in (0.2, 0.5, 0.8):
        u = 1 / alpha - 1
        w = limiting_rule(Alpha(alpha), minority, majority).w
        left, right = minority.log_mgf(-u * w)[1], majority.log_mgf(w)[1]
        np.testing.assert_allclose(left, right, atol=1e-11)
        # The fixed point w = (u S+ + S-)^-1 (mu+ - mu-) of the tilted moments.
        omega, xi = minority.tilted_weights(-u * w), majority.tilted_weights(w)
        spread = u * np.tensordot(omega, minority.covariances, 1) + np.tensordot(xi, majority.covariances, 1)
        np.testing.assert_allclose(np.linalg.solve(spread, omega @ minority.means - xi @ majority.means), w)
    theta = limiting_rule(CrossEntropy(), minority, majority).w
    np.testing.assert_allclose(majority.log_mgf(theta)[1], minority.mean, atol=1e-11)


@pytest.mark.parametrize("seed", range(3))
def test_duality_of_the_limit(seed):
    """Any weights of the clusters bound the programme from above; the tilted ones attain it."""
    minority, majority = random_mixture(seed, 3, 3, shift=1.0), random_mixture(seed + 9, 3, 2)
    alpha, u = 0.6, 1 / 0.6 - 1

    def dual(omega, xi):
        difference = omega @ minority.means - xi @ majority.means
        spread = u * np.tensordot(omega, minority.covariances, 1) + np.tensordot(xi, majority.covariances, 1)
        kl = alpha * omega @ np.log(omega / minority.weights)
        kl += (1 - alpha) * xi @ np.log(xi / majority.weights)
        return kl + (1 - alpha) / 2 * difference @ np.linalg.solve(spread, difference)

    w = limiting_rule(Alpha(alpha), minority, majority).w
    primal = -alpha * minority.log_mgf(-u * w)[0] - (1 - alpha) * majority.log_mgf(w)[0]
    best = dual(minority.tilted_weights(-u * w), majority.tilted_weights(w))
    assert best == pytest.approx(primal, abs=1e-11)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        assert dual(rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2))) > best


def test_tbl_has_the_limit_of_alpha_for_every_damping():
    plain = limiting_rule(Alpha(0.7), *PAPER)
    for C in (0.0, 0.5, 1.0):
        damped = limiting_rule(TBL(0.7, C), *PAPER)
        np.testing.assert_allclose(damped.w, plain.w, rtol=1e-13)
        assert damped.at(1e-5).b == pytest.approx(plain.at(1e-5).b - 0.7 * C, abs=1e-12)


def test_direction_is_shared_and_scale_is_not():
    theta = limiting_rule(CrossEntropy(), *PAPER).w
    np.testing.assert_allclose(limiting_rule(Focal(2.0), *PAPER).w, theta / 3)
    np.testing.assert_allclose(limiting_rule(LDAM((9900, 100)), *PAPER).w, theta / 30)
    np.testing.assert_allclose(limiting_rule(Poly(1.0), *PAPER).w, theta)
    np.testing.assert_allclose(limiting_rule(VectorScaling(0.3, delta_neg=0.5), *PAPER).w, theta / 0.5)
    # Brier is alpha = 2 with half the score.
    np.testing.assert_allclose(limiting_rule(Squared(), *SINGLE).w, limiting_rule(Alpha(2.0), *SINGLE).w / 2)


def test_erf_intercept_solves_its_equation():
    limit = limiting_rule(Erf(), *SINGLE)
    K = SINGLE[1].log_mgf(limit.w)[0]
    for prior in (0.5, 0.1, 1e-6, 1e-300):
        b = limit.at(prior).b
        left = b * b / 2 + math.log(-b) + math.log(2 * math.pi) / 2
        assert left == pytest.approx(math.log1p(-prior) - math.log(prior) + K, abs=1e-10)
        np.testing.assert_allclose(-b * limit.at(prior).w, limit.w)


def test_a_finite_limit_needs_a_wide_majority():
    for loss in (Alpha(2.0), Squared(), non_convex_tbl(2.0, 0.3)):
        with pytest.raises(ValueError, match=r"no finite limit here: it needs S- > 0.5 S\+ .* component 0"):
            limiting_rule(loss, *PAPER)
    # Neither majority cluster is wide in every direction, together they are wide enough.
    minority = GaussianMixture([1.0], [[0.5, 0.5]], [0.8 * np.eye(2)])
    crossed = GaussianMixture([0.5, 0.5], np.zeros((2, 2)), [np.diag([2.0, 0.3]), np.diag([0.3, 2.0])])
    w = limiting_rule(Alpha(2.0), minority, crossed).w
    np.testing.assert_allclose(minority.log_mgf(w / 2)[1], crossed.log_mgf(w)[1], atol=1e-11)


def test_refusals_of_the_limit():
    own = from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * z), name="mine")
    with pytest.raises(ValueError, match="the limiting rule of mine is not known"):
        limiting_rule(own, *SINGLE)
    with pytest.raises(ValueError, match="has no unique minimiser"):
        limiting_rule(Alpha(math.inf), *SINGLE)
    with pytest.raises(ValueError, match="class logits"):
        limiting_rule(LDAM((5, 3, 1)), *SINGLE)
    with pytest.raises(ValueError, match="prior must lie"):
        limiting_rule(CrossEntropy(), *SINGLE).at(1.0)
    with pytest.raises(ValueError, match="dimensions"):
        limiting_rule(CrossEntropy(), SINGLE[0], random_mixture(0, 3, 1))


# ---- mixtures, rules, AUC ----------------------------------------------------------------


def test_mixture_moments_and_samples():
    mixture = random_mixture(7, 3, 3)
    points = mixture.sample(200_000, seed=11)
    assert points.shape == (200_000, 3)
    np.testing.assert_allclose(points.mean(axis=0), mixture.mean, atol=0.02)
    np.testing.assert_allclose(np.cov(points.T), mixture.covariance, atol=0.05)
    np.testing.assert_array_equal(points[:10], mixture.sample(200_000, seed=11)[:10])
    assert not np.array_equal(mixture.sample(10, seed=1), mixture.sample(10, seed=2))
    assert mixture.sample(0, seed=1).shape == (0, 3)
    with pytest.raises(ValueError, match="n must not be negative"):
        mixture.sample(-1, seed=1)


def test_mixture_cannot_be_changed():
    mixture = random_mixture(7, 2, 2)
    for array in (mixture.weights, mixture.means, mixture.covariances):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0


def test_log_mgf_derivatives():
    mixture, w, step = random_mixture(8, 3, 3), np.array([0.3, -0.8, 0.5]), 1e-5
    value, gradient, hessian = mixture.log_mgf(w)
    densities = mixture.weights * np.exp(
        mixture.means @ w + 0.5 * np.einsum("i,kij,j->k", w, mixture.covariances, w)
    )
    assert value == pytest.approx(math.log(densities.sum()), abs=1e-13)
    for direction in np.eye(3):
        ahead, behind = mixture.log_mgf(w + step * direction), mixture.log_mgf(w - step * direction)
        assert (ahead[0] - behind[0]) / (2 * step) == pytest.approx(gradient @ direction, abs=1e-8)
        np.testing.assert_allclose((ahead[1] - behind[1]) / (2 * step), hessian @ direction, atol=1e-8)
    np.testing.assert_allclose(mixture.log_mgf(np.zeros(3))[1], mixture.mean)
    np.testing.assert_allclose(mixture.log_mgf(np.zeros(3))[2], mixture.covariance)
    assert math.isfinite(mixture.log_mgf(1e3 * w)[0])
    with pytest.raises(ValueError, match="does not fit a mixture in 3 dimensions"):
        mixture.log_mgf([1.0])


@pytest.mark.parametrize(
    ("weights", "means", "covariances", "message"),
    [
        ([0.5, 0.6], [[0.0], [1.0]], [[[1.0]], [[1.0]]], r"sum to one, got \[0.5, 0.6\] \(sum 1.1\)"),
        ([1.5, -0.5], [[0.0], [1.0]], [[[1.0]], [[1.0]]], "positive"),
        ([1.0], [0.0], [[[1.0]]], r"means must have shape \(1, d\)"),
        ([1.0], [[0.0], [1.0]], [[[1.0]]], "one row a weight"),
        ([1.0], [[0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], r"covariances must have shape \(1, 2, 2\)"),
        ([], [[0.0]], [[[1.0]]], "weights must be a vector"),
        ([1.0], [[0.0, 1.0]], [[[1.0, 0.5], [0.2, 1.0]]], "component 0 is not symmetric"),
        ([1.0], [[math.nan]], [[[1.0]]], "means must be finite"),
        ([1.0], [["a"]], [[[1.0]]], "means must be a regular array of numbers"),
        (
            [0.5, 0.5],
            [[0.0, 0.0], [0.0, 0.0]],
            [np.eye(2), [[1.0, 2.0], [2.0, 4.0]]],
            "component 1 is singular: its coordinates are collinear",
        ),
        ([1.0], [[0.0, 0.0]], [np.diag([1.0, 0.0])], "coordinate 1 has variance 0"),
        ([1.0], [[0.0, 0.0]], [[[1.0, 2.0], [2.0, 1.0]]], "component 0 is not positive definite"),
    ],
)
def test_refusals_of_the_mixture(weights, means, covariances, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixture(weights, means, covariances)


def test_units_do_not_make_a_covariance_singular():
    GaussianMixture([1.0], [[0.0, 0.0]], [np.diag([1e-12, 1e12])])


def test_rule():
    rule = LinearRule([3.0, -4.0], 1.0)
    np.testing.assert_allclose(rule.score(np.ones((2, 3, 2))), np.zeros((2, 3)))
    assert rule.angle == pytest.approx(360 - math.degrees(math.atan2(4, 3)))
    assert LinearRule([1.0, -1e-300], 0.0).angle == 0.0
    assert math.isnan(rule.risk)
    with pytest.raises(ValueError, match="read-only"):
        rule.w[0] = 1.0
    with pytest.raises(ValueError, match="does not fit a rule in 2 dimensions"):
        rule.score([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="only a rule in 2 dimensions has an angle"):
        _ = LinearRule([1.0], 0.0).angle
    with pytest.raises(ValueError, match="w must be a vector"):
        LinearRule([[1.0]], 0.0)


def test_least_squares_minimises_the_square():
    rule = least_squares_rule(*PAPER, 0.05)

    def square(theta):
        total = 0.0
        for sign, mixture, share in ((1.0, PAPER[0], 0.05 / 0.95), (-1.0, PAPER[1], 1.0)):
            mean = mixture.mean @ theta[:2] + theta[2]
            total += share * ((sign - mean) ** 2 + theta[:2] @ mixture.covariance @ theta[:2])
        return total

    assert square(vector(rule)) == pytest.approx(rule.risk, rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(20):
        assert square(vector(rule) + 1e-3 * rng.standard_normal(3)) > rule.risk


def test_auc_of_many_directions():
    pair = random_mixture(12, 3, 2, shift=1.0), random_mixture(13, 3, 3)
    w = np.random.default_rng(0).standard_normal((4, 5, 3))
    auc = linear_auc(w, *pair)
    assert auc.shape == (4, 5)
    assert linear_auc(w[1, 2], *pair) == pytest.approx(auc[1, 2], abs=1e-15)
    np.testing.assert_allclose(linear_auc(-2.5 * w, *pair), 1 - auc, atol=1e-14)
    assert linear_auc(np.zeros(3), *pair) == pytest.approx(0.5, abs=1e-15)
    positive, negative = pair[0].sample(2000, seed=1), pair[1].sample(2000, seed=2)
    scores = positive @ w[0, 0], negative @ w[0, 0]
    assert (scores[0][:, None] > scores[1]).mean() == pytest.approx(auc[0, 0], abs=0.02)
    with pytest.raises(ValueError, match="does not fit mixtures in 3 dimensions"):
        linear_auc([1.0, 2.0], *pair)


@pytest.mark.parametrize("seed", range(3))
def test_best_auc_beats_every_direction(seed):
    pair = random_mixture(seed, 3, 2, shift=0.5), random_mixture(seed + 20, 3, 3)
    best = best_linear_auc(*pair)
    assert np.linalg.norm(best.w) == pytest.approx(1.0)
    assert best.auc == pytest.approx(linear_auc(best.w, *pair), abs=1e-15)
    directions = np.random.default_rng(seed).standard_normal((20_000, 3))
    assert linear_auc(directions, *pair).max() <= best.auc
    assert linear_auc(best.w + 1e-3 * directions[:200], *pair).max() < best.auc


def test_best_auc_of_two_gaussians_is_alpha_one_half():
    best = best_linear_auc(*SINGLE)
    w = limiting_rule(Alpha(0.5), *SINGLE).w
    np.testing.assert_allclose(best.w, w / np.linalg.norm(w), atol=1e-10)
