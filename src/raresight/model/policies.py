"""Policies: named thresholds of a model, each with its guarantee.

A policy says from which log-odds on a row raises an alert. A model has one named "default" and as many others
as its owner likes. Policies may change after the fit; the fitted part of the model does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..metrics.sketch import RankSketch

__all__ = ["DEFAULT_POLICY", "POLICY_KINDS", "Policy", "held_out_sketch", "policy_at_fpr"]

DEFAULT_POLICY = "default"
# Scores of each class that a model keeps.
_KEPT = 200_000

# The guarantee of each kind, in the words of `Policy.describe`, by the names of its numbers.
POLICY_KINDS = {
    "fpr": "a false-positive rate of {fpr:g} on the held-out rows",
    "fpr_bound": "a false-positive rate of at most {fpr:g} on new rows, with confidence {confidence:g}",
    "fixed": "no promise",
}
_NUMBERS: dict[str, tuple[str, ...]] = {"fpr": ("fpr",), "fpr_bound": ("fpr", "confidence"), "fixed": ()}


@dataclass(frozen=True)
class Policy:
    """A threshold and its guarantee.

    Attributes:
        kind: One of `POLICY_KINDS`: "fpr", "fpr_bound" or "fixed", a threshold set by hand.
        threshold: Rows whose calibrated log-odds are at least this raise an alert.
        promise: The numbers of the promise by name, all between 0 and 1: "fpr" has `fpr`, "fpr_bound" has
            `fpr` and `confidence`, "fixed" has none.

    >>> Policy("fpr", -1.5, {"fpr": 0.001}).describe()
    'log-odds >= -1.5, for a false-positive rate of 0.001 on the held-out rows'
    """

    kind: str
    threshold: float
    promise: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in POLICY_KINDS:
            raise ValueError(f"unknown kind of policy {self.kind!r}; known are {', '.join(POLICY_KINDS)}")
        object.__setattr__(self, "threshold", _number(self.threshold, "threshold"))
        if not math.isfinite(self.threshold):
            raise ValueError(f"threshold must be finite log-odds, got {self.threshold}")
        if set(self.promise) != set(_NUMBERS[self.kind]):
            needed = " and ".join(_NUMBERS[self.kind]) or "no number"
            raise ValueError(f"a policy of kind {self.kind!r} promises {needed}, got {dict(self.promise)}")
        promise = {name: _number(self.promise[name], name) for name in _NUMBERS[self.kind]}
        for name, value in promise.items():
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value}")
        object.__setattr__(self, "promise", promise)

    def describe(self) -> str:
        """Describe the policy in one line."""
        return f"log-odds >= {self.threshold:.6g}, for {POLICY_KINDS[self.kind].format(**self.promise)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as JSON values."""
        return {"kind": self.kind, "threshold": self.threshold, "promise": dict(self.promise)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Policy:
        """Read what `to_dict` wrote."""
        try:
            return cls(described["kind"], described["threshold"], described["promise"])
        except (KeyError, TypeError, AttributeError):
            raise ValueError(
                "a policy needs the entries kind, threshold and promise, each of its type"
            ) from None


def held_out_sketch(y: Any, log_odds: Any) -> RankSketch:
    """Make a sketch of held-out log-odds by class, of a few megabytes at most.

    Every answer is exact up to a false-positive rate of 200,000 / negatives.
    """
    return RankSketch(capacity=_KEPT).add(y, log_odds)


def policy_at_fpr(held_out: RankSketch, fpr: float, confidence: float | None = None) -> Policy:
    """Make the policy with the lowest threshold that keeps a false-positive rate.

    Args:
        held_out: The log-odds of held-out rows by class, as in `Model.held_out`.
        fpr: The rate to keep.
        confidence: Keep it on new rows with this confidence. Default: on the held-out rows.

    Raises:
        NoThresholdError: There are too few negatives for this confidence.

    >>> import numpy as np
    >>> held_out = RankSketch().add(np.arange(100) == 99, np.arange(100.0))
    >>> policy_at_fpr(held_out, 0.05).threshold
    94.00000000000001
    """
    threshold = held_out.threshold_at_fpr(fpr, confidence=confidence)
    if confidence is None:
        return Policy("fpr", threshold, {"fpr": fpr})
    return Policy("fpr_bound", threshold, {"fpr": fpr, "confidence": confidence})


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None
