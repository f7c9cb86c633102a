"""The losses that every test of the matrix runs over, and the reference values."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from raresight.losses import (
    LDAM,
    TBL,
    Alpha,
    ClassWeighted,
    CrossEntropy,
    Erf,
    Focal,
    LogitAdjusted,
    Loss,
    NonConvexLossWarning,
    Poly,
    Squared,
    VectorScaling,
)

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "golden_losses.json").read_text())


def non_convex_tbl(alpha: float, C: float) -> TBL:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonConvexLossWarning)
        return TBL(alpha, C)


def golden_loss(name: str, params: dict[str, Any]) -> Loss:
    """The loss that an entry of the reference file names."""
    number = {key: float(value) for key, value in params.items() if key not in ("base", "counts")}
    if name == "ldam":
        # The file gives margins; margins go with n^(-1/4), so these counts have them.
        ratio = (number["m_pos"] / number["m_neg"]) ** 4
        return LDAM((ratio, 1.0), number["m_pos"], number["s"])
    if name == "logit_adjusted":
        base = CrossEntropy() if params["base"] == "ce" else TBL(number["alpha"], number["C"])
        return LogitAdjusted(base, number["rho"] / (1 + number["rho"]), number["tau"])
    kinds = {
        "ce": CrossEntropy,
        "square": Squared,
        "erf": Erf,
        "focal": Focal,
        "poly": Poly,
        "vs_delta": VectorScaling,
        "alpha": Alpha,
        "tbl": TBL,
    }
    return kinds[name](**number)


GOLDEN_POINTWISE = [
    (golden_loss(case["loss"], case["params"]), case["z"]) for case in GOLDEN["losses"]["pointwise"]
]

# Every kind of loss, its limits and its compositions, on a binary score.
BINARY_LOSSES: list[Loss] = [
    *(loss for loss, _ in GOLDEN_POINTWISE),
    Focal(0.0),
    Focal(0.3),
    Focal(5.0),
    Poly(-1.0),
    Poly(-0.999),
    Poly(3.0),
    Alpha(0.05),
    Alpha(3.0),
    TBL(1.0, 1.0),
    TBL(0.3, 2.0),
    TBL(0.999999, 0.5),
    non_convex_tbl(0.4, 4.0),
    non_convex_tbl(2.0, 0.3),
    VectorScaling(2.0, delta_neg=0.5, iota_pos=1.5, iota_neg=-0.7),
    LDAM((1000, 10), max_margin=1.0, scale=1.0),
    LogitAdjusted(Focal(1.0), 0.001, tau=1.5),
    LogitAdjusted(VectorScaling(0.5), 0.1),
    ClassWeighted(TBL(), (0.5, 20.0)),
    ClassWeighted(LogitAdjusted(Erf(), 0.05), (1.0, 3.0)),
]

# The same for four class logits.
CLASS_LOSSES: list[Loss] = [
    CrossEntropy(),
    Squared(),
    Erf(),
    Focal(2.0),
    Focal(0.5),
    Poly(-0.5),
    Poly(1.0),
    Alpha(0.5),
    Alpha(0.7),
    Alpha(3.0),
    TBL(),
    TBL(0.5, 2.0),
    VectorScaling.from_counts((5000, 1000, 200, 40)),
    LDAM((5000, 1000, 200, 40), scale=3.0),
    LogitAdjusted(TBL(), (0.7, 0.2, 0.09, 0.01)),
    LogitAdjusted(LDAM((5000, 1000, 200, 40), scale=2.0), (0.7, 0.2, 0.09, 0.01), tau=0.5),
    ClassWeighted(Focal(1.0), (1.0, 2.0, 3.0, 4.0)),
    ClassWeighted(Squared(), (1.0, 2.0, 3.0, 4.0)),
]

# One of each kind, with the limits that take another branch: for tests outside tests/losses.
SOME_LOSSES: list[Loss] = [
    CrossEntropy(),
    Squared(),
    Erf(),
    Focal(2.0),
    Poly(-1.0),
    Poly(1.0),
    Alpha(0.5),
    Alpha(3.0),
    TBL(),
    non_convex_tbl(2.0, 0.3),
    VectorScaling(2.0, delta_neg=0.5, iota_pos=1.5, iota_neg=-0.7),
    LDAM((1000, 10), max_margin=1.0, scale=1.0),
    LogitAdjusted(Focal(1.0), 0.001, tau=1.5),
    ClassWeighted(LogitAdjusted(Erf(), 0.05), (1.0, 3.0)),
]

SOME_CLASS_LOSSES: list[Loss] = [
    CrossEntropy(),
    Squared(),
    Focal(0.5),
    TBL(0.5, 2.0),
    LDAM((5000, 1000, 200, 40), scale=3.0),
    LogitAdjusted(TBL(), (0.7, 0.2, 0.09, 0.01)),
    ClassWeighted(Focal(1.0), (1.0, 2.0, 3.0, 4.0)),
]


def has_link(loss: Loss) -> bool:
    return loss.has_unique_minimiser
