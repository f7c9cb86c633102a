"""Tables that are in memory already."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from raresight.tables import fingerprint, learn_schema, read_table

DATA = {
    "number": [1.5, None, 3.0, 4.0],
    "whole": [1, 2, 3, 5],
    "text": ["a", None, "b", "a"],
    "truth": [True, False, True, True],
    "when": [datetime.datetime(2024, 1, day, 12) for day in (1, 2, 3, 5)],
    "y": [0, 1, 0, 0],
}


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(DATA),
        pl.DataFrame(DATA),
        pl.DataFrame(DATA).lazy(),
        pa.table(DATA),
        pa.Table.from_pydict(DATA).to_batches()[0],
        pa.table(DATA).to_reader(),
    ],
    ids=["pandas", "polars", "polars lazy", "table", "batch", "reader"],
)
def test_every_frame_gives_the_same_matrix(frame):
    table = read_table(frame)
    schema = learn_schema(table, "y")
    expected = learn_schema(pa.table(DATA), "y")
    assert schema == expected
    np.testing.assert_array_equal(schema.matrix(table), expected.matrix(pa.table(DATA)))


def test_categories_of_pandas_and_polars():
    text = ["b", "a", "b", None]
    for frame in (
        pd.DataFrame({"c": pd.Categorical(text), "y": [0, 1, 0, 1]}),
        pl.DataFrame({"c": pl.Series(text, dtype=pl.Categorical), "y": [0, 1, 0, 1]}),
        pl.DataFrame({"c": pl.Series(text, dtype=pl.Enum(["b", "a", "z"])), "y": [0, 1, 0, 1]}),
    ):
        table = read_table(frame)
        schema = learn_schema(table, "y")
        assert schema.columns[0].categories == ("a", "b")
        np.testing.assert_array_equal(schema.matrix(table)[:, 0], [1, 0, 1, np.nan])


def test_text_views_are_text():
    view = pa.string_view()
    table = pa.table(
        {"c": pa.array(["p", "q"], view), "n": pa.array(["1", "2"], view), "y": pa.array(["n", "y"], view)}
    )
    schema = learn_schema(table, "y")
    np.testing.assert_array_equal(schema.matrix(table), [[0, 1], [1, 2]])
    np.testing.assert_array_equal(schema.labels(table), [0, 1])


def test_dictionaries_that_differ_from_chunk_to_chunk():
    chunks = [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", "b"]).dictionary_encode()]
    table = pa.table({"c": pa.chunked_array(chunks), "y": [0, 1, 0, 1]})
    np.testing.assert_array_equal(learn_schema(table, "y").matrix(table)[:, 0], [1, 0, 2, 1])


def test_mixed_values_become_text_and_whole_numbers_one_level():
    frame = pd.DataFrame(
        {"m": np.array([1, "x", None, 2.5, 1.0, float("nan")], dtype=object), "y": [0, 1] * 3}
    )
    table = read_table(frame)
    assert table["m"].to_pylist() == ["1", "x", None, "2.5", "1", None]


def test_numbers_as_names_and_a_strange_index():
    frame = pd.DataFrame({0: [1, 2], 1: [3, 4]}, index=["p", "q"])
    assert read_table(frame).to_pydict() == {"0": [1, 2], "1": [3, 4]}


def test_columns_can_be_chosen():
    assert read_table(pd.DataFrame(DATA), columns=["y", "text"]).column_names == ["y", "text"]


def test_refusals():
    with pytest.raises(ValueError, match="the frame has the column name 'a' more than once"):
        read_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(ValueError, match="names of several levels"):
        read_table(pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])))
    for thing in (np.zeros((3, 2)), {"a": [1]}, [1, 2], 5, None):
        with pytest.raises(
            TypeError, match="a table is a path, a pandas or polars DataFrame or an Arrow table"
        ):
            read_table(thing)


def test_fingerprint_sees_names_types_values_and_order_only():
    table = pa.table({"a": [1, 2, None, 4], "b": ["x", None, "", "yz"]})
    print_ = fingerprint(table)
    for cut in range(5):
        assert fingerprint(pa.concat_tables([table.slice(0, cut), table.slice(cut)])) == print_
    assert fingerprint(table.set_column(1, "b", table["b"].dictionary_encode())) == print_
    for type_ in (pa.large_string(), pa.string_view()):
        assert fingerprint(table.set_column(1, "b", table["b"].cast(type_))) == print_
    others = [
        table.rename_columns(["a", "c"]),
        table.select(["b", "a"]),
        table.slice(0, 3),
        table.take([1, 0, 2, 3]),
        table.set_column(0, "a", table["a"].cast(pa.int32())),
        table.set_column(0, "a", table["a"].fill_null(0)),
        table.set_column(1, "b", pa.chunked_array([["x", "", None, "yz"]])),
        table.set_column(1, "b", pa.chunked_array([["x", None, "y", "z"]])),
    ]
    prints = [fingerprint(other) for other in others]
    assert len({print_, *prints}) == len(others) + 1


def test_fingerprint_of_every_type():
    moment = datetime.datetime(2024, 1, 1)
    table = pa.table(
        {
            "bool": [True, None],
            "half": pa.array([1.0, None], pa.float16()),
            "date": [moment.date(), None],
            "time": [moment.time(), None],
            "stamp": [moment, None],
            "decimal": pa.array([None, 1], pa.decimal128(5, 2)),
            "list": [[1, 2], None],
            "bytes": [b"x", None],
        }
    )
    assert fingerprint(table) == fingerprint(pa.concat_tables([table.slice(0, 1), table.slice(1, 1)]))
    prints = {fingerprint(table.select([name]).rename_columns(["a"])) for name in table.column_names}
    assert len(prints) == table.num_columns
