"""The ULB card-fraud table: 284,807 card payments of two days in September 2013, 492 of them frauds.

Collected by Worldline and the Machine Learning Group of the Université Libre de Bruxelles, published under
the Database Contents License. See Dal Pozzolo et al., "Calibrating probability with undersampling for
unbalanced classification" (2015). It is not part of this project: users bring the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEATURES = (*(f"V{number}" for number in range(1, 29)), "LogAmount")


@dataclass(frozen=True)
class CardFraud:
    """The table ready for a model, in the order of time.

    Attributes:
        X: float32, the 28 principal components as published and log(1 + amount in euros).
        y: 1 for a fraud.
        seconds: Time since the first payment.
        duplicates: How many rows were dropped because all their columns repeat an earlier row. Left in, the
            same payment would be in the training and in the test rows of a random split.
    """

    X: NDArray[np.float32]
    y: NDArray[np.int8]
    seconds: NDArray[np.float64]
    duplicates: int


def read_card_fraud(path: str | Path) -> CardFraud:
    """Read the table as published (`creditcard.csv`), as Parquet, or as `save_card_fraud` wrote it (`.npz`).

    Columns: `Time`, `V1` to `V28`, `Amount` in euros (or `AmountCents`, whole cents), `Class`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, a value is, or `Class` is not 0 and 1.
    """
    source = Path(path)
    if not source.is_file():
        raise FileNotFoundError(f"no file {source}; give the path of creditcard.csv or its Parquet form")
    if source.suffix.lower() == ".npz":
        return _read_arrays(source)
    table = _read_parquet(source) if source.suffix.lower() == ".parquet" else _read_csv(source)
    cents = "AmountCents" if "AmountCents" in table else "Amount"
    wanted = ["Time", *FEATURES[:-1], cents, "Class"]
    missing = [name for name in wanted if name not in table]
    if missing:
        raise ValueError(f"{source} is not the card-fraud table: it has no column {missing[0]!r}")
    rows = np.column_stack([np.asarray(table[name], dtype=np.float64) for name in wanted])
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ValueError(f"{source} has a missing value in column {wanted[column]!r}, row {row}")
    strange = ~np.isin(rows[:, -1], (0, 1))
    if strange.any():
        raise ValueError(f"{source}: Class must be 0 or 1, but is also {rows[strange, -1][0]:g}")
    first = np.sort(np.unique(rows, axis=0, return_index=True)[1])
    kept = rows[first][np.argsort(rows[first, 0], kind="stable")]
    euros = kept[:, -2] / (100 if cents == "AmountCents" else 1)
    return CardFraud(
        X=np.column_stack([kept[:, 1:-2], np.log1p(euros)]).astype(np.float32),
        y=kept[:, -1].astype(np.int8),
        seconds=kept[:, 0],
        duplicates=len(rows) - len(kept),
    )


def save_card_fraud(table: CardFraud, path: str | Path) -> Path:
    """Write the table as `.npz`, for machines that have numpy alone; `read_card_fraud` reads it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from raresight.tables.sample import sample_path
        >>> with TemporaryDirectory() as folder:
        ...     written = save_card_fraud(read_card_fraud(sample_path()), f"{folder}/payments.npz")
        ...     read_card_fraud(written).X.shape
        (49135, 29)
    """
    target = Path(path)
    if target.suffix.lower() != ".npz":
        raise ValueError(f"the table is written as .npz, not as {target.name!r}: give such a name")
    np.savez_compressed(target, X=table.X, y=table.y, seconds=table.seconds, duplicates=table.duplicates)
    return target


def _read_arrays(source: Path) -> CardFraud:
    with np.load(source, allow_pickle=False) as arrays:
        missing = [name for name in ("X", "y", "seconds", "duplicates") if name not in arrays]
        if missing:
            raise ValueError(
                f"{source} is not the card-fraud table: it has no array {missing[0]!r}; write it by "
                "reproduction.card_fraud.save_card_fraud"
            )
        return CardFraud(arrays["X"], arrays["y"], arrays["seconds"], int(arrays["duplicates"]))


def _read_parquet(source: Path) -> Mapping[str, Any]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("reading Parquet needs pyarrow: pip install 'raresight[tables]'") from error
    table = pyarrow.parquet.read_table(source)
    return {name: table[name].to_numpy() for name in table.column_names}


def _read_csv(source: Path) -> Mapping[str, Any]:
    with open(source, encoding="utf-8") as file:
        names = [name.strip().strip('"') for name in file.readline().split(",")]
        try:
            rows = np.loadtxt(file, delimiter=",", quotechar='"', ndmin=2)
        except ValueError as error:
            raise ValueError(f"{source} is not the card-fraud table: {error}") from error
    if rows.shape[1] != len(names):
        raise ValueError(f"{source} names {len(names)} columns, but its rows have {rows.shape[1]}")
    return dict(zip(names, rows.T, strict=True))
