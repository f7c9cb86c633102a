"""Where Optuna decides: what to try next, and what to give up.

A round is asked for as a whole before any of it is evaluated, from the trials of earlier rounds, with a
sampler seeded by the search's seed and the trial's number. What is asked therefore depends on neither the
number of jobs nor on interruptions. Asking goes to a study in memory, and a trial reaches the journal in one
piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .journal import Journal, with_means
from .space import Plan, Space, distributions, suggest

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

__all__ = ["ask_round", "earlier_study", "gives_up"]

# Random candidates before the sampler trusts its own picture: planned ones all have the family's defaults.
RANDOM_TRIALS = 8
# After the first fold a candidate goes on unless it is in the last quarter, later unless in the last half.
_KEPT_FIRST, _KEPT_LATER = 75.0, 50.0
_LEAST_TO_COMPARE = 8


def ask_round(
    journal: Journal,
    earlier: Study,
    space: Space,
    class_counts: tuple[int, int],
    plans: Sequence[Plan],
    start: int,
    stop: int,
    seed: int,
) -> None:
    """Write the trials of a round that the journal does not hold yet; `earlier` holds those before it."""
    held = journal.frozen()
    for number in range(len(held), min(stop, len(plans))):
        plan = plans[number]
        reaches = distributions(space, [name for name, _ in plan.values])
        journal.add(plan.candidate, plan.origin, dict(plan.values), reaches, {})
    if stop <= max(len(held), len(plans)):
        return
    earlier.add_trials([_unevaluated(trial) for trial in journal.frozen()[start:]])
    for number in range(len(journal.frozen()), stop):
        earlier.sampler = _sampler(seed, number, len(plans) + RANDOM_TRIALS)
        candidate = suggest(earlier.ask(), space, class_counts)
        asked = earlier.get_trials(deepcopy=False)[number]
        journal.add(candidate, "search", asked.params, asked.distributions, asked.system_attrs)


def earlier_study(journal: Journal, start: int) -> Study:
    """A study in memory of the trials before a number."""
    import optuna

    study = optuna.create_study(direction="maximize")
    study.add_trials(journal.frozen()[:start])
    return study


def gives_up(earlier: Study, trial: FrozenTrial) -> bool:
    """Whether to prune a trial after its folds so far, by the complete trials of earlier rounds."""
    shown = with_means(trial)
    return _pruner(len(shown.intermediate_values)).prune(earlier, shown)


def _pruner(folds: int) -> BasePruner:
    from optuna.pruners import PercentilePruner

    kept = _KEPT_FIRST if folds == 1 else _KEPT_LATER
    return PercentilePruner(kept, n_startup_trials=_LEAST_TO_COMPARE, n_min_trials=_LEAST_TO_COMPARE)


def _sampler(seed: int, number: int, startup: int) -> BaseSampler:
    """Grouped TPE: the parameters of a loss or family are drawn together, from trials that have them.

    Trials of the round that are asked for already count as bad ones, which keeps the round apart.
    """
    from optuna.samplers import TPESampler

    drawn = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    return TPESampler(seed=drawn, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True)


def _unevaluated(trial: FrozenTrial) -> FrozenTrial:
    """A trial as it was when it was asked for."""
    import copy

    from optuna.trial import TrialState

    fresh = copy.copy(trial)
    fresh.state, fresh.values = TrialState.RUNNING, None
    fresh.datetime_complete, fresh.intermediate_values = None, {}
    return fresh
