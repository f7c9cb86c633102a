"""Steps that all classifiers share around their own fitting."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Number
from typing import Any

import numpy as np
from sklearn.base import clone

from .calibration import Calibrator, held_out_calibrator
from .checks import check_weights
from .labels import encode_known, read_targets
from .row_groups import assign_folds, copies_of
from .tables import is_frame, is_sparse, read_table

__all__ = [
    "columns_kept_on_failure",
    "decided_classes",
    "errors_of",
    "out_of_fold_calibrator",
    "read_labelled",
    "read_weights",
    "with_gaps_and_sparse",
]

Array = np.ndarray[Any, Any]

# What scikit-learn's validation sets before anything is trained.
_COLUMNS = ("n_features_in_", "feature_names_in_")


@contextmanager
def columns_kept_on_failure(estimator: Any) -> Iterator[None]:
    """Restore the columns of an earlier fit if the fit inside fails, so that the old model stays usable."""
    # validate_data sets these before anything can fail.
    columns = {name: estimator.__dict__[name] for name in _COLUMNS if name in estimator.__dict__}
    try:
        yield
    except BaseException:
        for name in _COLUMNS:
            estimator.__dict__.pop(name, None)
        estimator.__dict__.update(columns)
        raise


def with_gaps_and_sparse(tags: Any) -> Any:
    """scikit-learn's tags of an estimator that takes missing values and sparse rows."""
    tags.input_tags.sparse = True
    tags.input_tags.allow_nan = True
    return tags


@contextmanager
def errors_of(what: str) -> Iterator[None]:
    """Name the input in errors raised inside; those of `fit` itself name X, y and sample_weight.

    >>> with errors_of("the labels of eval_set"):
    ...     raise ValueError("y mixes text and other values")
    Traceback (most recent call last):
    ValueError: the labels of eval_set cannot be used: y mixes text and other values
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{what} cannot be used: {error}") from error


def read_weights(sample_weight: Any, table: Any) -> Array | None:
    """Return one weight of at least 0 for each row of the table, or None; a number is that of every row."""
    if isinstance(sample_weight, Number):
        sample_weight = np.full(table.shape[0], sample_weight)
    weights = check_weights(sample_weight, table.shape[0], of="X")
    if weights is not None and not weights.any():
        raise ValueError("sample_weight must not be all zero")
    return None if weights is None else weights.astype(np.float64, copy=False)


def read_labelled(
    estimator: Any, pair: Any, classes: Array, name: str, categorical: Any = "auto"
) -> tuple[Any, Array]:
    """Read an evaluation pair (X, y) as rows and class numbers; errors call it `name`.

    The columns `categorical` may hold text.
    """
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"{name} must be a pair (X, y)")
    with errors_of(f"the rows of {name}"):
        table = read_table(estimator, pair[0], reset=False, categorical=categorical)
    with errors_of(f"the labels of {name}"):
        labels = read_targets(pair[1], type(estimator).__name__, f"y of {name}")
    if table.shape[0] != len(labels):
        raise ValueError(f"{name} has {table.shape[0]} rows but {len(labels)} labels")
    return table, encode_known(labels, classes, name)


def decided_classes(scores: Array, classes: Array) -> Array:
    """Return the class of each score: the second of two where z > 0, of K the one with the highest logit.

    >>> decided_classes(np.array([-1.0, 2.0]), np.array(["good", "bad"])).tolist()
    ['good', 'bad']
    """
    codes = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
    return np.asarray(classes[codes])


def out_of_fold_calibrator(
    estimator: Any, table: Any, classes: Array, codes: Array, weights: Array | None, **options: Any
) -> Calibrator:
    """Fit slope and levels to the scores of rows by clones of an estimator that did not see them.

    Five folds, or as many as the rarest class has rows; copies of a row share a fold. The folds are the same
    in every run.

    Args:
        estimator: With `loss_` and `decision_function` once fitted, and the option `calibration`.
        table: Rows as the estimator read them: an array, a CSR matrix or a pandas DataFrame.
        classes: The labels of the class numbers.
        codes: Class numbers.
        weights: Row weights, or None; rows of weight 0 do not count.
        options: Further arguments of `fit`.

    Raises:
        ValueError: If a class has a single row, copies counted once.
    """
    counted = np.arange(len(codes)) if weights is None else np.flatnonzero(weights > 0)
    codes = codes[counted]
    groups = copies_of(_contents(_rows_at(table, counted)), codes)
    folds = assign_folds(codes, np.random.RandomState(0), groups)
    if folds is None:
        raise ValueError(
            "calibration='slope' scores rows out of fold, but a class has one row only, copies counted once: "
            "take calibration='level'"
        )
    found = np.empty((len(codes), len(classes)))
    for fold in range(int(folds.max()) + 1):
        rows, others = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        model = clone(estimator).set_params(calibration="link")
        part = None if weights is None else weights[counted[rows]]
        with warnings.catch_warnings():
            # What a fold warns of, the fit to all rows has warned of.
            warnings.simplefilter("ignore")
            model.fit(_rows_at(table, counted[rows]), classes[codes[rows]], sample_weight=part, **options)
            scores = model.decision_function(_rows_at(table, counted[others]))
        found[others] = model.loss_.log_posterior(np.asarray(scores, dtype=np.float64))
    return held_out_calibrator(found, codes, None if weights is None else weights[counted])


def _rows_at(table: Any, places: Array) -> Any:
    return table.iloc[places] if is_frame(table) else table[places]


def _contents(table: Any) -> Array:
    """Return numbers that are equal for equal rows, and hardly ever for others."""
    if is_frame(table):
        from pandas.util import hash_pandas_object  # type: ignore[import-untyped]

        return np.asarray(hash_pandas_object(table, index=False), dtype=np.float64)[:, None]
    if is_sparse(table):
        # A random combination of the columns needs no dense copy of them.
        return np.asarray(table @ np.random.RandomState(0).normal(size=table.shape[1]))[:, None]
    return np.asarray(table)
