"""What is seen of a table before anything is learned from it."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from raresight.data import learn_schema, look
from raresight.data.looks import auc_alone, count_repeated

RNG = np.random.default_rng(0)
N = 4000
Y = (np.arange(N) % 40 == 0).astype(int)


def profile_of(columns, y=Y, **options):
    table = pa.table({**columns, "y": y})
    schema = learn_schema(table, "y")
    options = {"fpr": 0.01, "max_fpr": 0.1, "test_rows": None, **options}
    return look(table, schema, schema.matrix(table), schema.labels(table), **options)


def noise(rows=N):
    return np.random.default_rng(1).standard_normal(rows)


def test_a_sound_table_has_no_warning():
    profile = profile_of({"a": noise(), "c": RNG.choice(["p", "q"], N)}, test_rows=2000, fpr=0.01)
    assert profile.warnings == ()
    assert (profile.rows, profile.positives, profile.duplicates) == (N, 100, 0)
    assert profile.prior == 0.025
    assert profile.rho == pytest.approx(0.025 / 0.975)
    assert [column.kind for column in profile.columns] == ["numeric", "categorical"]
    assert [column.distinct for column in profile.columns] == [N, 2]


def test_columns_tell_missing_distinct_and_auc():
    x = np.where(np.arange(N) % 4 == 0, np.nan, np.arange(N) % 10)
    text = np.where(np.arange(N) % 5 == 0, None, np.array([f"word {row}" for row in range(N)], dtype=object))
    text[np.arange(N) % 5 == 1] = "common"
    profile = profile_of({"a": noise(), "x": x, "text": pa.array(text.tolist()), "b": noise() > 0})
    seen = {column.name: column for column in profile.columns}
    assert seen["x"].missing == 0.25
    assert seen["x"].distinct == 10
    assert seen["a"].auc == pytest.approx(abs(roc_auc_score(Y, noise()) - 0.5) + 0.5)
    assert seen["b"].distinct == 2
    assert seen["text"].missing == 0.2, "a rare level is not missing"


def test_a_column_that_gives_the_target_away():
    columns = {
        "a": noise(),
        "copy": 1 - Y,
        "word": np.where(Y == 1, "closed", RNG.choice(["open", "new"], N)),
        "present": pa.array([1.0 if label else None for label in Y]),
        "nearly": Y + noise() * 0.2,
        "when": np.where(Y == 1, "2024-01-02", "2024-01-01"),
    }
    profile = profile_of(columns)
    leaks = [warning for warning in profile.warnings if warning.startswith("leak?")]
    assert [name for name in columns if any(f"{name!r}" in leak for leak in leaks)] == [
        "copy",
        "word",
        "present",
        "nearly",
        "when",
    ]
    assert "AUC of 1;" in leaks[0]
    assert not any("'a'" in leak for leak in leaks)


@pytest.mark.parametrize(
    ("test_rows", "fpr", "words"),
    [
        (400, 0.001, "not even one false alarm is expected at the false-positive rate 0.001"),
        (2000, 0.001, "about 1.9 false alarms are expected at the false-positive rate 0.001"),
        (np.arange(1000), 0.005, "975 negatives, so about 4.9 false alarms"),
        (np.flatnonzero(Y == 0), 0.01, "the test rows have only 0 positives"),
        (200, 0.1, "the test rows have only 5 positives"),
    ],
)
def test_test_rows_that_cannot_tell(test_rows, fpr, words):
    warnings = profile_of({"a": noise()}, test_rows=test_rows, fpr=fpr).warnings
    assert any(words in warning for warning in warnings), warnings


def test_test_rows_that_cannot_tell_candidates_apart():
    assert "too few to tell one from another" in " ".join(
        profile_of({"a": noise()}, test_rows=200, fpr=0.0001, max_fpr=0.001).warnings
    )


@pytest.mark.parametrize(
    ("columns", "y", "words"),
    [
        ({"a": noise(150)}, np.arange(150) % 10 == 0, "only 150 rows"),
        ({"a": noise(1000)}, np.arange(1000) % 50 == 0, "only 20 positives"),
        ({"a": noise()}, np.arange(N) % 2 == 0, "50% of the rows are positive, which is not rare"),
        ({"a": noise(), "e": [1.0] * 100 + [None] * (N - 100)}, Y, "missing in 'e' (98%)"),
        ({"a": np.arange(N) % 80 * 0.5}, Y, "3920 of 4000 rows repeat another one"),
        ({"a": noise()}, np.where(Y == 1, "left", "right"), "'left' was taken as the positive value"),
    ],
)
def test_warnings(columns, y, words):
    warnings = profile_of(columns, y).warnings
    assert any(words in warning for warning in warnings), warnings


@pytest.mark.parametrize(
    ("positives", "words"),
    [
        (1, "on 1 positive;"),
        (4, "on 4 positives;"),
        (96, "on 4 negatives;"),
    ],
)
def test_too_few_of_a_class_are_refused(positives, words):
    with pytest.raises(ValueError, match="a model cannot be chosen and judged") as caught:
        profile_of({"a": noise(100)}, np.arange(100) < positives)
    assert words in str(caught.value)


def test_a_profile_is_json():
    profile = profile_of({"a": noise(), "constant": [1] * N})
    again = json.loads(json.dumps(profile.to_dict()))
    assert again["columns"][0]["name"] == "a"
    assert again["dropped"] == [{"name": "constant", "reason": "constant: always 1"}]
    assert again["positives"] == 100


small = st.sampled_from([0.0, -0.0, 1.0, 2.5, float("nan")])


@given(rows=st.lists(st.tuples(small, small, st.integers(0, 1)), min_size=1, max_size=40), wide=st.booleans())
def test_repeated_rows_are_counted_exactly(rows, wide):
    X = np.array([row[:2] for row in rows], dtype=np.float64 if wide else np.float32)
    y = np.array([row[2] for row in rows])
    distinct = {tuple("nan" if value != value else value + 0.0 for value in row) for row in rows}
    assert count_repeated(X, y) == len(rows) - len(distinct)


@given(
    values=st.lists(st.tuples(st.integers(0, 5).map(float), st.integers(0, 1)), min_size=2, max_size=60),
    missing=st.booleans(),
)
def test_auc_alone_is_the_auc(values, missing):
    column, y = np.array([v for v, _ in values]), np.array([label for _, label in values])
    if y.min() == y.max():
        return
    if missing:
        column[column == 3] = np.nan
    candidates = [np.where(np.isnan(column), end, column) for end in (-1, 10)]
    aucs = [roc_auc_score(y, candidate) for candidate in candidates]
    assert auc_alone(column, y) == pytest.approx(max(abs(auc - 0.5) + 0.5 for auc in aucs))
    share = {value: y[np.nan_to_num(column, nan=9) == value].mean() for value in np.nan_to_num(column, nan=9)}
    by_share = [share[value] for value in np.nan_to_num(column, nan=9)]
    assert auc_alone(column, y, categorical=True) == pytest.approx(roc_auc_score(y, by_share))


def test_a_look_is_quick():
    rng = np.random.default_rng(0)
    y = np.arange(280_000) % 500 == 0
    table = pa.table({**{f"v{i}": rng.standard_normal(280_000, dtype=np.float32) for i in range(30)}, "y": y})
    schema = learn_schema(table, "y")
    X, labels = schema.matrix(table), schema.labels(table)
    start = time.process_time()
    look(table, schema, X, labels, fpr=0.001, max_fpr=0.01, test_rows=70_000)
    assert time.process_time() - start < 4
