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
@pytest.mark.parametrize(
    "options", [{}, {"time": "when"}, {"group": "who"}, {"time": "when", "group": "who"}], ids=str
)
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
    left = len(y) - len(split.train) - len(split.test)
    assert any(text.startswith(f"{left} of the {N} rows are left out") for text in data.profile.warnings) == (
        left > 0
    )
    assert (left > 0) == (len(options) == 2)
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


def _table_with_copies(times, rows=2000, seed=0):
    """`times[i]` copies of the i-th row, in random order, beside rows without copies; 1 in 20 is positive."""
    random = np.random.default_rng(seed)
    own = np.concatenate([np.repeat(np.arange(len(times)), times), len(times) + np.arange(rows)])
    own = random.permutation(own)
    values = random.normal(size=(own.max() + 1, 2)).round(6)[own]
    return pa.table({"a": values[:, 0], "b": values[:, 1], "fraud": (own % 20 == 0).astype(int)}), own


@pytest.mark.parametrize("times", [[2] * 300, [40] * 30, [1, 1500, *[7] * 100]], ids=["pairs", "many", "one"])
@pytest.mark.parametrize("seed", [0, 1])
def test_copies_of_a_row_stay_on_one_side(times, seed):
    table, own = _table_with_copies(times)
    data = read_data(table, **OPTIONS, seed=seed)
    train = own[data.numbers - 1]
    test = np.setdiff1d(np.arange(len(own)), data.numbers - 1)
    assert not set(own[test]) & set(train)
    np.testing.assert_array_equal(data.test.y, np.asarray(table["fraud"])[test])
    np.testing.assert_array_equal(data.test.X[:, 0], np.asarray(table["a"]).astype(np.float32)[test])
    np.testing.assert_array_equal(data.X[:, 0], np.asarray(table["a"]).astype(np.float32)[data.numbers - 1])
    assert data.test.y.mean() == pytest.approx(data.y.mean(), rel=0.2)
    for fold in data.search.folds:
        assert not set(train[fold.test]) & set(train[fold.train])
        assert 0 < data.y[fold.test].sum() < len(fold.test)
    assert not any("may train" in text or "also among" in text for text in data.profile.warnings)
    again = read_data(table, **OPTIONS, seed=seed)
    np.testing.assert_array_equal(data.numbers, again.numbers)
    assert not np.array_equal(data.numbers, read_data(table, **OPTIONS, seed=seed + 10).numbers)


def test_a_row_with_most_of_the_copies_is_learned_from():
    table, own = _table_with_copies([1, 5000])
    data = read_data(table, **OPTIONS)
    assert 1 in own[data.numbers - 1]
    assert len(np.unique(own[data.numbers - 1])) >= 1000
    assert any("many copies" in text for text in data.profile.warnings)


LEAKS = {
    "copy": lambda y, random: 1 - y,
    "word": lambda y, random: np.where(y == 1, "closed", random.choice(["open", "new"], len(y))),
    "middle": lambda y, random: np.where(y == 1, 3, random.choice([1, 2, 4, 5], len(y))),
    "high": lambda y, random: y * 10 + random.random(len(y)),
    "day": lambda y, random: np.where(y == 1, "2024-01-02", "2024-01-01"),
    "present": lambda y, random: pa.array([7.0 + i % 5 if label else None for i, label in enumerate(y)]),
    "lacking": lambda y, random: pa.array([None if label else 7.0 + i % 5 for i, label in enumerate(y)]),
    "charged_back": lambda y, random: pa.array(
        [f"2024-01-{1 + i % 28:02d}" if one and i % 3 else None for i, one in enumerate(y)]
    ),
    "half_lacking": lambda y, random: pa.array(
        [None if one and i % 40 else i % 9 for i, one in enumerate(y)]
    ),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_column_that_gives_the_target_away_is_left_out(name):
    y = np.asarray(TABLE["fraud"])
    table = TABLE.append_column(name, pa.array(LEAKS[name](y, np.random.default_rng(1))))
    data = read_data(table, **OPTIONS)
    without = read_data(table, **OPTIONS, drop=[name])
    assert data.profile.leaks == (name,)
    assert data.profile.doubtful == ()
    assert name in data.profile.warnings[0]
    assert any(one.name == name for one in data.schema.dropped)
    np.testing.assert_array_equal(data.X, without.X)
    np.testing.assert_array_equal(data.numbers, without.numbers)
    np.testing.assert_array_equal(data.test.X, without.test.X)
    kept = read_data(table, **OPTIONS, keep=[name])
    assert (kept.profile.leaks, kept.profile.doubtful) == ((), (name,))
    assert any(name in text for text in kept.profile.warnings)
    assert name in [column.name for column in kept.schema.columns]


HONEST = {
    "strong": lambda y, random: y * 3 + random.normal(size=len(y)),
    "a few wrong": lambda y, random: np.where(random.random(len(y)) < 0.005, 1 - y, y),
    "missing at random": lambda y, random: pa.array(
        np.where(random.random(len(y)) < 0.5, np.nan, 1.0 * (np.arange(len(y)) % 7)), from_pandas=True
    ),
    "cards alone": lambda y, random: pa.array(
        [i // 7 % 6 if one or i % 2 else None for i, one in enumerate(y)]
    ),
    "rare words": lambda y, random: [f"w{i % 900}" if i % 2 else "usual" for i in range(len(y))],
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_strong_column_is_kept(name):
    y = np.asarray(TABLE["fraud"])
    table = TABLE.append_column(name, pa.array(HONEST[name](y, np.random.default_rng(1))))
    assert read_data(table, **OPTIONS).profile.leaks == ()


def test_leaks_need_positives_and_another_column():
    y = np.arange(400) % 20 == 0
    assert (
        read_data(pa.table({"x": 1 * y, "a": RNG.normal(size=400), "fraud": y}), **OPTIONS).profile.leaks
        == ()
    )
    alone = read_data(
        pa.table({"x": np.tile(1 * y, 5) + RNG.random(2000) / 2, "fraud": np.tile(y, 5)}), **OPTIONS
    )
    assert (alone.profile.leaks, alone.profile.doubtful) == ((), ("x",))
    with pytest.raises(ValueError, match="no column to keep 'amuont'; did you mean 'amount'"):
        read_data(TABLE, **OPTIONS, keep=["amuont"])


def test_a_table_of_counts_is_split_row_by_row():
    random = np.random.default_rng(0)
    x = random.integers(0, 4, (4000, 3))
    y = (random.random(4000) < 0.03 + 0.02 * x[:, 0]).astype(int)
    table = pa.table({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "fraud": y})
    data = read_data(table, **OPTIONS, seed=3)
    np.testing.assert_array_equal(data.numbers - 1, split_rows(y, test_size=0.25, seed=3).train)
