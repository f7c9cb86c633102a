"""The journal of a search: Optuna's file, held by one process, whole after every kill.

A trial is written as one line when it is asked for, with all its parameters; the result of each fold follows,
then its end. Whatever was being written when the process was killed is the last line, which is dropped if it
is not whole: the step behind it is done again and comes out the same.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..model.families import Candidate
from .fold_evaluation import FoldResult
from .records import Origin, Trial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.storages.journal import JournalFileOpenLock
    from optuna.trial import FrozenTrial

__all__ = ["Journal", "held_folder", "need_optuna", "quiet_optuna"]

_STUDY = "raresight"


def need_optuna() -> None:
    """Say what to install where Optuna is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise ImportError("a search needs Optuna: pip install 'raresight[fit]'") from None


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Without Optuna's log lines, and without its word that grouped sampling is experimental."""
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


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; the system lets go of it when the process ends, however it does."""
    import fcntl

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RuntimeError(
                f"another process is searching in {folder}: wait for it to end, or take another folder"
            ) from None
        yield


class Journal:
    """The trials of a search on disk, as an Optuna study in a journal file."""

    def __init__(self, folder: Path) -> None:
        import optuna
        from optuna.storages.journal import JournalFileBackend

        path = folder / "journal.log"
        _repair(path)
        self._storage = optuna.storages.JournalStorage(JournalFileBackend(str(path), _no_lock(path)))
        if self._storage.get_all_studies():
            self._study = optuna.load_study(study_name=_STUDY, storage=self._storage)
        else:
            self._study = optuna.create_study(storage=self._storage, study_name=_STUDY, direction="maximize")
        self._study_id = self._storage.get_study_id_from_name(_STUDY)

    def frozen(self) -> list[FrozenTrial]:
        """The trials as Optuna holds them."""
        return self._study.get_trials(deepcopy=False)

    @property
    def seconds(self) -> float:
        """Time spent so far, as last noted."""
        return float(self._study.user_attrs.get("seconds", 0.0))

    def note_seconds(self, seconds: float) -> None:
        self._study.set_user_attr("seconds", round(seconds, 3))

    def add(
        self,
        candidate: Candidate,
        origin: Origin,
        values: dict[str, Any],
        reaches: dict[str, BaseDistribution],
        attributes: dict[str, Any],
    ) -> None:
        """Write a trial that is to be evaluated."""
        from optuna.trial import FrozenTrial, TrialState

        self._study.add_trial(
            FrozenTrial(
                number=-1,
                trial_id=-1,
                state=TrialState.RUNNING,
                value=None,
                datetime_start=datetime.now(),
                datetime_complete=None,
                params=values,
                distributions=reaches,
                user_attrs={"candidate": candidate.to_dict(), "origin": origin},
                system_attrs=attributes,
                intermediate_values={},
            )
        )

    def record(self, number: int, fold: int, result: FoldResult) -> None:
        """Write the result of a fold, unless the trial has ended or has it."""
        trial = self.frozen()[number]
        if trial.state.is_finished() or _key(fold) in trial.user_attrs:
            return
        written = {
            "values": None if result.message else [result.partial_auc, result.recall],
            "seconds": round(result.seconds, 4),
            "message": result.message,
            "warnings": list(result.warnings),
        }
        self._storage.set_trial_user_attr(self._id(number), _key(fold), written)

    def end(self, number: int, *, pruned: bool = False) -> None:
        """End a trial by its results: failed if a fold failed, else pruned or complete."""
        from optuna.trial import TrialState

        trial = self.frozen()[number]
        if trial.state.is_finished():
            return
        results = fold_results(trial)
        if any(result.message for result in results.values()):
            self._study.tell(number, state=TrialState.FAIL)
            return
        for fold, mean in _running_means(results).items():
            if fold not in trial.intermediate_values:
                self._storage.set_trial_intermediate_value(self._id(number), fold, mean)
        if pruned:
            self._study.tell(number, state=TrialState.PRUNED)
        else:
            self._study.tell(number, _running_means(results)[len(results) - 1])

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)


def candidate_of(trial: FrozenTrial) -> Candidate:
    """The candidate of a trial."""
    return Candidate.from_dict(trial.user_attrs["candidate"])


def fold_results(trial: FrozenTrial) -> dict[int, FoldResult]:
    """The results of a trial by fold."""
    found = {}
    for key, written in trial.user_attrs.items():
        if key.startswith("fold-"):
            area, recall = written["values"] or (float("nan"), float("nan"))
            found[int(key[5:])] = FoldResult(
                area, recall, written["seconds"], written["message"], tuple(written["warnings"])
            )
    return dict(sorted(found.items()))


def with_means(trial: FrozenTrial) -> FrozenTrial:
    """A trial with the mean of its folds so far as its intermediate values."""
    import copy

    shown = copy.copy(trial)
    shown.intermediate_values = _running_means(fold_results(trial))
    return shown


def ended_trial(trial: FrozenTrial) -> Trial:
    """What became of a trial that has ended."""
    from optuna.trial import TrialState

    results = fold_results(trial)
    good = [result for result in results.values() if not result.message]
    values = tuple(result.partial_auc for result in good)
    recalls = tuple(result.recall for result in good)
    complete = trial.state == TrialState.COMPLETE
    return Trial(
        number=trial.number,
        candidate=candidate_of(trial),
        state="complete" if complete else "pruned" if trial.state == TrialState.PRUNED else "failed",
        partial_auc=sum(values) / len(values) if complete else None,
        recall=sum(recalls) / len(recalls) if complete else None,
        fold_values=values,
        fold_recalls=recalls,
        seconds=sum(result.seconds for result in results.values()),
        message=next((result.message for result in results.values() if result.message), ""),
        warnings=tuple(dict.fromkeys(text for result in results.values() for text in result.warnings)),
        origin=trial.user_attrs["origin"],
    )


def _key(fold: int) -> str:
    return f"fold-{fold}"


def _running_means(results: dict[int, FoldResult]) -> dict[int, float]:
    """The mean of the first folds, for each fold: folds differ in difficulty, means are comparable."""
    means, total = {}, 0.0
    for count, (fold, result) in enumerate(results.items(), start=1):
        total += result.partial_auc
        means[fold] = total / count
    return means


def _no_lock(path: Path) -> JournalFileOpenLock:
    """Optuna's own locks are files that a kill leaves behind; the folder is held already."""
    from optuna.storages.journal import JournalFileOpenLock

    class Held(JournalFileOpenLock):
        def acquire(self) -> bool:
            return True

        def release(self) -> None:
            pass

    return Held(str(path))


def _repair(path: Path) -> None:
    """Drop a last line that was not written to its end."""
    if not path.exists():
        return
    content = path.read_bytes()
    *lines, rest = content.split(b"\n")
    if lines and not rest and not _is_entry(lines[-1]):
        rest = lines.pop()
    for number, line in enumerate(lines, start=1):
        if not _is_entry(line):
            raise ValueError(f"{path} is damaged at line {number}: take another folder, or remove this one")
    whole = sum(len(line) + 1 for line in lines)
    if whole < len(content):
        with path.open("rb+") as file:
            file.truncate(whole)
            os.fsync(file.fileno())


def _is_entry(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
