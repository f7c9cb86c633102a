"""The way from a source to data that is ready for a search."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from raresight.tables import fingerprint, learn_schema, read_data, read_table, split_rows

N = 3000
RNG = np.random.default_rng(0)
TABLE = pa.table(
    {
        "amount": RNG.lognormal(size=N).round(2),
        "zip": [f"{code:05d}" for code in RNG.integers(0, 30, N)],
        "when": [f"2024-{1 + row // 300:02d}-{1 + row % 28:02d}" for row in range(N)],
        "who": RNG.integers(0, 400, N),
        "fraud": (np.arange(N) % 20 == 0).astype(int),
    }
)
OPTIONS = {"target": "fraud", "fpr": 0.01, "max_fpr": 0.1}


def write(table, path):
    (pyarrow.csv.write_csv if path.suffix == ".csv" else pyarrow.parquet.write_table)(table, path)
    return path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("options", [{}, {"time": "when"}, {"group": "who"}], ids=str)
def test_data_is_what_the_whole_table_gives(tmp_path, suffix, options):
    path = write(TABLE, tmp_path / f"t{suffix}")
    data = read_data(path, **OPTIONS, **options, seed=3)
    table = read_table(path)
    schema = learn_schema(table, "fraud", **options)
    y, times, groups = schema.labels(table), schema.times(table), schema.groups(table)
    split = split_rows(y, test_size=0.25, seed=3, times=times, groups=groups)
    assert data.schema == schema
    np.testing.assert_array_equal(data.numbers, split.train + 1)
    np.testing.assert_array_equal(data.X, schema.matrix(table)[split.train])
    np.testing.assert_array_equal(data.y, y[split.train])
    np.testing.assert_array_equal(data.test.X, schema.matrix(table)[split.test])
    np.testing.assert_array_equal(data.test.y, y[split.test])
    for held_out, values in ((data.test.times, times), (data.test.groups, groups)):
        if values is None:
            assert held_out is None
        else:
            np.testing.assert_array_equal(held_out, values[split.test])
    assert data.fingerprint == fingerprint(table)
    assert data.profile.rows == len(split.train)
    assert data.search.weights is None
    for fold in data.search.folds:
        assert 0 < data.y[fold.test].sum() < len(fold.test)


def test_the_same_rows_in_parts_give_the_same_data(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    for part in range(3):
        write(TABLE.slice(part * 1000, 1000), folder / f"{part}.csv")
    parts, whole = (read_data(source, **OPTIONS) for source in (folder, write(TABLE, tmp_path / "t.csv")))
    np.testing.assert_array_equal(parts.X, whole.X)
    assert (parts.schema, parts.fingerprint) == (whole.schema, whole.fingerprint)
    assert parts.profile == whole.profile


def test_held_out_rows_may_come_from_a_source_of_their_own(tmp_path):
    other = write(TABLE.slice(1000, 500), tmp_path / "other.csv")
    data = read_data(TABLE, other, **OPTIONS)
    np.testing.assert_array_equal(data.numbers, np.arange(1, N + 1))
    np.testing.assert_array_equal(data.test.X, data.X[1000:1500])
    np.testing.assert_array_equal(data.test.y, data.y[1000:1500])


@pytest.mark.parametrize("name", ["time", "group"])
def test_held_out_rows_have_times_or_groups_where_their_source_has_them(tmp_path, name):
    column = {"time": "when", "group": "who"}[name]
    other = TABLE.slice(1000, 500)
    data = read_data(TABLE, write(other, tmp_path / "other.csv"), **OPTIONS, **{name: column})
    found, there = getattr(data.test, f"{name}s"), np.asarray(other[column])
    # The same rows share a value, whatever stands for it.
    assert len({*zip(found.tolist(), there.tolist())}) == len(np.unique(found)) == len(np.unique(there))
    if name == "group":  # a time is a feature, too
        without = write(other.drop_columns([column]), tmp_path / "without.csv")
        assert read_data(TABLE, without, **OPTIONS, group=column).test.groups is None


def test_a_value_that_fails_is_named_with_its_row_in_the_source(tmp_path):
    path = tmp_path / "other.csv"
    write(TABLE.slice(0, 70), path)
    path.write_text(path.read_text() + '"x","00001","2024-01-01",1,0\n')
    with pytest.raises(ValueError, match="column 'amount' holds 'x' in row 71"):
        read_data(TABLE, path, **OPTIONS)


def test_many_negatives_are_sampled_for_the_search():
    rows = 150_000
    table = pa.table({"x": np.arange(rows) % 7, "y": np.arange(rows) % 1000 == 0})
    data = read_data(table, target="y", fpr=0.01, max_fpr=0.1, test_size=0.2)
    assert data.y[data.search.rows].sum() == data.y.sum() == 120
    assert len(data.search.rows) == 100_120
    assert data.search.weights.sum() == pytest.approx(len(data.y))


def test_rows_of_one_class_cannot_judge(tmp_path):
    with pytest.raises(ValueError, match="the test file have no positive row"):
        read_data(TABLE, TABLE.slice(1, 10), **OPTIONS)
    with pytest.raises(ValueError, match="column names but no rows"):
        read_data(TABLE, write(TABLE.slice(0, 0), tmp_path / "t.csv"), **OPTIONS)
    with pytest.raises(ValueError, match="column names but no rows"):
        read_data(tmp_path / "t.csv", **OPTIONS)
