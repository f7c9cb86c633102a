"""One way to fit, score, save and load a model of any family.

Raw scores z go through the loss's inverse link lambda, and a constant delta makes the mean probability of the
training rows their (weighted) share of positives:

    log-odds = a lambda(z) + delta,    a = 1 unless rows that training did not see say otherwise

(see `raresight.common.calibration`). Nets have their constant in z, and delta = 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from ..boosting import NoSplitWarning, start_of
from ..common.calibration import Calibrator, level_calibrator
from ..common.labels import shares_of
from ..linear import NotConvergedWarning
from ..losses import Loss, NonConvexLossWarning, parse
from ..losses.for_classes import loss_for_classes
from .blocks import by_blocks
from .boosted_part import BoostedPart, fit_booster
from .candidate import NETS, Candidate
from .deep_part import DeepPart, fit_deep
from .linear_part import LinearPart, fit_linear

__all__ = ["Fitted", "fit_candidates"]

Floats = NDArray[np.float64]

# Said of a candidate rather than to whoever fits hundreds of them.
_KEPT = (NoSplitWarning, NotConvergedWarning, NonConvexLossWarning, ConvergenceWarning)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted candidate of any family.

    Attributes:
        candidate: What was fitted.
        loss: Its loss.
        part: The native half: a `LinearPart`, a `BoostedPart` or a `DeepPart`.
        start_score: The loss-optimal constant score of the training rows.
        calibrator: Slope and level of the link's log-odds; the identity for nets as they were fitted, whose
            scores have the constant on them.
        warnings: What the fit had to say, such as that it did not converge.
        threads: For predictions; None takes all cores.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 2))
    >>> y = rng.random(4000) < expit(3 * X[:, 0] - 6)
    >>> (fitted,) = fit_candidates([Candidate("linear", "tbl")], X, y, [], [])
    >>> bool(abs(expit(fitted.log_odds(X)).mean() / y.mean() - 1) < 1e-6)
    True
    """

    candidate: Candidate
    loss: Loss
    part: LinearPart | BoostedPart | DeepPart
    start_score: float
    calibrator: Calibrator
    warnings: tuple[str, ...] = ()
    threads: int | None = None

    @property
    def n_columns(self) -> int:
        """Columns of the coded matrix."""
        return self.part.n_columns

    def scores(self, X: NDArray[Any]) -> NDArray[Any]:
        """Raw scores z of rows of the coded matrix."""
        return self.part.scores(X, self.threads)

    def log_odds(self, X: NDArray[Any]) -> Floats:
        """Calibrated log-odds of the positive class."""
        return self.log_odds_of(self.scores(X))

    def log_odds_of(self, scores: NDArray[Any]) -> Floats:
        """Calibrated log-odds of raw scores that are known already."""

        def link(rows: slice) -> Floats:
            return self.calibrator.log_odds(self.loss.log_odds(scores[rows].astype(np.float64)))

        return by_blocks(link, len(scores), self.threads)

    def calibrated(self, calibrator: Calibrator) -> Fitted:
        """The same with other log-odds, a straight line of these.

        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.normal(size=(100, 1)), np.arange(100) % 2
        >>> (fitted,) = fit_candidates([Candidate("linear", "tbl")], X, y, [], [])
        >>> moved = fitted.calibrated(Calibrator(2.0, (1.0,))).log_odds(X)
        >>> bool(np.allclose(moved, 2 * fitted.log_odds(X) + 1))
        True
        """
        return replace(self, calibrator=self.calibrator.then(calibrator))

    def naive_probability(self, X: NDArray[Any]) -> Floats:
        """sigmoid(z): what one would take for the probability without the link."""
        return np.asarray(expit(np.asarray(self.scores(X), dtype=np.float64)))

    def importance(self) -> Floats:
        """The share of each column of the matrix; they sum to one, or are zeros for a constant model.

        Boosters: the gain of all splits by the column. Linear models: |coefficient| times the standard
        deviation of the feature, summed over the features of the column. Nets: likewise with the mean
        |slope| of the score instead of a coefficient.
        """
        return self.part.importance()

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the native files into a folder; the description for `load` says their names."""
        text = str(self.loss)
        line = f"{self.calibrator.slope!r} lambda(z) + {self.calibrator.levels[0]!r}"
        files = self.part.save(folder)
        return {
            "candidate": self.candidate.to_dict(),
            "loss": text,
            "link": f"log-odds = {line}, lambda the inverse link of {text}",
            "start_score": self.start_score,
            "calibrator": self.calibrator.to_dict(),
            "n_columns": self.n_columns,
            "warnings": list(self.warnings),
            "files": list(files),
        }

    @classmethod
    def load(cls, folder: Path, description: Mapping[str, Any]) -> Fitted:
        """Read what `save` wrote; predictions then take all cores."""
        try:
            candidate = Candidate.from_dict(description["candidate"])
            start_score = float(description["start_score"])
            calibrator = Calibrator.from_dict(description["calibrator"])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NonConvexLossWarning)  # said when it was fitted
                loss = parse(description["loss"])
            texts = tuple(str(text) for text in description["warnings"])
            n_columns = description["n_columns"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"the description of the model lacks or garbles an entry: {error}") from None
        part = _load_part(folder, candidate.family)
        if part.n_columns != n_columns:
            raise ValueError(f"the native model has {part.n_columns} columns, its description {n_columns}")
        return cls(candidate, loss, part, start_score, calibrator, texts)


def fit_candidates(
    candidates: Sequence[Candidate],
    X: NDArray[Any],
    y: NDArray[Any],
    categorical: Sequence[int],
    n_categories: Sequence[int],
    *,
    weights: Any = None,
    seed: int = 0,
    threads: int | None = 1,
) -> list[Fitted]:
    """Fit candidates of one family to the same rows; linear ones share each pass over the rows.

    Args:
        candidates: What to fit.
        X: The coded matrix of `Schema.matrix`: NaN is missing, categories are codes from 0 on.
        y: Labels 0 and 1.
        categorical: Positions of the columns that hold codes.
        n_categories: How many codes each of them has.
        weights: Weights of the rows, which count as repetitions: where negatives were drawn, the inverse of
            the share drawn keeps the probabilities right.
        seed: Of whatever a library draws, such as columns.
        threads: For boosters, nets and predictions; None takes all cores. Linear fits follow OMP_NUM_THREADS.

    Returns:
        One `Fitted` a candidate, in their order. Warnings of the fits are in them and not raised.

    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(size=2000), rng.integers(0, 3, 2000)])
    >>> y = rng.random(2000) < expit(X[:, 0] + 2 * (X[:, 1] == 2) - 4)
    >>> candidates = [Candidate("linear", "crossentropy"), Candidate("linear", "tbl", (("l2", 1e-3),))]
    >>> [round(float(fitted.importance().sum()), 6) for fitted in fit_candidates(candidates, X, y, [1], [3])]
    [1.0, 1.0]
    """
    if not candidates:
        return []
    families = sorted({candidate.family for candidate in candidates})
    if len(families) > 1:
        raise ValueError(f"candidates of one family are fitted together, got {' and '.join(families)}")
    codes, row_weights = _read(X, y, weights)
    shares = shares_of(codes, row_weights, np.arange(2))
    if families == ["linear"]:
        return _fit_all_linear(candidates, X, codes, categorical, n_categories, row_weights, shares, threads)
    if families[0] in NETS:
        return [
            _fit_one_deep(candidate, X, codes, categorical, row_weights, shares, seed, threads)
            for candidate in candidates
        ]
    return [
        _fit_one_booster(candidate, X, codes, categorical, row_weights, shares, seed, threads)
        for candidate in candidates
    ]


def _fit_one_booster(
    candidate: Candidate,
    X: NDArray[Any],
    codes: NDArray[np.int64],
    categorical: Sequence[int],
    weights: Floats | None,
    shares: Floats,
    seed: int,
    threads: int | None,
) -> Fitted:
    with _kept_warnings() as kept:
        loss = loss_for_classes(candidate.loss, np.bincount(codes, minlength=2))
        part = fit_booster(candidate, loss, X, codes, categorical, shares, weights, seed, threads)
    start, texts = start_of(loss, shares).scores[0], tuple(dict.fromkeys(kept))
    return Fitted(candidate, loss, part, start, part.classifier.calibrator_, texts, threads)


def _fit_one_deep(
    candidate: Candidate,
    X: NDArray[Any],
    codes: NDArray[np.int64],
    categorical: Sequence[int],
    weights: Floats | None,
    shares: Floats,
    seed: int,
    threads: int | None,
) -> Fitted:
    from ..deep.fitting import DivergedWarning

    with _kept_warnings(DivergedWarning) as kept:
        part = fit_deep(candidate, X, codes, categorical, weights, seed, threads)
    loss = part.classifier.loss_
    start = start_of(loss, shares).scores[0]
    # The scores are at their level already: the constant is on them, not on the log-odds.
    return Fitted(candidate, loss, part, start, Calibrator(), tuple(dict.fromkeys(kept)), threads)


def _fit_all_linear(
    candidates: Sequence[Candidate],
    X: NDArray[Any],
    codes: NDArray[np.int64],
    categorical: Sequence[int],
    n_categories: Sequence[int],
    weights: Floats | None,
    shares: Floats,
    threads: int | None,
) -> list[Fitted]:
    pairs = [(candidate.loss, candidate.settings()["l2"]) for candidate in candidates]
    with _kept_warnings() as kept:
        parts = fit_linear(pairs, X, codes, categorical, n_categories, weights)
    result = []
    for candidate, (_, l2), (part, loss) in zip(candidates, pairs, parts):
        # The solver names the setting that it warns of.
        own = [text for text in kept if text.startswith((f"{loss}, l2={l2:g}:", f"{loss} is not convex"))]
        with _kept_warnings() as levels:
            calibrator = level_calibrator(loss.log_posterior(part.scores(X, threads)), shares, weights)
        start = start_of(loss, shares).scores[0]
        texts = tuple(dict.fromkeys([*own, *levels]))
        result.append(Fitted(candidate, loss, part, start, calibrator, texts, threads))
    return result


def _load_part(folder: Path, family: str) -> LinearPart | BoostedPart | DeepPart:
    if family == "linear":
        return LinearPart.load(folder)
    return DeepPart.load(folder) if family in NETS else BoostedPart.load(folder, family)


def _read(X: NDArray[Any], y: Any, weights: Any) -> tuple[NDArray[np.int64], Floats | None]:
    labels = np.asarray(y)
    if labels.shape != (len(X),):
        raise ValueError(f"y must hold {len(X)} labels, one a row, but has the shape {labels.shape}")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("y must hold 0 and 1 only")
    codes = labels.astype(np.int64)
    if codes.min(initial=1) == codes.max(initial=0):
        raise ValueError(f"y holds one class only, {codes[0]}: a model needs rows of both")
    if weights is None:
        return codes, None
    row_weights = np.asarray(weights, dtype=np.float64)
    if row_weights.shape != codes.shape or not (np.isfinite(row_weights) & (row_weights >= 0)).all():
        raise ValueError(f"weights must be {len(codes)} finite numbers of at least 0")
    return codes, row_weights


@contextmanager
def _kept_warnings(*further: type[Warning]) -> Iterator[list[str]]:
    """Collect what our own fits warn of; any other warning goes its way."""
    ours = (*_KEPT, *further)
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        for category in ours:
            warnings.simplefilter("always", category)
        yield texts
    for warning in caught:
        if issubclass(warning.category, ours):
            texts.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
