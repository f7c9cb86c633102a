"""Importing the boosting libraries where they are needed, with an error that names the extra."""

from __future__ import annotations

import importlib
from typing import Any

LIBRARIES = ("xgboost", "lightgbm", "catboost")


def import_library(name: str) -> Any:
    """The module `xgboost` or `lightgbm`, or an ImportError that says how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is not installed: pip install 'raresight[boosting]'") from error
