"""Train losses on CIFAR-100-LT as others did, and put the accuracies beside those that they print.

python -m raresight.paper.deep.anchor --data cifar-100-binary --out results/deep --minutes 10
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from ..command import UNFINISHED, check_minutes, exit_code, tell
from .experiments import ANCHOR, anchor_trials
from .journal import Record, journal_path, read_records
from .settings import Setup, size_of

__all__ = ["PUBLISHED", "accuracy_table", "main"]

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when nothing is left to train, 3 when time ran out before, 2 for an error."""
    parser = argparse.ArgumentParser(
        prog="python -m raresight.paper.deep.anchor", description=str(__doc__).splitlines()[0]
    )
    add = parser.add_argument
    add("--data", type=Path, help="folder of the image set; left out, only the table is printed")
    add("--out", type=Path, default=Path("results/deep"), help="folder of the journal")
    add("--size", default="full", help="full is 200 epochs; or two numbers, of which the second counts")
    add("--minutes", type=float, help="stop before so many have passed")
    add("--device", help="such as cuda; left out, a GPU if there is one")
    add("--depth", type=int, help="layers of the net; left out, 32")
    add("--width", type=int, default=16, help="channels of its first stage")
    add("--checkpoints", type=Path, help="folder for stacks under way; left out, unfinished/ in --out")
    add("--part-of-set", action="store_true", help="accept an image set that is not complete")
    chosen = parser.parse_args(arguments)
    return exit_code(lambda: _run(chosen))


def _run(chosen: argparse.Namespace) -> int:
    check_minutes(chosen.minutes)
    setup, left = Setup("cifar100", size_of(chosen.size), chosen.depth, chosen.width), 0
    if chosen.data is not None:
        from .runs import run_experiment

        outcome = run_experiment(
            *(ANCHOR, setup, chosen.data, chosen.out),
            device=chosen.device,
            minutes=chosen.minutes,
            roles=ANCHOR.roles,
            checkpoints=chosen.checkpoints,
            complete=not chosen.part_of_set,
            tell=tell,
        )
        left = outcome.left
        tell(f"anchor: {outcome.trained} trained in {outcome.seconds:.0f} s, {left} left")
    sys.stdout.write(
        f"{accuracy_table(setup, read_records(journal_path(chosen.out, 'anchor', 'cifar100')))}\n"
    )
    return UNFINISHED if left else 0


def accuracy_table(setup: Setup, finished: Mapping[str, Record]) -> str:
    """Mean and standard deviation over seeds of the test accuracy, as trained (argmax), beside the printed.

    The best epoch is that of each net on the test images, as others report it; of the judged ones.
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
    """In per cent.

    >>> _spread([0.38, 0.4]), _spread([0.38]), _spread([])
    ('39.00 ± 1.41', '38.00', '')
    """
    values = [100 * share for share in shares]
    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    return f"{fmean(values):.2f} ± {stdev(values):.2f}"


if __name__ == "__main__":
    sys.exit(main())
