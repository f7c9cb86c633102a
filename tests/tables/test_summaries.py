"""Summaries merge: parts of a table give the same schema as the whole, wherever it was cut."""

from __future__ import annotations

import datetime
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raresight.tables import learn_schema, summaries, summarize_parts
from raresight.tables.number_formats import NumberFormat, numbers_written
from raresight.tables.summaries import summarize, summarize_column
from raresight.tables.text_values import numbers_in_text

PLAIN = [
    "0",
    "1",
    "7",
    "12",
    "-3",
    "+4",
    "0.5",
    ".5",
    "2.",
    "1.234",
    "12.345",
    "1234",
    "1234.5",
    "1e5",
    " 8 ",
]
ODD = [
    "",
    "  ",
    "NA",
    "nan",
    "inf",
    "?",
    "x",
    "A",
    "true",
    "False",
    "01",
    "007",
    "00.5",
    "99999999999999999999",
]
DRESSED = ["1,5", "1,234", "1,234.5", "1.234,5", "$5", "€7", "12%", "(3)", "1,2,3"]
BIG = ["18446744073709551615", "18446744073709551614", "9223372036854775808", "-5", "5", "1e19", "007"]
NUMBER_DATES = ["20240531", "20240601", "20240701", "0", "00000000", "20240531.0", "20240532", "?"]
SHORT_DATES = ["31.05.24", "01.06.24", "5/31/24", "5/6/24", "01-Apr-2021", "2024/05/31", "2024-05-31 1:30 PM"]
DATES = ["2024-05-31", "2024-05-31 12:30", "31.05.2024", "05/31/2024", "31/05/2024", "05/06/2024"]

columns = st.one_of(
    st.lists(st.sampled_from(PLAIN), min_size=4, max_size=60),
    st.lists(st.sampled_from([*PLAIN, *ODD]), min_size=4, max_size=60),
    st.lists(st.sampled_from([*PLAIN, *DRESSED, None]), min_size=4, max_size=60),
    st.lists(st.sampled_from([*DATES, "", None]), min_size=4, max_size=60),
    st.lists(st.sampled_from([*PLAIN, *ODD, *DRESSED, *DATES, None]), min_size=4, max_size=60),
    st.lists(st.sampled_from([*SHORT_DATES, None]), min_size=4, max_size=60),
    st.lists(st.sampled_from(BIG), min_size=4, max_size=60),
    st.lists(st.sampled_from([*NUMBER_DATES, None]), min_size=4, max_size=60),
    st.lists(st.sampled_from([20240531, 20240601, 20240702, 0, 99999999, 20240532]), min_size=4, max_size=60),
    st.lists(st.sampled_from([2**64 - 1, 2**64 - 2, 7]).map(np.uint64), min_size=4, max_size=60),
    st.lists(st.one_of(st.integers(-(2**60), 2**60), st.none()), min_size=4, max_size=60),
    st.lists(st.one_of(st.floats(width=64), st.none()), min_size=4, max_size=60),
    st.lists(st.one_of(st.datetimes(datetime.datetime(1900, 1, 1)), st.none()), min_size=4, max_size=60),
)


def table_of(values):
    n = len(values)
    column = pa.array(values, from_pandas=True)
    other = pa.array([str(row % 3) for row in range(n)])
    return pa.table({"x": column, "user_id": column, "other": other, "y": np.arange(n) % 4 == 0})


@settings(max_examples=300, deadline=None)
@given(values=columns, cuts=st.lists(st.integers(0, 60), max_size=4), most=st.sampled_from([0, 3, 32_768]))
@example(values=["1.5"] * 4 + ["1.234,5"] * 4, cuts=[4], most=0)
@example(values=["7", "8", "9", "10", "01"], cuts=[4], most=1)
def test_a_schema_of_parts_is_that_of_the_whole(values, cuts, most):
    table = table_of(values)
    edges = sorted({0, len(values), *(min(cut, len(values)) for cut in cuts)})
    parts = [table.slice(start, stop - start) for start, stop in pairwise(edges)]
    default = summaries.MOST_NUMBERS
    summaries.MOST_NUMBERS = most
    try:
        whole = learn_schema(table, "y")
        assert learn_schema(summarize_parts(parts), "y") == whole
        merged = summarize_parts(parts[0])
        for part in parts[1:]:
            merged = merged.merge(summarize_parts(part))
        assert learn_schema(merged, "y") == whole
    finally:
        summaries.MOST_NUMBERS = default


def test_merging_is_associative():
    parts = [table_of(values) for values in (["1", "x", "2"], ["2", "3", None], ["1.5", "x", "x"])]
    one, two, three = (summarize_parts(part) for part in parts)
    left, right = one.merge(two).merge(three).column("x"), one.merge(two.merge(three)).column("x")
    assert left.texts.values.equals(right.texts.values)
    np.testing.assert_array_equal(left.texts.counts, right.texts.counts)
    assert (left.rows, left.missing, left.numbers.few) == (right.rows, right.missing, right.numbers.few)


number_texts = st.from_regex(r"\A[+-]?([0-9]{1,5}(\.[0-9]{0,4})?|\.[0-9]{1,4})([eE][+-]?[0-9])?\Z")


@given(st.lists(number_texts, min_size=2, max_size=40))
def test_numbers_written_alike_are_numbers_of_the_same_formats(texts):
    values = pa.array(texts)
    ways = summaries._ways_to_write(values, numbers_in_text(values).to_numpy())
    flags = [False, True]
    formats = [
        NumberFormat(comma, thousands, currency, percent, parentheses)
        for comma, thousands, currency, percent, parentheses in product(flags, flags, ["", "$"], flags, flags)
    ]
    fits = np.array([numbers_written(values, format).is_valid().to_pylist() for format in formats]).T
    for way in np.unique(ways):
        assert (fits[ways == way] == fits[ways == way][0]).all()


def test_a_long_column_of_numbers_has_a_small_summary():
    numbers = pa.array(np.random.default_rng(0).normal(size=300_000).round(6).astype(str))
    summary = summarize(pa.table({"x": numbers}).to_batches(max_chunksize=50_000)).column("x")
    assert len(summary.texts.values) == 0
    assert len(summary.texts.folded) < 30
    assert summary.numbers.count == sum(count for _, count in summary.texts.folded.values()) == 300_000


def test_float32_is_enough_unless_different_numbers_become_the_same():
    ids = 2**33 + 512.0 * np.arange(20_000)
    close = 2.0**30 + 0.25 * np.arange(20_000)
    far = 2.0**30 + 1000.5 * np.arange(20_000)
    for numbers, wide in (
        (ids, True),
        (close, True),
        (far, True),
        (far / 1e6, False),
        (2.0**33 + 1024.0 * np.arange(20_000), False),
    ):
        parts = [pa.array(numbers[:7000]), pa.array(numbers[7000:])]
        merged = summarize_column("x", parts[0]).merge(summarize_column("x", parts[1]))
        assert merged.numbers.needs_float64 is wide
        assert summarize_column("x", pa.array(numbers)).numbers.needs_float64 is wide


def test_parts_of_other_types_do_not_merge():
    with pytest.raises(ValueError, match="'x' is number in one part, but 'x' is text in another one"):
        summarize_column("x", pa.array([1])).merge(summarize_column("x", pa.array(["1"])))
    empty = summarize_column("x", pa.nulls(3))
    assert empty.merge(summarize_column("x", pa.array(["1"]))).missing == 3
