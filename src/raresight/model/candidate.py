"""What a search chooses between: a family, a loss and the family's main parameters."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DEFAULTS",
    "FAMILIES",
    "NETS",
    "ONLY_IF_NAMED",
    "TITLES",
    "Candidate",
    "installed_families",
    "require_family",
]

Number = float | int

# The families of nets, and which net of `raresight.deep` each of them is.
NETS = {"deep": "mlp", "tabm": "tabm", "tabnet": "tabnet"}

FAMILIES = ("linear", "lightgbm", "xgboost", *NETS)

# A search takes these only where they are named. For the bundled sample one core takes 0.7 s for a booster,
# 2.6 s for a plain net and above 20 s for the others, time that boosters then lack; and they were no better.
ONLY_IF_NAMED = tuple(NETS)

# Every parameter of a family with its default; whole numbers are those whose default is one.
DEFAULTS: dict[str, dict[str, Number]] = {
    "linear": {"l2": 1e-4},
    "lightgbm": {
        "learning_rate": 0.1,
        "n_estimators": 100,
        "num_leaves": 31,
        "feature_fraction": 1.0,
        "leaf_weight": 1.0,
    },
    "xgboost": {
        "learning_rate": 0.1,
        "n_estimators": 100,
        "max_depth": 6,
        "colsample_bytree": 1.0,
        "leaf_weight": 1.0,
    },
    "deep": {"learning_rate": 1e-3, "epochs": 10, "width": 64, "weight_decay": 1e-3},
    "tabm": {"learning_rate": 1e-3, "epochs": 10, "width": 64, "dropout": 0.1, "weight_decay": 1e-3},
    "tabnet": {"learning_rate": 2e-2, "epochs": 10, "width": 8, "steps": 3, "weight_decay": 1e-3},
}

TITLES = {
    "linear": "linear",
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
    "deep": "deep net",
    "tabm": "TabM",
    "tabnet": "TabNet",
}
# What a family imports, `linear` nothing beyond the package's own needs.
_LIBRARIES = {
    "linear": (),
    "lightgbm": ("lightgbm",),
    "xgboost": ("xgboost",),
    "deep": ("torch", "safetensors"),
    "tabm": ("torch", "safetensors", "tabm"),
    "tabnet": ("torch", "safetensors"),
}


def installed_families() -> tuple[str, ...]:
    """The families whose libraries are installed; `linear` needs none."""
    return tuple(name for name in FAMILIES if not _missing(name))


def require_family(family: str) -> None:
    """An ImportError that names the extra where a library of the family is not installed."""
    missing = _missing(family)
    if not missing:
        return
    if family not in NETS:
        raise ImportError(f"{family} is not installed: pip install 'raresight[fit]'")
    extra = "tabm" if family == "tabm" else "torch"
    needed = "the package tabm" if missing == ["tabm"] else "PyTorch"
    raise ImportError(f"the family {family} needs {needed}: pip install 'raresight[{extra}]'")


def _missing(family: str) -> list[str]:
    return [library for library in _LIBRARIES[family] if importlib.util.find_spec(library) is None]


@dataclass(frozen=True)
class Candidate:
    """A family, a loss as text, and the parameters that differ from the family's defaults.

    Args:
        family: `"linear"`, `"lightgbm"`, `"xgboost"`, or of nets `"deep"`, `"tabm"`, `"tabnet"`.
        loss: Text that `raresight.losses.parse` reads, such as `"tbl(alpha=0.8,C=0.5)"`.
        parameters: Pairs of name and number; they are kept sorted by name. Linear models have `l2`. Boosted
            ones have `learning_rate`, `n_estimators`, the size of a tree (`num_leaves` for LightGBM,
            `max_depth` for XGBoost), the share of columns a tree may use (`feature_fraction`,
            `colsample_bytree`), and `leaf_weight`, a factor on the least Hessian of a leaf and on its l2,
            whose defaults follow the loss (`raresight.boosting.defaults`), so that it means the same for
            every loss. Nets (`raresight.deep`) have `learning_rate`, `epochs`, the `width` of a layer and
            `weight_decay`; `deep` is a plain net of two hidden layers, `tabm` has `dropout` besides and
            `tabnet` the number of its `steps`.

    >>> candidate = Candidate("lightgbm", "tbl(alpha=0.8,C=0.5)", (("num_leaves", 15), ("leaf_weight", 2.0)))
    >>> candidate.text
    'lightgbm, tbl(alpha=0.8,C=0.5), leaf_weight=2.0, num_leaves=15'
    >>> candidate.settings()["n_estimators"]
    100
    """

    family: str
    loss: str
    parameters: tuple[tuple[str, Number], ...] = ()

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"unknown family {self.family!r}; known are {', '.join(FAMILIES)}")
        if not isinstance(self.loss, str):
            raise TypeError(f"a candidate's loss is a text such as 'tbl(alpha=0.8,C=0.5)', got {self.loss!r}")
        defaults = DEFAULTS[self.family]
        pairs = sorted((str(name), value) for name, value in self.parameters)
        for (name, _), (following, _) in itertools.pairwise(pairs):
            if name == following:
                raise ValueError(f"the parameter {name} is given twice")
        read = tuple((name, _read_number(self.family, defaults, name, value)) for name, value in pairs)
        object.__setattr__(self, "parameters", read)

    @property
    def text(self) -> str:
        """One line that tells candidates apart."""
        return ", ".join([self.family, self.loss, *(f"{name}={value!r}" for name, value in self.parameters)])

    def describe(self) -> str:
        """The same for people: `LightGBM, tbl(alpha=0.8,C=0.5), num leaves 15`."""
        shown = (f"{name.replace('_', ' ')} {value:.4g}" for name, value in self.parameters)
        return ", ".join([TITLES[self.family], self.loss, *shown])

    def settings(self) -> dict[str, Number]:
        """Every parameter of the family, the defaults included."""
        return {**DEFAULTS[self.family], **dict(self.parameters)}

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"family": self.family, "loss": self.loss, "parameters": dict(self.parameters)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Candidate:
        """Read what `to_dict` wrote."""
        try:
            family, loss, parameters = (described[key] for key in ("family", "loss", "parameters"))
            pairs = tuple(parameters.items())
        except (KeyError, TypeError, AttributeError):
            raise ValueError(
                f"a candidate is described by family, loss and parameters, got {described!r}"
            ) from None
        return cls(family, loss, pairs)


def _read_number(family: str, defaults: Mapping[str, Number], name: str, value: Any) -> Number:
    if name not in defaults:
        raise ValueError(f"{family} has no parameter {name!r} here; it has {', '.join(defaults)}")
    whole = isinstance(defaults[name], int)
    if isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got {value!r}") from None
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    if not whole:
        return number
    if number != int(number):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    return int(number)
