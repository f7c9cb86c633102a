"""Tables for the tests of deep classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np


def ring_table(rows: int, *, seed: int = 0, columns: int = 3) -> tuple[Any, Any]:
    """About one in twelve is positive, those far from the middle of two columns: no line separates them."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, columns))
    radius = X[:, 0] ** 2 + X[:, 1] ** 2
    return X, (random.random(rows) < 1 / (1 + np.exp(9 - 2 * radius))).astype(int)


def mixed_frame(rows: int, *, seed: int = 0) -> tuple[Any, Any]:
    """Amounts with gaps and a long tail, a shop as text, and a code; positives prefer one shop."""
    import pandas as pd

    random = np.random.default_rng(seed)
    y = (random.random(rows) < 0.1).astype(int)
    amount = np.exp(random.normal(size=rows) + y)
    amount[random.random(rows) < 0.1 + 0.2 * y] = np.nan
    shop = np.where(y & (random.random(rows) < 0.6), "east", random.choice(["north", "south", "west"], rows))
    frame = pd.DataFrame(
        {
            "amount": amount,
            "shop": pd.Categorical(shop, categories=["west", "south", "north", "east", "nowhere"]),
            "code": random.integers(0, 4, rows),
        }
    )
    frame.loc[:4, "shop"] = np.nan
    return frame, y
