"""A loss as the objective of XGBoost, LightGBM or CatBoost."""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ..losses import Loss, parse
from ..losses.start import start_of
from .gradients import Gradients, floor_of

__all__ = ["LIBRARIES", "fixed_objective", "hessian_factor", "import_library", "objective"]

Array = np.ndarray[Any, Any]

LIBRARIES = ("xgboost", "lightgbm", "catboost")
# CatBoost shows no labels before training, so there is no curvature of the start to take a share of.
_CATBOOST_FLOOR = 1e-16


def objective(loss: Loss | str, library: str, shares: Any = None) -> Any:
    """Return the loss as the custom objective that the library's `train` and scikit-learn wrapper take.

    The object returned tells the two calls apart, `(scores, dataset)` and `(y_true, scores, weights)`, and
    multiplies by the sample weights, which the libraries leave to a custom objective. A dataset's labels and
    weights are read in its first round and must not be changed while it trains. Labels are 0 and 1, or
    0 to K - 1 for K class scores per row. Gradient and Hessian are

        g_i = w_i l'(y_i, z_i),     h_i = w_i max(l''(y_i, z_i), 1e-6 h*),

    in float32. h* is the mean second derivative of a row at the loss-optimal constant, for cross entropy
    prior (1 - prior). For K classes the second derivative is the Hessian's diagonal times 2 in XGBoost and
    times K/(K - 1) in LightGBM, as in the libraries' own softmax objectives.

    The trained model predicts raw scores, which `loss.probability(scores)` converts to probabilities. Set the
    start score yourself, for example to `start_of(loss, shares)`. `XGBoostClassifier` and
    `LightGBMClassifier` do all of that.

    Args:
        loss: A loss, or its text such as `"tbl(alpha=0.8,C=0.5)"`.
        library: `"xgboost"`: `xgb.train(params, data, obj=objective(...))`, `XGBClassifier(objective=...)`.
            `"lightgbm"`: `lgb.train({"objective": objective(...)}, data)`, `LGBMClassifier(objective=...)`.
            `"catboost"`: `CatBoost({"loss_function": objective(...), "eval_metric": ...})`. CatBoost calls
            Python objectives in small pieces, under Python's lock: training takes several times as long as
            with its built-in losses (four times at 200,000 rows in one thread). It shows no labels before
            training, so the Hessian's floor is an absolute 1e-16 there, unless `shares` are given.
        shares: The class shares of all rows, where a process has only a part of them: h*, and so the floor,
            is then the same for every part. Default: those of the rows that are seen.

    Example:
        >>> import numpy as np
        >>> tbl = objective("tbl", "xgboost")
        >>> gradient, hessian = tbl(np.array([0, 1, 0]), np.array([-2.0, -2.0, -1.0], dtype=np.float32))
        >>> gradient.dtype, [round(float(g), 4) for g in gradient]
        (dtype('float32'), [0.1095, -0.8701, 0.2263])
    """
    if isinstance(loss, str):
        loss = parse(loss)
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a loss of raresight.losses or its text, got {type(loss).__name__}")
    if library not in LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(LIBRARIES)}, got {library!r}")
    if library == "catboost":
        return CatBoostObjective(loss, shares)
    return Objective(loss, library, shares)


def import_library(name: str) -> Any:
    """Import `xgboost` or `lightgbm`; an ImportError names the extra to install."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed: pip install 'raresight[boosting]'") from error


class Objective:
    """The objective for XGBoost and LightGBM."""

    def __init__(self, loss: Loss, library: str, shares: Any = None) -> None:
        self.loss = loss
        self.library = library
        self.shares = shares
        self.__name__ = str(loss)
        self._seen: tuple[Array, Array | None, Gradients] | None = None
        self._known: tuple[weakref.ref[Any], Gradients] | None = None

    def __repr__(self) -> str:
        return f"objective({str(self.loss)!r}, {self.library!r})"

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> tuple[Array, Array]:
        """`(scores, dataset)` or `(y_true, scores, sample_weight)`: gradient and Hessian."""
        if hasattr(second, "get_label"):
            return self._on_dataset(np.asarray(first), second)
        return self._on_rows(first, np.asarray(second), sample_weight)

    def _on_dataset(self, scores: Array, dataset: Any) -> tuple[Array, Array]:
        """On a DMatrix or a Dataset. Its labels are read in the first round only: reading them copies."""
        if scores.ndim == 1 and self._known is not None and self._known[0]() is dataset:
            return self._known[1](scores)
        found = self._on_rows(dataset.get_label(), scores, dataset.get_weight())
        if scores.ndim == 1 and self._seen is not None:
            self._known = weakref.ref(dataset), self._seen[2]
        return found

    def _on_rows(self, labels: Any, scores: Array, weights: Any) -> tuple[Array, Array]:
        if scores.ndim == 2 and scores.shape[1] == 1:
            gradient, hessian = self._gradients(labels, weights, 1)(scores[:, 0])
            return gradient[:, None], hessian[:, None]
        n_classes = 1 if scores.ndim == 1 else scores.shape[1]
        return self._gradients(labels, weights, n_classes)(scores, order=memory_order(self.library))

    def _gradients(self, labels: Any, weights: Any, n_classes: int) -> Gradients:
        """Return the gradients of the last call if labels and weights are equal, or new ones."""
        labels = np.asarray(labels)
        weights = None if weights is None or len(weights) == 0 else np.asarray(weights)
        if self._seen is not None:
            old_labels, old_weights, gradients = self._seen
            same_weights = (
                weights is old_weights
                if weights is None or old_weights is None
                else np.array_equal(weights, old_weights)
            )
            # The libraries hand over the same labels each round; comparing them is far cheaper than preparing
            # them.
            if gradients.n_classes == n_classes and same_weights and np.array_equal(labels, old_labels):
                return gradients
        factor = hessian_factor(self.library, n_classes)
        gradients = Gradients(
            self.loss, labels, weights, n_classes=n_classes, factor=factor, shares=self.shares
        )
        # Copies: the caller may write new labels into the same array.
        self._seen = labels.copy(), None if weights is None else weights.copy(), gradients
        return gradients

    def __getstate__(self) -> dict[str, Any]:
        """Without the labels last seen: LightGBM copies its parameters, and the objective with them."""
        return self.__dict__ | {"_seen": None, "_known": None}


def fixed_objective(gradients: Gradients, library: str) -> Callable[[Any, Any], tuple[Array, Array]]:
    """An objective for one training run, whose labels are known and need not be read in every round."""
    order = memory_order(library)

    def derivatives(scores: Any, _: Any) -> tuple[Array, Array]:
        return gradients(scores, order=order)

    return derivatives


def hessian_factor(library: str, n_classes: int) -> float:
    if n_classes == 1:
        return 1.0
    return 2.0 if library == "xgboost" else n_classes / (n_classes - 1)


def memory_order(library: str) -> str:
    """LightGBM wants the numbers class by class; arrays laid out so are passed on without a copy."""
    return "F" if library == "lightgbm" else "C"


class CatBoostObjective:
    """`calc_ders_range` for a binary score and `calc_ders_multi` for class logits.

    CatBoost climbs: it wants the derivatives of minus the loss, and calls for pieces of the data.
    """

    def __init__(self, loss: Loss, shares: Any = None) -> None:
        self.loss = loss
        self.floor = _CATBOOST_FLOOR if shares is None else float(floor_of(start_of(loss, shares).curvature))

    def __repr__(self) -> str:
        return f"objective({str(self.loss)!r}, 'catboost')"

    def calc_ders_range(self, approxes: Any, targets: Any, weights: Any) -> list[tuple[float, float]]:
        """Return (first, second) derivative of minus the weighted loss, one pair per row."""
        n = len(targets)
        scores = np.fromiter(approxes, dtype=np.float64, count=n)
        labels = np.fromiter(targets, dtype=np.float64, count=n)
        _, slope, bend = self.loss.derivatives(scores, labels)
        # Before the weights: a row of weight zero must stay without curvature.
        bend = np.maximum(bend, self.floor)
        if weights is not None and len(weights) > 0:
            weight = np.fromiter(weights, dtype=np.float64, count=n)
            slope, bend = slope * weight, bend * weight
        return list(zip((-slope).tolist(), (-bend).tolist()))

    def calc_ders_multi(self, approxes: Any, target: float, weight: float) -> tuple[list[float], Any]:
        """Gradient and Hessian matrix of minus the weighted loss of one row of class logits."""
        scores = np.array(list(approxes), dtype=np.float64)[None, :]
        label = np.array([int(target)])
        slope = self.loss.gradient(scores, label)[0]
        matrix = self.loss.hessian_matrix(scores, label)[0]
        return (-weight * slope).tolist(), (-weight * matrix).tolist()
