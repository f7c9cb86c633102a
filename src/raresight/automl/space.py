"""The search space: families, losses and their parameters, and the list of candidates.

A loss given by its bare name is tuned over the ranges that it declares; a text with brackets is fixed. The
list depends on the space, the class counts and a seed alone, not on results. So it is the same on one core
and on many, and after any number of interruptions.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np

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

__all__ = [
    "Space",
    "candidates",
    "default_losses",
    "make_space",
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


def candidates(space: Space, class_counts: Counts, seed: int) -> Iterator[tuple[Trial, ...]]:
    """Yield the candidates of a search without end, in groups that are fitted together.

    1. Cross entropy with defaults in every family.
    2. Cross entropy with columns that bend in a linear model, and with contrasting parameters in boosters.
    3. For linear models, every other loss with its defaults, and the grid of a loss that declares one.
    4. Every other loss with its defaults in the other families.
    5. Random ones.

    The good ones come first. At equal tuning no other loss gained on cross entropy beyond chance in boosters
    (docs/fit.md), so losses come after the parameters that matter more.

    Args:
        space: Families and losses of the search.
        class_counts: Negatives and positives, which the margins of some losses depend on.
        seed: Seed of the random ones.

    >>> from itertools import islice
    >>> for group in islice(candidates(make_space("linear", "focal"), (990, 10), 0), 3):
    ...     print([(trial.origin, trial.candidate.text) for trial in group])
    [('default', 'linear, crossentropy')]
    [('spread', 'linear, crossentropy, knots=5')]
    [('default', 'linear, focal(gamma=2.0)')]
    """
    planned: list[list[tuple[Origin, Candidate]]] = []

    def default(family: str, loss: str) -> tuple[Origin, Candidate]:
        return "default", Candidate(family, _loss_text(loss, _defaults(loss), class_counts))

    others = [loss for loss in space.losses if loss != CROSS_ENTROPY]
    # Boosters first: alone they are the best in most tables.
    families = sorted(space.families, key=lambda name: not FAMILIES[name].rounds)
    planned += [[default(family, CROSS_ENTROPY)] for family in families]
    if "linear" in families:
        # Columns that bend: better than straight ones on six of seven tables, and unlike trees.
        planned.append([("spread", Candidate("linear", CROSS_ENTROPY, (("knots", 5),)))])
    planned += [[("spread", one)] for one in _spread([name for name in families if FAMILIES[name].rounds])]
    for family in (name for name in families if FAMILIES[name].fits_together):
        # They share each pass over the rows, so that a grid costs little more than one candidate.
        group = [default(family, loss) for loss in others]
        for loss in space.losses:
            texts = (_loss_text(loss, values, class_counts) for values in _grid(loss))
            group += [("map", Candidate(family, text)) for text in texts]
        planned.append(group)
    alone = [name for name in families if FAMILIES[name].takes_losses and not FAMILIES[name].fits_together]
    planned += [[default(family, loss)] for family in alone for loss in others]
    number = 0
    for group in filter(None, planned):
        yield tuple(Trial(number + place, one, origin) for place, (origin, one) in enumerate(group))
        number += len(group)
    while True:
        yield (Trial(number, _random_candidate(space, class_counts, [seed, number]), "random"),)
        number += 1


# Contrasting parameters of boosters, to blend and to choose from. XGBoost has a depth instead of `leaves`.
_SPREAD: tuple[dict[str, Number], ...] = (
    {"leaves": 7},
    {"leaves": 63, "learning_rate": 0.08},
    {"leaves": 15, "columns": 0.3, "l2": 5.0, "leaf_weight": 2.0},
    {"leaves": 127, "learning_rate": 0.03, "columns": 0.4, "leaf_weight": 1.0},
    {"leaves": 31, "columns": 0.3, "row_fraction": 0.6},
    {"leaves": 15, "learning_rate": 0.1, "columns": 1.0, "row_fraction": 1.0},
    {"leaves": 4, "learning_rate": 0.1},
    {"leaves": 63, "columns": 0.5, "l2": 10.0, "leaf_weight": 4.0},
)
_NATIVE = {
    "lightgbm": {"leaves": "num_leaves", "columns": "feature_fraction"},
    "xgboost": {"leaves": "max_depth", "columns": "colsample_bytree"},
}


def _spread(families: Sequence[str]) -> list[Candidate]:
    """Return the contrasting candidates, of the families in turn."""
    found = []
    for place, setting in enumerate(_SPREAD if families else ()):
        family = families[place % len(families)]
        names = _NATIVE[family]
        values = {names.get(name, name): value for name, value in setting.items()}
        if "max_depth" in values:
            values["max_depth"] = round(math.log2(values["max_depth"] + 1))
        found.append(Candidate(family, CROSS_ENTROPY, tuple(values.items())))
    return found


def _random_candidate(space: Space, class_counts: Counts, seed: Sequence[int]) -> Candidate:
    """Draw family, loss and parameters; half of the candidates have cross entropy.

    Values are kept to four digits, so that a candidate can be read and typed again.
    """
    generator = np.random.default_rng(seed)
    boosted = [name for name in space.families if FAMILIES[name].rounds]
    family = str(generator.choice(boosted or list(space.families)))
    others = [loss for loss in space.losses if loss != CROSS_ENTROPY and FAMILIES[family].takes_losses]
    loss = str(generator.choice(others)) if others and generator.random() < 0.5 else CROSS_ENTROPY
    loss_values = {name: _drawn(generator, reach) for name, reach in _loss_ranges(loss).items()}
    values = {
        name: _drawn(generator, reach)
        for name, reach in FAMILIES[family].parameters.items()
        if name != FAMILIES[family].rounds
    }
    return Candidate(family, _loss_text(loss, loss_values, class_counts), tuple(values.items()))


def _drawn(generator: np.random.Generator, reach: SearchRange) -> Number:
    """Draw from a range, uniformly or in its logarithm."""
    if reach.log:
        value = math.exp(generator.uniform(math.log(reach.low), math.log(reach.high)))
    else:
        value = float(generator.uniform(reach.low, reach.high))
    return round(value) if isinstance(reach.low, int) else float(f"{value:.4g}")


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
