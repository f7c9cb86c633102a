"""Models of every family behind one face: candidates, fits, calibrated scores, folders on disk."""

from .candidate import Candidate, installed_families
from .families import Fitted, fit_candidates
from .folder import Model, load
from .scoring import Scored, score_file

__all__ = [
    "Candidate",
    "Fitted",
    "Model",
    "Scored",
    "fit_candidates",
    "installed_families",
    "load",
    "score_file",
]
