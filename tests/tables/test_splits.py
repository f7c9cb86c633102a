"""Splits: at random within classes, by time, by group."""

from __future__ import annotations

import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raresight.tables import make_folds, split_rows

N = 1000
Y = (np.arange(N) % 50 == 7).astype(int)


def assert_partition(split, rows=N):
    together = np.concatenate([split.train, split.test])
    np.testing.assert_array_equal(np.sort(together), np.arange(rows))
    assert (np.diff(split.train) > 0).all()
    assert (np.diff(split.test) > 0).all()


@pytest.mark.parametrize("test_size", [0.1, 0.25, 0.5, 0.9])
def test_random_splits_keep_the_share_of_positives(test_size):
    split = split_rows(Y, test_size=test_size, seed=1)
    assert_partition(split)
    assert len(split.test) == pytest.approx(test_size * N, abs=1)
    assert Y[split.test].sum() == round(test_size * 20)


def test_the_seed_decides_the_draw():
    def draw(seed):
        return split_rows(Y, test_size=0.25, seed=seed).test.tolist()

    assert draw(1) == draw(1) != draw(2)


def test_two_positives_go_to_both_sides():
    y = np.zeros(50)
    y[[3, 4]] = 1
    split = split_rows(y, test_size=0.01, seed=0)
    assert y[split.test].sum() == y[split.train].sum() == 1


def test_one_positive_cannot_be_split():
    with pytest.raises(ValueError, match=r"at least 2 positive rows, one for each side; seen: 1"):
        split_rows([0, 0, 0, 1], test_size=0.5, seed=0)


def test_by_time_the_test_rows_are_the_latest():
    times = np.random.default_rng(0).permutation(N)
    split = split_rows(Y, test_size=0.25, seed=0, times=times)
    assert_partition(split)
    assert len(split.test) == 250
    assert times[split.train].max() < times[split.test].min()


def test_by_time_equal_times_stay_together():
    times = np.repeat([1, 2, 3, 4], [300, 400, 200, 100])
    split = split_rows(Y, test_size=0.25, seed=0, times=times)
    assert set(times[split.test]) == {3, 4}
    assert set(times[split.train]) == {1, 2}


@pytest.mark.parametrize(
    "times",
    [
        np.arange(N) * 0.5,
        np.datetime64("2024-01-01") + np.arange(N),
        [datetime.date(2024, 1, 1) + datetime.timedelta(days=row) for row in range(N)],
    ],
    ids=["float", "datetime64", "dates"],
)
def test_times_of_several_types(times):
    np.testing.assert_array_equal(split_rows(Y, test_size=0.2, seed=0, times=times).test, np.arange(800, N))


def test_by_time_a_side_without_positives_is_refused():
    for y, side in (
        (np.arange(N) < 10, "test rows, the latest"),
        (np.arange(N) > 980, "training rows, the earliest"),
    ):
        with pytest.raises(ValueError, match=f"the {side} .* have no positive; use another test size"):
            split_rows(y.astype(int), test_size=0.25, seed=0, times=np.arange(N))
    with pytest.raises(ValueError, match="all rows have the same time"):
        split_rows(Y, test_size=0.25, seed=0, times=np.ones(N))


def test_by_group_no_group_is_on_both_sides():
    groups = np.random.default_rng(0).integers(0, 60, N)
    split = split_rows(Y, test_size=0.25, seed=0, groups=groups)
    assert_partition(split)
    assert not set(groups[split.train]) & set(groups[split.test])
    assert len(split.test) == pytest.approx(250, abs=25)
    assert Y[split.test].sum() == pytest.approx(5, abs=1)


def test_by_group_with_names_and_unequal_sizes():
    rng = np.random.default_rng(0)
    groups = np.array([f"customer {int(number)}" for number in rng.exponential(20, N)])
    split = split_rows(Y, test_size=0.3, seed=0, groups=groups)
    assert not set(groups[split.train]) & set(groups[split.test])
    assert Y[split.test].any()
    assert Y[split.train].any()


def test_by_group_what_cannot_be_split():
    with pytest.raises(ValueError, match="all rows are of one group"):
        split_rows(Y, test_size=0.25, seed=0, groups=np.zeros(N))
    with pytest.raises(ValueError, match=r"cannot be split so that both sides have both classes"):
        split_rows(Y, test_size=0.25, seed=0, groups=Y)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"test_size": 0}, "test_size must be between 0 and 1"),
        ({"test_size": 1.5}, "test_size must be between 0 and 1"),
        ({"times": np.arange(3)}, "times has 3 values for 1000 rows"),
        ({"times": np.where(Y, np.nan, 1.0)}, "times has missing values"),
        ({"y": Y + 1}, "labels must be 0 or 1"),
        ({"y": np.zeros((3, 2))}, "labels must have one dimension"),
    ],
)
def test_inputs_are_checked(options, reason):
    with pytest.raises(ValueError, match=reason):
        split_rows(**{"y": Y, "test_size": 0.25, "seed": 0, **options})


def assert_folds(folds, y):
    for fold in folds:
        for rows in (fold.train, fold.test):
            assert set(np.asarray(y)[rows]) == {0, 1}
        assert not set(fold.train) & set(fold.test)


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_random_folds_judge_every_row_once(count):
    folds = make_folds(Y, count, seed=0)
    assert len(folds) == count
    assert_folds(folds, Y)
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.test for fold in folds])), np.arange(N))
    assert {len(fold.test) for fold in folds} <= {N // count, N // count + 1}
    assert np.ptp([Y[fold.test].sum() for fold in folds]) <= 1


def test_group_folds_judge_every_group_once():
    groups = np.random.default_rng(0).integers(0, 90, N)
    folds = make_folds(Y, 5, seed=0, groups=groups)
    assert len(folds) == 5
    assert_folds(folds, Y)
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.test for fold in folds])), np.arange(N))
    for fold in folds:
        assert not set(groups[fold.train]) & set(groups[fold.test])
        assert len(fold.test) == pytest.approx(200, abs=15)


def test_time_folds_expand_and_judge_later_stretches():
    times = np.random.default_rng(0).permutation(N)
    folds = make_folds(Y, 4, seed=0, times=times)
    assert [len(fold.train) for fold in folds] == [200, 400, 600, 800]
    assert [len(fold.test) for fold in folds] == [200] * 4
    for fold in folds:
        assert times[fold.train].max() < times[fold.test].min()


def test_fewer_folds_where_positives_are_few():
    y = np.zeros(100, dtype=int)
    y[[10, 50, 90]] = 1
    assert len(make_folds(y, 10, seed=0)) == 3
    assert len(make_folds(y, 10, seed=0, times=np.arange(100))) == 2
    assert_folds(make_folds(y, 10, seed=0, times=np.arange(100)), y)
    assert len(make_folds(y, 10, seed=0, groups=np.arange(100) // 10)) == 3


@pytest.mark.parametrize(
    ("y", "options"),
    [
        ([0] * 20 + [1], {}),
        ([0] * 10 + [1] * 10, {"groups": [0] * 10 + [1] * 10}),
        ([1] * 5 + [0] * 15, {"times": range(20)}),
        ([0, 1] * 10, {"times": [1, 2] * 10}),
    ],
)
def test_no_two_folds(y, options):
    with pytest.raises(ValueError, match="no two folds with both classes on both sides can be made"):
        make_folds(y, 5, seed=0, **options)


def test_a_single_fold_is_refused():
    with pytest.raises(ValueError, match="n_folds must be at least 2"):
        make_folds(Y, 1, seed=0)


@given(
    y=st.lists(st.integers(0, 1), min_size=4, max_size=60),
    count=st.integers(2, 6),
    seed=st.integers(0, 5),
    way=st.sampled_from(["random", "time", "group", "both"]),
    modulus=st.integers(2, 20),
)
def test_folds_are_sound_or_refused(y, count, seed, way, modulus):
    marks = np.arange(len(y)) * 7 % modulus
    options = {
        "random": {},
        "time": {"times": marks},
        "group": {"groups": marks},
        "both": {"times": np.arange(len(y)) // 3, "groups": marks},
    }[way]
    try:
        folds = make_folds(y, count, seed=seed, **options)
    except ValueError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert refusal.startswith(("no two folds", "all rows are of one group"))
        return
    assert 2 <= len(folds) <= count
    assert_folds(folds, y)
    for fold in folds:
        if way == "time":
            assert marks[fold.train].max() < marks[fold.test].min()
        elif way in ("group", "both"):
            assert not set(marks[fold.train]) & set(marks[fold.test])


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("visits", [1, 4, 40], ids=["newcomers", "some come back", "all come back"])
def test_by_time_and_group_test_rows_are_later_and_of_other_groups(visits, seed):
    rng = np.random.default_rng(seed)
    rows = 4000
    groups, times = rng.integers(0, rows // visits, rows), rng.permutation(rows)
    y = (rng.random(rows) < 0.1).astype(int)
    splits = [split_rows(y, test_size=0.25, seed=seed, times=times, groups=groups)]
    splits += make_folds(y, 3, seed=seed, times=times, groups=groups)
    assert len(splits) == 4
    for split in splits:
        assert times[split.train].max() < times[split.test].min()
        assert not set(groups[split.train]) & set(groups[split.test])
        assert (np.diff(split.train) > 0).all()
        assert (np.diff(split.test) > 0).all()
        for side in (split.train, split.test):
            assert 0.05 < y[side].mean() < 0.2
    train, test = len(splits[0].train), len(splits[0].test)
    # The sides keep about their proportion, and at most half of the rows are left out.
    assert 0.15 < test / (train + test) < 0.35
    assert train + test >= 0.49 * rows
    by_time = split_rows(y, test_size=0.25, seed=seed, times=times)
    assert set(splits[0].train) <= set(by_time.train)
    alone = split_rows(y, test_size=0.25, seed=seed, times=times, groups=np.arange(rows))
    np.testing.assert_array_equal(alone.train, by_time.train)


def test_by_time_and_group_what_cannot_be_split():
    y = np.tile([0, 0, 0, 1], 10)
    groups = np.where(y == 1, 0, np.arange(40))
    with pytest.raises(ValueError, match=r"by time and by group: the .* rows have no positive"):
        split_rows(y, test_size=0.25, seed=0, times=np.arange(40), groups=groups)
