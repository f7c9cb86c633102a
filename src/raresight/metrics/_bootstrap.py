"""The Bayesian bootstrap: random ROC curves that could have produced the observed one, or random weights.

A sample of n negatives cuts the population's false-positive rate [0, 1] into n + 1 pieces. Their lengths are
distributed as Gamma(1) variables over their sum. So the population rate at a place with j negatives above it
is Gamma(j) over Gamma(n + 1), for any distribution of scores. A run of negatives between two positives is one
Gamma draw: only the steps of the curve are drawn, never the rows.

Positives get Gamma weights in the same way, with half a positive more at each end (Jeffreys' prior).
Without it an interval would shrink to a point where a threshold catches all positives or none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import as_vector, check_weights
from raresight.common.dependent_rows import Codes
from raresight.common.progress import Status, show_progress
from raresight.metrics._inputs import LabelledScores
from raresight.metrics._roc_steps import RocSteps
from raresight.metrics._tail import tail_positions

Floats = NDArray[np.float64]

MOST_STEPS = 20_000
DRAWN_TOGETHER = 1 << 21  # numbers drawn in one batch: some tens of megabytes
MARGIN = 6.0  # standard deviations by which the rate of a draw may stay below its limit


def reach(max_fpr: float, negatives: float) -> float:
    """Return the rate up to which steps are needed, so that random curves are complete up to `max_fpr`."""
    return float(min(1.0, max_fpr + (MARGIN * np.sqrt(max_fpr * negatives) + MARGIN**2) / negatives))


def resampled(
    steps: RocSteps,
    metric: Callable[[RocSteps], Floats],
    draws: int,
    generator: np.random.Generator,
    prior: float = 0.5,
) -> Floats:
    """Return the metric of `draws` random curves. The steps must be unweighted."""
    if steps.weighted:
        raise ValueError("the steps of weighted rows cannot be resampled; resample the rows instead.")
    steps = coarsened(steps)
    places, where = np.unique(np.concatenate([steps.above, steps.through]), return_inverse=True)
    batch = max(1, DRAWN_TOGETHER // (3 * len(places) + len(steps.gain) + 1))
    # Batches bound the memory; the draws come from one generator, so the batch size changes the values.
    values = [metric(curve) for curve in _curves(steps, places, where, draws, batch, generator, prior)]
    return np.concatenate(values)


def coarsened(steps: RocSteps) -> RocSteps:
    """Join neighbouring steps into ones that rise along the diagonal, at most `MOST_STEPS` in all.

    Joining moves the curve far less than chance does. A draw for millions of positives then takes
    milliseconds.
    """
    count = len(steps.gain)
    if count <= MOST_STEPS:
        return steps
    starts = np.arange(0, count, -(-count // MOST_STEPS))
    ends = np.append(starts[1:], count) - 1
    gain = np.add.reduceat(steps.gain, starts)
    return replace(steps, gain=gain, above=steps.above[starts], through=steps.through[ends])


def _curves(
    steps: RocSteps,
    places: Floats,
    where: NDArray[np.intp],
    draws: int,
    batch: int,
    generator: np.random.Generator,
    prior: float,
) -> Iterator[RocSteps]:
    count = len(steps.gain)
    rest = steps.positives - float(np.sum(steps.gain))
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        rate = _rates(places, steps.negatives, size, generator)
        shape = np.concatenate([[prior], steps.gain, [rest + prior]])
        gain = generator.standard_gamma(shape, (size, count + 2))
        gain *= steps.positives / gain.sum(axis=1, keepdims=True)
        first = np.zeros((size, 1))
        yield RocSteps(
            gain=gain[:, :-1],
            above=np.concatenate([first, rate[:, where[:count]]], axis=1),
            through=np.concatenate([first, rate[:, where[count:]]], axis=1),
            positives=steps.positives,
            negatives=steps.negatives,
        )


def _rates(places: Floats, negatives: float, size: int, generator: np.random.Generator) -> Floats:
    """Draw population rates, times `negatives`, at places with so many negatives above them."""
    # A place may lie anywhere between the j-th and the next negative: at a uniform part of that piece.
    piece = generator.standard_exponential((size, len(places)))
    between = np.diff(places, prepend=-1.0) - 1
    between[0] = places[0]
    run = generator.standard_gamma(between, (size, len(places)))
    ends = np.cumsum(run + piece, axis=1)
    # The pieces beyond the last place are one more draw, so that the total has all n + 1 pieces.
    beyond = generator.standard_gamma(negatives - places[-1], (size, 1))
    total = ends[:, -1:] + beyond
    inside = ends - piece * generator.random((size, len(places)))
    return np.asarray(inside * (negatives / total))


# ---- groups of rows that depend on each other --------------------------------------------


def resampled_groups(
    data: LabelledScores,
    codes: Codes,
    metric: Callable[[RocSteps], Floats],
    max_fpr: float,
    draws: int,
    generator: np.random.Generator,
    prior: float = 0.5,
) -> Floats:
    """Return the metric of `draws` random curves in which each group of rows has a weight, not each row.

    With one row per group these are the curves of `resampled`. What that adds as half a positive or one more
    negative is here of the size of a group.
    """
    wanted = reach(max_fpr, data.negatives) * data.negatives if max_fpr < 1 else data.negatives
    where = tail_positions(data, wanted)
    where = where[np.argsort(data.scores[where])[::-1]]
    labels, scores, groups = data.labels[where], data.scores[where], codes[where]
    caught = scores[labels]
    first = np.flatnonzero(np.append(True, caught[1:] != caught[:-1])[: len(caught)])
    ascending = scores[~labels][::-1]
    above = len(ascending) - np.searchsorted(ascending, caught[first], side="right")
    through = len(ascending) - np.searchsorted(ascending, caught[first], side="left")
    places, place_of = np.unique(np.concatenate([above, through]), return_inverse=True)
    place_of = place_of.reshape(2, -1)
    # Groups without a row among these only matter by their totals.
    near, groups = np.unique(groups, return_inverse=True)
    count = len(near)
    every = int(codes.max()) + 1
    sizes = [
        np.bincount(codes[one], minlength=every).astype(np.float64) for one in (data.labels, ~data.labels)
    ]
    positive, negative = (mean_size(one) for one in sizes)
    others = [np.delete(one, near) for one in sizes]
    # All negatives of a group between two places are one number: a few groups cost little, however many rows.
    last = int(places.max(initial=0))
    passed, following = groups[~labels][:last], np.append(groups[~labels], 0)[places]
    run = np.searchsorted(places, np.arange(last), side="right")
    cells, rows = np.unique(run * count + passed, return_counts=True)
    through_place = np.searchsorted(cells // count, np.arange(len(places)), side="right")
    batch = max(1, DRAWN_TOGETHER // (count + len(cells) + len(places) + len(caught)))
    values = []
    for start in range(0, draws, batch):
        size = min(batch, draws - start)
        weights = generator.standard_exponential((size, count))
        none = np.zeros((size, 1))
        lost, more = positive * generator.standard_gamma(prior, (2, size, 1))
        extra = negative * generator.standard_exponential(size)
        total = weights @ sizes[1][near] + extra + sum_of_weights(others[1], size, generator)
        mass = np.cumsum(weights[:, cells % count] * rows, axis=1)
        rate = np.concatenate([none, mass], axis=1)[:, through_place]
        # A place may lie anywhere between two negatives, as in `_rates`.
        rate += weights[:, following] * generator.random((size, len(places)))
        rate *= (data.negatives / total)[:, None]
        gain = np.add.reduceat(weights[:, groups[labels]], first, axis=1) if len(first) else none[:, :0]
        gain = np.concatenate([more, gain], axis=1)
        total = weights @ sizes[0][near] + sum_of_weights(others[0], size, generator)
        gain *= data.positives / (total[:, None] + lost + more)
        curve = RocSteps(
            gain=gain,
            above=np.concatenate([none, rate[:, place_of[0]]], axis=1),
            through=np.concatenate([none, rate[:, place_of[1]]], axis=1),
            positives=data.positives,
            negatives=data.negatives,
        )
        values.append(metric(curve))
    return np.concatenate(values)


def mean_size(sizes: Floats) -> float:
    """Return the size of the group of a random row; 1 for groups of one row."""
    return float(sizes @ sizes) / float(np.sum(sizes))


def sum_of_weights(sizes: Floats, draws: int, generator: np.random.Generator) -> Floats:
    """Draw sums of exponential weights times sizes, by gamma variables of their mean and variance."""
    if not np.any(sizes):
        return np.zeros(draws)
    scale = mean_size(sizes)
    return scale * generator.standard_gamma(float(np.sum(sizes)) / scale, draws)


def widened(values: Floats, centre: float, units: float, level: float) -> Floats:
    """Return draws moved away from the centre as far as few units ask for.

    Exponential weights of G units give a mean (G - 1) / (G + 1) of its variance, and quantiles of a normal
    where Student's are due.
    """
    factor = float(np.sqrt((units + 1) / (units - 1)))
    factor *= student_quantile(level, units - 1) / student_quantile(level)
    return np.asarray(centre + factor * (values - centre))


def student_quantile(level: float, freedom: float = np.inf) -> float:
    """Return half the width of Student's central interval; of a normal's with infinite freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


# ---- over rows, for any metric that takes weights ----------------------------------------


def row_bootstrap(
    metric: Callable[..., float],
    y_true: Any,
    scores: tuple[Any, ...],
    sample_weight: Any,
    params: Mapping[str, Any],
    draws: int,
    generator: np.random.Generator,
    codes: Codes | None = None,
) -> Floats:
    """Return the metric of each score under random weights of the rows, the same for all: (scores, draws).

    Each row's weight is an independent exponential variable, or that of its group. Class totals are then
    restored, so that each class is resampled within itself and the prior stays.
    """
    labels = as_vector(y_true, "y_true")
    given = check_weights(sample_weight, len(labels))
    base = np.ones(len(labels)) if given is None else given.astype(np.float64)
    _, stratum = np.unique(labels, return_inverse=True)
    wanted = np.bincount(stratum, weights=base)
    units = len(base) if codes is None else int(codes.max()) + 1
    values = np.empty((len(scores), draws))
    with show_progress("auto") as display:
        for draw in range(draws):
            # Exponential weights over their sum are uniform on the simplex: the Bayesian bootstrap.
            weights = generator.standard_exponential(units)
            weights = base * (weights if codes is None else weights[codes])
            drawn = np.bincount(stratum, weights=weights)
            weights *= np.where(drawn > 0, wanted / np.where(drawn > 0, drawn, 1), 0)[stratum]
            for place, score in enumerate(scores):
                values[place, draw] = metric(y_true, score, sample_weight=weights, **params)
            display.show(Status(f"resampling rows {draw + 1}/{draws}", (draw + 1) / draws))
    return values


def need_weights(metric: Callable[..., float]) -> None:
    """Refuse a function without `sample_weight`, which cannot be resampled, before it is called."""
    parameters = inspect.signature(metric).parameters
    anything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    if "sample_weight" not in parameters and not anything:
        name = getattr(metric, "__name__", metric)
        raise TypeError(f"{name} must take sample_weight=, since rows are resampled by their weights.")
