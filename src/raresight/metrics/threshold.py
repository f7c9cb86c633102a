"""The threshold for a false-positive budget, with a guarantee for new data."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from raresight.common.checks import check_rate
from raresight.common.dependent_rows import Codes, effective_units, group_codes
from raresight.metrics._bootstrap import student_quantile
from raresight.metrics._inputs import LabelledScores, scored
from raresight.metrics._tail import tail_rows
from raresight.metrics.ranking import WEIGHT_ROUNDING, within


def threshold_at_fpr(
    y_true: Any,
    y_score: Any,
    fpr: float,
    *,
    confidence: float | None = None,
    sample_weight: Any = None,
    groups: Any = None,
) -> float:
    r"""Return the lowest threshold that keeps the rate at or below `fpr`. Alerts are scores >= threshold.

    Without `confidence` the rate is that of the sample, and the recall at the threshold is
    `recall_at_fpr(y_true, y_score, fpr)`.

    With `confidence` = c the rate on new data is at most `fpr` with probability c, for any distribution of
    scores. The threshold then lies below the k highest of the n negatives, with the largest k for which

    .. math:: P(\mathrm{Binomial}(n, \mathrm{fpr}) \ge k + 1) \ge c.

    The rate above the (k+1)-th highest of n negatives is Beta(k + 1, n - k). So the bound is exact for
    continuous scores, and conservative where scores repeat. The negatives must be rows that the model was not
    fitted to.

    If the rows of a group depend on each other, pass `groups`. The bound then counts fewer rows: as many
    independent ones as have the variance that the groups show near the threshold (`design_effect`). With one
    row per group it is the bound above. It is no longer exact. A kind of group that is rare and that no
    negative of the sample shows is not allowed for.

    Args:
        y_true: Labels 0 and 1. Positives need not be present: the threshold is set by the negatives.
        y_score: One score per row.
        fpr: The false-positive rate allowed.
        confidence: None, or the probability of keeping the rate on new data.
        sample_weight: Weights of the rows; not together with `confidence`, whose bound counts rows.
        groups: What each row belongs to, such as a customer or `time_blocks(times)`. It has a say with
            `confidence` alone. Default: every row is independent.

    Raises:
        ValueError: If no threshold keeps the rate: too few negatives for the confidence, or too many with the
            score infinity.

    Example:
        >>> import numpy as np
        >>> scores = np.arange(1000.0)
        >>> threshold_at_fpr(np.zeros(1000), scores, 0.01)
        989.0000000000001
        >>> threshold_at_fpr(np.zeros(1000), scores, 0.01, confidence=0.95)
        995.0000000000001
    """
    fpr = check_rate(fpr, "fpr")
    data = scored(y_true, y_score, sample_weight, need="negative")
    codes = group_codes(groups, len(data))
    if confidence is None:
        return _lowest_within(data, fpr)
    if data.weights is not None:
        raise ValueError(
            "confidence counts rows, so it cannot be combined with sample_weight; pass one of the two."
        )
    negatives = int(data.negatives)
    effect = 1.0
    if codes is not None:
        # Negatives further down are more and tell more surely how alike groups are; those at the rate are the
        # ones that count. The larger effect keeps the rate as often as promised in simulations.
        effect = max(_effect_at(data, codes, min(1.0, rate), confidence) for rate in (fpr, 2 * fpr))
    return above_negative(data, allowed_false_positives(negatives, fpr, confidence, effect))


def _effect_at(data: LabelledScores, codes: Codes, rate: float, confidence: float) -> float:
    """Return the design effect at the score that this share of the negatives reaches."""
    negatives = int(data.negatives)
    count = min(max(1, false_positives_within(negatives, rate)), negatives - 1)
    tail = tail_rows(data, count)
    scores = tail.scores[~tail.labels]
    alerts = data.scores >= np.partition(scores, len(scores) - count)[len(scores) - count]
    return design_effect(alerts[~data.labels], codes[~data.labels], confidence)


def design_effect(alerts: NDArray[np.bool_], codes: Codes, confidence: float) -> float:
    r"""Return how many rows count as one where the rows of a group depend on each other; at least 1.

    It is the variance of the rate of alerts between groups over that of independent rows, times
    :math:`(t_{G-1} / t_{n-1})^2` for the few degrees of freedom of G groups (Korn and Graubard 1998).
    Rows divided by it go into the bound of Clopper and Pearson.

    Args:
        alerts: Which negatives are at or above a threshold.
        codes: The group of each negative, from 0 on.
        confidence: Of the bound that it is for.
    """
    rows, rate = len(alerts), float(np.mean(alerts))
    sizes = np.bincount(codes)
    units = effective_units(codes)
    if units >= rows or rate in (0, 1):
        return 1.0
    if units <= 1:
        raise ValueError("The negatives are of one group; the variance between groups needs at least two.")
    apart = np.bincount(codes, weights=alerts) - rate * sizes
    variance = float(apart @ apart) / (1 - 1 / units)
    independent = rows * rate * (1 - rate) / (1 - 1 / rows)
    level = 2 * confidence - 1  # of a central interval with the same upper end
    freedom = student_quantile(level, units - 1) / student_quantile(level, rows - 1)
    return max(1.0, variance / independent * freedom**2)


def allowed_false_positives(negatives: int, fpr: float, confidence: float, effect: float = 1.0) -> int:
    """Return how many of `negatives` may lie at or above the threshold for the bound to hold.

    Args:
        negatives: Their number.
        fpr: The rate to keep.
        confidence: The probability of keeping it.
        effect: How many rows count as one. Default: 1.
    """
    from scipy.special import betainc

    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, but is {confidence}.")
    if fpr == 1:
        return negatives
    if -np.expm1(negatives / effect * np.log1p(-fpr)) < confidence:
        needed = int(np.ceil(np.log1p(-confidence) / np.log1p(-fpr)))
        worth = f", worth {negatives / effect:.0f} by their groups," if effect > 1 else ""
        raise NoThresholdError(
            f"{negatives} negatives{worth} cannot show a false-positive rate of at most {fpr:g} with "
            f"confidence {confidence:g}: that takes {needed} negatives; raise fpr, lower confidence or add "
            "rows."
        )
    # P(Binomial(n, p) > k) = I_p(k + 1, n - k) falls with k: bisect for the last k with >= confidence.
    low, high = 0, negatives
    while high - low > 1:
        middle = (low + high) // 2
        if betainc(middle / effect + 1, (negatives - middle) / effect, fpr) >= confidence:
            low = middle
        else:
            high = middle
    return low


def false_positives_within(negatives: int, fpr: float) -> int:
    """Return the largest count with count / negatives <= fpr; rounding may put it one off the product."""
    count = int(fpr * negatives) + 1
    while count > 0 and count / negatives > fpr:
        count -= 1
    return count


def _lowest_within(data: LabelledScores, fpr: float) -> float:
    if data.weights is None:
        return above_negative(data, false_positives_within(int(data.negatives), fpr))
    # A little more than the budget, so that the first negative beyond it is in the tail.
    tail = tail_rows(data, min(1.0, fpr * (1 + 2 * WEIGHT_ROUNDING)) * data.negatives)
    weighty = ~tail.labels & (tail.weights > 0)  # type: ignore[operator]
    scores, weights = tail.scores[weighty], tail.weights[weighty]  # type: ignore[index]
    order = np.argsort(scores)[::-1]
    inside = within(np.cumsum(weights[order], dtype=np.float64), data.negatives, fpr, weighted=True)
    if inside.all():
        # All negatives with weight fit into the budget.
        return -np.inf
    return _just_above(scores[order][int(np.argmin(inside))])


def above_negative(data: LabelledScores, count: int) -> float:
    """Return the lowest threshold with at most `count` negatives at or above it."""
    negatives = int(np.count_nonzero(~data.labels))
    if count >= negatives:
        return -np.inf
    tail = tail_rows(LabelledScores(data.labels, data.scores, None), count + 1)
    scores = tail.scores[~tail.labels]
    place = len(scores) - 1 - count
    scores.partition(place)
    return _just_above(scores[place])


class NoThresholdError(ValueError):
    """No threshold keeps the rate: too few negatives, or too many with the score infinity."""


def _just_above(score: np.floating[Any]) -> float:
    """Return the next number after a score, in the score's own precision."""
    if score == np.inf:
        raise NoThresholdError(
            "No threshold keeps the false-positive rate: too many negatives have the score infinity."
        )
    return float(np.nextafter(score, score.dtype.type(np.inf)))
