"""Gradient boosting with any loss: objectives for XGBoost, LightGBM and CatBoost, and two classifiers.

The libraries are imported when something is trained or loaded, not before.
"""

from ..losses.start import Start, start_of
from .classifier import NoSplitWarning
from .lightgbm_classifier import LightGBMClassifier
from .objective import objective
from .xgboost_classifier import XGBoostClassifier

__all__ = ["LightGBMClassifier", "NoSplitWarning", "Start", "XGBoostClassifier", "objective", "start_of"]
