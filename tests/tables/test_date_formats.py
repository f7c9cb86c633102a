"""Dates as people write them, as features and as the time column."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raresight.tables import Schema, learn_schema
from raresight.tables.date_formats import find_date_format, moments_written

START = datetime.datetime(2024, 1, 25, 6, 30)
MOMENTS = [START + datetime.timedelta(hours=7 * row) for row in range(200)]
Y = [int(row % 10 == 0) for row in range(200)]
FORMATS = {
    "MM/DD/YYYY": "%m/%d/%Y",
    "DD/MM/YYYY": "%d/%m/%Y",
    "DD.MM.YYYY": "%d.%m.%Y",
}


def learned(texts, **options):
    table = pa.table({"when": texts, "x": np.arange(len(texts)) % 7 * 0.5, "y": Y[: len(texts)]})
    schema = learn_schema(table, "y", **options)
    return table, Schema.from_dict(json.loads(json.dumps(schema.to_dict())))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("time", ["", " %H:%M", " %H:%M:%S"])
def test_dates_are_features_and_order_rows(format, time):
    texts = [moment.strftime(FORMATS[format] + time) for moment in MOMENTS]
    iso = [moment.isoformat() if time else str(moment.date()) for moment in MOMENTS]
    table, schema = learned(texts)
    iso_table, iso_schema = learned(iso)
    assert schema.columns[0].date_format == format
    assert schema.columns[0].note == f"dates read as {format}"
    assert schema.feature_names == iso_schema.feature_names
    np.testing.assert_array_equal(schema.matrix(table), iso_schema.matrix(iso_table))
    np.testing.assert_array_equal(schema.matrix(iso_table), iso_schema.matrix(iso_table))
    table, by_time = learned(texts, time="when")
    assert by_time.time_format == format
    np.testing.assert_array_equal(by_time.times(table), learned(iso, time="when")[1].times(iso_table))
    # A part of the rows may not tell day from month any more; the schema does.
    few = table.slice(60, 3)
    np.testing.assert_array_equal(by_time.times(few), by_time.times(table)[60:63])
    np.testing.assert_array_equal(schema.matrix(few), schema.matrix(table)[60:63])


def test_one_digit_will_do():
    moments = moments_written(pa.array(["1/2/1970 9:05", "12/31/1969"]), "MM/DD/YYYY")
    assert moments.to_pylist() == [(24 * 60 + 9 * 60 + 5) * 60_000_000, -86_400_000_000]


def test_dates_that_can_be_read_in_two_ways():
    texts = [f"0{row % 9 + 1}/{row % 12 + 1:02d}/2024" for row in range(200)]
    texts[0] = "05/06/2024"
    words = r"'05/06/2024' may be 2024-05-06 \(MM/DD/YYYY\) or 2024-06-05 \(DD/MM/YYYY\), and no value"
    with pytest.raises(ValueError, match="the time column 'when' can be read in two ways: " + words):
        learned(texts, time="when")
    _, schema = learned(texts)
    column = schema.columns[0]
    assert column.kind == "categorical"
    assert "not read as dates: '05/06/2024' may be" in column.note


def test_dates_in_two_orders_are_no_time():
    texts = ["05/31/2024", "31/05/2024"] * 100
    with pytest.raises(ValueError, match=r"'31/05/2024' in row 2, .* nor a date of the form MM/DD/YYYY"):
        learned([*texts[:199], "06/30/2024"], time="when")


def test_what_is_no_date_is_refused():
    texts = [moment.strftime("%d.%m.%Y") for moment in MOMENTS]
    _, schema = learned(texts)
    table = pa.table({"when": ["01.02.2024", "30.02.2024"], "x": [0.0, 0.0]})
    with pytest.raises(ValueError, match=r"'30.02.2024' in row 2, which is no date of the form DD.MM.YYYY"):
        schema.matrix(table)
    with pytest.raises(ValueError, match=r"'soon' in row 4, which is neither a number nor a date of"):
        learned([*texts[:3], "soon", *texts[4:]], time="when")


@pytest.mark.parametrize(
    "values", [["1.2.3"], ["10.10.10"], ["1/2"], ["13/13/2024"], ["1/2/24"], ["word", ""]]
)
def test_no_dates(values):
    assert find_date_format(pa.array(values)) == ()


@given(st.lists(st.dates(datetime.date(1900, 1, 1), datetime.date(2200, 1, 1)), min_size=1, max_size=20))
def test_the_format_is_among_those_found(days):
    for format, pattern in FORMATS.items():
        texts = pa.array([day.strftime(pattern) for day in days])
        found = find_date_format(texts)
        assert format in found
        clear = any(day.day > 12 for day in days) or format == "DD.MM.YYYY"
        # With day and month the same, both readings are one.
        assert (len(found) == 1) == clear
        micros = [(day - datetime.date(1970, 1, 1)).days * 86_400_000_000 for day in days]
        assert moments_written(texts, format).to_pylist() == micros


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
def test_texts_of_either_size_are_dates(type_):
    """pandas and polars give large texts, files small ones."""
    for format, text in (("DD.MM.YYYY", "2.1.1970 03:04:05"), ("MM/DD/YYYY", "01/02/1970 03:04:05")):
        found = moments_written(pa.array([text, None], type_), format)
        assert found.to_pylist() == [(86_400 + 3 * 3600 + 4 * 60 + 5) * 1_000_000, None]
