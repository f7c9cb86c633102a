"""The counting on a device gives the steps of the counting in NumPy. (A CPU tensor stands for any device.)"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raresight.metrics import _torch_roc_steps
from raresight.metrics._roc_steps import steps_of
from raresight.metrics._torch_roc_steps import torch_steps
from raresight.metrics.ranking import auc_of, partial_auc_of, recall_at_fpr_of
from score_cases import score_rows

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device here"
))]  # fmt: skip


@pytest.mark.parametrize("device", DEVICES)
@given(score_rows(), st.sampled_from([0.001, 0.01, 0.1, 0.5, 1.0]), st.sampled_from([7, 1 << 25]))
def test_same_metrics(device, rows, rate, piece):
    y, s, w = rows
    ours = steps_of(y, s, w, rate)
    weights = None if w is None else torch.tensor(w, device=device)
    _torch_roc_steps.PIECE, kept = piece, _torch_roc_steps.PIECE
    try:
        theirs = torch_steps(torch.tensor(y), torch.tensor(s, device=device), weights, rate)
    finally:
        _torch_roc_steps.PIECE = kept
    assert theirs.positives == pytest.approx(ours.positives)
    for of in (
        lambda steps: partial_auc_of(steps, rate, "area"),
        lambda steps: recall_at_fpr_of(steps, rate),
        lambda steps: recall_at_fpr_of(steps, rate, interpolate=True),
        auc_of if rate == 1 else lambda steps: 0,
    ):
        assert of(theirs) == pytest.approx(of(ours), abs=1e-12)


def test_tail_of_many_rows():
    generator = np.random.default_rng(0)
    y = generator.random(200_000) < 0.01
    s = (generator.normal(size=len(y)) + y).astype(np.float32)
    ours, theirs = steps_of(y, s, None, 0.01), torch_steps(y, torch.tensor(s), None, 0.01)
    assert len(theirs.gain) < 0.2 * y.sum()
    assert partial_auc_of(theirs, 0.01, "mean") == partial_auc_of(ours, 0.01, "mean")


@pytest.mark.parametrize(("y", "s", "w", "message"), [
    ([], [], None, "empty"),
    ([0, 1], [0.1], None, "y_score has 1"),
    ([0, 1], [0.1, np.nan], None, "NaN.* row 1"),
    ([0, 2], [0.1, 0.2], None, "row 1 holds 2"),
    ([0, 0], [0.1, 0.2], None, "no positive row"),
    ([1, 1], [0.1, 0.2], None, "no negative row"),
    ([0, 1], [0.1, 0.2], [1, -1], "row 1 holds -1"),
    ([0, 1], [0.1, 0.2], [1], "sample_weight has 1"),
    ([0, 1], [[0.1], [0.2]], None, "one dimension"),
])  # fmt: skip
def test_bad_rows_are_named(y, s, w, message):
    with pytest.raises(ValueError, match=message):
        torch_steps(torch.tensor(y), torch.tensor(s), w, 1.0)


def test_close_integers_are_refused():
    with pytest.raises(ValueError, match=r"2\*\*53"):
        torch_steps([1, 0], torch.tensor([2**53 + 1, 2**53]), None, 1.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
def test_other_types_of_score(dtype):
    s = torch.tensor([1, 5, 3, 2], dtype=dtype)
    assert auc_of(torch_steps([0, 1, 1, 0], s, None, 1.0)) == 1.0
