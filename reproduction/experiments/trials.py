"""The experiments as lists of trials: what is chosen from, what is reported, and the paper's own setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .methods import METHODS, Chosen, candidates, choose, paper_parameters
from .settings import CLASS_TASKS, DATASETS, NetTrial, Parameters, Setup

SEEDS = (0, 1, 2)
PAPER_EPOCHS = 250
DECAYS = (160, 180)
"""Where the paper's learning rate falls to a tenth each."""
# No trial that is reported took part in a choice.
SEARCH_SEED = 100
ABLATION_C = (0.0, 0.15, 0.3, 0.5, 0.75, 1.0, 1.25, 1.5)
ABLATION_METHODS = ("TBL", "TBL+LA")
_ABLATION_ALPHA = 0.8
BEYOND_METHODS = ("CE", "CE+LA", "alpha+LA", "TBL", "TBL+LA")
"""Cross entropy, and the losses whose slopes, and so steps, are larger."""
_BEYOND_TIMES = 3
# The published ones, and ours. VS has the parameters that Wang et al. (2023) train it with on this set.
_ANCHOR_METHODS: dict[str, Parameters] = {
    **dict.fromkeys(("CE", "CE+LA", "LDAM", "LDAM-DRW"), ()),
    "VS": (("tau", 1.0), ("gamma", 0.05)),
    "alpha+LA": (("alpha", 0.7),),
    **dict.fromkeys(("TBL", "TBL+LA"), (("alpha", 0.7), ("C", 0.5))),
}
_ANCHOR_EPOCHS, _ANCHOR_DEPTH, _ANCHOR_LR = 200, 32, 0.1
_TASK_WORDS = {"pair": "deer among horses"}


@dataclass(frozen=True)
class Cell:
    """One imbalance of an experiment: a task of `reproduction.images.imbalance` and rho."""

    task: str
    rho: float

    def __str__(self) -> str:
        return f"{self.title}, rho {self.rho:g}"

    @property
    def title(self) -> str:
        """The task in words."""
        return _TASK_WORDS.get(self.task, self.task)


@dataclass(frozen=True)
class NetExperiment:
    """What is compared.

    Attributes:
        name: As in the name of its journal.
        cells: The imbalances, the most extreme first: they are trained in this order.
        draws: Seeds of the tasks; a draw decides the categories that are positive and the rows kept.
        choose_by: The metric on validation rows by which settings are chosen, the larger the better.
        classes: Whether all classes are kept.
        stretch: Epochs are so many times those of the size, up to the paper's: a small set has short epochs.
        beyond: Imbalances at which some losses are also trained at a rate beyond those to choose from, at the
            paper's length.
    """

    name: str
    cells: tuple[Cell, ...]
    draws: tuple[int, ...]
    choose_by: str = "roc_auc"
    classes: bool = False
    stretch: float = 1.0
    beyond: tuple[float, ...] = ()

    def check(self, setup: Setup, name: str | None = None) -> None:
        """An error where the set does not have what the experiment, known to the user by `name`, needs."""
        if any(cell.task == "pair" for cell in self.cells) and setup.dataset != "cifar10":
            raise ValueError(
                f"{name or self.name} is about the deer and horses of cifar10: it cannot be run on "
                f"{setup.dataset}"
            )

    @property
    def roles(self) -> tuple[str, ...]:
        """Of its trials, in the order in which they are trained."""
        if self.name in ("ablation-c", "anchor"):
            return (self.name.removesuffix("-c"),)
        return ("search", "final", "paper", "beyond") if self.beyond else ("search", "final", "paper")

    def epochs(self, role: str, setup: Setup) -> int:
        """The length of trainings with a role."""
        return self._stretched(setup.size.search_epochs if role == "search" else setup.size.final_epochs)

    def unstretched(self, length: int) -> int:
        """The epochs of a size whose trainings are so long; a length that it stretches no further is its own.

        >>> EXPERIMENTS["deer-horse"].unstretched(21), EXPERIMENTS["deer-horse"].unstretched(250)
        (14, 250)
        """
        lengths = (length, *range(1, length))
        return next((epochs for epochs in lengths if self._stretched(epochs) == length), length)

    def _stretched(self, epochs: int) -> int:
        return max(epochs, min(PAPER_EPOCHS, round(self.stretch * epochs)))


EXPERIMENTS = {
    # Where TBL or TBL+LA led with chosen rates, all of them the largest: is it the loss or the larger step?
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
"""Published accuracies of losses on CIFAR-100-LT, trained again: not of the paper, and so not one of its
experiments."""


def check_rhos(
    experiments: Sequence[NetExperiment], rhos: Sequence[float] | None, name: str | None = None
) -> None:
    """An error where an imbalance is asked for that none of the experiments, known by `name`, has."""
    known = sorted({cell.rho for experiment in experiments for cell in experiment.cells})
    unknown = [rho for rho in rhos or () if rho not in known]
    if unknown:
        names = name or ", ".join(experiment.name for experiment in experiments)
        listed = ", ".join(f"{rho:g}" for rho in known)
        raise ValueError(f"{names} has no imbalance {unknown[0]:g}; rho is one of {listed}")


def check_roles(experiments: Sequence[NetExperiment], roles: Sequence[str]) -> None:
    """An error where trainings are asked for that none of the experiments has."""
    known = dict.fromkeys(role for experiment in experiments for role in experiment.roles)
    unknown = [role for role in roles if role not in known]
    if unknown:
        names = ", ".join(experiment.name for experiment in experiments)
        raise ValueError(f"{names} has no {unknown[0]} trainings; its own are {', '.join(known)}")


def check_beyond(
    experiments: Sequence[NetExperiment], setup: Setup, roles: Sequence[str], rhos: Sequence[float] | None
) -> None:
    """An error where trainings beyond the rates are all that is asked for, and there are none such."""
    if {*roles} != {"beyond"}:
        return
    known = sorted({rho for experiment in experiments for rho in experiment.beyond})
    lengths = {experiment.epochs("beyond", setup) for experiment in experiments if experiment.beyond}
    if PAPER_EPOCHS not in lengths or not any(rhos is None or rho in rhos for rho in known):
        listed = " and ".join(f"{rho:g}" for rho in known)
        raise ValueError(
            f"trainings beyond the rates that are chosen from are of {PAPER_EPOCHS} epochs, as those of "
            f"--size full, at rho {listed}; there are none as asked for"
        )


def search_trials(experiment: NetExperiment, cell: Cell, setup: Setup) -> list[NetTrial]:
    """Every method with its candidates and every learning rate, on every draw, with a seed of their own."""
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
    """Every method at the setting that was chosen for it, on every draw with every seed."""
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
    """Every method at the paper's parameters and learning rate, on the first draw, all rows trained on."""
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
    """Three times the largest learning rate that is chosen from.

    >>> beyond_rate("cifar10")
    0.06
    """
    return float(f"{_BEYOND_TIMES * max(DATASETS[dataset].lrs):.6g}")


def has_beyond(experiment: NetExperiment, cell: Cell, setup: Setup) -> bool:
    """Whether a cell has trainings beyond the rates at this size."""
    return cell.rho in experiment.beyond and experiment.epochs("beyond", setup) == PAPER_EPOCHS


def beyond_trials(
    experiment: NetExperiment, cell: Cell, setup: Setup, chosen: Mapping[str, Chosen]
) -> list[NetTrial]:
    """Cross entropy, alpha and TBL at three times the largest rate, with the parameters that were chosen.

    At the paper's length alone: a short training wants the largest rate, whatever the loss.
    """
    if not has_beyond(experiment, cell, setup):
        return []
    rate = beyond_rate(setup.dataset)
    return [
        _trial(experiment, setup, cell, draw, True, method, chosen[method].parameters, rate, seed, "beyond")
        for draw in experiment.draws
        for method in BEYOND_METHODS
        for seed in SEEDS
    ]


def ablation_trials(experiment: NetExperiment, cell: Cell, setup: Setup) -> list[NetTrial]:
    """TBL at alpha 0.8 over C, with and without logit adjustment, at the paper's and the largest rate."""
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
    """Losses on CIFAR-100-LT by the recipe of LDAM's authors, at the length of a size up to theirs.

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
    """The trials of a cell by role, as far as they are known: chosen settings once the search is finished."""
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


def lacking_words(cell: Cell, trials: Sequence[NetTrial], finished: Mapping[str, Mapping[str, Any]]) -> str:
    """How many trials of one role a cell lacks; empty where it lacks none."""
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
    """What the searches lack without which trainings of these roles are not known, a line for each cell."""
    if "search" not in experiment.roles:
        return []
    cells = [
        cell
        for cell in experiment.cells
        if (rhos is None or cell.rho in rhos)
        and ("final" in roles or ("beyond" in roles and has_beyond(experiment, cell, setup)))
    ]
    lines = [lacking_words(cell, search_trials(experiment, cell, setup), finished) for cell in cells]
    return [line for line in lines if line]


def known_trials(
    experiment: NetExperiment, setup: Setup, finished: Mapping[str, Mapping[str, Any]]
) -> Iterator[NetTrial]:
    """All trials that are known, in the order in which they are trained: cell by cell.

    The finished records are given by the keys of their trials. Once a cell's search is finished there are
    more.
    """
    for cell in experiment.cells:
        for trials in cell_trials(experiment, cell, setup, finished).values():
            yield from trials


# Asked for again and again, at every size and cell: the same one keeps its key.
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
