"""Read and split the ULB card-fraud table, and record which table and seed results are of.

It has 284,807 card payments of two days in September 2013, 492 of them frauds. Worldline and the Machine
Learning Group of the Université Libre de Bruxelles collected it and published it under the Database Contents
License. See Dal Pozzolo et al., "Calibrating probability with undersampling for unbalanced classification"
(2015). It is not part of this project: users bring the file.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.atomic_files import write_file

from .methods import Record

# ---- Reading -----------------------------------------------------------------------------------------------

FEATURES = (*(f"V{number}" for number in range(1, 29)), "LogAmount")


@dataclass(frozen=True)
class CardFraud:
    """The table ready for a model, in the order of time.

    Attributes:
        X: float32, the 28 principal components as published and log(1 + amount in euros).
        y: 1 for a fraud.
        seconds: Time since the first payment.
        duplicates: Rows that were dropped because all their columns repeat an earlier row. If kept, the same
            payment could be in the training and in the test rows of a random split.
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
        ValueError: If a column or a value is missing, or `Class` is not 0 and 1.
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
    # Compare rows before they become float32, which could make different payments equal.
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
        raise ValueError(f"the name of the file must end in .npz, but is {target.name!r}")
    content = io.BytesIO()
    np.savez_compressed(content, X=table.X, y=table.y, seconds=table.seconds, duplicates=table.duplicates)
    return write_file(target, content.getvalue())


def _read_arrays(source: Path) -> CardFraud:
    with np.load(source, allow_pickle=False) as arrays:
        missing = [name for name in ("X", "y", "seconds", "duplicates") if name not in arrays]
        if missing:
            raise ValueError(
                f"{source} is not the card-fraud table: it has no array {missing[0]!r}; write it by "
                "reproduction.fraud.table.save_card_fraud"
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


# ---- Splits ------------------------------------------------------------------------------------------------

FOLDS = 4
REPEATS = 3
TIME_SHARE = 0.25

Rows = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Training rows and test rows."""
Key = tuple[str, int, int]
"""The kind of split ("random" or "time"), the repetition, the fold."""


def splits(table: CardFraud, seed: int, repeats: int) -> dict[Key, Rows]:
    """Return all splits: four stratified folds, `repeats` times, and the last quarter in time."""
    from sklearn.model_selection import RepeatedStratifiedKFold

    keys = split_keys(repeats)
    folds = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=repeats, random_state=seed)
    cut = int(len(table.y) * (1 - TIME_SHARE))
    in_time = np.arange(cut), np.arange(cut, len(table.y))
    return dict(zip(keys, [*folds.split(table.X, table.y), in_time], strict=True))


def split_keys(repeats: int) -> list[Key]:
    """Return the names of the splits, in order.

    >>> split_keys(1)[-2:]
    [('random', 0, 3), ('time', 0, 0)]
    """
    if repeats < 1:
        raise ValueError(f"repeats must be at least 1, not {repeats}")
    return [*(("random", *divmod(place, FOLDS)) for place in range(repeats * FOLDS)), ("time", 0, 0)]


def fit_seed(seed: int, key: Key) -> int:
    """Return the seed of the fits of a split.

    >>> [fit_seed(0, key) for key in (("random", 0, 3), ("random", 1, 0), ("time", 0, 0))]
    [3, 4, 0]
    """
    _, repeat, fold = key
    return seed + FOLDS * repeat + fold


# ---- The table and seed of results -------------------------------------------------------------------------

ORIGIN_FILE = "fraud_about.json"
_ADVICE = "write to another folder by --out"
_GIVE = "give the table, too, by --data"


@dataclass(frozen=True)
class ResultsOrigin:
    """The table and the seed that results are of.

    Attributes:
        rows: Rows without exact duplicates.
        frauds: Frauds among them.
        digest: Digest of all values.
        duplicates: Exact duplicates that were dropped.
        seed: Seed of splits and fits.
    """

    rows: int
    frauds: int
    digest: str
    duplicates: int
    seed: int

    @property
    def table(self) -> dict[str, Any]:
        """Return the table without the seed, as the journals name it."""
        return {"rows": self.rows, "frauds": self.frauds, "digest": self.digest}


def origin_of(table: CardFraud, seed: int) -> ResultsOrigin:
    """Return the origin of results on a table with a seed."""
    return ResultsOrigin(**describe_table(table), duplicates=table.duplicates, seed=seed)


def describe_table(table: CardFraud) -> dict[str, Any]:
    """Return the number of rows and frauds, and a digest of all values."""
    digest = hashlib.sha256(np.ascontiguousarray(table.X).tobytes())
    digest.update(np.ascontiguousarray(table.y).tobytes())
    return {"rows": len(table.y), "frauds": int(table.y.sum()), "digest": digest.hexdigest()[:16]}


def origin_text(origin: ResultsOrigin) -> str:
    """Return the text of `fraud_about.json`: table and seed of the results in a folder."""
    return json.dumps(asdict(origin), indent=2) + "\n"


def read_origin(out: Path) -> ResultsOrigin:
    """Read the table and the seed of the results in a folder."""
    path = out / ORIGIN_FILE
    if not path.exists():
        raise ValueError(f"{out} has no {ORIGIN_FILE}, which names the table of its results: {_GIVE}")
    return _read_origin(path)


def check_same_origin(out: Path, each: Sequence[Record], origin: ResultsOrigin) -> None:
    """Raise an error if a folder has results of another table or seed, which would mix or be lost.

    Args:
        out: The folder.
        each: The rows of its `fraud_splits.csv`.
        origin: Table and seed of the results to be added.
    """
    path = out / ORIGIN_FILE
    if not each and not path.exists():
        return
    if not path.exists():
        raise ValueError(f"{out} has no {ORIGIN_FILE}, which names the table of its results: {_ADVICE}")
    known = _read_origin(path)
    if known.seed != origin.seed:
        raise ValueError(
            f"the results in {out} have seed {known.seed}, but this run has seed {origin.seed}: {_ADVICE}"
        )
    if known.table != origin.table:
        same_counts = (known.rows, known.frauds) == (origin.rows, origin.frauds)
        seen = "other values" if same_counts else f"{origin.rows:,} rows, {origin.frauds} frauds"
        raise ValueError(
            f"the results in {out} are of a table with {known.rows:,} rows, {known.frauds} frauds, but "
            f"this one has {seen}: {_ADVICE}"
        )


def _read_origin(path: Path) -> ResultsOrigin:
    try:
        return ResultsOrigin(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise ValueError(f"{path} is damaged: {_ADVICE}") from None
