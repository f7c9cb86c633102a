"""Native files of boosters from elsewhere: read by a process of their own before this one reads them.

A model that this user wrote or has checked on this machine is known by the digest of its side-file: an empty
file of that name lies in `$XDG_CACHE_HOME/raresight/trusted`. That folder may be removed at any time.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

__all__ = ["UncheckedModelWarning", "check_native_file", "is_trusted", "trust"]

_READER = Path(__file__).with_name("native_reader.py")
# Where each library keeps what `ctypes` has opened. Its file may lie beside the package or elsewhere.
_LIBRARIES = {"lightgbm": "lightgbm.basic", "xgboost": "xgboost.core"}
_SECONDS = 20
_BYTES_PER_SECOND = 1 << 20


class UncheckedModelWarning(UserWarning):
    """A model from elsewhere is read without the trial in a process of its own."""


def is_trusted(digest: str) -> bool:
    """Return whether this user has written or checked the model here."""
    folder = _folder()
    return folder is not None and (folder / digest).is_file()


def trust(digest: str) -> None:
    """Remember a model; where nothing can be remembered, it is checked again."""
    folder = _folder()
    if folder is not None:
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / digest).touch()


def check_native_file(library: str, path: Path, columns: int, scores: int) -> None:
    """Read a native file in a process of its own, with limits of time and memory.

    Args:
        library: `"lightgbm"` or `"xgboost"`.
        path: The file.
        columns: Columns of the table that it must take.
        scores: Scores of a row that it must give: one, or one per class.

    Raises:
        ValueError: The reader refused the file, crashed, or did not end in time.

    Warns of `UncheckedModelWarning` where no such process can be started.
    """
    seconds = _SECONDS + path.stat().st_size // _BYTES_PER_SECOND
    try:
        native = importlib.import_module(_LIBRARIES[library])._LIB._name
        if not sys.executable or getattr(sys, "frozen", False):
            raise OSError("this program is not run by a Python interpreter of its own")
        # Isolated and without site-packages: it starts in a few hundredths of a second.
        numbers = map(str, (columns, scores, seconds))
        done = subprocess.run(
            [sys.executable, "-I", "-S", os.fspath(_READER), library, native, os.fspath(path), *numbers],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            # Memory that was never written holds junk: to read it then fails here as it might there.
            env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_PERTURB_": "165"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _refusal(path, f"its reader did not end in {seconds} seconds") from None
    except (OSError, AttributeError) as error:
        _warn_unchecked(path, error)
        return
    said = done.stdout.decode(errors="replace").splitlines()
    if not said or said[0] != "begun":
        _warn_unchecked(path, f"it ended with {done.returncode} at its start")
    elif said[-1].startswith("refused: "):
        raise _refusal(path, said[-1].removeprefix("refused: ")[:200])
    elif done.returncode:
        raise _refusal(path, f"its reader crashed (exit {done.returncode})")


def _refusal(path: Path, why: str) -> ValueError:
    return ValueError(
        f"{path} is no sound model file: {why}. It was damaged, or made to do harm: take the model from "
        "where it was fitted"
    )


def _warn_unchecked(path: Path, why: Any) -> None:
    warnings.warn(
        f"{path} could not be tried in a process of its own first ({why}), and is read without: a damaged "
        "file may crash this process. Go on only with a model that you trust",
        UncheckedModelWarning,
        stacklevel=4,
    )


def _folder() -> Path | None:
    given = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # As the standard of these folders says: a relative path counts as none.
        cache = Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
    except RuntimeError:  # a user without a home
        return None
    return cache / "raresight" / "trusted"
