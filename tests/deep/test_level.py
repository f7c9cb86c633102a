"""The constant on the scores: it closes the gap, and nothing changes its place in the ranking."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from raresight.common.posterior import log_posterior
from raresight.deep.level import at_level, score_shift
from raresight.losses import parse

LIKE = ("crossentropy", "tbl", "alpha(alpha=0.4)", "focal", "poly(epsilon=-1.0)", "squared", "erf")
UNLIKE = (
    "ldam(class_counts=(990,10))",
    "vectorscaling(delta=0.5)",
    "logitadjusted(tbl,prior=0.01)",
    "classweighted(tbl,weights=(1.0,50.0))",
)
SEVERAL = (
    "ldam(class_counts=(990,10,50,50))",
    "logitadjusted(focal,prior=(0.7,0.1,0.1,0.1))",
    "classweighted(tbl,weights=(1.0,50.0,3.0,4.0))",
)


def normal_scores(*shape, spread, seed=0):
    return (np.random.default_rng(seed).normal(size=shape) * spread).astype(np.float32)


@pytest.mark.parametrize("spread", [0.1, 3.0, 600.0])
@pytest.mark.parametrize("prior", [0.3, 1e-6])
@pytest.mark.parametrize("text", LIKE + UNLIKE)
def test_two_classes_close(text, prior, spread):
    loss, scores = parse(text), normal_scores(2000, spread=spread)
    weights = np.random.default_rng(1).uniform(0.1, 2, 2000)
    shift = score_shift(loss, scores, np.array([1 - prior, prior]), weights)
    moved = at_level(scores, shift)
    assert np.average(loss.probability(moved), weights=weights) == pytest.approx(prior, rel=1e-6)
    assert np.array_equal(np.argsort(moved, kind="stable"), np.argsort(scores, kind="stable"))


@pytest.mark.parametrize("spread", [0.1, 3.0, 30.0])
@pytest.mark.parametrize("text", LIKE + SEVERAL)
def test_several_classes_close(text, spread):
    loss, scores = parse(text), normal_scores(600, 4, spread=spread)
    shares, weights = np.array([0.9, 0.07, 0.02, 0.01]), np.random.default_rng(1).uniform(0.1, 2, 600)
    shift = score_shift(loss, scores, shares, weights)
    assert shift[0] == 0
    log_p = log_posterior(loss, at_level(scores, shift))
    assert np.average(np.exp(log_p), axis=0, weights=weights) == pytest.approx(shares, rel=1e-6)
    if text in LIKE:
        assert np.array_equal(log_p.argmax(1), at_level(scores, shift).argmax(1))


def test_extreme_scores_keep_their_order_and_their_ties():
    """In float32 the constant would be lost, or would merge scores that lie close together."""
    top = np.float32(1e30)
    scores = np.array([-top, -20.0, 16.0, np.nextafter(np.float32(16), top), 1e15, top], np.float32)
    scores = np.concatenate([scores, [np.nextafter(top, np.float32(np.inf))], scores[-1:]])
    for constant in (-7.3, 1e-9, 1e5):
        moved = at_level(scores, np.array([constant]))
        assert np.array_equal(np.diff(moved) > 0, np.diff(scores) > 0)
        assert np.array_equal(np.diff(moved) == 0, np.diff(scores) == 0)


def test_equal_scores_become_the_share():
    loss = parse("tbl")
    shift = score_shift(loss, np.full(5, 3.0, np.float32), np.array([0.99, 0.01]), None)
    assert loss.probability(3.0 + shift[0]) == pytest.approx(0.01, rel=1e-9)


def test_what_cannot_close_is_said():
    # No constant puts a tenth of the mass on one of three scores that are this far apart.
    scores = np.array([-1e30, -1e30, 1e30])
    with pytest.warns(ConvergenceWarning, match="off its share"):
        score_shift(parse("crossentropy"), scores, np.array([0.9, 0.1]), None)
