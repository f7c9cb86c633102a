"""What a reader of the result must be told beside the figures."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .evaluation import HeldOutEvaluation
from .records import SearchResult

__all__ = ["notes_of"]


def notes_of(
    found: SearchResult, planned: int | None, judged: HeldOutEvaluation, y: NDArray[Any]
) -> tuple[str, ...]:
    """A search cut short, and a budget that no threshold keeps."""
    return tuple(filter(None, [_search_note(found, planned), _threshold_note(judged, y)]))


def _search_note(found: SearchResult, planned: int | None) -> str:
    if found.stopped_by == "trials":
        return ""
    done = f"{len(found.trials)}" + (f" of {planned}" if planned else "") + " candidates"
    if found.stopped_by == "interrupted":
        return f"The search was interrupted after {done}."
    return f"The search ended with its time, after {done}."


def _threshold_note(judged: HeldOutEvaluation, y: NDArray[Any]) -> str:
    """Where so many negatives share the highest score that any alert breaks the budget."""
    if judged.evaluation.alarms:
        return ""
    top = judged.log_odds == judged.log_odds.max()
    rate = float(np.mean(top[y == 0]))
    return (
        f"No alert keeps a false-positive rate of {judged.evaluation.fpr:g}: {rate:.2%} of the held-out "
        "negatives share the highest score, so the model never raises one; ask for a higher rate, or give it "
        "columns that tell such rows apart."
    )
