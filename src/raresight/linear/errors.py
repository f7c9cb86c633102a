"""What the solver warns of."""

from __future__ import annotations

from sklearn.exceptions import ConvergenceWarning

__all__ = ["NotConvergedWarning"]


class NotConvergedWarning(ConvergenceWarning):  # type: ignore[misc]
    """The solver stopped before the gradient was small enough; the message says why and what to do."""
