"""The kernels of the solver against the losses they stand for."""

import numpy as np
import pytest

from raresight.linear.kernels import SCRATCH, kernel_of
from raresight.losses import parse

WITH_KERNEL = [
    "crossentropy",
    "alpha(alpha=0.5)",
    "alpha(alpha=0.93)",
    "tbl(alpha=0.5,C=0)",
    "tbl(alpha=0.5,C=1.2)",
    "tbl(alpha=0.8,C=0.5)",
    "tbl(alpha=0.99,C=1.25)",
]
LIMITS = {np.float32: 79.0, np.float64: 699.0}


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("text", WITH_KERNEL)
def test_kernel_equals_the_loss(text, kind):
    loss, limit = parse(text), LIMITS[kind]
    z = np.concatenate([np.linspace(-limit, limit, 401), np.linspace(-1e-3, 1e-3, 11)]).astype(kind)
    for label in (0, 1):
        y = np.full(len(z), label, dtype=kind)
        scores, scratch = z.copy(), np.full((SCRATCH, len(z) + 3), np.nan, dtype=kind)
        assert kernel_of(loss, np.dtype(kind))(scores, 1 - 2 * y, scratch)
        tolerance = 2e-5 if kind is np.float32 else 1e-12
        exact = z.astype(np.float64)
        np.testing.assert_allclose(scratch[0, : len(z)], loss.value(exact, y), rtol=tolerance, atol=1e-35)
        np.testing.assert_allclose(scores, loss.gradient(exact, y), rtol=tolerance, atol=1e-35)


@pytest.mark.parametrize("text", WITH_KERNEL)
@pytest.mark.parametrize("extreme", [81.0, -81.0, np.nan, np.inf])
def test_kernel_leaves_extreme_scores_alone(text, extreme):
    scores = np.array([0.5, extreme, -0.5], dtype=np.float32)
    before = scores.copy()
    scratch = np.zeros((SCRATCH, 3), dtype=np.float32)
    assert not kernel_of(parse(text), np.dtype(np.float32))(scores, np.ones(3, np.float32), scratch)
    np.testing.assert_array_equal(scores, before)


@pytest.mark.parametrize(
    "text", ["focal", "alpha(alpha=0.4)", "tbl(alpha=0.4,C=0.5)", "alpha(alpha=1)", "erf"]
)
def test_no_kernel_for_other_losses(text):
    assert kernel_of(parse(text), np.dtype(np.float64)) is None
