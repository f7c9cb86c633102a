"""Training a stack of nets with an eye on validation rows: each keeps the weights of its own best epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..nn import Recipe, Replicas, TableRows
from ..nn.averaging import MeanWeights
from ..nn.best_weights import BestWeights
from ..nn.training_loop import TrainingLoop, training_session
from .telling import Tell, quiet

__all__ = ["Judge", "Trained", "noted_and_told", "train_nets"]

Floats = NDArray[np.float64]

Judge = Callable[[Replicas, NDArray[np.bool_]], Floats]
"""Replicas, and which of them are frozen since an earlier epoch, to one merit each, the larger the better.

A frozen net cannot become better: its merit is NaN, or else it would tie with itself and never be waited out.
"""


@dataclass(frozen=True, eq=False)
class Trained:
    """What became of a stack.

    Attributes:
        epochs: Epochs that were trained.
        best_epochs: The epoch, from 1, whose weights each replica has in the end.
        merits: (epochs, K), what the judge said, NaN once a net is frozen; None without one.
        failures: What befell replicas whose loss or gradient was not finite.
        none_learned: Whether that befell all of them before their first epoch was over.
    """

    epochs: int
    best_epochs: tuple[int, ...]
    merits: Floats | None
    failures: tuple[str, ...]
    none_learned: bool = False


def noted_and_told(means: MeanWeights, course: TrainingLoop, tell: Tell, begun: str) -> Callable[[], None]:
    """What is done after each step of an epoch: an epoch may take minutes."""
    done = 0

    def after_step() -> None:
        nonlocal done
        done += 1
        means.note()
        tell(f"{begun}, step {done} of {course.step.steps}", within=True)

    return after_step


def train_nets(
    replicas: Replicas,
    inputs: NDArray[np.float32],
    codes: NDArray[np.int64],
    weights: Floats | None,
    recipe: Recipe,
    *,
    judge: Judge | None = None,
    patience: int = 10,
    average_epochs: float = 0.0,
    tell: Tell = quiet,
) -> Trained:
    """Train the replicas in place, on their device.

    Args:
        replicas: The nets.
        inputs: (N, features).
        codes: (N,), 0 and 1 or class numbers.
        weights: (N,), how much each row counts, see `TableRows`; None for equal ones.
        recipe: How; its epochs are the most there are.
        judge: Asked after each epoch. Each replica ends with the weights of the epoch that had its largest
            merit.
        patience: Training ends when no replica has become better for so many epochs.
        average_epochs: What is judged and kept are means of the weights over about so many of the last
            epochs, see `raresight.nn.averaging`; with 0 the weights themselves.
        tell: Hears after each epoch, and each step within, how far it is.
    """
    rows = TableRows(inputs, codes, weights).to(replicas.device, replicas.dtype)
    # Of equal epochs the later one: a ranking is often perfect long before the probabilities are right.
    best, merits = BestWeights(replicas, later_of_equals=True), []
    with training_session(replicas, rows, recipe) as course:
        means = MeanWeights(course.step, average_epochs)
        while not course.is_done:
            frozen = course.step.frozen.cpu().numpy().copy()
            begun = f"epoch {course.epoch + 1} of {'' if judge is None else 'at most '}{recipe.epochs}"
            course.run_epoch(noted_and_told(means, course, tell, begun))
            if judge is None:
                tell(f"epoch {course.epoch} of {recipe.epochs}")
            else:
                with means.in_place():
                    merits.append(judge(replicas, frozen))
                    best.note(torch.from_numpy(merits[-1]), course.epoch)
                tell(f"epoch {course.epoch} of at most {recipe.epochs}, the best so far {max(best.epochs)}")
                if course.epoch - max(best.epochs) >= patience:
                    break
        if judge is None:
            means.write()
    failures = tuple(
        f"{replicas.names[k]}: {failure.reason} not finite in epoch {failure.epoch}, {failure.outcome}: "
        "lower learning_rate"
        for k, failure in course.failures().items()
    )
    if judge is None:
        return Trained(course.epoch, (course.epoch,) * len(replicas), None, failures, course.none_learned)
    best.restore()
    return Trained(course.epoch, best.epochs, np.array(merits), failures, course.none_learned)
