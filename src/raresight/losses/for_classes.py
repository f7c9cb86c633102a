"""The loss that a model is fitted with: read from text, and checked against the classes of the labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from .class_weighted import ClassWeighted
from .contract import Loss
from .registry import parse

__all__ = ["loss_for_classes", "readable_text", "weighted_loss"]


def loss_for_classes(loss: Loss | str, counts: Any) -> Loss:
    """The loss for classes that occur `counts` times, or an error that says what to pass instead.

    A loss that depends on class counts or a prior must be given them, because the user may want other numbers
    than those of the training rows. The error names those of the training rows.

    >>> loss_for_classes("tbl", [990, 10])
    TBL(alpha=0.8, C=0.5)
    """
    counts = np.asarray(counts)
    if isinstance(loss, str):
        try:
            loss = parse(loss)
        except ValueError as error:
            if "missing a required argument" not in str(error):
                raise
            raise ValueError(f"{error}. {_advice(counts)}") from None
    if not isinstance(loss, Loss):
        raise TypeError(
            "loss must be a loss of raresight.losses or its text such as 'tbl(alpha=0.8,C=0.5)', "
            f"got {type(loss).__name__}"
        )
    n_classes = len(counts)
    if n_classes == 2 and not loss.takes_score:
        raise ValueError(
            f"{loss} is for {loss.n_classes} class logits, but y holds two classes: one score"
            + (f", for which write {loss.score_form}" if loss.score_form else "")
        )
    if n_classes > 2 and loss.n_classes not in (None, n_classes):
        expected = "two classes" if loss.n_classes == 1 else f"{loss.n_classes} classes"
        raise ValueError(f"{loss} is for {expected}, but y holds {n_classes}")
    if not loss.has_unique_minimiser:
        raise ValueError(
            f"{loss} has no calibrated probability: its risk has no unique minimiser, so a fit with it has "
            "no start and no link"
        )
    return loss


def weighted_loss(loss: Loss, weights: tuple[float, ...] | None) -> Loss:
    """The loss with class weights; its link takes them out of the probabilities again."""
    return loss if weights is None else ClassWeighted(loss, weights)


def readable_text(loss: Loss) -> str:
    """The loss as a text from which it can be read back, or an error.

    >>> readable_text(parse("tbl"))
    'tbl(alpha=0.8,C=0.5)'
    """
    text = str(loss)
    try:
        known = parse(text) == loss
    except ValueError:
        known = False
    if not known:
        raise ValueError(f"the loss {text} has no text that can be read back, so the model cannot be saved")
    return text


def _advice(counts: Any) -> str:
    numbers = ",".join(f"{count:g}" for count in counts)
    shares = counts / counts.sum()
    prior = f"{shares[1]:g}" if len(counts) == 2 else f"({','.join(f'{share:g}' for share in shares)})"
    return (
        "It depends on the classes and is not guessed from the training labels, whose class counts are "
        f"({numbers}): write for example 'ldam(class_counts=({numbers}))' or "
        f"'logitadjusted(crossentropy,prior={prior})'"
    )
