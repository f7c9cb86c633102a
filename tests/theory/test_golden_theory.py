"""Risk, f-functions, information and indices against multi-precision references."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import mpmath
import numpy as np
import pytest

from loss_cases import golden_loss
from raresight.theory import (
    DensityExperiment,
    DiscreteExperiment,
    GaussianExperiment,
    bayes_risk,
    decay_exponent,
    divergence,
    explained_fraction,
    f_function,
    limiting_f_function,
    local_index,
    statistical_information,
)

GOLDEN = json.loads((Path(__file__).parent.parent / "data" / "golden_theory.json").read_text())


def assert_close(got: float, reference: str, tolerance: float = 1e-9) -> None:
    exact = mpmath.mpf(reference)
    assert abs(mpmath.mpf(float(got)) - exact) <= tolerance * abs(exact), (got, reference)


def cases(group: list, *, of: str = "loss"):
    return [pytest.param(case, id=f"{i}-{case[of]}") for i, case in enumerate(group)]


@pytest.mark.parametrize("case", cases(GOLDEN["bayes"]["bayes"]))
def test_bayes_risk(case):
    loss = golden_loss(case["loss"], case["params"])
    etas = np.array([float(eta) for eta in case["eta"]])
    together = bayes_risk(loss, etas)
    for eta, got, reference in zip(etas, together, case["eta"].values(), strict=True):
        assert_close(got, reference["bayes_risk"])
        log_odds = math.log(eta) - math.log1p(-eta)
        assert_close(bayes_risk(loss, log_odds=log_odds), reference["bayes_risk"])
        assert float(loss.score(log_odds)) == pytest.approx(float(reference["z_star"]), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("case", cases(GOLDEN["bayes"]["f_function"]))
def test_f_function(case):
    loss = golden_loss(case["loss"], case["params"])
    for key, reference in case["f"].items():
        prior, t = (float(part.split("=")[1]) for part in key.split(","))
        assert_close(f_function(loss, t, prior), reference)


@pytest.mark.parametrize("key", GOLDEN["bayes"]["second_order"])
def test_second_order_of_the_f_function(key):
    """f/(pi (1 - t)) + log(pi) tends to the second-order constants of the corrected Table 1."""
    name, params, t_text = re.fullmatch(r"(\w+) (\{.*\}) t=([\d.]+)", key).groups()
    loss, t = golden_loss(name, json.loads(params.replace("'", '"'))), float(t_text)
    prior = 1e-300
    scale = limiting_f_function(loss, t, prior) / (-prior * math.log(prior) * (1 - t))
    second = f_function(loss, t, prior) / (prior * scale * (1 - t)) + math.log(prior)
    expected = float(GOLDEN["bayes"]["second_order"][key][1])
    assert second == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("case", cases(GOLDEN["bayes"]["local_index"]))
def test_local_index(case):
    loss = golden_loss(case["loss"], case["params"])
    for key, reference in case["beta_local"].items():
        index = local_index(loss, float(key.split("=")[1]))
        assert_close(index.beta, reference)
        assert_close(index.c, case["c_local"][key])


@pytest.mark.parametrize("case", cases(GOLDEN["discrete"]))
def test_discrete_experiments(case):
    loss = golden_loss(case["loss"], case["params"])
    experiment = DiscreteExperiment([float(p) for p in case["P"]], [float(q) for q in case["Q"]])
    for prior in case["dL"]:
        assert_close(statistical_information(loss, experiment, float(prior)), case["dL"][prior])
        assert_close(explained_fraction(loss, experiment, float(prior)), case["explained_fraction"][prior])
        assert_close(decay_exponent(loss, experiment, float(prior)), case["decay_exponent"][prior])


@pytest.mark.parametrize("case", cases(GOLDEN["statinfo"]["stat_info"]))
def test_gaussian_pairs(case):
    loss = golden_loss(case["loss"], case["params"])
    mean, sd = map(float, re.fullmatch(r"N\((.*),(.*)\^2\)", case["P"]).groups())
    priors = np.array([float(prior) for prior in case["dL"]])
    experiment = GaussianExperiment(mean, sd)
    for got, reference in zip(
        statistical_information(loss, experiment, priors), case["dL"].values(), strict=True
    ):
        assert_close(got, reference)
    fractions = explained_fraction(loss, experiment, priors)
    for got, reference in zip(fractions, case["explained_fraction"].values(), strict=True):
        assert_close(got, reference)


def log_normal(x):
    return -0.5 * x * x - 0.5 * math.log(2 * math.pi)


def log_student_3(x):
    return math.log(6 * math.sqrt(3) / math.pi) - 2 * np.log(3 + x * x)


def log_cauchy(x):
    return -math.log(math.pi) - np.log1p(x * x)


HEAVY = {
    "H1_P=t3_Q=N01": DensityExperiment.from_densities(log_student_3, log_normal),
    "H2_P=Cauchy_Q=N01": DensityExperiment.from_densities(log_cauchy, log_normal),
}


@pytest.mark.parametrize("case", cases(GOLDEN["statinfo"]["heavy_tailed"]))
def test_heavy_tails(case):
    loss = golden_loss(case["loss"], case["params"])
    for prior, reference in case["dL"].items():
        assert_close(statistical_information(loss, HEAVY[case["pair"]], float(prior)), reference)


@pytest.mark.parametrize(("name", "sd"), [("G1", 1.0), ("G3_chi2_infinite", 2.0)])
def test_divergences(name, sd):
    reference = GOLDEN["statinfo"]["divergences"][name]
    experiment = GaussianExperiment(1.0, sd)
    assert_close(divergence(experiment, 1.0), reference["KL(P||Q)"])
    if reference["chi2(P||Q)"] == "+inf":
        assert divergence(experiment, 2.0) == math.inf
    else:
        assert_close(2 * divergence(experiment, 2.0), reference["chi2(P||Q)"])
    for alpha in (0.3, 0.5, 0.7, 0.9):
        integral = 1 - alpha * (1 - alpha) * divergence(experiment, alpha)
        assert_close(integral, reference[f"int p^{alpha} q^(1-{alpha})"])
