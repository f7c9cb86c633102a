"""Options are checked before anything is read."""

import pytest

from raresight.automl.options import (
    DEFAULT_BUDGET,
    DEFAULT_TRIALS,
    default_folder,
    make_options,
    read_duration,
)

GOOD = {
    "target": "y", "positive": None, "fpr": 0.001, "max_fpr": 0.01, "time": None, "group": None,
    "budget": None, "trials": None, "test_size": 0.25, "seed": 0, "jobs": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("0.5m", 30), (12, 12), ("2H", 7200)]
)
def test_durations(text, seconds):
    assert read_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["soon", "", "5", "m", "5x", "-3m", "5m soon", 0, -1, float("inf"), float("nan")]
)
def test_what_is_no_duration(text):
    with pytest.raises(ValueError, match="time"):
        read_duration(text)


def test_defaults_are_a_number_and_a_time():
    options = make_options(**GOOD)
    assert (options.trials, options.seconds) == (DEFAULT_TRIALS, DEFAULT_BUDGET)


def test_one_limit_given_is_the_only_one():
    assert make_options(**GOOD | {"trials": 5}).seconds is None
    assert make_options(**GOOD | {"budget": "5m"}).trials is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fpr": 0}, "fpr"),
        ({"fpr": 1.5}, "fpr"),
        ({"max_fpr": "a"}, "max_fpr"),
        ({"time": "a", "group": "b"}, "time or by group"),
        ({"time": "y"}, "target"),
        ({"test_size": 1}, "test_size"),
        ({"trials": 0}, "trials"),
        ({"trials": True}, "trials"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"jobs": 0}, "jobs"),
        ({"target": ""}, "target"),
    ],
)
def test_bad_options(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_options(**GOOD | wrong)


def test_folder_is_named_after_the_data():
    assert str(default_folder("some/payments.csv.gz")) == "payments-fit"
    assert str(default_folder(object())) == "raresight-fit"


@pytest.mark.parametrize(
    ("fpr", "given", "used"), [(0.001, None, 0.01), (0.05, None, 0.05), (0.05, 0.02, 0.02)]
)
def test_models_are_chosen_where_they_are_used(fpr, given, used):
    assert make_options(**GOOD | {"fpr": fpr, "max_fpr": given}).max_fpr == used


def test_columns_to_leave_out():
    assert make_options(**GOOD).drop == ()
    assert make_options(**GOOD, drop="a").drop == ("a",)
    assert make_options(**GOOD, drop=["a", "b", "a"]).drop == ("a", "b")
    for wrong in ("y", ["when"], [3]):
        with pytest.raises(ValueError, match="drop names columns not to learn from"):
            make_options(**GOOD | {"time": "when"}, drop=wrong)
