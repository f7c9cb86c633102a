"""A classifier whose decision threshold keeps a false-positive budget."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing, assert_all_finite, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, check_is_fitted, column_or_1d

from raresight.metrics.scorers import place_of
from raresight.metrics.threshold import threshold_at_fpr

Floats = NDArray[np.float64]

METHODS = ("decision_function", "predict_proba", "predict_log_proba")


# A positive class with a larger share of the rows is probably the wrong one.
_NEARLY_ALL = 0.9


def has_method(name: str) -> Callable[[Any], bool]:
    """Return a check whether the inner estimator, fitted if possible, has the method."""

    def check(self: Any) -> bool:
        return hasattr(getattr(self, "estimator_", self.estimator), name)

    return check


class ThresholdAtFPR(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Tune the decision threshold of a binary classifier on held-out rows to a false-positive rate.

    On new data the false-positive rate is at most `fpr` with probability `confidence`. The threshold is the
    lowest one for which the exact binomial bound of `threshold_at_fpr` holds. The positive class is
    `pos_label`, or the second of the sorted labels, as in scikit-learn: of "fraud" and "ok" that is "ok".

    The guarantee covers:

    - `cv="prefit"` with rows that the estimator was not fitted to: the estimator itself, exactly.
    - Folds: the scores of the fold models together. The estimator that predicts is fitted again, to all rows,
      so for it the guarantee is approximate. Its scores come from a little more data, and the scores of
      different folds may have slightly different scales. A single split, such as
      `StratifiedShuffleSplit(n_splits=1)`, has one fold model and one scale, but the same refit.

    Sample weights go to the inner fits only. The bound counts rows: a row of weight five is not five
    independent observations. Rows of weight zero count as absent.

    Args:
        estimator: A binary classifier with one of the methods below; fitted already if `cv="prefit"`.
        fpr: The false-positive rate allowed, below 1. Default: 0.001.
        confidence: The probability of keeping it on new data. None keeps it on the held-out rows only.
            Default: 0.95.
        cv: The number of stratified folds, a splitter, an iterable of splits, or `"prefit"` if the rows given
            to `fit` are the held-out ones. No row may be held out twice, because it would count as two.
            Cloning unfits an estimator: in a search, wrap a fitted one in scikit-learn's `FrozenEstimator`.
            Default: 5.
        method: The source of the scores: `"decision_function"`, `"predict_proba"` or `"predict_log_proba"`
            (the positive class's column). Default: `"auto"`, the first of them that the estimator has.
        n_jobs: Folds fitted at a time, as in joblib.
        pos_label: The label of the positive class. Default: the second of the sorted labels, with a warning
            if that is a text that nearly all rows have.

    Attributes:
        estimator_: The estimator that predicts.
        threshold_: Scores for the positive class of at least this are predicted positive.
        classes_: The two labels, sorted.
        pos_label_: The label of the positive class.
        held_out_fpr_: The false-positive rate of the threshold on the held-out rows.
        held_out_recall_: Its recall there; NaN without positives, which the threshold does not need.
        n_features_in_: The number of features, if the inner estimator has it.
        feature_names_in_: The names of the features, if the inner estimator has them.

    Example:
        >>> import numpy as np
        >>> from sklearn.linear_model import LogisticRegression
        >>> rng = np.random.default_rng(0)
        >>> y = (np.arange(2000) % 20 == 0).astype(int)
        >>> x = rng.normal(size=(2000, 1)) + 2 * y[:, None]
        >>> model = ThresholdAtFPR(LogisticRegression(), fpr=0.05).fit(x, y)
        >>> round(model.held_out_fpr_, 3), round(model.held_out_recall_, 2)
        (0.042, 0.53)
        >>> model.predict([[0.0], [3.0]])
        array([0, 1])
    """

    def __init__(
        self,
        estimator: Any,
        fpr: float = 0.001,
        confidence: float | None = 0.95,
        *,
        cv: Any = 5,
        method: str = "auto",
        n_jobs: int | None = None,
        pos_label: Any = None,
    ) -> None:
        self.estimator = estimator
        self.fpr = fpr
        self.confidence = confidence
        self.cv = cv
        self.method = method
        self.n_jobs = n_jobs
        self.pos_label = pos_label

    def fit(self, X: Any, y: Any, **fit_params: Any) -> ThresholdAtFPR:
        """Score held-out rows, set the threshold, and fit the estimator to all rows (unless it is prefit).

        Args:
            X: The rows.
            y: The labels, of two classes.
            **fit_params: Arguments of the inner estimator's `fit`, such as `sample_weight`; values with one
                entry per row are split by fold.

        Raises:
            ValueError: If there are not two classes, or too few negatives for the guarantee.
        """
        if not 0 < self.fpr < 1:
            raise ValueError(f"fpr must be above 0 and below 1, but is {self.fpr}.")
        X, y = indexable(X, y)
        labels = check_binary(y)
        if isinstance(self.cv, str) and self.cv == "prefit":
            held_out, scores = self._score_prefit(X, labels, fit_params)
        else:
            held_out, scores = self._score_folds(X, labels, self._routed(fit_params))
        self._set_threshold(held_out == self.pos_label_, scores)
        for attribute in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, attribute):
                setattr(self, attribute, getattr(self.estimator_, attribute))
        return self

    def _score_prefit(
        self, X: Any, labels: NDArray[Any], fit_params: dict[str, Any]
    ) -> tuple[NDArray[Any], Floats]:
        if fit_params:
            raise ValueError(f'cv="prefit" fits nothing, so it cannot use {", ".join(fit_params)}.')
        check_is_fitted(self.estimator)
        classes = np.asarray(self.estimator.classes_)
        unknown = np.setdiff1d(labels, classes).tolist()
        if unknown:
            raise ValueError(f"y holds the class {unknown[0]!r}, which the estimator was not fitted to.")
        self.estimator_, self.classes_ = self.estimator, classes
        self.pos_label_ = self._positive(classes, labels)
        return labels, self._positive_scores(self.estimator_, X, self._method())

    def _score_folds(
        self, X: Any, labels: NDArray[Any], fit_params: dict[str, Any]
    ) -> tuple[NDArray[Any], Floats]:
        classes = np.unique(labels)
        if len(classes) < 2:
            raise ValueError(
                f"y holds one class only ({classes.tolist()[0]!r}); a classifier needs rows of two."
            )
        present = rows_with_weight(labels, classes, fit_params.get("sample_weight"))
        method, everything = self._method(), np.arange(len(labels))
        # Splits may be masks or row numbers; row numbers show whether a row comes twice.
        splits = [
            (everything[train], everything[test])
            for train, test in check_cv(self.cv, labels, classifier=True).split(X, labels)
        ]
        tested = np.concatenate([test for _, test in splits])
        if len(np.unique(tested)) < len(tested):
            raise ValueError(
                "cv holds out some rows more than once, but the bound needs different rows; "
                "use a splitter whose test sets do not overlap."
            )
        # Not cross_val_predict: it passes labels 0 and 1 instead of y's own to the folds. That breaks an
        # estimator with class_weight={"fraud": 10}.
        self.classes_, self.pos_label_ = classes, self._positive(classes, labels)
        scores = Parallel(n_jobs=self.n_jobs)(
            delayed(fold_scores)(clone(self.estimator), X, labels, train, test, method, fit_params)
            for train, test in splits
        )
        self.estimator_ = clone(self.estimator).fit(X, labels, **fit_params)
        counted = present[tested]
        return labels[tested][counted], self._sign() * np.concatenate(scores)[counted]

    def _positive(self, classes: NDArray[Any], labels: NDArray[Any]) -> Any:
        """Return the label of the positive class."""
        if self.pos_label is None:
            first, second = classes.tolist()
            if isinstance(second, str) and np.mean(labels == classes[1]) > _NEARLY_ALL:
                warnings.warn(
                    f"the positive class is {second!r}, the second of the sorted labels, which nearly all "
                    f"rows have: give pos_label={first!r} if that is the event",
                    stacklevel=4,
                )
            return classes[1]
        return classes[place_of(self.pos_label, classes, "pos_label")]

    def _sign(self) -> float:
        """Return the sign of scores: they rank the second of the sorted labels, negated the first."""
        return 1.0 if self.pos_label_ == self.classes_[1] else -1.0

    def _positive_scores(self, estimator: Any, X: Any, method: str) -> Floats:
        return self._sign() * positive_scores(estimator, X, method)

    def _set_threshold(self, positive: NDArray[np.bool_], scores: Floats) -> None:
        self.threshold_ = threshold_at_fpr(positive, scores, self.fpr, confidence=self.confidence)
        is_alert = scores >= self.threshold_
        self.held_out_fpr_ = float(np.mean(is_alert[~positive]))
        self.held_out_recall_ = float(np.mean(is_alert[positive])) if positive.any() else float("nan")

    def _method(self) -> str:
        wanted = METHODS if self.method == "auto" else (self.method,)
        for name in wanted:
            if name in METHODS and hasattr(self.estimator, name):
                return name
        if self.method not in ("auto", *METHODS):
            raise ValueError(f"method must be auto or one of {', '.join(METHODS)}, but is {self.method!r}.")
        raise ValueError(f"{type(self.estimator).__name__} has no {' or '.join(wanted)} to take scores from.")

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self, "threshold_")
        return self._positive_scores(self.estimator_, X, self._method())

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the positive class where the score is at least `threshold_`."""
        is_alert = self._scores(X) >= self.threshold_
        is_second = is_alert if self._sign() > 0 else ~is_alert
        return np.asarray(self.classes_[is_second.astype(np.intp)])

    def decision_function(self, X: Any) -> Floats:
        """Return the inner score minus `threshold_`; it is positive where `predict` returns `classes_[1]`.

        That is an alert. If `pos_label` is the first of the sorted labels, alerts are the values not above 0.

        Zero is the threshold, as scikit-learn expects. If differences far below the threshold matter, use the
        scores of `estimator_`: subtraction of the threshold rounds a probability of 1e-20 away.
        """
        beyond = self._scores(X) - self.threshold_
        return self._sign() * beyond

    @available_if(has_method("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Return the inner estimator's probabilities. The threshold of `predict` is not one half."""
        check_is_fitted(self, "threshold_")
        return np.asarray(self.estimator_.predict_proba(X))

    @available_if(has_method("predict_log_proba"))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> NDArray[Any]:
        """Return the inner estimator's log-probabilities."""
        check_is_fitted(self, "threshold_")
        return np.asarray(self.estimator_.predict_log_proba(X))

    def _routed(self, fit_params: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters for the inner fit: all, or with metadata routing those that it requests."""
        if fit_params and get_config()["enable_metadata_routing"]:
            return dict(process_routing(self, "fit", **fit_params).estimator.fit)
        return fit_params

    def get_metadata_routing(self) -> Any:
        """Route the parameters of `fit` to the inner `fit`, for scikit-learn's metadata routing."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=self).add(estimator=self.estimator, method_mapping=mapping)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import get_tags  # scikit-learn 1.6 or later, which calls this method

        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


def check_binary(y: Any) -> NDArray[Any]:
    """Read labels of at most two classes; errors use the phrases that scikit-learn's checks expect."""
    labels = column_or_1d(y, warn=True)
    if len(labels) == 0:
        raise ValueError("There are 0 sample(s), and a minimum of 1 is required.")
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    kind = type_of_target(labels, input_name="y")
    if kind != "binary":
        raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
    return np.asarray(labels)


def rows_with_weight(labels: NDArray[Any], classes: NDArray[Any], sample_weight: Any) -> NDArray[np.bool_]:
    """Return a mask of the rows with a weight above zero; each class must have one."""
    if sample_weight is None:
        return np.ones(len(labels), dtype=np.bool_)
    present = np.asarray(sample_weight) > 0
    if len(present) != len(labels):
        raise ValueError(f"y has {len(labels)} rows, but sample_weight has {len(present)}.")
    for label in classes.tolist():
        if not np.any(present & (labels == label)):
            raise ValueError(f"Every row of the class {label!r} has a sample_weight of zero.")
    return present


def fold_scores(
    estimator: Any,
    X: Any,
    labels: NDArray[Any],
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    method: str,
    fit_params: dict[str, Any],
) -> Floats:
    """Return scores of the test rows by the estimator fitted to the training rows."""
    params = _check_method_params(X, fit_params, indices=train)
    estimator.fit(_safe_indexing(X, train), labels[train], **params)
    return positive_scores(estimator, _safe_indexing(X, test), method)


def positive_scores(estimator: Any, X: Any, method: str) -> Floats:
    """Return one score per row, higher for the second class."""
    classes = estimator.classes_
    if len(classes) != 2:
        raise ValueError(
            f"{type(estimator).__name__} was fitted to {len(classes)} class(es), not two; "
            "with folds, each needs rows of both classes."
        )
    values = np.asarray(getattr(estimator, method)(X))
    # float64 holds float32 scores exactly; a comparison in float32 would round the threshold.
    return np.asarray(values[:, -1] if values.ndim == 2 else values, dtype=np.float64)
