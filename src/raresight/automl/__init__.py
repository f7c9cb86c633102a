"""The main job: a table in; a chosen, calibrated model and a report out.

A family, a loss and parameters are chosen by cross-validation. The search is Optuna's; ours are the space,
the objective and a folder that can be continued after any interruption.
"""

from .fitting import fit
from .leaderboard import baseline_of, leaderboard
from .records import Limits, Progress, SearchResult, Task, Trial
from .result import FitResult
from .search import search
from .space import Space, default_losses, make_space, planned_trials, suggest

__all__ = [
    "FitResult",
    "Limits",
    "Progress",
    "SearchResult",
    "Space",
    "Task",
    "Trial",
    "baseline_of",
    "default_losses",
    "fit",
    "leaderboard",
    "make_space",
    "planned_trials",
    "search",
    "suggest",
]
