"""Random rows for the metrics: ties, weights, extreme priors and scores, in both precisions."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

SHAPES = {
    "spread": lambda x: x,
    "tied": lambda x: np.round(x),
    "probability": lambda x: 1 / (1 + np.exp(9 - x)),
    "huge": lambda x: np.sign(x) * np.minimum(np.exp(np.minimum(np.abs(30 * x), 80)), 3e38),
    "denormal": lambda x: np.round(x) * 1.4e-45,
    "infinite": lambda x: np.where(np.abs(x) > 1.5, np.sign(x) * np.inf, np.round(x, 1)),
    "constant": lambda x: np.zeros_like(x),
    "signed zero": lambda x: np.where(x > 1, x, np.where(x > 0, 0.0, -0.0)),
}


@st.composite
def score_rows(draw, max_rows=400):
    """(labels, scores, weights or None) with both classes present and of positive weight."""
    rows = draw(st.integers(2, max_rows))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    positives = draw(st.one_of(st.just(1), st.just(rows - 1), st.integers(1, rows - 1)))
    labels = np.zeros(rows, dtype=draw(st.sampled_from([np.int64, np.int8, np.bool_, np.float64])))
    labels[generator.permutation(rows)[:positives]] = 1
    shape = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    plain = generator.normal(size=rows) + draw(st.floats(-1, 4)) * labels
    with np.errstate(under="ignore", over="ignore"):
        scores = shape(plain).astype(draw(st.sampled_from([np.float32, np.float64])))
    weights = None
    kind = draw(st.sampled_from(["none", "uniform", "integer", "extreme"]))
    if kind == "uniform":
        weights = generator.random(rows)
    elif kind == "integer":
        weights = generator.integers(0, 4, rows).astype(np.float64)
        weights[np.argmax(labels)], weights[np.argmin(labels)] = 1, 2
    elif kind == "extreme":
        weights = 10.0 ** generator.integers(-6, 6, rows)
    return labels, scores, weights
