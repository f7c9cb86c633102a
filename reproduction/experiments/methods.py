"""The losses that are compared, their candidate parameters, and the choice between candidates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raresight.losses import LDAM, TBL, Alpha, CrossEntropy, Focal, LogitAdjusted, Loss, Poly, VectorScaling

from .net_trial import NetTrial, Parameters

# ---- Losses ------------------------------------------------------------------------------------------------

METHODS = ("CE", "CE+LA", "Focal+LA", "LDAM-DRW", "Poly+LA", "VS", "alpha+LA", "TBL", "TBL+LA")
"""LA: logit adjustment with tau = 1. DRW: deferred reweighting, with cosines as scores."""

REFERENCE = "CE+LA"
"""The reference of comparisons. The paper calls it "CE", but adjusts it."""


@dataclass(frozen=True)
class _Choice:
    """The paper's optimum, and other settings far from it, in the order of trials."""

    paper: Parameters
    others: tuple[Parameters, ...]


def _tbl(alpha: float, C: float) -> Parameters:
    return (("alpha", alpha), ("C", C))


def _vs(tau: float, gamma: float) -> Parameters:
    return (("tau", tau), ("gamma", gamma))


_TBL_OTHERS = (_tbl(0.9, 0.5), _tbl(0.7, 1.0), _tbl(0.7, 0.5))
_CHOICES = {
    "Focal+LA": _Choice((("gamma", 1.0),), ((("gamma", 2.0),), (("gamma", 4.0),))),
    "Poly+LA": _Choice((("epsilon", -0.5),), ((("epsilon", 1.0),), (("epsilon", 0.25),))),
    "VS": _Choice(_vs(1.25, 0.2), (_vs(1.25, 0.1), _vs(1.75, 0.2), _vs(1.25, 0.2))),
    "alpha+LA": _Choice((("alpha", 0.7),), ((("alpha", 0.9),), (("alpha", 0.8),))),
    "TBL": _Choice(_tbl(0.7, 0.5), _TBL_OTHERS),
    "TBL+LA": _Choice(_tbl(0.7, 0.5), _TBL_OTHERS),
}

# Optima of Appendix D that differ from those above, by set or task, and rho. Those of several classes are not
# printed: the optima of the binary CIFAR-10 are used. The paper does not train the alpha loss itself, which
# gets TBL's alpha.
_PRINTED: dict[tuple[str, float], dict[str, Parameters]] = {
    ("cifar100", 0.1): {"TBL": _tbl(0.9, 0.5)},
    ("cifar100", 0.01): {"TBL": _tbl(0.7, 1.0)},
    ("tinyimagenet", 0.1): {"TBL": _tbl(0.7, 1.0)},
    ("tinyimagenet", 0.05): {"TBL": _tbl(0.7, 1.0)},
    ("tinyimagenet", 0.01): {"TBL": _tbl(0.9, 0.5)},
    ("pair", 0.002): {"TBL": _tbl(0.8, 0.5), "VS": _vs(1.25, 0.1), "Poly+LA": (("epsilon", -0.75),)},
    ("pair", 0.01): {"TBL": _tbl(0.8, 0.5), "VS": _vs(1.25, 0.1), "Poly+LA": (("epsilon", -0.75),)},
    ("pair", 0.05): {"TBL": _tbl(0.85, 0.5), "VS": _vs(1.25, 0.1)},
}


def paper_parameters(method: str, dataset: str, task: str, rho: float) -> Parameters:
    """Return the parameters of the paper's Appendix D.

    >>> paper_parameters("TBL+LA", "cifar10", "pair", 0.05)
    (('alpha', 0.85), ('C', 0.5))
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, but is {method!r}")
    if method not in _CHOICES:
        return ()
    printed = _PRINTED.get(("pair" if task == "pair" else dataset, rho), {})
    if method == "alpha+LA":
        return (("alpha", dict(printed.get("TBL", _CHOICES["TBL"].paper))["alpha"]),)
    return printed.get("TBL" if method == "TBL+LA" else method, _CHOICES[method].paper)


def candidates(method: str, dataset: str, task: str, rho: float, count: int) -> tuple[Parameters, ...]:
    """Return the `count` parameter settings to try: the paper's optimum first, then others far from it.

    Every loss with parameters has the same number, so that none wins by more tries. The paper's grids have 9
    (focal, poly), 25 (VS) and 20 (TBL) settings.

    >>> candidates("Focal+LA", "cifar10", "halves", 0.01, 2)
    ((('gamma', 1.0),), (('gamma', 2.0),))
    """
    paper = paper_parameters(method, dataset, task, rho)
    if not paper:
        return (paper,)
    return tuple(dict.fromkeys((paper, *_CHOICES[method].others)))[:count]


def is_cosine(method: str) -> bool:
    """Return whether the scores of a method are cosines."""
    return method in ("LDAM", "LDAM-DRW")


def build_loss(method: str, parameters: Parameters, class_counts: Sequence[int]) -> Loss:
    """Return the loss of a method for class counts: (negatives, positives), or those of K classes.

    VS with one score has l(1, z) = log(1 + e^(iota - delta z)), l(0, z) = log(1 + e^(z - iota)) with
    delta = (n_1/n_max)^gamma and iota = -tau log(n_1/n_0); with K logits it is CE(D f + iota).

    >>> str(build_loss("TBL+LA", (("alpha", 0.7), ("C", 0.5)), (99, 1)))
    'logitadjusted(base=tbl(alpha=0.7,C=0.5),prior=0.01,tau=1.0)'
    """
    counts, values = tuple(float(count) for count in class_counts), dict(parameters)
    if is_cosine(method):
        return LDAM(counts)
    if method == "VS":
        if len(counts) > 2:
            return VectorScaling.from_counts(counts, **values)
        shift = values["tau"] * math.log(counts[1] / counts[0])
        slopes = [(count / max(counts)) ** values["gamma"] for count in counts]
        return VectorScaling(slopes[1], delta_neg=slopes[0], iota_pos=-shift, iota_neg=shift)
    kinds = {"CE": CrossEntropy, "Focal": Focal, "Poly": Poly, "alpha": Alpha, "TBL": TBL}
    name, _, adjusted = method.partition("+")
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, but is {method!r}")
    base: Loss = kinds[name](**values)
    if not adjusted:
        return base
    shares = tuple(count / sum(counts) for count in counts)
    return LogitAdjusted(base, shares[1] if len(shares) == 2 else shares)


# ---- Choice ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """A chosen setting and its value.

    Attributes:
        parameters: Parameters of the loss.
        lr: Learning rate.
        value: Mean of the metric over draws; minus infinity if no setting had finite scores.
        tries: Number of settings to choose from.
    """

    parameters: Parameters
    lr: float
    value: float
    tries: int


def choose(records: Sequence[Mapping[str, Any]], column: str) -> dict[str, Chosen]:
    """Choose for each method the setting with the largest mean of `column` in the last epoch.

    The mean is over draws and seeds. A training that was frozen has the value minus infinity, so that a
    setting that fails in one draw is not chosen if another is finite. Ties go to the first setting.
    """
    values: dict[str, dict[tuple[Parameters, float], list[float]]] = {}
    for record in records:
        trial = NetTrial.from_dict(record["trial"])
        last = record["curve"][column][-1]
        failed = last is None or record["frozen"] is not None
        settings = values.setdefault(trial.method, {})
        settings.setdefault((trial.parameters, trial.lr), []).append(-math.inf if failed else last)
    chosen = {}
    for method, settings in values.items():
        means = {setting: sum(found) / len(found) for setting, found in settings.items()}
        best = max(means, key=means.__getitem__)
        chosen[method] = Chosen(*best, means[best], len(means))
    return chosen
