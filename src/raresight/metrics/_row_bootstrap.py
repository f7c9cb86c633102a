"""The Bayesian bootstrap over rows, for any metric that takes weights."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import as_vector, check_weights

Floats = NDArray[np.float64]

SLOW = 20_000_000  # rows times draws from which a bar shows how far it is


def row_bootstrap(
    metric: Callable[..., float],
    y_true: Any,
    scores: tuple[Any, ...],
    sample_weight: Any,
    params: Mapping[str, Any],
    draws: int,
    generator: np.random.Generator,
) -> Floats:
    """The metric of each score under random weights of the rows, the same for all: (scores, draws).

    Every row weighs an independent exponential variable. Class totals are then put back, so that the
    classes are resampled within themselves and the prior stays.
    """
    labels = as_vector(y_true, "y_true")
    given = check_weights(sample_weight, len(labels))
    base = np.ones(len(labels)) if given is None else given.astype(np.float64)
    _, stratum = np.unique(labels, return_inverse=True)
    wanted = np.bincount(stratum, weights=base)
    values = np.empty((len(scores), draws))
    for draw in _shown(range(draws), len(labels) * draws * len(scores)):
        weights = base * generator.standard_exponential(len(base))
        drawn = np.bincount(stratum, weights=weights)
        weights *= np.where(drawn > 0, wanted / np.where(drawn > 0, drawn, 1), 0)[stratum]
        for place, score in enumerate(scores):
            values[place, draw] = metric(y_true, score, sample_weight=weights, **params)
    return values


def need_weights(metric: Callable[..., float]) -> None:
    """An error for a function that cannot be resampled, before it is called."""
    parameters = inspect.signature(metric).parameters
    anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    if "sample_weight" not in parameters and not anything:
        name = getattr(metric, "__name__", metric)
        raise TypeError(f"{name} must take sample_weight=, since rows are resampled by their weights.")


def _shown(draws: range, work: int) -> Iterable[int]:
    if work < SLOW or not sys.stderr.isatty():
        return draws
    from rich.console import Console
    from rich.progress import track

    return track(draws, description="Resampling rows", console=Console(stderr=True), transient=True)
