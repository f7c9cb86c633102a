"""What further steps will cost, from what finished ones did."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ..model.families import FAMILIES, Candidate

__all__ = ["Clock", "Rates", "affordable"]


class Clock:
    """Seconds of a search, those of earlier runs included."""

    def __init__(self, before: float) -> None:
        self._before, self._start = before, time.monotonic()

    @property
    def seconds(self) -> float:
        return self._before + time.monotonic() - self._start


class Rates:
    """Mean seconds of a unit of work, for each family: a linear fit, one round of boosting, or one epoch."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._work: dict[str, float] = {}

    def note(self, candidate: Candidate, seconds: float) -> None:
        """Learn from one candidate on one fold."""
        family = candidate.family
        self._seconds[family] = self._seconds.get(family, 0.0) + seconds
        self._work[family] = self._work.get(family, 0.0) + work_of(candidate)

    def cost(self, candidates: Sequence[Candidate]) -> float:
        """Seconds of candidates on one fold; nothing is known of a family never fitted, so nothing."""
        return sum(work_of(candidate) * self._rate(candidate.family) for candidate in candidates)

    def _rate(self, family: str) -> float:
        return self._seconds[family] / self._work[family] if family in self._work else 0.0


def work_of(candidate: Candidate) -> float:
    """How much a candidate has to do, in units of its family."""
    work = FAMILIES[candidate.family].work
    return float(candidate.settings()[work]) if work else 1.0


def affordable(costs: Mapping[int, float], jobs: int, seconds: float) -> list[int]:
    """The first keys whose work fits into so many seconds on so many jobs.

    >>> affordable({0: 4.0, 1: 4.0, 2: 4.0, 3: 4.0}, jobs=2, seconds=6.5)
    [0, 1, 2]
    """
    chosen: list[int] = []
    total, longest = 0.0, 0.0
    for key, cost in costs.items():
        total, longest = total + cost, max(longest, cost)
        if max(total / jobs, longest) > seconds:
            break
        chosen.append(key)
    return chosen
