"""Of which table and seed the results in a folder are, so that those of two never stand together."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .card_fraud import CardFraud
from .fraud_measures import Record
from .fraud_splits import FOLDS

__all__ = ["ABOUT", "About", "about_of", "about_text", "check_same_run", "described", "read_about"]

ABOUT = "fraud_about.json"
_FIRST_LINE = re.compile(r"ULB card fraud: ([\d,]+) rows .*?, (\d+) frauds\.")
_ADVICE = "write to another folder by --out"
_GIVE = "give the table, too, by --data"


@dataclass(frozen=True)
class About:
    """A table and the seed of the splits and fits on it.

    Attributes:
        rows: Without exact duplicates.
        frauds: Among them.
        digest: Of all values.
        duplicates: Rows that were dropped; None where results of older versions do not say it.
        seed: Of splits and fits.
    """

    rows: int
    frauds: int
    digest: str
    duplicates: int | None
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
    about = About(**_read_about(path))
    if about.duplicates is None:
        raise ValueError(f"{path} is of an older version and does not say all of its table: {_GIVE}")
    return about


def check_same_run(out: Path, each: Sequence[Record], about: About) -> None:
    """An error where the results in a folder are of another table or seed: they would mix or be lost.

    Args:
        out: The folder.
        each: The rows of its `fraud_splits.csv`.
        about: The table whose results are to be added, and the seed.

    Folders of older versions have no `fraud_about.json`: there the rows and frauds in the first line of
    `fraud.md` and the frauds of the folds are compared, and the seed is taken to be 0, as it is unless said
    otherwise.
    """
    path = out / ABOUT
    if not each and not path.exists():
        return
    now = asdict(about)
    known = _read_about(path) if path.exists() else _older(out, each)
    if known["seed"] != about.seed:
        raise ValueError(
            f"the results in {out} are of seed {known['seed']}, but this run has seed {about.seed}: {_ADVICE}"
        )
    if any(known[name] != now[name] for name in known if name != "duplicates"):
        same_counts = all(known[name] == now[name] for name in ("rows", "frauds"))
        seen = "other values" if same_counts else f"{now['rows']:,} rows, {now['frauds']} frauds"
        raise ValueError(
            f"the results in {out} are of a table with {known['rows']:,} rows, {known['frauds']} frauds, but "
            f"this one has {seen}: {_ADVICE}"
        )


def _read_about(path: Path) -> Record:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        return {
            **{name: known[name] for name in ("rows", "frauds", "digest", "seed")},
            "duplicates": known.get("duplicates"),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is damaged: {_ADVICE}") from None


def _older(out: Path, each: Sequence[Record]) -> Record:
    page = out / "fraud.md"
    first = _FIRST_LINE.match(page.read_text(encoding="utf-8")) if page.exists() else None
    if first is None:
        raise ValueError(f"the results in {out} do not say of which table they are: {_ADVICE}")
    rows, frauds = int(first[1].replace(",", "")), int(first[2])
    for family, count in _frauds_of_folds(each):
        if count != frauds:
            raise ValueError(
                f"{page} is of a table with {frauds} frauds, but the folds of {family} have {count}: "
                f"{_ADVICE}"
            )
    return {"rows": rows, "frauds": frauds, "seed": 0}


def _frauds_of_folds(each: Sequence[Record]) -> list[tuple[str, int]]:
    """The frauds in all folds together, of each family, method and repetition that has every fold."""
    found: dict[tuple[str, str, int], dict[int, int]] = {}
    for row in each:
        if row["split"] == "random":
            name = row["family"], row["method"], row["repeat"]
            found.setdefault(name, {})[row["fold"]] = row["positives"]
    return [(family, sum(of.values())) for (family, _, _), of in found.items() if len(of) == FOLDS]
