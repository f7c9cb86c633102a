"""Losses for rare events: one definition each, for NumPy, PyTorch, boosting, solvers and theory."""

from .alpha import Alpha
from .class_weighted import ClassWeighted, effective_number_weights
from .contract import Loss
from .cross_entropy import CrossEntropy
from .erf import Erf
from .errors import NonConvexLossWarning
from .focal import Focal
from .from_function import CallableLoss, from_callable
from .ldam import LDAM
from .logit_adjusted import LogitAdjusted
from .parsing import all_losses, parse
from .poly import Poly
from .squared import Squared
from .tbl import TBL
from .vector_scaling import VectorScaling

__all__ = [
    "LDAM",
    "TBL",
    "Alpha",
    "CallableLoss",
    "ClassWeighted",
    "CrossEntropy",
    "Erf",
    "Focal",
    "LogitAdjusted",
    "Loss",
    "NonConvexLossWarning",
    "Poly",
    "Squared",
    "VectorScaling",
    "all_losses",
    "effective_number_weights",
    "from_callable",
    "parse",
]
