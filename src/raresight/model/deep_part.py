"""A deep net on coded matrices.

`raresight.deep` needs PyTorch and is imported when a net is fitted or read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .candidate import NETS, Candidate

if TYPE_CHECKING:
    from ..deep import DeepClassifier

__all__ = ["DeepPart", "fit_deep"]

Floats = NDArray[np.float64]

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
        from ..deep.settings import torch_threads

        with torch_threads(threads):
            return np.asarray(self.classifier.decision_function(X))

    def importance(self) -> Floats:
        """The share of each column in the slopes of the score."""
        return self.classifier.feature_importances_

    def save(self, folder: Path) -> tuple[str, ...]:
        """Write the two files of `raresight.deep`."""
        from ..deep.files import files_of

        self.classifier.save(folder)
        return files_of(folder)

    @staticmethod
    def load(folder: Path) -> DeepPart:
        from ..deep import DeepClassifier

        return DeepPart(DeepClassifier.load(folder))


def fit_deep(
    candidate: Candidate,
    X: NDArray[Any],
    y: NDArray[Any],
    categorical: Sequence[int],
    weights: Floats | None,
    seed: int,
    threads: int | None,
) -> DeepPart:
    """Train one candidate: a net of its family, for as many epochs as it says.

    Nothing is held out to stop early: the epochs are chosen in cross-validation like all parameters, and the
    few positives there are all train the net.
    """
    from ..deep import DeepClassifier

    settings = candidate.settings()
    sizes: dict[str, Any] = {name: settings[name] for name in _SIZES if name in settings}
    classifier = DeepClassifier(
        candidate.loss,
        net=NETS[candidate.family],
        **sizes,
        max_epochs=int(settings["epochs"]),
        learning_rate=float(settings["learning_rate"]),
        weight_decay=float(settings["weight_decay"]),
        early_stopping=False,
        categorical_features=list(categorical),
        random_state=seed,
        n_jobs=threads,
        # Whoever searches tells how far the search is.
        verbose=False,
    ).fit(X, y, weights)
    # The number of threads is a matter of the machine, not of the model: it is not to be saved.
    classifier.set_params(n_jobs=None)
    return DeepPart(classifier)
