"""Boosters of LightGBM and XGBoost on coded matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..boosting import LightGBMClassifier, NoSplitWarning, XGBoostClassifier
from ..boosting.classifier import BoostedClassifier, GrowingBooster
from ..boosting.defaults import CHILD_POSITIVES, L2_POSITIVES, limits_of
from ..losses import Loss
from ..losses.for_classes import loss_for_classes
from ..losses.start import start_of
from .families import FAMILIES, Candidate, Fitted, GrowingFit, TrainingRows, kept_warnings

__all__ = ["BoostedPart", "begin", "fit", "load"]

_CLASSIFIERS: dict[str, type[BoostedClassifier]] = {
    "lightgbm": LightGBMClassifier,
    "xgboost": XGBoostClassifier,
    "forest": LightGBMClassifier,
}
# LightGBM adds this much l2, in positive rows of cross entropy, where it splits by many categories.
_CATEGORY_L2 = 10.0
# LightGBM would otherwise time two ways to sum on each run, and take the faster one.
_SAME_EACH_TIME = {"deterministic": True, "force_col_wise": True, "verbosity": -1}


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
        if isinstance(self.classifier, LightGBMClassifier):
            return self.classifier.scores_of(booster, X, threads)
        booster.set_param({"nthread": threads or 0})
        return np.asarray(booster.inplace_predict(X, predict_type="margin", validate_features=False))

    def importance(self) -> NDArray[np.float64]:
        """Return the share of each column in the gain of all splits."""
        return np.asarray(self.classifier.feature_importances_)

    def save(self, folder: Path) -> None:
        """Write the library's own file and the side-file of `raresight.boosting`."""
        self.classifier.save(folder / FAMILIES[self.family].files[0])


def fit(candidates: Sequence[Candidate], rows: TrainingRows, seed: int, threads: int | None) -> list[Fitted]:
    """Train each candidate."""
    return [_fit_one(candidate, rows, seed, threads) for candidate in candidates]


def load(folder: Path, family: str) -> BoostedPart:
    """Read what `BoostedPart.save` wrote."""
    path = folder / FAMILIES[family].files[0]
    classifier = _CLASSIFIERS[family].load(path)
    booster = classifier.booster_
    native = int(booster.num_features() if family == "xgboost" else booster.num_feature())
    if native != classifier.n_features_in_:
        raise ValueError(
            f"{path} has {native} columns, its side-file says {classifier.n_features_in_}: they do not "
            "belong together"
        )
    return BoostedPart(family, classifier)


def begin(
    candidate: Candidate,
    rows: TrainingRows,
    X: NDArray[Any],
    y: NDArray[Any],
    seed: int,
    threads: int | None,
) -> GrowingFit:
    """Begin a training that watches the rows X, y."""
    loss, classifier = _classifier(candidate, rows, seed, threads)
    growing = classifier.growing(
        rows.X, rows.y, rows.weights, watched=(X, y), categorical_feature=list(rows.categorical)
    )
    return _Growing(loss, growing)


@dataclass(frozen=True, eq=False)
class _Growing:
    loss: Loss
    booster: GrowingBooster

    def grow(self, rounds: int) -> None:
        self.booster.grow(rounds)

    def log_odds(self) -> NDArray[np.float64]:
        return np.asarray(self.loss.log_odds(self.booster.scores().astype(np.float64)))


def _classifier(
    candidate: Candidate, rows: TrainingRows, seed: int, threads: int | None
) -> tuple[Loss, BoostedClassifier]:
    loss = loss_for_classes(candidate.loss, np.bincount(rows.y, minlength=2))
    native = _native_settings(candidate, loss, rows)
    made = _CLASSIFIERS[candidate.family](candidate.loss, random_state=seed, n_jobs=threads, **native)
    return loss, made


def _fit_one(candidate: Candidate, rows: TrainingRows, seed: int, threads: int | None) -> Fitted:
    with kept_warnings(NoSplitWarning) as kept:
        loss, classifier = _classifier(candidate, rows, seed, threads)
        classifier.fit(rows.X, rows.y, rows.weights, categorical_feature=list(rows.categorical))
    # The number of threads is a matter of the machine, not of the model: it is not to be saved.
    classifier.set_params(n_jobs=None)
    part = BoostedPart(candidate.family, classifier)
    calibrator, texts = classifier.calibrator_, tuple(dict.fromkeys(kept))
    return Fitted(candidate, loss, part, rows.start_score(loss), calibrator, texts, threads)


def _native_settings(candidate: Candidate, loss: Loss, rows: TrainingRows) -> dict[str, Any]:
    """Translate parameters to the library's names; limits of leaves count positive rows."""
    settings: dict[str, Any] = dict(candidate.settings())
    if candidate.family == "forest":
        bagging_fraction = settings.pop("row_fraction")
        return settings | {"boosting": "rf", "bagging_fraction": bagging_fraction} | _SAME_EACH_TIME
    limits = limits_of(loss, start_of(loss, rows.shares))
    child = settings.pop("leaf_weight") * limits.min_child_weight / CHILD_POSITIVES
    l2 = settings.pop("l2") * limits.l2 / L2_POSITIVES
    row_fraction = settings.pop("row_fraction")
    if candidate.family == "lightgbm":
        return (
            settings
            | {
                "min_sum_hessian_in_leaf": child,
                "lambda_l2": l2,
                # As for the l2 of leaves: in units of the loss's curvature.
                "cat_l2": _CATEGORY_L2 * limits.l2 / L2_POSITIVES,
                "bagging_fraction": row_fraction,
                "bagging_freq": 1,
            }
            | _SAME_EACH_TIME
        )
    return settings | {
        "min_child_weight": child,
        "reg_lambda": l2,
        "subsample": row_fraction,
        # XGBoost draws rows and columns by one generator for the whole process. Folds that grow side by side
        # would take each other's draws, so that their scores were not those of fits alone.
        "seed_per_iteration": True,
        "verbosity": 0,
    }
