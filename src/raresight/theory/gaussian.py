"""Linear classifiers on Gaussian mixtures: exact population minimisers, their limits, their AUC."""

from .auc import BestLinearAUC, best_linear_auc, linear_auc
from .limits import LimitingRule, limiting_rule
from .linear_rule import LinearRule
from .mixture import GaussianMixture
from .population import least_squares_rule, population_minimiser

__all__ = [
    "BestLinearAUC",
    "GaussianMixture",
    "LimitingRule",
    "LinearRule",
    "best_linear_auc",
    "least_squares_rule",
    "limiting_rule",
    "linear_auc",
    "population_minimiser",
]
