"""LightGBM with any loss."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..losses import CrossEntropy
from ..metrics.eval_metrics import EvalMetric, lightgbm_metric
from .classifier import BoostedClassifier, GrowingBooster, RowPart, Run, TrainedBooster, first_given
from .objective import fixed_objective, import_library

Array = np.ndarray[Any, Any]

__all__ = ["LightGBMClassifier"]

_OURS = "it is set from the loss and the training labels"
_WEIGHTS = "use loss=ClassWeighted(...), whose link undoes the weights, so that probabilities stay calibrated"

# The names by which LightGBM knows the parameters that have other defaults here.
_ALIASES = {
    "lambda_l2": ("lambda_l2", "reg_lambda", "lambda"),
    "min_sum_hessian_in_leaf": (
        "min_sum_hessian_in_leaf",
        "min_sum_hessian_per_leaf",
        "min_sum_hessian",
        "min_hessian",
        "min_child_weight",
    ),
    "max_delta_step": ("max_delta_step", "max_tree_output", "max_leaf_output"),
    "min_data_in_leaf": (
        "min_data_in_leaf",
        "min_data_per_leaf",
        "min_data",
        "min_child_samples",
        "min_samples_leaf",
    ),
    "verbosity": ("verbosity", "verbose"),
}


class LightGBMClassifier(BoostedClassifier):
    """Gradient boosted trees of LightGBM, trained with a loss of `raresight.losses`.

    A scikit-learn classifier. Training starts from the loss-optimal constant for the (weighted) class shares,

        z* = argmin_z sum_k pi_k l(k, z),

    which is then added to the leaves of the first tree of each class, as LightGBM itself does for its own
    objectives: after `save`, plain LightGBM predicts the same raw scores from the model file alone, with no
    init_score to remember. `predict_proba` applies the loss's link, and shifts the log-odds by a constant
    that makes the mean probability of the training rows their share of positives (see
    `raresight.common.calibration`). That is calibrated where the trees can represent the truth and do not
    overfit. Elsewhere losses differ, most in the rows of the highest probabilities: `calibration="slope"`
    corrects the log-odds by out-of-fold scores (figures in docs/estimators.md). With `loss="crossentropy"`
    the trees are those of LightGBM's `binary` or `multiclass`.

    Defaults that differ from LightGBM's scale with the loss's curvature at the start; see
    `raresight.boosting.defaults` for the reasons and the figures: `lambda_l2`, `min_sum_hessian_in_leaf`,
    `max_delta_step`, and a `min_data_in_leaf` of 1, for which the limit on the Hessian stands in. Every
    native parameter given wins, under any of its names.

    With early stopping the model is cut after the best round, so that no reader of the file has to know it.

    `boosting="rf"` grows a random forest instead, for cross entropy and two classes. Its trees are fitted to
    the labels, and a leaf holds the share of positives; raw scores are the log-odds of the mean share. Plain
    LightGBM predicts that share from the file. Defaults: each tree sees a share of 0.632 of the rows, each
    split the square root of the columns, and a tree has at most 255 leaves.

    Args:
        loss: A loss or its text, such as `"tbl(alpha=0.8,C=0.5)"`.
        n_estimators: Rounds.
        learning_rate: Factor on every step.
        early_stopping_rounds: Stop when `eval_metric` on the last evaluation set has not improved for so many
            rounds; needs `eval_set` in `fit`.
        eval_metric: `"partial_auc"`, `"recall_at_fpr"` or another ranking metric by name, one made by
            `raresight.metrics.eval_metrics.lightgbm_metric("recall_at_fpr", fpr=0.001)`, or `"loss"` for the
            mean loss. None is the partial AUC for two classes and the mean loss for more.
        calibration: What follows the link of the loss, as for all estimators. `"link"`: nothing. `"level"`:
            the shift above. `"slope"`: slope and level, fitted to the scores of rows by models of five folds
            that did not see them; this takes about six times as long. With early stopping the models of the
            folds have as many rounds as the model.
        random_state: Seed for sampling rows and columns.
        n_jobs: Threads; None leaves it to LightGBM.
        **native: LightGBM's own parameters, such as `num_leaves=15` or `boosting="dart"`. Refused are those
            that would undo the above: `objective`, `scale_pos_weight` and `is_unbalance` (they would bias the
            probabilities; `ClassWeighted` does the same and undoes it in the link), `linear_tree` (its leaves
            are functions, to which LightGBM offers no way to add the start) and the like.

    Attributes:
        booster_: The `lightgbm.Booster`.
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
        >>> model = LightGBMClassifier("tbl", n_jobs=1).fit(X, y)
        >>> bool(abs(model.predict_proba(X)[:, 1].mean() / y.mean() - 1) < 0.1)
        True
    """

    _library: ClassVar[str] = "lightgbm"
    _refused: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("objective", "objective_type", "app", "application", "loss_function"), "loss is it"),
        **dict.fromkeys(("init_score", "boost_from_average", "num_class", "num_classes"), _OURS),
        **dict.fromkeys(("scale_pos_weight", "is_unbalance", "unbalance", "unbalanced_sets"), _WEIGHTS),
        "class_weight": _WEIGHTS,
        **dict.fromkeys(("shrinkage_rate", "eta"), "use learning_rate"),
        **dict.fromkeys(
            ("num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees"), "use n_estimators"
        ),
        **dict.fromkeys(
            ("num_round", "num_rounds", "nrounds", "num_boost_round", "max_iter"), "use n_estimators"
        ),
        **dict.fromkeys(("num_threads", "num_thread", "nthread", "nthreads"), "use n_jobs"),
        **dict.fromkeys(("seed", "random_seed"), "use random_state"),
        **dict.fromkeys(("metric", "metrics", "metric_types"), "use eval_metric"),
        **dict.fromkeys(
            ("early_stopping_round", "early_stopping", "n_iter_no_change"), "use early_stopping_rounds"
        ),
        **dict.fromkeys(
            ("linear_tree", "linear_trees"),
            "its leaves are functions, to which LightGBM offers no way to add the start score",
        ),
        **dict.fromkeys(
            ("categorical_feature", "cat_feature", "categorical_column", "cat_column"),
            "pass categorical_feature to fit",
        ),
    }

    _category_kinds: ClassVar[tuple[str, ...]] = ("text", "whole numbers", "floats", "booleans")
    # LightGBM writes names into JSON without escapes.
    _refused_characters: ClassVar[str] = '",:[]{}'

    def _check_names(self, native: dict[str, Any]) -> None:
        known = _known_names(import_library("lightgbm"))
        for name in native:
            if known and name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f": did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"LightGBM has no parameter {name!r}{hint}")

    def _parameters(self, lgb: Any, run: Run) -> dict[str, Any]:
        """Return the parameters of a training; the objective is a function."""
        native = run.native
        boosting = _boosting_of(native)
        if boosting == "dart" and self.early_stopping_rounds is not None:
            raise ValueError(
                "dart rescales earlier trees, so it cannot be cut at the best round: no early stopping"
            )
        ours = {
            "lambda_l2": run.limits.l2,
            "min_sum_hessian_in_leaf": run.limits.min_child_weight,
            "max_delta_step": run.limits.max_delta_step,
            "min_data_in_leaf": 1,
            # Where names could not be checked, LightGBM's warning of an unknown one is let through.
            "verbosity": -1 if _known_names(lgb) else 0,
        }
        parameters: dict[str, Any] = {
            "objective": fixed_objective(run.gradients, "lightgbm"),
            "metric": "None",
            "learning_rate": self.learning_rate,
            # Without this LightGBM would drop columns by min_data_in_leaf before training.
            "feature_pre_filter": False,
            **{name: value for name, value in ours.items() if not first_given(native, _ALIASES[name])},
        }
        if run.n_scores > 1:
            parameters["num_class"] = run.n_scores
        seed = self._seed()
        if seed is not None:
            parameters["seed"] = seed
        if self.n_jobs is not None:
            parameters["num_threads"] = self.n_jobs
        return parameters | native

    def _train(self, run: Run) -> TrainedBooster:
        lgb = import_library("lightgbm")
        if _is_forest(run.native):
            return self._train_forest(lgb, run)
        parameters = self._parameters(lgb, run)
        evals_result: dict[str, dict[str, list[float]]] = {}
        data_parameters = {name: value for name, value in parameters.items() if name != "objective"}
        training = self._dataset(lgb, run, run.training, data_parameters)
        evaluation = [self._dataset(lgb, run, part, data_parameters, training) for part in run.evaluation]
        names = [f"eval_{i}" for i in range(len(evaluation))]
        callbacks: list[Callable[..., None]] = []
        if evaluation:
            callbacks.append(lgb.record_evaluation(evals_result))
        if self.early_stopping_rounds is not None:
            callbacks.append(_stop_on_last_set(lgb, names[-1], int(self.early_stopping_rounds)))
        booster = lgb.train(
            parameters,
            training,
            num_boost_round=int(self.n_estimators),
            valid_sets=evaluation or None,
            valid_names=names or None,
            feval=run.metric,
            callbacks=callbacks,
            # Otherwise it would let go of the training rows' scores.
            keep_training_booster=True,
        )
        best = None
        if self.early_stopping_rounds is not None and booster.best_iteration > 0:
            best = booster.best_iteration - 1
        # Read back from its own text, the booster is free of the training data, and cut at the best round.
        kept = lgb.Booster(model_str=booster.model_to_string(num_iteration=booster.best_iteration or -1))
        _add_to_first_trees(kept, run.start.scores)
        # With dart the scores that LightGBM keeps are not those of the rescaled trees.
        if _boosting_of(run.native) != "dart" and kept.current_iteration() == booster.current_iteration():
            scores = _shown_scores(booster.eval_train)
        else:
            scores = self._scores(kept, run.training.X)
        return TrainedBooster(kept, scores, best, evals_result)

    def _train_forest(self, lgb: Any, run: Run) -> TrainedBooster:
        """Grow a forest of regression trees on the labels: the mean of their leaves is a probability."""
        if run.n_scores > 1 or not isinstance(run.gradients.loss, CrossEntropy):
            raise ValueError(
                "LightGBM's random forest takes no loss of one's own: use loss='crossentropy' and two "
                "classes, or boosting='gbdt'"
            )
        if self.early_stopping_rounds is not None:
            raise ValueError("a forest is not overfitted by more trees: it has no early stopping")
        parameters: dict[str, Any] = {
            "objective": "regression",
            "bagging_freq": 1,
            "bagging_fraction": 0.632,
            "feature_fraction_bynode": 1 / math.sqrt(run.training.X.shape[1]),
            "num_leaves": 255,
            "min_data_in_leaf": 1,
            "min_sum_hessian_in_leaf": 0.0,
            # A hundredth of a row of the mean in every leaf: no probability is 0 or 1.
            "lambda_l2": 0.01,
            "feature_pre_filter": False,
            "verbosity": -1,
        }
        seed = self._seed()
        parameters |= {} if seed is None else {"seed": seed}
        parameters |= {} if self.n_jobs is None else {"num_threads": self.n_jobs}
        parameters |= run.native
        training = self._dataset(lgb, run, run.training, parameters, start=False)
        booster = lgb.train(parameters, training, num_boost_round=int(self.n_estimators))
        kept = lgb.Booster(model_str=booster.model_to_string())
        return TrainedBooster(kept, self._scores(kept, run.training.X), None, {})

    def _begin(self, run: Run) -> GrowingBooster:
        lgb = import_library("lightgbm")
        if _boosting_of(run.native) != "gbdt":
            raise ValueError("only the scores of boosting='gbdt' grow round by round")
        parameters = self._parameters(lgb, run)
        derivatives = parameters.pop("objective")
        training = self._dataset(lgb, run, run.training, parameters)
        watched = self._dataset(lgb, run, run.evaluation[-1], parameters, training)
        booster = lgb.Booster(parameters | {"objective": "none"}, training)
        booster.add_valid(watched, "watched")
        return _GrowingLightGBM(booster, derivatives)

    def _has_split(self, booster: Any) -> bool:
        return bool(booster.feature_importance("split").any())

    def _dataset(
        self,
        lgb: Any,
        run: Run,
        part: RowPart,
        parameters: dict[str, Any],
        reference: Any = None,
        *,
        start: bool = True,
    ) -> Any:
        rows = len(part.codes)
        scores: Array | None = None
        if start:
            scores = np.full(rows, run.start.scores[0])
            if run.n_scores > 1:
                scores = np.tile(np.array(run.start.scores), (rows, 1))
        return lgb.Dataset(
            part.X,
            label=part.codes,
            weight=part.weights,
            init_score=scores,
            reference=reference,
            params=parameters,
            # A DataFrame has its categories in the columns' types.
            categorical_feature="auto" if hasattr(part.X, "columns") else (run.categorical or "auto"),
        )

    def _raw(self, table: Any) -> Array:
        return self._scores(self.booster_, table)

    def _scores(self, booster: Any, table: Any) -> Array:
        return self.scores_of(booster, table, self.n_jobs)

    def scores_of(self, booster: Any, table: Any, threads: int | None) -> Array:
        """Return raw scores of rows in the form that LightGBM reads."""
        options = {} if threads is None else {"num_threads": threads}
        if _is_forest(getattr(self, "_native", {})):
            # Not its raw scores, which are the sum of the trees and not their mean.
            return log_odds_of(np.asarray(booster.predict(table, **options)))
        return np.asarray(booster.predict(table, raw_score=True, **options))

    def _gain(self) -> Array:
        return np.asarray(self.booster_.feature_importance("gain"), dtype=np.float64)

    @staticmethod
    def _metric(metric: str, params: dict[str, Any]) -> EvalMetric:
        return lightgbm_metric(metric, **params)

    def _check_path(self, path: Path) -> None:
        if path.suffix == ".json":
            raise ValueError(f"LightGBM writes text files: take a name such as {path.stem}.txt")

    def _content(self, path: Path) -> bytes:
        text: str = self.booster_.model_to_string()
        return text.encode()

    def _booster_from(self, content: bytes) -> Any:
        return import_library("lightgbm").Booster(model_str=content.decode())


class _GrowingLightGBM:
    def __init__(self, booster: Any, derivatives: Callable[[Any, Any], tuple[Array, Array]]) -> None:
        self._booster, self._derivatives = booster, derivatives

    def grow(self, rounds: int) -> None:
        for _ in range(rounds):
            self._booster.update(fobj=self._derivatives)

    def scores(self) -> Array:
        return _shown_scores(self._booster.eval_valid)


def _boosting_of(native: dict[str, Any]) -> str:
    return str(native.get("boosting", native.get("boosting_type", native.get("boost", "gbdt"))))


def _is_forest(native: dict[str, Any]) -> bool:
    return _boosting_of(native) in ("rf", "random_forest")


def log_odds_of(probability: Array) -> Array:
    """Return the log-odds of probabilities; beyond 1e-12 of 0 and 1 they say no more."""
    p = np.clip(probability, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(p) - np.log1p(-p))


def _known_names(lgb: Any) -> set[str]:
    """Return all names of LightGBM's parameters, or none for a version that does not list them."""
    try:
        listed = lgb.basic._ConfigAliases._get_all_param_aliases()
    except AttributeError:
        return set()
    return {name for main, others in listed.items() for name in (main, *others)}


def _add_to_first_trees(booster: Any, start: tuple[float, ...]) -> None:
    """Add the start score to all leaves of the first tree of each class, of which each row reaches one."""
    trees = booster.dump_model(num_iteration=1)["tree_info"]
    for tree, score in enumerate(start):
        for leaf in range(int(trees[tree]["num_leaves"])):
            booster.set_leaf_output(tree, leaf, booster.get_leaf_output(tree, leaf) + score)


def _shown_scores(evaluate: Callable[..., Any]) -> Array:
    """Return the raw scores of rows, which LightGBM keeps and shows to metrics alone."""
    kept: list[Array] = []

    def keep(scores: Any, _: Any) -> tuple[str, float, bool]:
        kept.append(np.array(scores))
        return "seen", 0.0, True

    evaluate(feval=keep)
    return kept[0]


def _stop_on_last_set(lgb: Any, watched: str, rounds: int) -> Callable[[Any], None]:
    """Early stopping on one evaluation set; LightGBM's own stops as soon as any of them stalls."""
    best: dict[str, Any] = {"value": None, "iteration": 0, "results": None}

    def callback(env: Any) -> None:
        (result,) = [entry for entry in env.evaluation_result_list if entry[0] == watched]
        value, higher_is_better = result[2], result[3]
        if best["value"] is None or (value > best["value"] if higher_is_better else value < best["value"]):
            best.update(value=value, iteration=env.iteration, results=env.evaluation_result_list)
        last = env.iteration == env.end_iteration - 1
        if last or env.iteration - best["iteration"] >= rounds:
            raise lgb.EarlyStopException(best["iteration"], best["results"])

    callback.order = 30  # type: ignore[attr-defined]
    return callback
