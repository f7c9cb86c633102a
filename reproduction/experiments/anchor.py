"""Train losses on CIFAR-100-LT by published recipes, and print the accuracies beside the published ones.

python -m reproduction anchor --data cifar-100-binary --minutes 10
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from .. import UnfinishedError
from ..training_records import Record, journal_path, read_records
from .net_trial import PAPER_WIDTH, Setup, refuse_seed, size_of
from .trials import ANCHOR, anchor_trials

PUBLISHED: Mapping[str, Mapping[str, str]] = {
    "same recipe": {"CE": "38.06 ± 1.03", "LDAM-DRW": "42.73 ± 0.28", "VS": "42.67 ± 0.48"},
    "authors": {"CE+LA": "44.06", "LDAM-DRW": "42.04"},
}
"""Accuracies in per cent, test images of CIFAR-100, largest class 100 times the smallest, ResNet-32.

"same recipe": Wang et al. (NeurIPS 2023), the README of github.com/wang22ti/DDC, "200 Epochs with wd=0.0002":
the recipe of LDAM's authors. Its script has the parameters of VS, there with 400 epochs.

"authors": LDAM-DRW is 100 less the error of Cao et al. (NeurIPS 2019) as lists of results quote it. CE+LA is
from the README of Menon et al. (ICLR 2021), with a recipe of their own: 1,419 epochs, Nesterov's momentum;
their cross entropy has 39.87.
"""
_COLUMNS = ("loss", "seeds", "last epoch", "best epoch", *PUBLISHED)


def run(
    out: Path,
    seed: int = 0,
    tell: Callable[[str], None] = lambda message: None,
    *,
    data: Path | None = None,
    size: str = "full",
    depth: int | None = None,
    width: int = PAPER_WIDTH,
    complete: bool = True,
    **options: Any,
) -> list[Path]:
    """Train missing trials if `data` is given, and print the table. `options` are those of `run_experiment`.

    The size full has 200 epochs. If the size is two numbers, the second counts.
    """
    refuse_seed("anchor", seed)
    setup, left = Setup("cifar100", size_of(size), depth, width), 0
    journals = out / "deep"
    if data is not None:
        from .runs import run_experiment

        outcome = run_experiment(
            ANCHOR, setup, data, journals, roles=ANCHOR.roles, complete=complete, tell=tell, **options
        )
        left = outcome.left
        tell(f"anchor: {outcome.trained} trained in {outcome.seconds:.0f} s, {left} left")
    finished = read_records(journal_path(journals, "anchor", "cifar100"))
    sys.stdout.write(f"{accuracy_table(setup, finished)}\n")
    if left:
        raise UnfinishedError(f"out of time: {left} trainings are left; run the same command to resume")
    return []


def accuracy_table(setup: Setup, finished: Mapping[str, Record]) -> str:
    """Format mean and standard deviation over seeds of the test accuracy (argmax), beside the published.

    The best epoch is the best evaluated one of each net on the test images, as others report it.
    """
    curves: dict[str, list[Sequence[float]]] = {}
    for trial in anchor_trials(setup):
        own = curves.setdefault(trial.method, [])
        if trial.key in finished and finished[trial.key]["frozen"] is None:
            own.append(finished[trial.key]["curve"]["test_accuracy"])
    rows = [_COLUMNS, ("---",) * len(_COLUMNS)]
    for method, found in curves.items():
        ours = (str(len(found)), _spread([curve[-1] for curve in found]), _spread([max(c) for c in found]))
        rows.append((method, *ours, *(printed.get(method, "") for printed in PUBLISHED.values())))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _spread(shares: Sequence[float]) -> str:
    """Format mean and standard deviation in per cent.

    >>> _spread([0.38, 0.4]), _spread([0.38]), _spread([])
    ('39.00 ± 1.41', '38.00', '')
    """
    values = [100 * share for share in shares]
    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    return f"{fmean(values):.2f} ± {stdev(values):.2f}"
