"""Ask Optuna what to try next and what to prune.

A whole round is proposed before any of it is evaluated, from the trials of earlier rounds. The sampler is
seeded by the search's seed and the trial's number. So proposals depend neither on the number of jobs nor on
interruptions. Optuna works in memory; its proposals are kept in our journal.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from .records import Trial
from .space import Space, distributions, suggest

if TYPE_CHECKING:
    from optuna import Study
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

__all__ = ["need_optuna", "propose", "quiet_optuna", "should_prune", "study_of"]

# Random candidates before the sampler trusts its own picture: planned ones all have the family's defaults.
RANDOM_TRIALS = 8
# After the first fold a candidate is pruned in the last quarter, later in the last half. One fold has few
# positives, so its value is noisy: there only the clearly worse ones go.
_KEPT_FIRST, _KEPT_LATER = 75.0, 50.0
_LEAST_TO_COMPARE = 8  # complete trials before anything is pruned: fewer make no percentile


def need_optuna() -> None:
    """Say what to install where Optuna is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ImportError("a search needs Optuna: pip install 'raresight[fit]'") from None


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Silence Optuna's log lines and its warning that grouped sampling is experimental."""
    import optuna
    from optuna.exceptions import ExperimentalWarning

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)


def study_of(trials: Sequence[Trial], space: Space) -> Study:
    """Make a study in memory of finished trials."""
    import optuna

    study = optuna.create_study(direction="maximize")
    study.add_trials([_frozen(trial, space) for trial in trials])
    return study


def propose(
    earlier: Study,
    space: Space,
    class_counts: tuple[int, int],
    numbers: Sequence[int],
    n_planned: int,
    seed: int,
) -> list[Trial]:
    """Propose the trials of a round. They are added as running ones to `earlier`, the study before it."""
    found = []
    for number in numbers:
        # A sampler of its own for each number: a resumed search has no random state to restore.
        earlier.sampler = _sampler(seed, number, n_planned + RANDOM_TRIALS)
        candidate = suggest(earlier.ask(), space, class_counts)
        values = earlier.get_trials(deepcopy=False)[number].params
        found.append(Trial(number, candidate, "search", values))
    return found


def should_prune(earlier: Study, trial: Trial, space: Space) -> bool:
    """Return whether to prune a trial after its folds so far, by the trials of earlier rounds.

    Trials of the same round do not count: which of them has ended depends on the number of jobs.
    """
    return _pruner(len(trial.folds)).prune(earlier, _frozen(trial, space))


def _pruner(folds: int) -> BasePruner:
    from optuna.pruners import PercentilePruner

    kept = _KEPT_FIRST if folds == 1 else _KEPT_LATER
    return PercentilePruner(kept, n_startup_trials=_LEAST_TO_COMPARE, n_min_trials=_LEAST_TO_COMPARE)


def _sampler(seed: int, number: int, startup: int) -> BaseSampler:
    """Make a sampler (grouped TPE): parameters of a loss or family are drawn together.

    It learns them from trials that have them. Proposed trials of the same round count as bad ones
    (`constant_liar`), which keeps the candidates of a round apart.
    """
    from optuna.samplers import TPESampler

    drawn = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    return TPESampler(seed=drawn, n_startup_trials=startup, multivariate=True, group=True, constant_liar=True)


def _frozen(trial: Trial, space: Space) -> FrozenTrial:
    """Convert a trial for Optuna; intermediate values are the means of its first folds."""
    from optuna.trial import TrialState, create_trial

    states = {
        "running": TrialState.RUNNING,
        "complete": TrialState.COMPLETE,
        "pruned": TrialState.PRUNED,
        "failed": TrialState.FAIL,
    }
    # Folds differ in difficulty; means of the same first folds are comparable.
    values = trial.fold_values
    means = {} if trial.message else {k: sum(values[: k + 1]) / (k + 1) for k in range(len(values))}
    return create_trial(
        state=states[trial.state],
        value=means[len(means) - 1] if means and trial.is_over else None,
        params=dict(trial.values),
        distributions=distributions(space, list(trial.values)),
        intermediate_values=means,
    )
