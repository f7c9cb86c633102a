"""Plans: the derivatives of a loss for blocks of scores in the fewest NumPy calls.

A booster and a linear solver need the derivatives of millions of scores in every round. On arrays, phi makes
a new array at every step and checks for overflow at every second one. Here phi is traced once on a symbolic
margin, and equal subexpressions are kept once. The steps are then replayed in place on blocks that stay in a
core's cache. In float32 and one thread this takes 0.6 to 0.8 of the time (`benchmarks/results/plans.csv`).

A plan refuses a block with extreme margins or results that are not finite. The caller then uses the safe
operations of the loss for it. So a plan may omit the steps that only extreme margins need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ._numpy_ops import Array, NumpyOps
from .contract import Loss, NormalForm

__all__ = ["BlockOps", "LabelMap", "Plan", "plan_of"]

# e^80 and its reciprocal are well within the range of float32, and e^700 within that of float64. So margins
# up to these need no branch on their sign.
_ORDINARY: dict[np.dtype[Any], float] = {np.dtype(np.float32): 80.0, np.dtype(np.float64): 700.0}


# ---- tracing -----------------------------------------------------------------------------


class Node:
    """A value of a trace: an operation on nodes and numbers. Arithmetic on it makes further nodes."""

    __slots__ = ("arguments", "graph", "number", "operation")
    __array_ufunc__ = None  # a NumPy number on the left leaves the arithmetic to the node

    def __init__(self, graph: _Graph, operation: str, arguments: tuple[Any, ...], number: int) -> None:
        self.graph, self.operation, self.arguments, self.number = graph, operation, arguments, number

    def __add__(self, other: Any) -> Any:
        return self if _is(other, 0) else self.graph.node("add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self if _is(other, 0) else self.graph.node("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return -self if _is(other, 0) else self.graph.node("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.graph.product(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self * (1 / other) if _is_number(other) else self.graph.node("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.graph.node("divide", other, self)

    def __pow__(self, exponent: Any) -> Any:
        return self * self if _is(exponent, 2) else self.graph.node("power", self, exponent)

    def __neg__(self) -> Any:
        return self.graph.negative(self)


class _Graph:
    """The nodes of a trace, each once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Node] = {}

    def node(self, operation: str, *arguments: Any) -> Node:
        if operation in ("add", "multiply"):  # numbers first, then nodes in their order: a + b is b + a
            arguments = tuple(sorted(arguments, key=lambda a: a.number if isinstance(a, Node) else -1))
        key = (operation, *((True, a.number) if isinstance(a, Node) else (False, a) for a in arguments))
        if key not in self._known:
            self._known[key] = Node(self, operation, arguments, len(self._known))
        return self._known[key]

    def product(self, a: Node, b: Any) -> Any:
        if not _is_number(b):
            # Signs move outwards, where two of them cancel or a label takes one up.
            if a.operation == "negative":
                return -self.product(a.arguments[0], b)
            return (
                -self.product(a, b.arguments[0]) if b.operation == "negative" else self.node("multiply", a, b)
            )
        if b == 0:
            return 0.0
        if a.operation == "negative":  # (-x) b is x (-b): one step less
            return self.product(a.arguments[0], -b)
        if a.operation == "multiply" and _is_number(a.arguments[0]):
            return self.product(a.arguments[1], a.arguments[0] * b)
        if b == 1:
            return a
        return self.negative(a) if b == -1 else self.node("multiply", b, a)

    def negative(self, a: Node) -> Any:
        if a.operation == "negative":
            return a.arguments[0]
        if a.operation == "multiply" and _is_number(a.arguments[0]):
            return self.product(a.arguments[1], -a.arguments[0])
        if a.operation == "subtract":
            return self.node("subtract", *reversed(a.arguments))
        return self.node("negative", a)


class TraceOps:
    """The operations of losses on nodes, without the care that extreme margins need."""

    def __init__(self) -> None:
        graph = _Graph()
        # The input is -m: that is what the exponential wants, and a sign of the label makes it from the
        # score.
        self.input = graph.node("input")
        self.margin = graph.node("negative", self.input)
        self._graph = graph

    def exp(self, t: Any) -> Any:
        return self._graph.node("exp", t) if isinstance(t, Node) else float(np.exp(t))

    def expm1(self, t: Node) -> Node:
        return self._graph.node("expm1", t)

    def log(self, t: Node) -> Node:
        return self._graph.node("log", t)

    def log1p(self, t: Node) -> Node:
        return self._graph.node("log1p", t)

    def sqrt(self, t: Node) -> Node:
        return self._graph.node("sqrt", t)

    def abs(self, t: Node) -> Node:
        return self._graph.node("absolute", t)

    def upper(self, t: Node, limit: float) -> Node:
        return self._graph.node("minimum", t, limit)

    def softplus(self, t: Node) -> Node:
        return self.log1p(self.exp(t))

    def sigmoid(self, t: Node) -> Any:
        return 1 / (1 + self.exp(-t))

    def logistic(self, m: Node) -> tuple[Any, Any]:
        # q = e^-m p, without the cancellation of 1 - p.
        e = self.exp(-m)
        return self.log1p(e), e * self.sigmoid(m)

    def saturate(self, a: Any) -> Any:
        return a

    def finite(self, a: Any) -> Any:
        return a

    def power_excess(self, m: Node, x: Node, u: float) -> Any:
        return self.expm1(u * x)

    def exp_of_fraction(self, rate: float, q: Node) -> Any:
        return self.exp(rate * q)

    is_number = staticmethod(NumpyOps.is_number)
    is_zero = staticmethod(NumpyOps.is_zero)


def _is_number(value: Any) -> bool:
    return not isinstance(value, Node)


def _is(value: Any, number: float) -> bool:
    return _is_number(value) and bool(value == number)


# ---- replaying ---------------------------------------------------------------------------

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in (
        *("add", "subtract", "multiply", "divide", "negative", "exp", "expm1", "log", "log1p", "sqrt"),
        *("power", "absolute"),
    )
}
# NumPy deprecates a place for the result behind its two arguments.
_FUNCTIONS["minimum"] = lambda a, limit, result: np.minimum(a, limit, out=result)


# One NumPy call: the function, the places of its arguments, and the place of its result. The second argument
# is -1 for a function of one. Places are in a list of the rows of the scratch space, followed by the numbers.
# Plain tuples, because each block unpacks them at every step.
_Step = tuple[Callable[..., Any], int, int, int]


@dataclass(frozen=True, eq=False)
class LabelMap:
    """How the labels of rows enter: -m = factor z + shift, and the factors of the derivatives by z.

    Attributes:
        factor: Minus the scale of each row's label; -1 for a positive and 1 for a negative in the plain case.
        shift: Minus the shift; None where it is zero.
        value: The weight of each row's label; None where it is 1.
        slope: What -dphi/dm is multiplied by; in the plain case `factor`.
        bend: What the second derivative is multiplied by; None where it is 1.
    """

    factor: Array
    shift: Array | None
    value: Array | None
    slope: Array
    bend: Array | None

    @staticmethod
    def of(form: NormalForm, labels: Array) -> LabelMap:
        """The map for labels 0.0 and 1.0, in their precision."""
        if form.is_plain:
            factor = 1 - 2 * labels
            return LabelMap(factor, None, None, factor, None)

        def choose(numbers: tuple[float, ...]) -> Array:
            return NumpyOps.choose(labels, numbers[1], numbers[0])

        factor, weight = choose(tuple(-scale for scale in form.scales)), choose(form.weights)
        shift = choose(tuple(-shift for shift in form.shifts)) if any(form.shifts) else None
        slope = factor * weight
        return LabelMap(factor, shift, weight, slope, slope * factor)

    def at(self, rows: slice) -> LabelMap:
        """That of some of the rows."""
        parts = (self.factor, self.shift, self.value, self.slope, self.bend)
        return LabelMap(*(None if part is None else part[rows] for part in parts))


@dataclass(frozen=True, eq=False)
class Plan:
    """The derivatives of a loss of a binary score for blocks of rows; threads may share it.

    Attributes:
        size: How many rows the scratch space has.
    """

    size: int
    _orders: tuple[int, ...]
    _steps: tuple[_Step, ...]
    _numbers: tuple[Array, ...]
    _places: tuple[int, ...]
    _limit: Any
    _is_safe: bool  # no term is infinite at a margin of ordinary size

    def __call__(self, z: Array, labels: LabelMap, results: tuple[Array, ...], space: Array) -> bool:
        """Fill in a result for each order; False where the block needs the safe operations of the loss.

        Args:
            z: The scores of the block, in the plan's precision.
            labels: The map of its labels.
            results: One array for each order; one of them may be `z` itself.
            space: Scratch of at least `size` rows and as many columns as the block has; one thread's own.

        Returns:
            Whether it was done. If not, the results hold anything, and `z` may be lost where it is one of
            them unless its margins were the reason.
        """
        own = [row[: len(z)] for row in space[: self.size]]
        own += self._numbers
        np.multiply(labels.factor, z, out=own[0])
        if labels.shift is not None:
            own[0] += labels.shift
        # NaN fails both comparisons.
        if not (own[0].max() < self._limit and own[0].min() > -self._limit):
            return False
        for function, first, second, result in self._steps:
            if second < 0:
                function(own[first], own[result])
            else:
                function(own[first], own[second], own[result])
        terms = [own[place] for place in self._places]
        factors = [(labels.value, labels.slope, labels.bend)[order] for order in self._orders]
        is_plain = labels.bend is None
        if not is_plain:  # a weight may make a term infinite
            for factor, term in zip(factors, terms, strict=True):
                term *= factor
        # One sum shows whether any number is infinite or none; one that overflows by itself only costs time.
        if not (self._is_safe and is_plain) and not all(np.isfinite(term.sum()) for term in terms):
            return False
        for factor, term, into in zip(factors, terms, results, strict=True):
            if is_plain and factor is not None:
                np.multiply(factor, term, out=into)
            else:
                np.copyto(into, term)
        return True


def plan_of(loss: Loss, orders: tuple[int, ...], kind: Any) -> Plan | None:
    """The plan of a loss of a binary score, or None for one whose phi cannot be traced (erf, a user's
    function).

    Args:
        loss: The loss.
        orders: Which derivatives: 0 the value, 1 the slope, 2 the second derivative.
        kind: float32 or float64.

    >>> from raresight.losses import TBL, Erf
    >>> plan = plan_of(TBL(), (1, 2), np.float32)
    >>> z, y = np.array([-1, 0, 2], np.float32), np.array([1, 0, 0], np.float32)
    >>> gradient, hessian = np.empty((2, 3), np.float32)
    >>> labels = LabelMap.of(TBL().normal_form(), y)
    >>> plan(z, labels, (gradient, hessian), np.empty((plan.size, 3), np.float32))
    True
    >>> bool(np.allclose(gradient, TBL().gradient(z, y)) and np.allclose(hessian, TBL().hessian(z, y)))
    True
    >>> plan_of(Erf(), (1, 2), np.float32) is None
    True
    """
    form = loss.normal_form()
    return None if form is None else _plan_of(form, orders, np.dtype(kind))


@lru_cache(maxsize=1024)
def _plan_of(form: NormalForm, orders: tuple[int, ...], kind: np.dtype[Any]) -> Plan | None:
    ops = TraceOps()
    try:
        terms = form.phi(ops, ops.margin, max(orders), *form.numbers)
    except (AttributeError, TypeError):  # an operation that TraceOps has not, or a branch on a margin
        return None
    if not all(isinstance(terms[order], Node) for order in orders):
        return None
    # By the score -phi' has the factor that makes -m from it: a phi' that is a negative needs no sign.
    roots = [-terms[order] if order == 1 else terms[order] for order in orders]
    size, steps, numbers, places = _schedule(ops, roots, kind)
    limit = kind.type(_ORDINARY[kind])
    plan = Plan(size, orders, steps, numbers, places, limit, _is_safe=False)
    # Tried once on margins all over the ordinary range, the plan need not look at every block's results.
    margins = np.linspace(-limit, limit, 2003, dtype=kind)[1:-1]
    results = tuple(np.empty_like(margins) for _ in orders)
    labels = LabelMap(np.ones_like(margins), None, None, np.ones_like(margins), None)
    with np.errstate(all="ignore"):
        is_safe = plan(margins, labels, results, np.empty((size, len(margins)), kind))
    return replace(plan, _is_safe=is_safe)


def _schedule(
    ops: TraceOps, roots: list[Node], kind: np.dtype[Any]
) -> tuple[int, tuple[_Step, ...], tuple[Array, ...], tuple[int, ...]]:
    """The size of the scratch space, the steps in order, the numbers behind it, and the places of the roots.

    A place is free again once its value was last read, so that few blocks are in the cache at a time.
    """
    order: list[Node] = []

    def visit(node: Any) -> None:
        if isinstance(node, Node) and node not in order:
            for argument in node.arguments:
                visit(argument)
            order.append(node)

    for root in roots:
        visit(root)
    last_read = {node: i for i, reader in enumerate(order) for node in _nodes(reader)}
    last_read |= dict.fromkeys(roots, len(order))
    places, free, size = {ops.input: 0}, list[int](), 1
    chosen = []  # the places of the nodes that are computed, in order
    for i, node in enumerate(order):
        if node is ops.input:
            continue
        free += [places[a] for a in dict.fromkeys(_nodes(node)) if last_read[a] == i]
        if free:
            place = free.pop()
        else:
            place, size = size, size + 1
        chosen.append((node, [places[a] if isinstance(a, Node) else a for a in node.arguments], place))
        places[node] = place
    numbers = list(dict.fromkeys(a for node, _, _ in chosen for a in node.arguments if _is_number(a)))
    steps = []
    for node, arguments, place in chosen:
        at = [
            own if isinstance(a, Node) else size + numbers.index(a)
            for a, own in zip(node.arguments, arguments, strict=True)
        ]
        steps.append((_FUNCTIONS[node.operation], at[0], at[1] if len(at) == 2 else -1, place))
    return size, tuple(steps), tuple(np.array(n, kind) for n in numbers), tuple(places[r] for r in roots)


def _nodes(node: Node) -> list[Node]:
    return [argument for argument in node.arguments if isinstance(argument, Node)]


# ---- blocks of class logits ----------------------------------------------------------------


class BlockOps(NumpyOps):
    """`NumpyOps` that look for what overflows before they clip it: cheaper for blocks of ordinary margins.

    For what has no plan: class logits, and losses that cannot be traced. One object belongs to one thread: it
    keeps the probabilities of the margins last seen, for which a loss asks again for its second derivative.
    """

    def __init__(self) -> None:
        self._margins: Array = None
        self._probabilities: Array = None

    def logistic(self, m: Array) -> tuple[Array, Array]:  # type: ignore[override]
        """x = -log sigma(m) and q = sigma(-m), each to full relative precision."""
        if not _are_ordinary(m):
            self._margins = None
            return NumpyOps.logistic(m)
        e = np.negative(m)
        np.exp(e, out=e)
        p = e + m.dtype.type(1)
        np.divide(m.dtype.type(1), p, out=p)
        self._margins, self._probabilities = m, p
        q = e * p
        return np.log1p(e, out=e), q

    def sigmoid(self, t: Array) -> Array:  # type: ignore[override]
        if t is self._margins:
            return self._probabilities
        if not _are_ordinary(t):
            return NumpyOps.sigmoid(t)
        e = np.negative(t)
        np.exp(e, out=e)
        e += t.dtype.type(1)
        return np.divide(t.dtype.type(1), e, out=e)

    # NaN fails every comparison, and is clipped.

    @classmethod
    def saturate(cls, a: Array) -> Array:
        return a if a.max() <= cls.largest(a) else NumpyOps.saturate(a)

    @classmethod
    def finite(cls, a: Array) -> Array:
        limit = cls.largest(a)
        return a if a.max() <= limit and a.min() >= -limit else NumpyOps.finite(a)


def _are_ordinary(m: Array) -> bool:
    """Return whether all margins are ordinary; false for NaN. Two reductions are cheaper than |m|."""
    limit = _ORDINARY.get(m.dtype)
    return limit is not None and bool(m.max() < limit) and bool(m.min() > -limit)
