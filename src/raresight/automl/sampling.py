"""Where Optuna decides: what to try next, and what to give up.

A round is proposed as a whole before any of it is evaluated, from the trials of earlier rounds, with a
sampler seeded by the search's seed and the trial's number. So what is proposed depends neither on the number
of jobs nor on interruptions. Optuna works in memory; what it proposes is kept in our journal.
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

__all__ = ["gives_up", "need_optuna", "propose", "quiet_optuna", "study_of"]

# Random candidates before the sampler trusts its own picture: planned ones all have the family's defaults.
RANDOM_TRIALS = 8
# After the first fold a candidate continues unless it is in the last quarter, later unless in the last half.
_KEPT_FIRST, _KEPT_LATER = 75.0, 50.0
_LEAST_TO_COMPARE = 8


def need_optuna() -> None:
    """Say what to install where Optuna is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ImportError("a search needs Optuna: pip install 'raresight[fit]'") from None


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Without Optuna's log lines, and without its warning that grouped sampling is experimental."""
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
    """A study in memory of finished trials."""
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
    """The trials of a round. They are added as running ones to `earlier`, the study of those before."""
    found = []
    for number in numbers:
        earlier.sampler = _sampler(seed, number, n_planned + RANDOM_TRIALS)
        candidate = suggest(earlier.ask(), space, class_counts)
        values = earlier.get_trials(deepcopy=False)[number].params
        found.append(Trial(number, candidate, "search", values))
    return found


def gives_up(earlier: Study, trial: Trial, space: Space) -> bool:
    """Whether to prune a trial after its folds so far, by the complete trials of earlier rounds."""
    return _pruner(len(trial.folds)).prune(earlier, _frozen(trial, space))


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


def _frozen(trial: Trial, space: Space) -> FrozenTrial:
    """A trial as Optuna holds it; the mean of its folds so far are the intermediate values."""
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
