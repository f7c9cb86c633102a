"""What losses built on another loss have in common."""

from __future__ import annotations

from .contract import Loss


class ComposedLoss(Loss):
    """A loss that changes the scale or the place of a base loss, and so keeps its shape."""

    base: Loss

    @property
    def is_monotone(self) -> bool:
        return self.base.is_monotone

    @property
    def is_convex(self) -> bool:
        return self.base.is_convex

    @property
    def has_unique_minimiser(self) -> bool:
        return self.base.has_unique_minimiser

    def _check_base(self, n: int, what: str) -> None:
        """`n` numbers, one a class, must fit the classes of the base loss."""
        owner = type(self).__name__
        if not isinstance(self.base, Loss):
            raise TypeError(f"{owner}: base must be a loss, got {self.base!r}")
        classes = self.base.n_classes
        if classes not in (None, n) and not (classes == 1 and n == 2):
            raise ValueError(f"{owner}: {n} {what} for {self.base}, a loss of {classes} classes")

    def _classes_with(self, n: int) -> int:
        return 1 if self.base.n_classes == 1 else n
