"""Train every loss of the fraud comparison in one stack of nets, for one split.

A method gets the same result as from `DeepClassifier` with the settings of this method alone. The same
held-out rows choose its epochs and its setting, and early stopping ends its training at the same epoch. Only
the time differs: a GPU takes little longer for 22 losses than for one.

Weights are not averaged, and nets are not refitted on all rows: the published results are older than both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils import check_random_state

from raresight.deep import DeepClassifier
from raresight.deep.encoding import TableEncoder
from raresight.deep.ensemble_scores import ensemble_score, member_scores
from raresight.deep.net_calibration import NetScores, net_calibrator
from raresight.deep.net_plans import plan_net
from raresight.deep.training import CodedRows, index_of_best, train_ensembles
from raresight.deep.validation import Validation, hold_out, split_groups
from raresight.losses import Loss, parse
from raresight.metrics import partial_auc
from raresight.nn import Recipe, Replicas

from .methods import MAX_FPR

Floats = NDArray[np.float64]

# Limit of the numbers in the widest layer, over all nets, when validation rows are scored: 256 MiB.
_NUMBERS_AT_ONCE = 1 << 26


@dataclass(frozen=True)
class NetSetup:
    """How the nets of a family are trained. Their sizes are the defaults of `DeepClassifier`.

    Attributes:
        net: "tabnet" or "tabm".
        seeds: Nets per loss setting, whose probabilities are averaged.
        epochs: Upper limit of epochs.
        batch: Rows per step.
        learning_rate: Learning rate of AdamW.
        weight_decay: Weight decay of AdamW.
        warmup_epochs: Epochs over which the learning rate rises.
        patience: A method ends after this many epochs in which none of its nets improved.
        validation_fraction: Share of the training rows that is held out to choose epochs and settings.
    """

    net: str
    seeds: int
    epochs: int = 30
    batch: int = 1024
    learning_rate: float = 1e-3
    weight_decay: float = 1e-3
    warmup_epochs: float = 1.0
    patience: int = 6
    validation_fraction: float = 0.2

    def classifier(self, losses: Sequence[str], seed: int, device: str = "auto") -> DeepClassifier:
        """Return the estimator that gives the same result as the stack, with the losses of one method.

        >>> NetSetup("tabnet", seeds=2).classifier(["crossentropy"], seed=0).n_seeds
        2
        """
        return DeepClassifier(
            list(losses),
            net=self.net,
            n_seeds=self.seeds,
            max_epochs=self.epochs,
            batch_size=self.batch,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            warmup_epochs=self.warmup_epochs,
            early_stopping=True,
            validation_fraction=self.validation_fraction,
            patience=self.patience,
            average_epochs=0,
            refit=False,
            max_fpr=MAX_FPR,
            calibration="level",  # as in `fit_methods`
            device=device,
            random_state=seed,
        )

    def recipe(self) -> Recipe:
        """Return the recipe of the training loop."""
        return Recipe(
            epochs=self.epochs,
            batch=self.batch,
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            warmup_epochs=self.warmup_epochs,
            decay_epochs=(),
        )


@dataclass(frozen=True, eq=False)
class MethodNets:
    """The predictions of a method for the test rows, and its chosen setting.

    Attributes:
        score: Scores z of the test rows.
        probability: Calibrated probabilities of the test rows.
        chosen: The setting with the best validation score.
        validation_scores: Partial AUC of each setting on the held-out rows.
        best_epochs: Epochs, from 1, whose weights the chosen nets have.
    """

    score: Floats
    probability: Floats
    chosen: str
    validation_scores: Mapping[str, float]
    best_epochs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class StackOutcome:
    """A trained stack.

    Attributes:
        methods: Nets of each method, by name.
        epochs: Epochs until the last method ended.
        history: Partial AUC of the held-out rows after each epoch, by loss setting and net; NaN after its
            method ended.
        failures: Messages on nets whose loss or gradient was not finite.
        nets: Nets trained at a time.
    """

    methods: Mapping[str, MethodNets]
    epochs: int
    history: Mapping[str, Floats]
    failures: tuple[str, ...]
    nets: int


def fit_methods(
    setup: NetSetup,
    methods: Mapping[str, Sequence[str]],
    X: NDArray[Any],
    y: NDArray[Any],
    test: NDArray[Any],
    *,
    seed: int,
    device: str,
    after_epoch: Callable[[int], None] = lambda epoch: None,
) -> StackOutcome:
    """Train every setting of every method at once on the rows of X, and score the test rows.

    Args:
        setup: How the nets are trained.
        methods: Losses of each method, as text.
        X: Training rows: numbers, none missing.
        y: Labels of the training rows, 0 and 1.
        test: Rows to score.
        seed: Seed of held-out rows, initial weights and batches.
        device: Such as "cpu" or "cuda".
        after_epoch: Called with the number of finished epochs. An exception from it ends the training.
    """
    codes = np.asarray(y, dtype=np.int64)
    shares = np.bincount(codes) / len(codes)
    # In the same order as `DeepClassifier`, so that the same seed gives the same nets and held-out rows.
    random = check_random_state(seed)
    seeds = [int(one) for one in random.randint(np.iinfo(np.int32).max, size=setup.seeds)]
    groups_of_rows = split_groups(X, codes, [])
    parts = hold_out(codes, True, setup.validation_fraction, random, groups_of_rows)
    if parts is None:
        raise ValueError("settings are chosen on held-out rows, but there are none")
    train, held = parts
    encoder = TableEncoder.learn(X[train], [], np.ones(len(train)))
    inputs = encoder.apply(X)
    validation = Validation(inputs[held], codes[held], None, MAX_FPR)
    plan = plan_net(setup.net, {}, {}, features=encoder.n_inputs, outputs=1)

    losses = [parse(text) for texts in methods.values() for text in texts]
    groups = _groups(methods, len(seeds))
    found = train_ensembles(
        plan,
        losses,
        seeds,
        CodedRows(inputs[train], codes[train], None, shares),
        setup.recipe(),
        validation=validation,
        patience=setup.patience,
        average_epochs=0.0,
        device=device,
        evaluate=_PatientEvaluator(groups, setup.patience, validation, torch.device(device), after_epoch),
    )
    assert found.metrics is not None

    picked = {}
    for method, settings in _groups(methods, 1).items():
        metrics = [found.metrics[i] for i in settings]
        best = settings[index_of_best(metrics)]
        named = {str(losses[i]): metric for i, metric in zip(settings, metrics)}
        picked[method] = found.nets[best], named, found.best_epochs[best]
    test_inputs = encoder.apply(test)
    raw = {m: (p[0].scores(inputs, device), p[0].scores(test_inputs, device)) for m, p in picked.items()}
    # Calibration takes a CPU longer than the scores take a GPU: calibrate all methods at a time.
    with ThreadPoolExecutor() as pool:
        probabilities = {
            method: pool.submit(_probability, nets.loss, *raw[method], codes, shares)
            for method, (nets, _, _) in picked.items()
        }
    results = {
        method: MethodNets(
            raw[method][1].astype(np.float64), probabilities[method].result(), str(nets.loss), scores, epochs
        )
        for method, (nets, scores, epochs) in picked.items()
    }
    trained = found.stack
    history = np.empty((0, len(losses) * len(seeds))) if trained.metrics is None else trained.metrics
    by_loss = {
        str(loss): history[:, i * len(seeds) : (i + 1) * len(seeds)].T for i, loss in enumerate(losses)
    }
    return StackOutcome(results, trained.epochs, by_loss, trained.failures, history.shape[1])


def _probability(
    loss: Loss,
    fitted: NDArray[np.float32],
    test: NDArray[np.float32],
    codes: NDArray[np.int64],
    shares: Floats,
) -> Floats:
    """Return probabilities of the test rows, shifted so that the fitted rows average to their share."""
    calibrator = net_calibrator(loss, NetScores(fitted, codes, None), shares, slope=1.0)
    return np.asarray(expit(calibrator.log_odds(np.asarray(loss.log_odds(test.astype(np.float64))))))


def _groups(methods: Mapping[str, Sequence[str]], n_seeds: int) -> dict[str, list[int]]:
    """Return the positions of each method's nets in the stack.

    >>> _groups({"a": ["x"], "b": ["y", "z"]}, 2)
    {'a': [0, 1], 'b': [2, 3, 4, 5]}
    """
    found, first = {}, 0
    for method, losses in methods.items():
        last = first + n_seeds * len(losses)
        found[method] = list(range(first, last))
        first = last
    return found


class _PatientEvaluator:
    """Computes the partial AUC of each net on the held-out rows, with early stopping per method.

    After a method has run out of patience its nets get NaN. NaN never counts as better, so its nets keep the
    weights that they would have if they were trained alone. Scores are ranked on the device.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[int]],
        patience: int,
        validation: Validation,
        device: torch.device,
        after_epoch: Callable[[int], None],
    ) -> None:
        self._groups, self._patience = [list(group) for group in groups.values()], patience
        self._inputs = torch.from_numpy(validation.inputs).to(device)
        self._labels = torch.from_numpy(validation.codes).to(device)
        self._max_fpr, self._after_epoch = validation.max_fpr, after_epoch
        self._best = np.full(sum(len(group) for group in self._groups), -np.inf)
        self._last_gain = [0] * len(self._groups)
        self._epoch = 0

    def __call__(self, replicas: Replicas, frozen: NDArray[np.bool_]) -> Floats:
        self._epoch += 1
        metrics = np.full(len(self._best), np.nan)
        running = [i for i, last in enumerate(self._last_gain) if self._epoch - 1 - last < self._patience]
        scores = self._scores(replicas)
        for i in running:
            group = self._groups[i]
            metrics[group] = [float("nan") if frozen[k] else self._metric(scores[k]) for k in group]
            better = metrics[group] >= self._best[group]
            if better.any():
                self._last_gain[i] = self._epoch
            self._best[group] = np.where(better, metrics[group], self._best[group])
        self._after_epoch(self._epoch)
        return metrics

    def _scores(self, replicas: Replicas) -> list[torch.Tensor]:
        numbers = len(replicas) * replicas.net.numbers_per_row(self._inputs.shape[1])
        parts = torch.split(self._inputs, max(1, _NUMBERS_AT_ONCE // numbers))
        # Join the members of all rows first: the score of an ensemble takes many small operations.
        members = torch.cat([member_scores(replicas, part) for part in parts], dim=2)
        return [ensemble_score(loss, one) for loss, one in zip(replicas.losses, members)]

    def _metric(self, scores: torch.Tensor) -> float:
        if not bool(torch.isfinite(scores).all()):
            return float("nan")
        return partial_auc(self._labels, scores, self._max_fpr)
