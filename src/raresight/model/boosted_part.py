"""A booster of LightGBM or XGBoost on coded matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..boosting import LightGBMClassifier, XGBoostClassifier, start_of
from ..boosting.classifier import BoostedClassifier
from ..boosting.defaults import limits_of
from ..losses import Loss
from .candidate import Candidate

__all__ = ["BOOSTER_FILES", "BoostedPart", "fit_booster"]

Floats = NDArray[np.float64]

BOOSTER_FILES = {"lightgbm": "lightgbm.txt", "xgboost": "xgboost.ubj"}
_CLASSIFIERS: dict[str, type[BoostedClassifier]] = {
    "lightgbm": LightGBMClassifier,
    "xgboost": XGBoostClassifier,
}
# LightGBM adds this much l2, in positive rows of cross entropy, where it splits by many categories.
_CATEGORY_L2 = 10.0


@dataclass(frozen=True, eq=False)
class BoostedPart:
    """A fitted classifier of one of the libraries."""

    family: str
    classifier: BoostedClassifier

    @property
    def n_columns(self) -> int:
        return int(self.classifier.n_features_in_)

    def scores(self, X: NDArray[Any], threads: int | None) -> NDArray[Any]:
        """Raw scores z, the start included, by the library's fastest call for rows in memory."""
        if X.ndim != 2 or X.shape[1] != self.n_columns:
            raise ValueError(f"the model has {self.n_columns} columns, X has the shape {X.shape}")
        if not len(X):
            return np.empty(0)
        booster = self.classifier.booster_
        if self.family == "lightgbm":
            options = {} if threads is None else {"num_threads": threads}
            return np.asarray(booster.predict(X, raw_score=True, **options))
        booster.set_param({"nthread": threads or 0})
        return np.asarray(booster.inplace_predict(X, predict_type="margin", validate_features=False))

    def importance(self) -> Floats:
        """The share of each column in the gain of all splits."""
        return np.asarray(self.classifier.feature_importances_)

    def save(self, folder: Path) -> tuple[str, ...]:
        """Write the library's own file and the side-file of `raresight.boosting`."""
        name = BOOSTER_FILES[self.family]
        self.classifier.save(folder / name)
        return name, f"{name}.raresight.json"

    @staticmethod
    def load(folder: Path, family: str) -> BoostedPart:
        path = folder / BOOSTER_FILES[family]
        classifier = _CLASSIFIERS[family].load(path)
        booster = classifier.booster_
        native = int(booster.num_feature() if family == "lightgbm" else booster.num_features())
        if native != classifier.n_features_in_:
            raise ValueError(
                f"{path} has {native} columns, its side-file says {classifier.n_features_in_}: they do not "
                "belong together"
            )
        return BoostedPart(family, classifier)


def fit_booster(
    candidate: Candidate,
    loss: Loss,
    X: NDArray[Any],
    y: NDArray[Any],
    categorical: Sequence[int],
    shares: Floats,
    weights: Floats | None,
    seed: int,
    threads: int | None,
) -> BoostedPart:
    """Train one candidate; the limits of its leaves are those of `raresight.boosting` times `leaf_weight`."""
    settings = dict(candidate.settings())
    limits = limits_of(loss, start_of(loss, shares))
    leaf_weight = settings.pop("leaf_weight")
    child, l2 = leaf_weight * limits.min_child_weight, leaf_weight * limits.l2
    native: dict[str, Any] = dict(settings)
    if candidate.family == "lightgbm":
        native |= {
            "min_sum_hessian_in_leaf": child,
            "lambda_l2": l2,
            # As for the l2 of leaves: in units of the loss's curvature.
            "cat_l2": _CATEGORY_L2 * limits.l2 / 2,
            # LightGBM would otherwise time two ways to sum on each run, and take the faster one.
            "deterministic": True,
            "force_col_wise": True,
            "verbosity": -1,
        }
    else:
        native |= {"min_child_weight": child, "reg_lambda": l2, "verbosity": 0}
    classifier = _CLASSIFIERS[candidate.family](
        candidate.loss, random_state=seed, n_jobs=threads, **native
    ).fit(X, y, weights, categorical_feature=list(categorical))
    # The number of threads is a matter of the machine, not of the model: it is not to be saved.
    classifier.set_params(n_jobs=None)
    return BoostedPart(candidate.family, classifier)
