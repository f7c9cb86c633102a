"""A linear classifier that chooses its loss and its penalty."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted

from ..common.calibration import check_calibration
from ..common.estimators import columns_kept_on_failure, read_weights
from ..common.labels import class_weights, encode, shares_of
from ..losses import Loss
from ..metrics.scorers import place_of, scorer
from .estimator import LinearClassifier
from .path import fit_pairs
from .penalties import relative_l2
from .reading import read_features, read_rows

__all__ = ["LinearClassifierCV"]

# Few on purpose: with four penalties they make 20 settings a fold, where the map that a loss declares for a
# search (`search_grid`) has 25 pairs of its own.
_LOSSES = (
    "crossentropy",
    "tbl(alpha=0.8,C=0.5)",
    "tbl(alpha=0.8,C=1.0)",
    "tbl(alpha=0.6,C=0.5)",
    "tbl(alpha=0.6,C=1.0)",
)
_RELATIVE_L2S = (1e-3, 1e-2, 1e-1, 1.0)


class LinearClassifierCV(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A `LinearClassifier` whose loss and l2 have the best metric in cross-validation. Two classes.

    Each fold is one `fit_pairs` over all settings; the winner by mean metric is fitted to all rows. Of
    equals the first is taken, so put what you prefer first. The event of the metric is `pos_label`, or
    `classes_[1]`: of "fraud" and "ok" that is "ok".

    Args:
        losses: Losses or their texts to choose from.
        l2s: Ridge penalties to choose from. Default: 0.1 %, 1 %, 10 % and 100 % of the curvature of each loss
            at its best constant score.
        metric: A metric of `raresight.metrics` by name, or the function; higher must be better after
            `raresight.metrics.scorers.scorer` has given errors a minus sign.
        metric_params: Its parameters, such as `{"max_fpr": 0.001}`.
        cv: Folds: a number (stratified), a splitter or an iterable of (train, test).
        l1, fit_intercept, class_weight, solver, max_iter, tol: Arguments of `LinearClassifier`.
        pos_label: The label that the metric is about; None for `classes_[1]`.
        calibration: As for `LinearClassifier`; it concerns the final model alone.

    Attributes:
        loss_: The chosen loss, class weights included.
        l2_: The chosen penalty.
        best_score_: The mean metric of the chosen setting.
        cv_results_: `loss`, `l2`, `scores` (settings x folds) and `mean_score`.
        best_model_: The `LinearClassifier` fitted to all rows; `coef_`, `intercept_`, `n_iter_` and
            `converged_` are its own.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(3000, 2))
    >>> y = rng.random(3000) < 1 / (1 + np.exp(3 - 2 * X[:, 0]))
    >>> model = LinearClassifierCV(losses=["crossentropy", "tbl"], l2s=[1e-4, 100.0], cv=3,
    ...                            metric="log_loss").fit(X, y)
    >>> model.l2_
    0.0001
    """

    def __init__(
        self,
        losses: Iterable[Loss | str] = _LOSSES,
        l2s: Iterable[float] | None = None,
        metric: Any = "partial_auc",
        metric_params: Mapping[str, Any] | None = None,
        cv: Any = 5,
        l1: float = 0.0,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        solver: str = "auto",
        max_iter: int = 500,
        tol: float = 1e-8,
        pos_label: Any = None,
        calibration: str = "link",
    ) -> None:
        self.losses = losses
        self.l2s = l2s
        self.metric = metric
        self.metric_params = metric_params
        self.cv = cv
        self.l1 = l1
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.pos_label = pos_label
        self.calibration = calibration

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LinearClassifierCV:
        """Try every setting on every fold, then fit the best one to all rows.

        Weights count in the fits and in the metric.
        """
        with columns_kept_on_failure(self):
            return self._fit(X, y, sample_weight)

    def _fit(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> LinearClassifierCV:
        check_calibration(self.calibration)
        losses = [self.losses] if isinstance(self.losses, (Loss, str)) else list(self.losses)
        given = _RELATIVE_L2S if self.l2s is None else self.l2s
        l2s: list[Any] = [given] if isinstance(given, numbers.Real) else list(given)
        for name, values in (("losses", losses), ("l2s", l2s)):
            if not values:
                raise ValueError(f"{name} is empty: pass a list (a generator gives its values once only)")
        X, y = read_rows(self, X, y)
        classes, codes = encode(y)
        if len(classes) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is multiclass: y holds "
                f"{len(classes)} classes, and the metrics of raresight rank two"
            )
        weights = read_weights(sample_weight, X)
        score = scorer(self.metric, **self._event(classes), **dict(self.metric_params or {}))
        # Folds are fitted to class numbers, so a mapping of weights must name those.
        coded = self._coded_weights(classes, codes)
        pairs = self._pairs(losses, l2s, classes, codes, weights)
        columns: list[NDArray[np.float64]] = []
        settings: list[tuple[Any, float]] = []
        for train, test in check_cv(self.cv, y, classifier=True).split(X, y):
            own = None if weights is None else weights[train]
            fits = self._path(X[train], codes[train], own, coded, pairs)
            asked = {} if weights is None else {"sample_weight": weights[test]}
            rows = X[test]
            columns.append(np.array([score(fit.model, rows, codes[test], **asked) for fit in fits]))
            settings = [(fit.model.loss, fit.l2) for fit in fits]
        scores = np.column_stack(columns)
        mean = scores.mean(axis=1)
        # The first of equals: argmax keeps the order that the user gave.
        best = int(np.argmax(mean))
        loss, l2 = settings[best]
        best_model = self._path(X, y, weights, self.class_weight, [(loss, l2)])[0].model
        if self.calibration != "link":
            best_model = best_model.set_params(calibration=self.calibration).fit(X, y, weights)
        self.best_model_ = best_model
        if hasattr(self, "feature_names_in_"):
            self.best_model_.feature_names_in_ = self.feature_names_in_
        self.cv_results_ = {
            "loss": [str(loss) for loss, _ in settings],
            "l2": np.array([l2 for _, l2 in settings]),
            "scores": scores,
            "mean_score": mean,
        }
        self.classes_, self.loss_, self.l2_ = classes, self.best_model_.loss_, l2
        self.best_score_ = float(mean[best])
        self.coef_, self.intercept_ = self.best_model_.coef_, self.best_model_.intercept_
        self.n_iter_, self.converged_ = self.best_model_.n_iter_, self.best_model_.converged_
        return self

    def _event(self, classes: NDArray[Any]) -> dict[str, int]:
        """Return the code of the label that the metric is about, where it is not the second one."""
        if self.pos_label is None:
            return {}
        place = place_of(self.pos_label, classes, "pos_label")
        # Metrics that treat the classes alike take none.
        return {} if place == 1 else {"pos_label": place}

    def _coded_weights(self, classes: NDArray[Any], codes: NDArray[np.int64]) -> Any:
        """`class_weight` for class numbers."""
        if not isinstance(self.class_weight, Mapping):
            return self.class_weight
        weights = class_weights(self.class_weight, classes, np.bincount(codes).astype(np.float64))
        assert weights is not None
        return dict(enumerate(weights))

    def _pairs(
        self,
        losses: Sequence[Loss | str],
        l2s: Sequence[float],
        classes: NDArray[Any],
        codes: NDArray[np.int64],
        weights: Any,
    ) -> list[tuple[Loss | str, float]]:
        """Return every loss with every penalty; shares of its curvature become numbers for all folds."""
        if self.l2s is not None:
            return [(loss, l2) for loss in losses for l2 in l2s]
        shares = shares_of(codes, weights, classes)
        counts = np.bincount(codes, weights).astype(np.float64)
        pairs = []
        for loss in losses:
            fitted = LinearClassifier(loss, class_weight=self.class_weight)._loss_for(classes, counts)
            pairs += [(loss, relative_l2(fitted, shares, share)) for share in l2s]
        return pairs

    def _path(
        self, X: Any, y: Any, weights: Any, class_weight: Any, pairs: Sequence[tuple[Loss | str, float]]
    ) -> Any:
        return fit_pairs(
            X,
            y,
            pairs,
            sample_weight=weights,
            l1=self.l1,
            fit_intercept=self.fit_intercept,
            class_weight=class_weight,
            solver=self.solver,
            max_iter=self.max_iter,
            tol=self.tol,
        )

    def _chosen(self, X: Any) -> tuple[LinearClassifier, Any]:
        check_is_fitted(self, "best_model_")
        return self.best_model_, read_features(self, X)

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the raw score z of each row."""
        model, rows = self._chosen(X)
        return model.decision_function(rows)

    def predict_log_odds(self, X: Any) -> NDArray[Any]:
        """Return the calibrated log-odds of each row."""
        model, rows = self._chosen(X)
        return model.predict_log_odds(rows)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Calibrated probabilities, of shape (n, 2)."""
        model, rows = self._chosen(X)
        return model.predict_proba(rows)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class on whose side the score is."""
        model, rows = self._chosen(X)
        return model.predict(rows)
