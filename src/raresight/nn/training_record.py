"""The history and the outcome of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Row", "TrainingRecord"]

# One replica in one epoch, in plain values.
Row = dict[str, Any]


@dataclass(frozen=True)
class TrainingRecord:
    """The history of a stack of replicas.

    A row of `history` is one replica in one epoch:

    * `epoch` (from 1), `replica`, `loss` (its text), `seed`;
    * `train_loss`: the mean over the epoch's batches, with row weights if there are any;
    * `learning_rate` of the epoch's last step;
    * `gradient_norm_mean` and `gradient_norm_max`, before clipping;
    * `clipped`: the share of steps whose gradient was clipped;
    * `frozen`, and `seconds` of the epoch for all replicas;
    * the metrics, if the epoch was evaluated.

    An undefined value, such as the loss of a frozen replica, is None.

    Attributes:
        names: Loss and seed of each replica.
        history: All rows, epoch by epoch.
        frozen: Why and when replicas were frozen, by their numbers.
        best_by: The metric that chooses the best epoch, None without an evaluation.
        seconds: Duration of the training, summed over all resumptions.
    """

    names: tuple[str, ...]
    history: tuple[Row, ...]
    frozen: Mapping[int, str]
    best_by: str | None
    seconds: float

    @property
    def epochs(self) -> int:
        """Return the number of trained epochs."""
        return self.history[-1]["epoch"] if self.history else 0

    @property
    def best(self) -> tuple[Row | None, ...]:
        """Return each replica's row with the largest `best_by`, without the epochs in which it was frozen.

        The rows that chose the epoch also evaluate it, so the metric is optimistic. Report `last`, or
        evaluate on rows that took no part in the choice.
        """
        found: list[Row | None] = [None] * len(self.names)
        for row in self._evaluated():
            so_far = found[row["replica"]]
            if row["frozen"] or self._merit(row) is None:
                continue
            if so_far is None or self._merit(row) > self._merit(so_far):
                found[row["replica"]] = row
        return tuple(found)

    @property
    def last(self) -> tuple[Row | None, ...]:
        """Return each replica's row of the last evaluated epoch."""
        found: list[Row | None] = [None] * len(self.names)
        for row in self._evaluated():
            found[row["replica"]] = row
        return tuple(found)

    def to_rows(self) -> list[Row]:
        """Return the history as a list of plain dictionaries, ready for a table."""
        return [dict(row) for row in self.history]

    def _evaluated(self) -> Sequence[Row]:
        return [row for row in self.history if self.best_by in row]

    def _merit(self, row: Row) -> Any:
        return row[self.best_by or ""]

    def __str__(self) -> str:
        lines = [f"{len(self.names)} replicas, {self.epochs} epochs, {self.seconds:.1f} s"]
        for k, (name, best, last) in enumerate(zip(self.names, self.best, self.last)):
            if best is None and last is not None and k not in self.frozen:
                lines.append(f"{name}: {self.best_by} not defined in any epoch")
            if best is not None and last is not None:
                lines.append(
                    f"{name}: {self.best_by} {self._merit(best):.4f} at epoch {best['epoch']}, "
                    f"last {_number(self._merit(last))}"
                )
        return "\n".join(lines + list(self.frozen.values()))


def _number(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.4f}"
