"""Runs every check of this folder on a GPU; PyTorch and NumPy are enough: python tests/gpu/run.py [name ...].

A check is a function `check_*` of a file `check_*.py`. Names given choose those whose name contains one. A
check that needs something else which is not installed returns `skipped(why)`.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "FAILED\n", "skipped: "

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT / "src"), str(ROOT)]


def skipped(why: str) -> str:
    """What a check returns if it could not be made."""
    return SKIPPED + why


def outcome_of(check: Callable[[], str | None]) -> str:
    """What is printed of a check: that it passed, that and why it was skipped, or its error."""
    try:
        return check() or PASSED
    except Exception:
        return FAILED + traceback.format_exc()


def main(wanted: list[str]) -> int:
    import torch

    if not torch.cuda.is_available():
        sys.stdout.write("no CUDA device: nothing can be checked here\n")
        return 2
    sys.stdout.write(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    failed = passed = left_out = 0
    for path in sorted(HERE.glob("check_*.py")):
        module = importlib.import_module(path.stem)
        for name in [name for name in vars(module) if name.startswith("check_")]:
            title = f"{path.stem}.{name}"
            if wanted and not any(word in title for word in wanted):
                continue
            begun = time.perf_counter()
            outcome = outcome_of(getattr(module, name))
            passed += outcome == PASSED
            left_out += outcome.startswith(SKIPPED)
            failed += outcome.startswith(FAILED)
            sys.stdout.write(f"{title} ({time.perf_counter() - begun:.1f} s): {outcome}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{passed} passed, {failed} failed, {left_out} skipped\n")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
