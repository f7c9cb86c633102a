"""How many trainings an experiment has, how many are left, and how long a GPU takes for them.

Other depths than ResNet-32 and other sizes of images are reckoned in proportion to their convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..training_records import Record, journal_path, read_records
from .methods import METHODS, Chosen
from .settings import DATASETS, ROLES, NetTrial, Setup, validation_share
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
# The most nets in a stack unless said otherwise: 12 GiB of a GPU with ResNet-32.
STACK = 48
# Seconds before the first step: weights drawn, kernels chosen, the graph recorded. The first stack on a
# machine that has compiled no kernel yet takes 30 more.
_START = 1.0


@dataclass(frozen=True)
class Pace:
    """Milliseconds of an H200, by what the trainings in results/deep took.

    Attributes:
        step: Of a batch in training, of each net.
        stack_step: Of a batch in training, of the whole stack beside.
        judged: Of a batch that is judged, of each net.
        ranking: Of ranking the scores of a net on a set; nothing where that is done beside the next epoch.
        least: Of a batch in training, of a stack so small that it does not fill the GPU.
    """

    step: float
    stack_step: float
    judged: float
    ranking: float = 0.0
    least: float = 0.0


FUSED = Pace(0.287, 0.49, 0.0528, least=3.1)
"""Of the CUDA kernels for images of 32 x 32 pixels: eight stacks of 27 to 63 nets took within 4 % of it, four
that compiled their kernels first 17 to 38 s more, and one of 32, beside which another was at work, 24 s. A
stack of six took 3.1 ms a batch, one of eight 3.2."""
LAYERED = Pace(0.505, 1.86, 0.18, 1.75)
"""Of Triton's kernels, by which the first nets were trained: nine in ten stacks took within 7 % of it."""
LAYERED_FLOAT32 = replace(LAYERED, judged=0.77)
"""The same, judged in float32."""


@dataclass(frozen=True)
class PlanLine:
    """The trainings of one role: how many, how many are left, their length, and the GPU's time for those."""

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
    """The trainings of an experiment by role; of these imbalances and roles alone if they are given.

    Those in `finished` are not left. Before a search is complete, what it will choose is not known, and all
    of its final trainings are left.

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
                left.setdefault(trial.together, []).append(trial)
        seconds = sum(
            stack_seconds(group[:size]) for group in left.values() for size in stack_sizes(len(group), stack)
        )
        count = sum(map(len, left.values()))
        lines.append(PlanLine(name, role, len(trials), count, trials[0].epochs, seconds / 60))
    return lines


def trainings_left(
    name: str, setup: Setup, rhos: Sequence[float] | None = None, journals: Path | None = None
) -> int:
    """How many trainings of an experiment the journals in a folder lack, of these imbalances if given."""
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
    """The plan of several experiments as a table; of these imbalances and roles alone if they are given.

    What the journals in a folder have is not left to train.
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
    """Stacks of about equal size for so many trials, none larger than `stack`.

    >>> stack_sizes(45, 32), stack_sizes(27, 32), stack_sizes(0, 32)
    ([23, 22], [27], [])
    """
    stacks = math.ceil(count / stack)
    return [count // stacks + (place < count % stacks) for place in range(stacks)]


def stack_seconds(
    trials: Sequence[NetTrial], rows: Mapping[str, int] | None = None, *, pace: Pace | None = None
) -> float:
    """How long an H200 takes for a stack, by the pace of the kernels that would train it unless one is given.

    `rows` has the rows of training, validation and test if known.
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
    judging = (images / BATCH * pace.judged * scale + pace.ranking * sets) * nets
    return _START + 1e-3 * (training + len(evaluated_epochs(first)) * judging)


def evaluated_epochs(trial: NetTrial) -> tuple[int, ...]:
    """After which epochs a trial is judged: a choice needs the last alone, a result has them all.

    An anchor is judged every fortieth of its length, and before its rate falls every tenth: metrics of 100
    classes take a CPU longer than an epoch takes a GPU.

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
    """Rows of each set, as the published sizes give them; those of an exponential task but for rounding."""
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
    # Which settings are chosen does not change how many trainings there are.
    anything = dict.fromkeys(METHODS, Chosen((), DATASETS[setup.dataset].paper_lr, 0.0, 1))
    make = beyond_trials if role == "beyond" else final_trials
    return make(experiment, cell, setup, anything)
