"""Drawing a linear rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from raresight.theory.linear_rule import LinearRule

__all__ = ["draw_line"]


def draw_line(ax: Any, rule: LinearRule, level: float = 0.0, **style: Any) -> None:
    """The line w.x + b = level of a two-dimensional rule, right across the picture."""
    (w1, w2), b = rule.w, rule.b - level
    reach = np.array([-100.0, 100.0])
    if abs(w2) >= abs(w1):
        ax.plot(reach, -(w1 * reach + b) / w2, **style)
    else:
        ax.plot(-(w2 * reach + b) / w1, reach, **style)
