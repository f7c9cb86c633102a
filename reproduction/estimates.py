"""Means over trainings, with the variance of training separated from that of the task."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

LEVEL = 0.95
Values = Mapping[tuple[int, int], float]
"""Numbers by draw and seed."""


@dataclass(frozen=True)
class Estimate:
    """A mean with its interval.

    Attributes:
        mean: Mean over all trainings.
        deviation: Standard deviation of trainings within a draw; NaN if no draw has two.
        error: Standard error of the mean for these draws.
        low: Lower end of the interval.
        high: Upper end.
        count: Number of trainings.
        by_draw: Mean of each draw.
        draws_differ: Whether the means of the draws differ more than their trainings explain, by an F test
            at the level of the interval. A mean difference between methods then depends on the draw.
    """

    mean: float
    deviation: float
    error: float
    low: float
    high: float
    count: int
    by_draw: tuple[float, ...] = ()
    draws_differ: bool = False


def effect_on(metric: str, difference: float, low: float, high: float) -> str:
    """Sort a difference of a metric into "gain", "loss", "small" or "chance", as `raresight fit` does.

    "small" is beyond chance, but less than 0.1 points. A smaller Brier score is better, and as it has no
    points, its differences count whatever their size.

    >>> effect_on("roc_auc", 0.002, 0.001, 0.003), effect_on("roc_auc", 0.0002, 0.0001, 0.0003)
    ('gain', 'small')
    >>> effect_on("brier", 0.0002, 0.0001, 0.0003), effect_on("brier", 0.0, -0.1, 0.1)
    ('loss', 'chance')
    """
    from raresight.automl.options import DEFAULT_MIN_GAIN
    from raresight.automl.wording import effect

    if "brier" in metric:
        return effect(-difference, -high, -low, 0.0)
    return effect(difference, low, high, DEFAULT_MIN_GAIN)


BOLD_NOTE = "**bold** where it is beyond chance and at least 0.1 points"
"""What bold differences are in tables."""


def mark(metric: str, difference: float, low: float, high: float) -> str:
    """Return the mark around a difference in Markdown: bold if it counts as a gain or a loss."""
    return "**" if effect_on(metric, difference, low, high) in ("gain", "loss") else ""


def estimate(values: Values) -> Estimate:
    """Estimate the mean of trainings, with Student's interval *for these draws*.

    The draws (which categories are positive, which rows are rare) are held fixed. With n trainings in S draws
    the variance is pooled within draws, and the interval follows:

        s^2 = sum (x - mean of its draw)^2 / (n - S),    mean +- t(n - S) s / sqrt(n).

    Two draws cannot measure how much draws matter in general, but they can show that they matter:

        F = sum_d n_d (mean_d - mean)^2 / ((S - 1) s^2).

    Example:
        >>> found = estimate({(0, 0): 1.0, (0, 1): 3.0, (1, 0): 11.0, (1, 1): 13.0})
        >>> found.mean, round(found.deviation, 4), round(found.high - found.mean, 3)
        (7.0, 1.4142, 3.042)
    """
    if not values:
        nan = math.nan
        return Estimate(nan, nan, nan, nan, nan, 0)
    draws: dict[int, list[float]] = {}
    for (draw, _), value in values.items():
        draws.setdefault(draw, []).append(value)
    count = len(values)
    mean = math.fsum(values.values()) / count
    freedom = count - len(draws)
    if freedom < 1:
        return Estimate(mean, math.nan, math.nan, -math.inf, math.inf, count)
    from scipy.special import fdtri, stdtrit

    means = {draw: math.fsum(own) / len(own) for draw, own in sorted(draws.items())}
    squares = math.fsum((x - means[draw]) ** 2 for draw, own in draws.items() for x in own)
    deviation = math.sqrt(squares / freedom)
    error = deviation / math.sqrt(count)
    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    between = math.fsum(len(own) * (means[draw] - mean) ** 2 for draw, own in draws.items())
    differ = (
        len(draws) > 1
        and between > float(fdtri(len(draws) - 1, freedom, LEVEL)) * (len(draws) - 1) * deviation**2
    )
    return Estimate(
        mean, deviation, error, mean - half, mean + half, count, tuple(means.values()), bool(differ)
    )


def paired(values: Values, reference: Values) -> Estimate:
    """Estimate the mean difference to a reference, paired by draw and seed.

    With the same draw and seed, both start from the same weights and see the same batches.
    """
    return estimate({at: value - reference[at] for at, value in values.items() if at in reference})


def standard_errors_apart(ours: Estimate, mean: float, deviation: float | None, trials: int) -> float:
    """Return the difference of ours to a printed mean of `trials` trials, in standard errors.

    If the printed mean has no deviation, the standard error is that of ours alone.

    >>> apart = standard_errors_apart(Estimate(0.9, 0.01, 0.003, 0.89, 0.91, 9), 0.88, 0.01, 4)
    >>> round(apart, 3)
    3.43
    """
    error = math.hypot(ours.error, (deviation or 0.0) / math.sqrt(trials))
    return (ours.mean - mean) / error if error > 0 else math.nan
