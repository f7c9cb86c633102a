"""Data that the tests of linear models share."""

from __future__ import annotations

import os

# Before NumPy loads its BLAS: the tests' arrays are small, and other tests run beside them.
os.environ.setdefault("OMP_NUM_THREADS", "1")
