"""Tails that losses declare are those of their slopes far out."""

from __future__ import annotations

import numpy as np
import pytest

from loss_cases import BINARY_LOSSES
from raresight.losses import TBL, Alpha, CrossEntropy, Erf, Focal, Poly, Squared, parse
from raresight.losses._numpy_ops import NumpyOps
from raresight.losses.tails import Tail, read_tail

EXPONENTIAL = [loss for loss in BINARY_LOSSES if loss.tail() is not None and not loss.tail().is_gaussian]


@pytest.mark.parametrize("loss", EXPONENTIAL, ids=str)
def test_slopes_follow_the_tail(loss):
    """log |l'(y, z)| is a straight line far out; the loss's own log-slopes are good beyond any underflow."""
    tail = loss.tail()
    for z in (-3e3, -3e4):
        with np.errstate(all="ignore"):
            pull, push = (float(loss._log_slopes(NumpyOps, np.array([z]), label)[0][0]) for label in (1, 0))
        at = z + tail.shift
        expected = (tail.log_pull - tail.growth * at, tail.log_push + tail.decay * at)
        assert pull - tail.log_weights[1] == pytest.approx(expected[0], rel=1e-9, abs=2e-3)
        assert push - tail.log_weights[0] == pytest.approx(expected[1], rel=1e-9, abs=2e-3)


@pytest.mark.parametrize(
    ("loss", "index"),
    [
        (CrossEntropy(), 1.0),
        (Squared(), 2.0),
        (Focal(2.0), 1.0),
        (Poly(-0.5), 1.0),
        (Poly(-1.0), 1.0),
        (Alpha(0.8), 0.8),
        (Alpha(0.3), 0.3),
        (Alpha(2.0), 2.0),
        (TBL(0.8, 0.5), 0.8),
        (TBL(0.4, 1.0), 0.4),
        (Erf(), 1.0),
        (parse("vectorscaling(delta=0.5)"), None),
    ],
    ids=str,
)
def test_decay_index(loss, index):
    if index is None:
        assert 0 < loss.tail().index <= 1
    else:
        assert loss.tail().index == pytest.approx(index, rel=1e-12)


@pytest.mark.parametrize("loss", [CrossEntropy(), Alpha(0.4), TBL(0.6, 0.5), Focal(2.0), Poly(0.5)], ids=str)
def test_tails_are_read_off(loss):
    """A loss that does not declare its tail gets the same one, read off its slopes."""
    found, known = read_tail(lambda m: loss.log_slope(NumpyOps, m)), loss.tail()
    assert isinstance(found, Tail)
    for name in ("growth", "decay", "log_pull", "log_push"):
        assert getattr(found, name) == pytest.approx(getattr(known, name), abs=1e-6)


def test_no_tail_where_it_is_not_exponential():
    assert read_tail(lambda m: (-m * m, -2 * m)) is None
    assert read_tail(lambda m: (-np.log1p(np.abs(m)), -np.sign(m) / (1 + np.abs(m)))) is None
