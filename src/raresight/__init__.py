"""Raresight: classification of events that happen once in a thousand or once in a million.

`fit` is the main job: a table in; a chosen, calibrated model and a report out. `load` reads a saved model.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .fitting import FitResult, fit
    from .model import Model, load

__version__ = "0.1.0"

__all__ = ["FitResult", "Model", "__version__", "fit", "load"]

# The losses alone must import on a machine with NumPy and nothing else.
_LAZY = {"FitResult": "fitting", "fit": "fitting", "Model": "model", "load": "model"}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
