"""The contract of a loss: the members that every loss has, and their shape rule.

An author of a loss writes a `raresight.losses.margin.MarginLoss` and gives it a name, parameters (`param`),
`phi` and `log_slope`. These are derived:

- values and derivatives for scores and class logits, and the text of the loss;
- links, calibrated probabilities and the start score;
- the decay index and the limits of the theory;
- torch modules, stacks of replicas, and the fast passes of boosters and linear solvers.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from ._inputs import Problem, is_tensor, read_problem, read_scores
from ._numpy_ops import Array, NumpyOps, Ops
from .link import invert_increasing, solve_class_scores
from .parameters import SearchRange, check_parameters, search_ranges
from .tails import Tail

__all__ = ["Array", "ComposedLoss", "Loss", "NormalForm", "Ops"]


@dataclass(frozen=True)
class NormalForm:
    """A loss as phi of a linear map of the score, with plain numbers: how stacks and plans compute it.

    A binary score: l(y, z) = weights[y] phi(scales[y] z + shifts[y]), with a negative scale for label 0 and
    `margins` zero. Class logits: with g = scales f + shifts, less margins[y] at the label y, and
    m = g_y - logsumexp of the other g,

        l(y, f) = weights[y] phi(m),

    times (1 + sum_j w_j^2)/2 over the softmax w of the others where the loss `counts_spread` (the squared
    loss).

    Attributes:
        phi: `phi(ops, m, order, *numbers)`.
        numbers: The numbers of phi.
        kernel: The name of a hand-written GPU kernel of phi, if there is one.
    """

    phi: Callable[..., tuple[Array, ...]]
    numbers: tuple[float, ...]
    scales: tuple[float, ...]
    shifts: tuple[float, ...]
    margins: tuple[float, ...]
    weights: tuple[float, ...]
    counts_spread: bool = False
    kernel: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the loss of a binary score is phi(z) for a positive and phi(-z) for a negative."""
        plain = ((-1.0, 1.0), (0.0, 0.0), (1.0, 1.0))
        return (self.scales, self.shifts, self.weights) == plain

    def shifted(self, added: tuple[float, ...]) -> NormalForm:
        """The same loss of scores to which a number for each label, or each logit, was added."""
        shifts = (s + a * b for s, a, b in zip(self.shifts, self.scales, added, strict=True))
        return replace(self, shifts=tuple(shifts))

    def weighted(self, weights: tuple[float, ...]) -> NormalForm:
        """The same loss with class weights."""
        return replace(self, weights=tuple(a * b for a, b in zip(self.weights, weights, strict=True)))


class Loss(ABC):
    """A loss l(y, z) of a raw score z: frozen, hashable, comparable, with nothing to fit.

    Shape rule: `y` of the same shape as `z` holds 0/1 labels (binary or multi-label). Integer `y`
    with one axis less than `z` holds class numbers. The class axis is the last in NumPy and
    axis 1 in torch. NumPy in, NumPy out; torch in, torch out; float32 stays float32; float16 and
    bfloat16 are computed and returned in float32. Nothing is reduced.

    Torch results carry no graph: to train, take the loss as a module of `raresight.nn`, whose gradient
    is the closed form given here.

    A finite score never gives NaN or infinity. A value, gradient or Hessian beyond the range of its type
    becomes the largest finite number of its sign.
    """

    name: ClassVar[str]
    """The name for `parse` and the command line: one lower-case word."""
    formula: ClassVar[str] = ""
    """Of the margin m and p = sigma(m), for tables."""
    aliases: ClassVar[tuple[str, ...]] = ()
    """Other names, as in papers."""
    convexity: ClassVar[str] = ""
    """When it is convex in the score, for tables. Default: yes or no, by `is_convex` of its example."""
    link: ClassVar[str] = "by iteration"
    """The log-odds at a score z, for tables."""
    place: ClassVar[float] = math.inf
    """Its place in tables of losses. Default: behind those of this package, by name."""
    search_place: ClassVar[float | None] = None
    """Its place among the losses that a search tries by default. Default: not among them."""
    search_grid: ClassVar[Mapping[str, tuple[float, ...]]] = {}
    """Values of two parameters; a search of linear models tries every pair, for a map."""
    score_form: ClassVar[str] = ""
    """How it is written for a binary score, where that differs from the form for class logits."""
    torch_name: ClassVar[str] = ""
    """`TBL` of `raresight.nn.TBLLoss` and `tbl_loss`. Default: the name of the class."""

    def __post_init__(self) -> None:
        check_parameters(self)

    # ---- values and derivatives ----------------------------------------------------------

    def value(self, z: Array, y: Array) -> Array:
        """The loss of each score: l(y, z), elementwise; for class logits, one number per sample."""
        return self.derivatives(z, y, order=0)[0]

    def gradient(self, z: Array, y: Array) -> Array:
        """dl/dz, of the shape of `z`; for class logits the full gradient."""
        return self.derivatives(z, y, order=1)[1]

    def hessian(self, z: Array, y: Array) -> Array:
        """d2l/dz2 of a binary score. For class logits see `hessian_diagonal`, `hessian_matrix`."""
        problem = self._read(z, y)
        if problem.multiclass:
            raise ValueError(
                "the Hessian of class logits is one matrix per sample: use hessian_diagonal or hessian_matrix"
            )
        return self._finish(problem, 2)[2]

    def hessian_diagonal(self, z: Array, y: Array) -> Array:
        """The second derivative by each score or logit alone, of the shape of `z`."""
        return self.derivatives(z, y, order=2)[2]

    def hessian_matrix(self, f: Array, y: Array) -> Array:
        """The full Hessian of class logits: shape (..., K, K), the two class axes last."""
        problem = self._read(f, y)
        if not problem.multiclass:
            raise ValueError("hessian_matrix needs class logits: y with one axis less than f")
        ops = problem.ops
        with ops.guard():
            return self._class_hessian(ops, problem.z, problem.y)

    def derivatives(self, z: Array, y: Array, order: int = 2) -> tuple[Array, ...]:
        """(value, gradient, second derivative) up to `order`, sharing the work between them."""
        if order not in (0, 1, 2):
            raise ValueError(f"order must be 0, 1 or 2, got {order!r}")
        return self._finish(self._read(z, y), order)

    # ---- what it estimates ---------------------------------------------------------------

    def log_odds(self, z: Array) -> Array:
        """Inverse link: the calibrated logit of P(y=1|x) at score z.

        lambda(z) = log l'(0, z) - log(-l'(1, z)), the log-odds at which z minimises the risk.
        """
        self._need_link()
        ops, scores = read_scores(z)
        with ops.guard():
            return _present(ops.finite(ops.like(self._log_odds(ops, ops.to_double(scores)), scores)))

    def score(self, log_odds: Array) -> Array:
        """Link: the score that minimises the pointwise risk when the log-odds are `log_odds`."""
        self._need_link()
        ops, target = read_scores(log_odds, name="log_odds")
        with ops.guard():
            return _present(ops.finite(ops.like(self._score(ops, ops.to_double(target)), target)))

    def probability(self, z: Array, *, multiclass: bool | None = None) -> Array:
        """Calibrated probability: sigmoid of `log_odds`, or the posterior over K classes.

        `multiclass=True` reads `z` as class logits. Default: true for a loss that was built for more than
        two classes, false for any other.
        """
        if multiclass is None:
            multiclass = not self.takes_score
        ops, scores = read_scores(z)
        with ops.guard():
            if multiclass:
                self._need_unique()
                self._need_classes(scores.shape[ops.class_axis(scores)])
                eta = ops.exp(self._class_log_posterior(ops, ops.to_double(scores)))
            else:
                self._need_link()
                eta = ops.sigmoid(self._log_odds(ops, ops.to_double(scores)))
        return _present(ops.like(eta, scores))

    def log_posterior(self, z: Array) -> np.ndarray[Any, Any]:
        """Logarithms of the calibrated probabilities of all classes, (n, K), in float64.

        `z` holds (n,) scores, for two classes, or (n, K) class logits.
        """
        scores = np.asarray(z, dtype=np.float64)
        if scores.ndim == 1:
            log_odds = np.asarray(self.log_odds(scores))
            return np.asarray(-np.logaddexp(0.0, np.stack([log_odds, -log_odds], axis=1)))
        return self._numpy_posterior(scores)

    def _numpy_posterior(self, f: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with NumpyOps.guard():
            return np.asarray(self._class_log_posterior(NumpyOps, f))

    def class_scores(self, probability: Array) -> np.ndarray[Any, Any]:
        """Class logits whose posterior is `probability`, K positive numbers that sum to one."""
        eta = np.asarray(probability, dtype=np.float64)
        if eta.ndim != 1 or eta.size < 2:
            raise ValueError(f"probability must be a vector of at least 2 numbers, got shape {eta.shape}")
        if not (np.all(eta > 0) and abs(eta.sum() - 1) < 1e-6):
            raise ValueError(f"probability must be positive and sum to one, got {eta}")
        self._need_classes(eta.size)
        found = solve_class_scores(self._numpy_posterior, np.log(eta / eta.sum()))
        if found is None:
            raise RuntimeError(f"{self}: no logits found whose posterior is {eta}")
        return found

    # ---- properties ----------------------------------------------------------------------

    @property
    def is_monotone(self) -> bool:
        """l(1, z) never rises and l(0, z) never falls in z."""
        return True

    @property
    def is_convex(self) -> bool:
        """l(1, z) and l(0, z) are convex in z (then K-class losses are convex in the logits)."""
        return True

    @property
    def has_unique_minimiser(self) -> bool:
        """Every pointwise risk has exactly one minimiser: the link is strictly increasing."""
        return True

    @property
    def takes_score(self) -> bool:
        """Whether a binary score is accepted."""
        return True

    @property
    def n_classes(self) -> int | None:
        """How many class logits are expected; None for any number, 1 for a binary score only."""
        return None

    def __str__(self) -> str:
        """The text that `parse` reads back: `tbl(alpha=0.8,C=0.5)`."""
        parameters = ",".join(f"{key}={_text(value)}" for key, value in self.parameters().items())
        return f"{self.name}({parameters})" if parameters else self.name

    def parameters(self) -> dict[str, Any]:
        """The hyper-parameters by name."""
        fields = (field for field in dataclasses.fields(self) if field.init)  # type: ignore[arg-type]
        return {field.name: getattr(self, field.name) for field in fields}

    @property
    def prefers_deferred_weights(self) -> bool:
        """Whether training is to weigh classes only in its last epochs (LDAM)."""
        return False

    # ---- tails, and the form for stacks and plans ----------------------------------------

    def tail(self) -> Tail | None:
        """How the gradient of a binary score behaves far out; None where it is not known."""
        return None

    def normal_form(self, outputs: int = 1) -> NormalForm | None:
        """The loss as numbers for a binary score (outputs = 1) or so many class logits; None without one."""
        return None

    # ---- construction --------------------------------------------------------------------

    @classmethod
    def example(cls) -> Self:
        """One of its kind, for tables and pictures."""
        return cls()

    @classmethod
    def with_prior(cls, prior: Any, tau: float, /, **parameters: Any) -> Loss:
        """The loss with these parameters, logit-adjusted by tau where a prior is given."""
        from .logit_adjusted import LogitAdjusted

        loss = cls(**parameters)
        return loss if prior is None else LogitAdjusted(loss, prior, tau)

    @classmethod
    def search_ranges(cls) -> dict[str, SearchRange]:
        """The parameters that a search tunes, by name."""
        return search_ranges(cls)

    @classmethod
    def for_search(cls, values: Mapping[str, float], class_counts: Sequence[float]) -> Loss:
        """The loss that a search tries with these values of its parameters.

        Args:
            values: By name; parameters that are not searched have their defaults.
            class_counts: Negatives and positives of the training rows.
        """
        return cls(**values)

    # ---- provided by each loss -----------------------------------------------------------
    # Scores are checked, finite and in the precision of the computation; labels are 0.0/1.0. Results must
    # be finite, too: a loss that can overflow saturates its own terms.

    @abstractmethod
    def _labelled(self, ops: Ops, z: Array, y: Array, order: int) -> tuple[Array, ...]:
        """Value and derivatives at each score for its label."""

    @abstractmethod
    def _branch(self, ops: Ops, z: Array, label: int, order: int) -> tuple[Array, ...]:
        """Value and derivatives at every score for one label."""

    @abstractmethod
    def _log_slopes(self, ops: Ops, z: Array, label: int) -> tuple[Array, Array]:
        """log |l'(label, z)| and its derivative by z, accurate where l' itself underflows."""

    @abstractmethod
    def _log_value(self, ops: Ops, z: Array, label: int) -> Array:
        """log l(label, z), accurate where l itself overflows or underflows."""

    @abstractmethod
    def _class_terms(self, ops: Ops, f: Array, y: Array, order: int) -> tuple[Array, ...]:
        """Value, gradient and Hessian diagonal for class logits."""

    @abstractmethod
    def _class_hessian(self, ops: Ops, f: Array, y: Array) -> Array:
        """Full Hessian for class logits, class axes last."""

    @abstractmethod
    def _class_log_posterior(self, ops: Ops, f: Array) -> Array:
        """Log of the class probabilities at which the logits `f` minimise the risk."""

    def _log_odds(self, ops: Ops, z: Array) -> Array:
        return self._log_slopes(ops, z, 0)[0] - self._log_slopes(ops, z, 1)[0]

    def _score(self, ops: Ops, log_odds: Array) -> Array:
        def link(z: Array) -> tuple[Array, Array]:
            negative, positive = self._log_slopes(ops, z, 0), self._log_slopes(ops, z, 1)
            return negative[0] - positive[0], negative[1] - positive[1]

        return invert_increasing(ops, link, log_odds, self._score_start(ops, log_odds))

    def _score_start(self, ops: Ops, log_odds: Array) -> Array:
        """Where the search for `score` starts; any finite number will do, a near one is faster."""
        return log_odds

    @abstractmethod
    def _class_expected(self, ops: Ops, f: Array, shares: Array) -> tuple[Array, Array]:
        """sum_k shares_k l(k, f) and its gradient, for class logits and soft labels."""

    @abstractmethod
    def _class_hvp(self, ops: Ops, f: Array, y: Array, u: Array) -> Array:
        """The Hessian for class logits times u, without forming it."""

    @abstractmethod
    def _class_expected_hvp(self, ops: Ops, f: Array, shares: Array, u: Array) -> Array:
        """The Hessian of sum_k shares_k l(k, f) times u."""

    def _mixed(self, ops: Ops, z: Array, positive: Array, negative: Array, order: int) -> tuple[Array, ...]:
        """positive l(1, z) + negative l(0, z), for soft labels."""
        z = ops.finite(z)  # an infinite loss of the other label times a share of zero is not a number
        pairs = zip(self._branch(ops, z, 1, order), self._branch(ops, z, 0, order), strict=True)
        return tuple(positive * a + negative * b for a, b in pairs)

    # ---- shared steps --------------------------------------------------------------------

    def _read(self, z: Array, y: Array) -> Problem:
        problem = read_problem(z, y)
        if problem.multiclass:
            self._need_classes(problem.z.shape[problem.ops.class_axis(problem.z)])
        elif not self.takes_score:
            raise ValueError(
                f"{self} is for {self.n_classes} class logits: y must have one axis less than z, "
                f"got the same shape {tuple(problem.z.shape)}"
            )
        return problem

    def _finish(self, problem: Problem, order: int) -> tuple[Array, ...]:
        ops = problem.ops
        with ops.guard():
            terms = (self._class_terms if problem.multiclass else self._labelled)(
                ops, problem.z, problem.y, order
            )
            return tuple(_present(term) for term in terms)

    def _need_link(self) -> None:
        if not self.takes_score:
            raise ValueError(f"{self} is for {self.n_classes} class logits; it has no binary link")
        self._need_unique()

    def _need_unique(self) -> None:
        if not self.has_unique_minimiser:
            raise ValueError(
                f"{self} has no calibrated probability: its pointwise risk has no unique minimiser"
            )

    def _need_classes(self, n_classes: int) -> None:
        if self.n_classes == 1:
            raise ValueError(f"{self} takes a binary score: pass y of the same shape as z")
        if self.n_classes is not None and n_classes != self.n_classes:
            raise ValueError(f"{self} is for {self.n_classes} class logits, got {n_classes}")


def _present(a: Array) -> Array:
    """Return a NumPy scalar instead of an array without axes."""
    return a if is_tensor(a) else a[()]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        inner = ",".join(_text(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return str(value) if isinstance(value, Loss) else repr(value)


class ComposedLoss(Loss):
    """A loss that scales or shifts a base loss, and so keeps its properties."""

    base: Loss

    @property
    def is_monotone(self) -> bool:
        return self.base.is_monotone

    @property
    def is_convex(self) -> bool:
        return self.base.is_convex

    @property
    def has_unique_minimiser(self) -> bool:
        return self.base.has_unique_minimiser

    @property
    def prefers_deferred_weights(self) -> bool:
        return self.base.prefers_deferred_weights

    def _check_base(self, n: int, what: str) -> None:
        """Check that `n` numbers, one per class, fit the classes of the base loss."""
        owner = type(self).__name__
        if not isinstance(self.base, Loss):
            raise TypeError(f"{owner}: base must be a loss, got {self.base!r}")
        classes = self.base.n_classes
        if classes not in (None, n) and not (classes == 1 and n == 2):
            raise ValueError(f"{owner}: {n} {what} for {self.base}, a loss of {classes} classes")

    def _classes_with(self, n: int) -> int:
        return 1 if self.base.n_classes == 1 else n
