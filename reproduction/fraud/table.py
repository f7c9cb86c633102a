"""The ULB card-fraud table: reading it, splitting it, and naming it in results.

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
    """Four stratified folds of all rows, `repeats` times; the last quarter in time after the first three."""
    from sklearn.model_selection import RepeatedStratifiedKFold

    keys = split_keys(repeats)
    folds = RepeatedStratifiedKFold(n_splits=FOLDS, n_repeats=repeats, random_state=seed)
    cut = int(len(table.y) * (1 - TIME_SHARE))
    in_time = np.arange(cut), np.arange(cut, len(table.y))
    return dict(zip(keys, [*folds.split(table.X, table.y), in_time], strict=True))


def split_keys(repeats: int) -> list[Key]:
    """The names of the splits, in order.

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

ABOUT = "fraud_about.json"
_ADVICE = "write to another folder by --out"
_GIVE = "give the table, too, by --data"


@dataclass(frozen=True)
class About:
    """A table and the seed of the splits and fits on it.

    Attributes:
        rows: Without exact duplicates.
        frauds: Among them.
        digest: Of all values.
        duplicates: Rows that were dropped.
        seed: Of splits and fits.
    """

    rows: int
    frauds: int
    digest: str
    duplicates: int
    seed: int

    @property
    def table(self) -> dict[str, Any]:
        """As the journal of the nets has it."""
        return {"rows": self.rows, "frauds": self.frauds, "digest": self.digest}


def about_of(table: CardFraud, seed: int) -> About:
    return About(**described(table), duplicates=table.duplicates, seed=seed)


def described(table: CardFraud) -> dict[str, Any]:
    """The table in short: rows, frauds, and a digest of all its values."""
    digest = hashlib.sha256(np.ascontiguousarray(table.X).tobytes())
    digest.update(np.ascontiguousarray(table.y).tobytes())
    return {"rows": len(table.y), "frauds": int(table.y.sum()), "digest": digest.hexdigest()[:16]}


def about_text(about: About) -> str:
    """What a folder says of which table and seed its results are."""
    return json.dumps(asdict(about), indent=2) + "\n"


def read_about(out: Path) -> About:
    """Of which table and seed the results of a folder are, where no table is given to compare with."""
    path = out / ABOUT
    if not path.exists():
        raise ValueError(f"{out} has no results of fraud, or does not say of which table they are: {_GIVE}")
    return _read_about(path)


def check_same_run(out: Path, each: Sequence[Record], about: About) -> None:
    """An error where the results in a folder are of another table or seed: they would mix or be lost.

    Args:
        out: The folder.
        each: The rows of its `fraud_splits.csv`.
        about: The table whose results are to be added, and the seed.
    """
    path = out / ABOUT
    if not each and not path.exists():
        return
    if not path.exists():
        raise ValueError(f"the results in {out} do not say of which table they are: {_ADVICE}")
    known = _read_about(path)
    if known.seed != about.seed:
        raise ValueError(
            f"the results in {out} are of seed {known.seed}, but this run has seed {about.seed}: {_ADVICE}"
        )
    if known.table != about.table:
        same_counts = (known.rows, known.frauds) == (about.rows, about.frauds)
        seen = "other values" if same_counts else f"{about.rows:,} rows, {about.frauds} frauds"
        raise ValueError(
            f"the results in {out} are of a table with {known.rows:,} rows, {known.frauds} frauds, but "
            f"this one has {seen}: {_ADVICE}"
        )


def _read_about(path: Path) -> About:
    try:
        return About(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        raise ValueError(f"{path} is damaged: {_ADVICE}") from None
