"""The families of models, each written down once, and one way to fit a candidate of any of them.

`FAMILIES` says what each family is: its parameters with defaults and search ranges, the libraries it needs,
and the module that fits and reads it. A new family is one entry there and one module with two functions:

    fit(candidates, rows, seed, threads)    one `Fitted` for each candidate, in their order
    load(folder, family)                    the `FittedPart` that `save` wrote into the folder

Raw scores z of every family go through the inverse link lambda of the loss, and a calibrator makes the mean
probability of the training rows their (weighted) share of positives:

    log-odds = lambda(z) + delta

(see `raresight.common.calibration`).
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from ..common.calibration import Calibrator
from ..common.checks import check_range, check_weights, check_whole
from ..common.labels import shares_of
from ..linear.penalties import DEFAULT_RELATIVE_L2
from ..linear.threads import by_blocks
from ..losses import Loss, NonConvexLossWarning, parse
from ..losses.parameters import SearchRange
from ..losses.start import start_of

__all__ = [
    "FAMILIES",
    "Candidate",
    "Family",
    "Fitted",
    "FittedPart",
    "GrowingFit",
    "TrainingRows",
    "begin_candidate",
    "fit_candidates",
    "installed_families",
    "kept_warnings",
    "packages_of",
    "require_family",
]

Floats = NDArray[np.float64]
Number = float | int


# ---- what each family is -----------------------------------------------------------------


@dataclass(frozen=True)
class Family:
    """Description of a family of models.

    Attributes:
        name: What `--families` and model folders call it.
        title: Name in sentences, such as LightGBM.
        module: The module of this package that fits and reads it.
        parameters: Its main parameters with defaults and search ranges, in the order in which a search asks
            for them. A parameter is a whole number if its ends are.
        libraries: What it imports beyond the package's own needs.
        extra: The extra of raresight that installs them.
        packages: Under which names they may be installed, for the record of versions.
        only_if_named: Whether a search takes it only where it is named.
        fits_together: Whether candidates share each pass over the rows, so that they are fitted together.
        rounds: The parameter that counts rounds, where a search finds their number while the folds are
            trained side by side (`begin`). Default: none.
        takes_losses: Whether it can be fitted under other losses than cross entropy.
        files: What `save` writes and `load` reads, first the native model.
    """

    name: str
    title: str
    module: str
    files: tuple[str, ...]
    parameters: Mapping[str, SearchRange]
    libraries: tuple[str, ...] = ()
    extra: str = ""
    packages: tuple[str, ...] = ()
    only_if_named: bool = False
    fits_together: bool = False
    rounds: str = ""
    takes_losses: bool = True

    @property
    def defaults(self) -> dict[str, Number]:
        """Every parameter with its default."""
        return {name: reach.default for name, reach in self.parameters.items()}


def _booster(**own: SearchRange) -> dict[str, SearchRange]:
    return {
        "learning_rate": SearchRange(0.02, 0.2, default=0.05, log=True),
        "n_estimators": SearchRange(50, 400, default=200, log=True),
        # In positive rows, see `raresight.boosting.defaults`.
        "leaf_weight": SearchRange(0.1, 8.0, default=0.5, log=True),
        "l2": SearchRange(0.1, 20.0, default=1.0, log=True),
        "row_fraction": SearchRange(0.5, 1.0, default=0.8),
        **own,
    }


def _net(**own: SearchRange) -> dict[str, SearchRange]:
    common = {
        "learning_rate": SearchRange(3e-4, 1e-2, default=1e-3, log=True),
        "epochs": SearchRange(3, 30, default=10, log=True),
        "width": SearchRange(32, 256, default=64, log=True),
        "weight_decay": SearchRange(1e-4, 1.0, default=1e-3, log=True),
    }
    return common | own


_SHARE = SearchRange(0.2, 1.0, default=0.7)
_NET_FILES = ("deep.safetensors", "deep.json")

# Nets only where they are named: for the bundled sample one core takes 0.7 s for a booster, 2.6 s for a plain
# net and above 20 s for the others, time that boosters then lack; and they were no better.
_FAMILIES = (
    Family(
        "linear",
        "linear",
        "linear_family",
        ("linear.json",),
        {
            "l2": SearchRange(1e-4, 10.0, default=DEFAULT_RELATIVE_L2, log=True),
            "knots": SearchRange(0, 8, default=0),
        },
        fits_together=True,
    ),
    Family(
        "lightgbm",
        "LightGBM",
        "boosted_family",
        ("lightgbm.txt", "lightgbm.txt.raresight.json"),
        _booster(num_leaves=SearchRange(4, 128, default=31, log=True), feature_fraction=_SHARE),
        libraries=("lightgbm",),
        extra="boosting",
        packages=("lightgbm",),
        rounds="n_estimators",
    ),
    Family(
        "xgboost",
        "XGBoost",
        "boosted_family",
        ("xgboost.ubj", "xgboost.ubj.raresight.json"),
        _booster(max_depth=SearchRange(2, 10, default=6), colsample_bytree=_SHARE),
        libraries=("xgboost",),
        extra="boosting",
        # The small build for machines without a GPU has a name of its own.
        packages=("xgboost", "xgboost-cpu"),
        rounds="n_estimators",
    ),
    Family(
        "forest",
        "random forest",
        "boosted_family",
        ("lightgbm.txt", "lightgbm.txt.raresight.json"),
        {
            "n_estimators": SearchRange(100, 500, default=200, log=True),
            "num_leaves": SearchRange(31, 1000, default=255, log=True),
            # LightGBM refuses a forest whose trees see all rows.
            "row_fraction": SearchRange(0.3, 0.9, default=0.632),
        },
        libraries=("lightgbm",),
        extra="boosting",
        packages=("lightgbm",),
        takes_losses=False,
    ),
    Family(
        "deep",
        "deep net",
        "deep_family",
        _NET_FILES,
        _net(),
        libraries=("torch", "safetensors"),
        extra="torch",
        packages=("torch", "safetensors"),
        only_if_named=True,
    ),
    Family(
        "tabm",
        "TabM",
        "deep_family",
        _NET_FILES,
        _net(
            width=SearchRange(32, 128, default=64, log=True),
            dropout=SearchRange(0.0, 0.5, default=0.1),
        ),
        libraries=("torch", "safetensors", "tabm"),
        extra="tabm",
        packages=("torch", "safetensors", "tabm"),
        only_if_named=True,
    ),
    Family(
        "tabnet",
        "TabNet",
        "deep_family",
        _NET_FILES,
        _net(
            learning_rate=SearchRange(3e-3, 5e-2, default=2e-2, log=True),
            width=SearchRange(4, 32, default=8, log=True),
            steps=SearchRange(2, 5, default=3),
        ),
        libraries=("torch", "safetensors"),
        extra="torch",
        packages=("torch", "safetensors"),
        only_if_named=True,
    ),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _FAMILIES}


def installed_families() -> tuple[str, ...]:
    """Return the families whose libraries are installed; `linear` needs none."""
    return tuple(name for name in FAMILIES if not _missing(name))


def require_family(name: str) -> None:
    """Raise an ImportError that names the extra if a library of the family is not installed."""
    missing = _missing(name)
    if missing:
        needed = "PyTorch" if "torch" in missing else f"the package {missing[0]}"
        extra = FAMILIES[name].extra
        raise ImportError(f"the family {name} needs {needed}: pip install 'raresight[{extra}]'")


def packages_of(families: Iterable[str]) -> list[str]:
    """Return the packages whose versions the models of these families depend on."""
    return list(dict.fromkeys(package for name in families for package in FAMILIES[name].packages))


def _missing(name: str) -> list[str]:
    return [library for library in FAMILIES[name].libraries if importlib.util.find_spec(library) is None]


# ---- what a search chooses between -------------------------------------------------------


@dataclass(frozen=True)
class Candidate:
    """A family, a loss as text, and the parameters that differ from the family's defaults.

    Args:
        family: `"linear"`, `"lightgbm"`, `"xgboost"`, `"forest"`, or of nets `"deep"`, `"tabm"`, `"tabnet"`.
        loss: Text that `raresight.losses.parse` reads, such as `"tbl(alpha=0.8,C=0.5)"`.
        parameters: Pairs of name and number; they are kept sorted by name. Linear models have `l2`, a share
            of the loss's curvature (`raresight.linear.penalties.relative_l2`), and `knots`, the most bends of
            a numeric column (`raresight.model.linear_family`). Boosted ones have `learning_rate`,
            `n_estimators`, the size of a tree (`num_leaves` for LightGBM, `max_depth` for XGBoost), the share
            of rows and of columns that a tree sees (`row_fraction`; `feature_fraction`, `colsample_bytree`),
            and `leaf_weight` and `l2`, the least Hessian of a leaf and its l2. Both count positive rows
            (`raresight.boosting.defaults`), so that they mean the same for every loss and prior. A forest has
            `n_estimators`, `num_leaves` and `row_fraction`. Nets (`raresight.deep`) have `learning_rate`,
            `epochs`, the `width` of a layer and `weight_decay`; `deep` is a plain net of two hidden layers,
            `tabm` has `dropout` besides and `tabnet` the number of its `steps`.

    >>> candidate = Candidate("lightgbm", "tbl(alpha=0.8,C=0.5)", (("num_leaves", 15), ("leaf_weight", 2.0)))
    >>> candidate.text
    'lightgbm, tbl(alpha=0.8,C=0.5), leaf_weight=2.0, num_leaves=15'
    >>> candidate.settings()["n_estimators"]
    200
    """

    family: str
    loss: str
    parameters: tuple[tuple[str, Number], ...] = ()

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"unknown family {self.family!r}; known are {', '.join(FAMILIES)}")
        if not isinstance(self.loss, str):
            raise TypeError(f"a candidate's loss is a text such as 'tbl(alpha=0.8,C=0.5)', got {self.loss!r}")
        defaults = FAMILIES[self.family].defaults
        # Sorted, so that equal candidates are equal as texts, keys and records, too.
        pairs = sorted((str(name), value) for name, value in self.parameters)
        for (name, _), (following, _) in itertools.pairwise(pairs):
            if name == following:
                raise ValueError(f"the parameter {name} is given twice")
        read = tuple((name, _read_number(self.family, defaults, name, value)) for name, value in pairs)
        object.__setattr__(self, "parameters", read)

    @property
    def text(self) -> str:
        """The candidate as one line of text."""
        return ", ".join([self.family, self.loss, *(f"{name}={value!r}" for name, value in self.parameters)])

    def describe(self) -> str:
        """Describe the candidate: `LightGBM, tbl(alpha=0.8,C=0.5), num leaves 15`."""
        shown = (f"{name.replace('_', ' ')} {value:.4g}" for name, value in self.parameters)
        return ", ".join([FAMILIES[self.family].title, self.loss, *shown])

    def having(self, **values: Number) -> Candidate:
        """Return the candidate with other values of some parameters.

        >>> Candidate("linear", "tbl").having(l2=1e-3).text
        'linear, tbl, l2=0.001'
        """
        return replace(self, parameters=tuple((dict(self.parameters) | values).items()))

    def settings(self) -> dict[str, Number]:
        """Return every parameter of the family, defaults included."""
        return FAMILIES[self.family].defaults | dict(self.parameters)

    def to_dict(self) -> dict[str, Any]:
        """Return the candidate as JSON values."""
        return {"family": self.family, "loss": self.loss, "parameters": dict(self.parameters)}

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> Candidate:
        """Read what `to_dict` wrote."""
        try:
            family, loss, parameters = (described[key] for key in ("family", "loss", "parameters"))
            pairs = tuple(parameters.items())
        except (KeyError, TypeError, AttributeError):
            raise ValueError(
                f"a candidate is described by family, loss and parameters, got {described!r}"
            ) from None
        return cls(family, loss, pairs)


def _read_number(family: str, defaults: Mapping[str, Number], name: str, value: Any) -> Number:
    if name not in defaults:
        raise ValueError(f"{family} has no parameter {name!r} here; it has {', '.join(defaults)}")
    number = check_range(value, name, least=0)
    if not isinstance(defaults[name], int):
        return number
    # A search hands whole numbers over as floats.
    return check_whole(int(number) if number == int(number) else value, name, least=0)


# ---- a fitted candidate ------------------------------------------------------------------


class FittedPart(Protocol):
    """The native model of a fitted candidate."""

    @property
    def n_columns(self) -> int:
        """Columns of the coded matrix."""

    def scores(self, X: NDArray[Any], threads: int | None) -> NDArray[Any]:
        """Raw scores z, one for each row; the score of a row does not depend on the rows around it."""

    def importance(self) -> Floats:
        """Return the share of each column; they sum to one, or are zeros for a constant model."""

    def save(self, folder: Path) -> None:
        """Write the files of the family into a folder."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted candidate of any family.

    Attributes:
        candidate: The fitted candidate.
        loss: Loss of the candidate.
        part: The native model.
        start_score: The loss-optimal constant score of the training rows.
        calibrator: Slope and level that follow the link. The identity for a member of a
            `raresight.model.Model`, which has one calibrator for all its members.
        warnings: The warnings of the fit, such as that it did not converge.
        threads: For predictions. Default: all cores.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(4000, 2))
    >>> y = rng.random(4000) < expit(3 * X[:, 0] - 6)
    >>> (fitted,) = fit_candidates([Candidate("linear", "tbl")], X, y, [], [])
    >>> bool(abs(expit(fitted.log_odds(X)).mean() / y.mean() - 1) < 1e-6)
    True
    """

    candidate: Candidate
    loss: Loss
    part: FittedPart
    start_score: float
    calibrator: Calibrator = field(default_factory=Calibrator)
    warnings: tuple[str, ...] = ()
    threads: int | None = None

    @property
    def n_columns(self) -> int:
        """Columns of the coded matrix."""
        return self.part.n_columns

    def scores(self, X: NDArray[Any]) -> NDArray[Any]:
        """Raw scores z of rows of the coded matrix."""
        return self.part.scores(X, self.threads)

    def link(self, scores: NDArray[Any]) -> Floats:
        """Turn raw scores into log-odds by the loss's link, before calibration."""
        return np.asarray(self.loss.log_odds(scores.astype(np.float64)))

    def log_odds(self, X: NDArray[Any]) -> Floats:
        """Return calibrated log-odds of the positive class."""
        scores = self.scores(X)
        return by_blocks(
            lambda rows: self.calibrator.log_odds(self.link(scores[rows])), len(scores), self.threads
        )

    def calibrated(self, calibrator: Calibrator) -> Fitted:
        """Return the fit with the calibrator added behind its own.

        >>> rng = np.random.default_rng(0)
        >>> X, y = rng.normal(size=(100, 1)), np.arange(100) % 2
        >>> (fitted,) = fit_candidates([Candidate("linear", "tbl")], X, y, [], [])
        >>> moved = fitted.calibrated(Calibrator(2.0, (1.0,))).log_odds(X)
        >>> bool(np.allclose(moved, 2 * fitted.log_odds(X) + 1))
        True
        """
        return replace(self, calibrator=self.calibrator.then(calibrator))

    def naive_probability(self, X: NDArray[Any]) -> Floats:
        """sigmoid(z), the probability under the link of cross entropy, whatever the loss."""
        return np.asarray(expit(np.asarray(self.scores(X), dtype=np.float64)))

    def importance(self) -> Floats:
        """Return the share of each column of the matrix; they sum to one, or are zeros for a constant model.

        Boosters: the gain of all splits by the column. Linear models: |coefficient| times the standard
        deviation of the feature, summed over the features of the column. Nets: the same with the mean
        |slope| of the score instead of a coefficient.
        """
        return self.part.importance()

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the native files into a folder and return the description for `load`.

        The calibrator is not written: it belongs to the model.
        """
        self.part.save(folder)
        return {
            "candidate": self.candidate.to_dict(),
            "loss": str(self.loss),
            "start_score": self.start_score,
            "n_columns": self.n_columns,
            "warnings": list(self.warnings),
        }

    @classmethod
    def load(cls, folder: Path, description: Mapping[str, Any]) -> Fitted:
        """Read what `save` wrote; predictions then take all cores.

        Raises:
            ValueError: The description lacks an entry, or does not fit the native files.
            ImportError: A library of the family is not installed.
        """
        try:
            candidate = Candidate.from_dict(description["candidate"])
            start_score = float(description["start_score"])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NonConvexLossWarning)  # said when it was fitted
                loss = parse(description["loss"])
            texts = tuple(str(text) for text in description["warnings"])
            n_columns = description["n_columns"]
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"the description of the model lacks an entry or has a wrong one: {error}"
            ) from None
        require_family(candidate.family)
        part = _module_of(candidate.family).load(folder, candidate.family)
        if part.n_columns != n_columns:
            raise ValueError(f"the native model has {part.n_columns} columns, its description {n_columns}")
        return cls(candidate, loss, part, start_score, warnings=texts)


# ---- fitting -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Checked rows to fit to.

    Attributes:
        X: The coded matrix of `Schema.matrix`: NaN is missing, categories are codes from 0 on.
        y: Labels 0 and 1.
        categorical: Positions of the columns that hold codes.
        n_categories: Number of codes of each of them.
        weights: Weights of the rows, or None.
        shares: The weighted shares of negatives and positives.
    """

    X: NDArray[Any]
    y: NDArray[np.int64]
    categorical: Sequence[int]
    n_categories: Sequence[int]
    weights: Floats | None
    shares: Floats

    def start_score(self, loss: Loss) -> float:
        """Return the constant score of least loss."""
        return start_of(loss, self.shares).scores[0]


class GrowingFit(Protocol):
    """A fit whose rounds are asked for in pieces, with rows to look at in between."""

    def grow(self, rounds: int) -> None:
        """Train so many rounds more."""

    def log_odds(self) -> Floats:
        """Return the log-odds of the watched rows, by the link of the loss alone."""


class FamilyModule(Protocol):
    """Interface of the module of a family; `begin` is there where `Family.rounds` names a parameter."""

    fit: Callable[[Sequence[Candidate], TrainingRows, int, int | None], list[Fitted]]
    load: Callable[[Path, str], FittedPart]
    begin: Callable[[Candidate, TrainingRows, NDArray[Any], NDArray[Any], int, int | None], GrowingFit]


def _module_of(family: str) -> FamilyModule:
    # Imported when it is needed: nets take seconds, and the table of families is read without fitting.
    return cast(FamilyModule, importlib.import_module(f".{FAMILIES[family].module}", __package__))


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
        candidates: Candidates of one family.
        X: The coded matrix of `Schema.matrix`: NaN is missing, categories are codes from 0 on.
        y: Labels 0 and 1.
        categorical: Positions of the columns that hold codes.
        n_categories: Number of codes of each of them.
        weights: Weights of the rows, which count as repetitions: where negatives were drawn, the inverse of
            the share drawn keeps the probabilities right.
        seed: For everything that a library draws, such as columns.
        threads: For boosters, nets and predictions; None takes all cores. Linear fits follow OMP_NUM_THREADS.

    Returns:
        One `Fitted` for each candidate, in their order. Warnings of the fits are in them and not raised.

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
    rows = _training_rows(X, y, categorical, n_categories, weights)
    return _module_of(families[0]).fit(candidates, rows, seed, threads)


def begin_candidate(
    candidate: Candidate,
    X: NDArray[Any],
    y: NDArray[Any],
    categorical: Sequence[int],
    n_categories: Sequence[int],
    *,
    watched: tuple[NDArray[Any], NDArray[Any]],
    weights: Any = None,
    seed: int = 0,
    threads: int | None = 1,
) -> GrowingFit:
    """Begin the fit of a candidate whose family trains in rounds.

    Args:
        candidate: A candidate of a family with `Family.rounds`; its own number of rounds does not count.
        X, y, categorical, n_categories, weights, seed, threads: As for `fit_candidates`.
        watched: Matrix and labels of the rows to look at.

    >>> X, y = np.arange(200.0)[:, None], np.arange(200) % 20 == 0
    >>> growing = begin_candidate(Candidate("lightgbm", "tbl"), X, y, [], [], watched=(X, y))
    >>> growing.grow(10)
    >>> growing.log_odds().shape
    (200,)
    """
    rows = _training_rows(X, y, categorical, n_categories, weights)
    return _module_of(candidate.family).begin(candidate, rows, *watched, seed, threads)


def _training_rows(
    X: NDArray[Any], y: Any, categorical: Sequence[int], n_categories: Sequence[int], weights: Any
) -> TrainingRows:
    codes, row_weights = _read(X, y, weights)
    shares = shares_of(codes, row_weights, np.arange(2))
    return TrainingRows(X, codes, categorical, n_categories, row_weights, shares)


def _read(X: NDArray[Any], y: Any, weights: Any) -> tuple[NDArray[np.int64], Floats | None]:
    labels = np.asarray(y)
    if labels.shape != (len(X),):
        raise ValueError(f"y must hold {len(X)} labels, one for each row, but has the shape {labels.shape}")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("y must hold 0 and 1 only")
    codes = labels.astype(np.int64)
    if codes.min(initial=1) == codes.max(initial=0):
        raise ValueError(f"y holds one class only, {codes[0]}: a model needs rows of both")
    row_weights = check_weights(weights, len(codes), of="X", name="weights")
    return codes, None if row_weights is None else row_weights.astype(np.float64, copy=False)


@contextmanager
def kept_warnings(*own: type[Warning]) -> Iterator[list[str]]:
    """Collect the warnings of a fit for `Fitted.warnings`; raise all others again.

    A search fits hundreds of candidates, so a warning belongs to its candidate. `own` are those of the
    family, beside the ones that every family has.
    """
    ours = (NonConvexLossWarning, ConvergenceWarning, *own)
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
