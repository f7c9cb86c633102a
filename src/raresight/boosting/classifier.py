"""The base of both classifiers: parameters, fitting, predictions, saving."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from ..common.atomic_files import regular_file, write_files
from ..common.calibration import Calibrator, check_calibration, level_calibrator, two_columns
from ..common.estimators import (
    columns_kept_on_failure,
    decided_classes,
    errors_of,
    out_of_fold_calibrator,
    read_labelled,
    read_weights,
    with_gaps_and_sparse,
)
from ..common.json_values import digest_of, pack_parameters, pack_values, unpack_values
from ..common.labels import encode, read_targets, shares_of
from ..common.tables import (
    Categories,
    apply_categories,
    categorical_columns,
    check_names,
    is_frame,
    is_sparse,
    learn_categories,
    read_table,
)
from ..losses import Loss, parse
from ..losses.for_classes import loss_for_classes, readable_text
from ..losses.start import Start, start_of
from ..metrics.eval_metrics import EvalMetric, lightgbm_metric, xgboost_metric
from .defaults import LeafLimits, limits_of
from .gradients import Gradients
from .native_files import check_native_file, is_trusted, trust
from .objective import hessian_factor, import_library

Array = np.ndarray[Any, Any]

FORMAT = "raresight.boosting"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class RowPart:
    """Rows for training or evaluation, with labels as class numbers."""

    X: Any
    codes: Array
    weights: Array | None


@dataclass(frozen=True)
class Run:
    """The settings of one training run, as a library needs them."""

    training: RowPart
    evaluation: list[RowPart]
    gradients: Gradients
    start: Start
    limits: LeafLimits
    n_classes: int
    categorical: list[int]
    metric: Any
    native: dict[str, Any]

    @property
    def n_scores(self) -> int:
        """Return the number of scores per row: one for two classes."""
        return 1 if self.n_classes == 2 else self.n_classes


@dataclass(frozen=True)
class TrainedBooster:
    """The outcome of a run; `scores` are the raw scores of the training rows, start included."""

    booster: Any
    scores: Array
    best_iteration: int | None
    evals_result: dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Prepared:
    """Rows that were read for a run, and what was learnt of them."""

    run: Run
    loss: Loss
    classes: Array
    categories: Categories
    on_sparse: bool
    read: Any


class GrowingBooster(Protocol):
    """A training in progress."""

    def grow(self, rounds: int) -> None:
        """Train so many rounds more."""

    def scores(self) -> Array:
        """Return the raw scores of the watched rows, start included."""


class NoSplitWarning(UserWarning):
    """The trained model has no split: it predicts the class shares for every row."""


class BoostedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The shared half of `XGBoostClassifier` and `LightGBMClassifier`."""

    _library: ClassVar[str]
    # Native parameters that are not to be given, with the reason.
    _refused: ClassVar[dict[str, str]]
    # Types of categories, as pack_values names them, that the library can hold, and characters that it
    # does not take in the name of a column.
    _category_kinds: ClassVar[tuple[str, ...]]
    _refused_characters: ClassVar[str]

    loss_: Loss
    classes_: Array
    booster_: Any
    start_score_: Any
    calibrator_: Calibrator
    best_iteration_: int | None
    evals_result_: dict[str, dict[str, list[float]]]
    _categories: Categories
    _trained_on_sparse: bool

    def __init__(
        self,
        loss: Loss | str = "tbl",
        *,
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        early_stopping_rounds: int | None = None,
        eval_metric: str | EvalMetric | None = None,
        calibration: str = "level",
        random_state: Any = None,
        n_jobs: int | None = None,
        **native: Any,
    ) -> None:
        self.loss = loss
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.early_stopping_rounds = early_stopping_rounds
        self.eval_metric = eval_metric
        self.calibration = calibration
        self.random_state = random_state
        self.n_jobs = n_jobs
        if native:
            self._native = native

    # ---- parameters ----------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, the native ones among them."""
        return {**super().get_params(deep), **getattr(self, "_native", {})}

    def set_params(self, **params: Any) -> BoostedClassifier:
        """Set parameters; what is not one of this class's own goes to the library."""
        own = set(self._get_param_names())
        super().set_params(**{name: value for name, value in params.items() if name in own})
        native = {name: value for name, value in params.items() if name not in own}
        if native:
            self._native = {**getattr(self, "_native", {}), **native}
        return self

    def _checked_native(self) -> dict[str, Any]:
        """Check all parameters and return the native ones."""
        native = dict(getattr(self, "_native", {}))
        for name in native:
            if name in self._refused:
                raise ValueError(f"{type(self).__name__} does not take {name}: {self._refused[name]}")
        self._check_names(native)
        check_calibration(self.calibration)
        for name in ("n_estimators", "early_stopping_rounds"):
            value = getattr(self, name)
            if name == "early_stopping_rounds" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        rate = self.learning_rate
        number = isinstance(rate, (int, float, np.number)) and not isinstance(rate, bool)
        if not (number and 0 < rate < np.inf):
            raise ValueError(f"learning_rate must be a positive number, got {rate!r}")
        return native

    def _check_names(self, native: dict[str, Any]) -> None:
        """Refuse parameters that the library does not have, where it lists them."""

    def _seed(self) -> int | None:
        if self.random_state is None:
            return None
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def __sklearn_tags__(self) -> Any:
        return with_gaps_and_sparse(super().__sklearn_tags__())

    # ---- fitting -------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Any = None,
        eval_sample_weight: Any = None,
        categorical_feature: Any = "auto",
    ) -> Any:
        """Train on X and y.

        Args:
            X: (n, d) array, scipy.sparse matrix, pandas or polars DataFrame; NaN and null are missing.
            y: n labels of any kind; the last class in sorted order is the positive one of two.
            sample_weight: n weights, which count as repetitions of a row.
            eval_set: `(X, y)` or a list of such pairs, evaluated after each round; the last one decides
                when to stop.
            eval_sample_weight: Weights for the pair, or a list with weights or None for each pair.
            categorical_feature: `"auto"` takes categorical columns of DataFrames. A list of names or
                positions adds columns, which may hold text; in an array they hold whole numbers from 0 on.
        """
        import_library(self._library)
        native = self._checked_native()
        with columns_kept_on_failure(self):
            made = self._prepare(
                X, y, sample_weight, eval_set, eval_sample_weight, categorical_feature, native
            )
            attributes, without_split = self._fit(made, categorical_feature)
        self.__dict__.update(attributes)
        if without_split:
            warnings.warn(without_split, NoSplitWarning, stacklevel=2)
        return self

    def _fit(self, made: Prepared, categorical_feature: Any) -> tuple[dict[str, Any], str]:
        """Return the attributes of the fitted model, and what to warn of."""
        run, loss, start = made.run, made.loss, made.run.start
        codes, weights = run.training.codes, run.training.weights
        trained = self._train(run)
        shares = np.array(start.shares)
        if self.calibration == "slope":
            # The rounds that early stopping chose: without rows to watch, each fold trains as many.
            best = trained.best_iteration
            rounds = self.n_estimators if best is None else best + 1
            plain = clone(self).set_params(n_estimators=rounds, early_stopping_rounds=None)
            calibrator = out_of_fold_calibrator(
                plain, made.read, made.classes, codes, weights, categorical_feature=categorical_feature
            )
        elif self.calibration == "level":
            calibrator = level_calibrator(loss.log_posterior(trained.scores), shares, weights)
        else:
            calibrator = Calibrator.identity(run.n_classes)
        attributes = {
            "loss_": loss,
            "classes_": made.classes,
            "booster_": trained.booster,
            "start_score_": start.scores[0] if run.n_scores == 1 else np.array(start.scores),
            "calibrator_": calibrator,
            "best_iteration_": trained.best_iteration,
            "evals_result_": trained.evals_result,
            "_categories": made.categories,
            "_trained_on_sparse": made.on_sparse,
        }
        if self._has_split(trained.booster):
            return attributes, ""
        total = float(len(codes) if weights is None else weights.sum())
        positives = total * float(shares.min())
        return attributes, (
            "no round found a split, so the model predicts the class shares for every row. A leaf needs a "
            f"Hessian of {run.limits.min_child_weight:.3g} by default, which is about two rows of the rarest "
            f"class; here their weights sum to {positives:.3g}. If so few are meant, or weights that small, "
            "lower min_child_weight and reg_lambda; otherwise see whether the columns are constant or other "
            "limits forbid splits"
        )

    def _prepare(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        eval_set: Any,
        eval_sample_weight: Any,
        categorical_feature: Any,
        native: dict[str, Any],
    ) -> Prepared:
        """Read rows and labels for training; sets nothing but the columns."""
        labels = read_targets(y, type(self).__name__)
        read = table = read_table(self, X, reset=True, categorical=categorical_feature)
        check_consistent_length(table, labels)
        weights = read_weights(sample_weight, table)
        classes, codes = encode(labels)
        n_classes = len(classes)
        loss = loss_for_classes(self.loss, np.bincount(codes))
        metric = evaluation_metric(self.eval_metric, self._library, loss, n_classes)
        start = start_of(loss, shares_of(codes, weights, classes))
        check_names(table, self._refused_characters, self._library)
        categorical = categorical_columns(table, categorical_feature)
        categories = learn_categories(table, categorical, self._category_kinds, self._library)
        on_sparse = is_sparse(table)
        table = self._as_trained(apply_categories(table, categories), on_sparse)
        n_scores = 1 if n_classes == 2 else n_classes
        factor = hessian_factor(self._library, n_scores)
        evaluation = [
            RowPart(
                self._as_trained(apply_categories(part.X, categories), on_sparse), part.codes, part.weights
            )
            for part in self._read_evaluation(eval_set, eval_sample_weight, classes, categorical)
        ]
        if self.early_stopping_rounds is not None and not evaluation:
            raise ValueError("early stopping needs rows to watch: pass eval_set=(X, y) to fit")
        run = Run(
            training=RowPart(table, codes, weights),
            evaluation=evaluation,
            gradients=Gradients(loss, codes, weights, n_classes=n_scores, factor=factor),
            start=start,
            limits=limits_of(loss, start, factor),
            n_classes=n_classes,
            categorical=categorical,
            metric=metric if evaluation else None,
            native=native,
        )
        return Prepared(run, loss, classes, categories, on_sparse, read)

    def growing(
        self, X: Any, y: Any, sample_weight: Any = None, *, watched: Any, categorical_feature: Any = "auto"
    ) -> GrowingBooster:
        """Begin a training whose rounds are asked for in pieces, to look at rows in between.

        The raw scores after n rounds are those of a model that `fit` trains with `n_estimators=n`.

        Args:
            X, y, sample_weight, categorical_feature: As for `fit`.
            watched: A pair `(X, y)` of rows to look at.

        >>> from raresight.boosting import LightGBMClassifier
        >>> X, y = np.arange(200.0)[:, None], np.arange(200) >= 180
        >>> model = LightGBMClassifier("crossentropy", n_estimators=3, n_jobs=1)
        >>> growing = model.growing(X, y, watched=(X, y))
        >>> growing.grow(3)
        >>> bool(np.allclose(growing.scores(), model.fit(X, y).decision_function(X)))
        True
        """
        import_library(self._library)
        native = self._checked_native()
        with columns_kept_on_failure(self):
            made = self._prepare(X, y, sample_weight, watched, None, categorical_feature, native)
            return self._begin(made.run)

    @abstractmethod
    def _train(self, run: Run) -> TrainedBooster:
        """Train; nothing is set on the estimator."""

    @abstractmethod
    def _begin(self, run: Run) -> GrowingBooster:
        """Return a training without any round yet, which watches the evaluation set."""

    @abstractmethod
    def _has_split(self, booster: Any) -> bool: ...

    def _as_trained(self, table: Any, on_sparse: bool) -> Any:
        """Rows in the form in which the library reads them as it read the training rows."""
        return table

    def _read_evaluation(
        self, eval_set: Any, eval_sample_weight: Any, classes: Array, categorical: list[int]
    ) -> list[RowPart]:
        if eval_set is None:
            if eval_sample_weight is not None:
                raise ValueError("eval_sample_weight was given without eval_set, the rows it weighs")
            return []
        single = isinstance(eval_set, tuple) and len(eval_set) == 2 and not isinstance(eval_set[0], tuple)
        pairs = [eval_set] if single else list(eval_set)
        given = [eval_sample_weight] if single else eval_sample_weight
        weights = [None] * len(pairs) if given is None else list(given)
        if len(weights) != len(pairs):
            raise ValueError(f"{len(weights)} eval_sample_weight for {len(pairs)} eval_set")
        parts = []
        for number, (pair, weight) in enumerate(zip(pairs, weights)):
            table, codes = read_labelled(self, pair, classes, f"eval_set[{number}]", categorical)
            with errors_of(f"eval_sample_weight[{number}]"):
                parts.append(RowPart(table, codes, read_weights(weight, table)))
        return parts

    # ---- predictions ---------------------------------------------------------------------

    @abstractmethod
    def _raw(self, table: Any) -> Array:
        """Raw scores, start included."""

    def decision_function(self, X: Any) -> Array:
        """Raw scores z, the start score included: (n,) for two classes, (n, K) for K."""
        check_is_fitted(self)
        table = read_table(self, X, reset=False, categorical=list(self._categories))
        if self._categories and not is_frame(table):
            raise ValueError(
                "the model was trained on a DataFrame with categorical columns: pass a DataFrame"
            )
        table = apply_categories(table, self._categories)
        return self._raw(self._as_trained(table, self._trained_on_sparse))

    def predict_log_odds(self, X: Any) -> Array:
        """Calibrated log-odds of the positive class: the loss's inverse link at the raw score, shifted."""
        scores = self.decision_function(X)
        if len(self.classes_) > 2:
            raise ValueError(f"log-odds are for two classes, the model has {len(self.classes_)}")
        return self.calibrator_.log_odds(self.loss_.log_odds(scores.astype(np.float64)))

    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities, (n, K)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the calibrated probabilities, accurate where a probability is tiny."""
        check_is_fitted(self)
        if len(self.classes_) == 2:
            return two_columns(self.predict_log_odds(X))
        return self.calibrator_.log_posterior(self.loss_.log_posterior(self.decision_function(X)))

    def predict(self, X: Any) -> Array:
        """The class on whose side the raw score is, z > 0 for the positive one; of K the highest score.

        This is the decision the loss was made for, which need not be the more probable class.
        """
        return decided_classes(self.decision_function(X), self.classes_)

    @property
    def feature_importances_(self) -> Array:
        """The share of each column in the total gain of all splits; zeros if nothing was split."""
        check_is_fitted(self)
        gain = self._gain()
        total = gain.sum()
        return np.asarray(gain / total) if total > 0 else gain

    @abstractmethod
    def _gain(self) -> Array:
        """Total gain by column."""

    # ---- files ---------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the model in the library's own format to `path`, and `path`.raresight.json beside it.

        Plain XGBoost or LightGBM can load the model file alone, and then predict raw scores with the start
        included. The side-file adds the loss, the classes and the columns for `load`.
        """
        check_is_fitted(self)
        path = Path(path)
        self._check_path(path)
        text = readable_text(self.loss_)
        parameters = self.get_params(deep=False)
        if not isinstance(self.loss, str):
            parameters["loss"] = text
        if isinstance(self.eval_metric, EvalMetric):
            parameters["eval_metric"] = {"metric": self.eval_metric.metric, "params": self.eval_metric.params}
        names = getattr(self, "feature_names_in_", None)
        description = {
            "library": self._library,
            "library_version": import_library(self._library).__version__,
            "loss": text,
            "classes": pack_values(self.classes_, "classes"),
            "start_score": np.atleast_1d(self.start_score_).tolist(),
            "calibrator": self.calibrator_.to_dict(),
            "n_features": int(self.n_features_in_),
            "feature_names": None if names is None else [str(name) for name in names],
            # By position: names may be numbers, which JSON would turn into text.
            "categories": {
                str(column): pack_values(values, f"categories of column {column}")
                for column, values in self._categories.items()
            },
            "trained_on_sparse": self._trained_on_sparse,
            "best_iteration": self.best_iteration_,
            "evals_result": self.evals_result_,
            "parameters": pack_parameters(parameters),
        }
        trust(write_model(path, self._content(path), description))

    @classmethod
    def load(cls, path: str | Path) -> Any:
        """Read what `save` wrote; a changed, truncated, newer or foreign file is refused with the reason.

        The digests guard against accidents, not against an attacker, who writes matching ones. What this
        user did not write or load before on this machine is therefore tried in a process of its own first:
        a file that would crash the library's reader is refused. Load models only from people you trust all
        the same.
        """
        path = Path(path)
        import_library(cls._library)
        content, described, digest = read_model(path, cls._library)
        try:
            parameters = dict(described["parameters"])
            metric = parameters.get("eval_metric")
            if isinstance(metric, dict):
                parameters["eval_metric"] = cls._metric(metric["metric"], metric["params"])
            model = cls(**parameters)
            model.loss_ = parse(described["loss"])
            model.classes_ = unpack_values(described["classes"])
            scores = described["start_score"]
            check_description(described, len(model.classes_))
            model.start_score_ = scores[0] if len(scores) == 1 else np.array(scores)
            model.calibrator_ = Calibrator.from_dict(described["calibrator"])
            model.n_features_in_ = described["n_features"]
            if described["feature_names"] is not None:
                model.feature_names_in_ = np.array(described["feature_names"], dtype=object)
            model._categories = {
                int(column): unpack_values(packed).tolist()
                for column, packed in described["categories"].items()
            }
            model._trained_on_sparse = described["trained_on_sparse"]
            model.best_iteration_ = described["best_iteration"]
            model.evals_result_ = described["evals_result"]
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"{side_file(path)} lacks an entry or has a wrong one: {error}") from None
        if not is_trusted(digest):
            check_native_file(cls._library, path, model.n_features_in_, len(scores))
        model.booster_ = model._booster_from(content)
        trust(digest)
        return model

    @staticmethod
    @abstractmethod
    def _metric(metric: str, params: dict[str, Any]) -> EvalMetric: ...

    @abstractmethod
    def _check_path(self, path: Path) -> None: ...

    @abstractmethod
    def _content(self, path: Path) -> bytes:
        """Return the model in the library's own format."""

    @abstractmethod
    def _booster_from(self, content: bytes) -> Any: ...


def first_given(native: dict[str, Any], names: tuple[str, ...]) -> bool:
    """Return whether one of a parameter's names in the library was given."""
    return any(name in native for name in names)


# ---- what early stopping watches ---------------------------------------------------------


def evaluation_metric(eval_metric: Any, library: str, loss: Loss, n_classes: int) -> Callable[..., Any]:
    """Return a metric in the form of the library's `train`, from None, a name or a metric of `eval_metrics`.

    None is the partial AUC for two classes and the mean loss for more; `"loss"` is the mean loss.
    """
    make: Any = xgboost_metric if library == "xgboost" else lightgbm_metric
    if eval_metric is None:
        eval_metric = "partial_auc" if n_classes == 2 else "loss"
    if isinstance(eval_metric, EvalMetric):
        eval_metric = make(eval_metric.metric, **eval_metric.params)
    elif isinstance(eval_metric, str) and eval_metric != "loss":
        eval_metric = make(eval_metric)
    elif eval_metric != "loss":
        raise TypeError(
            "eval_metric must be 'loss', the name of a ranking metric or one made by "
            f"raresight.metrics.eval_metrics.{make.__name__}, got {eval_metric!r}"
        )
    if isinstance(eval_metric, EvalMetric):
        if n_classes > 2:
            raise ValueError(
                f"{eval_metric.metric} is for two classes, but y holds {n_classes}: take eval_metric='loss'"
            )
        return eval_metric  # type: ignore[return-value]
    return _mean_loss(loss, library)


def _mean_loss(loss: Loss, library: str) -> Callable[..., Any]:
    def mean_loss(scores: Any, data: Any) -> Any:
        labels = np.asarray(data.get_label())
        weights = data.get_weight()
        scores = np.asarray(scores)
        values = loss.value(scores, labels if scores.ndim == 1 else labels.astype(np.int64))
        # The libraries give an empty array where there are no weights.
        has_weights = weights is not None and len(weights) > 0
        mean = float(np.average(values, weights=weights if has_weights else None))
        return ("loss", mean) if library == "xgboost" else ("loss", mean, False)

    return mean_loss


# ---- a model on disk ---------------------------------------------------------------------
#
# The library's own file, and a JSON file beside it with what the library does not store: the loss, the
# classes, the start score, the columns, the parameters, and the library with its version. Two digests guard
# against accidents, not against attackers: one of the model file, one of the side-file's other entries.


def side_file(path: Path) -> Path:
    """Return where the side-file of a model file lies: `model.json` has `model.json.raresight.json`."""
    return path.with_name(path.name + ".raresight.json")


def write_model(path: Path, content: bytes, description: dict[str, Any]) -> str:
    """Write both files: each appears whole or not at all, and on a full disk the old ones are kept.

    Return the SHA-256 of the side-file, which stands for both: it holds that of the model file.
    """
    described = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **description,
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    described["description_sha256"] = digest_of(described)
    text = json.dumps(described, indent=1, allow_nan=False)
    # The side-file vouches for the model by its digest, so it comes last.
    write_files({path: content, side_file(path): text})
    return hashlib.sha256(text.encode()).hexdigest()


def read_model(path: Path, library: str) -> tuple[bytes, dict[str, Any], str]:
    """Read and check the model file and its description; the last value is what `write_model` returned."""
    beside = side_file(path)
    for file in (path, beside):
        if not file.exists():
            raise FileNotFoundError(
                f"{file} does not exist: a model is saved as {path.name} and {beside.name}"
            )
        regular_file(file)
    try:
        text = beside.read_bytes()
        description = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{beside} cannot be read as JSON, it is damaged: {error}") from None
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ValueError(f"{beside} is not a side-file of raresight.boosting")
    version = description.get("format_version")
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= FORMAT_VERSION:
        raise ValueError(
            f"{beside} has format version {version}, this raresight reads up to {FORMAT_VERSION}"
        )
    if description.get("library") != library:
        raise ValueError(f"{path} is a model of {description.get('library')}, not of {library}")
    if description.get("description_sha256") != digest_of(description):
        raise ValueError(f"{beside} is not the file that was saved: it was changed since")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != description.get("sha256"):
        raise ValueError(f"{path} is not the file that was saved: it was changed or truncated since")
    return content, description, hashlib.sha256(text).hexdigest()


def check_description(described: dict[str, Any], n_classes: int) -> None:
    """Refuse numbers that are not finite and lists whose lengths do not fit the classes."""
    if n_classes < 2:
        raise ValueError(f"classes holds {n_classes} of them, at least 2 are needed")
    numbers = {
        "start_score": (described["start_score"], 1 if n_classes == 2 else n_classes),
        "levels of the calibrator": (described["calibrator"]["levels"], n_classes - 1),
    }
    for name, (values, length) in numbers.items():
        if not isinstance(values, list) or len(values) != length:
            raise ValueError(f"{name} must be a list of {length} numbers for {n_classes} classes")
        # JSON of other writers may hold NaN, which would turn every prediction into NaN.
        if not all(_is_number(value) and math.isfinite(value) for value in values):
            raise ValueError(f"{name} must hold finite numbers, got {values}")
    features = described["n_features"]
    if isinstance(features, bool) or not isinstance(features, int) or features < 1:
        raise ValueError(f"n_features must be a whole number of at least 1, got {features!r}")
    names = described["feature_names"]
    if names is not None and len(names) != features:
        raise ValueError(f"{len(names)} feature_names for {features} features")
    for column in described["categories"]:
        if not 0 <= int(column) < features:
            raise ValueError(f"categories are given for column {column} of {features}")
    if not isinstance(described["trained_on_sparse"], bool):
        raise ValueError(f"trained_on_sparse must be true or false, got {described['trained_on_sparse']!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
