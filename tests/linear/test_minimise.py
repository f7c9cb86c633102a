"""The minimum, loss by loss: judged by a gradient that is computed here, not by the solver."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from loss_cases import SOME_CLASS_LOSSES, SOME_LOSSES
from raresight.linear import LinearClassifier, NotConvergedWarning
from raresight.linear.design import make_design
from raresight.losses import CrossEntropy, Focal, Loss, parse

UNITS = np.array([1.0, 1e-3, 50.0, 1.0])


def binary_data(n=4000, seed=0, shift=-2.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * UNITS + np.array([0.0, 2e-3, -30.0, 0.5])
    X[:, 3] = 0.5  # constant
    z = 1.2 * X[:, 0] + 800 * (X[:, 1] - 2e-3) - 0.02 * (X[:, 2] + 30) + shift
    return X, (rng.random(n) < expit(z)).astype(int)


def class_data(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 5.0, 0.1]
    f = np.column_stack([X[:, 0] + 1.5, 0.3 * X[:, 1], -X[:, 0], 8 * X[:, 2] - 1])
    y = (f + rng.gumbel(size=f.shape)).argmax(axis=1)
    return X, y


def gradient_by_hand(model, X, y, weights, l2):
    """The gradient of the documented objective in standardised coefficients, in float64."""
    X = np.asarray(X.todense()) if sparse.issparse(X) else np.asarray(X, dtype=np.float64)
    weights = np.full(len(y), 1 / len(y)) if weights is None else weights / weights.sum()
    mean = weights @ X
    deviation = np.sqrt(weights @ (X - mean) ** 2)
    unit = np.where(deviation > 1e-12, deviation, 1.0)
    S = np.where(deviation > 1e-12, (X - mean) / unit, 0.0)
    z = X @ model.coef_.T + model.intercept_
    codes = np.searchsorted(model.classes_, y)
    slope = (
        model.loss_.gradient(z[:, 0], codes)[:, None] if z.shape[1] == 1 else model.loss_.gradient(z, codes)
    )
    b = model.coef_ * unit
    inner = (weights[:, None] * slope).T @ S + l2 * b
    return np.column_stack([inner, weights @ slope]), float(weights @ np.abs(slope).sum(axis=1))


def assert_stationary(model, X, y, weights=None, l2=None, limit=2e-8):
    gradient, scale = gradient_by_hand(model, X, y, weights, model.l2_ if l2 is None else l2)
    assert np.linalg.norm(gradient) <= limit * max(1.0, scale)
    assert model.gradient_norm_ <= 1e-8 * max(1.0, scale)


@pytest.mark.parametrize("loss", SOME_LOSSES, ids=str)
def test_gradient_vanishes(loss):
    X, y = binary_data()
    model = LinearClassifier(loss).fit(X, y)
    assert model.converged_
    assert model.coef_.shape == (1, 4)
    assert model.coef_[0, 3] == 0
    assert_stationary(model, X, y)


@pytest.mark.parametrize("loss", SOME_CLASS_LOSSES, ids=str)
def test_gradient_vanishes_for_classes(loss):
    X, y = class_data()
    model = LinearClassifier(loss).fit(X, y)
    assert model.converged_
    assert model.coef_.shape == (4, 3)
    assert_stationary(model, X, y)


@pytest.mark.parametrize("loss", SOME_LOSSES, ids=str)
def test_probabilities_are_calibrated(loss):
    """A saturated model, one score a group: its probability is the observed rate, whatever the loss."""
    rng = np.random.default_rng(3)
    group = rng.integers(0, 3, 60_000)
    rates = np.array([0.01, 0.05, 0.3])
    y = rng.random(len(group)) < rates[group]
    X = np.eye(3)[group][:, 1:]
    model = LinearClassifier(loss, l2=0.0, tol=1e-11).fit(X, y)
    eta = model.predict_proba(X)
    assert np.allclose(eta.sum(axis=1), 1)
    for k in range(3):
        assert eta[group == k, 1][0] == pytest.approx(y[group == k].mean(), rel=1e-3)
    assert np.allclose(expit(model.predict_log_odds(X)), eta[:, 1])


@pytest.mark.parametrize("loss", SOME_CLASS_LOSSES, ids=str)
def test_class_probabilities_are_calibrated(loss):
    rng = np.random.default_rng(3)
    group = rng.integers(0, 3, 8_000)
    rates = np.array([[0.7, 0.1, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.2, 0.5]])
    y = (rng.random((len(group), 1)) > rates[group].cumsum(axis=1)).sum(axis=1)
    X = np.eye(3)[group][:, 1:]
    model = LinearClassifier(loss, l2=0.0).fit(X, y)
    eta = model.predict_proba(X)
    for k in range(3):
        observed = np.bincount(y[group == k], minlength=4) / (group == k).sum()
        assert eta[group == k][0] == pytest.approx(observed, abs=1e-4)
    log_odds = model.predict_log_odds(X)
    assert np.allclose(expit(log_odds), eta)


@pytest.mark.parametrize("text", ["crossentropy", "tbl", "focal", "alpha(alpha=0.7)", "squared", "erf"])
def test_reliability_on_rare_events(text):
    """Binned by prediction on fresh data, predicted and observed rates agree within sampling error."""
    rng = np.random.default_rng(5)
    beta = np.array([0.8, -0.5, 0.3])
    loss = parse(text)

    def draw(n):
        X = rng.normal(size=(n, 3))
        # Log-odds whose score is linear: the model is right for this loss.
        score = X @ beta * float(loss.score(-3.0) - loss.score(-4.0)) + float(loss.score(-4.0))
        return X, rng.random(n) < loss.probability(score)

    model = LinearClassifier(loss).fit(*draw(150_000))
    X, y = draw(150_000)
    eta = model.predict_proba(X)[:, 1]
    bins = np.searchsorted(np.quantile(eta, np.linspace(0, 1, 9)[1:-1]), eta)
    for k in range(8):
        inside = bins == k
        predicted, observed = eta[inside].mean(), y[inside].mean()
        error = np.sqrt(predicted / inside.sum())
        assert abs(observed - predicted) < 4 * error + 0.03 * predicted, (k, predicted, observed)


@pytest.mark.parametrize("loss", SOME_LOSSES, ids=str)
def test_starts_at_the_best_constant(loss):
    """Features that say nothing: no step is needed."""
    X, y = np.ones((1000, 2)), np.arange(1000) < 30
    model = LinearClassifier(loss).fit(X, y)
    assert model.n_iter_ <= 1
    assert not model.coef_.any()
    assert model.predict_proba(X[:1])[0, 1] == pytest.approx(0.03, rel=1e-5)


def test_starts_at_the_best_constant_logits():
    X, y = np.ones((1000, 2)), np.repeat([0, 1, 2], [900, 70, 30])
    model = LinearClassifier("tbl").fit(X, y)
    assert model.n_iter_ <= 1
    assert model.predict_proba(X[:1])[0] == pytest.approx([0.9, 0.07, 0.03], rel=1e-6)


@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_cross_entropy_is_logistic_regression(solver):
    X, y = binary_data()
    X = X[:, :3]
    standard = StandardScaler().fit(X)
    theirs = LogisticRegression(C=1 / (len(y) * 1e-3), tol=1e-10, max_iter=1000).fit(standard.transform(X), y)
    model = LinearClassifier("crossentropy", l2=1e-3, solver=solver).fit(X, y)
    assert model.coef_ * standard.scale_ == pytest.approx(theirs.coef_, abs=1e-6)
    assert model.predict_proba(X) == pytest.approx(theirs.predict_proba(standard.transform(X)), abs=1e-6)


def test_cross_entropy_is_logistic_regression_for_classes():
    X, y = class_data()
    standard = StandardScaler().fit(X)
    theirs = LogisticRegression(C=1 / (len(y) * 1e-3), tol=1e-10, max_iter=2000).fit(standard.transform(X), y)
    model = LinearClassifier("crossentropy", l2=1e-3).fit(X, y)
    assert model.coef_ * standard.scale_ == pytest.approx(theirs.coef_, abs=1e-6)
    assert model.predict_proba(X) == pytest.approx(theirs.predict_proba(standard.transform(X)), abs=1e-6)


@pytest.mark.parametrize("loss", [CrossEntropy(), Focal(2.0), parse("tbl")], ids=str)
def test_without_intercept(loss):
    X, y = binary_data(shift=0.0)
    model = LinearClassifier(loss, fit_intercept=False).fit(X, y)
    assert model.intercept_.tolist() == [0.0]
    root = np.sqrt((X**2).mean(axis=0))
    z = X @ model.coef_[0]
    gradient = (X / root).T @ loss.gradient(z, y) / len(y) + model.l2_ * model.coef_[0] * root
    assert np.linalg.norm(gradient) < 2e-8


@pytest.mark.parametrize("loss", SOME_LOSSES[::2], ids=str)
def test_weights_are_repetitions(loss):
    X, y = binary_data(800)
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    one = LinearClassifier(loss).fit(X, y, sample_weight=weights)
    other = LinearClassifier(loss).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert one.coef_ == pytest.approx(other.coef_, rel=1e-5, abs=1e-9)
    assert_stationary(one, X, y, weights.astype(float))


@pytest.mark.parametrize("loss", SOME_LOSSES[::2], ids=str)
@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_sparse_is_dense(loss, solver):
    rng = np.random.default_rng(2)
    X = np.where(rng.random((2000, 6)) < 0.2, rng.normal(size=(2000, 6)) + 1, 0.0)
    y = rng.random(2000) < expit(X[:, 0] - X[:, 1] - 1.5)
    dense = LinearClassifier(loss, solver=solver).fit(X, y)
    thin = LinearClassifier(loss, solver=solver).fit(sparse.csr_array(X), y)
    assert thin.coef_ == pytest.approx(dense.coef_, abs=1e-6)
    assert thin.predict_proba(sparse.csc_matrix(X)) == pytest.approx(dense.predict_proba(X), abs=1e-6)
    assert_stationary(thin, X, y)


def test_sparse_classes():
    X, y = class_data(1000)
    X[np.abs(X) < 0.05] = 0
    dense = LinearClassifier().fit(X, y)
    assert LinearClassifier().fit(sparse.coo_array(X), y).coef_ == pytest.approx(dense.coef_, abs=1e-5)


@pytest.mark.parametrize("loss", SOME_LOSSES[::2], ids=str)
def test_float32_is_kept_and_exact(loss):
    """Rows stay in float32, and the minimum is that of float64 rows."""
    X, y = binary_data(30_000)
    X = X.astype(np.float32)
    model = LinearClassifier(loss).fit(X, y)
    assert model.decision_function(X).dtype == np.float32
    assert model.predict_proba(X).dtype == np.float32
    assert model.predict_log_odds(X).dtype == np.float32
    assert_stationary(model, X, y)


def test_columns_far_from_zero_in_float32():
    rng = np.random.default_rng(0)
    X = np.column_stack([1e6 + 100 * rng.normal(size=30_000), 1e-9 * rng.normal(size=30_000)]).astype(
        np.float32
    )
    y = rng.random(30_000) < expit((X[:, 0].astype(float) - 1e6) / 100 - 3)
    model = LinearClassifier("tbl").fit(X, y)
    assert_stationary(model, X, y)


@pytest.mark.parametrize("loss", ["crossentropy", "tbl", "focal", "tbl(alpha=0.5,C=1.0)", "poly"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_pilot_does_not_change_the_minimum(loss, kind):
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(150_000, 5)) * [1, 2, 3, 4, 5]).astype(kind)
    y = rng.random(len(X)) < expit(X[:, 0] - 0.2 * X[:, 4] - 5.5)
    weights = rng.random(len(X)) + 0.5
    model = LinearClassifier(loss).fit(X, y, sample_weight=weights)
    assert_stationary(model, X, y, weights)
    other = LinearClassifier(loss, solver="lbfgs").fit(X, y, sample_weight=weights)  # has no pilot
    assert model.coef_ == pytest.approx(other.coef_, rel=1e-4, abs=1e-5)


def test_wide_data_use_lbfgs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 900))
    y = rng.random(400) < expit(2 * X[:, 0])
    model = LinearClassifier("tbl", l2=0.01).fit(X, y)
    assert_stationary(model, X, y, l2=0.01)


NON_CONVEX = [loss for loss in SOME_LOSSES if not loss.is_convex]


@pytest.mark.parametrize("loss", NON_CONVEX, ids=str)
@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_losses_that_are_not_convex_do_not_diverge(loss: Loss, solver):
    """With gross outliers on the wrong side, and a strong signal: still a minimum below the constant's."""
    assert len(NON_CONVEX) >= 4
    rng = np.random.default_rng(0)
    X = rng.standard_t(2, size=(3000, 3))
    y = rng.random(3000) < expit(3 * X[:, 0] - 4)
    X[:5], y[:5] = 30.0, [1, 0, 1, 0, 0]
    model = LinearClassifier(loss, solver=solver).fit(X, y)
    constant = LinearClassifier(loss).fit(np.ones_like(X), y)
    assert model.converged_
    assert np.abs(model.coef_).max() < 1e3
    assert model.objective_ < constant.objective_
    assert_stationary(model, X, y)


def test_separable_data_without_a_penalty_are_named():
    X = np.linspace(-1, 1, 50)[:, None]
    with pytest.warns(NotConvergedWarning, match="separates the classes.*l2 > 0"):
        model = LinearClassifier("crossentropy", l2=0.0).fit(X, X[:, 0] > 0)
    assert not model.converged_
    assert np.isfinite(model.coef_).all()
    assert LinearClassifier("crossentropy", l2=1e-6).fit(X, X[:, 0] > 0).converged_


def test_running_out_of_steps_is_named():
    X, y = binary_data()
    with pytest.warns(NotConvergedWarning, match="max_iter=1"):
        model = LinearClassifier("crossentropy", max_iter=1).fit(X, y)
    assert not model.converged_
    assert model.n_iter_ == 1


def test_warm_start_needs_fewer_steps():
    X, y = binary_data()
    model = LinearClassifier("tbl", warm_start=True).fit(X, y)
    cold = model.n_iter_
    again = model.fit(X, y)
    assert again.n_iter_ == 0 < cold
    model.set_params(l2=1.2e-4).fit(X, y)
    assert 0 < model.n_iter_ < cold
    assert_stationary(model, X, y, l2=1.2e-4)


def test_the_gradient_that_is_reported_is_of_float64():
    """From a start at the minimum the first look is in float32, whose rounding is above what is left."""
    X, y = binary_data(30_000, shift=0.0)
    X = X.astype(np.float32)
    model = LinearClassifier("crossentropy", warm_start=True, tol=1e-6).fit(X, y)
    model.set_params(tol=1e-11).fit(X, y)
    model.set_params(tol=1e-5).fit(X, y)
    assert model.n_iter_ == 0
    by_hand = np.linalg.norm(gradient_by_hand(model, X, y, None, model.l2_)[0])
    assert by_hand < 1e-11
    assert model.gradient_norm_ < 1e-11


def test_warm_start_refuses_other_features():
    X, y = binary_data()
    model = LinearClassifier(warm_start=True).fit(X, y)
    with pytest.raises(ValueError, match="last fit had 4 features"):
        model.fit(X[:, :2], y)


def test_class_weights_move_decisions_and_not_probabilities():
    X, y = binary_data(20_000)
    plain = LinearClassifier("crossentropy").fit(X, y)
    for weights in ("balanced", {0: 1.0, 1: 8.0}):
        model = LinearClassifier("crossentropy", class_weight=weights).fit(X, y)
        assert model.predict(X).mean() > 2 * plain.predict(X).mean()
        assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=0.05)
        assert np.abs(model.predict_proba(X) - plain.predict_proba(X)).max() < 0.05


def test_class_weights_are_sample_weights():
    X, y = binary_data()
    one = LinearClassifier("focal", class_weight={1: 5.0}).fit(X, y)
    other = LinearClassifier("focal").fit(X, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    # The same risk but for its scale, and standardised by other weights: compare without a penalty.
    one, other = (m.set_params(l2=0.0) for m in (one, other))
    one.fit(X, y)
    other.fit(X, y, sample_weight=np.where(y == 1, 5.0, 1.0))
    assert one.coef_ == pytest.approx(other.coef_, rel=1e-5)


def test_class_weights_of_many_classes_stay_calibrated():
    X, y = class_data(6000)
    plain = LinearClassifier("crossentropy").fit(X, y)
    model = LinearClassifier("crossentropy", class_weight="balanced").fit(X, y)
    assert np.abs(model.predict_proba(X) - plain.predict_proba(X)).max() < 0.12
    assert model.predict_proba(X).mean(axis=0) == pytest.approx(np.bincount(y) / len(y), abs=0.03)
    z = model.decision_function(X)
    assert (model.predict(X) == z.argmax(axis=1)).all()
    # The raw logits are those of balanced classes.
    seen = np.average(softmax(z, axis=1), axis=0, weights=1 / np.bincount(y)[y])
    assert seen == pytest.approx(np.full(4, 0.25), abs=1e-5)


@pytest.mark.parametrize("mean", [1e3, 9e5])
def test_sparse_columns_far_from_zero(mean):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2)) * [1.0, 3.0]
    y = rng.random(20_000) < expit(2 * X[:, 0] - 1)
    weights = rng.integers(1, 3, 20_000).astype(float)
    far = X + [mean, 0.0]
    dense = LinearClassifier("crossentropy").fit(far - [mean, 0.0], y, weights)
    model = LinearClassifier("crossentropy").fit(sparse.csr_array(far), y, weights)
    assert model.converged_
    assert model.coef_ == pytest.approx(dense.coef_, rel=1e-8)


@pytest.mark.parametrize("mean", [1e7, 1e8, 1e12])
def test_sparse_columns_too_far_from_zero_are_named(mean):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    y = rng.random(20_000) < expit(2 * X[:, 1] - 1)
    far = sparse.csr_array(X + [0.0, mean])
    with pytest.raises(ValueError, match=r"column 1 of the sparse X.*subtract the mean.*dense"):
        LinearClassifier().fit(far, y)


def test_sparse_variance_with_zeros_and_constants():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 5)) * (rng.random((500, 5)) < 0.3)
    X[:, 1], X[:, 2], X[:, 3] = 0.0, 1e8 / 3, np.where(np.arange(500) < 10, 5.0, 7.0)
    weights = rng.random(500)
    weights[:10] = 0.0  # among the rows that count the column of index 3 is constant
    design = make_design(sparse.csr_array(X), weights, True)
    centred = make_design(X, weights, True)
    assert design.columns.inverse_unit == pytest.approx(centred.columns.inverse_unit, rel=1e-12)
    assert (design.columns.inverse_unit == 0).tolist() == [False, True, True, True, False]


def test_a_failed_fit_leaves_the_model_as_it_was():
    X, y = binary_data()
    model = LinearClassifier(warm_start=True).fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match="last fit had 4 features"):
        model.fit(X[:, :2], y)
    assert (model.predict_proba(X) == before).all()
    model.set_params(warm_start=False)
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X[:, :3], np.zeros(len(y)))
    assert (model.predict_proba(X) == before).all()


@pytest.mark.parametrize("l1", [0.0, 1e-4])
def test_a_start_where_the_risk_overflows_is_left_for_the_constant(l1):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 3))
    y = (generator.random(400) < 1 / (1 + np.exp(2 - X[:, 0]))).astype(int)
    model = LinearClassifier(loss="alpha(alpha=0.5)", l2=1e-3, l1=l1, warm_start=True).fit(X, y)
    fresh = LinearClassifier(loss="alpha(alpha=0.5)", l2=1e-3, l1=l1).fit(1e4 * X, y)
    # With the old coefficients the scores of the new rows are in the thousands: e^-m overflows.
    assert np.abs(model.decision_function(1e4 * X)).max() > 1000
    model.fit(1e4 * X, y)
    np.testing.assert_allclose(model.coef_, fresh.coef_, rtol=1e-5, atol=1e-10)
