"""Tables for the tests of boosting."""

from __future__ import annotations

import numpy as np


def rare_table(rows: int, prior: float, seed: int = 0, columns: int = 6):
    """Rows whose positives are shifted and interact; exactly `prior * rows` positives, in random order."""
    rng = np.random.default_rng(seed)
    positives = max(round(prior * rows), 1)
    X = rng.standard_normal((rows, columns), dtype=np.float32)
    X[:positives, 0] += 2.0
    sign = rng.choice(np.array([-1, 1], dtype=np.float32), positives)
    X[:positives, 1] = np.abs(X[:positives, 1]) * sign + sign
    X[:positives, 2] = np.abs(X[:positives, 2]) * sign + sign
    y = np.zeros(rows, dtype=np.int64)
    y[:positives] = 1
    order = rng.permutation(rows)
    return X[order], y[order]
