"""The numbers that the paper prints: mean and standard deviation over its 3 trials."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from .experiments.net_trial import CLASS_TASKS

# ---- Tables 2 and 4, Appendix D ----------------------------------------------------------------------------

PAPER_TRIALS = 3

PAPER_NAMES = {
    "CE+LA": "CE",
    "Focal+LA": "Focal",
    "LDAM-DRW": "LDAM",
    "Poly+LA": "Poly",
    "VS": "VS",
    "TBL": "TBL",
    "TBL+LA": "TBL",
}
"""What the paper calls a method. It does not say whether its TBL is adjusted: both stand beside it."""


@dataclass(frozen=True)
class Printed:
    """A number of the paper, on the scale from 0 to 1; the deviation is None where it prints none."""

    mean: float
    deviation: float | None = None


# Table 2: rho 0.1, 0.05, 0.01, each with ACC, its deviation, AUC and its deviation, in percent.
_TABLE2: dict[str, dict[str, tuple[float, ...]]] = {
    "cifar10": {
        "CE": (85.82, 0.201, 93.90, 0.270, 83.23, 0.379, 91.80, 0.359, 70.14, 1.505, 85.41, 0.605),
        "Focal": (85.41, 0.523, 93.50, 0.292, 83.09, 0.573, 91.43, 0.323, 75.59, 1.103, 85.10, 0.578),
        "LDAM": (85.72, 1.054, 93.53, 0.361, 79.38, 1.761, 91.33, 0.361, 75.52, 1.001, 85.98, 0.534),
        "Poly": (86.30, 0.623, 93.82, 0.396, 83.72, 0.649, 91.86, 0.639, 77.58, 0.197, 85.95, 0.382),
        "VS": (86.50, 0.078, 94.08, 0.149, 83.54, 0.119, 91.70, 0.198, 77.66, 0.501, 85.93, 0.231),
        "TBL": (87.16, 0.428, 94.65, 0.337, 84.34, 0.185, 92.75, 0.320, 77.89, 0.163, 86.41, 0.063),
    },
    "cifar100": {
        "CE": (61.78, 0.701, 68.98, 0.463, 58.53, 1.377, 65.31, 0.125, 52.07, 0.630, 60.18, 0.270),
        "Focal": (62.58, 0.641, 68.69, 0.462, 59.83, 0.547, 65.15, 0.393, 55.40, 0.549, 59.77, 0.461),
        "LDAM": (57.74, 0.709, 66.89, 0.334, 58.30, 0.231, 64.09, 0.211, 55.21, 0.794, 59.31, 1.058),
        "Poly": (62.87, 0.202, 68.87, 0.146, 60.14, 0.174, 65.45, 0.275, 56.43, 0.675, 59.56, 1.031),
        "VS": (62.96, 0.332, 68.76, 0.458, 60.16, 0.129, 65.29, 0.128, 56.87, 0.451, 60.22, 0.413),
        "TBL": (63.43, 0.179, 69.40, 0.161, 60.64, 0.285, 65.86, 0.349, 57.30, 0.167, 60.41, 0.210),
    },
    "tinyimagenet": {
        "CE": (51.21, 0.324, 56.00, 0.102, 50.61, 0.242, 55.18, 0.113, 50.22, 0.141, 54.04, 0.563),
        "Focal": (53.72, 0.136, 56.28, 0.270, 53.34, 0.122, 55.15, 0.388, 52.68, 0.156, 53.92, 0.281),
        "LDAM": (51.90, 0.359, 55.27, 0.172, 51.41, 0.543, 54.94, 0.493, 50.53, 0.167, 54.06, 0.250),
        "Poly": (53.53, 0.197, 55.94, 0.231, 53.13, 0.313, 55.06, 0.176, 52.34, 0.189, 53.95, 0.350),
        "VS": (53.81, 0.294, 55.70, 0.034, 52.57, 0.073, 54.97, 0.543, 52.27, 0.274, 53.37, 0.380),
        "TBL": (54.39, 0.459, 56.64, 0.564, 53.45, 0.501, 55.45, 0.494, 53.13, 0.488, 54.40, 0.654),
    },
}

# Table 4: exponential at rho 0.1 and 0.01, step at rho 0.1 and 0.01, accuracy and deviation in percent.
_TABLE4: dict[str, tuple[float, ...]] = {
    "LDAM": (87.64, 0.31, 77.03, 0.69, 87.82, 0.12, 76.92, 0.37),
    "Focal": (88.71, 0.08, 78.92, 0.12, 88.64, 0.15, 78.76, 0.23),
    "Poly": (88.55, 0.13, 78.18, 0.53, 88.88, 0.19, 78.11, 0.42),
    "VS": (88.72, 0.16, 80.23, 0.54, 88.93, 0.18, 80.16, 0.21),
    "TBL": (89.08, 0.12, 80.36, 0.32, 89.16, 0.22, 80.28, 0.28),
}

Key = tuple[str, str, float, str, str]
"""Data set, task, rho, metric, the paper's name of the method."""

TABLE2: dict[Key, Printed] = {
    (dataset, "halves", rho, metric, name): Printed(row[4 * i + 2 * j] / 100, row[4 * i + 2 * j + 1] / 100)
    for dataset, rows in _TABLE2.items()
    for name, row in rows.items()
    for i, rho in enumerate((0.1, 0.05, 0.01))
    for j, metric in enumerate(("accuracy", "roc_auc"))
}

TABLE4: dict[Key, Printed] = {
    ("cifar10", task, rho, "accuracy", name): Printed(row[4 * i + 2 * j] / 100, row[4 * i + 2 * j + 1] / 100)
    for name, row in _TABLE4.items()
    for i, task in enumerate(CLASS_TASKS)
    for j, rho in enumerate((0.1, 0.01))
}

MINORITY: dict[Key, Printed] = {
    ("cifar10", "pair", rho, "minority_accuracy", "TBL"): Printed(value)
    for rho, value in ((0.002, 0.639), (0.01, 0.785), (0.05, 0.868))
}

_BRIER = {
    "LDAM": (0.215, 0.183, 0.130),
    "Focal": (0.216, 0.151, 0.115),
    "Poly": (0.208, 0.165, 0.122),
    "VS": (0.197, 0.160, 0.115),
    "TBL": (0.190, 0.145, 0.112),
}
BRIER: dict[Key, Printed] = {
    ("cifar10", "pair", rho, "brier", name): Printed(value)
    for name, values in _BRIER.items()
    for rho, value in zip((0.002, 0.01, 0.05), values, strict=True)
}


# ---- Table 3 -----------------------------------------------------------------------------------------------

FRAUD_TABLES = ("Fraud 1", "Fraud 2")

# Both tables, each with AUC, its deviation over 3 trials, opAUC and recall likewise.
_TABLE3: dict[str, tuple[float, ...]] = {
    "LDAM": (96.13, 0.10, 73.55, 0.25, 32.76, 0.30, 97.90, 0.02, 76.23, 0.18, 38.44, 0.07),
    "focal": (95.80, 0.14, 72.22, 0.23, 29.91, 0.33, 97.83, 0.10, 76.29, 0.21, 38.37, 0.19),
    "poly": (96.14, 0.06, 73.36, 0.21, 31.82, 0.14, 97.90, 0.02, 76.38, 0.16, 38.57, 0.27),
    "vector scaling": (96.12, 0.12, 73.26, 0.14, 32.06, 0.23, 97.90, 0.01, 76.46, 0.16, 38.76, 0.25),
    "TBL": (96.30, 0.08, 73.45, 0.18, 32.45, 0.25, 97.90, 0.01, 76.83, 0.43, 39.14, 0.32),
}

TABLE3: dict[tuple[str, str, str], Printed] = {
    (table, metric, method): Printed(row[6 * i + 2 * j] / 100, row[6 * i + 2 * j + 1] / 100)
    for method, row in _TABLE3.items()
    for i, table in enumerate(FRAUD_TABLES)
    for j, metric in enumerate(("roc_auc", "partial_auc", "recall_at_fpr"))
}
"""By table, metric and our name of the method."""


class PrintedGain(NamedTuple):
    """What TBL has more than a rival in the paper, its standard error, and that one's degrees of freedom."""

    gain: float
    error: float
    freedom: float


def printed_gain(table: str, metric: str, rival: str) -> PrintedGain | None:
    """What TBL has more than a rival in the paper; None where the rival is not there.

    The error takes the n = 3 trials of the two as independent: sqrt((s_1^2 + s_2^2) / n). By Welch and
    Satterthwaite it has (s_1^2 + s_2^2)^2 / ((s_1^4 + s_2^4) / (n - 1)) degrees of freedom: 2 to 4.

    >>> found = printed_gain("Fraud 2", "recall_at_fpr", "LDAM")
    >>> round(100 * found.gain, 2), round(100 * found.error, 2), round(found.freedom, 2)
    (0.7, 0.19, 2.19)
    """
    ours, theirs = (TABLE3.get((table, metric, method)) for method in ("TBL", rival))
    if ours is None or theirs is None or ours.deviation is None or theirs.deviation is None:
        return None
    variances = ours.deviation**2, theirs.deviation**2
    freedom = sum(variances) ** 2 * (PAPER_TRIALS - 1) / sum(variance**2 for variance in variances)
    return PrintedGain(ours.mean - theirs.mean, sqrt(sum(variances) / PAPER_TRIALS), freedom)
