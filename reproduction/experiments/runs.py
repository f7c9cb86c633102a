"""Train the missing trials of an experiment within a time limit, and resume stopped stacks."""

from __future__ import annotations

import contextlib
import gc
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raresight.common.atomic_files import FolderInUseError, hold_folder, write_json
from raresight.nn.checkpoint import OtherTrainingError
from raresight.nn.tensor_files import need_safetensors

from ..training_records import Record, add_records, journal_path, need_writable, read_records
from .budget import STACK, stack_seconds, stack_sizes
from .net_trial import ROLES, NetTrial, Setup, folder_name
from .stack import (
    CHECKPOINT_SECONDS,
    REMOVED,
    TaskRows,
    read_images,
    remove_folder,
    set_digest,
    task_rows,
    train_stack,
)
from .trials import NetExperiment, known_trials, missing_searches

# Smaller stacks do not use the GPU well.
_LEAST = 4
# A stack starts only if it ends in time even with this factor on its planned time, which nine in ten stacks
# meet. A stack that misses the end by one epoch has no results until the next run.
_MARGIN = 1.07
# Seconds to compile the kernels of the first stack of a run.
_FIRST_START = 30.0
_TRIALS = "trials.json"
NO_GPU = (
    "no GPU: an epoch on CIFAR-10 takes a CPU minutes for each ResNet-32 of a stack, and --minutes is "
    "checked between epochs only"
)


@dataclass(frozen=True)
class RunSummary:
    """The outcome of a run.

    Attributes:
        trained: Trials finished in this run.
        left: Known trials that are not finished.
        seconds: Duration of the run.
        waits_for: Missing trials of searches, a line for each cell, if later trials were asked for without
            the search that chooses their settings.
    """

    trained: int
    left: int
    seconds: float
    waits_for: tuple[str, ...] = ()


def run_experiment(
    experiment: NetExperiment,
    setup: Setup,
    data: Path,
    out: Path,
    *,
    device: str | None = None,
    stack: int = STACK,
    minutes: float | None = None,
    roles: Sequence[str] = ROLES,
    rhos: Sequence[float] | None = None,
    checkpoints: Path | None = None,
    complete: bool = True,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    tell: Callable[[str], None] = lambda message: None,
) -> RunSummary:
    """Train every trial of the experiment that is not in its journal under `out`.

    Args:
        experiment: The experiment.
        setup: Set, net and length.
        data: Folder of the image set.
        out: Folder of the journals.
        device: Such as "cuda". Default: a GPU if there is one.
        stack: Upper limit of the trials in a stack.
        minutes: Time limit. Default: none. A stack that would not end in time is made smaller; if even a
            small one would not, it does not start. A stack that is training at the end saves a checkpoint.
        roles: Only trials of these roles.
        rhos: Only cells with these imbalances. Default: all.
        checkpoints: Folder of unfinished stacks. Default: `out`/unfinished.
        complete: Whether the image set must have its published size.
        checkpoint_seconds: Time between checkpoints of a stack.
        tell: Called with each line of progress.
    """
    if stack < 1:
        raise ValueError(f"stack must be at least 1, but is {stack}")
    unknown = [role for role in roles if role not in ROLES]
    if unknown:
        raise ValueError(f"roles must be of {', '.join(ROLES)}, but one is {unknown[0]!r}")
    experiment.check(setup)
    begun = time.monotonic()
    where = _device(device)
    journal = journal_path(out, experiment.name, setup.dataset)
    unfinished = (out / "unfinished") if checkpoints is None else checkpoints
    # Fail now rather than at the first checkpoint, where the training so far would be lost.
    need_safetensors()
    if journal.exists():
        need_writable(journal)
    images = read_images(setup.dataset, data, complete=complete)
    digest = set_digest(images)
    rows: tuple[NetTrial, TaskRows] | None = None
    clock = _TimeBudget(begun, minutes, 1.0 if where.startswith("cuda") else None)
    trained = 0
    while True:
        before = _stamp(journal)
        finished = read_records(journal)
        _refuse_other_images(finished, digest, journal, data)
        wanted = _wanted(experiment, setup, finished, roles, rhos)
        waits_for: tuple[str, ...] = ()
        if "search" not in roles:
            waits_for = tuple(missing_searches(experiment, setup, finished, rhos, roles))
        if not trained:
            _remove_finished(unfinished, finished)
        chosen = _next_stack(wanted, unfinished, stack, clock, is_first=trained == 0)
        if not chosen:
            return RunSummary(trained, len(wanted), time.monotonic() - begun, waits_for)
        if rows is None or rows[0].stack_key[:5] != chosen[0].stack_key[:5]:
            rows = (chosen[0], task_rows(images, chosen[0]))
        need_writable(journal)
        folder = unfinished / folder_name(chosen)
        # Hold the folder until its records are in the journal: another process would train the same nets.
        with hold_folder(folder, "training"):
            is_new = not (folder / _TRIALS).exists()
            if _stamp(journal) != before:
                # Another process has added results since they were read, perhaps for these trials.
                if is_new:
                    remove_folder(folder)
                continue
            write_json(folder / _TRIALS, [trial.to_dict() for trial in chosen])
            first = chosen[0]
            title = f"{first.role}, {first.task}, rho {first.rho:g}, draw {first.draw}: {len(chosen)} nets"
            tell(f"{title}, {len(wanted)} trainings left")
            if where == "cpu" and not trained:
                tell(NO_GPU)
            stack_begun = time.monotonic()
            try:
                records = train_stack(
                    chosen,
                    rows[1],
                    folder,
                    device=where,
                    precision="bf16" if where.startswith("cuda") else "float32",
                    seconds_left=clock.left,
                    checkpoint_seconds=checkpoint_seconds,
                    tell=lambda text, title=title: tell(f"{title}: {text}"),  # type: ignore[misc]
                )
            except OtherTrainingError as error:
                # For example, a stack of a CPU resumed on a GPU. Its folder is kept: the user decides.
                raise ValueError(
                    f"{error} by --checkpoints, or continue with the images and the kind of device that it "
                    "was started with, or remove it to train its nets anew"
                ) from None
            if records is None:
                tell(f"{title}: out of time, checkpoint in {folder}")
                return RunSummary(trained, len(wanted), time.monotonic() - begun, waits_for)
            if is_new:
                clock.learn(stack_seconds(chosen), time.monotonic() - stack_begun)
            # Remove the folder last: after a crash in between, the records exist and nobody resumes it.
            add_records(journal, [{**record, "images": digest} for record in records])
            remove_folder(folder)
        trained += len(records)
        # The graph of a stack has reference cycles, which hold its memory until they are collected.
        gc.collect()


def _device(name: str | None) -> str:
    """Return the device of that name. Default: a GPU if there is one."""
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device must be cpu, cuda or one such as cuda:1, but is {name!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {name!r}, but PyTorch sees no GPU here")
    return name


def _stamp(journal: Path) -> tuple[int, int]:
    """Return size and time of the journal, which change with every addition."""
    found = journal.stat() if journal.exists() else None
    return (0, 0) if found is None else (found.st_size, found.st_mtime_ns)


def _refuse_other_images(finished: Mapping[str, Record], digest: str, journal: Path, data: Path) -> None:
    """Raise an error for results of other images. Records of the first journals have no digest and pass."""
    others = [record for record in finished.values() if record.get("images", digest) != digest]
    if others:
        raise ValueError(
            f"{journal} has {len(others)} results of other images than those in {data}, perhaps of a part of "
            "the set: choose another folder for the results, or move that file away"
        )


class _TimeBudget:
    """The remaining time, and the measured ratio of actual to planned time of stacks."""

    def __init__(self, begun: float, minutes: float | None, pace: float | None) -> None:
        self._end = float("inf") if minutes is None else begun + 60 * minutes
        self._pace = pace
        self._first_start = _FIRST_START

    def left(self) -> float:
        """Return the seconds that are left."""
        return self._end - time.monotonic()

    def fits(self, trials: Sequence[NetTrial]) -> bool:
        """Return whether a stack will end in time; true before the first stack on a device without a plan."""
        if self._pace is None:
            return True
        return self._first_start + stack_seconds(trials) * self._pace * _MARGIN < self.left()

    def learn(self, planned: float, took: float) -> None:
        """Note planned and actual seconds of a stack."""
        self._pace = took / planned
        self._first_start = 0.0


def _wanted(
    experiment: NetExperiment,
    setup: Setup,
    finished: dict[str, Record],
    roles: Sequence[str],
    rhos: Sequence[float] | None,
) -> list[NetTrial]:
    return [
        trial
        for trial in known_trials(experiment, setup, finished)
        if trial.key not in finished and trial.role in roles and (rhos is None or trial.rho in rhos)
    ]


def _under_way(unfinished: Path) -> Iterator[tuple[Path, tuple[NetTrial, ...]]]:
    """Yield the folders of unfinished stacks with their trials."""
    for path in sorted(unfinished.glob(f"*/{_TRIALS}")):
        if path.parent.suffix != REMOVED and (trials := _trials_of(path)):
            yield path.parent, trials


def _trials_of(path: Path) -> tuple[NetTrial, ...]:
    """Read the trials of a stack; none if another process has just removed its folder."""
    try:
        return tuple(NetTrial.from_dict(values) for values in json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} does not list the nets of its stack ({type(error).__name__}: {error}): remove "
            f"{path.parent} to train them anew"
        ) from None


def _remove_finished(unfinished: Path, finished: Mapping[str, Record]) -> None:
    """Remove folders of stacks whose records are in the journal, left by a crash before their removal."""
    for folder in unfinished.glob(f"*{REMOVED}"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder, trials in _under_way(unfinished):
        if all(trial.key in finished for trial in trials):
            # A folder that is held is being removed by its holder.
            with contextlib.suppress(FolderInUseError), hold_folder(folder, "training"):
                remove_folder(folder)


def _next_stack(
    wanted: Sequence[NetTrial], unfinished: Path, stack: int, clock: _TimeBudget, *, is_first: bool
) -> tuple[NetTrial, ...]:
    """Return the trials to train now: those of an unfinished stack, else the first that can share one."""
    if not wanted or clock.left() <= 0:
        return ()
    keys = {trial.key for trial in wanted}
    for _, trials in _under_way(unfinished):
        if all(trial.key in keys for trial in trials):
            return trials
    group = [trial for trial in wanted if trial.stack_key == wanted[0].stack_key]
    size = stack_sizes(len(group), stack)[0]
    for fewer in range(size, min(_LEAST, size) - 1, -1):
        if clock.fits(group[:fewer]):
            return tuple(group[:fewer])
    # Without a stack that fits, the first of a run starts nevertheless, to be resumed by the next run.
    return tuple(group[:size]) if is_first else ()
