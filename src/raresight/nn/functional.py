"""Every loss as a function of torch tensors: `tbl_loss(input, target, alpha=0.8, C=0.5)` and the others.

Made from the registered losses by `criterion`; a loss that is registered later is made when it is asked for.
"""

from __future__ import annotations

from typing import Any

from .criterion import function_of, loss_with_logits, named_losses

__all__ = ["loss_with_logits"]


def __getattr__(name: str) -> Any:
    if name.endswith("_loss"):
        for entry_points in (False, True):
            for short, kind in named_losses(entry_points=entry_points).items():
                if name == f"{short.lower()}_loss":
                    globals()[name] = function_of(short, kind)
                    return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return ["loss_with_logits", *(f"{short.lower()}_loss" for short in named_losses())]
