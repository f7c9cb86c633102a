"""Linear classifiers for any loss: fits, paths of fits, cross-validation, influence."""

from .cv import LinearClassifierCV
from .estimator import LinearClassifier
from .influence import Influence
from .minimise import NotConvergedWarning
from .path import PathFit, fit_pairs, fit_path

__all__ = [
    "Influence",
    "LinearClassifier",
    "LinearClassifierCV",
    "NotConvergedWarning",
    "PathFit",
    "fit_pairs",
    "fit_path",
]
