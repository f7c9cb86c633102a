"""Journal of a search: lines of JSON, whole after every kill.

    {"round": 8, "trials": [{"candidate": ..., "origin": ..., "values": ...}, ...]}
    {"trial": 8, "fold": 0, "values": [0.91, 0.5], "scores": "5d1f...", "message": "", ..., "spent": 4.1}
    {"trial": 8, "state": "complete", "scores": "c07a..."}
    {"trial": 8, "state": "running"}

A round is one line, so that a killed search never holds half a round. A line that was being written at the
kill is dropped: its step is done again with the same result. So are all lines from a damaged one on.
`scores` is the digest of a file of log-odds. A trial that lost its file runs again.
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
        repeated: Numbers of the trials that lost their log-odds and run again.
    """

    def __init__(self, folder: Path) -> None:
        self._journal = Journal(folder / JOURNAL_FILE, mend=True)
        self.trials: list[Trial] = []
        self.repeated: set[int] = set()
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
            trial, state = self.trials[entry["trial"]], entry["state"]
            if state == "running":
                self.repeated.add(trial.number)
                trial = replace(trial, folds={})
            self.trials[trial.number] = replace(trial, state=state, scores_sha256=entry.get("scores", ""))
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
        """Write the result of a fold, unless the trial has ended or has it with the same scores.

        Args:
            number: Number of the trial.
            fold: Number of the fold.
            result: Result of the trial on the fold.
            spent: Seconds that the search has taken so far.
        """
        trial = self.trials[number]
        held = trial.folds.get(fold)
        # Another machine may round the last digits of a repeated fit otherwise: the later result counts.
        if trial.is_over or (held is not None and held.scores_sha256 == result.scores_sha256):
            return
        entry = {
            "trial": number,
            "fold": fold,
            "values": None if result.message else [result.partial_auc, result.recall],
            "scores": result.scores_sha256,
            "seconds": round(result.seconds, 4),
            "message": result.message,
            "warnings": list(result.warnings),
            "spent": round(spent, 3),
        }
        # Not synced: a result lost in a power cut is computed again.
        self._journal.append([entry])
        # Through the reader, so that a resumed search uses the same rounded numbers.
        self._read(entry)

    def end(self, number: int, state: State, scores: str = "") -> None:
        """End a trial. Its scores, of which the digest is given, must be on the disk before."""
        if not self.trials[number].is_over:
            self._set_state(number, state, scores)

    def forget(self, number: int, fold: int) -> None:
        """Take back the result of a fold whose scores are lost; the next one is written after it."""
        trial = self.trials[number]
        kept = {other: result for other, result in trial.folds.items() if other != fold}
        self.trials[number] = replace(trial, folds=kept)

    def repeat(self, number: int) -> None:
        """Begin a trial anew that lost its scores."""
        self._set_state(number, "running", "")

    def _set_state(self, number: int, state: State, scores: str) -> None:
        entry = {"trial": number, "state": state} | ({"scores": scores} if scores else {})
        # Synced: the parts of its scores are removed next.
        self._journal.append([entry])
        self._journal.sync()
        self._read(entry)

    def close(self, spent: float) -> None:
        """Note the seconds spent, and close the file."""
        self._journal.append([{"spent": round(spent, 3)}])
        self._journal.close()


def _result(entry: dict[str, Any]) -> FoldResult:
    area, recall = entry["values"] or (float("nan"), float("nan"))
    warnings, scores = tuple(entry["warnings"]), entry["scores"]
    return FoldResult(area, recall, entry["seconds"], entry["message"], warnings, scores)
