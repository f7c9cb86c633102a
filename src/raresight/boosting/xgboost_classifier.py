"""XGBoost with any loss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..common.tables import is_sparse
from ..metrics.eval_metrics import EvalMetric, xgboost_metric
from .classifier import BoostedClassifier, GrowingBooster, RowPart, Run, TrainedBooster, first_given
from .objective import fixed_objective, import_library

Array = np.ndarray[Any, Any]

__all__ = ["XGBoostClassifier"]

# How many numbers of a sparse matrix are made dense at a time: 64 MB.
_DENSE_NUMBERS = 1 << 23

_OURS = "it is set from the loss and the training labels"
_WEIGHTS = "use loss=ClassWeighted(...), whose link undoes the weights, so that probabilities stay calibrated"


class XGBoostClassifier(BoostedClassifier):
    """Gradient boosted trees of XGBoost, trained with a loss of `raresight.losses`.

    A scikit-learn classifier. Training starts from the loss-optimal constant for the (weighted) class shares,

        z* = argmin_z sum_k pi_k l(k, z),

    which is stored in the model as XGBoost's `base_score`: after `save`, plain XGBoost predicts the same raw
    scores from the model file alone. `predict_proba` applies the loss's link, and shifts the log-odds by
    a constant that makes the mean probability of the training rows their share of positives (see
    `raresight.common.calibration`). That is calibrated where the trees can represent the truth and do not
    overfit. Elsewhere losses differ, most in the rows of the highest probabilities: `calibration="slope"`
    corrects the log-odds by out-of-fold scores (figures in docs/estimators.md). With `loss="crossentropy"`
    the trees are those of `binary:logistic` started at the same constant, or of `multi:softprob`.

    Defaults that differ from XGBoost's scale with the loss's curvature at the start; see
    `raresight.boosting.defaults` for the reasons and the figures: `reg_lambda`, `min_child_weight`,
    `max_delta_step`, and a `learning_rate` of 0.1. Every native parameter given wins.

    XGBoost takes the zeros of a sparse matrix for missing values. A model fitted on one does so with every
    row it is given, dense rows of `predict` and `eval_set` among them; for a model fitted on dense rows zeros
    are values, and sparse rows are made dense, block by block in predictions, `eval_set` as a whole.

    With early stopping the model is cut after the best round, so that no reader of the file has to know it.

    Args:
        loss: A loss or its text, such as `"tbl(alpha=0.8,C=0.5)"`.
        n_estimators: Rounds.
        learning_rate: Factor on every step; XGBoost's `eta`.
        early_stopping_rounds: Stop when `eval_metric` on the last evaluation set has not improved for so many
            rounds; needs `eval_set` in `fit`.
        eval_metric: `"partial_auc"`, `"recall_at_fpr"` or another ranking metric by name, one made by
            `raresight.metrics.eval_metrics.xgboost_metric("recall_at_fpr", fpr=0.001)`, or `"loss"` for the
            mean loss. None is the partial AUC for two classes and the mean loss for more.
        calibration: What follows the link of the loss, as for all estimators. `"link"`: nothing. `"level"`:
            the shift above. `"slope"`: slope and level, fitted to the scores of rows by models of five folds
            that did not see them; this takes about six times as long. With early stopping the models of the
            folds have as many rounds as the model.
        random_state: Seed for sampling rows and columns.
        n_jobs: Threads; None leaves it to XGBoost.
        **native: XGBoost's own parameters, such as `max_depth=4` or `subsample=0.8`. Refused are those that
            would undo the above: `objective`, `base_score`, `scale_pos_weight` (it would bias the
            probabilities; `ClassWeighted` does the same and undoes it in the link) and the like.

    Attributes:
        booster_: The `xgboost.Booster`.
        classes_, n_features_in_, feature_names_in_: As in scikit-learn.
        start_score_: The constant training started from, one number or K.
        calibrator_: The calibrator of the log-odds.
        best_iteration_: The best round, counted from 0, after early stopping; else None.
        evals_result_: The metric after each round, by evaluation set.
        feature_importances_: Shares of the total gain.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(4000, 3))
        >>> y = rng.random(4000) < 1 / (1 + np.exp(5 - 2 * X[:, 0]))
        >>> model = XGBoostClassifier("tbl", n_jobs=1).fit(X, y)
        >>> bool(abs(model.predict_proba(X)[:, 1].mean() / y.mean() - 1) < 0.1)
        True
    """

    _library: ClassVar[str] = "xgboost"
    _refused: ClassVar[dict[str, str]] = {
        "objective": "the loss is the objective",
        "base_score": _OURS,
        "base_margin": _OURS,
        "num_class": _OURS,
        "scale_pos_weight": _WEIGHTS,
        "class_weight": _WEIGHTS,
        "eta": "use learning_rate",
        "num_boost_round": "use n_estimators",
        "nthread": "use n_jobs",
        "seed": "use random_state",
        "multi_strategy": "each class has its own trees here",
    }

    _category_kinds: ClassVar[tuple[str, ...]] = ("text", "whole numbers")
    _refused_characters: ClassVar[str] = "[]<"

    def _as_trained(self, table: Any, on_sparse: bool) -> Any:
        """For a model of a sparse matrix zeros are missing, however the rows come."""
        if not on_sparse:
            return table
        if is_sparse(table):
            if np.all(table.data):
                return table
            table = table.copy()
            table.eliminate_zeros()  # those that are written out
            return table
        if hasattr(table, "columns"):
            if any(str(dtype) == "category" for dtype in table.dtypes):
                raise ValueError("the model was trained on a sparse matrix: pass numbers, not categories")
            table = table.to_numpy(dtype=np.float64, na_value=np.nan)
        return np.where(table == 0, np.asarray(np.nan, dtype=table.dtype), table)

    def _parameters(self, run: Run) -> dict[str, Any]:
        native = run.native
        booster_kind = native.get("booster", "gbtree")
        if booster_kind not in ("gbtree", "dart"):
            raise ValueError(f"booster must be 'gbtree' or 'dart', got {booster_kind!r}")
        if booster_kind == "dart" and self.early_stopping_rounds is not None:
            raise ValueError(
                "dart rescales earlier trees, so it cannot be cut at the best round: no early stopping"
            )
        scores = run.start.scores
        parameters: dict[str, Any] = {
            # XGBoost then returns raw scores without a transform, in training and from a loaded model.
            "objective": "reg:squarederror",
            "disable_default_eval_metric": True,
            "base_score": scores[0] if run.n_scores == 1 else list(scores),
            "learning_rate": self.learning_rate,
        }
        if run.n_scores > 1:
            parameters["num_class"] = run.n_scores
        if not first_given(native, ("reg_lambda", "lambda", "lambda_")):
            parameters["reg_lambda"] = run.limits.l2
        if not first_given(native, ("min_child_weight",)):
            parameters["min_child_weight"] = run.limits.min_child_weight
        if not first_given(native, ("max_delta_step",)):
            parameters["max_delta_step"] = run.limits.max_delta_step
        seed = self._seed()
        if seed is not None:
            parameters["seed"] = seed
        if self.n_jobs is not None:
            parameters["nthread"] = self.n_jobs
        return parameters | native

    def _train(self, run: Run) -> TrainedBooster:
        xgb = import_library("xgboost")
        parameters = self._parameters(run)
        training = self._quantiles(xgb, run)
        parts = enumerate(run.evaluation)
        evaluation = [(self._evaluation_matrix(xgb, run, part), f"eval_{i}") for i, part in parts]
        evals_result: dict[str, dict[str, list[float]]] = {}
        booster = xgb.train(
            parameters,
            training,
            num_boost_round=int(self.n_estimators),
            obj=fixed_objective(run.gradients, "xgboost"),
            evals=evaluation,
            custom_metric=run.metric,
            early_stopping_rounds=self.early_stopping_rounds,
            evals_result=evals_result,
            verbose_eval=False,
        )
        best = None
        if self.early_stopping_rounds is not None:
            best = int(booster.best_iteration)
            booster = booster[: best + 1]
        # The scores of the training matrix are in XGBoost's cache, unless the model was cut.
        final = np.asarray(booster.predict(training, output_margin=True))
        return TrainedBooster(booster, final, best, evals_result)

    def _begin(self, run: Run) -> GrowingBooster:
        xgb = import_library("xgboost")
        training = self._quantiles(xgb, run)
        watched = self._evaluation_matrix(xgb, run, run.evaluation[-1])
        booster = xgb.Booster(self._parameters(run), [training, watched])
        return _GrowingXGBoost(booster, training, watched, fixed_objective(run.gradients, "xgboost"))

    def _evaluation_matrix(self, xgb: Any, run: Run, part: RowPart) -> Any:
        if is_sparse(part.X) and not is_sparse(run.training.X):
            part = RowPart(part.X.toarray(), part.codes, part.weights)
        return self._matrix(xgb, part, run.categorical)

    def _has_split(self, booster: Any) -> bool:
        return bool(booster.get_score(importance_type="weight"))

    def _quantiles(self, xgb: Any, run: Run) -> Any:
        """Return the training matrix: already in bins where the tree method works on bins."""
        native, part = run.native, run.training
        if native.get("tree_method", "hist") not in ("hist", "auto"):
            return self._matrix(xgb, part, run.categorical)
        return xgb.QuantileDMatrix(
            part.X,
            label=part.codes,
            weight=part.weights,
            max_bin=native.get("max_bin"),
            nthread=self.n_jobs,
            **self._types(part.X, run.categorical),
        )

    def _matrix(self, xgb: Any, part: RowPart, categorical: list[int]) -> Any:
        return xgb.DMatrix(
            part.X,
            label=part.codes,
            weight=part.weights,
            nthread=self.n_jobs,
            **self._types(part.X, categorical),
        )

    def _types(self, X: Any, categorical: list[int]) -> dict[str, Any]:
        """Return which columns of an array are categories. A DataFrame has them as types."""
        if not categorical or hasattr(X, "columns"):
            return {"enable_categorical": True}
        return {
            "enable_categorical": True,
            "feature_types": ["c" if i in categorical else "q" for i in range(X.shape[1])],
        }

    def _raw(self, table: Any) -> Array:
        if is_sparse(table) and not self._trained_on_sparse:
            # Zeros are values for this model; a block of rows at a time is made dense.
            block = max(_DENSE_NUMBERS // table.shape[1], 1)
            blocks = range(0, table.shape[0], block)
            return np.concatenate([self._dense_raw(table[i : i + block].toarray()) for i in blocks])
        return self._dense_raw(table)

    def _dense_raw(self, table: Any) -> Array:
        xgb = import_library("xgboost")
        types = self.booster_.feature_types
        categorical = [i for i, kind in enumerate(types) if kind == "c"] if types else []
        # Names are compared by scikit-learn's rules before; an array may be passed for a DataFrame.
        named = hasattr(table, "columns")
        data = xgb.DMatrix(table, nthread=self.n_jobs, **self._types(table, categorical))
        scores = self.booster_.predict(data, output_margin=True, validate_features=named)
        return np.asarray(scores)

    def _gain(self) -> Array:
        gain = np.zeros(self.n_features_in_)
        names = self.booster_.feature_names
        place = {name: i for i, name in enumerate(names)} if names else {}
        for name, value in self.booster_.get_score(importance_type="total_gain").items():
            gain[place[name] if place else int(name[1:])] = value
        return gain

    @staticmethod
    def _metric(metric: str, params: dict[str, Any]) -> EvalMetric:
        return xgboost_metric(metric, **params)

    def _check_path(self, path: Path) -> None:
        if path.suffix not in (".json", ".ubj"):
            raise ValueError(f"XGBoost writes .json or .ubj files, got {path.name!r}")

    def _content(self, path: Path) -> bytes:
        return bytes(self.booster_.save_raw(raw_format=path.suffix[1:]))

    def _booster_from(self, content: bytes) -> Any:
        return import_library("xgboost").Booster(model_file=bytearray(content))


class _GrowingXGBoost:
    def __init__(
        self, booster: Any, training: Any, watched: Any, derivatives: Callable[[Any, Any], Any]
    ) -> None:
        self._booster, self._training, self._watched = booster, training, watched
        self._derivatives, self._rounds = derivatives, 0

    def grow(self, rounds: int) -> None:
        for _ in range(rounds):
            self._booster.update(self._training, self._rounds, fobj=self._derivatives)
            self._rounds += 1

    def scores(self) -> Array:
        # Only new trees are added: XGBoost keeps the scores of a matrix that it was made with.
        return np.asarray(self._booster.predict(self._watched, output_margin=True))
