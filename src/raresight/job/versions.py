"""Which versions a result was made with."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from .. import __version__

__all__ = ["versions_of"]

_ALWAYS = ("numpy", "scipy", "scikit-learn", "pyarrow", "optuna")
_BOOSTERS = {"lightgbm": ("lightgbm",), "xgboost": ("xgboost", "xgboost-cpu")}


def versions_of(families: Sequence[str]) -> dict[str, str]:
    """Python's and the libraries' versions, those of the families used included."""
    found = {"raresight": __version__, "python": platform.python_version()}
    names = [*_ALWAYS, *(name for family in families for name in _BOOSTERS.get(family, ()))]
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
