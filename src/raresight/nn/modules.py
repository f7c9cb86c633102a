"""Every loss as a torch module, a drop-in for BCEWithLogitsLoss and CrossEntropyLoss: `TBLLoss()` and the
others.

Made from the registered losses by `criterion`; a loss that is registered later is made when it is asked for.
"""

from __future__ import annotations

from typing import Any

from .criterion import LossModule, as_module, module_of, named_losses

__all__ = ["LossModule", "as_module", *(f"{short}Loss" for short in named_losses(entry_points=False))]


def __getattr__(name: str) -> Any:
    if name.endswith("Loss"):
        for entry_points in (False, True):
            for short, kind in named_losses(entry_points=entry_points).items():
                if name == f"{short}Loss":
                    globals()[name] = module_of(short, kind)
                    return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["LossModule", "as_module", *(f"{short}Loss" for short in named_losses())]
