"""Rows that hold the same share a group, whatever the type of the table."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from raresight.common import row_groups as module
from raresight.common.row_groups import row_groups, row_hashes

VALUES = [0.0, -0.0, 1.0, -3.5, float("nan"), -float("nan")]
ROWS = st.lists(
    st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES), st.integers(0, 1)), min_size=1, max_size=30
)


@given(ROWS)
@settings(deadline=None)
def test_groups_are_those_of_equal_rows(rows):
    X, y = np.array([row[:2] for row in rows]), np.array([row[2] for row in rows])
    keys = [tuple("gap" if value != value else value + 0.0 for value in row) for row in rows]
    with_label, without = row_groups(X, y), row_groups(X)
    for i, one in enumerate(keys):
        for j, other in enumerate(keys):
            assert (with_label[i] == with_label[j]) == (one == other)
            assert (without[i] == without[j]) == (one[:2] == other[:2])


def test_types_and_blocks_do_not_matter(monkeypatch):
    X, y = np.random.default_rng(0).integers(-5, 5, size=(200, 4)), np.arange(200) % 2
    expected = row_hashes(X.astype(float), y)
    monkeypatch.setattr(module, "_BLOCK", 7)
    for other in (X.astype(np.float32), np.asfortranarray(X.astype(float)), pd.DataFrame(X).to_numpy(float)):
        assert np.array_equal(row_hashes(other, y), expected)


def test_columns_and_labels_have_places_of_their_own():
    X, y = np.random.default_rng(0).normal(size=(500, 3)), np.arange(500) % 2
    hashes = row_hashes(X, y)
    assert len(set(hashes)) == 500
    for other in (row_hashes(X[:, ::-1], y), row_hashes(X, 1 - y), row_hashes(X, y + 2)):
        assert not set(hashes) & set(other)
    # The label is no bit of the first column.
    near = np.array([[1.0], [np.nextafter(1.0, 2.0)]])
    assert len(set(row_hashes(near, np.array([1, 0])))) == 2
