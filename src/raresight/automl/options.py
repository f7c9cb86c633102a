"""What a run is asked to do, checked before anything is read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

__all__ = ["DEFAULT_BUDGET", "DEFAULT_TRIALS", "Options", "default_folder", "make_options", "read_duration"]

DEFAULT_MAX_FPR = 0.01
DEFAULT_TRIALS = 100
DEFAULT_BUDGET = 180.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Options:
    """The options of a run; `trials` and `seconds` end the search, whichever comes first."""

    target: str
    positive: str | None
    fpr: float
    max_fpr: float
    time: str | None
    group: str | None
    trials: int | None
    seconds: float | None
    test_size: float
    seed: int
    jobs: int
    drop: tuple[str, ...] = ()


def make_options(
    *,
    target: Any,
    positive: Any,
    fpr: float,
    max_fpr: float | None,
    time: str | None,
    group: str | None,
    budget: str | float | None,
    trials: int | None,
    test_size: float,
    seed: int,
    jobs: int | None,
    drop: str | Iterable[str] | None = None,
) -> Options:
    """Check the options. Without `budget` and `trials` both defaults hold; given one, only that one does.

    Without `max_fpr` it is 0.01, or `fpr` where that is larger: a model is not chosen where it is not used.
    """
    if max_fpr is None:
        max_fpr = max(DEFAULT_MAX_FPR, fpr) if _is_number(fpr) else DEFAULT_MAX_FPR
    if not isinstance(target, str) or not target:
        raise ValueError(f"target must be the name of a column, got {target!r}")
    for name, rate in (("fpr", fpr), ("max_fpr", max_fpr)):
        if not (_is_number(rate) and 0 < rate < 1):
            raise ValueError(f"{name} is a false-positive rate between 0 and 1, such as 0.001, got {rate!r}")
    if time is not None and group is not None:
        raise ValueError("rows are split by time or by group, not by both: give one of the two")
    for name, column in (("time", time), ("group", group)):
        if column is not None and column == target:
            raise ValueError(f"{name} names the target column {target!r}: give another column")
    left_out = (drop,) if isinstance(drop, str) else tuple(drop or ())
    for column in left_out:
        if not isinstance(column, str) or column in (target, time, group):
            raise ValueError(
                f"drop names columns not to learn from, which target, time and group are not: {column!r}"
            )
    if not (_is_number(test_size) and 0 < test_size < 1):
        raise ValueError(f"test_size is the share of rows held out, between 0 and 1, got {test_size!r}")
    if trials is not None and not (_is_whole(trials) and trials >= 1):
        raise ValueError(f"trials must be a whole number of at least 1, got {trials!r}")
    if not (_is_whole(seed) and 0 <= seed < 2**31):
        raise ValueError(f"seed must be a whole number from 0 to {2**31 - 1}, got {seed!r}")
    seconds = None if budget is None else read_duration(budget)
    if trials is None and seconds is None:
        trials, seconds = DEFAULT_TRIALS, DEFAULT_BUDGET
    return Options(
        target=target,
        positive=None if positive is None else str(positive),
        fpr=float(fpr),
        max_fpr=float(max_fpr),
        time=time,
        group=group,
        trials=None if trials is None else int(trials),
        seconds=seconds,
        test_size=float(test_size),
        seed=int(seed),
        jobs=_jobs(jobs),
        drop=tuple(dict.fromkeys(left_out)),
    )


def read_duration(text: str | float) -> float:
    """Seconds from "90s", "5m", "1h30m" or a number of seconds.

    >>> read_duration("1h30m")
    5400.0
    """
    if _is_number(text):
        seconds = float(text)
    else:
        parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", str(text).strip().lower())
        if not parts or "".join(number + unit for number, unit in parts) != str(text).strip().lower():
            raise ValueError(f"a time such as 90s, 5m or 1h30m is needed, got {text!r}")
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"a time above zero is needed, got {text!r}")
    return seconds


def _jobs(jobs: int | None) -> int:
    if jobs is None:
        import joblib

        return int(joblib.cpu_count())
    if not (_is_whole(jobs) and jobs >= 1):
        raise ValueError(f"jobs must be a whole number of at least 1, got {jobs!r}")
    return int(jobs)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def default_folder(source: Any) -> Path:
    """Where the results of a file go if nobody says: `payments.csv` has `payments-fit`."""
    name = Path(str(source)).name.split(".")[0] if isinstance(source, (str, Path)) else ""
    return Path(f"{name or 'raresight'}-fit")
