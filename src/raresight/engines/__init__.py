"""Engines run work: in processes of this machine.

An engine knows nothing of what its tasks compute. A task is a pure function of its argument and of shared
arrays, so its result is the same here, in a worker and on another machine.
"""

from .local import Interrupts, LocalEngine, SharedArrays

__all__ = ["Interrupts", "LocalEngine", "SharedArrays"]
