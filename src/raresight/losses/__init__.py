"""Losses for rare events: one definition each, for NumPy, PyTorch, boosting, solvers and theory."""

from .callable_loss import CallableLoss, from_callable
from .class_weighted import effective_number_weights
from .contract import Loss
from .margin import MarginLoss
from .parameters import param
from .ranking_loss import PartialAUC, RankingLoss
from .registry import all_losses, loss_kinds, parse, register
from .tbl import NonConvexLossWarning

# A loss is a file of its own and no line here: its types are in the stub that `make generated` writes.
_KINDS = {kind.__name__: kind for kind in loss_kinds(entry_points=False).values()}
globals().update(_KINDS)

__all__ = [
    "CallableLoss",
    "Loss",
    "MarginLoss",
    "NonConvexLossWarning",
    "PartialAUC",
    "RankingLoss",
    "all_losses",
    "effective_number_weights",
    "from_callable",
    "param",
    "parse",
    "register",
    *_KINDS,
]
