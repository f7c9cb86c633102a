"""What each column is, decided once, and the matrix that any later table makes."""

from __future__ import annotations

import datetime
import decimal
import json
import time
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raresight.tables import Column, Schema, learn_schema, open_batches, read_table
from raresight.tables.column_kinds import decide_column, looks_like_identifier
from raresight.tables.columns import Dropped
from raresight.tables.summaries import summarize_column

N = 200
Y = [int(row % 10 == 0) for row in range(N)]


def decide(name, values):
    """What a column is, from all its values at once."""
    return decide_column(summarize_column(name, values, keep=looks_like_identifier(name))).column


def schema_of(values, name="x", rows=None):
    """The schema of a table with the values as one of its columns."""
    values = values if isinstance(values, pa.Array) else pa.array(values)
    return learn_schema(
        pa.table({name: values, "other": np.arange(len(values)) % 3 * 0.5, "y": Y[: len(values)]}), "y"
    )


def column_of(values, name="x"):
    return next(column for column in schema_of(values, name).columns if column.name == name)


def reason_of(values, name="x"):
    return next(column.reason for column in schema_of(values, name).dropped if column.name == name)


def matrix_of(schema, values, name="x"):
    values = values if isinstance(values, pa.Array) else pa.array(values)
    table = pa.table({name: values, "other": np.zeros(len(values))})
    position = schema.feature_names.index(next(f for f in schema.feature_names if f.startswith(name)))
    width = len(next(column for column in schema.columns if column.name == name).features)
    matrix = schema.matrix(table)[:, position : position + width]
    return matrix[:, 0] if width == 1 else matrix


# Kinds


@pytest.mark.parametrize(
    "values",
    [
        pa.array(np.arange(N) % 7, pa.int8()),
        pa.array(np.arange(N) % 7, pa.uint64()),
        pa.array(np.arange(N) % 7, pa.float16()),
        pa.array(np.arange(N) / 7, pa.float64()),
        pa.array([decimal.Decimal(row % 7) / 4 for row in range(N)]),
        pa.array([row % 2 == 0 for row in range(N)]),
        pa.array([str(row % 7) for row in range(N)]),
        pa.array([str(row % 7 / 4) for row in range(N)], pa.large_string()),
        pa.array([["true", "false"][row % 2] for row in range(N)]),
        pa.array([datetime.timedelta(seconds=row % 7) for row in range(N)]),
    ],
    ids=lambda values: str(values.type),
)
def test_numbers_truth_values_and_text_that_holds_them_are_numeric(values):
    assert column_of(values).kind == "numeric"
    assert np.isfinite(matrix_of(schema_of(values), values)).all()


def test_values_of_the_numeric_types():
    nothing = None
    cases = [
        (pa.array([1, nothing, 3], pa.int16()), [1, np.nan, 3]),
        (pa.array([True, nothing, False]), [1, np.nan, 0]),
        (pa.array([1.5, nothing, float("nan")]), [1.5, np.nan, np.nan]),
        (pa.array([decimal.Decimal("1.25"), nothing, decimal.Decimal("-3.5")]), [1.25, np.nan, -3.5]),
        (pa.array(["1.5", nothing, " 2 "]), [1.5, np.nan, 2]),
        (pa.array(["true", nothing, "FALSE"]), [1, np.nan, 0]),
        (pa.array([datetime.timedelta(seconds=1.5), nothing, datetime.timedelta(0)]), [1.5, np.nan, 0]),
        (pa.array([1.5, nothing, -2], pa.float16()), [1.5, np.nan, -2]),
    ]
    for values, expected in cases:
        np.testing.assert_array_equal(
            matrix_of(schema_of(values), values), expected, err_msg=str(values.type)
        )


def test_marks_for_missing_values_in_numbers():
    values = [str(row) for row in range(0, 3 * 90, 3)] + ["?"] * 5 + ["unknown"] * 3 + ["NA", ""]
    column = column_of(values)
    assert (column.kind, column.missing_marks) == ("numeric", ("?", "unknown"))
    assert column.note == "'?' and 'unknown' are missing"
    np.testing.assert_array_equal(matrix_of(schema_of(values), ["?", "4", "unknown", "NA", None]),
                                  [np.nan, 4, np.nan, np.nan, np.nan])  # fmt: skip


def test_decimal_commas():
    values = ["1,5", "-2,25", ",5", "3", "1,234", "?"] * 8
    schema = schema_of(values)
    assert schema.columns[0].note == "text with decimal commas; '?' is missing"
    np.testing.assert_allclose(matrix_of(schema, values[:6]), [1.5, -2.25, 0.5, 3, 1.234, np.nan], rtol=1e-7)
    np.testing.assert_array_equal(matrix_of(schema, [2.5, 3.0]), [2.5, 3])
    with pytest.raises(ValueError, match="column 'x' holds '1,5,5' in row 1"):
        matrix_of(schema, ["1,5,5"])


def test_too_many_marks_make_a_category():
    assert column_of(["1", "2", "3", "4", "a", "b", "c", "d"] * 3).kind == "categorical"
    assert column_of(["1", "2", "a", "a", "a"] * 4).kind == "categorical"


def test_infinite_values_are_missing_and_noted():
    values = [float(row % 9) for row in range(98)] + [float("inf"), float("-inf")]
    schema = schema_of(values)
    assert schema.columns[0].note == "infinite in 2 rows, taken as missing"
    assert np.isnan(matrix_of(schema, values)[-2:]).all()
    assert np.isnan(matrix_of(schema, ["inf", "-Infinity"])).all()


def test_dates_give_day_hour_and_weekday():
    start = datetime.datetime(2024, 5, 30, 18, 30)  # a Thursday
    moments = [start + datetime.timedelta(hours=6 * row) for row in range(50)]
    for values in (
        pa.array(moments, pa.timestamp("s")),
        pa.array(moments, pa.timestamp("ns")),
        pa.array(moments, pa.timestamp("ms", "UTC")),
        pa.array([moment.isoformat() for moment in moments]),
        pa.array([moment.isoformat(" ", "minutes") for moment in moments]),
        pa.array([moment.isoformat() + "Z" for moment in moments]),
        pa.array([moment.isoformat() + ".123456789" for moment in moments]),
        pa.array([(moment + datetime.timedelta(hours=2)).isoformat() + "+02:00" for moment in moments]),
    ):
        schema = schema_of(values)
        assert schema.feature_names[:3] == ("x: day", "x: hour", "x: weekday")
        expected = [(start.date() - datetime.date(1970, 1, 1)).days, 18.5, 3]
        np.testing.assert_allclose(matrix_of(schema, values)[0], expected, atol=1e-4)


def test_dates_without_time_of_day_and_times_without_day():
    days = [datetime.date(2024, 5, 30) + datetime.timedelta(days=row) for row in range(50)]
    for values in (pa.array(days), pa.array(days, pa.date64()), pa.array([str(day) for day in days])):
        assert column_of(values).parts == ("day", "weekday")
    times = pa.array([datetime.time(row % 24, 30) for row in range(50)])
    assert column_of(times).features == ("x: hour",)
    np.testing.assert_array_equal(matrix_of(schema_of(times), times)[:2], [0.5, 1.5])


def test_dates_before_1970_and_missing_ones():
    values = ["1969-12-31 23:00", "1970-01-01 00:00", None, "0000-00-00", "1969-12-31 12:00"] * 4
    schema = schema_of(values)
    assert schema.columns[0].missing_marks == ("0000-00-00",)
    np.testing.assert_array_equal(matrix_of(schema, values)[0], [-1, 23, 2])
    assert np.isnan(matrix_of(schema, values)[2:4]).all()


def test_categories():
    schema = schema_of(["b", "a", "c", None, ""] * 6)
    assert schema.columns[0] == Column("x", "categorical", categories=("a", "b", "c"))
    assert (schema.categorical, schema.n_categories) == ((0,), (3,))
    np.testing.assert_array_equal(
        matrix_of(schema, ["c", "new", None, "", "a"]), [2, np.nan, np.nan, np.nan, 0]
    )


def test_at_most_255_levels_that_occur_twice_are_kept():
    levels = [f"level {number:03d}" for number in range(300)]
    values = [level for number, level in enumerate(levels) for _ in range(2 if number < 290 else 1)]
    values += levels[100:] * 2
    column = learn_schema(pa.table({"x": values, "y": np.arange(len(values)) % 2}), "y").columns[0]
    assert column.kind == "categorical"
    assert len(column.categories) == 255
    assert set(levels[100:290]) <= set(column.categories)
    assert column.note == "255 of 300 categories kept, the rarer ones are missing"


def test_a_few_levels_are_kept_even_if_each_occurs_once():
    assert len(column_of(list("abcdefghijklmnopqrst")).categories) == 20


def test_dictionaries_are_categories_whatever_they_hold():
    values = pa.array([5, 7, None, 5] * 10).dictionary_encode()
    schema = schema_of(values)
    assert schema.columns[0].categories == ("5", "7")
    np.testing.assert_array_equal(matrix_of(schema, [7, 5, 6]), [1, 0, np.nan])
    np.testing.assert_array_equal(matrix_of(schema, [7.0, None, 5.5]), [1, np.nan, np.nan])
    np.testing.assert_array_equal(matrix_of(schema, ["7", "5"]), [1, 0])


# What is dropped


@pytest.mark.parametrize(
    ("values", "name", "reason"),
    [
        ([3.5] * N, "x", "constant: always 3.5"),
        ([True] * N, "x", "constant: always True"),
        (["same"] * N, "x", "constant: always 'same'"),
        ([datetime.date(2024, 1, 1)] * N, "x", "constant: always the same moment"),
        (["2024-01-01"] * N, "x", "constant: always the same moment"),
        ([None] * N, "x", "no values: missing in every row"),
        (pa.array([None] * N, pa.float64()), "x", "no values: missing in every row"),
        ([float("nan")] * N, "x", "no values: missing or infinite in every row"),
        ([""] * N, "x", "no values: missing in every row"),
        (["", None] * 100, "x", "no values: missing in every row"),
        (list(range(N)), "x", "identifier: whole numbers, all different and in order"),
        ([str(row) for row in range(N)], "x", "identifier: whole numbers, all different and in order"),
        (
            [row * 7919 % 10007 for row in range(N)],
            "customer_id",
            "identifier: whole numbers, all different, and",
        ),
        ([f"user {row}" for row in range(N)], "x", "identifier: 200 different texts in 200 rows"),
        ([[1, 2]] * N, "x", "type list"),
        ([{"a": 1}] * N, "x", "type struct"),
        ([b"bytes"] * N, "x", "type binary"),
    ],
)
def test_what_a_model_cannot_learn_from_is_dropped_with_the_reason(values, name, reason):
    assert reason_of(values, name).startswith(reason)


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([row * 7919 % 10007 for row in range(N)], "amount"),
        ([float(row) for row in range(N)], "id"),
        ([row // 2 for row in range(N)], "id"),
        ([row * 7919 % 10007 for row in range(N)], "paid"),
        ([3.5] * (N - 1) + [None], "x"),
        (list(range(100)), "x"),
    ],
)
def test_what_looks_like_an_identifier_but_is_none_is_kept(values, name):
    assert column_of(values, name).kind == "numeric"


def test_group_and_time_columns():
    day = datetime.datetime(2024, 1, 1)
    table = pa.table(
        {
            "who": [f"c{row % 9}" for row in range(N)],
            "second": np.arange(N) // 2,
            "when": [day + datetime.timedelta(hours=row) for row in range(N)],
            "date": [(day + datetime.timedelta(days=row)).date() for row in range(N)],
            "x": np.arange(N) * 0.5,
            "y": Y,
        }
    )
    by_group = learn_schema(table, "y", group="who")
    assert [column.name for column in by_group.dropped] == ["who"]
    np.testing.assert_array_equal(by_group.groups(table), np.arange(N) % 9)
    assert by_group.times(table) is None
    by_number = learn_schema(table, "y", time="second")
    assert "time column" in by_number.dropped[0].reason
    np.testing.assert_array_equal(by_number.times(table), np.arange(N) // 2)
    by_moment = learn_schema(table, "y", time="when")
    assert [name for name in by_moment.feature_names if "when" in name] == ["when: hour", "when: weekday"]
    assert (np.diff(by_moment.times(table)) > 0).all()
    by_date = learn_schema(table, "y", time="date")
    assert [name for name in by_date.feature_names if "date" in name] == ["date: weekday"]
    as_text = table.set_column(2, "when", table["when"].cast(pa.string()))
    np.testing.assert_array_equal(
        learn_schema(as_text, "y", time="when").times(as_text), by_moment.times(table)
    )


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            ["soon"] * N,
            r"the time column 't' holds 'soon' in row 1, which is neither a number nor an ISO date",
        ),
        ([None, 1.0] * 100, r"the time column 't' is missing in 100 of 200 rows"),
        ([[1]] * N, r"the time column 't' is of the type list"),
    ],
)
def test_time_columns_that_cannot_order(values, reason):
    with pytest.raises(ValueError, match=reason):
        learn_schema(pa.table({"t": values, "x": np.arange(N) * 0.5, "y": Y}), "y", time="t")


def test_refusals_of_roles():
    table = pa.table({"g": ["a", None] * 100, "x": np.arange(N) * 0.5, "y": Y})
    with pytest.raises(ValueError, match="the group column 'g' is missing in 100 of 200 rows"):
        learn_schema(table, "y", group="g")
    with pytest.raises(ValueError, match="are both 'x'"):
        learn_schema(table, "y", group="x", time="x")
    with pytest.raises(ValueError, match="cannot be the target"):
        learn_schema(table, "y", group="y")
    with pytest.raises(ValueError, match=r"no target column 'Y'; did you mean 'y'\?"):
        learn_schema(table, "Y")
    with pytest.raises(ValueError, match=r"no target column 'fraud'; its columns are 'g', 'x', 'y'"):
        learn_schema(table, "fraud")
    with pytest.raises(ValueError, match=r"no time column 'tt'"):
        learn_schema(table, "y", time="tt")
    with pytest.raises(ValueError, match=r"no column is left to learn from .*'c' is dropped \(constant"):
        learn_schema(pa.table({"c": [1] * N, "y": Y}), "y")


# The matrix


def test_float64_only_where_it_is_needed():
    assert schema_of([0.1 * row for row in range(50)]).dtype == np.float32
    assert schema_of([2**24 + row % 2 for row in range(50)]).dtype == np.float64
    assert schema_of([1.6e9 + row % 2 for row in range(50)]).dtype == np.float64
    assert schema_of([1e300 + row % 2 for row in range(49)] + [1.0]).dtype == np.float64
    assert schema_of([str(2**24 + row % 2) for row in range(50)]).dtype == np.float64
    assert schema_of([1e10 * (row % 2) for row in range(50)]).dtype == np.float32


def test_a_value_beyond_float32_is_its_largest_number():
    schema = schema_of([0.5 * (row % 4) for row in range(50)])
    largest = np.finfo(np.float32).max
    found = matrix_of(schema, [1e300, -1e39, float("inf"), 3.0])
    assert found[[0, 1, 3]].tolist() == [largest, -largest, 3.0]
    assert np.isnan(found[2])


TRAINING = pa.table(
    {
        "n": [0.5 * (row % 7) for row in range(N)],
        "c": [["a", "b", "c"][row % 3] for row in range(N)],
        "d": [f"2024-01-{row % 28 + 1:02d}" for row in range(N)],
        "b": [row % 4 == 0 for row in range(N)],
        "y": Y,
    }
)
SCHEMA = learn_schema(TRAINING, "y")


def test_scoring_needs_no_target_ignores_extra_columns_and_their_order():
    table = pa.table({"extra": [1], "b": [True], "d": ["2024-01-02"], "c": ["b"], "n": [1.0]})
    np.testing.assert_array_equal(SCHEMA.matrix(table), [[1, 1, 19724, 1, 1]])


def test_scoring_refuses_missing_columns():
    with pytest.raises(ValueError, match=r"lacks the column 'c', which the model was trained on"):
        SCHEMA.matrix(TRAINING.drop_columns("c"))
    with pytest.raises(ValueError, match=r"lacks the 4 columns 'n', 'c', 'd', 'b', which"):
        SCHEMA.matrix(pa.table({"z": [1]}))


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("n", ["1", "2", "x"], r"column 'n' holds 'x' in row 1003, which is no number as in training"),
        ("n", ["true", "2", "3"], r"column 'n' holds 'true' in row 1001"),
        (
            "d",
            ["2024-01-01", "2024-13-01", ""],
            r"column 'd' holds '2024-13-01' in row 1002, which is no ISO date",
        ),
        ("n", [[1], [2], [3]], r"column 'n' was numeric in training, but is now of the type list"),
        ("d", [1, 2, 3], r"column 'd' held dates in training, but is now of the type int64"),
        ("c", [[1], [2], [3]], r"values of the type list.* cannot be categories"),
    ],
)
def test_scoring_refuses_what_cannot_be_converted(name, values, reason):
    table = TRAINING.slice(0, 3)
    table = table.set_column(table.column_names.index(name), name, pa.array(values))
    with pytest.raises(ValueError, match=reason):
        SCHEMA.matrix(table, first_row=1000)


def test_scoring_converts_other_types():
    table = pa.table(
        {
            "n": ["1.5", "NA", ""],
            "c": pa.array(["c", None, "a"]).dictionary_encode(),
            "d": pa.array([datetime.datetime(2024, 1, 1, 5), None, None]),
            "b": ["True", "0", "1.0"],
        }
    )
    matrix = SCHEMA.matrix(table)
    np.testing.assert_array_equal(matrix[:, 0], [1.5, np.nan, np.nan])
    np.testing.assert_array_equal(matrix[:, 1], [2, np.nan, 0])
    np.testing.assert_array_equal(matrix[:, 2], [19723, np.nan, np.nan])
    np.testing.assert_array_equal(matrix[:, 4], [1, 0, 1])
    nothing = pa.table({name: pa.nulls(2) for name in "ncdb"})
    assert np.isnan(SCHEMA.matrix(nothing)).all()


def test_unknown_values_are_counted():
    table = TRAINING.slice(0, 4).set_column(1, "c", pa.array(["new", "a", None, "newer"]))
    assert SCHEMA.unknown_counts(table) == {"c": 2}
    assert SCHEMA.unknown_share(table) == {"c": 0.5}


START = 1_700_000_000  # a Tuesday, 22:13:20


@pytest.mark.parametrize(
    ("name", "values", "parts"),
    [
        ("t", START + np.arange(N) * 20_000, ("hour", "weekday")),
        ("t", START + np.arange(N) * 2_000.5, ("hour",)),
        ("t", (START + np.arange(N) * 20_000) * 1000, ("hour", "weekday")),
        ("t", (START + np.arange(N) * 20_000) * 10**9, ("hour", "weekday")),
        ("t", [str(START + second) for second in range(0, N * 20_000, 20_000)], ("hour", "weekday")),
        ("Time", np.arange(N) * 2_000, ("hour",)),
        ("TransactionDT", 86_400 + np.arange(N) * 20_000, ("hour", "weekday")),
        ("step", np.arange(N) * 2_000, ()),
        ("Time", np.arange(N), ()),
        ("t", START + np.arange(N), ()),
        ("t", 20_240_531 + np.arange(N) * 0.5, ()),
    ],
)
def test_a_time_column_of_numbers_keeps_what_recurs(name, values, parts):
    table = pa.table({name: values, "x": np.arange(N) * 0.5 % 7, "y": Y})
    schema = learn_schema(table, "y", time=name)
    assert schema.feature_names == (*(f"{name}: {part}" for part in parts), "x")
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())), schema.arrays())
    np.testing.assert_array_equal(again.matrix(table), schema.matrix(table))
    if parts:
        numbers = np.array(values).astype(np.float64)
        seconds = numbers / 10 ** max(round(np.log10(numbers[0] / START)) if numbers[0] > START / 2 else 0, 0)
        matrix = schema.matrix(table)
        np.testing.assert_allclose(matrix[:, 0], seconds % 86_400 / 3600, rtol=1e-4, atol=1e-4)
        if "weekday" in parts and numbers[0] > START / 2:
            days = [datetime.datetime.fromtimestamp(one, datetime.UTC).weekday() for one in seconds]
            np.testing.assert_array_equal(matrix[:, 1], days)
    odd = pa.table({name: [None, 0.0, float("nan")], "x": [0.5] * 3})
    assert np.isnan(schema.matrix(odd)[[0, 2], 0]).all() == bool(parts)


def test_rare_categories_are_known_though_they_are_scored_as_missing():
    texts = [f"shop {i % 400}" for i in range(900)] + [f"once {i}" for i in range(100)]
    table = pa.table({"shop": texts, "y": [0, 1] * 500})
    schema = learn_schema(table, "y")
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())), schema.arrays())
    assert again == schema
    fresh = pa.table({"shop": ["once 3", "new", "shop 1", "new", "newer", "", None, "shop 399"]})
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        found = again.unseen_values(pa.table({"shop": fresh["shop"].cast(kind)}))
        assert found["shop"].to_pylist() == ["new", "new", "newer"]
    assert again.unknown_counts(table) == {"shop": 0}
    assert np.isnan(again.matrix(table)).sum() == np.isnan(schema.matrix(table)).sum() > 100
    with pytest.raises(ValueError, match="rare_0"):
        Schema.from_dict(schema.to_dict())
    with pytest.raises(ValueError, match="rare_0"):
        Schema.from_dict(schema.to_dict(), {"rare_0": schema.arrays()["rare_0"][1:]})


def test_numbers_among_words_are_known_where_they_were_too_many_to_count():
    texts = ["a", "b"] * 20_000 + [f"{i}.5" for i in range(40_000)]
    schema = learn_schema(pa.table({"c": texts, "y": [0, 1] * 40_000}), "y")
    assert schema.columns[0].many_numbers
    assert schema.unseen_values(pa.table({"c": ["a", "7.25", "c"]}))["c"].to_pylist() == ["c"]


def test_no_rows():
    assert SCHEMA.matrix(TRAINING.slice(0, 0)).shape == (0, 5)


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        (["1", "2"], [1, 2]),
        (["1", "2.5"], [1.0, 2.5]),
        (["1e3", "-.5"], [1000.0, -0.5]),
        (["NA", "7", "8"], [np.nan, 7, 8]),
        ([" 5 ", "6"], [5, 6]),
        (["True", "false"], [1, 0]),
        (["nan", "2", "3"], [np.nan, 2, 3]),
        (["inf", "2", "3"], [np.nan, 2.0, 3.0]),
        (["99999999999999999999", "2"], [1e20, 2.0]),
        (["0.5", "0"], [0.5, 0]),
    ],
)
def test_text_is_numbers_where_all_values_are(fields, read):
    values = pa.array(fields * 5)
    assert column_of(values).kind == "numeric"
    np.testing.assert_array_equal(matrix_of(schema_of(values), values), read * 5)


@pytest.mark.parametrize(
    "fields", [["1", "true"], ["1", "abc"], ["NA", "x"], ["0x1F", "2"], ["01234", "99817"], ["007", "08"]]
)
def test_text_is_a_category_where_a_value_is_none(fields):
    column = column_of(fields * 5)
    assert (column.kind, set(column.categories)) == ("categorical", set(fields))


def test_codes_with_leading_zeros_stay_codes_in_training_and_scoring(tmp_path):
    lines = [f"{['01234', '1234', '99817'][row % 3]},{row / 7},{int(row % 10 == 0)}" for row in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["zip,x,y", *lines]) + "\n")
    table = read_table(tmp_path / "t.csv")
    schema = learn_schema(table, "y")
    assert schema.columns[0].categories == ("01234", "1234", "99817")
    np.testing.assert_array_equal(schema.matrix(table)[:3, 0], [0, 1, 2])
    np.testing.assert_array_equal(schema.matrix(pa.table({"zip": ["01234"], "x": ["1"]}))[:, 0], [0])


def test_a_late_word_makes_a_column_of_numbers_text():
    values = ["12345"] * 100_000 + ["abc"] * 5 + ["x", "y", "z"] * 2
    schema = learn_schema(pa.table({"x": values, "y": np.arange(len(values)) % 9 == 0}), "y")
    assert schema.columns[0].categories == ("12345", "abc", "x", "y", "z")


def test_csv_read_as_text_gives_the_same_matrix(tmp_path):
    pyarrow.csv.write_csv(TRAINING, tmp_path / "t.csv")
    whole = SCHEMA.matrix(read_table(tmp_path / "t.csv"))
    np.testing.assert_array_equal(whole, SCHEMA.matrix(TRAINING))
    batches = open_batches(tmp_path / "t.csv", rows=33)
    np.testing.assert_array_equal(np.concatenate([SCHEMA.matrix(batch) for batch in batches]), whole)


def test_the_matrix_is_made_fast():
    rng = np.random.default_rng(0)
    table = pa.table({f"v{i}": rng.standard_normal(280_000, dtype=np.float32) for i in range(30)})
    table = table.append_column("y", pa.array(np.arange(280_000) % 500 == 0))
    schema = learn_schema(table, "y")
    schema.matrix(table)
    start = time.process_time()
    matrix = schema.matrix(table)
    # Far above what it takes, far below what any loop over rows would take.
    assert time.process_time() - start < 1.0
    np.testing.assert_array_equal(matrix[:, 29], table["v29"].to_numpy())
    assert matrix.flags.c_contiguous


# Properties

texts = st.one_of(
    st.none(), st.sampled_from(["", "?", "1", "2.5", "NA", "true", "x", "y", "2024-01-01", "é"])
)
numbers = st.one_of(st.none(), st.floats(), st.integers(-(2**40), 2**40).map(float))
moments = st.one_of(st.none(), st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)))


@st.composite
def tables(draw):
    rows = draw(st.integers(2, 25))

    def column(values, type_=None):
        return pa.array(draw(st.lists(values, min_size=rows, max_size=rows)), type_)

    return pa.table(
        {
            "text": column(texts, pa.string()),
            "coded": column(texts, pa.string()).dictionary_encode(),
            "number": column(numbers, pa.float64()),
            "whole": column(st.one_of(st.none(), st.integers(-(2**62), 2**62)), pa.int64()),
            "truth": column(st.one_of(st.none(), st.booleans()), pa.bool_()),
            "moment": column(moments, pa.timestamp("us")),
            "anchor": pa.array(np.arange(rows) * 0.5),
            "y": pa.array(np.arange(rows) % 2),
        }
    )


@given(table=tables())
def test_a_schema_survives_json(table):
    schema = learn_schema(table, "y")
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())), schema.arrays())
    assert again == schema
    assert again.feature_names == schema.feature_names
    np.testing.assert_array_equal(again.matrix(table), schema.matrix(table))


@given(table=tables(), cuts=st.lists(st.integers(0, 25), max_size=4))
def test_the_matrix_does_not_depend_on_chunks(table, cuts):
    schema = learn_schema(table, "y")
    whole = schema.matrix(table)
    assert whole.shape == (table.num_rows, len(schema.feature_names))
    assert whole.dtype == schema.dtype
    assert not np.isinf(whole).any()
    borders = [0, *sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]
    pieces = [table.slice(start, stop - start) for start, stop in pairwise(borders)]
    chunked = pa.concat_tables(pieces, promote_options="none")
    assert learn_schema(chunked, "y") == schema
    np.testing.assert_array_equal(schema.matrix(chunked), whole)
    np.testing.assert_array_equal(np.concatenate([schema.matrix(piece) for piece in pieces]), whole)
    batches = [schema.matrix(batch) for batch in open_batches(chunked, rows=3)]
    np.testing.assert_array_equal(np.concatenate(batches), whole)


@pytest.mark.parametrize(
    "broken", [{}, {"columns": [{}], "dropped": []}, {"columns": [], "dropped": [], "z": 1}]
)
def test_what_is_no_schema_is_refused(broken):
    with pytest.raises(ValueError, match="no schema of a table"):
        Schema.from_dict(broken)


def test_fractions_far_from_zero_keep_what_tells_them_apart():
    seconds = np.random.default_rng(0).random(200) * 600
    assert schema_of(1.7e9 + seconds).dtype == np.float64
    assert schema_of(seconds).dtype == np.float32
    # Amounts of millions with cents stay different in float32.
    assert schema_of(np.arange(200) * 1e6 + 0.25).dtype == np.float32


@pytest.mark.parametrize("order", [1, -1])
def test_amounts_that_a_table_is_sorted_by_are_no_identifier(order):
    amounts = np.sort(np.random.default_rng(0).choice(10**7, 200, replace=False))[::order]
    assert column_of(pa.array(amounts), "amount_cents").kind == "numeric"
    reason = "identifier: whole numbers, all different and in order, with few left out"
    for numbers in (np.arange(1000, 1200), np.delete(np.arange(300), np.arange(0, 100))):
        assert decide("x", pa.array(numbers[::order])) == Dropped("x", reason)
    assert isinstance(decide("payment_id", pa.array(amounts)), Dropped)


def test_words_among_few_numbers_are_codes():
    codes = ["1", "2", "3", "4", "A", "B"] * 40
    found = decide("x", pa.array(codes))
    assert (found.kind, found.categories) == ("categorical", ("1", "2", "3", "4", "A", "B"))
    assert found.note == "few different numbers and 'A' and 'B': taken as codes"
    # Marks without a word, words that say so, and words among many numbers stand for a missing value.
    for marks in (["?", "--"], ["unknown", "Missing"]):
        found = decide("x", pa.array(["1", "2", "3", "4", *marks] * 40))
        assert (found.kind, found.missing_marks) == ("numeric", tuple(sorted(marks)))
    found = decide("x", pa.array([str(k) for k in range(240)] + ["A"] * 60))
    assert (found.kind, found.missing_marks) == ("numeric", ("A",))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_durations_and_moments_at_the_ends_of_their_range_do_not_wrap_around(unit):
    counts = [-(2**63) + 2, -(10**13), -1, 0, 1, 10**13, 2**63 - 1] * 20
    order = np.arange(7)
    durations = pa.array(counts, pa.int64()).cast(pa.duration(unit))
    scale = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    found = matrix_of(schema_of(durations), durations)[:7]
    np.testing.assert_allclose(found, np.array(counts[:7], np.float64) / scale, rtol=1e-7)
    assert (np.argsort(found) == order).all()
    for type_ in (pa.timestamp(unit), pa.timestamp(unit, "UTC"), *([pa.date64()] if unit == "ms" else [])):
        moments = pa.array(counts, pa.int64()).cast(type_)
        schema = schema_of(moments)
        days = matrix_of(schema, moments)[:7, 0]
        assert (np.diff(days) >= 0).all()
        assert days[0] < -100_000
        assert days[-1] > 100_000
        said = "beyond the year 294246" in schema.columns[0].note
        assert said == (unit != "ns")
    days = pa.array([-(2**31), 0, 2**31 - 1] * 20, pa.int32()).cast(pa.date32())
    assert (np.diff(matrix_of(schema_of(days), days)[:3, 0]) > 0).all()


def test_whole_numbers_that_float64_cannot_tell_apart_are_not_constant():
    top, order = 2**64 - 1, np.random.default_rng(0).permutation(N)
    many, few = [top - int(i) for i in order], [top - int(i) % 5 for i in order]
    decimals = [decimal.Decimal(10**24 + int(i)) for i in order]
    for values in (pa.array(many, pa.uint64()), pa.array([str(n) for n in many]), pa.array(decimals)):
        assert reason_of(values).startswith("identifier")
    for values in (
        pa.array(few, pa.uint64()),
        pa.array([str(n) for n in few]),
        pa.array([f"{10**24 + int(i) % 5}" for i in order]),
        pa.array([decimal.Decimal(10**30 + int(i) % 5) for i in order], pa.decimal128(38, 0)),
    ):
        column = column_of(values)
        assert (column.kind, len(column.categories)) == ("categorical", 5)
        assert len(np.unique(matrix_of(schema_of(values), values))) == 5
    assert reason_of(pa.array([top] * N, pa.uint64())).startswith("constant: always 1.84467440737e+19")
    assert reason_of(["5", "5.0", "5e0", "+5"] * 50).startswith("constant: always 5")
    # Far enough apart they are numbers, with a note.
    for values in (
        pa.array([int(i) * 2**54 for i in order]),
        pa.array([str(int(i) * 10**18) for i in order]),
    ):
        column = column_of(values)
        assert (column.kind, "rounded to 16 digits" in column.note) == ("numeric", True)


def test_differences_beyond_the_digits_of_float32_are_kept():
    for values in (1e7 + 0.001 * np.arange(N), 1e3 + 1e-6 * (np.arange(N) % 5)):
        schema = schema_of(np.random.default_rng(0).permutation(values))
        assert schema.dtype == np.float64
        assert len(np.unique(schema.matrix(pa.table({"x": values, "other": values}))[:, 0])) == len(
            np.unique(values)
        )


@given(
    values=st.one_of(
        st.lists(st.integers(-(2**70), 2**70), min_size=2, max_size=30),
        st.lists(st.integers(0, 3), min_size=2, max_size=30),
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=30),
        st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=2, max_size=30),
        st.lists(
            st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**6), max_value=10**6),
            min_size=2,
            max_size=30,
        ),
    )
)
def test_numbers_that_programs_write_are_read_as_numbers(values):
    """A CSV file is all text, and the rule for codes must not take a number for one."""
    import csv
    import io

    import pandas as pd
    import polars as pl

    written = io.StringIO()
    csv.writer(written).writerows([value] for value in values)
    texts = [written.getvalue().splitlines()]
    texts.append(pd.DataFrame({"x": values}).to_csv(index=False, header=False).splitlines())
    if all(isinstance(value, float) or -(2**63) <= value < 2**63 for value in values):
        texts.append(pl.DataFrame({"x": values}, strict=False).write_csv(include_header=False).splitlines())
    for text in texts:
        found = decide("x", pa.array(text))
        numbers = np.array([float(value) for value in values])
        if isinstance(found, Dropped):
            assert found.reason.startswith("constant")
            assert len(np.unique(numbers)) == 1
        elif found.kind == "categorical":
            assert "beyond the 16 digits" in found.note
            assert len(np.unique(numbers)) < len(set(values))
        else:
            assert found.kind == "numeric"
            schema = schema_of(text)
            np.testing.assert_allclose(matrix_of(schema, text), numbers, rtol=1e-6, atol=1e-37)
