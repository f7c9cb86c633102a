"""Rows belong to their source alone, and constants stay constants when columns are scaled."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raresight.nn import ImageRows, TableRows

RANDOM = np.random.default_rng(0)
Y = np.arange(50) % 2
MEANS = {"mean": (0.5,) * 3, "std": (0.25,) * 3}


@pytest.mark.parametrize("constant", [0.1, -1e-300, 1 / 3, 1e15 + 0.1, 0.0])
@pytest.mark.parametrize("rows", [3, 50, 1000])
def test_a_constant_column_is_not_blown_up(constant, rows):
    X = np.column_stack([np.full(rows, constant), np.arange(rows)])
    scaled = TableRows.standardised(X, np.arange(rows) % 2)
    assert scaled.values[:, 0].abs().max() <= 1e-13 * max(1, abs(constant))
    other = scaled.like([[constant + 1, 0.0]], [0])
    assert other.values[0, 0].item() == pytest.approx(1.0, abs=0.2)
    assert scaled.values[:, 1].std(correction=0).item() == pytest.approx(1)


def test_a_column_that_hardly_varies_is_scaled():
    X = 1 + 1e-9 * RANDOM.normal(size=(50, 1))
    assert TableRows.standardised(X, Y).values.std(correction=0).item() == pytest.approx(1)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_a_table_is_copied(kind):
    X, y = RANDOM.integers(0, 9, size=(50, 2)).astype(kind), Y.astype(np.uint8)
    rows = TableRows(X, y)
    before = rows.fingerprint()
    X[:], y[:] = 7, 0
    assert rows.fingerprint() == before


def test_tensors_are_copied():
    X, y = torch.zeros(50, 2), torch.zeros(50, dtype=torch.uint8)
    rows = TableRows(X, y)
    X += 1
    y += 1
    assert not rows.values.any()
    assert not rows.labels.any()


def test_images_are_copied():
    pixels = np.zeros((50, 3, 4, 4), np.uint8)
    rows = ImageRows(pixels, Y, **MEANS)
    pixels[:] = 9
    assert not rows.pixels.any()


def test_arrays_that_cannot_be_written_to_are_taken():
    """Without torch's warning, which tests make an error."""
    X, pixels, y = RANDOM.normal(size=(50, 2)), np.zeros((50, 3, 4, 4), np.uint8), Y.astype(np.uint8)
    for array in (X, pixels, y):
        array.flags.writeable = False
    TableRows(X, y)
    TableRows.standardised(X, y)
    ImageRows(pixels, y, **MEANS)


def test_rows_of_another_width_are_refused():
    X = RANDOM.normal(size=(50, 3))
    for rows in (TableRows(X, Y), TableRows.standardised(X, Y)):
        for width in (1, 2):
            with pytest.raises(ValueError, match=f"the 3 columns of these rows, but has {width}"):
                rows.like(X[:, :width], Y)
    images = ImageRows(np.zeros((50, 3, 4, 4), np.uint8), Y, **MEANS)
    with pytest.raises(ValueError, match="pixels must have 3 channels as these do, but have 1"):
        images.like(np.zeros((50, 1, 4, 4), np.uint8), Y)


def test_numbers_that_cannot_be_scaled_are_refused():
    X = RANDOM.normal(size=(50, 2))
    with pytest.raises(ValueError, match="column 1 are too large to be standardised"):
        TableRows.standardised(X * [1, 1e200], Y)
    with pytest.raises(ValueError, match="X is too large in row 1"):
        TableRows.standardised(X * 1e-150, Y).like([[0, 0], [1e200, 0]], [0, 1])
    with pytest.raises(ValueError, match="X must be finite, but row 3 is not"):
        TableRows.standardised(np.where(np.arange(50)[:, None] == 3, np.nan, X), Y)
