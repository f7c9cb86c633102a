"""Types of the names that `modules.py` makes from the losses (written by docs/generate.py)."""

from collections.abc import Sequence
from typing import Any, Unpack

from .criterion import LossModule as LossModule
from .criterion import LossOptions, Prior
from .criterion import as_module as as_module

class CELoss(LossModule):
    def __init__(self, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[LossOptions]) -> None: ...

class SquaredLoss(LossModule):
    def __init__(self, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[LossOptions]) -> None: ...

class ErfLoss(LossModule):
    def __init__(self, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[LossOptions]) -> None: ...

class FocalLoss(LossModule):
    def __init__(
        self, gamma: float = 2.0, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[LossOptions]
    ) -> None: ...

class PolyLoss(LossModule):
    def __init__(
        self, epsilon: float = 1.0, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[LossOptions]
    ) -> None: ...

class AlphaLoss(LossModule):
    def __init__(
        self, alpha: float = 0.8, *, prior: Prior = None, tau: float = 1.0, **options: Unpack[LossOptions]
    ) -> None: ...

class TBLLoss(LossModule):
    def __init__(
        self,
        alpha: float = 0.8,
        C: float = 0.5,
        *,
        prior: Prior = None,
        tau: float = 1.0,
        **options: Unpack[LossOptions],
    ) -> None: ...

class VSLoss(LossModule):
    def __init__(
        self,
        delta: float | None = None,
        *,
        delta_neg: float = 1.0,
        iota_pos: float = 0.0,
        iota_neg: float = 0.0,
        class_counts: Sequence[float] | None = None,
        tau: float | None = None,
        gamma: float = 0.2,
        prior: Prior = None,
        **options: Unpack[LossOptions],
    ) -> None: ...

class LDAMLoss(LossModule):
    def __init__(
        self,
        class_counts: Sequence[float],
        max_margin: float = 0.5,
        scale: float = 30.0,
        *,
        prior: Prior = None,
        tau: float = 1.0,
        **options: Unpack[LossOptions],
    ) -> None: ...

__all__ = [
    "AlphaLoss",
    "CELoss",
    "ErfLoss",
    "FocalLoss",
    "LDAMLoss",
    "LossModule",
    "PolyLoss",
    "SquaredLoss",
    "TBLLoss",
    "VSLoss",
    "as_module",
]

def __getattr__(name: str) -> Any: ...
