"""Bad input gets an error that shows what was wrong and where."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from raresight.losses import (
    LDAM,
    TBL,
    Alpha,
    ClassWeighted,
    CrossEntropy,
    Focal,
    LogitAdjusted,
    NonConvexLossWarning,
    Poly,
    VectorScaling,
    all_losses,
    effective_number_weights,
    parse,
)

CE = CrossEntropy()


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
@pytest.mark.parametrize(
    ("z", "y", "message"),
    [
        ([0.0, 1.0], [0, 2], r"labels must be 0 or 1: y\[1\] is 2"),
        ([0.0, 1.0, 2.0], [-1, 1, -1], r"y\[0\] is -1 \(and 1 more\)"),
        ([0.0, 1.0], [0.5, 1.0], r"y\[0\] is 0\.5"),
        ([0.0, float("nan")], [0, 1], r"z has a missing value: z\[1\] is nan"),
        ([[0.0, 1.0], [2.0, float("nan")]], [0, 1], r"z\[1, 1\] is nan"),
        ([], [], "z is empty"),
        ([0.0, 1.0], [0, 1, 1], r"shape \(3,\) does not fit z of shape \(2,\)"),
        ([[0.0, 1.0], [0.0, 1.0]], [0, 2], r"labels must lie in 0\.\.1: y\[1\] is 2"),
        ([[0.0], [1.0]], [0, 1], "single class"),
    ],
)
def test_bad_scores_and_labels(convert, z, y, message):
    with pytest.raises(ValueError, match=message):
        CE.value(convert(z), convert(y))


def test_wrong_types():
    with pytest.raises(TypeError, match="class labels must be integers"):
        CE.value(np.zeros((2, 3)), np.array([0.0, 1.0]))
    with pytest.raises(TypeError, match="real numbers"):
        CE.value(np.array([1j]), np.array([1]))
    with pytest.raises(TypeError, match="Python objects"):
        CE.value(np.zeros(1), np.array([None]))
    with pytest.raises(TypeError, match="pass both as tensors"):
        CE.value(torch.zeros(2), np.zeros(2))
    with pytest.raises(TypeError, match="pass both as tensors"):
        CE.value(np.zeros(2), torch.zeros(2))
    with pytest.raises(ValueError, match="order must be"):
        CE.derivatives(0.0, 1, order=3)


def test_accepted_inputs():
    assert CE.value(0, True) == pytest.approx(np.log(2))
    assert CE.value([0, 1], [0, 1]).dtype == np.float64
    assert CE.value(np.array([np.inf, -np.inf]), [1, 0]).tolist() == [0.0, 0.0]
    assert np.isfinite(CE.value(np.array([np.inf]), [0]))[0]
    assert CE.value(torch.zeros(3), torch.tensor([True, False, True])).shape == (3,)
    assert CE.value(torch.zeros(3), torch.tensor(1)).shape == ()  # three logits of one sample
    assert CE.value(torch.arange(3), torch.ones(3)).dtype == torch.float64


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Focal(-0.1), r"gamma must be at least 0\.0"),
        (lambda: Focal(float("nan")), "must be a number"),
        (lambda: Poly(-1.01), "epsilon must be at least -1"),
        (lambda: Poly(float("inf")), "must be finite"),
        (lambda: Alpha(0.0), r"alpha must lie in \(0, inf\]"),
        (lambda: TBL(0.8, -0.1), r"C must be at least 0\.0"),
        (lambda: TBL(0.8, 1.73), r"C_uniq\(0\.8\) = 1\.72153"),
        (lambda: TBL(float("inf"), 0.1), "C_uniq"),
        (lambda: TBL(-1.0), "alpha must lie"),
        (lambda: VectorScaling(0.0), "delta must be positive"),
        (lambda: VectorScaling(1.0, delta_neg=-1.0), "delta_neg must be positive"),
        (lambda: VectorScaling.from_counts((10,)), "at least 2 classes"),
        (lambda: VectorScaling.from_counts((10, 0)), r"class_counts\[1\] must be positive"),
        (lambda: LDAM((10, -3)), r"class_counts\[1\] must be positive"),
        (lambda: LDAM((10, 3), scale=0.0), "scale must be positive"),
        (lambda: LDAM((10, 3), max_margin=-1.0), "max_margin must be at least"),
        (lambda: LogitAdjusted(CE, 0.0), "strictly between 0 and 1"),
        (lambda: LogitAdjusted(CE, (0.5, 0.4)), "sum to one"),
        (lambda: LogitAdjusted(LDAM((1, 2, 3)), (0.5, 0.5)), "2 priors"),
        (lambda: ClassWeighted(CE, (1.0, 0.0)), r"weights\[1\] must be positive"),
        (lambda: ClassWeighted(CE, (1.0,)), "at least 2 weights"),
        (lambda: ClassWeighted(LDAM((1, 2, 3)), (1.0, 2.0)), "2 weights"),
        (lambda: effective_number_weights((1, 2), beta=1.0), r"beta must lie in \[0, 1\)"),
    ],
)
def test_bad_parameters(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Focal("2"[:0]),
        lambda: LogitAdjusted("ce", 0.5),
        lambda: ClassWeighted(3, (1, 2)),
        lambda: LDAM("12"),
    ],
)
def test_parameters_of_the_wrong_type(build):
    with pytest.raises(TypeError, match="must be"):
        build()


def test_tbl_warns_where_it_is_not_convex():
    with pytest.warns(NonConvexLossWarning, match=r"C=1\.7 is above C_conv = 1\.6465"):
        TBL(0.8, 1.7)
    with pytest.warns(NonConvexLossWarning, match="alpha=2.0 is above 1"):
        TBL(2.0, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TBL(0.8, 1.64)


def test_weights_by_effective_number():
    assert effective_number_weights((7, 7, 7)) == pytest.approx((1, 1, 1))
    assert effective_number_weights((100, 1), beta=0.0) == (1.0, 1.0)
    nearly_inverse = effective_number_weights((100, 1), beta=1 - 1e-12)
    assert nearly_inverse[1] / nearly_inverse[0] == pytest.approx(100, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tlb", "did you mean 'tbl'"),
        ("vs", "did you mean 'vectorscaling'"),
        ("nonsense", "known are crossentropy"),
        ("tbl(", "cannot read"),
        ("tbl(beta=1)", "unexpected keyword argument 'beta'; tbl takes alpha=0.8, C=0.5"),
        ("vectorscaling", r"give either delta \(binary score\) or class_counts"),
        ("ldam", "missing a required argument: 'class_counts'"),
        ("focal('a')", "expected a number"),
        ("focal(gamma=1+1)", "cannot read"),
        ("__import__('os')", "unknown loss|expected a number"),
        ("tbl(alpha=nan)", "TBL: alpha must be a number, got nan"),
        ("alpha(-NaN)", "Alpha: alpha must be a number, got nan"),
        ("ldam([nan, 1])", r"class_counts\[0\] must be a number, got nan"),
        ("nan", "'nan' is not a loss"),
        ("3", "not a loss"),
        ("focal(gamma=-1)", "gamma must be at least"),
        ("focal(**a)", r"\*\*"),
    ],
)
def test_parse_errors(text, message):
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_parse():
    assert parse("focal") == Focal()
    assert parse(" TBL( alpha = 0.7 , C=1 ) ") == TBL(0.7, 1.0)
    assert parse("tbl(0.7, 1)") == TBL(0.7, 1.0)
    assert parse("alpha(inf)") == Alpha(float("inf"))
    assert parse("poly(-0.5)") == Poly(-0.5)
    assert parse("ldam((100,10))") == LDAM((100, 10))
    assert parse("vectorscaling(class_counts=[5,1],tau=1.0)") == VectorScaling.from_counts((5, 1), tau=1.0)
    assert parse("logitadjusted(focal(gamma=1),prior=0.01)") == LogitAdjusted(Focal(1.0), 0.01)
    with pytest.raises(TypeError, match="takes a text"):
        parse(3)
    assert len({loss.name for loss in all_losses()}) == len(all_losses()) >= 11
