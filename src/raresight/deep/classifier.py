"""Deep nets for tables as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from ..common.calibration import Calibrator, two_columns
from ..common.estimators import (
    columns_kept_on_failure,
    decided_classes,
    errors_of,
    read_labelled,
    read_weights,
    with_gaps_and_sparse,
)
from ..common.labels import below_one, class_weights, encode, read_targets, shares_of
from ..common.progress import Display, show_progress
from ..common.row_groups import assign_folds
from ..common.tables import categorical_columns, read_table
from ..losses import Loss
from ..losses.for_classes import loss_for_classes, weighted_loss
from ..nn import Recipe
from .encoding import TableEncoder, dense_table, rows_at
from .epoch_selection import EpochChoice, cross_validate_epochs
from .files import read_model, write_model
from .net_calibration import NetScores, held_out_slope, net_calibrator, slope_after_refit
from .net_plans import NetPlan, plan_net
from .parameters import (
    batch_size_for,
    check_parameters,
    default_average,
    default_epochs,
    default_rate,
    device_for,
    torch_threads,
)
from .trained_nets import TrainedNets, importances
from .training import (
    CodedRows,
    TrainingProgress,
    refit_nets,
    train_best_loss,
    warn_of_equal_scores,
)
from .validation import Validation, hold_out, split_groups

__all__ = ["DeepClassifier"]

Array = NDArray[Any]

# The share of the epochs with the full learning rate, where the weights of the last epoch are kept.
_FULL_RATE = 0.8
# Rows that are coded and scored at once, and the most numbers of a dense block.
_BLOCK, _BLOCK_NUMBERS = 1 << 16, 1 << 24


@dataclass(frozen=True, eq=False)
class _TrainingData:
    """The checked input of `fit`: rows of positive weight, without those of `eval_set`.

    Attributes:
        table: A dense array or a DataFrame.
        codes: The class number of each row.
        weights: Above 0; None where they are equal.
        groups: The same number for copies of a row; None where rows are split one by one.
        classes: The labels, sorted.
        shares: The weighted share of each class.
        categorical: Positions of the columns of categories.
    """

    table: Any
    codes: Array
    weights: Array | None
    groups: Array | None
    classes: Array
    shares: Array
    categorical: list[int]

    @property
    def event(self) -> int:
        """Return the rarer of two classes, whose partial AUC is taken."""
        return int(self.shares[1] <= self.shares[0])

    def weights_at(self, places: Array) -> Array | None:
        return None if self.weights is None else self.weights[places]

    def encoder(self, places: Array) -> TableEncoder:
        """Learn the coding of the table from some of its rows."""
        weights = self.weights_at(places)
        counted = np.ones(len(places)) if weights is None else weights
        return TableEncoder.learn(rows_at(self.table, places), self.categorical, counted)

    def training_rows(self, inputs: Array, places: Array) -> CodedRows:
        """Return some rows as nets are trained on them, given the coded `inputs` of all rows."""
        return CodedRows(inputs[places], self.codes[places], self.weights_at(places), self.shares)

    def scored(self, nets: TrainedNets, inputs: Array, device: str) -> NetScores:
        """Return all rows with the scores of the nets."""
        return NetScores(nets.scores(inputs, device), self.codes, self.weights)


class DeepClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify tables with deep nets, trained with any loss of `raresight.losses` and calibrated.

    - Columns of numbers become normal scores. A missing value becomes the mean and an input that marks it.
      Categories become one input for each frequent category (see `raresight.deep.encoding`).
    - The bias of the nets starts at the best constant score of the loss.
    - Losses and seeds are trained at once as replicas of one stack. On a GPU that costs little more than one
      net. Several seeds, and the members of TabM, predict by the mean of their probabilities (see
      `raresight.deep.ensemble_scores`).
    - After training the log-odds are calibrated: slope * log-odds + level (see
      `raresight.common.calibration`). The level is the intercept: it makes the mean probability of the rows
      of `fit` their share of positives. The slope makes held-out rows most probable.

    Args:
        loss: A loss or its text, such as `"tbl(alpha=0.8,C=0.5)"`. Of a list, the loss with the best
            validation score is kept.
        net: `"tabm"`, an ensemble of dense nets that share weights (needs `raresight[tabm]`); `"tabnet"`,
            sparse attention over columns in steps; or `"mlp"`, a plain net, the fastest.
        width: Numbers in a hidden layer. Default: 128 for tabm and 256 for mlp. For tabnet 8, for the
            decision and for the attention.
        blocks: Hidden layers of tabm (default: 3) or mlp (default: 2).
        members: Nets in the ensemble of tabm. Default: 8. Its authors take 32, with a width of 512.
        steps: Steps of tabnet. Default: 3.
        dropout: Share of hidden numbers that tabm drops in training. Default: 0.1.
        net_options: Further options of the net by name, such as `{"embedding": "periodic"}` for tabm,
            `{"batch_norm": True}` for mlp or `{"cosine": True}` for LDAM. An option that an argument above
            sets is refused.
        n_seeds: Nets with different first weights and batches. Their probabilities are averaged; for several
            classes, their logits.
        max_epochs: The most passes over the training rows. Default: 100 where the number is chosen by
            validation rows or cross-validation; otherwise 5 for mlp, 10 for tabm and tabnet.
        batch_size: Rows per step. `"auto"` is a 200th of the rows, but at least 128 and at most 4096.
        learning_rate: The learning rate of AdamW. Default: 0.001 for mlp and tabm, 0.02 for tabnet.
        weight_decay: The decoupled weight decay of AdamW.
        warmup_epochs: Epochs over which the learning rate rises linearly.
        early_stopping: How the number of epochs is chosen.

            - True: training rows are held out. Each net keeps the epoch with the largest partial AUC up to
              `max_fpr`, with the rarer class as the event. For several classes it keeps the epoch with the
              largest mean log-probability of the true class.
            - `"auto"`: the same where at least 80 rows of every class would be held out, copies counted once.
              With fewer rows, 5-fold cross-validation chooses the number of epochs, and the loss, before a
              training on all rows (see `raresight.deep.epoch_selection`).
            - False: the nets keep the weights of the last of `max_epochs` epochs.

            Rows of `eval_set` replace held-out ones.
        validation_fraction: The share of the rows of each class that is held out, copies of a row together.
        patience: Training ends when no net has improved for this many epochs. Cross-validation ends after
            five epochs without a better likelihood.
        average_epochs: Nets are evaluated and kept with means of their weights over about this many of the
            last epochs (see `raresight.nn.training_loop.MeanWeights`). 0 takes the newest weights. Default:
            2, or 0 where the number of epochs is given and not chosen. There the last fifth of the epochs
            has a tenth of the learning rate instead.
        refit: Whether nets that chose their epochs by held-out rows are then trained from the beginning on
            all rows, for as many epochs. Only those of the best loss are. With `eval_set` no row is held out
            and nothing is trained twice.
        max_fpr: Largest false-positive rate of the partial AUC.
        calibration: What follows the link of the loss, as for all estimators. `"slope"` finds the slope by
            rows that the nets did not see: held-out rows, those of `eval_set`, or out-of-fold scores of all
            rows. With `early_stopping=False` there are no such rows, and the slope is 1. After a refit the
            slope gives the log-odds the spread that they had before. `"level"` leaves the slope at 1.
            `"link"` leaves the level at 0, too. The link alone is calibrated only where the nets can
            represent the truth (see `LinearClassifier`).
        class_weight: `{class: weight}`, or `"balanced"`. Weights change the training, not the meaning of the
            probabilities, as for `LinearClassifier`.
        categorical_features: `"auto"` takes categorical columns of DataFrames. A list of names or positions
            adds columns, also of text, and so does a mask with one boolean per column. None adds none.
        precision: Of the weights in training: `"float32"`, or `"float64"`, 1.4 times as slow on a CPU.
        device: `"auto"` is a GPU if PyTorch finds one; or `"cpu"`, `"cuda"`.
        random_state: Seed of first weights, batches, held-out rows and folds.
        n_jobs: Threads on a CPU. -1 is one per core, None leaves it to PyTorch.
        verbose: Whether `fit` shows its progress on standard error. `"auto"` does so on a terminal, after
            three seconds, and never in a child process. True shows it anywhere, in a log as lines.

    Attributes:
        classes_, n_features_in_, feature_names_in_: As in scikit-learn.
        loss_: The loss of the nets, class weights included.
        losses_: All losses that were trained. After `load` an unreadable one that lost is given as its text.
        validation_scores_: The validation score of each loss by its text; after cross-validation that of the
            out-of-fold scores of all rows. None without validation.
        best_epochs_: For each net the epoch, from 1, whose weights it has; 0 where no epoch was usable.
        n_epochs_: Epochs that were trained, not counting `refit`.
        validation_history_: (epochs, losses, seeds), the validation score of each net after each epoch; None
            without validation rows.
        calibrator_: The calibrator of the log-odds.
        feature_importances_: The share of each column in the slopes of the score; see
            `raresight.deep.trained_nets.importances`.
        nets_: The nets.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(2000, 3))
        >>> y = rng.random(2000) < 1 / (1 + np.exp(4 - 2 * X[:, 0] * X[:, 1]))
        >>> model = DeepClassifier("tbl", net="mlp", width=32, max_epochs=5, random_state=0).fit(X, y)
        >>> bool(abs(model.predict_proba(X)[:, 1].mean() / y.mean() - 1) < 1e-6)
        True
    """

    classes_: Array
    loss_: Loss
    losses_: tuple[Loss | str, ...]
    validation_scores_: dict[str, float] | None
    best_epochs_: tuple[int, ...]
    n_epochs_: int
    validation_history_: Array | None
    calibrator_: Calibrator
    feature_importances_: Array
    nets_: TrainedNets
    _encoder: TableEncoder

    def __init__(
        self,
        loss: Loss | str | Sequence[Loss | str] = "tbl",
        *,
        net: str = "tabm",
        width: int | None = None,
        blocks: int | None = None,
        members: int | None = None,
        steps: int | None = None,
        dropout: float | None = None,
        net_options: Mapping[str, Any] | None = None,
        n_seeds: int = 1,
        max_epochs: int | None = None,
        batch_size: int | str = "auto",
        learning_rate: float | None = None,
        weight_decay: float = 1e-3,
        warmup_epochs: float = 1.0,
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.2,
        patience: int = 10,
        average_epochs: float | None = None,
        refit: bool = True,
        max_fpr: float = 0.01,
        calibration: str = "slope",
        class_weight: Mapping[Any, float] | str | None = None,
        categorical_features: Any = "auto",
        precision: str = "float32",
        device: str = "auto",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: bool | str = "auto",
    ) -> None:
        self.loss = loss
        self.net = net
        self.width = width
        self.blocks = blocks
        self.members = members
        self.steps = steps
        self.dropout = dropout
        self.net_options = net_options
        self.n_seeds = n_seeds
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.warmup_epochs = warmup_epochs
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.average_epochs = average_epochs
        self.refit = refit
        self.max_fpr = max_fpr
        self.calibration = calibration
        self.class_weight = class_weight
        self.categorical_features = categorical_features
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

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
    ) -> DeepClassifier:
        """Train on X and y.

        Args:
            X: (n, d) array, scipy.sparse matrix (made dense), pandas or polars DataFrame; NaN and null are
                missing.
            y: n labels of any kind. Of two classes the last in sorted order is the positive one.
            sample_weight: n weights, used relative to each other. They multiply the loss of a row, and weigh
                it in class shares, scales and validation. A row of weight 0 is ignored.
            eval_set: `(X, y)`, rows that choose the best epoch and loss instead of held-out ones.
            eval_sample_weight: The weights of the rows of `eval_set`.

        Raises:
            ValueError: For input that cannot be used. Also where every net fails within its first epoch,
                because the learning rate is too large: its loss or gradient is not finite.
        """
        check_parameters(self)
        wanted: Any = "auto" if isinstance(self.verbose, str) else bool(self.verbose)
        with (
            columns_kept_on_failure(self),
            torch_threads(self.n_jobs),
            show_progress(wanted) as display,
        ):
            attributes = self._fit(X, y, sample_weight, eval_set, eval_sample_weight, display)
        self.__dict__.update(attributes)
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, eval_set: Any, eval_sample_weight: Any, display: Display
    ) -> dict[str, Any]:
        """Return the attributes of the fitted model; set only those that describe the columns."""
        data = self._read(X, y, sample_weight)
        losses = self._losses(data)
        # One generator draws the seeds, then the held-out rows, then the folds. Another order would give
        # other nets for the same `random_state`.
        random = check_random_state(self.random_state)
        seeds = [int(seed) for seed in random.randint(np.iinfo(np.int32).max, size=self.n_seeds)]
        given = self._read_evaluation(eval_set, eval_sample_weight, data)
        every = np.arange(len(data.codes))
        split = None
        if given is None:
            fraction = float(self.validation_fraction)
            split = hold_out(data.codes, self.early_stopping, fraction, random, data.groups)
        train = every if split is None else split[0]

        # Learnt without the held-out rows, which would otherwise leak into their own evaluation.
        encoder = data.encoder(train)
        inputs = encoder.apply(data.table)
        rows = data.training_rows(inputs, train)
        validation = self._validation(data, given, None if split is None else split[1], encoder, inputs)
        device, has_validation = device_for(self.device), validation is not None
        plan = self._plan(encoder, len(data.classes))
        recipe, average = self._recipe(len(train), has_validation), self._average(has_validation)
        plan.check_batch(min(recipe.batch, len(train)))

        choice = None
        if not has_validation and self.early_stopping == "auto":
            choice = self._cross_validated_choice(data, plan, losses, seeds, rows, random, device, display)
        if choice is not None:
            # The training on all rows repeats what cross-validation found best, with means of weights as
            # well.
            recipe, average = self._recipe(len(train), True), self._average(True)
            recipe = replace(recipe, epochs=choice.epochs)
        best, found = train_best_loss(
            plan,
            losses if choice is None else [choice.loss],
            seeds,
            rows,
            recipe,
            validation=validation,
            patience=int(self.patience),
            average_epochs=average,
            device=device,
            progress=TrainingProgress(display, "training"),
        )
        nets, best_epochs = found.nets[best], found.best_epochs[best]
        scored = data.scored(nets, inputs, device)
        slope = self._slope(nets, validation, choice, device)

        if split is not None and self.refit:
            # The held-out rows are positives that the nets have not learnt from. No row is left to choose the
            # epochs by, so that each seed takes its best epoch from the first training.
            encoder = data.encoder(every)
            inputs = encoder.apply(data.table)
            rows = data.training_rows(inputs, every)
            nets = refit_nets(
                replace(plan, features=encoder.n_inputs),
                nets.loss,
                seeds,
                rows,
                self._recipe(len(every), has_validation),
                best_epochs,
                average_epochs=average,
                device=device,
                progress=TrainingProgress(display, "training on all rows"),
            )
            first, scored = scored, data.scored(nets, inputs, device)
            if self.calibration == "slope":
                # Only on rows that both trainings saw: on held-out rows the first scores have another spread.
                slope = slope_after_refit(nets.loss, slope, first.at(train), scored.at(train))
            train = every

        warn_of_equal_scores(scored.scores, inputs)
        metrics, history = found.metrics, found.stack.metrics
        scores = None if metrics is None else {str(loss): merit for loss, merit in zip(losses, metrics)}
        shares_of_columns = importances(
            nets, rows.inputs, rows.codes, rows.weights, scored.scores[train], encoder.origins,
            len(encoder.columns), device,
        )  # fmt: skip
        return {
            "classes_": data.classes,
            "loss_": nets.loss,
            "losses_": tuple(losses),
            "validation_scores_": scores if choice is None else choice.validation_scores,
            "best_epochs_": best_epochs,
            "n_epochs_": found.stack.epochs,
            "validation_history_": None if history is None else history.reshape(-1, len(losses), len(seeds)),
            "calibrator_": (
                Calibrator.identity(len(data.classes))
                if self.calibration == "link"
                else net_calibrator(nets.loss, scored, data.shares, slope)
            ),
            "feature_importances_": shares_of_columns,
            "nets_": nets,
            "_encoder": encoder,
        }

    def _read(self, X: Any, y: Any, sample_weight: Any) -> _TrainingData:
        labels = read_targets(y, type(self).__name__)
        read = read_table(
            self, X, reset=True, categorical=self.categorical_features, parameter="categorical_features"
        )
        table = dense_table(read)
        check_consistent_length(table, labels)
        weights = read_weights(sample_weight, table)
        classes, codes = encode(labels)
        shares = shares_of(codes, weights, classes)
        categorical = categorical_columns(table, self.categorical_features, "categorical_features")
        if weights is not None:
            # Rows of weight zero are dropped, so that they count in no split and no class count.
            kept = np.flatnonzero(below_one(weights))
            table, codes, weights = rows_at(table, kept), codes[kept], below_one(weights[kept])
            # Equal weights take the path without weights, so that the results are the same to the bit.
            if (weights == weights[0]).all():
                weights, shares = None, shares_of(codes, None, classes)
        groups = split_groups(table, codes, categorical)
        return _TrainingData(table, codes, weights, groups, classes, shares, categorical)

    def _plan(self, encoder: TableEncoder, n_classes: int) -> NetPlan:
        sizes = {name: getattr(self, name) for name in ("width", "blocks", "members", "steps", "dropout")}
        outputs = 1 if n_classes == 2 else n_classes
        options = dict(self.net_options or {})
        return plan_net(self.net, sizes, options, features=encoder.n_inputs, outputs=outputs)

    def _validation(
        self,
        data: _TrainingData,
        given: tuple[Any, Array, Array | None] | None,
        held: Array | None,
        encoder: TableEncoder,
        inputs: Array,
    ) -> Validation | None:
        """Return the rows of `eval_set` or the held-out rows; None without either."""
        if given is not None:
            encoder.warn_of_unseen(given[0], " of eval_set")
            with errors_of("the rows of eval_set"):
                evaluated = encoder.apply(given[0])
            return Validation(evaluated, given[1], given[2], float(self.max_fpr), data.event)
        if held is None:
            return None
        weights = data.weights_at(held)
        return Validation(inputs[held], data.codes[held], weights, float(self.max_fpr), data.event)

    def _cross_validated_choice(
        self,
        data: _TrainingData,
        plan: NetPlan,
        losses: list[Loss],
        seeds: list[int],
        rows: CodedRows,
        random: np.random.RandomState,
        device: str,
        display: Display,
    ) -> EpochChoice | None:
        """Choose epochs and loss by cross-validation; None where a class has a single row."""
        folds = assign_folds(data.codes, random, data.groups)
        if folds is None:
            if len(losses) > 1:
                copies = "" if data.groups is None else ", copies counted once"
                raise ValueError(
                    f"{len(losses)} losses need rows to choose by, but a class has one row only{copies}: "
                    "pass eval_set=(X, y) to fit, or a single loss"
                )
            return None
        return cross_validate_epochs(
            plan,
            losses,
            seeds,
            rows,
            self._recipe(len(rows.codes), True),
            folds,
            max_fpr=float(self.max_fpr),
            event=data.event,
            with_slope=self.calibration == "slope",
            average_epochs=self._average(True),
            device=device,
            progress=TrainingProgress(display, f"{folds.max() + 1}-fold cross-validation"),
        )

    def _slope(
        self, nets: TrainedNets, validation: Validation | None, choice: EpochChoice | None, device: str
    ) -> float:
        """Return the slope by rows that the nets did not see; 1 without such rows."""
        if self.calibration != "slope":
            return 1.0
        if choice is not None:
            return held_out_slope(nets.loss, choice.rows)
        if validation is None:
            return 1.0
        return held_out_slope(nets.loss, validation.scored(nets.scores(validation.inputs, device)))

    def _average(self, stops_early: bool) -> float:
        given = self.average_epochs
        return default_average(stops_early) if given is None else float(given)

    def _recipe(self, n_rows: int, stops_early: bool) -> Recipe:
        batch = batch_size_for(n_rows) if self.batch_size == "auto" else int(self.batch_size)
        epochs = default_epochs(self.net, stops_early) if self.max_epochs is None else int(self.max_epochs)
        return Recipe(
            epochs=epochs,
            batch=batch,
            lr=default_rate(self.net) if self.learning_rate is None else float(self.learning_rate),
            weight_decay=float(self.weight_decay),
            warmup_epochs=float(self.warmup_epochs),
            precision=str(self.precision),
            # The newest weights are as good as the last batches happened to be. So the last epochs have
            # either smaller steps or means of the weights.
            decay_epochs=() if stops_early or self._average(False) else (max(1, int(_FULL_RATE * epochs)),),
        )

    def _losses(self, data: _TrainingData) -> list[Loss]:
        counts: Array = np.bincount(data.codes)
        if data.weights is not None:
            counts = data.shares * len(data.codes)
        given: list[Any] = list(self.loss) if isinstance(self.loss, (list, tuple)) else [self.loss]
        if not given:
            raise ValueError("loss is an empty list: name at least one")
        weights = class_weights(self.class_weight, data.classes, counts)
        return list(dict.fromkeys(weighted_loss(loss_for_classes(one, counts), weights) for one in given))

    def _read_evaluation(
        self, eval_set: Any, eval_sample_weight: Any, data: _TrainingData
    ) -> tuple[Any, Array, Array | None] | None:
        classes = data.classes
        if eval_set is None:
            if eval_sample_weight is not None:
                raise ValueError("eval_sample_weight was given without eval_set, whose rows it weighs")
            return None
        if isinstance(eval_set, list) and len(eval_set) == 1:
            eval_set = eval_set[0]
        elif _holds_pairs(eval_set):
            raise ValueError(
                f"eval_set holds {len(eval_set)} pairs (X, y), but one pair chooses the epoch: pass one pair"
            )
        rows, codes = read_labelled(self, eval_set, classes, "eval_set", data.categorical)
        with errors_of("the rows of eval_set"):
            table = dense_table(rows)
        if len(classes) == 2 and len(np.unique(codes)) < 2:
            raise ValueError(
                f"eval_set holds the label {classes[codes[0]]} alone: its partial AUC needs both classes"
            )
        with errors_of("eval_sample_weight"):
            weights = read_weights(eval_sample_weight, table)
        if weights is None:
            return table, codes, None
        weights = below_one(weights)
        counted = np.unique(codes[weights > 0])
        if len(classes) == 2 and len(counted) < 2:
            raise ValueError(
                f"eval_sample_weight leaves only rows of class {classes[counted[0]]} a weight above 0: the "
                "partial AUC of eval_set needs both classes"
            )
        return table, codes, weights

    # ---- predictions ---------------------------------------------------------------------

    def raw_scores(self, X: Any) -> Array:
        """Return the scores z of the nets in the scale of the loss, before calibration: (n,), or (n, K)."""
        check_is_fitted(self)
        table = read_table(self, X, reset=False, categorical=self._encoder.categorical)
        self._encoder.warn_of_unseen(table)
        device = device_for(self.device)
        # Fewer rows at once for wide tables, because a block is dense.
        rows = max(1, min(_BLOCK, _BLOCK_NUMBERS // max(1, table.shape[1])))
        with torch_threads(self.n_jobs):
            found = [
                self.nets_.scores(
                    self._encoder.apply(dense_table(rows_at(table, slice(i, i + rows)))), device
                )
                for i in range(0, table.shape[0], rows)
            ]
        return np.concatenate(found).astype(np.float64)

    def decision_function(self, X: Any) -> Array:
        """Return the calibrated log-odds minus those at which the loss decides: (n,), or (n, K).

        These are lambda(0), with lambda the inverse link. A loss that treats classes alike decides at
        log-odds of 0. A loss made for the likelihood ratio decides at those of the prior. For K classes the
        result is the log-probabilities minus those that the link gives to equal scores.
        """
        scores = self.raw_scores(X)
        if scores.ndim == 1:
            return self._log_odds(scores) - float(self.loss_.log_odds(0.0))
        equal = self.loss_.log_posterior(np.zeros((1, scores.shape[1])))
        return np.asarray(self._log_proba(scores) - equal)

    def predict_log_odds(self, X: Any) -> Array:
        """Return calibrated log-odds of the positive class; for K > 2 (n, K), each against the rest."""
        scores = self.raw_scores(X)
        if scores.ndim == 1:
            return self._log_odds(scores)
        log_p = self._log_proba(scores)
        rest = [logsumexp(np.delete(log_p, k, axis=1), axis=1) for k in range(log_p.shape[1])]
        return np.asarray(log_p - np.column_stack(rest))

    def predict_proba(self, X: Any) -> Array:
        """Return calibrated probabilities, (n, K)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of the calibrated probabilities, accurate where a probability is tiny."""
        return self._log_proba(self.raw_scores(X))

    def predict(self, X: Any) -> Array:
        """Return the class that the loss decides for.

        Of two classes the positive one where `decision_function` is above 0, otherwise the class with its
        largest value. This is the more probable class, except for losses that treat classes differently, by
        weights, margins or a prior.
        """
        return decided_classes(self.decision_function(X), self.classes_)

    def _log_odds(self, scores: Array) -> Array:
        return self.calibrator_.log_odds(np.asarray(self.loss_.log_odds(scores)))

    def _log_proba(self, scores: Array) -> Array:
        if scores.ndim == 1:
            return two_columns(self._log_odds(scores))
        return self.calibrator_.log_posterior(self.loss_.log_posterior(scores))

    # ---- files ---------------------------------------------------------------------------

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write `deep.json` and `deep.safetensors` into a folder, which is created if needed.

        An earlier model in the folder is replaced. A process that is killed meanwhile leaves either the old
        or the new model, complete. Saving over a model alternates between `deep.safetensors` and
        `deep-2.safetensors` (see `raresight.deep.files`).
        """
        check_is_fitted(self)
        write_model(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> DeepClassifier:
        """Read what `save` wrote; refuse a changed, truncated, newer or foreign file with the reason.

        The digests guard against accidents, not against deliberate forgery.
        """
        model = cls()
        read_model(model, folder)
        return model


def _holds_pairs(eval_set: Any) -> bool:
    """Return whether it is a list of pairs (X, y); X itself may be a list of two rows."""
    return isinstance(eval_set, (list, tuple)) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and np.ndim(pair[0]) == 2 for pair in eval_set
    )
