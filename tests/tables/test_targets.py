"""The target: two values, and which of them is the positive one."""

from __future__ import annotations

import decimal

import numpy as np
import pyarrow as pa
import pytest

from raresight.tables import learn_schema
from raresight.tables.summaries import summarize_column
from raresight.tables.targets import labels_of, learn_target


def table_of(values):
    values = values if isinstance(values, pa.Array) else pa.array(values)
    return pa.table({"x": np.arange(len(values)) * 0.5, "y": values})


@pytest.mark.parametrize(
    ("values", "asked", "positive", "labels", "guessed"),
    [
        ([0, 1, 0], None, "1", [0, 1, 0], False),
        ([1.0, 0.0, 0.0], None, "1", [1, 0, 0], False),
        ([True, False, False], None, "True", [1, 0, 0], False),
        ([-1, 1, 1], None, "1", [0, 1, 1], False),
        (["yes", "no", "yes"], None, "yes", [1, 0, 1], False),
        (["N", "Y", "Y"], None, "Y", [0, 1, 1], False),
        (["genuine", "Fraud", "Fraud"], None, "Fraud", [0, 1, 1], False),
        (["FALSE", "TRUE", "TRUE"], None, "TRUE", [0, 1, 1], False),
        (["0", "1", "1"], None, "1", [0, 1, 1], False),
        (["True", "false", "TRUE"], None, "True", [1, 0, 1], False),
        (["0.0", "1", "1.0"], None, "1", [0, 1, 1], False),
        (["01", "02", "01"], None, "02", [0, 1, 0], True),
        (["a", "b", "a"], None, "b", [0, 1, 0], True),
        ([3, 5, 5], None, "3", [1, 0, 0], True),
        (["a", "b"], None, "b", [0, 1], True),
        ([0, 1, 0], "0", "0", [1, 0, 1], False),
        ([0, 1, 0], 0, "0", [1, 0, 1], False),
        ([0, 1, 0], "1.0", "1", [0, 1, 0], False),
        ([0.0, 1.0, 0.0], "1", "1", [0, 1, 0], False),
        ([0.5, 1.5, 0.5], "0.5", "0.5", [1, 0, 1], False),
        ([True, False], "1", "True", [1, 0], False),
        ([True, False], "true", "True", [1, 0], False),
        ([True, False], False, "False", [0, 1], False),
        ([0, 1], True, "1", [0, 1], False),
        (["a", "A"], "A", "A", [0, 1], False),
        ([" >50K", " <=50K"], ">50K", " >50K", [1, 0], False),
        (["bad", "good"], np.str_("good"), "good", [0, 1], False),
        ([0, 1], np.int64(1), "1", [0, 1], False),
        (pa.array(["a", "b", "a"]).dictionary_encode(), "a", "a", [1, 0, 1], False),
    ],
)
def test_the_positive_value(values, asked, positive, labels, guessed):
    table = table_of(values)
    schema = learn_schema(table, "y", positive=asked)
    assert schema.positive == positive
    np.testing.assert_array_equal(schema.labels(table), labels)
    assert schema.labels(table).dtype == np.int8
    assert bool(schema.target_note) == guessed


@pytest.mark.parametrize(
    ("values", "asked", "reason"),
    [
        ([1, 1, 1], None, r"holds only '1' in all rows; a model needs rows of both classes"),
        (["a"] * 3, "a", r"holds only 'a'"),
        (
            [0, 1, 2, 2],
            None,
            r"must have two values, but has 3 \('2', '0', '1'\); make a column of two values",
        ),
        (list(range(30)), None, r"must have two values, but has 30 \('0', .*, …\); choose .* --target"),
        ([0, None, 1, None], None, r"is missing in 2 of 4 rows; leave out the rows whose label is not known"),
        ([0.0, float("nan"), 1.0], None, r"is missing in 1 of 3 row"),
        (["a", "", "b"], None, r"is missing in 1 of 3 row"),
        ([None, None], None, r"has no values"),
        ([0, 1], "2", r"never holds the positive value '2'; its values are '0' and '1'"),
        ([0, 1], "yes", r"never holds the positive value 'yes'"),
        (["a", "b"], "B", r"never holds the positive value 'B'"),
        ([[0], [1]], None, r"is of the type list"),
    ],
)
def test_targets_that_cannot_be_predicted(values, asked, reason):
    with pytest.raises(ValueError, match=reason):
        learn_schema(table_of(values), "y", positive=asked)


def test_labels_of_another_table():
    schema = learn_schema(table_of([0, 1, 0]), "y")
    for values in ([True, False], ["1", "0"], [1.0, 0.0], ["true", "False"]):
        np.testing.assert_array_equal(schema.labels(table_of(values)), [1, 0])
    np.testing.assert_array_equal(schema.labels(table_of([1, 1])), [1, 1])
    with pytest.raises(ValueError, match=r"holds '2' in row 3, which is neither '0' nor '1'"):
        schema.labels(table_of([0, 1, 2]))
    with pytest.raises(ValueError, match=r"missing in 1 of 2"):
        schema.labels(table_of([0, None]))
    with pytest.raises(ValueError, match="no target column 'y'"):
        schema.labels(pa.table({"x": [1]}))
    words = learn_schema(table_of(["5", "x"]), "y", positive="5")
    np.testing.assert_array_equal(words.labels(table_of([5, 5])), [1, 1])


def test_labels_of_text_and_of_numbers_mean_the_same():
    schema = learn_schema(table_of(["0", "1", "0", "1"]), "y")
    assert schema.target_kind == "number"
    for values in ([0, 1], [0.0, 1.0], [False, True], ["0.0", "1"], ["false", "true"]):
        np.testing.assert_array_equal(schema.labels(table_of(values)), [0, 1])


def test_among_numbers_a_word_for_no_value_is_a_missing_label():
    with pytest.raises(ValueError, match="missing in 1 of 5 rows"):
        learn_schema(table_of(["0", "1", "NA", "0", "1"]), "y")
    assert learn_schema(table_of(["NA", "EU", "NA"]), "y").positive == "EU"


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("low", [2**53, -(2**63), 2**63 - 2, 2**64 - 2, 10**17, 2**64, 10**20, -(10**30)])
def test_labels_that_differ_only_beyond_the_digits_of_a_float(low, as_text):
    if not as_text and not -(2**63) <= low < 2**64 - 1:
        pytest.skip("no type of whole numbers holds them")
    values = pa.array([str(value) for value in (low, low, low + 1, low)])
    values = values if as_text else values.cast(pa.uint64() if low > 2**63 else pa.int64())
    target = learn_target(summarize_column("y", values))
    assert (target.negative, target.positive) == (str(low), str(low + 1))
    assert labels_of(values, "y", target).tolist() == [0, 0, 1, 0]
    for asked in (low, low + 1):
        for written in (str(asked), f"{asked} "):
            assert learn_target(summarize_column("y", values), written).positive == str(asked)
    assert labels_of(pa.array([f" {low + 1}", f"{low} "]), "y", target).tolist() == [1, 0]


def test_labels_that_a_float_cannot_tell_apart_are_refused():
    for values in (
        pa.array([2**53, 2**53 + 1]).cast(pa.decimal128(38, 0)),
        pa.array([f"{2**53}.0", f"{2**53 + 1}.0"]),
    ):
        with pytest.raises(ValueError, match=r"9007199254740992(\.0)?, which float64 cannot"):
            learn_target(summarize_column("y", values))


def test_labels_in_a_type_that_cannot_tell_them_apart_are_refused():
    target = learn_target(summarize_column("y", pa.array([f"{10**20}", f"{10**20 + 1}"])))
    for values in (pa.array([1e20]), pa.array([decimal.Decimal(10**20)])):
        with pytest.raises(ValueError, match="which float64 cannot tell apart"):
            labels_of(values, "y", target)


def test_one_label_in_two_ways_to_write_it():
    with pytest.raises(ValueError, match="which float64 cannot"):
        learn_target(summarize_column("y", pa.array(["1e20", f"{10**20}"])))
    target = learn_target(summarize_column("y", pa.array(["1e20", f"{10**20}", f"{10**20 + 1}"])))
    assert labels_of(pa.array(["1e20", f"{10**20 + 1}"]), "y", target).tolist() == [0, 1]
