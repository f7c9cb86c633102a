"""First and second derivatives of a loss for a booster: float32, in blocks, weighted, with a floor.

    g_i = w_i l'(y_i, z_i),     h_i = w_i max(l''(y_i, z_i), floor),     floor = 1e-6 h*

where h* is the curvature at the start (see `raresight.losses.start`). Boosters divide by sums of h_i, which
may be negative for a loss that is not convex, and 0 for rows of a confident model. A floor relative to h*
suits every prior. An absolute floor that is harmless at a prior of 0.3 would dominate the tree at 1e-5, where
h* is 1e-5 for cross entropy.

For class logits h_i is the Hessian's diagonal times a factor. The diagonal alone is no upper bound of the
matrix, so a step that treats the logits as independent would overshoot. XGBoost's own softmax objective takes
the factor 2. For cross entropy 2 diag(H) - H is then positive semidefinite by Gershgorin's theorem, since the
rows of H sum to zero and its other entries are negative. LightGBM's objective takes K/(K - 1). Every loss
takes the library's factor here, so that cross entropy grows the trees of the library's own objective.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ..common.checks import check_weights
from ..losses import Loss
from ..losses._inputs import check_binary_labels, check_class_labels
from ..losses.plan import BlockOps, LabelMap, plan_of
from ..losses.start import start_of

Array = np.ndarray[Any, Any]

FLOOR = 1e-6
# Cells in a block: its arrays then fit in the second-level cache; a whole array takes three times as long.
BLOCK = 49_152


class Gradients:
    """Derivatives for given labels and weights; call it with the raw scores of a round.

    Scores are (n,) for two classes and (n, K) for K; so are the results, in float32.

    Args:
        loss: The loss.
        labels: 0 and 1, or class numbers.
        weights: Row weights. Default: 1.
        n_classes: 1 for a binary score, or K.
        factor: What the Hessian's diagonal is multiplied by.
        shares: The class shares of all rows, where these are a part of them. Default: those of these rows.
            The floor depends on them, and workers that each have a part must agree on it.
    """

    def __init__(
        self,
        loss: Loss,
        labels: Any,
        weights: Any,
        *,
        n_classes: int,
        factor: float = 1.0,
        shares: Any = None,
    ) -> None:
        self.loss = loss
        self.n_classes = n_classes
        self.factor = np.float32(factor)
        self.labels = read_labels(labels, n_classes)
        self.weights = read_weights(weights, self.labels)
        # From all rows, not from a block: all rows of a model must have one floor.
        self.floor: np.float32 | None = None
        if loss.has_unique_minimiser:
            if shares is None:
                shares = class_shares(self.labels, self.weights, max(n_classes, 2))
            self.floor = floor_of(start_of(loss, shares).curvature)
        self._buffers: list[Array] = []
        self._ops = BlockOps()
        form = loss.normal_form() if n_classes == 1 else None
        self._plan = None if form is None else plan_of(loss, (1, 2), np.float32)
        if self._plan is not None and form is not None:
            self._label_map = LabelMap.of(form, self.labels)
            self._scratch = np.empty((self._plan.size, BLOCK), np.float32)

    def __call__(self, scores: Any, *, order: Any = "C") -> tuple[Array, Array]:
        """Gradient and Hessian at the raw scores; `order` is the memory layout for class logits."""
        z = np.asarray(scores)
        expected = (len(self.labels),) if self.n_classes == 1 else (len(self.labels), self.n_classes)
        if z.shape != expected:
            raise ValueError(f"scores of shape {z.shape} do not fit: expected {expected}")
        gradient, hessian = self._space(expected, order)
        step = max(BLOCK // self.n_classes, 1)
        with self._ops.guard():
            for first in range(0, len(self.labels), step):
                rows = slice(first, first + step)
                # In float32, as the libraries keep scores and gradients: half the memory to move.
                block = np.ascontiguousarray(z[rows], dtype=np.float32)
                self._block(block, rows, gradient[rows], hessian[rows])
        return gradient, hessian

    def _block(self, z: Array, rows: slice, gradient: Array, hessian: Array) -> None:
        """Fill one block of the results."""
        if not self._planned(z, rows, gradient, hessian):
            # One sum finds a NaN or infinity fast. A sum of large scores may overflow, hence the second test.
            if not np.isfinite(z.sum()) and not np.isfinite(z).all():
                raise FloatingPointError(_where_not_finite(z, rows.start))
            terms = self.loss._labelled if self.n_classes == 1 else self.loss._class_terms
            _, slope, bend = terms(self._ops, z, self.labels[rows], 2)
            gradient[...] = slope
            np.multiply(bend, self.factor, out=hessian)
        if self.floor is None:
            # Such a loss has no best constant to start from. The first block at its first scores decides.
            self.floor = floor_of(float(np.abs(hessian).mean()))
        # First the minimum, which only reads: `maximum` would write all rows back in every round.
        if not hessian.min() >= self.floor:
            np.maximum(hessian, self.floor, out=hessian)
        if self.weights is not None:
            weight = self.weights[rows] if self.n_classes == 1 else self.weights[rows, None]
            gradient *= weight
            hessian *= weight

    def _planned(self, z: Array, rows: slice, gradient: Array, hessian: Array) -> bool:
        """Fill the block by the plan of the loss; return False without a plan or for a too large margin."""
        if self._plan is None:
            return False
        return self._plan(z, self._label_map.at(rows), (gradient, hessian), self._scratch)

    def _space(self, shape: tuple[int, ...], order: Any) -> tuple[Array, Array]:
        """Return last round's arrays unless another holder keeps them, otherwise new ones.

        New memory costs a page fault per 4096 bytes, which is noticeable beside two nanoseconds per row.
        """
        held = self._buffers
        # An array that no one else holds has two references: the list's and getrefcount's own argument.
        if len(held) == 2 and sys.getrefcount(held[0]) == sys.getrefcount(held[1]) == 2:
            return held[0], held[1]
        self._buffers = [np.empty(shape, np.float32, order), np.empty(shape, np.float32, order)]
        return self._buffers[0], self._buffers[1]


def read_labels(labels: Any, n_classes: int) -> Array:
    """Return labels as 0.0/1.0 in float32 for a binary score (`n_classes` = 1), else class numbers."""
    y = np.asarray(labels).ravel()
    if y.size == 0:
        raise ValueError("there are no labels: set the label of the training data")
    if y.dtype.kind not in "iubf":
        raise TypeError(f"labels must be numbers, got dtype {y.dtype}")
    if np.isnan(y).any():
        raise ValueError(f"labels must not be missing: y[{int(np.isnan(y).argmax())}] is nan")
    if n_classes == 1:
        check_binary_labels(y)
        return np.ascontiguousarray(y, dtype=np.float32)
    whole = y.astype(np.int64)
    if not np.array_equal(whole, y):
        raise ValueError(f"class labels must be whole numbers from 0 to {n_classes - 1}")
    check_class_labels(whole, n_classes)
    return whole


def read_weights(weights: Any, labels: Array) -> Array | None:
    """Return weights as float32, None without weights."""
    if weights is None or len(weights) == 0:
        return None
    # Made float32 first: a weight above its range is not finite for a booster.
    with np.errstate(over="ignore"):
        w = np.asarray(weights, dtype=np.float32).ravel()
    checked = check_weights(w, len(labels), of="y")
    return np.ascontiguousarray(checked)


def class_shares(labels: Array, weights: Array | None, n_classes: int) -> Array:
    """Return the weighted share of each class; raise an error for a class without weight."""
    total = np.bincount(labels.astype(np.intp), None if weights is None else weights, minlength=n_classes)
    if not np.all(total > 0):
        missing = int(np.argmin(total > 0))
        if weights is None or not np.any(labels == missing):
            raise ValueError(f"one class is missing: no training label is {missing}")
        raise ValueError(f"one class is missing: every row of class {missing} has weight zero")
    return np.asarray(total / total.sum())


def floor_of(curvature: float) -> np.float32:
    """Return 1e-6 of the curvature, at least the smallest normal float32."""
    return np.float32(max(FLOOR * curvature, float(np.finfo(np.float32).tiny)))


def _where_not_finite(block: Array, first: int) -> str:
    wrong = ~np.isfinite(block)
    row = int(np.argwhere(wrong)[0][0]) if wrong.any() else 0
    return f"the booster's raw score of row {first + row} is {block[row]}: training has diverged"
