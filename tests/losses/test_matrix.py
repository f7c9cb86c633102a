"""The contract, over every loss: derivatives, extremes, precision, links, text."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from loss_cases import BINARY_LOSSES, CLASS_LOSSES, has_link
from raresight.losses import LDAM, CrossEntropy, Squared, VectorScaling, all_losses, parse

every_binary = pytest.mark.parametrize("loss", BINARY_LOSSES, ids=str)
every_class = pytest.mark.parametrize("loss", CLASS_LOSSES, ids=str)
LABELS = np.array([0, 1])


def slope_of(function, at: np.ndarray) -> np.ndarray:
    """A derivative by Richardson's extrapolation of central differences, to about 1e-10."""
    step = 1e-3

    def central(h):
        return (function(at + h) - function(at - h)) / (2 * h)

    fine, middle, coarse = central(step), central(2 * step), central(4 * step)
    first, second = (4 * fine - middle) / 3, (4 * middle - coarse) / 3
    return (16 * first - second) / 15


@every_binary
@pytest.mark.parametrize("label", [0, 1])
def test_derivatives_match_differences(loss, label):
    z = np.linspace(-8, 8, 81) + 0.013
    if isinstance(loss, LDAM) and loss.scale > 10:
        z = z / 10
    y = np.full(z.shape, label)
    value, gradient, hessian = loss.derivatives(z, y)
    numeric = slope_of(lambda t: loss.value(t, y), z)
    scale = np.abs(value) + np.abs(gradient) + 1e-9
    assert np.max(np.abs(numeric - gradient) / scale) < 1e-6
    numeric = slope_of(lambda t: loss.gradient(t, y), z)
    scale = np.abs(gradient) + np.abs(hessian) + 1e-9
    assert np.max(np.abs(numeric - hessian) / scale) < 1e-6


@every_binary
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_extremes_stay_finite(loss, dtype, library):
    largest = float(np.finfo(dtype).max)
    z = np.array([0.0, -0.0, 1e-30, 20, 88, 90, 105, 300, 710, 745, 1e4, 1e30, largest / 3, largest])
    z = z[z <= largest].astype(dtype)
    z = np.concatenate([z, -z])
    for label in LABELS:
        y = np.full(z.shape, label)
        if library == "torch":
            terms = [t.numpy() for t in loss.derivatives(torch.from_numpy(z), torch.from_numpy(y))]
        else:
            terms = loss.derivatives(z, y)
        for term in terms:
            assert term.dtype == (np.float32 if dtype == np.float16 else dtype)
            assert np.all(np.isfinite(term)), (z[~np.isfinite(term)], term[~np.isfinite(term)])
        assert np.all(terms[0] >= 0)
    if has_link(loss):
        assert np.all(np.isfinite(loss.log_odds(z)))
        probability = loss.probability(z)
        assert np.all((probability >= 0) & (probability <= 1))


@every_binary
def test_bfloat16_is_computed_in_float32(loss):
    z = torch.linspace(-5, 5, 11, dtype=torch.bfloat16)
    y = torch.ones(11)
    got = loss.value(z, y)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, loss.value(z.float(), y), rtol=0, atol=0)


@every_binary
def test_numpy_and_torch_agree(loss):
    z = np.linspace(-30, 30, 121)
    for label in LABELS:
        y = np.full(z.shape, label)
        ours = loss.derivatives(z, y)
        theirs = loss.derivatives(torch.from_numpy(z), torch.from_numpy(y))
        for a, b in zip(ours, theirs, strict=True):
            assert isinstance(b, torch.Tensor)
            np.testing.assert_allclose(a, b.numpy(), rtol=2e-13, atol=1e-300)


@pytest.mark.parametrize("loss", [loss for loss in BINARY_LOSSES if has_link(loss)], ids=str)
def test_link_minimises_the_pointwise_risk(loss):
    log_odds = np.array([-12.0, -6.0, -1.0, 0.0, 0.5, 4.0])
    z = loss.score(log_odds)
    eta = 1 / (1 + np.exp(-log_odds))
    slope = eta * loss.gradient(z, np.ones(6)) + (1 - eta) * loss.gradient(z, np.zeros(6))
    size = eta * np.abs(loss.gradient(z, np.ones(6)))
    np.testing.assert_array_less(np.abs(slope), 1e-10 * size + 1e-300)
    np.testing.assert_allclose(loss.probability(z), eta, rtol=1e-9)

    def risk(t):
        return eta * loss.value(t, np.ones(6)) + (1 - eta) * loss.value(t, np.zeros(6))

    for step in (-1.0, -0.1, 0.1, 1.0):
        assert np.all(risk(z + step) > risk(z))


@every_binary
def test_multilabel_keeps_its_shape(loss):
    z = np.linspace(-2, 2, 12).reshape(3, 4)
    y = (np.arange(12).reshape(3, 4) % 3 == 0).astype(int)
    for term in loss.derivatives(z, y):
        assert term.shape == (3, 4)
    np.testing.assert_array_equal(loss.value(z, y).ravel(), loss.value(z.ravel(), y.ravel()))
    assert np.isscalar(loss.value(0.3, 1))


@pytest.mark.parametrize("loss", [*BINARY_LOSSES, *CLASS_LOSSES, *all_losses()], ids=str)
def test_text_and_identity(loss):
    if loss.is_convex:
        again = parse(str(loss))
    else:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = parse(str(loss))
    assert again == loss
    assert hash(again) == hash(loss)
    assert str(again) == str(loss)
    assert pickle.loads(pickle.dumps(loss)) == loss
    with pytest.raises(AttributeError):
        loss.anything = 1  # frozen
    assert loss.formula
    assert loss.__doc__


# ---- class logits ------------------------------------------------------------------------


def logits(n: int = 200, k: int = 4, scale: float = 2.0) -> np.ndarray:
    return np.random.default_rng(3).normal(scale=scale, size=(n, k))


def labels(n: int = 200, k: int = 4) -> np.ndarray:
    return np.random.default_rng(4).integers(k, size=n)


@every_class
def test_class_derivatives_match_differences(loss):
    f, y = logits(), labels()
    value, gradient, diagonal = loss.derivatives(f, y)
    matrix = loss.hessian_matrix(f, y)
    assert value.shape == (200,)
    assert matrix.shape == (200, 4, 4)
    np.testing.assert_allclose(np.diagonal(matrix, axis1=1, axis2=2), diagonal, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(matrix, matrix.transpose(0, 2, 1), rtol=1e-9, atol=1e-12)
    for k in range(4):
        unit = np.eye(4)[k]
        numeric = slope_of(lambda t, e=unit: loss.value(f + t[:, None] * e, y), np.zeros(200))
        np.testing.assert_allclose(numeric, gradient[:, k], rtol=1e-6, atol=1e-8)
        for j in range(4):
            numeric = slope_of(
                lambda t, e=unit, j=j: loss.gradient(f + t[:, None] * e, y)[:, j], np.zeros(200)
            )
            np.testing.assert_allclose(numeric, matrix[:, j, k], rtol=1e-6, atol=1e-7)


@every_class
def test_class_axis_is_one_in_torch(loss):
    f = np.random.default_rng(0).normal(size=(5, 3, 2, 4))
    y = np.random.default_rng(1).integers(4, size=(5, 3, 2))
    ours = loss.derivatives(f, y)
    theirs = loss.derivatives(torch.from_numpy(np.moveaxis(f, -1, 1)), torch.from_numpy(y))
    np.testing.assert_allclose(ours[0], theirs[0].numpy(), rtol=1e-12)
    for a, b in zip(ours[1:], theirs[1:], strict=True):
        np.testing.assert_allclose(a, np.moveaxis(b.numpy(), 1, -1), rtol=1e-11, atol=1e-13)
    matrix = loss.hessian_matrix(torch.from_numpy(np.moveaxis(f, -1, 1)), torch.from_numpy(y))
    np.testing.assert_allclose(loss.hessian_matrix(f, y), matrix.numpy(), rtol=1e-10, atol=1e-13)


@every_class
def test_posterior_is_where_the_risk_is_least(loss):
    f = logits(50, scale=0.6)
    eta = loss.probability(f, multiclass=True)
    np.testing.assert_allclose(eta.sum(1), 1, rtol=1e-12)
    slope = sum(eta[:, [k]] * loss.gradient(f, np.full(50, k)) for k in range(4))
    assert np.max(np.abs(slope)) < 1e-9


@every_class
def test_class_scores_have_the_posterior_asked_for(loss):
    eta = np.array([0.9, 0.09, 0.0099, 0.0001])
    f = loss.class_scores(eta)
    np.testing.assert_allclose(loss.probability(f[None], multiclass=True)[0], eta, rtol=1e-7)


@every_class
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_class_extremes_stay_finite(loss, dtype):
    largest = np.finfo(dtype).max
    rows = [[0, 0, 0, 0], [1000, 0, -1000, 0], [largest, -largest, 0, 1], [-largest] * 4, [-np.inf, 0, 0, 0]]
    f = np.repeat(np.array(rows, dtype=dtype), 4, axis=0)
    y = np.tile(np.arange(4), len(rows))
    for term in (*loss.derivatives(f, y), loss.hessian_matrix(f, y)):
        assert term.dtype == dtype
        assert np.all(np.isfinite(term))


BOTH_WAYS = [loss for loss in BINARY_LOSSES if loss.n_classes != 1]


@pytest.mark.parametrize("loss", BOTH_WAYS, ids=str)
def test_two_logits_are_the_binary_score(loss):
    z = np.array([-40.0, -20, -3, -1, 0, 0.5, 2, 15, 50])
    f = np.stack([np.zeros_like(z), z], axis=1)
    for label in LABELS:
        y = np.full(z.shape, label)
        value, gradient, hessian = loss.derivatives(z, y)
        class_value, class_gradient, class_diagonal = loss.derivatives(f, y)
        np.testing.assert_allclose(class_value, value, rtol=1e-11, atol=1e-300)
        np.testing.assert_allclose(class_gradient[:, 1], gradient, rtol=1e-11, atol=1e-300)
        np.testing.assert_allclose(class_gradient[:, 0], -gradient, rtol=1e-11, atol=1e-300)
        np.testing.assert_allclose(class_diagonal[:, 1], hessian, rtol=1e-9, atol=1e-300)
        matrix = loss.hessian_matrix(f, y)
        np.testing.assert_allclose(matrix[:, 0, 1], -hessian, rtol=1e-9, atol=1e-300)
    if has_link(loss):
        posterior = loss.probability(f, multiclass=True)
        np.testing.assert_allclose(posterior[:, 1], loss.probability(z), rtol=1e-9, atol=1e-300)


def test_squared_is_half_the_brier_score():
    f, y = logits(k=5), labels(k=5)
    p = np.exp(f) / np.exp(f).sum(1, keepdims=True)
    brier = ((p - np.eye(5)[y]) ** 2).sum(1)
    np.testing.assert_allclose(Squared().value(f, y), brier / 2, rtol=1e-12)


def test_hessian_of_logits_asks_which():
    with pytest.raises(ValueError, match="hessian_diagonal or hessian_matrix"):
        CrossEntropy().hessian(np.zeros((2, 3)), np.array([0, 1]))
    with pytest.raises(ValueError, match="needs class logits"):
        CrossEntropy().hessian_matrix(np.zeros(3), np.zeros(3))


def test_counted_losses_refuse_other_shapes():
    loss = VectorScaling.from_counts((10, 20, 30))
    with pytest.raises(ValueError, match="3 class logits"):
        loss.value(np.zeros(4), np.zeros(4))
    with pytest.raises(ValueError, match="3 class logits, got 4"):
        loss.value(np.zeros((2, 4)), np.array([0, 1]))
    with pytest.raises(ValueError, match="no binary link"):
        loss.log_odds(np.zeros(2))
    with pytest.raises(ValueError, match="takes a binary score"):
        VectorScaling(0.5).value(np.zeros((2, 3)), np.array([0, 1]))
