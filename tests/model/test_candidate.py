"""Candidates: what is accepted, and their texts."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from raresight.model.families import FAMILIES, Candidate, installed_families


def test_parameters_are_kept_sorted_as_numbers():
    one = Candidate("xgboost", "tbl", (("max_depth", 4.0), ("learning_rate", 1)))
    two = Candidate("xgboost", "tbl", (("learning_rate", np.float64(1.0)), ("max_depth", np.int64(4))))
    assert one == two
    assert hash(one) == hash(two)
    assert one.parameters == (("learning_rate", 1.0), ("max_depth", 4))
    assert [type(value) for _, value in one.parameters] == [float, int]
    assert one.text == "xgboost, tbl, learning_rate=1.0, max_depth=4"
    assert one.describe() == "XGBoost, tbl, learning rate 1, max depth 4"


@pytest.mark.parametrize("family", FAMILIES)
def test_json_round_trip_and_defaults(family):
    plain = Candidate(family, "crossentropy")
    assert plain.settings() == FAMILIES[family].defaults
    full = Candidate(
        family,
        "tbl(alpha=0.1,C=0.3)",
        tuple(
            (name, 0.1 + 2 / 3 if value != int(value) else 7)
            for name, value in FAMILIES[family].defaults.items()
        ),
    )
    for candidate in (plain, full):
        assert Candidate.from_dict(json.loads(json.dumps(candidate.to_dict()))) == candidate


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("forest", "tbl"), "unknown family 'forest'; known are linear, lightgbm, xgboost"),
        (("linear", "tbl", (("num_leaves", 3),)), "linear has no parameter 'num_leaves' here; it has l2"),
        (("linear", "tbl", (("l2", float("nan")),)), "l2 must be a finite number"),
        (("linear", "tbl", (("l2", -1.0),)), "l2 must be a finite number of at least 0"),
        (("lightgbm", "tbl", (("num_leaves", 3.5),)), "num_leaves must be a whole number"),
        (("lightgbm", "tbl", (("num_leaves", 3), ("num_leaves", 4))), "num_leaves is given twice"),
    ],
)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Candidate(*arguments)


def test_refused_types():
    with pytest.raises(TypeError, match="loss is a text"):
        Candidate("linear", 3)
    with pytest.raises(TypeError, match="l2 must be a number, got True"):
        Candidate("linear", "tbl", (("l2", True),))
    with pytest.raises(ValueError, match="described by family, loss and parameters"):
        Candidate.from_dict({"family": "linear"})


def test_families_without_their_library_are_left_out():
    assert installed_families() == tuple(FAMILIES)
    script = (
        "import sys; sys.modules['lightgbm'] = None\n"
        "from raresight.model.families import installed_families\nprint(installed_families())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "('linear', 'xgboost', 'deep', 'tabm', 'tabnet')"
