"""The sums over rows that a fit needs: value, gradient and curvature of the risk at a point.

    R(b, b0) = sum_i w_i l(y_i, x_i.b + b0) / sum_i w_i + (l2/2) |b|^2

in the standardised features x of `Columns`. Solvers see rows only through these sums (`SummedRows`). Sums of
parts add up to those of the whole: an array, a series of batches and a cluster give the same fit. `Sample`
has rows in memory. It answers many requests (a loss, a penalty and a point) in one read. For each block one
matrix product gives the scores of all requests, and another gives their gradients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..losses import Loss
from ..losses._numpy_ops import NumpyOps
from ..losses.plan import BlockOps, LabelMap, Plan, plan_of
from .design import Columns, Design, Floats
from .penalties import Penalty
from .threads import in_threads, thread_count

__all__ = ["Request", "RiskDerivatives", "RiskSums", "Sample", "SummedRows", "evaluate", "slope_sizes"]

_AT_ONCE = 32  # settings whose scores are held together
_FEW = 4  # requests a thread takes at once where all rows are one block
_SMALL = 1 << 18  # numbers below which threads cost more than they save


class SummedRows(Protocol):
    """Rows with labels, in memory or elsewhere, known by their sums."""

    @property
    def columns(self) -> Columns:
        """How the features are standardised."""

    @property
    def n_scores(self) -> int:
        """1, for labels 0 and 1, or K logits."""

    @property
    def class_totals(self) -> Floats:
        """The sum of the weights of each class."""

    def sums(self, requests: Sequence[Request]) -> list[RiskSums]:
        """Return the sums for each request."""


@dataclass(frozen=True, eq=False)
class Request:
    """A request for the risk at a point: value and gradient (order 1), and the Hessian (order 2).

    `theta` is the vector of the (n_scores, columns) coefficients. `double` asks for float64 throughout;
    otherwise float32 rows are computed in float32 and summed over blocks in float64. `features` limits the
    Hessian to some features (and the intercept).
    """

    loss: Loss
    penalty: Penalty
    theta: Floats
    order: int
    double: bool
    features: NDArray[np.intp] | None = None


@dataclass(eq=False)
class RiskSums:
    """Sums over rows for one request, in the units of X.

    Attributes:
        weight: The sum of the weights w.
        value: The sum of w l.
        scale: The sum of w |l'|.
        product: X'g, (K, d), with g = w l'.
        total: The sum of g, (K,).
        bends: X'hX, X'h and the sum of h for pairs of scores, with h = w l''; empty below order 2.
        double: Whether they were computed in float64.
    """

    weight: float
    value: float
    scale: float
    product: Floats
    total: Floats
    bends: dict[tuple[int, int], tuple[Floats, Floats, float]]
    double: bool

    @staticmethod
    def added(parts: Sequence[RiskSums]) -> RiskSums:
        """Return the sums of all rows from those of parts."""
        bends = {}
        for pair in parts[0].bends:
            terms = [part.bends[pair] for part in parts]
            bends[pair] = (
                np.sum([term[0] for term in terms], axis=0),
                np.sum([term[1] for term in terms], axis=0),
                math.fsum(term[2] for term in terms),
            )
        return RiskSums(
            math.fsum(part.weight for part in parts),
            math.fsum(part.value for part in parts),
            math.fsum(part.scale for part in parts),
            np.sum([part.product for part in parts], axis=0),
            np.sum([part.total for part in parts], axis=0),
            bends,
            all(part.double for part in parts),
        )


@dataclass(frozen=True, eq=False)
class RiskDerivatives:
    """The regularised risk at a point.

    `scale` is the mean of |l'|, the size of the terms that cancel in the gradient; `noise` the rounding of
    the value.
    """

    value: float
    gradient: Floats
    hessian: Floats | None
    scale: float
    noise: float
    double: bool


def evaluate(rows: SummedRows, requests: Sequence[Request]) -> list[RiskDerivatives]:
    """Compute the risk at each of the points, from one round of sums."""
    # Far from the minimum a sum may overflow; the solver checks the results and steps back.
    with NumpyOps.guard():
        return [_finish(rows.columns, request, sums) for request, sums in zip(requests, rows.sums(requests))]


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows in memory, labelled 0.0/1.0 for one score per row (`n_scores` = 1), or by class for K logits."""

    design: Design
    labels: NDArray[Any]
    weights: Floats | None
    n_scores: int

    @property
    def columns(self) -> Columns:
        return self.design.columns

    @property
    def total(self) -> float:
        return float(len(self.labels)) if self.weights is None else float(self.weights.sum())

    @property
    def size(self) -> int:
        """How many numbers a point has."""
        return self.n_scores * self.columns.n_columns

    @property
    def class_totals(self) -> Floats:
        labels = self.labels.astype(np.int64, copy=False)
        counts = np.bincount(labels, self.weights, minlength=max(self.n_scores, 2))
        return np.asarray(counts, dtype=np.float64)

    def sums(self, requests: Sequence[Request]) -> list[RiskSums]:
        """Return the sums for all requests, in one pass over the rows."""
        design = self.design
        # The split into tasks is fixed by the size of X, so that sums do not depend on the number of threads.
        parts = design.tasks()
        groups = _groups(self, requests, _FEW if len(parts) == 1 else len(requests))
        # Threads share the rows; rows of a single block are read by each, for some of the requests.
        tasks = (
            [(part, groups) for part in parts] if len(parts) > 1 else [(parts[0], [one]) for one in groups]
        )

        def work(task: tuple[list[slice], list[_RequestGroup]]) -> dict[int, RiskSums]:
            part, own = task
            ops = BlockOps()
            sums = [group.zero() for group in own]
            scratches = [group.scratch_for(part) for group in own]
            with ops.guard():
                for rows in part:
                    for group, scratch, into in zip(own, scratches, sums):
                        for piece in group.pieces(rows):
                            group.add(ops, scratch, piece, into)
            return {index: one for group, into in zip(own, sums) for index, one in zip(group.members, into)}

        numbers = design.X.nnz if design.is_sparse else design.n_rows * self.columns.n_features
        threads = thread_count() if numbers * len(requests) >= _SMALL else 1
        done = in_threads(work, tasks, threads)
        with NumpyOps.guard():
            added = [
                RiskSums.added([sums[index] for sums in done if index in sums])
                for index in range(len(requests))
            ]
        # All rows count in every request, so their weights are summed once.
        return [replace(sums, weight=self.total) for sums in added]


def _groups(sample: Sample, requests: Sequence[Request], most: int) -> list[_RequestGroup]:
    """Return the requests by precision, at most so many in a group."""
    is_double = [request.double or not sample.design.is_single for request in requests]
    # float32 and float64 requests cannot share a matrix product.
    groups = []
    for double in (False, True):
        members = [i for i, own in enumerate(is_double) if own == double]
        for begin in range(0, len(members), most):
            some = members[begin : begin + most]
            groups.append(_RequestGroup(sample, [requests[i] for i in some], double, some))
    return groups


def slope_sizes(sample: Sample, loss: Loss, theta: Floats) -> NDArray[Any]:
    """|l'| of each row at a point, weight apart; for K logits the sum over them."""
    group = _RequestGroup(
        sample, [Request(loss, Penalty(), theta, 1, False)], double=not sample.design.is_single
    )
    result = np.empty(sample.design.n_rows, dtype=group.kind)

    def work(part: list[slice]) -> None:
        ops, space = BlockOps(), group.scratch_for(part).scores
        with ops.guard():
            for rows in part:
                scores = group.scores(sample.design.block(rows, group.double), slice(0, 1), space)
                if sample.n_scores == 1:
                    labels = sample.labels[rows].astype(group.kind, copy=False)
                    result[rows] = np.abs(loss._labelled(ops, scores[0], labels, 1)[1])
                else:
                    logits = np.ascontiguousarray(scores.T)
                    slopes = loss._class_terms(ops, logits, sample.labels[rows], 1)[1]
                    result[rows] = np.abs(slopes).sum(axis=1)

    in_threads(work, sample.design.tasks())
    return result


@dataclass(frozen=True, eq=False)
class _Scratch:
    """Arrays that a thread reuses for every block: fresh memory costs more than the computation in it."""

    scores: Any
    terms: Any


class _RequestGroup:
    """Requests of one precision on one sample; `members` are their places among all."""

    def __init__(
        self, sample: Sample, requests: list[Request], double: bool, members: Sequence[int] = (0,)
    ) -> None:
        self.sample, self.requests, self.double, self.members = sample, requests, double, members
        self.kind = np.dtype(np.float64 if double else np.float32)
        columns, scores = sample.columns, sample.n_scores
        centre, scale = columns.fold()
        # Standardisation is folded into the coefficients: X itself is not changed.
        thetas = np.stack([request.theta.reshape(scores, columns.n_columns) for request in requests])
        coef = thetas[:, :, : columns.n_features] * scale
        own = thetas[:, :, -1] if columns.intercept else 0.0
        # In float64 before the cast: for features far from zero the two terms cancel.
        self.offsets = (own - coef @ centre).reshape(-1, 1).astype(self.kind)
        self.coef = coef.reshape(-1, columns.n_features).astype(self.kind)
        self.plans: list[Plan | None] = [
            plan_of(request.loss, tuple(range(request.order + 1)), self.kind) if scores == 1 else None
            for request in requests
        ]
        self.far = bool(np.abs(thetas).max(initial=0.0) > 1e15)

    def zero(self) -> list[RiskSums]:
        scores, d = self.sample.n_scores, self.sample.columns.n_features
        result = []
        for request in self.requests:
            size = d if request.features is None else len(request.features)
            pairs = [(k, m) for k in range(scores) for m in range(k + 1)] if request.order == 2 else []
            bends = {pair: (np.zeros((size, size)), np.zeros(size), 0.0) for pair in pairs}
            result.append(
                RiskSums(0.0, 0.0, 0.0, np.zeros((scores, d)), np.zeros(scores), bends, self.double)
            )
        return result

    def pieces(self, rows: slice) -> list[slice]:
        """Return the block, in halves for float64, which takes twice the memory."""
        if not self.double:
            return [rows]
        middle = (rows.start + rows.stop) // 2
        return [slice(rows.start, middle), slice(middle, rows.stop)]

    def scratch_for(self, blocks: list[slice]) -> _Scratch:
        """Arrays for one thread, large enough for every block."""
        rows = max(block.stop - block.start for block in blocks)
        at_once = min(len(self.requests), _AT_ONCE) * self.sample.n_scores
        terms = 3 + max((plan.size for plan in self.plans if plan is not None), default=0)
        return _Scratch(np.empty((at_once, rows), self.kind), np.empty((terms, rows), self.kind))

    def add(self, ops: BlockOps, scratch: _Scratch, rows: slice, into: list[RiskSums]) -> None:
        """Add the sums of a block of rows."""
        sample, k = self.sample, self.sample.n_scores
        block = sample.design.block(rows, self.double)
        weight = None if sample.weights is None else sample.weights[rows].astype(self.kind, copy=False)
        add = self._add_binary if k == 1 else self._add_classes
        # Not all of a long path at once: their scores would take more room than the rows.
        for begin in range(0, len(into), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            slopes = self.scores(block, some, scratch.scores)
            add(ops, block, rows, weight, slopes, scratch.terms, some, into[some])
            products = (block.T @ slopes.T).T if sample.design.is_sparse else slopes @ block
            totals = slopes.sum(axis=1)
            for i, sums in enumerate(into[some]):
                sums.product += products[i * k : (i + 1) * k]
                sums.total += totals[i * k : (i + 1) * k]

    def scores(self, block: Any, some: slice, space: Any) -> Any:
        """Write the scores of a block for some requests into `space`, one row per request and score."""
        k = self.sample.n_scores
        places = slice(some.start * k, some.stop * k)
        coef = self.coef[places]
        scores = space[: len(coef), : block.shape[0]]
        if self.sample.design.is_sparse:
            # scipy.sparse has no product into given memory.
            scores[...] = (block @ coef.T).T
        else:
            np.matmul(coef, block.T, out=scores)
        scores += self.offsets[places]
        if self.far:
            # A score beyond the range of the type is a far point of a line search, not an error.
            largest = NumpyOps.largest(scores)
            np.clip(scores, -largest, largest, out=scores)
        return scores

    def _add_binary(
        self,
        ops: BlockOps,
        block: Any,
        rows: slice,
        weight: Any,
        scores: Any,
        space: Any,
        some: slice,
        into: list[RiskSums],
    ) -> None:
        """Add the sums of values and curvatures; the scores become slopes."""
        labels = self.sample.labels[rows].astype(self.kind, copy=False)
        value, size, bend = space[:3, : len(labels)]
        maps: dict[Any, LabelMap] = {}  # requests of one loss, and all plain ones, share theirs
        for z, request, plan, sums in zip(scores, self.requests[some], self.plans[some], into):
            order = request.order
            if plan is None or not self._planned(plan, request, labels, maps, (value, z, bend), space[3:]):
                terms = request.loss._labelled(ops, z, labels, order)
                value[...] = terms[0]
                if order == 2:
                    bend[...] = terms[2]
                z[...] = terms[1]
            if order == 2:
                if weight is not None:
                    bend *= weight
                _add_bend(sums, (0, 0), block, bend, request.features)
            if weight is not None:
                z *= weight
            sums.value += _total(value, weight)
            sums.scale += float(np.abs(z, out=size).sum())

    def _planned(
        self,
        plan: Plan,
        request: Request,
        labels: Any,
        maps: dict[Any, LabelMap],
        results: tuple[Any, Any, Any],
        space: Any,
    ) -> bool:
        """Value, slope and second derivative of a block by a plan; the scores become slopes."""
        form = request.loss.normal_form()
        assert form is not None
        key = (form.scales, form.shifts, form.weights)
        if key not in maps:
            maps[key] = LabelMap.of(form, labels)
        return plan(results[1], maps[key], results[: request.order + 1], space)

    def _add_classes(
        self,
        ops: BlockOps,
        block: Any,
        rows: slice,
        weight: Any,
        scores: Any,
        space: Any,
        some: slice,
        into: list[RiskSums],
    ) -> None:
        """The same for class logits."""
        labels, k = self.sample.labels[rows], self.sample.n_scores
        for i, (request, sums) in enumerate(zip(self.requests[some], into)):
            own = slice(i * k, (i + 1) * k)
            # Losses of class logits want the classes last; the product gives them first.
            logits = np.ascontiguousarray(scores[own].T)
            value, slope = request.loss._class_terms(ops, logits, labels, 1)
            scores[own] = slope.T if weight is None else slope.T * weight
            sums.value += _total(value, weight)
            sums.scale += float(np.abs(scores[own]).sum())
            if request.order == 2:
                bends = request.loss._class_hessian(ops, logits, labels)
                for pair in sums.bends:
                    bend = bends[:, pair[0], pair[1]]
                    _add_bend(sums, pair, block, bend if weight is None else bend * weight, request.features)


def _total(values: Any, weight: Any) -> float:
    return float(values.sum()) if weight is None else float(weight @ values)


def _add_bend(
    sums: RiskSums, pair: tuple[int, int], block: Any, bend: Any, features: NDArray[np.intp] | None
) -> None:
    if features is not None:
        block = block[:, features]
    is_sparse: bool = sparse.issparse(block)
    if is_sparse:
        bent = block.multiply(bend[:, None]).tocsr()
        product, weighted = (block.T @ bent).toarray(), block.T @ bend
    else:
        # One symmetric product: the root of the weights would be faster where they are positive, and a loss
        # that is not convex has negative ones.
        product, weighted = (block * bend[:, None]).T @ block, bend @ block
    so_far = sums.bends[pair]
    total = so_far[2] + float(bend.sum())
    sums.bends[pair] = (so_far[0] + product, so_far[1] + weighted, total)


def _finish(columns: Columns, request: Request, sums: RiskSums) -> RiskDerivatives:
    penalty, weight = request.penalty, sums.weight
    theta = request.theta.reshape(-1, columns.n_columns)
    coef = theta[:, : columns.n_features]
    gradient = columns.gradient_inward(sums.product, sums.total) / weight
    penalty.add_ridge_slope(gradient[:, : columns.n_features], coef)
    ridge = penalty.ridge(coef)
    value = sums.value / weight + ridge
    # Rounding of single rows averages out; what is left was seen to be well below these.
    noise = (1e-14 if sums.double else 1e-7) * (abs(sums.value / weight) + ridge)
    hessian = _assemble(columns, request, sums) if request.order == 2 else None
    return RiskDerivatives(value, gradient.ravel(), hessian, sums.scale / weight, noise, sums.double)


def _assemble(columns: Columns, request: Request, sums: RiskSums) -> Floats:
    """Return the Hessian by class and column, in the order of theta."""
    k = len(sums.total)
    blocks: list[list[Any]] = [[None] * k for _ in range(k)]
    for (a, b), (product, weighted, total) in sums.bends.items():
        inner = columns.hessian_inward(product, weighted, total, request.features) / sums.weight
        if a == b:
            request.penalty.add_ridge_bend(inner, len(inner) - int(columns.intercept))
        blocks[a][b], blocks[b][a] = inner, inner.T
    return np.asarray(np.block(blocks)) if k > 1 else np.asarray(blocks[0][0])
