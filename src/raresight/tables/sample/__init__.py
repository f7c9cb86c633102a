"""The bundled sample of real card payments: see README.md beside the file for its source and licence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["load_sample", "sample_path"]


def sample_path() -> Path:
    """Return the path of the bundled Parquet file.

    Example:
        >>> sample_path().name
        'card_fraud_sample.parquet'
    """
    return Path(__file__).parent / "card_fraud_sample.parquet"


def load_sample() -> Any:
    """Load 49,200 card payments of September 2013, 492 of them frauds, as a `pyarrow.Table`.

    Columns: `Time` in seconds, the principal components `V1` to `V28`, `Amount` in euros, and `Class`, 1 for
    a fraud. Collected by Worldline and the Machine Learning Group of ULB; Database Contents License v1.0.
    Frauds are 5.8 times as frequent here as in the full table.

    Example:
        >>> load_sample().num_rows
        49200
    """
    from raresight.tables.reader import read_table

    return read_table(sample_path())
