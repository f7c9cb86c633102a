"""What a search chooses between: families, losses and their parameters.

A loss given by its bare name is tuned over the range here; a text with brackets is taken as it is. Every
parameter has a name of its own in the search (`tbl.alpha`, `lightgbm.num_leaves`), so that the sampler learns
the parameters of a loss only from trials of that loss.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..losses import NonConvexLossWarning, parse
from ..model.candidate import (
    DEFAULTS,
    FAMILIES,
    ONLY_IF_NAMED,
    Candidate,
    installed_families,
    require_family,
)

if TYPE_CHECKING:
    from optuna import Trial as OptunaTrial
    from optuna.distributions import BaseDistribution

__all__ = [
    "DEFAULT_LOSSES",
    "Plan",
    "Range",
    "Space",
    "distributions",
    "make_space",
    "planned",
    "plans",
    "suggest",
]

Number = float | int
Counts = tuple[int, int]
PlannedAs = Literal["default", "map"]

CROSS_ENTROPY = "crossentropy"
DEFAULT_LOSSES = (CROSS_ENTROPY, "tbl", "alpha", "focal", "poly", "vectorscaling", "ldam")

# The settings of TBL that every search with linear models tries, for a map of the two parameters.
MAP_ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)
MAP_CS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Range:
    """Values that a parameter may take, both ends included."""

    low: Number
    high: Number
    log: bool = False
    default: Number = 0.0

    def distribution(self) -> BaseDistribution:
        from optuna.distributions import FloatDistribution, IntDistribution

        if isinstance(self.low, int):
            return IntDistribution(self.low, int(self.high), log=self.log)
        return FloatDistribution(self.low, self.high, log=self.log)


# Every TBL in these ranges is convex. LDAM's scale of 30 is for cosine scores; ours are free.
_LOSS_RANGES: dict[str, dict[str, Range]] = {
    "tbl": {"alpha": Range(0.5, 0.98, default=0.8), "C": Range(0.0, 1.25, default=0.5)},
    "alpha": {"alpha": Range(0.5, 0.98, default=0.8)},
    "focal": {"gamma": Range(0.25, 4.0, default=2.0)},
    "poly": {"epsilon": Range(-0.9, 3.0, default=1.0)},
    "vectorscaling": {"delta": Range(0.05, 0.95, default=0.5)},
    "ldam": {"max_margin": Range(0.1, 3.0, log=True, default=0.5)},
}

_BOOSTER_RANGES = {
    "learning_rate": Range(0.03, 0.3, log=True),
    "n_estimators": Range(50, 400, log=True),
    "leaf_weight": Range(0.25, 8.0, log=True),
}
_NET_RANGES = {
    "learning_rate": Range(3e-4, 1e-2, log=True),
    "epochs": Range(3, 30, log=True),
    "width": Range(32, 256, log=True),
    "weight_decay": Range(1e-4, 1.0, log=True),
}
_FAMILY_RANGES: dict[str, dict[str, Range]] = {
    "linear": {"l2": Range(1e-8, 1e-1, log=True)},
    "lightgbm": {
        **_BOOSTER_RANGES,
        "num_leaves": Range(4, 64, log=True),
        "feature_fraction": Range(0.4, 1.0),
    },
    "xgboost": {**_BOOSTER_RANGES, "max_depth": Range(2, 10), "colsample_bytree": Range(0.4, 1.0)},
    "deep": _NET_RANGES,
    "tabm": {**_NET_RANGES, "width": Range(32, 128, log=True), "dropout": Range(0.0, 0.5)},
    "tabnet": {
        **_NET_RANGES,
        "learning_rate": Range(3e-3, 5e-2, log=True),
        "width": Range(4, 32, log=True),
        "steps": Range(2, 5),
    },
}


@dataclass(frozen=True)
class Space:
    """Families and losses to choose from; a loss is a bare name (tuned) or a full text (fixed)."""

    families: tuple[str, ...]
    losses: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A candidate that is tried whatever the search finds, and where it lies in the space.

    `origin` is "default" for a loss with its defaults and "map" for a setting of the map of TBL; `values`
    are the search's parameters, the family's defaults among them, so that the sampler learns from it.
    """

    candidate: Candidate
    origin: PlannedAs
    values: tuple[tuple[str, Number | str], ...]


def make_space(
    families: Sequence[str] | str | None = None, losses: Sequence[str] | str | None = None
) -> Space:
    """The space of the families and losses named, as lists or as text with commas.

    Without names: every installed family but those of nets, which take long, and `DEFAULT_LOSSES`. Cross
    entropy is always among the losses.

    >>> make_space("linear", "tbl(alpha=0.7,C=1),focal")
    Space(families=('linear',), losses=('crossentropy', 'tbl(alpha=0.7,C=1)', 'focal'))
    """
    if families is None:
        chosen = tuple(name for name in installed_families() if name not in ONLY_IF_NAMED)
    else:
        chosen = tuple(_family(name) for name in _texts(families))
    texts = DEFAULT_LOSSES if losses is None else tuple(_loss(text) for text in _texts(losses))
    if not chosen:
        raise ValueError(f"no family was named; known are {', '.join(FAMILIES)}")
    return Space(tuple(dict.fromkeys(chosen)), tuple(dict.fromkeys((CROSS_ENTROPY, *texts))))


def planned(space: Space, class_counts: Counts) -> list[Candidate]:
    """The candidates that are always tried first.

    Cross entropy with defaults in every family; then, family by family, every other loss with its defaults;
    then, for linear models, the map of TBL's alpha and C.

    Args:
        space: The space.
        class_counts: Negatives and positives, which LDAM's margins depend on.

    >>> for candidate in planned(make_space("linear", "focal"), (990, 10)):
    ...     print(candidate.text)
    linear, crossentropy
    linear, focal(gamma=2.0)
    """
    return [plan.candidate for plan in plans(space, class_counts)]


def plans(space: Space, class_counts: Counts) -> list[Plan]:
    """`planned`, each with its origin and its values of the search's parameters."""
    others = [loss for loss in space.losses if loss != CROSS_ENTROPY]
    result = [_default_plan(family, CROSS_ENTROPY, class_counts) for family in space.families]
    result += [_default_plan(family, loss, class_counts) for family in space.families for loss in others]
    if "linear" in space.families and "tbl" in space.losses:
        usual = {name: reach.default for name, reach in _LOSS_RANGES["tbl"].items()}
        settings = ({"alpha": alpha, "C": C} for alpha in MAP_ALPHAS for C in MAP_CS)
        result += [_plan("linear", "tbl", one, class_counts, "map") for one in settings if one != usual]
    return result


def suggest(trial: OptunaTrial, space: Space, class_counts: Counts) -> Candidate:
    """Ask a trial of Optuna for a candidate: family, loss, then the parameters of both.

    Values are kept to four digits, so that a candidate can be read and typed again.
    """
    family = trial.suggest_categorical("family", list(space.families))
    loss = trial.suggest_categorical("loss", list(space.losses))
    loss_values = {
        name: _short(_ask(trial, f"{loss}.{name}", reach))
        for name, reach in _LOSS_RANGES.get(loss, {}).items()
    }
    values = {
        name: _short(_ask(trial, f"{family}.{name}", reach)) for name, reach in _FAMILY_RANGES[family].items()
    }
    return Candidate(family, _loss_text(loss, loss_values, class_counts), tuple(values.items()))


def distributions(space: Space, names: Sequence[str]) -> dict[str, BaseDistribution]:
    """The distributions of parameters of the search, by name."""
    from optuna.distributions import CategoricalDistribution

    result: dict[str, BaseDistribution] = {}
    for name in names:
        if name in ("family", "loss"):
            choices = space.families if name == "family" else space.losses
            result[name] = CategoricalDistribution(list(choices))
        else:
            owner, parameter = name.rsplit(".", 1)
            ranges = _LOSS_RANGES.get(owner) or _FAMILY_RANGES[owner]
            result[name] = ranges[parameter].distribution()
    return result


def _default_plan(family: str, loss: str, class_counts: Counts) -> Plan:
    values = {name: reach.default for name, reach in _LOSS_RANGES.get(loss, {}).items()}
    return _plan(family, loss, values, class_counts, "default")


def _plan(
    family: str, loss: str, values: dict[str, Number], class_counts: Counts, origin: Literal["default", "map"]
) -> Plan:
    candidate = Candidate(family, _loss_text(loss, values, class_counts))
    named: dict[str, Number | str] = {"family": family, "loss": loss}
    named |= {f"{loss}.{name}": value for name, value in values.items()}
    named |= {f"{family}.{name}": DEFAULTS[family][name] for name in _FAMILY_RANGES[family]}
    return Plan(candidate, origin, tuple(named.items()))


def _loss_text(loss: str, values: dict[str, Number], class_counts: Counts) -> str:
    if not values:
        return loss
    written = [f"{name}={value!r}" for name, value in values.items()]
    if loss == "ldam":
        written = [f"class_counts=({class_counts[0]},{class_counts[1]})", *written, "scale=1.0"]
    return f"{loss}({','.join(written)})"


def _ask(trial: OptunaTrial, name: str, reach: Range) -> Number:
    if isinstance(reach.low, int):
        return trial.suggest_int(name, reach.low, int(reach.high), log=reach.log)
    return trial.suggest_float(name, reach.low, reach.high, log=reach.log)


def _short(value: Number) -> Number:
    return value if isinstance(value, int) else float(f"{value:.4g}")


def _texts(given: Sequence[str] | str) -> list[str]:
    """The items of a list, or of a text with commas between them outside brackets."""
    if not isinstance(given, str):
        for item in given:
            if not isinstance(item, str):
                raise TypeError(f"families and losses are named by texts, got {item!r}")
        return [item.strip() for item in given]
    items, depth = [""], 0
    for letter in given:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            items.append("")
        else:
            items[-1] += letter
    return [item.strip() for item in items if item.strip()]


def _family(name: str) -> str:
    family = name.lower()
    if family not in FAMILIES:
        raise ValueError(f"unknown family {name!r}; known are {', '.join(FAMILIES)}")
    require_family(family)
    return family


def _loss(text: str) -> str:
    name = text.lower()
    if name in _LOSS_RANGES:
        return name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonConvexLossWarning)  # said of the trial, once it is fitted
        try:
            loss: Any = parse(text)
        except ValueError as error:
            raise ValueError(
                f"{error}; a search tunes {', '.join(_LOSS_RANGES)} and takes others as full texts "
                "such as 'tbl(alpha=0.7,C=1)'"
            ) from None
    if not loss.takes_score:
        raise ValueError(f"{text!r} is a loss of class logits; a search fits one score of two classes")
    if not loss.has_unique_minimiser:
        raise ValueError(f"{text!r} has no calibrated probability: its risk has no unique minimiser")
    return name if "(" not in text else text
