"""Nets on coded matrices: a plain one, TabM and TabNet.

`raresight.deep` needs PyTorch and is imported when a net is fitted or read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .families import FAMILIES, Candidate, Fitted, TrainingRows, kept_warnings

if TYPE_CHECKING:
    from ..deep import DeepClassifier

__all__ = ["DeepPart", "fit", "load"]

# Which net of `raresight.deep` each family is.
_NETS = {"deep": "mlp", "tabm": "tabm", "tabnet": "tabnet"}
# Settings of a candidate that are sizes of its net.
_SIZES = ("width", "steps", "dropout")


@dataclass(frozen=True, eq=False)
class DeepPart:
    """A fitted `DeepClassifier`."""

    classifier: DeepClassifier

    @property
    def n_columns(self) -> int:
        return int(self.classifier.n_features_in_)

    def scores(self, X: NDArray[Any], threads: int | None) -> NDArray[Any]:
        """Raw scores z, a block of rows at a time."""
        if X.ndim != 2 or X.shape[1] != self.n_columns:
            raise ValueError(f"the model has {self.n_columns} columns, X has the shape {X.shape}")
        if not len(X):
            return np.empty(0)
        from ..deep.parameters import torch_threads

        with torch_threads(threads):
            return np.asarray(self.classifier.raw_scores(X))

    def importance(self) -> NDArray[np.float64]:
        """Return the share of each column in the slopes of the score."""
        return self.classifier.feature_importances_

    def save(self, folder: Path) -> None:
        """Write the two files of `raresight.deep`."""
        self.classifier.save(folder)


def fit(candidates: Sequence[Candidate], rows: TrainingRows, seed: int, threads: int | None) -> list[Fitted]:
    """Train the net of each candidate, for as many epochs as it says.

    Nothing is held out to stop early: the epochs are chosen in cross-validation like all parameters, and the
    few positives there are all train the net.
    """
    return [_fit_one(candidate, rows, seed, threads) for candidate in candidates]


def load(folder: Path, family: str) -> DeepPart:
    """Read what `DeepPart.save` wrote; the files name the net, which must be that of the family."""
    from ..deep import DeepClassifier
    from ..deep.files import files_of

    # A description may name a second file of weights, which the model's does not vouch for.
    if {*files_of(folder)} != {*FAMILIES[family].files}:
        raise ValueError(f"{folder} has its weights in another file than {FAMILIES[family].files[0]}")
    classifier = DeepClassifier.load(folder)
    found, wanted = classifier.nets_.plan.name, _NETS[family]
    if found != wanted:
        raise ValueError(f"{folder} holds the net {found!r}, but the family {family} is the net {wanted!r}")
    return DeepPart(classifier)


def _fit_one(candidate: Candidate, rows: TrainingRows, seed: int, threads: int | None) -> Fitted:
    from ..deep import DeepClassifier
    from ..deep.training import DivergedWarning

    settings = candidate.settings()
    sizes: dict[str, Any] = {name: settings[name] for name in _SIZES if name in settings}
    with kept_warnings(DivergedWarning) as kept:
        classifier = DeepClassifier(
            candidate.loss,
            net=_NETS[candidate.family],
            **sizes,
            max_epochs=int(settings["epochs"]),
            learning_rate=float(settings["learning_rate"]),
            weight_decay=float(settings["weight_decay"]),
            early_stopping=False,
            categorical_features=list(rows.categorical),
            random_state=seed,
            n_jobs=threads,
            # A search shows its own progress.
            verbose=False,
        ).fit(rows.X, rows.y, rows.weights)
    # The number of threads is a matter of the machine, not of the model: it is not to be saved.
    classifier.set_params(n_jobs=None)
    loss = classifier.loss_
    return Fitted(
        candidate,
        loss,
        DeepPart(classifier),
        rows.start_score(loss),
        classifier.calibrator_,
        warnings=tuple(dict.fromkeys(kept)),
        threads=threads,
    )
