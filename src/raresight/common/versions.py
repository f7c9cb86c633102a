"""Versions of libraries that made a model or a result."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version

from .. import __version__

__all__ = ["versions_of"]


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of raresight, of Python and of those packages that are installed.

    >>> sorted(versions_of(["numpy", "a-package-that-nobody-has"]))
    ['numpy', 'python', 'raresight']
    """
    found = {"raresight": __version__, "python": platform.python_version()}
    for package in names:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
