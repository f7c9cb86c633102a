"""Deep nets for tables as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from ..common.estimators import (
    columns_kept_on_failure,
    decided_classes,
    errors_of,
    read_labelled,
    read_weights,
    with_gaps_and_sparse,
)
from ..common.labels import below_one, class_weights, encode, read_targets, shares_of
from ..common.level import shifted
from ..common.posterior import log_posterior, two_columns
from ..common.tables import categorical_columns, read_table
from ..losses import Loss
from ..losses.for_classes import loss_for_classes, weighted_loss
from ..nn import Recipe
from .counted_rows import count_rows, rows_at
from .encoding import TableEncoder, dense_table
from .epoch_selection import Choice, choose_by_turns, parts_of
from .files import read_model, write_model
from .fitting import TrainingRows, fit_nets, importances, warn_of_equal_scores
from .level import at_level, score_shift
from .nets import NetPlan, plan_net
from .refit import refit_nets
from .scale import ScoredRows, carried_over, score_scale
from .settings import (
    batch_size_for,
    check_settings,
    default_average,
    default_epochs,
    default_rate,
    device_for,
    torch_threads,
)
from .telling import About, telling
from .trained_nets import TrainedNets
from .validation import Validation, hold_out

__all__ = ["DeepClassifier"]

Array = NDArray[Any]

# The share of the epochs with the full learning rate where the last one is kept as it is.
_FULL_RATE = 0.8
# Rows that are coded and scored at a time.
_BLOCK, _BLOCK_NUMBERS = 1 << 16, 1 << 24


class DeepClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Nets for tables, trained by AdamW with a loss of `raresight.losses`, with calibrated probabilities.

    Columns of numbers become normal scores, missing values their mean and an input that says so, categories
    one input a frequent level (see `raresight.deep.encoding`). The bias of the nets starts at the score that
    is right for the class shares alone. After training the scores get a factor and a constant, z' = a z + c:
    the factor is the likeliest on rows that training did not see (see `raresight.deep.scale`), and the
    constant makes the mean probability of the rows of `fit`, through the loss's link, their share of
    positives (see `raresight.deep.level`). Several seeds, and the members of TabM, predict by the mean of
    their probabilities (see `raresight.deep.scoring`).

    Losses and seeds are trained at once as replicas of one stack, which costs a GPU little more than one net.

    Args:
        loss: A loss or its text, such as `"tbl(alpha=0.8,C=0.5)"`; or a list of them, of which the one with
            the best validation score is kept.
        net: `"tabm"`, an ensemble of dense nets that share weights (needs `raresight[tabm]`); `"tabnet"`,
            sparse attention over columns in steps; or `"mlp"`, a plain net, the fastest.
        width: Numbers in a hidden layer; None is 128 for tabm, 256 for mlp, and 8 for tabnet, which has so
            many for the decision and as many for the attention.
        blocks: Hidden layers of tabm (None is 3) or mlp (2).
        members: Nets in the ensemble of tabm; None is 8. Its authors take 32, with a width of 512.
        steps: Steps of tabnet; None is 3.
        dropout: Share of hidden numbers that tabm drops in training; None is 0.1.
        net_options: Further options of the net by name, such as `{"embedding": "periodic"}` for tabm,
            `{"batch_norm": True}` for mlp or `{"cosine": True}` for LDAM; none that is given above as well.
        n_seeds: Nets with different first weights and batches, whose probabilities are averaged (of several
            classes: their logits).
        max_epochs: Passes over the training rows, at most; None is 100 where the number is chosen by rows
            that training does not see, and else 5 for mlp and 10 for tabm and tabnet.
        batch_size: Rows a step; `"auto"` is a 200th of the rows, but at least 128 and at most 4096.
        learning_rate: Of AdamW; None is 0.001 for mlp and tabm, 0.02 for tabnet.
        weight_decay: Of AdamW, decoupled.
        warmup_epochs: Over these the learning rate rises linearly.
        early_stopping: Whether training rows are held out to find each net's best epoch by the partial AUC up
            to `max_fpr`, with the rarer class as the event (for several classes by the mean log-probability
            of the true one). `"auto"` does so where at least 80 rows of every class, copies of a row counted
            once, would be held out; with fewer it chooses the number of epochs, and among losses, by five
            parts that take turns in judging (see `raresight.deep.epoch_selection`) and then trains on all
            rows. With `eval_set` in `fit` those rows serve and none are held out. With False the nets have
            the weights of the last of `max_epochs` epochs.
        validation_fraction: The share of the rows of each class that is held out, copies of a row together.
        patience: Training ends when no net has become better for so many epochs; where parts take turns in
            judging, after five without a better mean.
        average_epochs: What is judged and kept are means of the weights over about so many of the last epochs
            (see `raresight.nn.averaging`). 0 takes the weights as they are; None is 2, but 0 where the number
            of epochs is given and not chosen. There, without means, the last fifth of the epochs has a tenth
            of the learning rate.
        refit: Whether nets that chose their epochs by held-out rows are then trained once more from the
            beginning, on all rows and for so many epochs: only those of the loss that is kept. With
            `eval_set` no row is held out and nothing is trained twice.
        max_fpr: Largest false-positive rate of the partial AUC.
        calibration: `"scale"` chooses the factor a on rows of which the nets that score them saw nothing:
            those held out, those of `eval_set`, or all where parts take turns; with `early_stopping=False` it
            is 1. Nets that are trained once more get the factor with which their scores have the spread of
            those before. `"level"` leaves it at 1: the constant alone.
        class_weight: `{class: weight}`, or `"balanced"`; taken out of the probabilities again, as for
            `LinearClassifier`.
        categorical_features: `"auto"` takes categorical columns of DataFrames; a list of names or positions
            adds columns, also of text, and so does a mask of one boolean a column; None adds none.
        precision: Of the weights in training: `"float32"`, or `"float64"`, 1.4 times as slow on a CPU. With
            it, and with all rows in one batch, no dropout, no batch norm and no choice of epochs, weights
            that are no whole multiples of one number give what repetitions give, too, to seven digits.
        device: `"auto"` is a GPU if there is one; or `"cpu"`, `"cuda"`.
        random_state: Seed of first weights, batches and held-out rows.
        n_jobs: Threads on a CPU; -1 is one a core, None leaves it to PyTorch.
        verbose: Whether `fit` tells on standard error how far it is. `"auto"` does so on a terminal, in one
            line that is redrawn and goes away, once it has taken three seconds; not in a notebook, a log or
            the processes of joblib. True does so from the beginning and anywhere, where there is no terminal
            in lines. False does not.

    Attributes:
        classes_, n_features_in_, feature_names_in_: As in scikit-learn.
        loss_: The loss of the nets, class weights included.
        losses_: All losses that were trained; after `load` the text of one that lost and cannot be read.
        validation_scores_: The validation score of each loss by its text, where parts took turns of all rows
            by nets that did not see them; None without either.
        best_epochs_: The epoch whose weights each net has, from 1; 0 for one that failed before any was good.
        n_epochs_: Epochs that were trained, `refit` aside.
        validation_history_: (epochs, losses, seeds), the validation score of each net after each epoch; None
            without validation rows.
        score_scale_: The factor a of the scores of the nets, above 0, one for all classes.
        score_shift_: The constant c that is added to them then: one number, or one a class.
        feature_importances_: The share of each column in the slopes of the score; see
            `raresight.deep.fitting.importances`.
        nets_: The nets.

    `decision_function` is z', the score with both, and `predict_proba` the loss's link at z'. `predict` is
    the sign of z' (or the largest logit): the decision that the loss was made for, and the more probable
    class where the loss treats classes alike.

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
    score_scale_: float
    score_shift_: Array
    feature_importances_: Array
    nets_: TrainedNets
    _encoder: TableEncoder
    # What files of format 1 have instead of `score_shift_`; zeros otherwise.
    _log_odds_shift: Array

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
        calibration: str = "scale",
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
        """Train on X and y, which give the same model in every order of their rows.

        Copies of a row, by its weight or in X, are on one side where rows are held out or take turns.

        Args:
            X: (n, d) array, scipy.sparse matrix (made dense), pandas or polars DataFrame; NaN and null are
                missing.
            y: n labels of any kind; the last class in sorted order is the positive one of two.
            sample_weight: n weights, which count as repetitions of a row: whole multiples of one number are
                written out as copies (see `raresight.deep.counted_rows`), others are weights of which the
                proportions count.
            eval_set: `(X, y)`, rows that choose the best epoch and loss instead of held-out ones.
            eval_sample_weight: Their weights.

        Raises:
            ValueError: For input that cannot be used, and where loss or gradient of every net were not finite
                before its first epoch was over: the learning rate is too large.
        """
        check_settings(self)
        with columns_kept_on_failure(self), torch_threads(self.n_jobs), telling(self.verbose) as about:
            attributes = self._fit(X, y, sample_weight, eval_set, eval_sample_weight, about)
        self.__dict__.update(attributes)
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, eval_set: Any, eval_sample_weight: Any, about: About
    ) -> dict[str, Any]:
        """The attributes of the fitted model; sets nothing but the columns."""
        labels = read_targets(y, type(self).__name__)
        read = read_table(
            self, X, reset=True, categorical=self.categorical_features, parameter="categorical_features"
        )
        table = dense_table(read)
        check_consistent_length(table, labels)
        weights = read_weights(sample_weight, table)
        classes, codes = encode(labels)
        shares_of(codes, weights, classes)  # an error where a class has no weight
        categorical = categorical_columns(table, self.categorical_features, "categorical_features")
        if weights is not None:
            kept = np.flatnonzero(below_one(weights))
            table, codes, weights = rows_at(table, kept), codes[kept], weights[kept]
        counted = count_rows(table, codes, weights, categorical)
        table, codes, weights = rows_at(table, counted.places), codes[counted.places], counted.weights
        shares = shares_of(codes, weights, classes)
        losses = self._losses(classes, np.bincount(codes) if weights is None else shares * len(codes))
        random = check_random_state(self.random_state)
        seeds = [int(seed) for seed in random.randint(np.iinfo(np.int32).max, size=self.n_seeds)]
        given = self._read_evaluation(eval_set, eval_sample_weight, classes, categorical)
        parts = None
        if given is None:
            fraction = float(self.validation_fraction)
            parts = hold_out(codes, self.early_stopping, fraction, random, counted.groups)
        train = np.arange(len(codes)) if parts is None else parts[0]
        of_rows = np.ones(len(codes)) if weights is None else weights
        encoder = TableEncoder.learn(rows_at(table, train), categorical, of_rows[train])
        inputs = encoder.apply(table)
        rows = TrainingRows(inputs[train], codes[train], None if weights is None else weights[train], shares)
        validation = None
        event = int(shares[1] <= shares[0])  # the rarer one of two classes
        if given is not None:
            encoder.warn_of_unseen(given[0], " of eval_set")
            with errors_of("the rows of eval_set"):
                judging = encoder.apply(given[0])
            validation = Validation(judging, given[1], given[2], float(self.max_fpr), event)
        elif parts is not None:
            held = parts[1]
            held_weights = None if weights is None else weights[held]
            validation = Validation(inputs[held], codes[held], held_weights, float(self.max_fpr), event)
        n_classes = len(classes)
        sizes = {name: getattr(self, name) for name in ("width", "blocks", "members", "steps", "dropout")}
        plan = plan_net(
            self.net,
            sizes,
            dict(self.net_options or {}),
            features=encoder.n_inputs,
            outputs=1 if n_classes == 2 else n_classes,
        )
        device = device_for(self.device)
        is_watched = validation is not None
        recipe, average = self._recipe(len(train), is_watched), self._average(is_watched)
        plan.check_batch(min(recipe.batch, len(train)))
        choice = None
        if not is_watched and self.early_stopping == "auto":
            choice = self._choice_by_turns(
                plan, losses, seeds, rows, counted.groups, event, random, device, about
            )
        if choice is not None:
            recipe, average = self._recipe(len(train), True), self._average(True)
            recipe = replace(recipe, epochs=choice.epochs)
        outcome = fit_nets(
            plan,
            losses if choice is None else [choice.loss],
            seeds,
            rows,
            recipe,
            validation=validation,
            patience=int(self.patience),
            average_epochs=average,
            device=device,
            tell=about("training"),
        )
        nets, merits = outcome.nets, outcome.trained.merits
        raw, scored = ScoredRows(nets.scores(inputs, device), codes, weights), train
        scale = self._scale(nets, raw, validation, choice, shares, device)
        if parts is not None and self.refit:
            encoder = TableEncoder.learn(table, categorical, of_rows)
            inputs = encoder.apply(table)
            rows = TrainingRows(inputs, codes, weights, shares)
            nets = refit_nets(
                replace(plan, features=encoder.n_inputs),
                nets.loss,
                seeds,
                rows,
                self._recipe(len(codes), is_watched),
                outcome.best_epochs,
                average_epochs=average,
                device=device,
                tell=about("training on all rows"),
            )
            first, raw = raw, ScoredRows(nets.scores(inputs, device), codes, weights)
            scored = np.arange(len(codes))
            if self.calibration == "scale":
                scale = carried_over(scale, first.at(train), raw.at(train))
        warn_of_equal_scores(raw.scores, inputs)
        shift = score_shift(nets.loss, at_level(raw.scores, np.zeros(plan.outputs), scale), shares, weights)
        return {
            "classes_": classes,
            "loss_": nets.loss,
            "losses_": tuple(losses),
            "validation_scores_": outcome.validation_scores if choice is None else choice.validation_scores,
            "best_epochs_": outcome.best_epochs,
            "n_epochs_": outcome.trained.epochs,
            "validation_history_": None if merits is None else merits.reshape(-1, len(losses), len(seeds)),
            "score_scale_": scale,
            "score_shift_": shift,
            "feature_importances_": importances(
                nets, rows, raw.scores[scored], encoder.origins, len(encoder.columns), device
            ),
            "nets_": nets,
            "_encoder": encoder,
            "_log_odds_shift": np.zeros(n_classes - 1),
        }

    def _choice_by_turns(
        self,
        plan: NetPlan,
        losses: list[Loss],
        seeds: list[int],
        rows: TrainingRows,
        groups: Array | None,
        event: int,
        random: np.random.RandomState,
        device: str,
        about: About,
    ) -> Choice | None:
        """How long, and with which loss; None where a class has one row only, which cannot take turns."""
        parts = parts_of(rows.codes, random, groups)
        if parts is None:
            if len(losses) > 1:
                copies = "" if groups is None else ", copies aside"
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
            event=event,
            scaled=self.calibration == "scale",
            average_epochs=self._average(True),
            device=device,
            tell=about(f"{parts.max() + 1} parts in turn"),
        )

    def _scale(
        self,
        nets: TrainedNets,
        raw: ScoredRows,
        validation: Validation | None,
        choice: Choice | None,
        shares: Array,
        device: str,
    ) -> float:
        if self.calibration == "level":
            return 1.0
        if choice is not None:
            return score_scale(nets.loss, choice.rows, choice.rows, shares)
        if validation is None:
            return 1.0
        return score_scale(nets.loss, raw, validation.scored(nets.scores(validation.inputs, device)), shares)

    def _average(self, stops_early: bool) -> float:
        given = self.average_epochs
        return default_average(stops_early) if given is None else float(given)

    def _recipe(self, n_rows: int, stops_early: bool) -> Recipe:
        batch = batch_size_for(n_rows) if self.batch_size == "auto" else int(self.batch_size)
        epochs = default_epochs(self.net, stops_early) if self.max_epochs is None else int(self.max_epochs)
        return Recipe.tables(
            epochs=epochs,
            batch=batch,
            lr=default_rate(self.net) if self.learning_rate is None else float(self.learning_rate),
            weight_decay=float(self.weight_decay),
            warmup_epochs=float(self.warmup_epochs),
            precision=str(self.precision),
            # Small steps or a mean at the end, so that the last weights are not an accident.
            decay_epochs=() if stops_early or self._average(False) else (max(1, int(_FULL_RATE * epochs)),),
        )

    def _losses(self, classes: Array, counts: Array) -> list[Loss]:
        given: list[Any] = list(self.loss) if isinstance(self.loss, (list, tuple)) else [self.loss]
        if not given:
            raise ValueError("loss is an empty list: name at least one")
        weights = class_weights(self.class_weight, classes, counts)
        return list(dict.fromkeys(weighted_loss(loss_for_classes(one, counts), weights) for one in given))

    def _read_evaluation(
        self, eval_set: Any, eval_sample_weight: Any, classes: Array, categorical: list[int]
    ) -> tuple[Any, Array, Array | None] | None:
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
        rows, codes = read_labelled(self, eval_set, classes, "eval_set", categorical)
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

    def decision_function(self, X: Any) -> Array:
        """Scores z, float64: (n,) for two classes, (n, K) for K."""
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
        return at_level(np.concatenate(found), self.score_shift_, self.score_scale_)

    def predict_log_odds(self, X: Any) -> Array:
        """Calibrated log-odds of the positive class; (n, K), class against the rest, for more than two."""
        scores = self.decision_function(X)
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
        return self._log_proba(self.decision_function(X))

    def predict(self, X: Any) -> Array:
        """The class on whose side the score is, z > 0 for the positive one; of K the highest score.

        This is the decision the loss was made for. It is the more probable class but for losses that treat
        classes differently, by weights, margins or a prior.
        """
        return decided_classes(self.decision_function(X), self.classes_)

    def _log_odds(self, scores: Array) -> Array:
        return np.asarray(self.loss_.log_odds(scores) + self._log_odds_shift[0])

    def _log_proba(self, scores: Array) -> Array:
        if scores.ndim == 1:
            return two_columns(self._log_odds(scores))
        return shifted(log_posterior(self.loss_, scores), np.append(0.0, self._log_odds_shift))

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
