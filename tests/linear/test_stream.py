"""One pass over a stream against the fit of all rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone

from raresight.linear import LinearClassifier
from raresight.metrics import partial_auc


def rare(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5)) * [1, 10, 1, 0.1, 1] + [0, 50, 0, 0, 1]
    return X, (rng.random(n) < expit(1.5 * X[:, 0] + 0.1 * (X[:, 1] - 50) - 7.5)).astype(int)


def stream(model, X, y, size, weights=None):
    for begin in range(0, len(y), size):
        rows = slice(begin, begin + size)
        model.partial_fit(X[rows], y[rows], [0, 1], None if weights is None else weights[rows])
    return model


@pytest.mark.parametrize("text", ["crossentropy", "tbl", "tbl(alpha=0.5,C=1.0)", "focal"])
def test_one_pass_ends_near_the_batch_fit(text):
    X, y = rare(200_000)
    fresh_X, fresh_y = rare(200_000, seed=1)
    batch = LinearClassifier(text).fit(X, y)
    online = stream(LinearClassifier(text), X, y, 2000)
    ours = partial_auc(fresh_y, online.decision_function(fresh_X), max_fpr=0.01)
    best = partial_auc(fresh_y, batch.decision_function(fresh_X), max_fpr=0.01)
    assert abs(ours - best) < 0.01
    unit = X.std(axis=0)
    # Within a fraction of the batch fit's own standard error, about 1/sqrt(positives) a coefficient.
    assert np.abs((online.coef_ - batch.coef_) * unit).max() < 1.5 / np.sqrt(y.sum())
    rate = online.predict_proba(fresh_X)[:, 1].mean()
    assert rate == pytest.approx(fresh_y.mean(), rel=0.15)


def test_larger_batches_end_nearer():
    X, y = rare(60_000)
    batch = LinearClassifier("tbl").fit(X, y)
    gaps = [
        np.linalg.norm((stream(LinearClassifier("tbl"), X, y, size).coef_ - batch.coef_) * X.std(axis=0))
        for size in (1000, 60_000)
    ]
    assert gaps[1] < 0.02
    assert gaps[1] < gaps[0]


def test_features_that_drift_are_standardised_by_all_that_was_seen():
    X, y = rare(40_000)
    X[:, 2] += np.linspace(-20, 20, 40_000)
    y = (np.random.default_rng(2).random(40_000) < expit(0.1 * X[:, 2] + X[:, 0] - 5)).astype(int)
    model = stream(LinearClassifier("tbl", l2=1e-3), X, y, 4000)
    moments = model._stream.moments
    assert moments.mean == pytest.approx(X.mean(axis=0), rel=1e-6, abs=1e-6)
    assert moments.squares / len(X) == pytest.approx(X.var(axis=0), rel=1e-6)
    batch = LinearClassifier("tbl", l2=1e-3).fit(X, y)
    assert model.coef_ * X.std(axis=0) == pytest.approx(batch.coef_ * X.std(axis=0), abs=0.1)


def test_first_batches_may_lack_a_class():
    X, y = rare(60_000)
    order = np.argsort(y[:10_000], kind="stable")  # the rare ones of the first part come last
    X[:10_000], y[:10_000] = X[:10_000][order], y[:10_000][order]
    model = LinearClassifier("tbl").partial_fit(X[:1000], y[:1000], classes=[0, 1])
    assert np.isfinite(model.coef_).all()
    assert model.predict_proba(X[:1000])[:, 1].mean() < 1e-2
    stream(model, X[1000:], y[1000:], 1000)
    batch = LinearClassifier("tbl").fit(X, y)
    assert partial_auc(y, model.decision_function(X)) == pytest.approx(
        partial_auc(y, batch.decision_function(X)), abs=0.01
    )


def test_a_feature_that_varies_late():
    X, y = rare(40_000)
    X[:20_000, 2] = 0.5
    X[20_000:, 2] += y[20_000:]
    model = stream(LinearClassifier("crossentropy"), X[:20_000], y[:20_000], 2000)
    assert model.coef_[0, 2] == 0
    stream(model, X[20_000:], y[20_000:], 2000)
    assert model.coef_[0, 2] > 0.1


def test_classes_weights_sparse_and_lasso():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 4))
    y = (X[:, :3] + rng.gumbel(size=(9000, 3))).argmax(axis=1)
    weights = rng.integers(0, 3, 9000).astype(float)
    batch = LinearClassifier("tbl", l1=1e-3).fit(X, y, sample_weight=weights)
    online = LinearClassifier("tbl", l1=1e-3)
    for rows in np.array_split(np.arange(9000), 5):
        online.partial_fit(sparse.csr_array(X[rows]), y[rows], None, weights[rows])
    assert online.predict_proba(X) == pytest.approx(batch.predict_proba(X), abs=0.01)
    assert not online.coef_[:, 3].any() or np.abs(online.coef_[:, 3]).max() < 0.05


def test_weights_are_repetitions():
    X, y = rare(3000)
    y[:30] = 1
    weights = np.random.default_rng(0).integers(1, 4, 3000)
    one = LinearClassifier("tbl").partial_fit(X, y, None, weights.astype(float))
    other = LinearClassifier("tbl").partial_fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    assert one.coef_ == pytest.approx(other.coef_, rel=1e-5)


def test_fit_begins_anew_and_so_does_a_stream_after_it():
    X, y = rare(20_000)
    model = LinearClassifier("tbl").partial_fit(X, y)
    model.fit(X[:, :3], y)
    assert model.coef_.shape == (1, 3)
    model.partial_fit(X, y)
    alone = clone(model).partial_fit(X, y)
    assert (model.coef_ == alone.coef_).all()


def test_bad_streams_are_answered():
    X, y = rare(1000)
    with pytest.raises(ValueError, match="pass all classes to the first"):
        LinearClassifier().partial_fit(X, np.zeros(1000))
    with pytest.raises(ValueError, match="balanced"):
        LinearClassifier(class_weight="balanced").partial_fit(X, y, [0, 1])
    with pytest.raises(ValueError, match="class_counts"):
        LinearClassifier("ldam").partial_fit(X, np.zeros(1000), [0, 1])
    model = LinearClassifier().partial_fit(X, y, [0, 1])
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X, y + 1)
    with pytest.raises(ValueError, match="classes changed"):
        model.partial_fit(X, y, [0, 1, 2])
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :2], y)
    with pytest.raises(ValueError, match="5000"):
        LinearClassifier().partial_fit(np.random.default_rng(0).normal(size=(10, 6000)), np.arange(10) % 2)


def test_the_objective_of_an_earlier_fit_goes():
    X, y = rare(20_000)
    model = LinearClassifier("tbl").fit(X, y)
    assert not hasattr(model.partial_fit(X, y), "objective_")


def level(model, X, y):
    return model.predict_proba(X)[:, 1].mean() / y.mean()


def test_few_positives_in_random_order_keep_the_level():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 5))
    y = (rng.random(100_000) < expit(1.5 * X[:, 0] - 10)).astype(int)
    assert 5 < y.sum() < 25
    for size in (10_000, 2000):
        assert level(stream(LinearClassifier("crossentropy"), X, y, size), X, y) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("n", [50_000, 400_000])
def test_a_stream_in_the_order_of_labels(n):
    """As documented: right where the common class comes first, too high where the positives do."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    y = (rng.random(n) < expit(X[:, 0] - 4)).astype(int)
    order = np.argsort(y, kind="stable")
    batch = LinearClassifier("crossentropy").fit(X, y)
    common_first = stream(LinearClassifier("crossentropy"), X[order], y[order], n // 50)
    assert level(common_first, X, y) == pytest.approx(1, abs=0.1)
    assert common_first.coef_ == pytest.approx(batch.coef_, abs=0.1)
    rare_first = stream(LinearClassifier("crossentropy"), X[order[::-1]], y[order[::-1]], n // 50)
    assert 0.5 < level(rare_first, X, y) < 2
    assert rare_first.decision_function(X[:1000]) == pytest.approx(batch.decision_function(X[:1000]), abs=1.5)


def test_waiting_rows_are_the_streams_own_and_dense_may_follow_sparse():
    X, y = rare(4000)
    y[:] = 0
    y[[5, 3005]] = 1
    one = LinearClassifier("crossentropy")
    for rows in np.array_split(np.arange(4000), 4):
        own = X[rows].copy()
        one.partial_fit(own, y[rows], [0, 1])
        own[:] = np.nan
    other = LinearClassifier("crossentropy")
    for i, rows in enumerate(np.array_split(np.arange(4000), 4)):
        part = sparse.csr_array(X[rows]) if i % 2 else X[rows]
        other.partial_fit(part, y[rows], [0, 1], np.ones(len(rows)) if i == 2 else None)
    assert one.coef_ == pytest.approx(other.coef_, rel=1e-5, abs=1e-8)
