"""The linear classifier of any loss, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from ..common.calibration import Calibrator, check_calibration, level_calibrator
from ..common.checks import check_penalty
from ..common.estimators import columns_kept_on_failure, decided_classes, out_of_fold_calibrator
from ..common.labels import class_weights
from ..losses import Loss
from ..losses.for_classes import loss_for_classes, weighted_loss
from .design import Columns, Floats, row_blocks
from .influence import FitTerms, Influence, influence_of
from .minimise import SolverOptions, minimise, warn_unless_converged
from .penalties import Penalty, relative_l2
from .reading import Reading, read_features, read_training
from .solvers import Minimum

__all__ = ["LinearClassifier"]

_SOLVERS = ("auto", "newton", "lbfgs")


class LinearClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear score fitted by any loss of `raresight.losses`, with calibrated probabilities.

        minimise  sum_i w_i l(y_i, x_i.b + b0) / sum_i w_i  +  (l2/2) |b_std|^2  +  l1 |b_std|_1

    where b_std are the coefficients of the standardised features (mean 0 and deviation 1 under the weights
    w; the intercept is not penalised). Standardisation is internal: `coef_` and `intercept_` are in the
    units of X. Constant features get the coefficient 0. Without an intercept features are divided by the
    root of their mean square and not centred. Two classes have one score, for `classes_[1]`; K > 2 classes
    have K logits and need a loss with a multi-class form.

    The solver is Newton's method with a line search and a floored Hessian, or L-BFGS for many features. It
    starts at the loss's best constant score and stops at a gradient norm of `tol`. Losses that are not
    convex are fitted to a local minimum. With l1 > 0 the steps are proximal and leave exact zeros. Large
    data start on a weighted part of the rows; the end is always exact and in float64.

    The link gives calibrated probabilities where a linear score can represent the truth. Elsewhere it does
    not, under any loss, and least under those that hardly weigh rows of extreme scores. With a truth that
    saturates at 2 %, the predicted probabilities of the top 1 % of the rows were 1.8 times the true ones for
    cross entropy, 2.5 times under TBL(0.8, 0.5) and 2.6 times under alpha(0.5). With `calibration="slope"`
    they were 1.7 to 1.9 times (see docs/estimators.md).

    Args:
        loss: A loss, or its text such as `"tbl(alpha=0.8,C=0.5)"` or `"ldam(class_counts=(990,10))"`.
        l2: Ridge penalty on standardised coefficients. Default: 1 % of the curvature of the loss at its best
            constant score. For cross entropy that is 0.01 prior (1 - prior). A fixed number shrinks the more
            the rarer the event is.
        l1: Lasso penalty on standardised coefficients.
        fit_intercept: Whether there is an intercept.
        class_weight: `{class: weight}`, or `"balanced"` for n/(K n_k). Weights change which errors the fit
            avoids, and `predict` follows. `predict_proba` and `predict_log_odds` remove the weights again, so
            they stay calibrated for the training data.
        solver: `"newton"`, `"lbfgs"`, or `"auto"`: Newton up to 500 coefficients. With l1 > 0 `"auto"` or
            `"newton"`.
        max_iter: Largest number of steps.
        tol: Gradient norm (with l1, least subgradient norm) at which to stop. It is on the standardised
            scale, for weights of sum one. If mean |l'| is above one, the norm is relative to it. If it is
            below 0.02 at the best constant score, as for rare events, the norm is relative to 50 times that.
        warm_start: Start from the last fit.
        calibration: What follows the loss's link in `predict_proba` and `predict_log_odds`, with the same
            values for all estimators. `"link"`: nothing. `"level"`: a shift of the log-odds that makes the
            mean probability of the training rows their share of positives. `"slope"`: slope and level, fitted
            to the scores of rows by models of five folds that did not see them. This takes about six times as
            long.

    Attributes:
        classes_: The classes, sorted.
        coef_: Coefficients in the units of X, of shape (1, d) or (K, d), in float64.
        intercept_: Intercepts, of shape (1,) or (K,).
        loss_: The loss that was fitted, class weights included.
        l2_: The ridge penalty of the fit.
        n_iter_: Steps on all rows.
        converged_: Whether `tol` was reached; otherwise `fit` warned.
        gradient_norm_: The gradient norm at the end.
        objective_: The value of the minimum.
        calibrator_: The calibrator of the log-odds.

    `decision_function` is the raw score z. `predict` is its sign (or the largest logit): the decision that
    the loss was made for. To decide by probability or at a false-positive rate use `predict_proba` or
    `raresight.metrics.threshold_at_fpr`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 3))
    >>> y = rng.random(2000) < 1 / (1 + np.exp(4 - 2 * X[:, 0]))
    >>> model = LinearClassifier("tbl(alpha=0.8,C=0.5)").fit(X, y)
    >>> model.converged_, bool(abs(model.predict_proba(X)[:, 1].mean() - y.mean()) < 0.01)
    (True, True)
    """

    calibrator_: Calibrator
    _terms: FitTerms

    def __init__(
        self,
        loss: Loss | str = "tbl",
        l2: float | None = None,
        l1: float = 0.0,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        solver: str = "auto",
        max_iter: int = 500,
        tol: float = 1e-8,
        warm_start: bool = False,
        calibration: str = "link",
    ) -> None:
        self.loss = loss
        self.l2 = l2
        self.l1 = l1
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.calibration = calibration

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ---- fitting -------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LinearClassifier:
        """Fit to rows X of shape (n, d), dense or sparse, and labels y of two or more classes."""
        options = self._options()
        before = self._last_fit() if self.warm_start else None
        with columns_kept_on_failure(self):
            reading = read_training(self, X, y, sample_weight, bool(self.fit_intercept))
            loss = self._loss_for(reading.classes, reading.counts)
            l2 = self._l2_for(loss, reading.counts)
            start = None
            if before is not None:
                start = before.start_for(reading.classes, reading.sample.columns)
            minimum = minimise(reading.sample, loss, l2, options, start)
            converged = warn_unless_converged(minimum, str(loss), options)
            # Before anything is set: a failure leaves the last fit as it was.
            calibrator = self._calibrator(reading, loss, minimum)
            self._set_fit(self, reading, loss, l2, minimum, options, converged)
            self.calibrator_ = calibrator
            return self

    # ---- predicting ----------------------------------------------------------------------

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Return the raw score z of each row, of shape (n,), or (n, K) logits; float32 for float32 rows."""
        check_is_fitted(self, "coef_")
        scores = linear_scores(read_features(self, X), self.coef_, self.intercept_)
        return scores[:, 0] if len(self.coef_) == 1 else scores

    def predict_log_odds(self, X: Any) -> NDArray[Any]:
        """Return the calibrated log-odds log P(y=1|x) - log P(y=0|x) of each row.

        For K > 2 classes (n, K), each class against the rest.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.calibrator_.log_odds(np.asarray(self.loss_.log_odds(scores)))
        eta = self._probabilities(scores.astype(np.float64))
        with np.errstate(divide="ignore"):
            odds = np.log(eta) - np.log(_rest(eta))
        return np.asarray(odds.astype(scores.dtype))

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return probabilities through the loss's link and the calibrator, of shape (n, K)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            # Each side by its own sigmoid: 1 - p has no digits left where p is near one.
            odds = self.calibrator_.log_odds(np.asarray(self.loss_.log_odds(scores)))
            return np.asarray(expit(np.column_stack([-odds, odds])))
        return self._probabilities(scores)

    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Logarithms of `predict_proba`; `predict_log_odds` has more digits where one side is near one."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each row, by the sign of its score or its largest logit."""
        return decided_classes(self.decision_function(X), self.classes_)

    # ---- explaining ----------------------------------------------------------------------

    def influence(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Influence:
        """Return the influence of each training row on the fit, which is large for mislabelled rows.

        `X`, `y` and `sample_weight` should be those of `fit`. See `Influence`.
        """
        check_is_fitted(self, "coef_")
        return influence_of(self, X, y, sample_weight)

    # ---- shared --------------------------------------------------------------------------

    def _options(self) -> SolverOptions:
        l1 = check_penalty(self.l1, "l1")
        tolerance = check_penalty(self.tol, "tol")
        check_calibration(self.calibration)
        if self.l2 is not None:
            check_penalty(self.l2, "l2")
        if self.solver not in _SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(_SOLVERS)}, got {self.solver!r}")
        if l1 > 0 and self.solver == "lbfgs":
            raise ValueError("l1 > 0 needs proximal steps: use solver='auto' or 'newton', not 'lbfgs'")
        if not (isinstance(self.max_iter, (int, np.integer)) and self.max_iter >= 1):
            raise ValueError(f"max_iter must be a whole number of at least 1, got {self.max_iter!r}")
        return SolverOptions(l1, tolerance, int(self.max_iter), self.solver)

    def _probabilities(self, logits: NDArray[Any]) -> NDArray[Any]:
        """Return the probabilities of K classes."""
        if self.calibrator_ == Calibrator.identity(len(self.classes_)):
            return np.asarray(self.loss_.probability(logits, multiclass=True))
        found = np.exp(self.calibrator_.log_posterior(self.loss_.log_posterior(logits)))
        return found.astype(logits.dtype, copy=False)

    def _calibrator(self, reading: Reading, loss: Loss, minimum: Minimum) -> Calibrator:
        """Return the calibrator that the option asks for; `minimum` is not yet taken as the fit."""
        if self.calibration == "link":
            return Calibrator.identity(len(reading.classes))
        sample, codes = reading.sample, reading.sample.labels.astype(np.int64)
        if self.calibration == "slope":
            return out_of_fold_calibrator(self, reading.X, reading.classes, codes, sample.weights)
        theta = minimum.theta.reshape(sample.n_scores, sample.columns.n_columns)
        scores = linear_scores(reading.X, *sample.columns.outward(theta)).astype(np.float64)
        log_posterior = loss.log_posterior(scores[:, 0] if sample.n_scores == 1 else scores)
        return level_calibrator(log_posterior, reading.counts / reading.counts.sum(), sample.weights)

    def _loss_for(self, classes: NDArray[Any], counts: Floats) -> Loss:
        weights = class_weights(self.class_weight, classes, counts)
        return weighted_loss(loss_for_classes(self.loss, counts), weights)

    def _l2_for(self, loss: Loss, counts: Floats) -> float:
        return relative_l2(loss, counts / counts.sum()) if self.l2 is None else float(self.l2)

    def _set_fit(
        self,
        reader: LinearClassifier,
        reading: Reading,
        loss: Loss,
        l2: float,
        minimum: Minimum,
        options: SolverOptions,
        converged: bool,
    ) -> LinearClassifier:
        """Take a minimum as the fit; `reader` is the model that read the features."""
        columns = reading.sample.columns
        theta = minimum.theta.reshape(reading.sample.n_scores, columns.n_columns)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(reader, name):
                setattr(self, name, getattr(reader, name))
        self.classes_ = reading.classes
        self.loss_, self.l2_ = loss, l2
        self._terms = FitTerms(Penalty(l2, options.l1), columns.intercept)
        self.coef_, self.intercept_ = columns.outward(theta)
        self.n_iter_ = minimum.iterations
        self.gradient_norm_ = minimum.residual
        penalised = theta[:, : columns.n_features]
        self.objective_ = minimum.evaluation.value + options.l1 * float(np.abs(penalised).sum())
        self.converged_ = converged
        self.calibrator_ = Calibrator.identity(len(reading.classes))
        return self

    def _last_fit(self) -> _LastFit | None:
        if not hasattr(self, "coef_"):
            return None
        return _LastFit(self.classes_, self.coef_, self.intercept_)


def linear_scores(X: Any, coef: Floats, intercept: Floats) -> NDArray[Any]:
    """X coef' + intercept, of shape (n, K): computed in float64 a block at a time, in the type of X.

    Coefficients of features far from zero cancel against the intercept, which float32 would not survive.
    """
    is_sparse: bool = sparse.issparse(X)
    if is_sparse:
        return np.asarray(X @ coef.T + intercept).astype(X.dtype, copy=False)
    result = np.empty((X.shape[0], len(coef)), dtype=X.dtype)
    for rows in row_blocks(*X.shape):
        result[rows] = X[rows].astype(np.float64, copy=False) @ coef.T + intercept
    return result


class _LastFit:
    """Coefficients to start from again."""

    def __init__(self, classes: NDArray[Any], coef: Floats, intercept: Floats) -> None:
        self.classes, self.coef, self.intercept = classes, coef, intercept

    def start_for(self, classes: NDArray[Any], columns: Columns) -> Floats:
        if self.coef.shape[1] != columns.n_features or not np.array_equal(self.classes, classes):
            raise ValueError(
                f"warm_start: the last fit had {self.coef.shape[1]} features and classes "
                f"{self.classes.tolist()[:10]}, this one has {columns.n_features} and {classes.tolist()[:10]}"
            )
        return np.asarray(columns.inward(self.coef, self.intercept))


def _rest(eta: Floats) -> Floats:
    """1 - eta as the sum of the other classes, which keeps its digits where eta is near one."""
    n_classes = eta.shape[-1]
    return np.column_stack([np.delete(eta, k, axis=1).sum(axis=1) for k in range(n_classes)])
