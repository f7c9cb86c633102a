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

from raresight.tables import learn_schema, make_profile, summarize_parts
from raresight.tables.duplicates import count_repeated, count_shared, whole_rows
from raresight.tables.profile import auc_alone

RNG = np.random.default_rng(0)
N = 4000
Y = (np.arange(N) % 40 == 0).astype(int)


def profile_of(columns, y=Y, **options):
    table = pa.table({**columns, "y": y})
    schema = learn_schema(table, "y")
    options = {"fpr": 0.01, "max_fpr": 0.1, **options}
    return make_profile(summarize_parts(table), schema, schema.matrix(table), schema.labels(table), **options)


def judged(positives, negatives):
    """Test rows of one number that no training row has."""
    labels = np.repeat(np.array([1, 0], dtype=np.int8), [positives, negatives])
    return np.random.default_rng(2).standard_normal((len(labels), 1)).astype(np.float32), labels


def profile_with_test(columns, test_columns, y=Y, test_y=None):
    """The schema is learned from all rows, as in a run that holds some out."""
    test_y = np.arange(len(next(iter(test_columns.values())))) % 40 == 0 if test_y is None else test_y
    train, test = pa.table({**columns, "y": y}), pa.table({**test_columns, "y": np.asarray(test_y, int)})
    schema = learn_schema(pa.concat_tables([train, test]), "y")
    test_rows = schema.matrix(test), schema.labels(test)
    X, labels = schema.matrix(train), schema.labels(train)
    return make_profile(summarize_parts(train), schema, X, labels, fpr=0.02, max_fpr=0.1, test=test_rows)


def noise(rows=N):
    return np.random.default_rng(1).standard_normal(rows)


def test_a_sound_table_has_no_warning():
    columns = {"a": noise(), "c": RNG.choice(["p", "q"], N)}
    others = {"a": np.random.default_rng(5).standard_normal(2000), "c": RNG.choice(["p", "q"], 2000)}
    profile = profile_with_test(columns, others)
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
    ("test", "fpr", "words"),
    [
        (judged(10, 390), 0.001, "390 negatives, so not even one false positive is expected at"),
        (judged(50, 1950), 0.001, "about 1.9 false positives are expected at the false-positive rate 0.001"),
        (judged(25, 975), 0.005, "975 negatives, so about 4.9 false positives"),
        (judged(0, 3900), 0.01, "the test rows have only 0 positives;"),
        (judged(1, 3999), 0.1, "the test rows have only 1 positive;"),
        (judged(99, 1), 0.001, "the test rows have 1 negative, so"),
    ],
)
def test_test_rows_that_cannot_tell_are_counted(test, fpr, words):
    warnings = profile_of({"a": noise()}, test=test, fpr=fpr).warnings
    assert any(words in warning for warning in warnings), warnings


def test_many_positives_in_the_test_rows_are_no_concern():
    # By the share of the training rows, 2.5 %, there would be five.
    assert profile_of({"a": noise()}, test=judged(100, 2000)).warnings == ()


def test_test_rows_that_cannot_tell_candidates_apart():
    assert "195 negatives: too few to compare them" in " ".join(
        profile_of({"a": noise()}, test=judged(5, 195), fpr=0.0001, max_fpr=0.001).warnings
    )


# Test rows and training rows


def test_test_rows_that_are_among_the_training_rows_are_counted():
    fresh = np.random.default_rng(5).standard_normal(1000)
    some = fresh.copy()
    some[1:31] = noise()[1:31]
    some[40] = noise()[41]  # its label is another one
    (warning,) = profile_with_test({"a": noise()}, {"a": some}).warnings
    assert warning == (
        "30 of the 1000 test rows are also among the training rows (3%): the result flatters the model"
    )
    some[2:31] = fresh[2:31]
    assert profile_with_test({"a": noise()}, {"a": some}).warnings == (), "one in a thousand may be chance"
    some[2] = noise()[2]
    assert "(0.2%)" in profile_with_test({"a": noise()}, {"a": some}).warnings[0]


def test_a_test_file_that_is_the_training_data():
    (warning,) = profile_with_test({"a": noise()}, {"a": noise()}).warnings
    assert warning == (
        "4000 of the 4000 test rows are also among the training rows (100%): the result flatters the model; "
        "the test file seems to be the training data"
    )


def test_rows_of_few_different_values_are_no_proof_of_a_copied_file():
    columns = {"a": np.arange(N) % 80 * 0.5}
    warnings = profile_with_test(columns, columns).warnings
    assert "3920 of 4000 training rows repeat another one" in warnings[0]
    assert "4000 of the 4000 test rows" in warnings[1]
    assert "seems to be" not in warnings[1]


def test_levels_that_no_training_row_has():
    fresh = np.random.default_rng(5).standard_normal(1000)
    words = np.array(["p", "q"])
    columns = {"a": noise(), **{name: words[np.arange(N) % 2] for name in "bcdef"}}
    test = {"a": fresh, **{name: words[np.arange(1000) % 2].astype("<U8") for name in "bcdef"}}
    assert profile_with_test(columns, test).warnings == ()
    test["b"][:40] = "new"
    assert profile_with_test(columns, test).warnings == (), "few are no concern"
    test["b"][:100] = "new"
    test["c"][:400] = ""
    (warning,) = profile_with_test(columns, test).warnings
    assert warning == (
        "test rows hold a category that no training row has, or no value, in 'c' (40%), 'b' (10%); "
        "the model has learned nothing about these"
    )
    columns["c"] = np.where(np.arange(N) % 3 == 0, "", columns["c"])
    test["d"][:200] = "new"
    test["e"][:300] = "new"
    test["f"][:60] = "new"
    (warning,) = profile_with_test(columns, test).warnings
    assert "in 'e' (30%), 'd' (20%), 'b' (10%) and 1 more;" in warning, "'c' was missing in training, too"


@pytest.mark.parametrize(
    ("columns", "y", "words"),
    [
        ({"a": noise(150)}, np.arange(150) % 10 == 0, "only 150 rows"),
        ({"a": noise(1000)}, np.arange(1000) % 50 == 0, "only 20 positives"),
        ({"a": noise()}, np.arange(N) % 2 == 0, "50% of the rows are positive, which is not rare"),
        ({"a": noise(), "e": [1.0] * 100 + [None] * (N - 100)}, Y, "missing in 'e' (98%)"),
        ({"a": np.arange(N) % 80 * 0.5}, Y, "3920 of 4000 training rows repeat another one"),
        ({"a": noise()}, np.where(Y == 1, "left", "right"), "'left' was taken as the positive value"),
        (
            {"a": noise(), "n": [f"{row % 50}.5" for row in range(N - 8)] + [*"abcd"] * 2},
            Y,
            "column 'n': looks like numbers except for 'a', 'b', 'c' and 1 more",
        ),
        (
            {"a": noise(), "n": [f"{'$€'[row % 2]}{row}.5" for row in range(N)]},
            Y,
            "not read as numbers: amounts in several currencies ($ and €)",
        ),
    ],
)
def test_warnings(columns, y, words):
    warnings = profile_of(columns, y).warnings
    assert any(words in warning for warning in warnings), warnings


@pytest.mark.parametrize(
    ("positives", "words"),
    [
        (1, "only 1 positive:"),
        (4, "only 4 positives:"),
        (96, "only 4 negatives:"),
    ],
)
def test_too_few_of_a_class_are_refused(positives, words):
    with pytest.raises(ValueError, match="a model cannot be chosen and evaluated") as caught:
        profile_of({"a": noise(100)}, np.arange(100) < positives)
    assert words in str(caught.value)


def test_a_profile_is_json():
    profile = profile_of({"a": noise(), "constant": [1] * N})
    again = json.loads(json.dumps(profile.to_dict()))
    assert again["columns"][0]["name"] == "a"
    assert again["dropped"] == [
        {"name": "constant", "reason": "constant: always 1", "example": "1", "role": "not used"}
    ]
    assert again["positives"] == 100


def test_the_terminal_names_each_column():
    columns = {"a": noise(), "c": RNG.choice(["p", "q"], N)}
    columns["when"] = [f"{row % 28 + 1:02d}.01.24" for row in range(N)]
    columns["day"] = [20240101 + row % 28 for row in range(N)]
    columns["zip"] = [f"0{row % 9}" for row in range(N)]
    columns["\x1b[2Jwiped"] = [f"\x1b[2J{row % 9}" for row in range(N)]
    dropped = {f"d{number}": [number] * N for number in range(8)}
    profile = profile_of({**columns, **dropped})
    _, *lines = profile.column_summary().splitlines()
    assert len(lines) == 14
    assert "\x1b" not in "".join(lines)
    for name, words in (
        ("a", ("numeric", "such as")),
        ("c", ("categorical", "such as '")),
        ("when", ("date", "such as 01.01.24", "DD.MM.YY")),
        ("day", ("date", "such as 20240101", "YYYYMMDD")),
        ("zip", ("categorical", "such as '00'", "codes")),
        ("d3", ("not used", "such as '3'", "constant: always 3")),
    ):
        line = next(line for line in lines if line.startswith(f"  {name}: "))
        assert all(word in line for word in words), line
    decisions = {one["name"]: one for one in profile.decisions()}
    assert decisions["day"]["format"] == "YYYYMMDD"
    assert decisions["d3"]["role"] == "not used"
    assert next(one.distinct for one in profile.columns if one.name == "day") == 28


def test_columns_that_split_the_rows_have_their_role():
    table = pa.table({"a": noise(), "who": np.arange(N) % 50, "when": np.arange(N) % 40 + 20240101, "y": Y})
    for role in ("time", "group"):
        schema = learn_schema(table, "y", **{role: "who"})
        profile = make_profile(
            summarize_parts(table), schema, schema.matrix(table), schema.labels(table), fpr=0.01, max_fpr=0.1
        )
        assert {one["name"]: one["role"] for one in profile.decisions()}["who"] == role
        assert "not used" not in profile.column_summary()


def test_of_many_columns_the_doubtful_are_named_first():
    columns = {f"a{number}": noise() for number in range(40)}
    columns["zip"] = [f"0{row % 9}" for row in range(N)]
    _, *lines = profile_of({**columns, "same": [1] * N}).column_summary().splitlines()
    assert lines[0].startswith("  zip: ")
    assert lines[1].startswith("  same: ")
    assert (len(lines), lines[-1]) == (31, "  and 12 more")


small = st.sampled_from([0.0, -0.0, 1.0, 2.5, float("nan")])


@given(rows=st.lists(st.tuples(small, small, st.integers(0, 1)), min_size=1, max_size=40), wide=st.booleans())
def test_repeated_rows_are_counted_exactly(rows, wide):
    X = np.array([row[:2] for row in rows], dtype=np.float64 if wide else np.float32)
    y = np.array([row[2] for row in rows])
    distinct = {tuple("nan" if value != value else value + 0.0 for value in row) for row in rows}
    assert count_repeated(X, y) == len(rows) - len(distinct)


@given(
    rows=st.lists(st.tuples(small, small, st.integers(0, 1)), max_size=40),
    others=st.lists(st.tuples(small, small, st.integers(0, 1)), max_size=40),
    wide=st.booleans(),
)
def test_shared_rows_are_counted_exactly(rows, others, wide):
    def arrays(side):
        X = np.array([row[:2] for row in side], dtype=np.float64 if wide else np.float32).reshape(-1, 2)
        return X, np.array([row[2] for row in side], dtype=np.int8)

    def keys(side):
        return [tuple("nan" if value != value else value + 0.0 for value in row) for row in side]

    known = set(keys(rows))
    shared = sum(key in known for key in keys(others))
    assert count_shared(*arrays(rows), *arrays(others)) == shared
    # What serves if two different rows have one hash.
    assert np.isin(whole_rows(*arrays(others)), whole_rows(*arrays(rows))).sum() == shared
    assert len(np.unique(whole_rows(*arrays(rows)))) == len(known)


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
    make_profile(
        summarize_parts(table), schema, X, labels, fpr=0.001, max_fpr=0.01, test=(X[:70_000], labels[:70_000])
    )
    assert time.process_time() - start < 4
