"""The picture of the losses and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..losses import Loss
from .drawing import COLOURS, figure_class, picture_path, save

__all__ = ["draw_losses", "short_label"]

_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)))


def draw_losses(losses: Sequence[Loss], path: Path | str) -> Path:
    """Draw l(1, z) and -dl(1, z)/dz of each loss to a PNG, SVG or PDF file.

    Losses that need class logits have no curve over a score and are refused.
    """
    make_figure = figure_class()
    for loss in losses:
        if not loss.takes_score:
            raise ValueError(f"{loss} is for class logits; only losses of a binary score can be drawn")
    target = picture_path(path)
    z = np.linspace(-6, 6, 601)
    positive = np.ones_like(z)
    figure = make_figure(figsize=(11, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for i, loss in enumerate(losses):
        value, gradient = loss.derivatives(z, positive, order=1)
        style = {
            "label": short_label(loss),
            "color": COLOURS[i % len(COLOURS)],
            "linestyle": _DASHES[i // len(COLOURS) % len(_DASHES)],
            "linewidth": 2.2 if loss.name == "tbl" else 1.4,
        }
        left.plot(z, value, **style)
        right.plot(z, -gradient, **style)
    left.set(title="loss of a positive, l(1, z)", xlabel="score z", ylim=(0, 12), xlim=(-6, 6))
    right.set(
        title="pull on a positive, -dl(1, z)/dz",
        xlabel="score z",
        xlim=(-6, 6),
        yscale="log",
        ylim=(1e-3, 50),
    )
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*left.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=8)
    return save(figure, target)


def short_label(loss: Loss) -> str:
    """The loss's text; a long one with its first parameter alone."""
    text = str(loss)
    return text if len(text) <= 34 else f"{text.split(',')[0]},...)"
