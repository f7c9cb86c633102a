"""Rows belong to their source alone, and constants stay constants when columns are scaled."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raresight.nn import TableRows
from reproduction.images.rows import ImageRows

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


# ---- weights -----------------------------------------------------------------------------------


def sources_with(weights):
    X, pixels = RANDOM.normal(size=(50, 2)), np.zeros((50, 3, 4, 4), np.uint8)
    return [
        TableRows(X, Y, weights),
        TableRows.standardised(X, Y, weights),
        TableRows(X, Y).like(X, Y, weights),
        TableRows.standardised(X, Y).like(X, Y, weights),
        ImageRows(pixels, Y, weights=weights, **MEANS),
    ]


@pytest.mark.parametrize("size", [1.0, 1e-320, 1e306])
def test_weights_have_a_mean_of_one(size):
    for rows in sources_with(np.arange(50) * size):
        assert rows.weights.tolist() == pytest.approx((np.arange(50) / 24.5).tolist(), rel=1e-3)
        assert rows.weights.mean().item() == pytest.approx(1)
        moved = rows.to("cpu", torch.float32)
        assert moved.weights.dtype == torch.float32
        assert torch.equal(moved.weights, rows.weights.float())


def test_weights_of_any_kind_are_copied():
    for given in (RANDOM.random(50), np.ones(50, np.float32), np.arange(50), torch.arange(50.0), Y == 1):
        rows = TableRows(np.zeros((50, 1)), Y, given)
        before = rows.weights.clone()
        given[:] = 0
        assert torch.equal(rows.weights, before)
    assert TableRows(np.zeros((50, 1)), Y, [1] * 50).weights.tolist() == [1] * 50


def test_weights_are_part_of_the_fingerprint():
    """Without them it is the one that folders of trainings know since before there were any."""
    X, pixels = np.zeros((3, 1)), np.zeros((3, 3, 2, 2), np.uint8)
    tables = [TableRows(X, [0, 1, 0], weights) for weights in (None, [1, 1, 1], [1, 2, 3], [2, 4, 6])]
    images = [ImageRows(pixels, [0, 1, 0], weights=weights, **MEANS) for weights in (None, [1, 1, 1])]
    prints = [rows.fingerprint() for rows in (*tables, *images)]
    assert len(set(prints)) == 5
    assert prints[2] == prints[3]  # which are the same weights
    assert prints[0].startswith("b4db41296acd91230b98a89992fcb5b2")
    assert prints[4].startswith("cefc2e057f186373b55372a0ea029245")


def test_class_shares():
    rows = TableRows(np.zeros((4, 1)), [0, 0, 0, 1], [1, 1, 0, 2])
    assert rows.class_counts(1) == (3, 1)
    assert rows.class_shares(1) == (0.5, 0.5)
    assert rows.class_shares(3) == (0.5, 0.5, 0.0)
    assert TableRows(np.zeros((4, 1)), [0, 0, 0, 1]).class_shares(1) == (0.75, 0.25)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (np.ones(49), ValueError, r"one number per row, 50 in all, but have shape \(49,\)"),
        (np.ones((50, 1)), ValueError, r"but have shape \(50, 1\)"),
        (1.0, ValueError, r"but have shape \(\)"),
        (np.where(np.arange(50) == 7, -1.0, 1.0), ValueError, r"not negative, but row 7 has -1\.0"),
        (np.where(np.arange(50) == 7, np.nan, 1.0), ValueError, "but row 7 has nan"),
        (np.where(np.arange(50) == 7, np.inf, 1.0), ValueError, "but row 7 has inf"),
        (np.zeros(50), ValueError, "weights must not all be zero, but those of all 50 rows are"),
        (np.full(50, "much"), TypeError, "weights must hold numbers, but hold <U4 such as 'much'"),
        (np.full(50, None), TypeError, "weights must hold numbers, but holds objects such as None"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, error, message):
    with pytest.raises(error, match=message):
        TableRows(np.zeros((50, 1)), Y, weights)
    with pytest.raises(error, match=message):
        ImageRows(np.zeros((50, 3, 4, 4), np.uint8), Y, weights=weights, **MEANS)
