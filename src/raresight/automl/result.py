"""What a run found."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.atomic_files import write_file
from ..metrics import Evaluation
from ..model.model import Model
from ..report.fit_parts import InfluentialRow, plain
from ..tables.profile import Profile
from .evaluation import HeldOutEvaluation
from .options import Options
from .records import Trial

__all__ = ["FitResult"]


@dataclass(frozen=True, eq=False)
class FitResult:
    """The chosen model, the candidates it was chosen from, and what it does on rows it has not seen.

    Attributes:
        model: The final model: columns, fitted family, threshold. `model.probability(table)` scores.
        leaderboard: The candidates, best first, with the paired interval against cross entropy.
        evaluation: The metrics of the held-out rows, with intervals.
        judged: Scores of the held-out rows, the threshold, and the comparisons with cross entropy.
        found: How the search ended: candidates by state, seconds, what stopped it.
        notes: What must be said beside the figures, such as a search cut short.
        loss_mattered: Whether the loss beat cross entropy by the paired intervals of the held-out rows.
        loss_sentence: The same in a sentence.
        profile: What was seen in the data, warnings included.
        influential: Rows that pull hardest, possible label errors.
        no_influence: Why there are none, where there are none.
        test_y: Labels of the held-out rows.
        losses: The best setting tried of each loss, best first.
        source: Name of the data.
        split: How rows were held out, in a sentence.
        command: The command line that does the same.
        options: What was asked.
        versions: Of Python and the libraries.
        fingerprint: SHA-256 of the data.
        made: When.
        seconds: How long it took.
    """

    model: Model
    leaderboard: tuple[Trial, ...]
    evaluation: Evaluation
    judged: HeldOutEvaluation
    found: Mapping[str, Any]
    notes: tuple[str, ...]
    loss_mattered: bool
    loss_sentence: str
    profile: Profile
    influential: tuple[InfluentialRow, ...]
    no_influence: str
    test_y: NDArray[np.int8]
    losses: tuple[str, ...]
    source: str
    split: str
    command: str
    options: Options
    versions: Mapping[str, str]
    fingerprint: str
    made: str
    seconds: float

    def save(self, folder: str | Path) -> Path:
        """Write `model/`, `report.html`, `leaderboard.csv` and `evaluation.json` into the folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder / "model")
        write_file(folder / "evaluation.json", json.dumps(self.to_dict(), indent=1, allow_nan=False))
        write_file(folder / "leaderboard.csv", self._leaderboard_csv())
        self.report(folder / "report.html")
        return folder

    def report(self, path: str | Path) -> Path:
        """Write the report, one page that opens without a network."""
        from ..report.fit_page import write_fit_page
        from .content import content_of

        return write_fit_page(content_of(self), Path(path))

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain values, ready for JSON; a number that is none becomes None."""
        candidate = self.model.members[0].fitted.candidate
        judged = self.judged
        result: dict[str, Any] = plain(
            {
                "model": candidate.to_dict() | {"text": candidate.describe()},
                "threshold": judged.threshold,
                "evaluation": self.evaluation.to_dict(),
                "loss_mattered": self.loss_mattered,
                "loss_sentence": self.loss_sentence,
                "against_cross_entropy_with_defaults": judged.against_baseline,
                "against_cross_entropy_with_the_same_parameters": judged.against_twin,
                "search": self.found,
                "notes": list(self.notes),
                "warnings": list(self.profile.warnings),
                "split": self.split,
                "command": self.command,
                "seed": self.options.seed,
                "versions": self.versions,
                "fingerprint": self.fingerprint,
                "made": self.made,
                "seconds": self.seconds,
            }
        )
        return result

    def _leaderboard_csv(self) -> str:
        text = io.StringIO()
        names = ["rank", "family", "loss", "parameters", "partial_auc", "recall", "state", "seconds"]
        names += ["difference", "low", "high"]
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(names)
        for rank, trial in enumerate(self.leaderboard, 1):
            candidate, difference = trial.candidate, trial.comparison
            writer.writerow(
                [
                    rank,
                    candidate.family,
                    candidate.loss,
                    json.dumps(dict(candidate.parameters)),
                    trial.partial_auc,
                    trial.recall,
                    trial.state,
                    round(trial.seconds, 3),
                    *(
                        ("", "", "")
                        if difference is None
                        else (difference.difference, difference.low, difference.high)
                    ),
                ]
            )
        return text.getvalue()

    def __str__(self) -> str:
        answer = self.evaluation
        recall = answer["recall_at_fpr"]
        rate = answer.alarms / answer.rows * 100_000
        right = f", {answer.precision:.1%} of them right" if answer.alarms else ""
        return "\n".join(
            [
                f"{self.model.describe()}",
                f"catches {recall.estimate:.1%} of the positives ({recall.level:.0%} interval "
                f"{recall.low:.1%} to {recall.high:.1%}) at a false-positive rate of {answer.fpr:g}: "
                f"{rate:,.0f} alerts per 100,000 rows{right}",
                self.loss_sentence,
                *self.notes,
            ]
        )
