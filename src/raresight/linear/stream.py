"""A fit that goes on batch by batch.

Of past batches the stream keeps a quadratic: the sum of their losses expanded at the coefficients they were
fitted with,

    Q(t) = t'A t/2 - r.t,   A = sum w_i l''_i x~_i x~_i',   A t - r = sum w_i l'_i x~_i   at each batch's fit.

A new batch is fitted by minimising its own exact loss plus Q plus the penalties, and then joins Q. Near the
solution this is Newton's method on everything seen. Far from it, it is not: a quadratic understates how the
loss of rows of one class grows when the other class pulls the scores back. So rows first wait in a pool,
whose loss is exact, until it has `_ENOUGH` rows of each class and a batch hardly moves the fit any more, or
until it holds `_POOL` numbers. A full pool of a single class is thinned, at random and weighted to match, and
waits on.

Rows in random order end near the batch fit: within 1.5/sqrt(positives) a coefficient in the tests. Rows in
the order of their labels do not, see `LinearClassifier.partial_fit`. A weak pull to the loss's best constant
for the class shares so far, worth half a row of the rarest class, holds the fit while a class is lacking.
Negative curvature (losses that are not convex) is left out of A.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..common.class_weights import class_weights, weighted_loss
from ..losses import Loss
from ..losses.for_classes import loss_for_classes
from .design import Design, Floats, make_design, refuse_far_columns, unit_of
from .labels import encode_with, sorted_classes
from .proximal import descend_with_l1, places_of
from .reading import read_rows, read_weights
from .risk import Evaluation, Request, Sample, evaluate
from .solver import Plan, best_constant
from .steps import Minimum, Settings, descend

__all__ = ["Stream"]

_MOST_NUMBERS = 5000
_ENOUGH = 20  # rows of each class that let a pool join the quadratic
_SETTLED = 0.1  # by how much a batch may move a coefficient or the intercept for its pool to join
_POOL = 1 << 20  # numbers that a pool holds at most


@dataclass(frozen=True, eq=False)
class Moments:
    """Weight, means and sums of squared deviations of the features so far."""

    weight: float
    mean: Floats
    squares: Floats

    def joined(self, weight: float, mean: Floats, squares: Floats) -> Moments:
        """With another batch (Chan, Golub and LeVeque)."""
        total = self.weight + weight
        gap = mean - self.mean
        return Moments(
            total,
            self.mean + gap * (weight / total),
            self.squares + squares + gap**2 * (self.weight * weight / total),
        )


@dataclass(frozen=True, eq=False)
class Stream:
    """All that a stream remembers. Coefficients and Q are in the units of X, shifted by `origin`."""

    classes: NDArray[Any]
    loss: Loss
    intercept_wanted: bool
    origin: Floats
    moments: Moments
    bend: Floats
    pull: Floats
    coef: Floats
    intercept: Floats
    counts: Floats
    pool: Sample | None
    batches: int
    residual: float
    converged: bool

    @staticmethod
    def advance(
        model: Any,
        before: Stream | None,
        X: Any,
        y: Any,
        classes: Any,
        sample_weight: Any,
        l2: float,
        plan: Plan,
    ) -> Stream:
        """The stream after one more batch."""
        X, y = read_rows(model, X, y, reset=before is None)
        weights = read_weights(sample_weight, X)
        if before is None:
            known = _read_classes(y, classes)
        else:
            known = before.classes
            if classes is not None and not np.array_equal(sorted_classes(np.asarray(classes)), known):
                raise ValueError(f"classes changed within a stream: they were {known.tolist()[:10]}")
        codes = encode_with(y, known)
        n_scores = 1 if len(known) == 2 else len(known)
        labels = codes.astype(np.float64) if n_scores == 1 else codes
        own = make_design(X, weights, bool(model.fit_intercept), refuse_far=False)
        batch = Sample(own, labels, weights, n_scores)
        if batch.size > _MOST_NUMBERS:
            raise ValueError(
                f"partial_fit keeps a matrix of {batch.size} x {batch.size} numbers; up to {_MOST_NUMBERS} "
                "coefficients are supported"
            )
        counts = np.bincount(codes, weights, minlength=len(known)).astype(np.float64)
        if before is None:
            before = _first(model, batch, known, counts)
        return replace(before, counts=before.counts + counts)._with(batch, l2, plan)

    def _with(self, batch: Sample, l2: float, plan: Plan) -> Stream:
        weight = batch.total
        moments = self.moments.joined(weight, batch.design.centre, weight * unit_of(batch.design) ** 2)
        batch = _pooled(self.pool, batch)
        weight = batch.total
        design = self._design(batch, moments)
        sample = replace(batch, design=design)
        inner = _Inward(design, self.origin, batch.n_scores)
        held, towards = _held(self.loss, self.counts, design, batch.n_scores)
        bend, pull = inner.bend(self.bend) + held, inner.pull(self.pull) + towards
        total = moments.weight
        settings = Settings(
            self.loss, l2, plan.l1, plan.tolerance, plan.max_iter, newton=True, single_first=False
        )
        start = design.inward(self.coef, self.intercept).ravel()
        steps = (
            descend_with_l1(settings, start, start, batch.n_scores, design.n_features)
            if plan.l1 > 0
            else descend(settings, start, start)
        )
        request = next(steps)
        while True:
            found = evaluate(sample, [replace(request, l2=0.0, features=None)])[0]
            try:
                whole = _joined(request, found, bend, pull, weight, total, design, batch.n_scores)
                request = steps.send(whole)
            except StopIteration as stop:
                minimum: Minimum = stop.value
                break
        after = replace(self, moments=moments)
        rows = np.bincount(
            batch.labels.astype(np.int64),
            None if batch.weights is None else batch.weights > 0,
            len(self.classes),
        )
        full = batch.design.n_rows * design.n_features > _POOL
        settled = float(np.abs(minimum.theta - start).max(initial=0.0)) <= _SETTLED
        if (rows.min() >= _ENOUGH and settled) or (full and np.count_nonzero(rows) > 1):
            after = replace(after._joined_by(sample, inner, minimum.theta), pool=None)
        else:
            after = replace(after, pool=_thinned(batch, self.batches) if full else batch)
        coef, intercept = design.outward(minimum.theta.reshape(batch.n_scores, -1))
        return replace(
            after,
            coef=coef,
            intercept=intercept,
            batches=self.batches + 1,
            residual=minimum.residual,
            converged=minimum.ending == "converged",
        )

    def _joined_by(self, sample: Sample, inner: _Inward, theta: Floats) -> Stream:
        """The rows join the quadratic, expanded at their fit."""
        here = evaluate(sample, [Request(self.loss, 0.0, theta, 2, double=True)])[0]
        assert here.hessian is not None
        weight = sample.total
        values, vectors = np.linalg.eigh(here.hessian)
        curved = weight * ((vectors * np.maximum(values, 0.0)) @ vectors.T)
        slope = weight * here.gradient
        bend, pull = inner.bend_outward(curved), inner.pull_outward(curved @ theta - slope)
        return replace(self, bend=self.bend + bend, pull=self.pull + pull)

    def _design(self, batch: Sample, moments: Moments) -> Design:
        """The batch, standardised by everything seen so far."""
        variance = moments.squares / moments.weight
        varies = variance > (1e-12 * np.abs(moments.mean)) ** 2
        inverse = np.where(varies, 1 / np.sqrt(np.where(varies, variance, 1.0)), 0.0)
        centre = moments.mean if self.intercept_wanted else np.zeros_like(moments.mean)
        explicit = not batch.design.is_sparse
        if not explicit:
            refuse_far_columns(centre, np.sqrt(variance), varies)
        return Design(batch.design.X, centre, inverse, explicit, self.intercept_wanted)


@dataclass(frozen=True, eq=False)
class _Inward:
    """Between theta of a design and the coefficients of (x - origin, 1), class by class.

    A feature that has not varied yet has no place in theta, and its coefficient stays 0.
    """

    design: Design
    origin: Floats
    n_scores: int

    @property
    def matrix(self) -> Floats:
        """T with outer = T inner, for one score."""
        d, scale = self.design.n_features, self.design.inverse_unit
        result = np.zeros((self.design.n_columns, self.design.n_columns))
        result[np.arange(d), np.arange(d)] = scale
        if self.design.intercept:
            result[d, :d] = (self.origin - self.design.centre) * scale
            result[d, d] = 1.0
        return result

    def bend(self, bend: Floats) -> Floats:
        whole = np.kron(np.eye(self.n_scores), self.matrix)
        return np.asarray(whole.T @ bend @ whole)

    def pull(self, pull: Floats) -> Floats:
        return np.asarray((pull.reshape(self.n_scores, -1) @ self.matrix).ravel())

    @property
    def inverse(self) -> Floats:
        """The inverse of T, with zeros for what has no place in theta."""
        d, unit = self.design.n_features, unit_of(self.design)
        result = np.zeros((self.design.n_columns, self.design.n_columns))
        result[np.arange(d), np.arange(d)] = unit
        if self.design.intercept:
            result[d, :d] = np.where(unit > 0, self.design.centre - self.origin, 0.0)
            result[d, d] = 1.0
        return result

    def bend_outward(self, bend: Floats) -> Floats:
        whole = np.kron(np.eye(self.n_scores), self.inverse)
        return np.asarray(whole.T @ bend @ whole)

    def pull_outward(self, pull: Floats) -> Floats:
        return np.asarray((pull.reshape(self.n_scores, -1) @ self.inverse).ravel())


def _joined(
    request: Request,
    found: Evaluation,
    bend: Floats,
    pull: Floats,
    weight: float,
    total: float,
    design: Design,
    n_scores: int,
) -> Evaluation:
    """The batch's risk, the quadratic of the past and the ridge penalty, per unit of weight."""
    theta = request.theta
    ridge = np.zeros((n_scores, design.n_columns))
    ridge[:, : design.n_features] = request.l2
    stiffness = ridge.ravel()
    past = bend @ theta
    value = (weight * found.value + float(theta @ (0.5 * past - pull))) / total
    gradient = (weight * found.gradient + past - pull) / total + stiffness * theta
    hessian = None
    if found.hessian is not None:
        hessian = (weight * found.hessian + bend) / total + np.diag(stiffness)
        if request.features is not None:
            places = places_of(request.features, n_scores, design.n_columns, design.n_features)
            hessian = hessian[np.ix_(places, places)]
    value += 0.5 * float(stiffness @ theta**2)
    scale = (weight * found.scale + float(np.abs(pull).sum())) / total
    noise = found.noise + 1e-14 * float(np.abs(theta) @ (np.abs(past) + np.abs(pull))) / total
    return Evaluation(value, gradient, hessian, scale, noise, double=True)


def _read_classes(y: NDArray[Any], classes: Any) -> NDArray[Any]:
    known = sorted_classes(np.asarray(y if classes is None else classes))
    if len(known) < 2:
        raise ValueError(
            f"the first batch holds one class only, {known.tolist()[0]!r}: pass all classes to the first "
            "partial_fit, classes=[...]"
        )
    return known


def _first(model: Any, batch: Sample, classes: NDArray[Any], counts: Floats) -> Stream:
    """An empty stream: the loss and a start."""
    loss = _stream_loss(model, classes, counts)
    design, k = batch.design, batch.n_scores
    return Stream(
        classes=classes,
        loss=loss,
        intercept_wanted=design.intercept,
        origin=design.centre,
        moments=Moments(0.0, np.zeros(design.n_features), np.zeros(design.n_features)),
        bend=np.zeros((batch.size, batch.size)),
        pull=np.zeros(batch.size),
        coef=np.zeros((k, design.n_features)),
        intercept=best_constant(loss, _smoothed(counts)) if design.intercept else np.zeros(k),
        counts=np.zeros(len(classes)),
        pool=None,
        batches=0,
        residual=np.inf,
        converged=False,
    )


def _smoothed(counts: Floats) -> Floats:
    """Class shares, none of them zero."""
    return np.asarray((counts + 0.5) / (counts + 0.5).sum())


def _held(loss: Loss, counts: Floats, design: Design, n_scores: int) -> tuple[Floats, Floats]:
    """The weak pull to the best constant, as a quadratic in theta.

    It is made anew from the class shares so far: a first batch without a positive knows little of them.
    """
    shares = _smoothed(counts)
    constant = best_constant(loss, shares)
    # Half a row of the rarest class, in the curvature that rows have at the constant.
    stiffness = 0.5 / float(shares.min()) * _mean_bend(loss, constant, shares)
    towards = np.zeros((n_scores, design.n_columns))
    if design.intercept:
        towards[:, -1] = stiffness * constant
    return stiffness * np.eye(towards.size), towards.ravel()


def _pooled(pool: Sample | None, batch: Sample) -> Sample:
    """The rows that wait and those of the batch, in memory of their own."""
    design = batch.design
    if pool is None:
        weights = None if batch.weights is None else batch.weights.copy()
        return replace(batch, design=replace(design, X=design.X.copy()), weights=weights)
    parts = [pool.design.X, design.X]
    if any(sparse.issparse(part) for part in parts):
        X: Any = sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")
    else:
        X = np.concatenate(parts)
    weights = None
    if pool.weights is not None or batch.weights is not None:
        weights = np.concatenate(
            [np.ones(len(one.labels)) if one.weights is None else one.weights for one in (pool, batch)]
        )
    return Sample(replace(design, X=X), np.concatenate([pool.labels, batch.labels]), weights, batch.n_scores)


def _thinned(pool: Sample, seed: int) -> Sample:
    """A random half of the rows, which weigh what all did."""
    weights = np.ones(len(pool.labels)) if pool.weights is None else pool.weights
    rows = np.flatnonzero(weights)
    kept = np.sort(np.random.default_rng(seed).permutation(rows)[: (len(rows) + 1) // 2])
    scale = float(weights.sum()) / float(weights[kept].sum())
    return Sample(pool.design.take(kept), pool.labels[kept], weights[kept] * scale, pool.n_scores)


def _stream_loss(model: Any, classes: NDArray[Any], counts: Floats) -> Loss:
    if isinstance(model.class_weight, str):
        raise ValueError("class_weight='balanced' needs the class counts of the whole stream; pass a mapping")
    loss = loss_for_classes(model.loss, counts)
    return weighted_loss(loss, class_weights(model.class_weight, classes, counts))


def _mean_bend(loss: Loss, constant: Floats, shares: Floats) -> float:
    """The mean second derivative at constant scores."""
    if len(constant) == 1:
        bends = loss.hessian(np.repeat(constant, 2), np.array([0, 1]))
    else:
        k = len(constant)
        bends = loss.hessian_diagonal(np.tile(constant, (k, 1)), np.arange(k)).max(axis=1)
    return max(float(np.abs(shares @ bends)), float(np.finfo(np.float64).tiny))
