"""Count the trainings of an experiment that are left, and estimate the GPU time they take.

Times were measured with ResNet-32 on images of 32 x 32 pixels. Those of other depths and image sizes are
scaled in proportion to the convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..training_records import Record, journal_path, read_records
from .methods import METHODS, Chosen
from .net_trial import DATASETS, ROLES, NetTrial, Setup, validation_share
from .trials import (
    EXPERIMENTS,
    Cell,
    NetExperiment,
    ablation_trials,
    beyond_trials,
    cell_trials,
    check_rhos,
    final_trials,
    paper_trials,
)
from .trials import search_trials as _search

BATCH = 128
# Default limit of the nets in a stack: with ResNet-32 they take 12 GiB of a GPU.
STACK = 48
# Seconds before the first step, to draw weights, choose kernels and record the graph. The first stack on a
# machine without compiled kernels takes 30 s more.
_START = 1.0


@dataclass(frozen=True)
class Pace:
    """Measured times on an H200, in milliseconds (from the trainings in results/deep).

    Attributes:
        step: Training on a batch, per net.
        stack_step: Training on a batch, once per stack.
        evaluation: Evaluation of a batch, per net.
        ranking: Ranking of the scores of a set, per net; 0 if this runs beside the next epoch.
        least: Lower limit of the time to train on a batch: a small stack does not fill the GPU.
    """

    step: float
    stack_step: float
    evaluation: float
    ranking: float = 0.0
    least: float = 0.0


FUSED = Pace(0.287, 0.49, 0.0528, least=3.1)
"""Pace of the CUDA kernels for images of 32 x 32 pixels.

Eight stacks of 27 to 63 nets took within 4 % of it. Four that compiled their kernels first took 17 to 38 s
more; one of 32 nets on a GPU that also ran another stack took 24 s more. Small stacks took 3.1 ms per batch
with six nets and 3.2 ms with eight."""
LAYERED = Pace(0.505, 1.86, 0.18, 1.75)
"""Pace of Triton's kernels, which trained the first nets: nine in ten stacks took within 7 % of it."""
LAYERED_FLOAT32 = replace(LAYERED, evaluation=0.77)
"""The same, with evaluation in float32."""


@dataclass(frozen=True)
class PlanLine:
    """The trainings of one role: their number, how many are left, their length, and GPU minutes for those."""

    experiment: str
    role: str
    trainings: int
    left: int
    epochs: int
    minutes: float


def plan(
    name: str,
    setup: Setup,
    stack: int = STACK,
    rhos: Sequence[float] | None = None,
    roles: Sequence[str] = ROLES,
    finished: Mapping[str, Record] | None = None,
) -> list[PlanLine]:
    """Count the trainings of an experiment by role; if given, only those of some imbalances and roles.

    Trainings in `finished` are not left. The settings of final trainings are unknown until their search is
    complete; until then all of them count as left.

    Example:
        >>> [(line.role, line.trainings) for line in plan("table4", Setup())]
        [('search', 180), ('final', 108), ('paper', 108)]
        >>> [line.trainings for line in plan("table4", Setup(), rhos=[0.01])]
        [90, 54, 54]
    """
    if stack < 1:
        raise ValueError(f"stack must be at least 1, but is {stack}")
    experiment = EXPERIMENTS[name]
    experiment.check(setup)
    cells = [cell for cell in experiment.cells if rhos is None or cell.rho in rhos]
    if not cells:
        return []
    done = finished or {}
    known = [cell_trials(experiment, cell, setup, done) for cell in cells]
    lines = []
    for role in experiment.roles:
        if role not in roles:
            continue
        trials = [
            trial
            for cell, found in zip(cells, known)
            for trial in found.get(role) or _of_role(experiment, cell, setup, role)
        ]
        if not trials:
            continue
        left: dict[Any, list[NetTrial]] = {}
        for trial in trials:
            if trial.key not in done:
                left.setdefault(trial.stack_key, []).append(trial)
        seconds = sum(
            stack_seconds(group[:size]) for group in left.values() for size in stack_sizes(len(group), stack)
        )
        count = sum(map(len, left.values()))
        lines.append(PlanLine(name, role, len(trials), count, trials[0].epochs, seconds / 60))
    return lines


def trainings_left(
    name: str, setup: Setup, rhos: Sequence[float] | None = None, journals: Path | None = None
) -> int:
    """Count the trainings of an experiment that the journals in a folder lack, optionally of some `rhos`."""
    known = {} if journals is None else read_records(journal_path(journals, name, setup.dataset))
    return sum(line.left for line in plan(name, setup, rhos=rhos, finished=known))


def plan_text(
    names: Sequence[str],
    setup: Setup,
    stack: int = STACK,
    rhos: Sequence[float] | None = None,
    roles: Sequence[str] = ROLES,
    journals: Path | None = None,
) -> str:
    """Format the plan of several experiments as a table; if given, only of some imbalances and roles.

    Trainings in the journals of a folder are not left.
    """
    check_rhos([EXPERIMENTS[name] for name in names], rhos)
    lines = []
    for name in names:
        known = {} if journals is None else read_records(journal_path(journals, name, setup.dataset))
        lines += plan(name, setup, stack, rhos, roles, known)
    rows = [("experiment", "trainings of", "how many", "left", "epochs", "GPU minutes")]
    rows += [
        (
            *(line.experiment, line.role, str(line.trainings), str(line.left)),
            *(str(line.epochs), f"{line.minutes:.1f}"),
        )
        for line in lines
    ]
    total, left = (str(sum(getattr(line, name) for line in lines)) for name in ("trainings", "left"))
    rows.append(("all", "", total, left, "", f"{sum(line.minutes for line in lines):.1f}"))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    table = "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip() for row in rows
    )
    return (
        f"{setup.dataset}, {setup.net}, size {setup.size.name}, stacks of at most {stack}; "
        "minutes estimated for what is left, on one H200\n"
        f"{table}"
    )


def stack_sizes(count: int, stack: int) -> list[int]:
    """Divide a number of trials into stacks of about equal size, none larger than `stack`.

    >>> stack_sizes(45, 32), stack_sizes(27, 32), stack_sizes(0, 32)
    ([23, 22], [27], [])
    """
    stacks = math.ceil(count / stack)
    return [count // stacks + (place < count % stacks) for place in range(stacks)]


def stack_seconds(
    trials: Sequence[NetTrial], rows: Mapping[str, int] | None = None, *, pace: Pace | None = None
) -> float:
    """Estimate the seconds that an H200 takes for a stack.

    Args:
        trials: The trials of the stack.
        rows: Numbers of training, validation and test rows. Default: those of the published set.
        pace: Default: that of the kernels that would train the stack.
    """
    first = trials[0]
    if pace is None:
        pace = FUSED if DATASETS[first.dataset].side == 32 else LAYERED
    counts = published_rows(first) if rows is None else rows
    steps = max(1, counts["training"] // BATCH)
    scale = (first.depth - 2) / 30 * (DATASETS[first.dataset].side / 32) ** 2
    nets, sets = len(trials), 1 + first.held_out
    training = first.epochs * steps * max(pace.step * nets + pace.stack_step, pace.least) * scale
    images = counts["validation"] + counts["test"]
    evaluation = (images / BATCH * pace.evaluation * scale + pace.ranking * sets) * nets
    return _START + 1e-3 * (training + len(evaluated_epochs(first)) * evaluation)


def evaluated_epochs(trial: NetTrial) -> tuple[int, ...]:
    """Return the epochs after which a trial is evaluated: the last one for a search, all for results.

    The trials of the anchor are evaluated every tenth of their length before the learning rate falls, then
    every fortieth: metrics of 100 classes take a CPU longer than an epoch takes a GPU.

    >>> from dataclasses import replace
    >>> trial = NetTrial("cifar10", "step", 0.1, 0, True, 32, 16, "CE", (), 0.002, 0, 3, "search")
    >>> evaluated_epochs(trial), evaluated_epochs(replace(trial, role="final"))
    ((3,), (1, 2, 3))
    """
    if trial.role == "anchor":
        every, late = max(1, trial.epochs // 40), round(0.8 * trial.epochs)
        own = (*range(4 * every, late, 4 * every), *range(late, trial.epochs, every), trial.epochs)
        return tuple(sorted(set(own)))
    return (trial.epochs,) if trial.role == "search" else tuple(range(1, trial.epochs + 1))


def published_rows(trial: NetTrial) -> dict[str, int]:
    """Return the rows of each set by its published size; for an exponential task, except for rounding."""
    data = DATASETS[trial.dataset]
    images, classes, rho = data.train_images, data.classes, trial.rho
    if trial.task in ("halves", "pair"):
        classes = 2 if trial.task == "pair" else classes
        large, small = images * (classes // 2), rho * images * (classes // 2)
    elif trial.task == "exponential":
        large, small = images, sum(images * rho ** (k / (classes - 1)) for k in range(1, classes))
    else:
        large, small = images * (classes // 2), rho * images * (classes // 2)
    share = validation_share(trial.task) if trial.held_out else 0.0
    return {
        "training": int(large * (1 - share) + small),
        "validation": int(images * classes * share),
        "test": data.test_images * classes,
    }


def _of_role(experiment: NetExperiment, cell: Cell, setup: Setup, role: str) -> list[NetTrial]:
    if role == "ablation":
        return ablation_trials(experiment, cell, setup)
    if role == "search":
        return _search(experiment, cell, setup)
    if role == "paper":
        return paper_trials(experiment, cell, setup)
    # The number of trainings does not depend on the settings that the search will choose.
    anything = dict.fromkeys(METHODS, Chosen((), DATASETS[setup.dataset].paper_lr, 0.0, 1))
    make = beyond_trials if role == "beyond" else final_trials
    return make(experiment, cell, setup, anything)
