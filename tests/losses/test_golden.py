"""Values, derivatives and links against multi-precision references, in both array libraries."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch

from loss_cases import GOLDEN, GOLDEN_POINTWISE, golden_loss, has_link, non_convex_tbl
from raresight.losses import (
    LDAM,
    TBL,
    Alpha,
    CrossEntropy,
    Focal,
    Poly,
    VectorScaling,
    effective_number_weights,
)
from raresight.losses.tbl import convex_bound, monotone_bound, unique_bound

PRECISIONS = [
    pytest.param(np.float64, 1e-12, 700, id="float64"),
    pytest.param(np.float32, 2e-5, 80, id="float32"),
]
LIBRARIES = ["numpy", "torch"]
IDS = [str(loss) for loss, _ in GOLDEN_POINTWISE]


def in_library(array: np.ndarray, library: str):
    return torch.from_numpy(array) if library == "torch" else array


def assert_close(got: float, reference: str, dtype: type, tolerance: float) -> None:
    """Relative, where the reference is representable; saturated above, (nearly) zero below."""
    exact, limits = mpmath.mpf(reference), np.finfo(dtype)
    if abs(exact) > limits.max:
        assert got == math.copysign(float(limits.max), exact)
    elif abs(exact) < limits.tiny:
        assert abs(got) <= 1.01 * float(limits.tiny)
    else:
        assert abs(mpmath.mpf(got) - exact) <= tolerance * abs(exact), (got, reference)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("dtype", "tolerance", "reach"), PRECISIONS)
@pytest.mark.parametrize(("loss", "table"), GOLDEN_POINTWISE, ids=IDS)
def test_pointwise(loss, table, dtype, tolerance, reach, library):
    for text, references in table.items():
        if abs(float(text)) > reach:
            continue
        z = in_library(np.array([float(text)] * 2, dtype=dtype), library)
        y = in_library(np.array([1, 0]), library)
        separately = (loss.value(z, y), loss.gradient(z, y), loss.hessian(z, y))
        for key, got in zip(("l", "d1", "d2"), separately, strict=True):
            assert got.dtype == z.dtype
            assert_close(float(got[0]), references[f"{key}_pos"], dtype, tolerance)
            assert_close(float(got[1]), references[f"{key}_neg"], dtype, tolerance)
        if "inverse_link_logit_eta" in references:
            exact = float(mpmath.mpf(references["inverse_link_logit_eta"]))
            assert float(loss.log_odds(z)[0]) == pytest.approx(exact, rel=tolerance, abs=tolerance * 1e-3)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("loss", "table"), GOLDEN_POINTWISE, ids=IDS)
def test_link_and_back(loss, table, library):
    if not has_link(loss):
        with pytest.raises(ValueError, match="no unique minimiser"):
            loss.log_odds(np.zeros(3))
        return
    z = in_library(np.array([float(text) for text in table]), library)
    np.testing.assert_allclose(loss.score(loss.log_odds(z)), z, rtol=1e-10, atol=1e-10)
    log_odds = in_library(np.linspace(-300, 300, 41), library)
    np.testing.assert_allclose(loss.log_odds(loss.score(log_odds)), log_odds, rtol=1e-10, atol=1e-10)


def test_limits():
    z, y = np.array([-3.0]), np.array([1])
    difference = Alpha(0.999999).value(z, y) - CrossEntropy().value(z, y)
    reference = float(GOLDEN["losses"]["limits"]["alpha->1 (0.999999) minus CE at z=-3"])
    assert difference[0] == pytest.approx(reference, rel=1e-8)


MULTICLASS = GOLDEN["multiclass"]["cases"]


def multiclass_loss(case):
    params = case["params"]
    if case["loss"] == "vs_full":
        return VectorScaling.from_counts(params["counts"], params["tau"], params["gamma"])
    if case["loss"] == "ldam":
        return LDAM(tuple(params["counts"]), params["max_m"], params["s"])
    return golden_loss(case["loss"], params)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("case", MULTICLASS, ids=[case["loss"] for case in MULTICLASS])
def test_multiclass(case, library):
    loss = multiclass_loss(case)
    row = np.array([float(text) for text in case["logits"]])
    f = in_library(np.tile(row, (4, 1)), library)
    y = in_library(np.arange(4), library)
    value, gradient = loss.value(f, y), loss.gradient(f, y)
    for label in range(4):
        assert_close(float(value[label]), case["value_by_label"][label], np.float64, 1e-12)
        for k in range(4):
            assert_close(float(gradient[label, k]), case["grad_by_label"][label][k], np.float64, 1e-12)
    posterior = loss.probability(f[:1], multiclass=True)[0]
    for k in range(4):
        assert_close(float(posterior[k]), case["posterior_eta"][k], np.float64, 1e-12)


def test_class_constants():
    counts = (5000, 1000, 200, 40)
    vector_scaling = VectorScaling.from_counts(counts, tau=1.25, gamma=0.2)._class_map()
    reference = {
        key: [float(x) for x in GOLDEN["multiclass"][key]] for key in ("vs_Delta", "vs_iota", "ldam_m")
    }
    assert vector_scaling.scales == pytest.approx(reference["vs_Delta"], rel=1e-14)
    assert vector_scaling.shifts == pytest.approx(reference["vs_iota"], rel=1e-14)
    assert LDAM(counts).margins == pytest.approx(reference["ldam_m"], rel=1e-14)
    weights = [float(x) for x in GOLDEN["multiclass"]["drw_weights_beta0.9999"]]
    assert effective_number_weights(counts) == pytest.approx(weights, rel=1e-13)


def shape_cases():
    for name, shape in GOLDEN["shape"].items():
        if name.startswith("tbl_"):
            continue
        kind, *numbers = name.split()
        parameters = [float(number) for number in numbers]
        make = {"focal": Focal, "poly": Poly, "vs": VectorScaling, "tbl": non_convex_tbl}[kind]
        yield pytest.param(make(*parameters), shape, id=name)


@pytest.mark.parametrize(("loss", "shape"), list(shape_cases()))
def test_shape(loss, shape):
    assert loss.is_convex == shape["l_pos_convex"]
    assert loss.has_unique_minimiser == shape["link_strictly_increasing"]
    # The file calls focal(20) not decreasing; its slope -q^g (q + g p x) is negative everywhere.
    assert loss.is_monotone == (shape["l_pos_decreasing"] or loss == Focal(20.0))


@pytest.mark.parametrize("alpha", GOLDEN["shape"]["tbl_thresholds"])
def test_tbl_thresholds(alpha):
    reference = GOLDEN["shape"]["tbl_thresholds"][alpha]
    assert monotone_bound(float(alpha)) == pytest.approx(
        float(reference["C_monotone=alpha^(1/(alpha-1))"]), rel=1e-12
    )
    assert unique_bound(float(alpha)) == pytest.approx(reference["C_unique_numeric"], rel=1e-6)
    assert convex_bound(float(alpha)) == pytest.approx(reference["C_convex_in_z_numeric"], rel=1e-6)
    if reference["C_half_closed_form"]:
        assert unique_bound(float(alpha)) == pytest.approx(float(reference["C_half_closed_form"]), rel=1e-12)


def lowest_relative_eigenvalue(loss) -> float:
    rng = np.random.default_rng(0)
    matrix = loss.hessian_matrix(rng.normal(scale=3, size=(20000, 4)), rng.integers(4, size=20000))
    return float((np.linalg.eigvalsh(matrix)[:, 0] / np.abs(matrix).max((1, 2))).min())


@pytest.mark.parametrize("key", GOLDEN["shape"]["tbl_multiclass_hessian_min_eig"])
def test_tbl_multiclass_hessian(key):
    alpha, C = map(float, key.split(","))
    if GOLDEN["shape"]["tbl_multiclass_hessian_min_eig"][key] < -1e-6:
        with pytest.raises(ValueError, match="C_uniq"):
            TBL(alpha, C)
    else:
        assert lowest_relative_eigenvalue(TBL(alpha, C)) > -1e-9


@pytest.mark.parametrize(("alpha", "C"), [(0.5, 3.5), (0.4, 4.0), (0.8, 1.71)])
def test_tbl_multiclass_hessian_between_the_bounds(alpha, C):
    assert lowest_relative_eigenvalue(non_convex_tbl(alpha, C)) < -1e-3


def test_paper_grid_is_well_behaved():
    for alpha in (0.7, 0.75, 0.8, 0.85, 0.9):
        for C in (0.25, 0.5, 0.75, 1.0):
            loss = TBL(alpha, C)
            assert loss.is_monotone
            assert loss.is_convex
            assert loss.has_unique_minimiser
