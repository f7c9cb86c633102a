"""The search space: families, losses and their parameters.

A loss given by its bare name is tuned over the ranges that it declares; a text with brackets is fixed. Every
parameter has a name of its own in the search (`tbl.alpha`, `lightgbm.num_leaves`). So the sampler learns the
parameters of a loss only from trials of that loss.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any

from ..losses import CrossEntropy, Loss, NonConvexLossWarning, parse
from ..losses.parameters import SearchRange
from ..losses.registry import loss_kinds, modules_of
from ..model.families import (
    FAMILIES,
    Candidate,
    installed_families,
    require_family,
)
from .records import Origin, Trial

if TYPE_CHECKING:
    from optuna import Trial as OptunaTrial
    from optuna.distributions import BaseDistribution

__all__ = [
    "Space",
    "default_losses",
    "distributions",
    "make_space",
    "planned_trials",
    "suggest",
]

Number = float | int
Counts = tuple[int, int]

CROSS_ENTROPY = CrossEntropy.name


@dataclass(frozen=True)
class Space:
    """Families and losses to choose from; a loss is a bare name (tuned) or a full text (fixed)."""

    families: tuple[str, ...]
    losses: tuple[str, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """Modules that a process must import to fit these losses."""
        return modules_of(self.losses)


def make_space(
    families: Sequence[str] | str | None = None, losses: Sequence[str] | str | None = None
) -> Space:
    """Make the space of families and losses, given as lists or as text with commas.

    Without names: every installed family but those of nets, which take long, and `default_losses()`. Cross
    entropy is always among the losses.

    >>> make_space("linear", "tbl(alpha=0.7,C=1),focal")
    Space(families=('linear',), losses=('crossentropy', 'tbl(alpha=0.7,C=1)', 'focal'))
    """
    if families is None:
        chosen = tuple(name for name in installed_families() if not FAMILIES[name].only_if_named)
    else:
        chosen = tuple(_family(name) for name in _texts(families))
    texts = default_losses() if losses is None else tuple(_loss(text) for text in _texts(losses))
    if not chosen:
        raise ValueError(f"no family was named; known are {', '.join(FAMILIES)}")
    return Space(tuple(dict.fromkeys(chosen)), tuple(dict.fromkeys((CROSS_ENTROPY, *texts))))


def default_losses() -> tuple[str, ...]:
    """Return cross entropy and the losses that declare a place in the search, in this order."""
    kinds = loss_kinds().values()
    placed = sorted((kind.search_place, kind.name) for kind in kinds if kind.search_place is not None)
    return (CROSS_ENTROPY, *(name for _, name in placed))


def planned_trials(space: Space, class_counts: Counts) -> list[Trial]:
    """Return the trials that every search begins with.

    1. Cross entropy with defaults in every family.
    2. Family by family, every other loss with its defaults.
    3. For linear models, the grid of a loss that declares one.

    Args:
        space: Families and losses of the search.
        class_counts: Negatives and positives, which the margins of some losses depend on.

    >>> for trial in planned_trials(make_space("linear", "focal"), (990, 10)):
    ...     print(trial.origin, trial.candidate.text)
    default linear, crossentropy
    default linear, focal(gamma=2.0)
    """
    others = [loss for loss in space.losses if loss != CROSS_ENTROPY]
    pairs = [(family, CROSS_ENTROPY) for family in space.families]
    pairs += [(family, loss) for family in space.families for loss in others]
    chosen: list[tuple[str, str, dict[str, Number], Origin]] = [
        (family, loss, _defaults(loss), "default") for family, loss in pairs
    ]
    # Only where they share each pass over the rows are so many more candidates cheap.
    for family in (name for name in space.families if FAMILIES[name].fits_together):
        chosen += [(family, loss, values, "map") for loss in space.losses for values in _grid(loss)]
    return [
        Trial(
            number,
            Candidate(family, _loss_text(loss, values, class_counts)),
            origin,
            # The family's defaults among them, so that the sampler learns from it.
            {"family": family, "loss": loss}
            | {f"{loss}.{name}": value for name, value in values.items()}
            | {f"{family}.{name}": value for name, value in FAMILIES[family].defaults.items()},
        )
        for number, (family, loss, values, origin) in enumerate(chosen)
    ]


def suggest(trial: OptunaTrial, space: Space, class_counts: Counts) -> Candidate:
    """Ask a trial of Optuna for a candidate: family, loss, then the parameters of both.

    Values are kept to four digits, so that a candidate can be read and typed again.
    """
    family = trial.suggest_categorical("family", list(space.families))
    loss = trial.suggest_categorical("loss", list(space.losses))
    loss_values = {
        name: _short(_ask(trial, f"{loss}.{name}", reach)) for name, reach in _loss_ranges(loss).items()
    }
    values = {
        name: _short(_ask(trial, f"{family}.{name}", reach))
        for name, reach in FAMILIES[family].parameters.items()
    }
    return Candidate(family, _loss_text(loss, loss_values, class_counts), tuple(values.items()))


def distributions(space: Space, names: Sequence[str]) -> dict[str, BaseDistribution]:
    """Return the distributions of parameters of the search, by name."""
    from optuna.distributions import CategoricalDistribution

    result: dict[str, BaseDistribution] = {}
    for name in names:
        if name in ("family", "loss"):
            choices = space.families if name == "family" else space.losses
            result[name] = CategoricalDistribution(list(choices))
        else:
            owner, parameter = name.rsplit(".", 1)
            ranges = FAMILIES[owner].parameters if owner in FAMILIES else _loss_ranges(owner)
            result[name] = _distribution(ranges[parameter])
    return result


def _defaults(loss: str) -> dict[str, Number]:
    return {name: reach.default for name, reach in _loss_ranges(loss).items()}


def _loss_ranges(loss: str) -> dict[str, SearchRange]:
    """Return the ranges that a loss declares; empty for a full text."""
    kind = loss_kinds().get(loss)
    return {} if kind is None else {name: _real(one) for name, one in kind.search_ranges().items()}


def _real(declared: SearchRange) -> SearchRange:
    """Return a range with floats as ends: a loss declares (0, 2), but means real numbers."""
    low, high, default = (float(end) for end in (declared.low, declared.high, declared.default))
    return SearchRange(low, high, default, declared.log)


def _distribution(reach: SearchRange) -> BaseDistribution:
    from optuna.distributions import FloatDistribution, IntDistribution

    if isinstance(reach.low, int):
        return IntDistribution(reach.low, int(reach.high), log=reach.log)
    return FloatDistribution(reach.low, reach.high, log=reach.log)


def _grid(loss: str) -> list[dict[str, Number]]:
    """Return the grid that a loss declares, without its defaults, which are tried anyway."""
    kind = loss_kinds().get(loss)
    if kind is None or not kind.search_grid:
        return []
    names, axes = zip(*kind.search_grid.items(), strict=True)
    usual = _defaults(loss)
    settings: list[dict[str, Number]] = [
        usual | dict(zip(names, values, strict=True)) for values in itertools.product(*axes)
    ]
    return [one for one in settings if one != usual]


def _loss_text(loss: str, values: Mapping[str, Number], class_counts: Counts) -> str:
    """Write the loss as text: searched parameters, and others that differ from the defaults."""
    kind = loss_kinds().get(loss)
    if kind is None or not values:
        return loss
    made: Loss = kind.for_search(values, class_counts)
    usual = {field.name: field.default for field in fields(made)}  # type: ignore[arg-type]
    written = [
        f"{name}={value!r}".replace(" ", "")
        for name, value in made.parameters().items()
        if name in values or usual[name] is MISSING or value != usual[name]
    ]
    return f"{loss}({','.join(written)})"


def _ask(trial: OptunaTrial, name: str, reach: SearchRange) -> Number:
    if isinstance(reach.low, int):
        return trial.suggest_int(name, reach.low, int(reach.high), log=reach.log)
    return trial.suggest_float(name, reach.low, reach.high, log=reach.log)


def _short(value: Number) -> Number:
    return value if isinstance(value, int) else float(f"{value:.4g}")


def _texts(given: Sequence[str] | str) -> list[str]:
    """Split a text at the commas outside brackets; a list is checked."""
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


def _tuned() -> list[str]:
    return [name for name, kind in loss_kinds().items() if kind.search_ranges()]


def _family(name: str) -> str:
    family = name.lower()
    if family not in FAMILIES:
        raise ValueError(f"unknown family {name!r}; known are {', '.join(FAMILIES)}")
    require_family(family)
    return family


def _loss(text: str) -> str:
    name = text.lower()
    if _loss_ranges(name):
        return name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonConvexLossWarning)  # the trial warns, once it is fitted
        try:
            loss: Any = parse(text)
        except ValueError as error:
            raise ValueError(
                f"{error}; a search tunes {', '.join(_tuned())} and takes others as full texts "
                "such as 'tbl(alpha=0.7,C=1)'"
            ) from None
    if not loss.takes_score:
        raise ValueError(f"{text!r} is a loss of class logits; a search fits one score of two classes")
    if not loss.has_unique_minimiser:
        raise ValueError(f"{text!r} has no calibrated probability: its risk has no unique minimiser")
    return name if "(" not in text else text
