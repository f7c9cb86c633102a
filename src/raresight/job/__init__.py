"""The main job: a table in; a chosen, calibrated model and a report out."""

from .fitting import fit
from .result import FitResult

__all__ = ["FitResult", "fit"]
