"""A small table with the columns of the ULB card-fraud table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def write_tiny_fraud(folder: Path, *, rows: int, share: float, shift: float) -> Path:
    """Write `creditcard.csv`: `share` of the rows are frauds, whose V1 is larger by `shift` and V2 wider."""
    generator = np.random.default_rng(0)
    y = generator.random(rows) < share
    frame = pd.DataFrame(generator.normal(size=(rows, 28)), columns=[f"V{n}" for n in range(1, 29)])
    frame["V1"] += shift * y
    frame["V2"] *= 1 + y
    frame.insert(0, "Time", np.arange(rows) * 10.0)
    frame["Amount"] = np.round(generator.exponential(50, rows), 2)
    frame["Class"] = y.astype(int)
    path = folder / "creditcard.csv"
    frame.to_csv(path, index=False)
    return path
