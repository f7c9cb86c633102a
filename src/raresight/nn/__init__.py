"""PyTorch: every loss as a module and a function, and what goes with training under them."""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError("raresight.nn needs PyTorch: pip install 'raresight[torch]'") from error

from typing import Any

from ..common.journal import read_journal
from . import functional, modules
from .batches import RowSource, TableRows
from .loss_table import LossTable
from .modules import *  # noqa: F403
from .normed_linear import NormedLinear
from .ranking import RankingModule
from .recipe import Recipe, ScheduleWarning
from .replica_metrics import evaluate_replicas
from .replicas import Replicas
from .schedule import DeferredReweighting
from .start import start_at_prior_
from .train import train
from .training_record import TrainingRecord

__all__ = [
    "DeferredReweighting",
    "LossTable",
    "NormedLinear",
    "RankingModule",
    "Recipe",
    "Replicas",
    "RowSource",
    "ScheduleWarning",
    "TableRows",
    "TrainingRecord",
    "evaluate_replicas",
    "functional",
    "read_journal",
    "start_at_prior_",
    "train",
]
__all__ += modules.__all__


def __getattr__(name: str) -> Any:
    """The module of a loss that was registered elsewhere, such as `MineLoss`."""
    if name.endswith("Loss"):
        return getattr(modules, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
