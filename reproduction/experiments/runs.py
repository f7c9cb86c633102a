"""Training what an experiment still lacks, within a time, and resuming where the last run stopped."""

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
from .plan import STACK, stack_seconds, stack_sizes
from .settings import ROLES, NetTrial, Setup, folder_name
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

# Fewer in a stack waste the GPU.
_LEAST = 4
# A stack is begun only where it would end in time even if it were a little slower than planned: nine in ten
# are within this, and a stack that misses the end by an epoch has nothing to show before the next run.
_MARGIN = 1.07
# Seconds that the first stack of a run takes to compile its kernels.
_FIRST_START = 30.0
_TRIALS = "trials.json"
NO_GPU = (
    "no GPU: an epoch of one ResNet-32 on CIFAR-10 takes minutes on a CPU, of a stack as many times that as "
    "it has nets, and time is looked at after an epoch"
)


@dataclass(frozen=True)
class RunSummary:
    """What a run did.

    Attributes:
        trained: Trials finished in this run.
        left: Trials that are known and not finished.
        seconds: How long it took.
        waits_for: What searches lack that were not asked for, and without which the final trials that were
            are not known; a line for each cell.
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
    """Train every trial of the experiment that its journal under `out` does not have.

    Args:
        experiment: Which.
        setup: Set, net and length.
        data: Folder of the image set.
        out: Folder of the journals.
        device: Such as "cuda"; None for a GPU if there is one.
        stack: The most trials that are trained together.
        minutes: Stop before so many have passed; None for no limit. A stack that would not end in the time
            left is made smaller, and not begun if even a small one would not; one that is under way
            nevertheless is kept as a checkpoint.
        roles: Only trials of these roles.
        rhos: Only cells with these imbalances; None for all.
        checkpoints: Folder for stacks under way; None for `out`/unfinished.
        complete: Whether the image set must have its published size.
        checkpoint_seconds: The time between checkpoints of a stack under way.
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
    # Said now rather than at the first checkpoint, with which all would be lost.
    need_safetensors()
    if journal.exists():
        need_writable(journal)
    images = read_images(setup.dataset, data, complete=complete)
    digest = set_digest(images)
    rows: tuple[NetTrial, TaskRows] | None = None
    clock = _Clock(begun, minutes, 1.0 if where.startswith("cuda") else None)
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
        if rows is None or rows[0].together[:5] != chosen[0].together[:5]:
            rows = (chosen[0], task_rows(images, chosen[0]))
        need_writable(journal)
        folder = unfinished / folder_name(chosen)
        # Until its records are in the journal: who had the folder before would train the same nets again.
        with hold_folder(folder, "training"):
            is_new = not (folder / _TRIALS).exists()
            if _stamp(journal) != before:
                # Another process has added results since they were read, perhaps these.
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
                # As on a GPU after a CPU. What it has is not thrown away unasked.
                raise ValueError(
                    f"{error} by --checkpoints, or go on with the images "
                    "and the kind of device that it was begun with, or remove it, and its nets are trained "
                    "anew"
                ) from None
            if records is None:
                tell(f"{title}: out of time, kept in {folder}")
                return RunSummary(trained, len(wanted), time.monotonic() - begun, waits_for)
            if is_new:
                clock.learn(stack_seconds(chosen), time.monotonic() - stack_begun)
            # The folder goes last: killed in between, the records are there, and nobody resumes the folder.
            add_records(journal, [{**record, "images": digest} for record in records])
            remove_folder(folder)
        trained += len(records)
        # The graph of a stack holds its memory until it is collected.
        gc.collect()


def _device(name: str | None) -> str:
    """The device of that name, or the best there is; an error where it is none."""
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.split(":")[0]
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"device must be one such as cpu or cuda, but is {name!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {name!r}, but PyTorch sees no GPU here")
    return name


def _stamp(journal: Path) -> tuple[int, int]:
    """What changes with every addition to the journal."""
    found = journal.stat() if journal.exists() else None
    return (0, 0) if found is None else (found.st_size, found.st_mtime_ns)


def _refuse_other_images(finished: Mapping[str, Record], digest: str, journal: Path, data: Path) -> None:
    """An error where results are of other images; the first journals do not say of which theirs are."""
    others = [record for record in finished.values() if record.get("images", digest) != digest]
    if others:
        raise ValueError(
            f"{journal} has {len(others)} results of other images than those in {data}, such as of a part of "
            "the set: choose another folder for the results, or move that file away"
        )


class _Clock:
    """The time that is left, and how much longer than planned stacks take here."""

    def __init__(self, begun: float, minutes: float | None, pace: float | None) -> None:
        self._end = float("inf") if minutes is None else begun + 60 * minutes
        self._pace = pace
        self._first_start = _FIRST_START

    def left(self) -> float:
        return self._end - time.monotonic()

    def fits(self, trials: Sequence[NetTrial]) -> bool:
        """Whether a stack would surely end in time; unknown before the first on a device without a plan."""
        if self._pace is None:
            return True
        return self._first_start + stack_seconds(trials) * self._pace * _MARGIN < self.left()

    def learn(self, planned: float, took: float) -> None:
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
    """The folders of stacks under way, or left behind, with their trials."""
    for path in sorted(unfinished.glob(f"*/{_TRIALS}")):
        if path.parent.suffix != REMOVED and (trials := _trials_of(path)):
            yield path.parent, trials


def _trials_of(path: Path) -> tuple[NetTrial, ...]:
    """The trials of a stack; none where another process has just removed its folder."""
    try:
        return tuple(NetTrial.from_dict(values) for values in json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return ()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} does not say which nets were under way there ({type(error).__name__}: {error}): remove "
            f"{path.parent}, and they are trained anew"
        ) from None


def _remove_finished(unfinished: Path, finished: Mapping[str, Record]) -> None:
    """Remove the folders of stacks whose records are in the journal: who was killed in between left them."""
    for folder in unfinished.glob(f"*{REMOVED}"):
        shutil.rmtree(folder, ignore_errors=True)
    for folder, trials in _under_way(unfinished):
        if all(trial.key in finished for trial in trials):
            # One that is held is about to be removed.
            with contextlib.suppress(FolderInUseError), hold_folder(folder, "training"):
                remove_folder(folder)


def _next_stack(
    wanted: Sequence[NetTrial], unfinished: Path, stack: int, clock: _Clock, *, is_first: bool
) -> tuple[NetTrial, ...]:
    """The trials to train now: those of a stack under way, else the first that can stand together."""
    if not wanted or clock.left() <= 0:
        return ()
    keys = {trial.key for trial in wanted}
    for _, trials in _under_way(unfinished):
        if all(trial.key in keys for trial in trials):
            return trials
    group = [trial for trial in wanted if trial.together == wanted[0].together]
    size = stack_sizes(len(group), stack)[0]
    for fewer in range(size, min(_LEAST, size) - 1, -1):
        if clock.fits(group[:fewer]):
            return tuple(group[:fewer])
    # A run that would otherwise do nothing begins it, to be resumed.
    return tuple(group[:size]) if is_first else ()
