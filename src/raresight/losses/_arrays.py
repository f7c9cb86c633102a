"""The two names under which array libraries are written about.

Arrays are NumPy arrays or torch tensors, and `Ops` the class of operations for one of them
(`NumpyOps`, `TorchOps`); which one is known only when a loss is called.
"""

from typing import Any

Array = Any
Ops = Any
