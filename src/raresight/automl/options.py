"""Options of a fit: one record for the command line, `raresight.fit`, the journal and the report.

An option is a field of `Options`, and all of these are read from the fields:

* the command line and the Python signature;
* the comparison with an earlier run in the same folder;
* the command that repeats a run.

So a new option touches this file and the one that uses it. An option that steers the fits on folds is used in
`Aim` (`automl/fold_evaluation.py`).
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, asdict, dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .space import Space

__all__ = [
    "PRESETS",
    "TABLE",
    "Options",
    "check_names",
    "default_folder",
    "read_duration",
]

DEFAULT_MAX_FPR = 0.01
# No table has the thousand million negatives that one false positive at this rate would need.
SMALLEST_FPR = 1e-9
# In points of partial AUC. Smaller differences are beyond chance on large tables, but change no decision.
DEFAULT_MIN_GAIN = 0.1
# Seconds of a fit of a table of 300,000 rows and 30 columns, and of smaller ones.
PRESETS = {"quick": 30.0, "default": 180.0, "best": 1800.0}
_USUAL_CELLS = 9e6
# A table ten times as large gets ten times as long; above that, time is asked for.
_MOST_TIMES = 10.0
TABLE = "TABLE"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _option(help: str, default: Any = MISSING, *, typed: Any = str, free: bool = False) -> Any:
    """A field of `Options`.

    Args:
        help: Description for the command line and the Python docstring: at most 100 characters.
        default: Default value. An option without one is required.
        typed: Type on the command line. The flag of a list may be repeated.
        free: Whether the option may change when a run is continued.
    """
    return field(default=default, metadata={"help": help, "typed": typed, "free": free})


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a fit, checked before anything is read.

    Values are normalised: `families` and `losses` are tuples of names, `budget` is in seconds.

    Raises:
        ValueError: If a value is not possible; the message names the option.

    >>> Options(target="fraud", fpr=0.05, families="linear", losses="tbl", trials=4).max_fpr
    0.05
    """

    data: str = field(default=TABLE, metadata={"free": True})
    target: str = _option("Column with the two classes.")
    positive: str | None = _option("Value of the rare class. Default: 1, true, or the rarer one.", None)
    fpr: float = _option("False-positive rate allowed.", 0.001, typed=float)
    max_fpr: float = _option(
        "Largest false-positive rate of the partial AUC that chooses. Default: 0.01, or fpr if larger.",
        None,
        typed=float,
    )
    time: str | None = _option("Column of time: the latest rows are held out.", None)
    group: str | None = _option("Column of groups: rows of a group stay on one side of each split.", None)
    drop: tuple[str, ...] = _option(
        "Column not to learn from, such as one known only afterwards. May be repeated.", (), typed=list
    )
    keep: tuple[str, ...] = _option(
        "Column to learn from even if it seems to give the target away. May be repeated.", (), typed=list
    )
    families: tuple[str, ...] = _option(
        "Families to search: linear,lightgbm,xgboost,forest,deep,tabm,tabnet. Default: the first four.", None
    )
    losses: tuple[str, ...] = _option(
        "Losses to search, such as 'tbl,focal(gamma=2)'. Default: seven losses.", None
    )
    preset: str = _option(
        "Time if no budget is given: quick (30 s), default (3 min), best (30 min); longer for large tables.",
        "default",
        free=True,
    )
    trials: int | None = _option(
        "Most candidates, without a limit of time unless one is given.", None, typed=int, free=True
    )
    budget: float | None = _option(
        "Time for search and fits, such as 90s or 5m, instead of a preset.", None, free=True
    )
    single: bool = _option("Choose a single model, no blend.", False, typed=bool, free=True)
    min_gain: float = _option(
        "Least difference in partial AUC that a verdict calls a gain or a loss, in points of 0.01.",
        DEFAULT_MIN_GAIN,
        typed=float,
        free=True,
    )
    test_size: float = _option("Share of rows held out.", 0.25, typed=float)
    test: str | None = _option("File of test rows, instead of held-out rows.", None, free=True)
    seed: int = _option("Seed of everything random.", 0, typed=int)
    jobs: int = _option("Number of processes. Default: one per core.", None, typed=int, free=True)

    def __post_init__(self) -> None:
        checked = _checked(self)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def space(self) -> Space:
        """Families and losses to choose from."""
        from .space import Space

        return Space(self.families, self.losses)

    def seconds(self, rows: int, columns: int) -> float | None:
        """Return the time of the fit of a table; None if the number of candidates alone limits it.

        >>> Options(target="fraud", families="linear").seconds(1_500_000, 30)
        900.0
        """
        if self.budget is not None or self.trials is not None:
            return self.budget
        times = min(max(rows * columns / _USUAL_CELLS, 1.0), _MOST_TIMES)
        return float(f"{PRESETS[self.preset] * times:.2g}")

    def of(self, function: Callable[..., Any]) -> dict[str, Any]:
        """Return the options that a function takes as keywords, so that no caller lists them."""
        taken = inspect.signature(function).parameters.values()
        names = {one.name for one in taken if one.kind is inspect.Parameter.KEYWORD_ONLY}
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name in names}

    def identity(self) -> dict[str, Any]:
        """Return the options that must not change when a run is continued, as JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if not Options.__dataclass_fields__[name].metadata["free"]
        }

    def command(self) -> str:
        """Return the command line with these options; a table in memory is called `TABLE`."""
        parts = ["raresight", "fit", self.data]
        for one in Options.typed():
            value = getattr(self, one.name)
            # The number of processes changes nothing, and a file of test rows leaves nothing to hold out.
            skipped = one.name == "jobs" or (one.name == "test_size" and self.test is not None)
            if one.name == "preset":
                skipped = self.budget is not None or self.trials is not None
            if value is None or value is False or value == () or skipped:
                continue
            flag = f"--{one.name.replace('_', '-')}"
            if value is True:
                parts.append(flag)
            elif one.metadata["typed"] is list:
                parts += [part for item in value for part in (flag, item)]
            else:
                parts += [flag, _written(one.name, value)]
        return shlex.join(parts)

    @staticmethod
    def typed() -> list[Field[Any]]:
        """Return the fields that are options of the command line, in its order."""
        return [one for one in fields(Options) if "help" in one.metadata]


def _written(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}s" if name == "budget" else str(value)


def check_names(given: Iterable[str]) -> None:
    """Refuse an unknown option and suggest the nearest name."""
    known = [one.name for one in Options.typed()]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise TypeError(f"fit has no option {name!r}; {hint}")
    if "target" not in given:
        raise TypeError("fit needs the option 'target', the name of the column with the two classes")


def _checked(options: Options) -> dict[str, Any]:
    """Check the values and return them normalised."""
    # Here, because the command line reads this file for its help, where NumPy would be a tenth of a second.
    from ..common.checks import check_range, check_whole

    target = options.target
    if not isinstance(target, str) or not target:
        raise ValueError(f"target must be the name of a column, but is {target!r}")
    fpr = check_range(options.fpr, "fpr", least=SMALLEST_FPR, below=1)
    # Never below fpr: a model is chosen where it is used.
    asked = max(DEFAULT_MAX_FPR, fpr) if options.max_fpr is None else options.max_fpr
    max_fpr = check_range(asked, "max_fpr", least=SMALLEST_FPR, below=1)
    trials = None if options.trials is None else check_whole(options.trials, "trials")
    budget = None if options.budget is None else read_duration(options.budget)
    if options.preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {options.preset!r}")
    return {
        "positive": None if options.positive is None else str(options.positive),
        "fpr": fpr,
        "max_fpr": max_fpr,
        "drop": _dropped(options),
        "keep": _kept(options),
        "trials": trials,
        "budget": budget,
        "min_gain": check_range(options.min_gain, "min_gain", least=0, most=100),
        "test_size": check_range(options.test_size, "test_size", above=0, below=1),
        "seed": check_whole(options.seed, "seed", 0, 2**31 - 1),
        "jobs": _cores() if options.jobs is None else check_whole(options.jobs, "jobs"),
        **_space(options.families, options.losses),
    }


def _dropped(options: Options) -> tuple[str, ...]:
    """Return the columns to drop; refuse those that the split needs."""
    target, time, group = options.target, options.time, options.group
    drop: Any = options.drop
    if time is not None and time == group:
        raise ValueError(f"time and group name the same column {time!r}: give two columns")
    for name, column in (("time", time), ("group", group)):
        if column is not None and column == target:
            raise ValueError(f"{name} names the target column {target!r}: give another column")
    left_out = _names(drop)
    for column in left_out:
        if not isinstance(column, str) or column in (target, time, group):
            raise ValueError(
                f"drop names columns not to learn from, which target, time and group are not: {column!r}"
            )
    return tuple(dict.fromkeys(left_out))


def _kept(options: Options) -> tuple[str, ...]:
    """Return the columns to keep; refuse those that are no features."""
    kept, others = _names(options.keep), (options.target, options.group, *_names(options.drop))
    for column in kept:
        if not isinstance(column, str) or column in others:
            raise ValueError(f"keep names columns to learn from, not target, group or drop: {column!r}")
    return tuple(dict.fromkeys(kept))


def _names(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _space(families: Any, losses: Any) -> dict[str, tuple[str, ...]]:
    # Here, because the command line reads this file before it knows whether anything is fitted.
    from .space import make_space

    space = make_space(
        *(one if one is None or isinstance(one, str) else list(one) for one in (families, losses))
    )
    return {"families": space.families, "losses": space.losses}


def read_duration(text: Any) -> float:
    """Return the seconds of a duration such as "90s", "5m" or "1h30m", or of a number.

    >>> read_duration("1h30m")
    5400.0
    """
    if not isinstance(text, bool) and isinstance(text, Real):
        seconds = float(text)
    else:
        parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", str(text).strip().lower())
        if not parts or "".join(number + unit for number, unit in parts) != str(text).strip().lower():
            raise ValueError(f"a time such as 90s, 5m or 1h30m is needed, got {text!r}")
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"a time above zero is needed, got {text!r}")
    return seconds


def _cores() -> int:
    import joblib

    return int(joblib.cpu_count())


def default_folder(source: Any) -> Path:
    """Return the default folder of a file's results: `payments-fit` for `payments.csv`."""
    name = Path(str(source)).name.split(".")[0] if isinstance(source, (str, os.PathLike)) else ""
    return Path(f"{name or 'raresight'}-fit")
