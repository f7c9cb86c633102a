"""Options are checked before anything is read, and one record of them serves all."""

import inspect
import shlex

import pytest
import typer

import raresight
from raresight import cli
from raresight.automl.options import PRESETS, Options, default_folder, read_duration

GOOD = {"target": "y", "jobs": 2}


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


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_a_time_that_grows_with_the_table(preset):
    options = Options(**GOOD, preset=preset)
    assert (options.trials, options.budget) == (None, None)
    usual = PRESETS[preset]
    assert options.seconds(1000, 5) == options.seconds(300_000, 30) == usual
    assert options.seconds(600_000, 30) == options.seconds(300_000, 60) == 2 * usual
    assert options.seconds(10**8, 1000) == 10 * usual  # above that, time is asked for
    times = [options.seconds(rows, 30) for rows in range(100_000, 5_000_000, 50_000)]
    assert times == sorted(times)


def test_presets_are_in_order_and_one_of_them_is_the_default():
    assert list(PRESETS.values()) == sorted(set(PRESETS.values()))
    assert Options(**GOOD).preset == "default"
    assert Options(**GOOD) == Options(**GOOD, preset="default")


def test_a_limit_that_is_given_is_the_only_one():
    """Neither grows with the table, and a number of candidates has no time."""
    assert Options(**GOOD, trials=5).seconds(10**7, 100) is None
    assert Options(**GOOD, budget="5m").seconds(10**7, 100) == 300
    assert Options(**GOOD, budget="5m", preset="best").seconds(10**7, 100) == 300
    both = Options(**GOOD, trials=5, budget="5m")
    assert (both.trials, both.seconds(10, 10)) == (5, 300)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fpr": 0}, "fpr"),
        ({"fpr": 1.5}, "fpr"),
        ({"max_fpr": "a"}, "max_fpr"),
        ({"time": "a", "group": "a"}, "time and group name the same column"),
        ({"time": "y"}, "target"),
        ({"min_gain": -0.1}, "min_gain"),
        ({"min_gain": float("nan")}, "min_gain"),
        ({"test_size": 1}, "test_size"),
        ({"trials": 0}, "trials"),
        ({"trials": True}, "trials"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"jobs": 0}, "jobs"),
        ({"target": ""}, "target"),
        ({"preset": "slow"}, "preset must be one of quick, default, best"),
    ],
)
def test_bad_options(wrong, message):
    with pytest.raises(ValueError, match=message):
        Options(**GOOD | wrong)


def test_folder_is_named_after_the_data():
    assert str(default_folder("some/payments.csv.gz")) == "payments-fit"
    assert str(default_folder(object())) == "raresight-fit"


@pytest.mark.parametrize(
    ("fpr", "given", "used"), [(0.001, None, 0.01), (0.05, None, 0.05), (0.05, 0.02, 0.02)]
)
def test_models_are_chosen_where_they_are_used(fpr, given, used):
    assert Options(**GOOD | {"fpr": fpr, "max_fpr": given}).max_fpr == used


def test_columns_to_leave_out():
    assert Options(**GOOD).drop == ()
    assert Options(**GOOD, drop="a").drop == ("a",)
    assert Options(**GOOD, drop=["a", "b", "a"]).drop == ("a", "b")
    for wrong in ("y", ["when"], [3]):
        with pytest.raises(ValueError, match="drop names columns not to learn from"):
            Options(**GOOD | {"time": "when"}, drop=wrong)


def test_columns_to_keep():
    assert Options(**GOOD).keep == ()
    assert Options(**GOOD, drop="b", keep=["a", "a"]).keep == ("a",)
    for wrong in ("y", ["b"], [3]):
        with pytest.raises(ValueError, match="keep names columns to learn from"):
            Options(**GOOD, drop="b", keep=wrong)


def parsed(command):
    """The options that the command line reads, as the command does."""
    read = (
        typer.main.get_command(cli.app).commands["fit"].make_context("fit", shlex.split(command)[2:]).params
    )
    return Options(**{name: read[name] for name in ["data", *(one.name for one in Options.typed())]})


def test_one_record_serves_the_command_python_and_the_line_that_repeats():
    names = [one.name for one in Options.typed()]
    assert set(names) <= set(inspect.signature(raresight.fit).parameters)
    assert all(f"        {name}: " in raresight.fit.__doc__ for name in names)
    options = Options(
        data="a table.csv", target="is fraud", positive="-1", fpr=1 / 3, max_fpr=0.5, group="shop",
        drop=("a", "b c"), keep=("d",), families="linear", losses="tbl(alpha=0.7,C=1),focal", trials=7,
        budget="1h30m", single=True, min_gain=0.25, test_size=0.2, seed=3, jobs=1,
    )  # fmt: skip
    assert parsed(options.command() + " --jobs 1") == options
    usual = Options(data="a.csv", target="y", preset="quick", jobs=1)
    assert "--preset quick" in usual.command()
    assert "--single" not in usual.command()
    assert parsed(usual.command() + " --jobs 1") == usual
    apart = Options(data="a.csv", test="b.csv", target="y", trials=1, jobs=1)
    assert parsed(apart.command() + " --jobs 1") == apart


def test_a_wrong_name_is_answered_with_the_right_one():
    with pytest.raises(TypeError, match="no option 'max_frp'; did you mean 'max_fpr'"):
        raresight.fit("sample", target="Class", max_frp=0.1)
    with pytest.raises(TypeError, match="needs the option 'target'"):
        raresight.fit("sample")
