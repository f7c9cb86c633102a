"""Which versions a model or a result was made with."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from .. import __version__

__all__ = ["versions_of"]

# The library of a family may be installed under several names, and a family may have several libraries.
_PACKAGES: dict[str, tuple[str, ...]] = {
    "linear": (),
    "xgboost": ("xgboost", "xgboost-cpu"),
    "deep": ("torch", "safetensors"),
    "tabm": ("torch", "safetensors", "tabm"),
    "tabnet": ("torch", "safetensors"),
}


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """The versions of raresight, Python and those of the packages or families named that are installed.

    >>> sorted(versions_of(["numpy", "linear"]))
    ['numpy', 'python', 'raresight']
    """
    found = {"raresight": __version__, "python": platform.python_version()}
    for package in (package for name in names for package in _PACKAGES.get(name, (name,))):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
