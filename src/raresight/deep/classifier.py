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
from ..common.tables import categorical_columns, read_table
from ..losses import Loss
from ..losses.for_classes import loss_for_classes, weighted_loss
from ..nn import Recipe
from .encoding import TableEncoder, dense_table, rows_at
from .epoch_selection import EpochChoice, choose_by_turns, parts_of
from .files import read_model, write_model
from .net_calibration import NetScores, carried_over, held_out_slope, net_calibrator
from .nets import NetPlan, plan_net
from .settings import (
    batch_size_for,
    check_settings,
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

# The share of the epochs with the full learning rate where the last one is kept as it is.
_FULL_RATE = 0.8
# Rows that are coded and scored at a time.
_BLOCK, _BLOCK_NUMBERS = 1 << 16, 1 << 24


@dataclass(frozen=True, eq=False)
class _Data:
    """What `fit` was given, checked: the rows that count, of which those of `eval_set` are none.

    Attributes:
        table: A dense array or a DataFrame.
        codes: The class number of each row.
        weights: Above 0; None where they are equal.
        groups: Copies of a row have the same number; None where rows are split one by one.
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
        """The rarer one of two classes, which the partial AUC is about."""
        return int(self.shares[1] <= self.shares[0])

    def weights_at(self, places: Array) -> Array | None:
        return None if self.weights is None else self.weights[places]

    def encoder(self, places: Array) -> TableEncoder:
        """The coding of the table, learnt from some of its rows."""
        weights = self.weights_at(places)
        counted = np.ones(len(places)) if weights is None else weights
        return TableEncoder.learn(rows_at(self.table, places), self.categorical, counted)

    def training_rows(self, inputs: Array, places: Array) -> CodedRows:
        """Some rows as nets are trained on them, of the coded `inputs` of all rows."""
        return CodedRows(inputs[places], self.codes[places], self.weights_at(places), self.shares)

    def scored(self, nets: TrainedNets, inputs: Array, device: str) -> NetScores:
        """All rows with the scores of the nets."""
        return NetScores(nets.scores(inputs, device), self.codes, self.weights)


class DeepClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Nets for tables, trained by AdamW with a loss of `raresight.losses`, with calibrated probabilities.

    - Columns of numbers become normal scores, missing values their mean and an input that marks them,
      categories one input for each frequent level (see `raresight.deep.encoding`).
    - The bias of the nets starts at the score that is right for the class shares alone.
    - Losses and seeds are trained at once as replicas of one stack, which costs a GPU little more than one
      net. Several seeds, and the members of TabM, predict by the mean of their probabilities (see
      `raresight.deep.scoring`).
    - After training the log-odds are calibrated by a straight line (see `raresight.common.calibration`). Its
      slope makes rows most probable that training did not see. Its level makes the mean probability of the
      rows of `fit` their share of positives.

    Args:
        loss: A loss or its text, such as `"tbl(alpha=0.8,C=0.5)"`; or a list of them, of which the one with
            the best validation score is kept.
        net: `"tabm"`, an ensemble of dense nets that share weights (needs `raresight[tabm]`); `"tabnet"`,
            sparse attention over columns in steps; or `"mlp"`, a plain net, the fastest.
        width: Numbers in a hidden layer. Default: 128 for tabm, 256 for mlp, and for tabnet 8 for the
            decision and 8 for the attention.
        blocks: Hidden layers of tabm (default: 3) or mlp (default: 2).
        members: Nets in the ensemble of tabm. Default: 8. Its authors take 32, with a width of 512.
        steps: Steps of tabnet. Default: 3.
        dropout: Share of hidden numbers that tabm drops in training. Default: 0.1.
        net_options: Further options of the net by name, such as `{"embedding": "periodic"}` for tabm,
            `{"batch_norm": True}` for mlp or `{"cosine": True}` for LDAM; none that is given above as well.
        n_seeds: Nets with different first weights and batches. Their probabilities are averaged, of several
            classes their logits.
        max_epochs: The most passes over the training rows. Default: 100 where the number is chosen by rows
            that training does not see; otherwise 5 for mlp, 10 for tabm and tabnet.
        batch_size: Rows a step. `"auto"` is a 200th of the rows, but at least 128 and at most 4096.
        learning_rate: Of AdamW. Default: 0.001 for mlp and tabm, 0.02 for tabnet.
        weight_decay: Of AdamW, decoupled.
        warmup_epochs: Over these the learning rate rises linearly.
        early_stopping: Whether training rows are held out to find the best epoch of each net. The best one
            has the largest partial AUC up to `max_fpr`, with the rarer class as the event; for several
            classes, the largest mean log-probability of the true class. `"auto"` holds rows out where at
            least 80 of every class would be held out, copies of a row counted once. With fewer rows, five
            parts take turns in judging; they choose the number of epochs, and among losses, before training
            on all rows (see `raresight.deep.epoch_selection`). Rows of `eval_set` replace held-out ones. With
            False the nets have the weights of the last of `max_epochs` epochs.
        validation_fraction: The share of the rows of each class that is held out, copies of a row together.
        patience: Training ends when no net has become better for so many epochs; where parts take turns in
            judging, after five without a better mean.
        average_epochs: Judged and kept are means of the weights over about so many of the last epochs (see
            `raresight.nn.training_loop.MeanWeights`). 0 takes the weights as they are. Default: 2, but 0
            where the number of epochs is given and not chosen. There, without means, the last fifth of the
            epochs has a tenth of the learning rate.
        refit: Whether nets that chose their epochs by held-out rows are then trained once more from the
            beginning, on all rows and for so many epochs: only those of the loss that is kept. With
            `eval_set` no row is held out and nothing is trained twice.
        max_fpr: Largest false-positive rate of the partial AUC.
        calibration: `"slope"` finds the slope by rows that the nets did not see: those held out, those of
            `eval_set`, or all where parts take turns. With `early_stopping=False` there are none, and it is
            1. Nets that are trained once more get the slope with which their log-odds have the spread of
            those before. `"level"` leaves the slope at 1.
        class_weight: `{class: weight}`, or `"balanced"`; taken out of the probabilities again, as for
            `LinearClassifier`.
        categorical_features: `"auto"` takes categorical columns of DataFrames. A list of names or positions
            adds columns, also of text, and so does a mask of one boolean a column. None adds none.
        precision: Of the weights in training: `"float32"`, or `"float64"`, 1.4 times as slow on a CPU.
        device: `"auto"` is a GPU if there is one; or `"cpu"`, `"cuda"`.
        random_state: Seed of first weights, batches and held-out rows.
        n_jobs: Threads on a CPU. -1 is one per core, None leaves it to PyTorch.
        verbose: Whether `fit` shows its progress on standard error. `"auto"` does so on a terminal alone,
            once it has taken three seconds, and not in a process that another one started. True shows it
            anywhere, in a log as lines.

    Attributes:
        classes_, n_features_in_, feature_names_in_: As in scikit-learn.
        loss_: The loss of the nets, class weights included.
        losses_: All losses that were trained; after `load` the text of one that lost and cannot be read.
        validation_scores_: The validation score of each loss by its text. Where parts took turns it is of all
            rows, by nets that did not see them. None without either.
        best_epochs_: The epoch whose weights each net has, from 1; 0 for one that failed before any was good.
        n_epochs_: Epochs that were trained, `refit` aside.
        validation_history_: (epochs, losses, seeds), the validation score of each net after each epoch; None
            without validation rows.
        calibrator_: The straight line of the log-odds.
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
        """Train on X and y. Copies of a row are on one side where rows are held out or take turns.

        Args:
            X: (n, d) array, scipy.sparse matrix (made dense), pandas or polars DataFrame; NaN and null are
                missing.
            y: n labels of any kind; the last class in sorted order is the positive one of two.
            sample_weight: n weights, of which the proportions count. They multiply the loss of a row, and
                its part in class shares, scales and judgements. A row of weight 0 is none.
            eval_set: `(X, y)`, rows that choose the best epoch and loss instead of held-out ones.
            eval_sample_weight: Their weights.

        Raises:
            ValueError: For input that cannot be used, and where loss or gradient of every net were not finite
                before its first epoch was over: the learning rate is too large.
        """
        check_settings(self)
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
        """The attributes of the fitted model; sets nothing but the columns."""
        data = self._read(X, y, sample_weight)
        losses = self._losses(data)
        # The order of the draws is that of the steps below: seeds, held-out rows, parts.
        random = check_random_state(self.random_state)
        seeds = [int(seed) for seed in random.randint(np.iinfo(np.int32).max, size=self.n_seeds)]
        given = self._read_evaluation(eval_set, eval_sample_weight, data)
        every = np.arange(len(data.codes))
        split = None
        if given is None:
            fraction = float(self.validation_fraction)
            split = hold_out(data.codes, self.early_stopping, fraction, random, data.groups)
        train = every if split is None else split[0]

        encoder = data.encoder(train)
        inputs = encoder.apply(data.table)
        rows = data.training_rows(inputs, train)
        validation = self._validation(data, given, None if split is None else split[1], encoder, inputs)
        device, is_watched = device_for(self.device), validation is not None
        plan = self._plan(encoder, len(data.classes))
        recipe, average = self._recipe(len(train), is_watched), self._average(is_watched)
        plan.check_batch(min(recipe.batch, len(train)))

        choice = None
        if not is_watched and self.early_stopping == "auto":
            choice = self._choice_by_turns(data, plan, losses, seeds, rows, random, device, display)
        if choice is not None:
            # All rows are trained on for as long as the parts found best, with means as they had.
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
            encoder = data.encoder(every)
            inputs = encoder.apply(data.table)
            rows = data.training_rows(inputs, every)
            nets = refit_nets(
                replace(plan, features=encoder.n_inputs),
                nets.loss,
                seeds,
                rows,
                self._recipe(len(every), is_watched),
                best_epochs,
                average_epochs=average,
                device=device,
                progress=TrainingProgress(display, "training on all rows"),
            )
            first, scored = scored, data.scored(nets, inputs, device)
            if self.calibration == "slope":
                slope = carried_over(nets.loss, slope, first.at(train), scored.at(train))
            train = every

        warn_of_equal_scores(scored.scores, inputs)
        merits, history = found.merits, found.stack.merits
        scores = None if merits is None else {str(loss): merit for loss, merit in zip(losses, merits)}
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
            "calibrator_": net_calibrator(nets.loss, scored, data.shares, slope),
            "feature_importances_": shares_of_columns,
            "nets_": nets,
            "_encoder": encoder,
        }

    def _read(self, X: Any, y: Any, sample_weight: Any) -> _Data:
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
            # A row of weight zero is none, also for what is counted.
            kept = np.flatnonzero(below_one(weights))
            table, codes, weights = rows_at(table, kept), codes[kept], below_one(weights[kept])
            if (weights == weights[0]).all():
                weights, shares = None, shares_of(codes, None, classes)
        groups = split_groups(table, codes, categorical)
        return _Data(table, codes, weights, groups, classes, shares, categorical)

    def _plan(self, encoder: TableEncoder, n_classes: int) -> NetPlan:
        sizes = {name: getattr(self, name) for name in ("width", "blocks", "members", "steps", "dropout")}
        outputs = 1 if n_classes == 2 else n_classes
        options = dict(self.net_options or {})
        return plan_net(self.net, sizes, options, features=encoder.n_inputs, outputs=outputs)

    def _validation(
        self,
        data: _Data,
        given: tuple[Any, Array, Array | None] | None,
        held: Array | None,
        encoder: TableEncoder,
        inputs: Array,
    ) -> Validation | None:
        """The rows that choose the epoch: those of `eval_set` or those held out; None without either."""
        if given is not None:
            encoder.warn_of_unseen(given[0], " of eval_set")
            with errors_of("the rows of eval_set"):
                judging = encoder.apply(given[0])
            return Validation(judging, given[1], given[2], float(self.max_fpr), data.event)
        if held is None:
            return None
        weights = data.weights_at(held)
        return Validation(inputs[held], data.codes[held], weights, float(self.max_fpr), data.event)

    def _choice_by_turns(
        self,
        data: _Data,
        plan: NetPlan,
        losses: list[Loss],
        seeds: list[int],
        rows: CodedRows,
        random: np.random.RandomState,
        device: str,
        display: Display,
    ) -> EpochChoice | None:
        """How long, and with which loss; None where a class has one row only, which cannot take turns."""
        parts = parts_of(data.codes, random, data.groups)
        if parts is None:
            if len(losses) > 1:
                copies = "" if data.groups is None else ", copies aside"
                raise ValueError(
                    f"{len(losses)} losses need rows to choose by, but a class has one row only{copies}: "
                    "pass eval_set=(X, y) to fit, or a single loss"
                )
            return None
        return choose_by_turns(
            plan,
            losses,
            seeds,
            rows,
            self._recipe(len(rows.codes), True),
            parts,
            max_fpr=float(self.max_fpr),
            event=data.event,
            with_slope=self.calibration == "slope",
            average_epochs=self._average(True),
            device=device,
            progress=TrainingProgress(display, f"{parts.max() + 1} parts in turn"),
        )

    def _slope(
        self, nets: TrainedNets, validation: Validation | None, choice: EpochChoice | None, device: str
    ) -> float:
        """The slope by rows that the nets did not see; 1 without such rows."""
        if self.calibration == "level":
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
            # Small steps or a mean at the end, so that the last weights are not an accident.
            decay_epochs=() if stops_early or self._average(False) else (max(1, int(_FULL_RATE * epochs)),),
        )

    def _losses(self, data: _Data) -> list[Loss]:
        counts: Array = np.bincount(data.codes)
        if data.weights is not None:
            counts = data.shares * len(data.codes)
        given: list[Any] = list(self.loss) if isinstance(self.loss, (list, tuple)) else [self.loss]
        if not given:
            raise ValueError("loss is an empty list: name at least one")
        weights = class_weights(self.class_weight, data.classes, counts)
        return list(dict.fromkeys(weighted_loss(loss_for_classes(one, counts), weights) for one in given))

    def _read_evaluation(
        self, eval_set: Any, eval_sample_weight: Any, data: _Data
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
                f"eval_set holds {len(eval_set)} pairs (X, y), but the epoch is chosen by one: pass one pair"
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
        """Scores z of the nets as the loss knows them, before calibration: (n,), or (n, K) for K classes."""
        check_is_fitted(self)
        table = read_table(self, X, reset=False, categorical=self._encoder.categorical)
        self._encoder.warn_of_unseen(table)
        device = device_for(self.device)
        # Of wide tables fewer rows at once: a block is dense.
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
        """How far the calibrated log-odds are beyond those at which the loss decides: (n,), or (n, K).

        That is log-odds - lambda(0), with lambda the inverse link. A loss that treats classes alike decides
        at log-odds of zero, one that was made for the likelihood ratio at those of the prior. Of K classes it
        is the log-probabilities, less those that the link gives to equal scores.
        """
        scores = self.raw_scores(X)
        if scores.ndim == 1:
            return self._log_odds(scores) - float(self.loss_.log_odds(0.0))
        equal = self.loss_.log_posterior(np.zeros((1, scores.shape[1])))
        return np.asarray(self._log_proba(scores) - equal)

    def predict_log_odds(self, X: Any) -> Array:
        """Calibrated log-odds of the positive class; (n, K), class against the rest, for more than two."""
        scores = self.raw_scores(X)
        if scores.ndim == 1:
            return self._log_odds(scores)
        log_p = self._log_proba(scores)
        rest = [logsumexp(np.delete(log_p, k, axis=1), axis=1) for k in range(log_p.shape[1])]
        return np.asarray(log_p - np.column_stack(rest))

    def predict_proba(self, X: Any) -> Array:
        """Calibrated probabilities, (n, K)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the calibrated probabilities, accurate where a probability is tiny."""
        return self._log_proba(self.raw_scores(X))

    def predict(self, X: Any) -> Array:
        """The class that the loss decides for, of two where `decision_function` is above 0, else its largest.

        This is the more probable class, except for losses that treat classes differently, by weights, margins
        or a prior.
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
        """Write `deep.json` and `deep.safetensors` into a folder, which is made if it is not there.

        A model that was there is replaced: a process that is killed meanwhile leaves it or the new one, whole
        (see `raresight.deep.files`; from time to time the weights are in `deep-2.safetensors`).
        """
        check_is_fitted(self)
        write_model(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> DeepClassifier:
        """Read what `save` wrote; a changed, truncated, newer or foreign file is refused with the reason.

        The digests guard against accidents, not against somebody who wants to deceive.
        """
        model = cls()
        read_model(model, folder)
        return model


def _holds_pairs(eval_set: Any) -> bool:
    """Whether it is a list of pairs (X, y); X itself may be a list of two rows."""
    return isinstance(eval_set, (list, tuple)) and all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and np.ndim(pair[0]) == 2 for pair in eval_set
    )
