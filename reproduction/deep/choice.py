"""Choosing the setting of each method, by rows that take no part in the result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .settings import Parameters, Trial

__all__ = ["Chosen", "choose"]


@dataclass(frozen=True)
class Chosen:
    """A setting and how good it was.

    Attributes:
        parameters: Of the loss.
        lr: The learning rate.
        value: The mean of the metric over the draws, minus infinity where no setting had one.
        tries: Settings it was chosen from.
    """

    parameters: Parameters
    lr: float
    value: float
    tries: int


def choose(records: Sequence[Mapping[str, Any]], column: str) -> dict[str, Chosen]:
    """For each method the setting with the largest mean of `column` in the last epoch.

    The mean is over the draws and seeds of the records. A training that was frozen counts as the worst:
    a setting that fails in one draw is not chosen if there is another. Of equal settings the first is taken.
    """
    values: dict[str, dict[tuple[Parameters, float], list[float]]] = {}
    for record in records:
        trial = Trial.from_dict(record["trial"])
        last = record["curve"][column][-1]
        failed = last is None or record["frozen"] is not None
        settings = values.setdefault(trial.method, {})
        settings.setdefault((trial.parameters, trial.lr), []).append(-math.inf if failed else last)
    chosen = {}
    for method, settings in values.items():
        means = {setting: sum(found) / len(found) for setting, found in settings.items()}
        best = max(means, key=means.__getitem__)
        chosen[method] = Chosen(*best, means[best], len(means))
    return chosen
