"""Text columns that hold numbers as people write them."""

from __future__ import annotations

import json
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raresight.tables import Column, Schema, learn_schema, open_batches, read_table
from raresight.tables.column_kinds import decide_column, looks_like_identifier
from raresight.tables.number_formats import NumberFormat, find_format, numbers_written
from raresight.tables.summaries import summarize_column


def decide(name, values):
    """What a column is, from all its values at once."""
    return decide_column(summarize_column(name, values, keep=looks_like_identifier(name))).column


def decided(values, times=1):
    return decide("x", pa.array(list(values) * times))


def schema_of(values):
    """The schema of a table with the values as a column; written to JSON and back."""
    rows = len(values)
    table = pa.table({"x": values, "other": np.arange(rows) % 3 * 0.5, "y": np.arange(rows) % 2})
    schema = learn_schema(table, "y")
    return Schema.from_dict(json.loads(json.dumps(schema.to_dict())), schema.arrays())


def scored(schema, values):
    values = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    return schema.matrix(pa.table({"x": values, "other": np.zeros(len(values))}))[:, 0]


FORMATS = [
    (["1,234.56", "12.5", "7", "-1,000,000"], [1234.56, 12.5, 7, -1e6], "thousands separators removed"),
    (["1.234,56", "12,5", "7", "-1.000.000"], [1234.56, 12.5, 7, -1e6], "thousands separators removed"),
    (["1,234.5", "1234.5", "0.25", ".5"], [1234.5, 1234.5, 0.25, 0.5], "thousands separators removed"),
    (["$12.50", "$ 3", "-$1.25", "$-2"], [12.5, 3, -1.25, -2], "currency $ removed"),
    (["$1,234.50", "$3"], [1234.5, 3], "thousands separators removed, currency $ removed"),
    (
        ["12,50 €", "3 €", "1.234,00\u00a0€"],
        [12.5, 3, 1234],
        "thousands separators removed, currency € removed",
    ),
    (["12,50 EUR", "3", "4,25EUR"], [12.5, 3, 4.25], "currency EUR removed"),
    (["USD 12.50", "USD 1,300.00"], [12.5, 1300], "currency USD removed"),
    (["£5", "£7"], [5, 7], "currency £ removed"),
    (["12.5%", "3 %", "-1%", "0"], [12.5, 3, -1, 0], "percent signs removed"),
    (["12,5%", "3,25%"], [12.5, 3.25], "percent signs removed"),
    (["(12.50)", "7.25", "(1,234.00)"], [-12.5, 7.25, -1234], "parentheses taken as minus"),
    (["($5.00)", "$(6.00)", "$7"], [-5, -6, 7], "currency $ removed, parentheses taken as minus"),
    ([" +1,200.5 ", "+3", "-2"], [1200.5, 3, -2], "thousands separators removed"),
    ([" +1.5 ", "+3", "-2 "], [1.5, 3, -2], ""),
]


@pytest.mark.parametrize(("values", "numbers", "note"), FORMATS)
def test_numbers_as_people_write_them(values, numbers, note):
    schema = schema_of(values * 5)
    column = schema.columns[0]
    assert (column.name, column.kind) == ("x", "numeric")
    assert note in column.note
    assert note == "" or "read as numbers: " in column.note
    np.testing.assert_allclose(scored(schema, values), numbers, rtol=1e-6)
    # Batch by batch each value is read as in the whole column, even where it alone could be read otherwise.
    for value, number in zip(values, numbers, strict=True):
        np.testing.assert_allclose(
            scored(schema, [value, None, "NA", ""]), [number] + [np.nan] * 3, rtol=1e-6
        )
    np.testing.assert_allclose(scored(schema, np.array(numbers)), numbers, rtol=1e-6)


def test_what_stands_for_a_missing_value_stays_so():
    schema = schema_of(["$1,200", "$3", "n.a.", "$5.5"] * 6)
    assert schema.columns[0].missing_marks == ("n.a.",)
    assert schema.columns[0].note.endswith("'n.a.' is missing")
    np.testing.assert_allclose(scored(schema, ["n.a.", "$7"]), [np.nan, 7])


def test_a_few_large_numbers_are_not_missing_values():
    column = decided(["999", "12", "7.5", "5"] * 20 + ["1,234"])
    assert column.missing_marks == ()
    assert column.thousands


def test_commas_that_may_be_decimal_ones_are_thousands_with_a_word():
    column = decided(["1,234", "2,345", "17"], 9)
    assert (column.kind, column.thousands, column.comma) == ("numeric", True, False)
    assert "each comma is taken as one of thousands; it may be a decimal comma" in column.note
    assert decided(["€ 1.234", "€ 17", "€ 2.500"]).thousands
    assert not decided(["1.234", "17", "2.500"]).thousands, "as a program writes it"
    unsure = decided(["1,234", "2,345", "1234"], 9)
    assert unsure.kind == "categorical"
    assert "numbers such as '1,234' may have a decimal mark or thousands" in unsure.note


@pytest.mark.parametrize(
    "values",
    [
        ["12-34", "12-35", "99-01"],
        ["1.2.3", "1.2.4", "1.10.0"],
        ["12,34,56", "1,2,3", "7,77,7"],
        ["555-1234", "555-9876", "(030) 555"],
        ["+49 30 1234", "+49 30 5678", "+1 555 123"],
        ["$01234", "$01235", "$00001"],
        ["12:30", "09:45", "23:59"],
        ["A 12", "A 13", "SKU 14"],
        ["USD", "EUR", "$"],
        ["5 kg", "6 kg", "7 kg"],
    ],
)
def test_codes_are_no_numbers(values):
    column = decided(values, 5)
    assert isinstance(column, Column)
    assert column.kind == "categorical"
    assert column.note == ""


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["$5", "€7", "$8"], "amounts in several currencies ($ and €): make them one"),
        (["5%", "7%", "0.08"], "some numbers have a percent sign and some have none"),
        (["1.5", "1,5", "2.25", "3,75"], "numbers written in several ways, such as '1.5' and '1,5'"),
        (["1,234.5", "2,345.5", "1.234,5"], "such as '1,234.5' and '1.234,5'"),
    ],
)
def test_numbers_that_cannot_be_read_for_sure_stay_text_with_a_word(values, words):
    column = decided(values, 5)
    assert column.kind == "categorical"
    assert column.note.startswith("not read as numbers: ")
    assert words in column.note


def test_text_that_looks_like_numbers():
    values = [f"{row % 30}.5" for row in range(96)]
    column = decided([*values, "a", "b", "c", "d"])
    assert column.kind == "categorical"
    assert column.note.endswith("looks like numbers except for 'a', 'b', 'c' and 1 more")
    assert decided([*values, "a", "b", "c", "c"]).kind == "numeric"
    assert "looks like" not in decided(["1.5", "2.5", "3.5", *"abcd"], 9).note, "not nine of ten"
    different = decided([f"${row},{row:03d}.50" for row in range(1, 190)] + ["a", "b", "c", "d"])
    assert "identifier" in different.reason
    assert different.reason.endswith("looks like numbers except for 'a', 'b', 'c' and 1 more")


def test_whole_numbers_in_order_are_an_identifier_however_written():
    assert "identifier" in decided([f"{row:,}" for row in range(900, 1200)]).reason


def test_large_numbers_with_separators_are_kept_exactly():
    schema = schema_of([f"{2**24 + 3 * (row % 5):,}" for row in range(50)])
    assert schema.dtype == np.float64
    assert scored(schema, ["16,777,219"])[0] == 2**24 + 3


# Scoring


PLAIN = schema_of(["1.5", "2.25", "3"] * 9)
TYPED = schema_of(np.array([1.5, 2.25, 3.0] * 9))
COMMA = schema_of(["1,5", "2,25", "3"] * 9)
GROUPED = schema_of(["1,234.5", "2.25", "3"] * 9)


@pytest.mark.parametrize(
    ("schema", "values", "numbers"),
    [
        (PLAIN, ["1,5", "7", "1,234"], [1.5, 7, 1.234]),
        (TYPED, ["1,5", "", "0,125"], [1.5, np.nan, 0.125]),
        (COMMA, ["1.5", "7", "1.234"], [1.5, 7, 1.234]),
        (GROUPED, ["1.234,5", "7", "1.234"], [1234.5, 7, 1234]),
        (GROUPED, ["1,234", "7.5"], [1234, 7.5]),
    ],
)
def test_point_and_comma_may_change_roles_where_that_is_sure(schema, values, numbers):
    np.testing.assert_allclose(scored(schema, values), numbers, rtol=1e-6)


@pytest.mark.parametrize(
    ("schema", "values", "words"),
    [
        (
            PLAIN,
            ["7", "1,234"],
            r"'1,234' in row 2, which may have a decimal mark or thousands;",
        ),
        (COMMA, ["1.234", "7"], r"'1.234' in row 1, .* training had the decimal comma"),
        (PLAIN, ["1.5", "1,5"], r"'1,5' in row 2, which is no number as in training"),
        (COMMA, ["1,5", "1.5"], r"'1.5' in row 2, which is no number as in training"),
        (PLAIN, ["1,5", "1.234,5"], r"'1,5' in row 1, which is no number"),
        (PLAIN, ["$5"], r"'\$5' in row 1, which is no number"),
        (PLAIN, ["5%"], r"'5%' in row 1, which is no number"),
        (schema_of(["$5.5", "$6", "$7"] * 5), ["€5"], r"'€5' in row 1, which is no number"),
        (schema_of(["5.5%", "6%", "7%"] * 5), ["0.055"], r"'0.055' in row 1, which is no number"),
    ],
)
def test_what_can_be_meant_otherwise_is_refused(schema, values, words):
    with pytest.raises(ValueError, match=words):
        scored(schema, values)


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_a_file_read_in_batches_gives_the_matrix_of_the_whole(tmp_path, rows):
    path = tmp_path / "payments.csv"
    amounts = [f"{row * 37.25:,.2f}".translate(str.maketrans(",.", ".,")) + " €" for row in range(100)]
    lines = [f"{amount};{row % 2}" for row, amount in enumerate(amounts)]
    path.write_text("\n".join(["amount;y", *lines]) + "\n", encoding="utf-8")
    schema = learn_schema(read_table(path), "y")
    batches = open_batches(path, columns=["amount"], rows=rows)
    pieces = [schema.matrix(batch) for batch in batches]
    np.testing.assert_array_equal(np.vstack(pieces)[:, 0], np.arange(100) * np.float32(37.25))


def test_a_schema_written_before_formats_were_known_is_read():
    values = json.loads(json.dumps(COMMA.to_dict()))
    for column in values["columns"]:
        for name in ("thousands", "currency", "percent", "parentheses", "date_format"):
            del column[name]
    del values["time_format"]
    assert Schema.from_dict(values) == COMMA


def german(number):
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


@given(
    numbers=st.lists(st.integers(-(10**12), 10**12).map(lambda cents: cents / 100), min_size=1, max_size=30),
    comma=st.booleans(),
    money=st.sampled_from(["", "$", "EUR"]),
)
def test_what_was_written_is_read(numbers, comma, money):
    texts = [f"{money} {german(number) if comma else f'{number:,.2f}'}".strip() for number in numbers]
    found = find_format(pa.array(texts))
    assert found.format is not None
    assert found.note == ""
    assert found.format.comma == comma
    assert numbers_written(pa.array(texts), found.format).to_pylist() == numbers


@given(st.lists(st.text("0123456789.,+-$€%() ", max_size=8), min_size=1, max_size=12))
def test_no_text_breaks_the_search(texts):
    found = find_format(pa.array(texts))
    assert found.format is None or isinstance(found.format, NumberFormat)
    decide("x", pa.array(texts))


def test_many_amounts_are_read_quickly():
    cents = np.random.default_rng(0).integers(0, 10**8, 300_000)
    values = pa.array([f"${cent / 100:,.2f}" for cent in cents.tolist()])
    start = time.process_time()
    column = decide("x", values)
    assert time.process_time() - start < 6
    assert (column.kind, column.thousands) == ("numeric", True)
