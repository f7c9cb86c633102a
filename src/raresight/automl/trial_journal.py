"""Journal of a search: lines of JSON, whole after every kill.

    {"round": 8, "trials": [{"candidate": ..., "origin": ..., "values": ...}, ...]}
    {"trial": 8, "fold": 0, "values": [0.91, 0.5], "seconds": 0.2, "message": "", ..., "spent": 4.1}
    {"trial": 8, "state": "complete"}

A round is one line, so that a killed search never holds half a round. A line that was being written at the
kill is dropped: its step is done again with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..common.journal import Journal
from ..model.families import Candidate
from .records import FoldResult, State, Trial

__all__ = ["JOURNAL_FILE", "TrialJournal"]

JOURNAL_FILE = "trials.jsonl"


class TrialJournal:
    """Keep the trials of a search in memory and on disk.

    Attributes:
        trials: All proposed trials, in the order of their numbers.
        seconds: Time spent so far, as of the last entry.
    """

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(folder / JOURNAL_FILE)
        self.trials: list[Trial] = []
        self.seconds = 0.0
        for entry in self._journal.entries:
            self._read(entry)

    def _read(self, entry: dict[str, Any]) -> None:
        if "round" in entry:
            for number, written in enumerate(entry["trials"], start=entry["round"]):
                candidate = Candidate.from_dict(written["candidate"])
                self.trials.append(Trial(number, candidate, written["origin"], written["values"]))
        elif "fold" in entry:
            trial = self.trials[entry["trial"]]
            self.trials[trial.number] = trial.with_fold(entry["fold"], _result(entry))
        elif "trial" in entry:
            self.trials[entry["trial"]] = replace(self.trials[entry["trial"]], state=entry["state"])
        self.seconds = entry.get("spent", self.seconds)

    def propose(self, trials: Sequence[Trial]) -> None:
        """Write the trials of a round before they are evaluated."""
        written = [
            {"candidate": trial.candidate.to_dict(), "origin": trial.origin, "values": dict(trial.values)}
            for trial in trials
        ]
        self._journal.append([{"round": trials[0].number, "trials": written}])
        # Synced: scores that reach the disk then belong to a round that did.
        self._journal.sync()
        self.trials += trials

    def record(self, number: int, fold: int, result: FoldResult, spent: float) -> None:
        """Write the result of a fold, unless the trial has ended or has it.

        Args:
            number: Number of the trial.
            fold: Number of the fold.
            result: Result of the trial on the fold.
            spent: Seconds that the search has taken so far.
        """
        trial = self.trials[number]
        if trial.is_over or fold in trial.folds:
            return
        entry = {
            "trial": number,
            "fold": fold,
            "values": None if result.message else [result.partial_auc, result.recall],
            "seconds": round(result.seconds, 4),
            "message": result.message,
            "warnings": list(result.warnings),
            "spent": round(spent, 3),
        }
        # Not synced: a result lost in a power cut is computed again.
        self._journal.append([entry])
        # Through the reader, so that a resumed search uses the same rounded numbers.
        self._read(entry)

    def end(self, number: int, state: State) -> None:
        """End a trial. Its scores must be on the disk before."""
        trial = self.trials[number]
        if not trial.is_over:
            # Synced: the parts of its scores are removed next.
            self._journal.append([{"trial": number, "state": state}])
            self._journal.sync()
            self.trials[number] = replace(trial, state=state)

    def close(self, spent: float) -> None:
        """Note the seconds spent, and close the file."""
        self._journal.append([{"spent": round(spent, 3)}])
        self._journal.close()


def _result(entry: dict[str, Any]) -> FoldResult:
    area, recall = entry["values"] or (float("nan"), float("nan"))
    return FoldResult(area, recall, entry["seconds"], entry["message"], tuple(entry["warnings"]))
