"""Losses for rare events: one definition each, for NumPy, PyTorch, boosting, solvers and theory."""

from .alpha import Alpha
from .callable_loss import CallableLoss, from_callable
from .class_weighted import ClassWeighted, effective_number_weights
from .contract import Loss
from .cross_entropy import CrossEntropy
from .erf import Erf
from .focal import Focal
from .ldam import LDAM
from .logit_adjusted import LogitAdjusted
from .margin import MarginLoss
from .parameters import param
from .poly import Poly
from .ranking_loss import PartialAUC, RankingLoss
from .registry import all_losses, parse, register
from .squared import Squared
from .tbl import TBL, NonConvexLossWarning
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
    "MarginLoss",
    "NonConvexLossWarning",
    "PartialAUC",
    "Poly",
    "RankingLoss",
    "Squared",
    "VectorScaling",
    "all_losses",
    "effective_number_weights",
    "from_callable",
    "param",
    "parse",
    "register",
]
