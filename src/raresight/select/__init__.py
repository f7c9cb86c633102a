"""Choose a family, a loss and parameters by cross-validation.

The search is Optuna's; ours are the space, the objective and a folder that can be
continued after any interruption.
"""

from .leaderboard import Row, baseline_of, leaderboard
from .records import Found, Limits, Progress, Task, Trial
from .search import search
from .space import Space, default_losses, make_space, planned, suggest

__all__ = [
    "Found",
    "Limits",
    "Progress",
    "Row",
    "Space",
    "Task",
    "Trial",
    "baseline_of",
    "default_losses",
    "leaderboard",
    "make_space",
    "planned",
    "search",
    "suggest",
]
