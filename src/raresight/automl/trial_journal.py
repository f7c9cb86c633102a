"""Journal of a search: lines of JSON, whole after every kill.

    {"trial": 8, "candidate": {...}, "origin": "random", "values": [0.91, 0.5], ..., "spent": 41.2}
    {"trial": 8, "lost": true}
    {"spent": 43.0}

A trial is one line, written when it is over. A line that was being written at a kill is dropped, and so are
all lines from a damaged one on: those trials run again, with the same result. `scores` is the digest of the
file of its log-odds. A trial that lost its file runs again, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..common.journal import Journal
from ..model.families import Candidate
from .records import Trial, TrialResult

__all__ = ["JOURNAL_FILE", "TrialJournal"]

JOURNAL_FILE = "trials.jsonl"


class TrialJournal:
    """Keep the trials of a search in memory and on disk.

    Attributes:
        trials: The finished trials by number.
        seconds: Time spent so far, as of the last entry.
        repeated: Numbers of the trials that lost their log-odds and run again.
    """

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(folder / JOURNAL_FILE, mend=True)
        self.trials: dict[int, Trial] = {}
        self.repeated: set[int] = set()
        self.seconds = 0.0
        for entry in self._journal.entries:
            self._read(entry)

    def _read(self, entry: dict[str, Any]) -> None:
        if "candidate" in entry:
            number = entry["trial"]
            candidate = Candidate.from_dict(entry["candidate"])
            self.trials[number] = Trial(
                number, candidate, entry["origin"], _result(entry), with_counts=entry["with_counts"]
            )
            self.repeated.discard(number)
        elif "trial" in entry:
            self.trials.pop(entry["trial"], None)
            self.repeated.add(entry["trial"])
        self.seconds = entry.get("spent", self.seconds)

    def record(self, trial: Trial, spent: float) -> None:
        """Write a finished trial. Its scores must be on the disk before.

        Args:
            trial: The trial with its result.
            spent: Seconds that the search has taken so far.
        """
        result = trial.result
        assert result is not None
        entry = {
            "trial": trial.number,
            "candidate": trial.candidate.to_dict(),
            "origin": trial.origin,
            "with_counts": trial.with_counts,
            "values": None if result.message else [result.partial_auc, result.recall],
            "rounds": result.rounds,
            "scores": result.scores_sha256,
            "seconds": round(result.seconds, 4),
            "refit_seconds": round(result.refit_seconds, 4),
            "message": result.message,
            "warnings": list(result.warnings),
            "is_cut": result.is_cut,
            "spent": round(spent, 3),
        }
        # Not synced: a result lost in a power cut is computed again.
        self._journal.append([entry])
        # Through the reader, so that a resumed search uses the same rounded numbers.
        self._read(entry)

    def repeat(self, number: int) -> None:
        """Forget a trial that lost its scores."""
        entry = {"trial": number, "lost": True}
        self._journal.append([entry])
        self._read(entry)

    def close(self, spent: float) -> None:
        """Note the seconds spent, and close the file."""
        self._journal.append([{"spent": round(spent, 3)}])
        self._journal.close()


def _result(entry: dict[str, Any]) -> TrialResult:
    area, recall = entry["values"] or (float("nan"), float("nan"))
    return TrialResult(
        area,
        recall,
        entry["seconds"],
        entry["rounds"],
        entry["refit_seconds"],
        entry["message"],
        tuple(entry["warnings"]),
        entry["scores"],
        entry["is_cut"],
    )
