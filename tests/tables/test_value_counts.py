"""How often values occur in the training rows, as features: the same in every type, batch and row."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from raresight.tables.schema import Schema
from raresight.tables.splits import read_data
from raresight.tables.value_counts import MOST_COUNTED

ROWS = 2000


def frame(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "shop": [f"shop {i}" for i in random.zipf(1.3, rows) % 500],
            "cents": random.integers(0, 400, rows) / 100,
            "card": [f"{9_000_000_000_000_000_000 + i}" for i in random.integers(0, 300, rows)],
            "account": random.integers(0, 200, rows) + 4_000_000_000_000_000,
            "noise": random.normal(size=rows),
            "few": random.integers(0, 9, rows),
            "letter": random.choice(list("abc"), rows),
            "y": random.random(rows) < 0.1,
        }
    )


def table(data: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(data, preserve_index=False)


def read(source, test=None, **options):
    return read_data(source, test, target="y", fpr=0.01, max_fpr=0.1, **options)


def loads(schema: Schema) -> Schema:
    return Schema.from_dict(json.loads(json.dumps(schema.to_dict())), schema.arrays())


DATA = frame()
READ = read(table(DATA))
COUNTED = READ.with_counts()
NAMES = ("count of shop", "count of cents", "count of card", "count of account")


def expected(name: str, train: pd.DataFrame, rows: pd.DataFrame, *, in_training: bool) -> np.ndarray:
    counts = train[name].value_counts()
    return np.log1p(counts.reindex(rows[name]).fillna(0).to_numpy() - in_training)


def test_the_search_sees_no_counts_unless_it_asks():
    assert READ.schema.counts == ()
    assert READ.X.shape[1] == READ.test.X.shape[1] == len(READ.schema.feature_names)
    assert sorted(COUNTED.schema.count_names) == sorted(NAMES)
    assert COUNTED.schema.feature_names == READ.schema.feature_names + COUNTED.schema.count_names
    assert COUNTED.schema.categorical == READ.schema.categorical
    np.testing.assert_array_equal(COUNTED.X[:, : READ.X.shape[1]], READ.X)


@pytest.mark.parametrize("apart", [False, True])
def test_a_training_row_is_left_out_of_its_own_count(apart):
    fresh = frame(600, seed=1)
    data = (read(table(DATA), table(fresh)) if apart else READ).with_counts()
    train = DATA if apart else DATA.iloc[data.numbers - 1]
    held = fresh if apart else DATA.drop(index=data.numbers - 1)
    for name in ("shop", "cents", "card", "account"):
        place = data.schema.feature_names.index(f"count of {name}")
        wanted = expected(name, train, train, in_training=True)
        np.testing.assert_allclose(data.X[:, place], wanted, rtol=1e-6)
        wanted = expected(name, train, held, in_training=False)
        np.testing.assert_allclose(data.test.X[:, place], wanted, rtol=1e-6)
        assert (wanted == 0).any() or name != "shop"


def test_a_later_table_is_coded_as_the_held_out_rows():
    held = table(DATA.drop(index=READ.numbers - 1))
    again = loads(COUNTED.schema)
    assert again == COUNTED.schema
    np.testing.assert_array_equal(again.matrix(held), COUNTED.test.X)
    parts = [again.matrix(held.slice(start, 7), first_row=start) for start in range(0, len(held), 7)]
    np.testing.assert_array_equal(np.concatenate(parts), COUNTED.test.X)


@pytest.mark.parametrize(
    "kinds",
    [
        {"shop": pa.dictionary(pa.int32(), pa.string()), "cents": pa.string(), "few": pa.float32()},
        {"shop": pa.large_string(), "cents": pa.float32(), "card": pa.uint64(), "account": pa.string()},
        {"shop": pa.string_view(), "account": pa.decimal128(20, 0)},
    ],
)
def test_the_same_value_in_another_type_has_the_same_count(kinds):
    schema = COUNTED.schema
    rows = table(DATA.head(300))
    other = pa.table({name: rows[name].cast(kinds.get(name, rows[name].type)) for name in rows.schema.names})
    counts = slice(len(READ.schema.feature_names), None)
    np.testing.assert_array_equal(schema.matrix(other)[:, counts], schema.matrix(rows)[:, counts])


def test_decimals_count_as_floats():
    exact = [Decimal(f"{value:.2f}") for value in DATA["cents"]]
    decimals = table(DATA).set_column(1, "cents", pa.array(exact, pa.decimal128(9, 2)))
    counts = slice(len(READ.schema.feature_names), None)
    coded = [COUNTED.schema.matrix(rows)[:, counts] for rows in (decimals, table(DATA))]
    np.testing.assert_array_equal(*coded)


def test_unknown_values_count_as_none_and_missing_ones_are_missing():
    rows = pa.table(
        {
            "shop": ["elsewhere", None, ""],
            "cents": [99.99, None, float("inf")],
            "card": ["1", None, None],
            "account": ["1", None, "nan"],
            "noise": [0.0] * 3,
            "few": [1] * 3,
            "letter": ["a"] * 3,
        }
    )
    counts = COUNTED.schema.matrix(rows)[:, len(READ.schema.feature_names) :]
    np.testing.assert_array_equal(counts[0], 0)
    assert np.isnan(counts[1:]).all()


def test_long_numbers_that_are_no_feature_are_counted_as_text(monkeypatch):
    monkeypatch.setattr("raresight.tables.summaries.MOST_NUMBERS", 100)
    data = read(table(DATA))
    assert "card" not in data.schema.feature_names
    counted = data.with_counts()
    assert "count of card" in counted.schema.count_names
    assert "card" in counted.schema.columns_read
    place = counted.schema.feature_names.index("count of card")
    train = DATA.iloc[data.numbers - 1]
    np.testing.assert_allclose(
        counted.X[:, place], expected("card", train, train, in_training=True), rtol=1e-6
    )
    with pytest.raises(ValueError, match="lacks the column 'card'"):
        loads(counted.schema).matrix(table(DATA.drop(columns="card")))
    data.schema.matrix(table(DATA.drop(columns="card")))


def test_the_group_and_the_time_are_not_counted():
    by_group = read(table(DATA), group="shop").with_counts()
    assert "count of shop" not in by_group.schema.count_names
    by_time = read(table(DATA), time="cents").with_counts()
    assert "count of cents" not in by_time.schema.count_names


def test_the_widest_columns_are_counted():
    random = np.random.default_rng(0)
    many = {f"c{i}": random.integers(0, 25 + i, ROWS) for i in range(MOST_COUNTED + 5)}
    data = read(table(pd.DataFrame({**many, "y": DATA["y"]})))
    assert {one.column for one in data.counts.counts} == {f"c{i}" for i in range(5, MOST_COUNTED + 5)}


def test_names_of_counts_differ_from_those_of_columns():
    data = read(table(DATA.assign(**{"count of shop": DATA["noise"]}))).with_counts()
    assert len(set(data.schema.feature_names)) == len(data.schema.feature_names)


def test_without_a_column_to_count_nothing_changes():
    data = read(table(DATA[["noise", "few", "letter", "y"]]))
    assert data.with_counts() is data


def test_counts_of_values_are_refused_if_damaged():
    values, arrays = COUNTED.schema.to_dict(), COUNTED.schema.arrays()
    with pytest.raises(ValueError, match="keys_0"):
        Schema.from_dict(values, {**arrays, "keys_0": arrays["keys_0"][1:]})
    with pytest.raises(ValueError, match="counts_1"):
        Schema.from_dict(values, {**arrays, "counts_1": arrays["counts_1"].astype(float)})
    one = {"column": "nowhere", "feature": "n", "text": False, "values": 0}
    with pytest.raises(ValueError, match="nowhere"):
        Schema.from_dict({**values, "counts": [one]}, arrays)


def test_a_column_that_gives_the_target_away_is_not_counted():
    random = np.random.default_rng(0)
    leak = np.where(DATA["y"], "bad ", "good ") + random.integers(0, 20, ROWS).astype(str).astype(object)
    data = read(table(DATA.assign(leak=leak)))
    assert "leak" not in data.schema.feature_names
    assert "count of leak" not in data.with_counts().schema.count_names
    kept = read(table(DATA.assign(leak=leak)), keep=["leak"])
    assert "count of leak" in kept.with_counts().schema.count_names
