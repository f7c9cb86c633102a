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
from raresight.tables.schema import summarize_parts

START = datetime.datetime(2024, 1, 25, 6, 30)
MOMENTS = [START + datetime.timedelta(hours=7 * row) for row in range(200)]
Y = [int(row % 10 == 0) for row in range(200)]
FORMATS = {
    "MM/DD/YYYY": "%m/%d/%Y",
    "DD/MM/YYYY": "%d/%m/%Y",
    "DD.MM.YYYY": "%d.%m.%Y",
    "YYYY/MM/DD": "%Y/%m/%d",
    "YYYY.MM.DD": "%Y.%m.%d",
    "MM-DD-YYYY": "%m-%d-%Y",
    "DD-MM-YYYY": "%d-%m-%Y",
    "DD Mon YYYY": "%d-%b-%Y",
    "Mon DD, YYYY": "%B %d, %Y",
    "MM/DD/YY": "%m/%d/%y",
    "DD/MM/YY": "%d/%m/%y",
    "DD.MM.YY": "%d.%m.%y",
    "DD Mon YY": "%d-%b-%y",
}


def learned(texts, **options):
    table = pa.table({"when": texts, "x": np.arange(len(texts)) % 7 * 0.5, "y": Y[: len(texts)]})
    schema = learn_schema(table, "y", **options)
    return table, Schema.from_dict(json.loads(json.dumps(schema.to_dict())), schema.arrays())


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "time", ["", " %H:%M", " %H:%M:%S", " %I:%M %p", ", %I:%M:%S.%f %p", "T%H:%M:%S,%f+00:00"]
)
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
        if format.endswith((" YY", "/YY", ".YY")):
            continue  # these need a part above 12, and years from 1969 to 2068
        texts = pa.array([day.strftime(pattern) for day in days])
        found = find_date_format(texts)
        assert format in found
        clear = any(day.day > 12 for day in days) or ("/YYYY" not in format and "-YYYY" not in format)
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


@pytest.mark.parametrize(
    ("text", "format", "read"),
    [
        ("2021-4-1 1:30 PM", "YYYY-MM-DD", "2021-04-01 13:30"),
        ("2021-04-01 12:00:00.123 UTC", "YYYY-MM-DD", "2021-04-01 12:00:00.123"),
        ("2021-04-01 12:00:00 +0230", "YYYY-MM-DD", "2021-04-01 09:30"),
        ("01/Apr/2021:22:30:00 -0500", "DD Mon YYYY", "2021-04-02 03:30"),
        ("01APR2021", "DD Mon YYYY", "2021-04-01"),
        ("Thu, 1 April 2021 10:00:00 GMT", "DD Mon YYYY", "2021-04-01 10:00"),
        ("Sept. 3rd, 2021", "Mon DD, YYYY", "2021-09-03"),
        ("20210401T123000Z", "YYYYMMDDThhmmss", "2021-04-01 12:30"),
        ("4/13/2021, 12:05:00\u202fAM", "MM/DD/YYYY", "2021-04-13 00:05"),
        ("4/13/2021 12 p.m.", "MM/DD/YYYY", "2021-04-13 12:00"),
        ("13/1/68", "DD/MM/YY", "2068-01-13"),
        ("13/1/69", "DD/MM/YY", "1969-01-13"),
        ("28-feb-00", "DD Mon YY", "2000-02-28"),
        ("Sun Jul 11 02:00:00 2021", "Mon DD hh:mm:ss YYYY", "2021-07-11 02:00"),
        ("Sun Jul  4 02:00:00 UTC 2021", "Mon DD hh:mm:ss YYYY", "2021-07-04 02:00"),
    ],
)
def test_other_ways_to_write_a_date(text, format, read):
    expected = int(np.datetime64(read, "us").astype(int))
    for type_ in (pa.string(), pa.large_string()):
        values = pa.array([text, None], type_)
        assert find_date_format(values) == (format,)
        assert moments_written(values, format).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    "text",
    [
        "30/02/2021",
        "29-Feb-2021",
        "31/05/2024 12",
        "31/05/2024 24:00",
        "31/05/2024 13:00 PM",
        "2021-13-01 1 PM",
    ],
)
def test_what_is_in_no_calendar_is_no_date(text):
    assert find_date_format(pa.array([text])) == ()


def test_what_looks_like_dates_and_is_not_read_says_so():
    for texts in (
        [f"1/{row % 12 + 1}/24" for row in range(200)],
        [f"{row % 9 + 1} Mai 2024" for row in range(200)],
        [f"{row % 9 + 1}. März 2024" for row in range(200)],
        [f"{row % 9 + 1} février 2024" for row in range(200)],
        [f"So Mär {row % 9 + 1} 02:00:00 2021" for row in range(200)],
    ):
        column = learned(texts)[1].columns[0]
        assert column.kind == "categorical"
        assert "not read as dates" in column.note
    assert learned([f"1.{row % 5}.{row % 7}" for row in range(200)])[1].columns[0].note == ""


def test_the_day_may_show_late():
    texts = [f"1/2/24 {row // 60 % 24}:{row % 60:02d}" for row in range(1400)] + ["1/13/24 0:00"]
    table = pa.table({"when": texts, "x": np.arange(1401) % 7 * 0.5, "y": np.arange(1401) % 9 == 0})
    assert learn_schema(table, "y").columns[0].date_format == "MM/DD/YY"


NUMBERS = [int(moment.strftime("%Y%m%d")) for moment in MOMENTS]
WITH_TIME = [int(moment.strftime("%Y%m%d%H%M%S")) for moment in MOMENTS]


@pytest.mark.parametrize("write", [int, float, str, "{}.0".format])
@pytest.mark.parametrize("with_time", [False, True])
def test_whole_numbers_that_are_dates(write, with_time):
    values = [write(number) for number in (WITH_TIME if with_time else NUMBERS)]
    table, schema = learned(values)
    iso_table, iso_schema = learned([str(m) if with_time else str(m.date()) for m in MOMENTS])
    assert schema.columns[0].date_format == ("YYYYMMDDhhmmss" if with_time else "YYYYMMDD")
    expected = iso_schema.matrix(iso_table)
    np.testing.assert_array_equal(schema.matrix(table), expected)
    # The type may change between training and scoring.
    for other in (int, str):
        numbers = [other(number) for number in (WITH_TIME if with_time else NUMBERS)]
        again = pa.table({"when": numbers, "x": table["x"]})
        np.testing.assert_array_equal(schema.matrix(again), expected)
    with pytest.raises(ValueError, match=r"column 'when' holds '20240230' in row 1, which is no date"):
        schema.matrix(pa.table({"when": ["20240230"], "x": [0.5]}))


def test_zeros_and_nines_among_dates_are_missing():
    numbers = [0 if row % 9 == 0 else 99999999 if row % 9 == 1 else NUMBERS[row] for row in range(200)]
    for values in (numbers, [f"{number:08d}" for number in numbers]):
        table, schema = learned(values)
        assert schema.columns[0].date_format == "YYYYMMDD"
        assert "0 and 99999999 taken as missing" in schema.columns[0].note
        np.testing.assert_array_equal(np.isnan(schema.matrix(table)[:, 0]), np.arange(200) % 9 < 2)
        found = schema.matrix(pa.table({"when": [0.0, 99999999.0, None, 20240131.0], "x": [0.0] * 4}))
        np.testing.assert_array_equal(found[:, 0], [np.nan, np.nan, np.nan, 19753])
    with pytest.raises(ValueError, match=r"column 'when' holds 'x' in row 1, which is no date"):
        schema.matrix(pa.table({"when": ["x"], "x": [0.0]}))


@pytest.mark.parametrize(
    "numbers",
    [
        [20240101 + row % 40 for row in range(200)],  # 20240132
        [20240101 + row % 2 for row in range(200)],  # too few
        [18500101 + row % 28 for row in range(200)],
        [20240101.5 + row % 28 for row in range(200)],
        [0] * 100 + [99999999] * 100,
    ],
)
def test_numbers_that_are_no_dates(numbers):
    assert learned(numbers)[1].columns[0].kind == "numeric"


@pytest.mark.parametrize("write", [int, float, str, "{}.0".format])
@pytest.mark.parametrize("wrong", [20210230, 18991231])
def test_a_wrong_date_among_many_leaves_the_others_dates(write, wrong):
    numbers = [*NUMBERS[:199], wrong]
    table, schema = learned([write(number) for number in numbers])
    column = schema.columns[0]
    assert (column.kind, column.date_format) == ("date", "YYYYMMDD")
    found = schema.matrix(table)[:, 0]
    if wrong == 20210230:
        assert "20210230 taken as missing" in column.note
        assert np.flatnonzero(np.isnan(found)).tolist() == [199]
    else:
        assert found[199] == np.datetime64("1899-12-31").astype(int)
    for other in (int, float, str, "{}.0".format):
        again = pa.table({"when": [other(number) for number in numbers], "x": table["x"]})
        np.testing.assert_array_equal(schema.matrix(again)[:, 0], found)
    # The parts of a table decide as the whole.
    cuts = [table.slice(0, 150), table.slice(150)]
    parts = summarize_parts(cuts[0]).merge(summarize_parts(cuts[1]))
    assert learn_schema(parts, "y").columns[0] == column


def test_minutes_without_seconds():
    table, schema = learned([number // 100 for number in WITH_TIME])
    assert schema.columns[0].date_format == "YYYYMMDDhhmm"
    expected = [np.datetime64(moment, "m").astype(int) / 1440 for moment in MOMENTS]
    found = schema.matrix(table)
    np.testing.assert_allclose(found[:, 0] + found[:, 1] / 24, expected, atol=0.01)


@pytest.mark.parametrize("write", [int, str])
def test_many_wrong_dates_leave_numbers_with_a_note(write):
    for wrong in ([20210230 + row for row in range(8)], [20210230] * 15):
        column = learned([write(n) for n in [*NUMBERS[: 200 - len(wrong)], *wrong]])[1].columns[0]
        assert column.kind == "numeric"
        assert "not read as dates YYYYMMDD: most are, but" in column.note
