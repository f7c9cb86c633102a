"""PyTorch: every loss as a module and a function, and what goes with training under them."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("raresight.nn needs PyTorch: pip install 'raresight[torch]'") from error

from typing import Any

from ..common.journal import read_journal
from . import functional
from .batches import RowSource, TableRows
from .loss_table import LossTable
from .modules import (
    AlphaLoss,
    CELoss,
    ErfLoss,
    FocalLoss,
    LDAMLoss,
    LossModule,
    PolyLoss,
    SquaredLoss,
    TBLLoss,
    VSLoss,
    as_module,
)
from .normed_linear import NormedLinear
from .recipe import Recipe, ScheduleWarning
from .replica_metrics import evaluate_replicas
from .replicas import Replicas
from .schedule import DeferredReweighting
from .start import start_at_prior_
from .train import train
from .training_record import TrainingRecord

__all__ = [
    "AlphaLoss",
    "CELoss",
    "DeferredReweighting",
    "ErfLoss",
    "FocalLoss",
    "LDAMLoss",
    "LossModule",
    "LossTable",
    "NormedLinear",
    "PolyLoss",
    "Recipe",
    "Replicas",
    "RowSource",
    "ScheduleWarning",
    "SquaredLoss",
    "TBLLoss",
    "TableRows",
    "TrainingRecord",
    "VSLoss",
    "as_module",
    "evaluate_replicas",
    "functional",
    "read_journal",
    "start_at_prior_",
    "train",
]


def __getattr__(name: str) -> Any:
    """The module of a loss that was registered elsewhere, such as `MineLoss`."""
    if name.endswith("Loss"):
        from . import modules

        return getattr(modules, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
