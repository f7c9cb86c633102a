"""What is wrong with `eval_set` is said of it, not of the X, y and sample_weight of `fit`."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from deep.deep_tables import mixed_frame, ring_table
from raresight.deep import DeepClassifier, encoding

X, Y = ring_table(300)
SMALL = {"net": "mlp", "width": 4, "max_epochs": 1, "random_state": 0, "n_jobs": 1}


def refused(kind, said, **evaluation):
    with pytest.raises(kind, match=f"^{re.escape(said)}"):
        DeepClassifier(**SMALL).fit(X, Y, **evaluation)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (None, "This DeepClassifier estimator requires y"),
        (np.where(np.arange(300) == 3, np.nan, Y), "y has a missing label: y[3] is nan"),
        (np.where(Y == 1, np.inf, 0.0), "y has an infinite label"),
        (np.stack([Y, Y], axis=1), "y should be a 1d array"),
        (np.array(["a", 1] * 150, dtype=object), "y mixes text and other values"),
        (X[:, 0], "Unknown label type: continuous"),
    ],
)
def test_labels(labels, said):
    refused(ValueError, f"the labels of eval_set cannot be used: {said}", eval_set=(X, labels))


def test_as_many_labels_as_rows():
    refused(ValueError, "eval_set has 300 rows but 299 labels", eval_set=(X, Y[:-1]))
    refused(ValueError, "eval_set has 299 rows but 300 labels", eval_set=(sparse.csr_array(X[1:]), Y))


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (np.full(300, -1.0), "sample_weight must be finite and not negative, but row 0 holds -1"),
        (np.full(300, np.nan), "sample_weight must be finite and not negative, but row 0 holds nan"),
        (np.ones(5), "X has 300 rows, but sample_weight has 5"),
        (np.zeros(300), "sample_weight must not be all zero"),
    ],
)
def test_weights(weights, said):
    refused(
        ValueError,
        f"eval_sample_weight cannot be used: {said}",
        eval_set=(X, Y),
        eval_sample_weight=weights,
    )


def test_rows(monkeypatch):
    polars = pytest.importorskip("polars")
    lazy = polars.DataFrame({"a": X[:, 0]}).lazy()
    refused(TypeError, "the rows of eval_set cannot be used: X is a polars LazyFrame", eval_set=(lazy, Y))
    monkeypatch.setattr(encoding, "_MOST_NUMBERS", X.size)
    many = sparse.csr_array(np.repeat(X, 2, axis=0))
    refused(ValueError, "the rows of eval_set cannot be used: X is sparse", eval_set=(many, np.repeat(Y, 2)))


def test_columns_of_a_frame():
    frame, y = mixed_frame(300)
    number = frame.select_dtypes("number").columns[0]
    text = frame.assign(**{number: pd.Categorical(["low", "high"] * 150)})
    with pytest.raises(
        ValueError, match=f"^the rows of eval_set cannot be used: column '{number}' held numbers"
    ):
        DeepClassifier(**SMALL).fit(frame, y, eval_set=(text, y))
    category = frame.select_dtypes("category").columns[0]
    with pytest.warns(UserWarning, match=f"column '{category}' holds in 300 of 300 rows of eval_set"):
        DeepClassifier(**SMALL).fit(frame, y, eval_set=(frame.assign(**{category: "new"}), y))


def test_a_column_of_labels_counts_as_a_vector():
    with pytest.warns(DataConversionWarning, match="A column-vector y of eval_set was passed"):
        model = DeepClassifier(**SMALL).fit(X, Y, eval_set=(X, Y[:, None]))
    same = DeepClassifier(**SMALL).fit(X, Y, eval_set=(X, Y))
    assert model.validation_scores_ == same.validation_scores_
    with pytest.warns(DataConversionWarning, match="A column-vector y was passed"):
        DeepClassifier(**SMALL).fit(X, Y[:, None])
