"""Models of every family behind one face: candidates, fits, calibrated scores, folders on disk."""

from .families import FAMILIES, Candidate, Fitted, fit_candidates, installed_families
from .model import Member, Model, load
from .policies import Policy, policy_at_fpr
from .scoring import Scored, score_file
from .signature import sign_model

__all__ = [
    "FAMILIES",
    "Candidate",
    "Fitted",
    "Member",
    "Model",
    "Policy",
    "Scored",
    "fit_candidates",
    "installed_families",
    "load",
    "policy_at_fpr",
    "score_file",
    "sign_model",
]
