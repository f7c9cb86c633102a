"""The experiments as lists of trials: the search, the chosen settings, the paper's setting and series."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .methods import METHODS, Chosen, candidates, choose, paper_parameters
from .net_trial import CLASS_TASKS, DATASETS, NetTrial, Parameters, Setup

SEEDS = (0, 1, 2)
PAPER_EPOCHS = 250
DECAYS = (160, 180)
"""Epochs after which the paper's learning rate falls to a tenth."""
# Other than the seeds of results, so that no reported training took part in a choice.
SEARCH_SEED = 100
ABLATION_C = (0.0, 0.15, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5)
ABLATION_METHODS = ("TBL", "TBL+LA")
_ABLATION_ALPHA = 0.8
BEYOND_METHODS = ("CE", "CE+LA", "alpha+LA", "TBL", "TBL+LA")
"""Cross entropy, and the losses with larger slopes, which take larger steps at the same rate."""
_BEYOND_TIMES = 3
# Published losses and ours. VS has the parameters of Wang et al. (2023) for this set.
_ANCHOR_METHODS: dict[str, Parameters] = {
    **dict.fromkeys(("CE", "CE+LA", "LDAM", "LDAM-DRW"), ()),
    "VS": (("tau", 1.0), ("gamma", 0.05)),
    "alpha+LA": (("alpha", 0.7),),
    **dict.fromkeys(("TBL", "TBL+LA"), (("alpha", 0.7), ("C", 0.5))),
}
_ANCHOR_EPOCHS, _ANCHOR_DEPTH, _ANCHOR_LR = 200, 32, 0.1
_TASK_TITLES = {"pair": "deer among horses"}


@dataclass(frozen=True)
class Cell:
    """A task of `reproduction.images.imbalance` at one imbalance rho."""

    task: str
    rho: float

    def __str__(self) -> str:
        return f"{self.title}, rho {self.rho:g}"

    @property
    def title(self) -> str:
        """The name of the task."""
        return _TASK_TITLES.get(self.task, self.task)


@dataclass(frozen=True)
class NetExperiment:
    """An experiment: tasks on which all methods are trained and compared.

    Attributes:
        name: Name of the experiment and its journal.
        cells: Tasks with their imbalances, in the order of training, the most extreme first.
        draws: Seeds of the tasks. A draw decides which categories are positive and which rows are kept.
        choose_by: Metric on validation rows that chooses settings; larger is better.
        classes: Whether all classes are kept.
        stretch: Factor on the epochs of a size, up to the paper's 250. A small set needs more epochs.
        beyond: Imbalances at which some losses are also trained at a learning rate above those of the search,
            at the paper's length.
    """

    name: str
    cells: tuple[Cell, ...]
    draws: tuple[int, ...]
    choose_by: str = "roc_auc"
    classes: bool = False
    stretch: float = 1.0
    beyond: tuple[float, ...] = ()

    def check(self, setup: Setup, name: str | None = None) -> None:
        """Raise an error if the image set lacks the categories of the experiment; `name` is used in it."""
        if any(cell.task == "pair" for cell in self.cells) and setup.dataset != "cifar10":
            raise ValueError(
                f"{name or self.name} is about the deer and horses of cifar10: it cannot be run on "
                f"{setup.dataset}"
            )

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of its trials, in the order of training."""
        if self.name in ("ablation-c", "anchor"):
            return (self.name.removesuffix("-c"),)
        return ("search", "final", "paper", "beyond") if self.beyond else ("search", "final", "paper")

    def epochs(self, role: str, setup: Setup) -> int:
        """Return the epochs of trainings with a role."""
        return self._stretched(setup.size.search_epochs if role == "search" else setup.size.final_epochs)

    def unstretched(self, length: int) -> int:
        """Return the epochs of the size for which `stretch` gives this length.

        >>> EXPERIMENTS["deer-horse"].unstretched(21), EXPERIMENTS["deer-horse"].unstretched(250)
        (14, 250)
        """
        lengths = (length, *range(1, length))
        return next((epochs for epochs in lengths if self._stretched(epochs) == length), length)

    def _stretched(self, epochs: int) -> int:
        return max(epochs, min(PAPER_EPOCHS, round(self.stretch * epochs)))


EXPERIMENTS = {
    # At the imbalances of `beyond` TBL or TBL+LA led, always at the largest rate. Larger rates test whether
    # the loss or the larger step is the reason.
    "table2": NetExperiment(
        "table2", tuple(Cell("halves", rho) for rho in (0.01, 0.05, 0.1)), (0, 1), beyond=(0.01, 0.1)
    ),
    "table4": NetExperiment(
        "table4",
        tuple(Cell(task, rho) for rho in (0.01, 0.1) for task in CLASS_TASKS),
        (0,),
        "accuracy_linked",
        classes=True,
    ),
    # The paper's experiments on the accuracy of the minority and on the Brier score.
    "deer-horse": NetExperiment(
        "deer-horse", tuple(Cell("pair", rho) for rho in (0.002, 0.01, 0.05)), (0, 1), stretch=1.5
    ),
    "ablation-c": NetExperiment("ablation-c", (Cell("pair", 0.01),), (0, 1), stretch=1.5),
}

ANCHOR = NetExperiment("anchor", (Cell("exponential", 0.01),), (0,), "accuracy", classes=True)
"""Published accuracies of losses on CIFAR-100-LT, trained again. They are not in the paper, and so not in
`EXPERIMENTS`."""


def check_rhos(
    experiments: Sequence[NetExperiment], rhos: Sequence[float] | None, name: str | None = None
) -> None:
    """Raise an error for an imbalance that none of the experiments has; `name` is their name in it."""
    known = sorted({cell.rho for experiment in experiments for cell in experiment.cells})
    unknown = [rho for rho in rhos or () if rho not in known]
    if unknown:
        names = name or ", ".join(experiment.name for experiment in experiments)
        listed = ", ".join(f"{rho:g}" for rho in known)
        raise ValueError(f"{names} has no imbalance {unknown[0]:g}; rho is one of {listed}")


def check_roles(experiments: Sequence[NetExperiment], roles: Sequence[str]) -> None:
    """Raise an error for a role that none of the experiments has."""
    known = dict.fromkeys(role for experiment in experiments for role in experiment.roles)
    unknown = [role for role in roles if role not in known]
    if unknown:
        names = ", ".join(experiment.name for experiment in experiments)
        raise ValueError(f"{names} has no {unknown[0]} trainings; its own are {', '.join(known)}")


def check_beyond(
    experiments: Sequence[NetExperiment], setup: Setup, roles: Sequence[str], rhos: Sequence[float] | None
) -> None:
    """Raise an error if only trainings of the role "beyond" are asked for, and there are none."""
    if {*roles} != {"beyond"}:
        return
    known = sorted({rho for experiment in experiments for rho in experiment.beyond})
    lengths = {experiment.epochs("beyond", setup) for experiment in experiments if experiment.beyond}
    if PAPER_EPOCHS not in lengths or not any(rhos is None or rho in rhos for rho in known):
        listed = " and ".join(f"{rho:g}" for rho in known)
        raise ValueError(
            f"--role beyond needs --size full ({PAPER_EPOCHS} epochs) and rho {listed}: there are no such "
            "trainings at other sizes or imbalances"
        )


def search_trials(experiment: NetExperiment, cell: Cell, setup: Setup) -> list[NetTrial]:
    """List the search: every method with its candidates and every learning rate, on every draw."""
    return [
        _trial(experiment, setup, cell, draw, True, method, parameters, lr, SEARCH_SEED, "search")
        for draw in experiment.draws
        for method in METHODS
        for parameters in candidates(method, setup.dataset, cell.task, cell.rho, setup.size.candidates)
        for lr in DATASETS[setup.dataset].lrs
    ]


def final_trials(
    experiment: NetExperiment, cell: Cell, setup: Setup, chosen: Mapping[str, Chosen]
) -> list[NetTrial]:
    """List every method at its chosen setting, on every draw and with every seed."""
    return [
        _trial(
            experiment,
            setup,
            cell,
            draw,
            True,
            method,
            chosen[method].parameters,
            chosen[method].lr,
            seed,
            "final",
        )
        for draw in experiment.draws
        for method in METHODS
        for seed in SEEDS
    ]


def paper_trials(experiment: NetExperiment, cell: Cell, setup: Setup) -> list[NetTrial]:
    """List every method at the paper's setting, on all training rows of the first draw."""
    return [
        _trial(
            *(experiment, setup, cell, experiment.draws[0], False, method),
            paper_parameters(method, setup.dataset, cell.task, cell.rho),
            DATASETS[setup.dataset].paper_lr,
            seed,
            "paper",
        )
        for method in METHODS
        for seed in SEEDS
    ]


def beyond_rate(dataset: str) -> float:
    """Return three times the largest learning rate of the search.

    >>> beyond_rate("cifar10")
    0.06
    """
    return float(f"{_BEYOND_TIMES * max(DATASETS[dataset].lrs):.6g}")


def has_beyond_trials(experiment: NetExperiment, cell: Cell, setup: Setup) -> bool:
    """Return whether a cell has trainings of the role "beyond" at this size."""
    return cell.rho in experiment.beyond and experiment.epochs("beyond", setup) == PAPER_EPOCHS


def beyond_trials(
    experiment: NetExperiment, cell: Cell, setup: Setup, chosen: Mapping[str, Chosen]
) -> list[NetTrial]:
    """List cross entropy, alpha and TBL at three times the largest rate, with their chosen parameters.

    There are such trainings at the paper's length only: a short training prefers the largest rate with any
    loss.
    """
    if not has_beyond_trials(experiment, cell, setup):
        return []
    rate = beyond_rate(setup.dataset)
    return [
        _trial(experiment, setup, cell, draw, True, method, chosen[method].parameters, rate, seed, "beyond")
        for draw in experiment.draws
        for method in BEYOND_METHODS
        for seed in SEEDS
    ]


def ablation_trials(experiment: NetExperiment, cell: Cell, setup: Setup) -> list[NetTrial]:
    """List TBL at alpha 0.8 for each C, with and without logit adjustment, at two learning rates."""
    rates = dict.fromkeys((DATASETS[setup.dataset].paper_lr, max(DATASETS[setup.dataset].lrs)))
    return [
        _trial(
            *(experiment, setup, cell, draw, False, method, (("alpha", _ABLATION_ALPHA), ("C", C)), lr, seed),
            "ablation",
        )
        for draw in experiment.draws
        for lr in rates
        for method in ABLATION_METHODS
        for C in ABLATION_C
        for seed in SEEDS
    ]


def anchor_trials(setup: Setup) -> list[NetTrial]:
    """List the losses on CIFAR-100-LT with the recipe of LDAM's authors, at most as long as theirs.

    >>> trials = anchor_trials(Setup("cifar100"))
    >>> len(trials), trials[0].depth, trials[0].epochs, trials[0].lr
    (24, 32, 14, 0.1)
    """
    (cell,) = ANCHOR.cells
    return [
        NetTrial(
            dataset=setup.dataset,
            task=cell.task,
            rho=cell.rho,
            draw=ANCHOR.draws[0],
            held_out=False,
            depth=_ANCHOR_DEPTH if setup.depth is None else setup.depth,
            width=setup.width,
            method=method,
            parameters=parameters,
            lr=_ANCHOR_LR,
            seed=seed,
            epochs=min(_ANCHOR_EPOCHS, setup.size.final_epochs),
            role="anchor",
        )
        for method, parameters in _ANCHOR_METHODS.items()
        for seed in SEEDS
    ]


def cell_trials(
    experiment: NetExperiment, cell: Cell, setup: Setup, finished: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[NetTrial]]:
    """Return the known trials of a cell by role. Those of chosen settings are known after the search."""
    if experiment.roles == ("ablation",):
        return {"ablation": ablation_trials(experiment, cell, setup)}
    if experiment.roles == ("anchor",):
        return {"anchor": anchor_trials(setup)}
    search = search_trials(experiment, cell, setup)
    found, paper = {"search": search}, paper_trials(experiment, cell, setup)
    if not all(trial.key in finished for trial in search):
        return {**found, "paper": paper}
    chosen = choose([finished[trial.key] for trial in search], f"validation_{experiment.choose_by}")
    found |= {"final": final_trials(experiment, cell, setup, chosen), "paper": paper}
    beyond = beyond_trials(experiment, cell, setup, chosen)
    return {**found, "beyond": beyond} if beyond else found


def format_missing(cell: Cell, trials: Sequence[NetTrial], finished: Mapping[str, Mapping[str, Any]]) -> str:
    """Format how many trials of one role are missing in a cell; empty if none."""
    left = sum(trial.key not in finished for trial in trials)
    if not left:
        return ""
    return f"{cell}: {left} of {len(trials)} {trials[0].role} trainings of {trials[0].epochs} epochs"


def missing_searches(
    experiment: NetExperiment,
    setup: Setup,
    finished: Mapping[str, Mapping[str, Any]],
    rhos: Sequence[float] | None = None,
    roles: Sequence[str] = ("final",),
) -> list[str]:
    """List what is missing in the searches that trainings of these roles depend on, a line for each cell."""
    if "search" not in experiment.roles:
        return []
    cells = [
        cell
        for cell in experiment.cells
        if (rhos is None or cell.rho in rhos)
        and ("final" in roles or ("beyond" in roles and has_beyond_trials(experiment, cell, setup)))
    ]
    lines = [format_missing(cell, search_trials(experiment, cell, setup), finished) for cell in cells]
    return [line for line in lines if line]


def known_trials(
    experiment: NetExperiment, setup: Setup, finished: Mapping[str, Mapping[str, Any]]
) -> Iterator[NetTrial]:
    """Yield all known trials in the order of training, cell by cell.

    `finished` has records by the keys of their trials. More trials of a cell are known after its search.
    """
    for cell in experiment.cells:
        for trials in cell_trials(experiment, cell, setup, finished).values():
            yield from trials


# Cached, because pages list the trials of all sizes and cells many times, and the key of a trial is costly.
@lru_cache(maxsize=16384)
def _trial(
    experiment: NetExperiment,
    setup: Setup,
    cell: Cell,
    draw: int,
    held_out: bool,
    method: str,
    parameters: tuple[tuple[str, float], ...],
    lr: float,
    seed: int,
    role: str,
) -> NetTrial:
    return NetTrial(
        dataset=setup.dataset,
        task=cell.task,
        rho=cell.rho,
        draw=draw,
        held_out=held_out,
        depth=setup.layers,
        width=setup.width,
        method=method,
        parameters=parameters,
        lr=lr,
        seed=seed,
        epochs=experiment.epochs(role, setup),
        role=role,
    )
