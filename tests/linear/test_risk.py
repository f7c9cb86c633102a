"""The objective far from its minimum."""

from __future__ import annotations

import numpy as np

from raresight.linear.reading import make_sample
from raresight.linear.risk import Request, evaluate
from raresight.losses import Alpha


def test_sums_that_overflow_are_quiet_and_not_finite():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(500, 3)).astype(np.float32)
    labels = (np.arange(500) % 10 == 0).astype(float)
    sample = make_sample(X, labels.astype(int), None, 2, True)
    here = evaluate(sample, [Request(Alpha(0.5), 0.0, np.full(4, 1e3), 2, double=False)])[0]
    assert not np.isfinite(here.gradient).all()
