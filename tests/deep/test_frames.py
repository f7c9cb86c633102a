"""Tables of other libraries than NumPy and pandas."""

from __future__ import annotations

import numpy as np
import polars
import pyarrow as pa
import pytest

from raresight.deep import DeepClassifier

OPTIONS = {"net": "mlp", "width": 8, "max_epochs": 2, "early_stopping": False, "random_state": 0, "n_jobs": 1}


def columns_of(count=200):
    random = np.random.default_rng(0)
    amount = random.lognormal(size=count)
    country = random.choice(["IT", "DE", "FR"], count).tolist()
    return {"amount": amount, "country": country}, random.random(count) < 0.2 + 0.3 * (amount > 1)


def test_arrow_tables_are_taken_with_names_and_categories():
    columns, y = columns_of()
    table = pa.table(columns)
    coded = table.set_column(1, "country", table["country"].dictionary_encode())
    model = DeepClassifier(**OPTIONS).fit(coded, y)
    assert model.feature_names_in_.tolist() == ["amount", "country"]
    same = DeepClassifier(**OPTIONS).fit(coded.to_pandas(), y)
    assert np.array_equal(model.predict_proba(coded), same.predict_proba(coded.to_pandas()))
    named = DeepClassifier(**OPTIONS, categorical_features=["country"]).fit(table, y)
    same = DeepClassifier(**OPTIONS, categorical_features=["country"]).fit(table.to_pandas(), y)
    assert np.array_equal(named.predict_proba(table), same.predict_proba(table.to_pandas()))


def test_truth_values_and_nulls_of_arrow_are_numbers():
    columns, y = columns_of()
    flags = [True, None, False, True] * 50
    table = pa.table({"amount": columns["amount"], "flag": pa.array(flags), "empty": pa.array([None] * 200)})
    frame = polars.from_arrow(table)
    found = [DeepClassifier(**OPTIONS).fit(X, y).predict_proba(X) for X in (table, frame)]
    assert np.array_equal(*found)
    batch = table.to_batches()[0]
    assert np.array_equal(DeepClassifier(**OPTIONS).fit(batch, y).predict_proba(batch), found[0])


def test_a_lazy_frame_is_refused_in_words():
    columns, y = columns_of()
    with pytest.raises(TypeError, match=r"a polars LazyFrame, which holds no rows yet: pass X\.collect\(\)"):
        DeepClassifier(**OPTIONS).fit(polars.LazyFrame(columns), y)
