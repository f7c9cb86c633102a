"""A user's own loss, from its value alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from ._inputs import is_tensor
from .margin import Array, MarginLoss, NormalForm, Ops
from .tails import Tail

__all__ = ["CallableLoss", "from_callable"]

_GRID = np.linspace(-30.0, 30.0, 1201)


def from_callable(fn: Callable[[Any, Any], Any], name: str | None = None) -> CallableLoss:
    """Return a loss from its value: `fn(z, y)` takes torch tensors of one shape and returns that shape.

    `y` holds 0.0 and 1.0. Derivatives come from automatic differentiation in float64, which needs
    `torch`. The link follows from the derivatives, and the properties from 1201 scores between -30
    and 30. Every function that takes a loss takes this one. Class logits need a symmetric loss,
    fn(z, 0) = fn(-z, 1), which then acts on the margin.

    >>> import torch
    >>> logistic = from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * z), name="mine")
    >>> logistic.gradient([0.0], [1]).tolist()
    [-0.5]
    """
    if not callable(fn):
        raise TypeError(f"from_callable needs a function fn(z, y), got {fn!r}")
    label = name if name is not None else getattr(fn, "__name__", "custom")
    positive, negative = _look_at(fn)
    # fn(z, 0) = fn(-z, 1): then it is a function of the margin, and serves class logits.
    symmetric = np.allclose(negative[0], positive[0][::-1], rtol=1e-9, atol=1e-12)
    return CallableLoss(fn, str(label), bool(symmetric))


@dataclass(frozen=True)
class CallableLoss(MarginLoss):
    """A loss whose derivatives are taken by automatic differentiation; see `from_callable`."""

    fn: Callable[[Any, Any], Any]
    label: str
    is_symmetric: bool
    name: ClassVar[str] = "custom"
    formula: ClassVar[str] = "given by a function"

    def __str__(self) -> str:
        return self.label

    @property
    def is_monotone(self) -> bool:
        positive, negative = _look_at(self.fn)
        return bool(np.all(positive[1] <= 1e-12) and np.all(negative[1] >= -1e-12))

    @property
    def is_convex(self) -> bool:
        return all(bool(np.all(side[2] >= -1e-12)) for side in _look_at(self.fn))

    @property
    def has_unique_minimiser(self) -> bool:
        positive, negative = _look_at(self.fn)
        usable = (positive[1] < 0) & (negative[1] > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            link = np.log(negative[1]) - np.log(-positive[1])
        return bool(np.count_nonzero(usable) > 1 and np.all(np.diff(link[usable]) > 0))

    @property
    def n_classes(self) -> int | None:
        return None if self.is_symmetric else 1

    def _labelled(self, ops: Ops, z: Array, y: Array, order: int) -> tuple[Array, ...]:
        torch = _torch()
        scores = torch.as_tensor(z).detach().to(torch.float64)
        labels = torch.as_tensor(y).detach().to(torch.float64)
        terms = _differentiate(self.fn, scores, labels, order)
        if is_tensor(z):
            return tuple(ops.finite(term.to(z.dtype)) for term in terms)
        return tuple(ops.finite(term.numpy().astype(z.dtype)) for term in terms)

    def _branch(self, ops: Ops, z: Array, label: int, order: int) -> tuple[Array, ...]:
        return self._labelled(ops, z, ops.full(z, float(label)), order)

    def _terms(self, ops: Ops, m: Array, order: int) -> tuple[Array, ...]:
        return self._branch(ops, m, 1, order)

    def log_slope(self, ops: Ops, m: Array) -> tuple[Array, Array]:
        return self._log_slopes(ops, m, 1)

    def tail(self) -> Tail | None:
        # A derivative by automatic differentiation underflows long before the tail could be read off.
        return None

    def normal_form(self, outputs: int = 1) -> NormalForm | None:
        return None

    def _log_value(self, ops: Ops, z: Array, label: int) -> Array:
        return ops.log(self._branch(ops, z, label, 0)[0])

    def _log_slopes(self, ops: Ops, z: Array, label: int) -> tuple[Array, Array]:
        _, first, second = self._branch(ops, z, label, 2)
        return ops.log(first if label == 0 else -first), second / first


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            "a loss from a function needs automatic differentiation: pip install 'raresight[torch]'"
        ) from error
    return torch


def _differentiate(fn: Any, z: Any, y: Any, order: int) -> tuple[Any, ...]:
    torch = _torch()
    if torch.compiler.is_compiling():
        return _differentiate_in_graph(torch, fn, z, y, order)
    with torch.enable_grad():
        z = z.clone().requires_grad_()
        value = fn(z, y)
        if not isinstance(value, torch.Tensor) or value.shape != z.shape:
            seen = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
            raise ValueError(f"fn(z, y) must return a tensor of shape {tuple(z.shape)}, got {seen}")
        terms = [value]
        for _ in range(order):
            last = terms[-1]
            following = None
            if last.requires_grad:
                (following,) = torch.autograd.grad(last.sum(), z, create_graph=True, allow_unused=True)
            terms.append(torch.zeros_like(z) if following is None else following)
    return tuple(term.detach() for term in terms)


def _differentiate_in_graph(torch: Any, fn: Any, z: Any, y: Any, order: int) -> tuple[Any, ...]:
    """The same by function transforms, which a compiled graph can hold."""
    terms = [fn]
    for _ in range(order):
        terms.append(torch.func.grad(lambda t, labels, last=terms[-1]: last(t, labels).sum()))
    return tuple(term(z, y) for term in terms)


@lru_cache(maxsize=256)
def _look_at(fn: Any) -> tuple[Any, Any]:
    """Value and derivatives on the grid, for label 1 and for label 0."""
    torch = _torch()
    grid = torch.from_numpy(_GRID)
    sides = (_differentiate(fn, grid, torch.full_like(grid, label), 2) for label in (1.0, 0.0))
    positive, negative = (tuple(term.numpy() for term in side) for side in sides)
    return positive, negative
