"""Reproduce a table or figure of the paper, or train the nets that it needs.

python -m reproduction all                                          the theory: no data needed
python -m reproduction table2 --data cifar-10-batches-bin --size full --minutes 25
python -m reproduction table2 --data cifar-10-batches-bin --train-only
python -m reproduction fraud --data creditcard.csv --families linear xgboost
python -m reproduction docs                                         the numbers in docs/, from the results
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from raresight.common.progress import FaultTolerantStream

from . import ALL, DEEP_NAMES, NAMES, PARTS, SIMULATE, UnfinishedError, options_of, reproduce
from .experiments.settings import PAPER_WIDTH, Setup, refuse_seed, size_of

__all__ = ["main"]

UNFINISHED = 3
"""The exit code where time ran out before the end."""
INTERRUPTED = 130
"""The exit code after Ctrl-C, as shells have it."""

_SPELLED = {"rhos": "--rho", "roles": "--role", "complete": "--part-of-set", "figures": "--no-figures"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 if nothing is left to do, 2 after an error, 3 if time ran out before the end, 130 after Ctrl-C.
    """
    try:
        given = vars(_parser().parse_args(arguments))
        return _run(list(dict.fromkeys(given.pop("names"))), given)
    except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        _tell(f"error: {' '.join(str(error).split()) or type(error).__name__}")
        return UNFINISHED if isinstance(error, UnfinishedError) else 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # One line, as every other error of the command.
        raise ValueError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m reproduction",
        description=str(__doc__).splitlines()[0],
        epilog="\n".join(str(__doc__).splitlines()[2:]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=f"one or several of {', '.join(PARTS)}")
    every = parser.add_argument_group("every part").add_argument
    every("--out", type=Path, help="folder of the results; journals are in deep/ there. Default: results")
    every("--seed", type=int, help="seed of samples, splits and fits. Default: 0")
    data = parser.add_argument_group("parts with data").add_argument
    data("--data", type=Path, help="creditcard.csv, its Parquet or .npz form; or the folder of an image set")
    data("--results-only", action="store_true", help="train nothing, show the results that are there")
    data("--train-only", action="store_true", help="train nets and write no tables: no matplotlib needed")
    data("--no-figures", dest="figures", action="store_false", help="write tables alone")
    data("--plan", action="store_true", help="print what is left to train and how long a GPU takes")
    data("--minutes", type=float, help="stop training after this time; the same command goes on")
    data("--device", help="such as cuda or cpu. Default: a GPU if there is one")
    images = parser.add_argument_group("nets on images").add_argument
    images("--dataset", help="cifar10, cifar100 or tinyimagenet. Default: cifar10")
    images("--size", help="short, medium, full, or epochs of search and result such as 8,16. Default: short")
    images("--rho", dest="rhos", metavar="RHO", nargs="+", type=float, help="train only these imbalances")
    images(
        "--role",
        dest="roles",
        metavar="ROLE",
        nargs="+",
        help="train only these: search, final, paper, beyond, ablation",
    )
    images("--stack", type=int, help="the most nets trained as one. Default: 48")
    images("--depth", type=int, help="layers of the net. Default: the paper's")
    images("--width", type=int, help="channels of its first stage. Default: 16")
    images("--checkpoints", type=Path, help="folder of unfinished stacks. Default: deep/unfinished in --out")
    images("--part-of-set", dest="complete", action="store_false", help="accept an incomplete image set")
    fraud = parser.add_argument_group("fraud").add_argument
    fraud("--families", nargs="+", help="linear, xgboost, lightgbm, tabnet, tabm; deep is the last two")
    fraud("--methods", nargs="+", help="methods to show, such as 'cross entropy' TBL")
    fraud("--jobs", type=int, help="fits at once. Default: one per core")
    fraud("--repeats", type=int, help="how often the folds are drawn. Default: 3")
    fraud("--net-seeds", type=int, help="nets of each loss setting. Default: 3 for tabnet, 1 for tabm")
    fraud("--net-epochs", type=int, help="the most epochs of a net. Default: 30")
    lines = parser.add_argument_group("simulate").add_argument
    lines("--losses", nargs="+", help="losses whose lines are drawn. Default: five of the paper's")
    lines("--clusters", type=Path, help="TOML file with your own clusters. Default: the paper's")
    lines("--prior", type=float, help="share of positives, P(y=1). Default: 1/501")
    return parser


def _run(names: Sequence[str], given: dict[str, Any]) -> int:
    for name in names:
        _check_options(name, given)
    if (stack := given.get("stack", 1)) < 1:
        raise ValueError(f"--stack must be at least 1, but is {stack}")
    minutes = given.get("minutes")
    if minutes is not None and not minutes >= 0:
        raise ValueError(f"--minutes must be at least 0, but is {minutes:g}")
    if nets := [name for name in names if name in DEEP_NAMES]:
        _check_nets(nets, given)
    if given.pop("plan", False):
        return _print_plan(names, given)
    begun, code = time.monotonic(), 0
    for name in [part for one in names for part in (NAMES if one == ALL else (one,))]:
        own = dict(given)
        if minutes is not None:
            # All parts together have the time.
            own["minutes"] = max(0.0, minutes - (time.monotonic() - begun) / 60)
        try:
            code = max(code, _one(name, own))
        except KeyboardInterrupt:
            _tell(_interrupted_words(name))
            return INTERRUPTED
    return code


def _one(name: str, given: dict[str, Any]) -> int:
    """Do one part; returns the exit code."""
    out, seed = given.pop("out", Path("results")), given.pop("seed", 0)
    if given.pop("train_only", False):
        if "data" not in given:
            raise ValueError("--train-only needs --data")
        if name == "fraud":
            from .fraud.net_training import train_only as train_fraud

            return UNFINISHED if train_fraud(out, seed, _tell, **given) else 0
        from .experiments.report import train_only

        return UNFINISHED if train_only(DEEP_NAMES[name], out, _tell, **given) else 0
    for path in reproduce(name, out, seed, _tell, **given):
        sys.stdout.write(f"{path}\n")
    if name not in DEEP_NAMES or "data" not in given or "minutes" not in given or "results_only" in given:
        return 0
    from .experiments.plan import trainings_left

    left = trainings_left(DEEP_NAMES[name], _setup_of(given), given.get("rhos"), out / "deep")
    if left:
        _tell(f"out of time: {left} trainings are left, with which the same command goes on")
    return UNFINISHED if left else 0


def _print_plan(names: Sequence[str], given: dict[str, Any]) -> int:
    journals = given.get("out", Path("results")) / "deep"
    if "fraud" in names:
        if len(names) > 1:
            raise ValueError("the plan of fraud is printed alone: leave out the other parts")
        from .fraud.net_training import JOURNAL, plan_text

        families, seed = given.get("families", ["deep"]), given.get("seed", 0)
        counted = (given.get("net_seeds"), given.get("repeats"), given.get("net_epochs"))
        text = plan_text(families, *counted, journals / JOURNAL, seed, given.get("data"))
    else:
        from .experiments.plan import STACK
        from .experiments.plan import plan_text as plan_of_nets
        from .experiments.settings import ROLES

        rhos, roles = given.get("rhos"), given.get("roles", ROLES)
        chosen = list(dict.fromkeys(DEEP_NAMES[name] for name in names))
        text = plan_of_nets(chosen, _setup_of(given), given.get("stack", STACK), rhos, roles, journals)
    sys.stdout.write(f"{text}\n")
    return 0


def _check_nets(names: Sequence[str], given: dict[str, Any]) -> None:
    """An error for nets that none of the parts has, before anything is trained."""
    from .experiments.trials import EXPERIMENTS, check_beyond, check_rhos, check_roles

    setup, rhos, roles = _setup_of(given), given.get("rhos"), given.get("roles", ())
    experiments = [EXPERIMENTS[DEEP_NAMES[name]] for name in names]
    for name, experiment in zip(names, experiments):
        refuse_seed(name, given.get("seed", 0))
        experiment.check(setup, name)
    check_roles(experiments, roles)
    check_beyond(experiments, setup, roles, rhos)
    check_rhos(experiments, rhos, ", ".join(names))


def _setup_of(given: dict[str, Any]) -> Setup:
    size = size_of(given.get("size", "short"))
    return Setup(given.get("dataset", "cifar10"), size, given.get("depth"), given.get("width", PAPER_WIDTH))


def _check_options(name: str, given: dict[str, Any]) -> None:
    """An error for options that a part does not take, named as they are typed."""
    known = ("out", "seed", *(() if name == ALL else options_of(name)))
    strange = [option for option in given if option not in known]
    if strange:
        rest = f"; its options are {_typed(known[2:])}" if known[2:] else ""
        raise ValueError(f"{name} takes no {_typed(strange)}{rest}")


def _typed(options: Sequence[str]) -> str:
    return ", ".join(_SPELLED.get(one, f"--{one.replace('_', '-')}") for one in options)


def _interrupted_words(name: str) -> str:
    """What a Ctrl-C leaves of a part."""
    if name in (*NAMES, SIMULATE):
        return f"interrupted: {name} begins anew when it is called again"
    if name == "fraud":
        return "interrupted: families and splits that were finished are kept, and the same command goes on"
    return (
        "interrupted: what was finished is kept, of nets under way what they were about a minute ago or an "
        "epoch before, and the same command goes on"
    )


def _tell(message: str) -> None:
    """Write a line of progress at once. A closed standard error does not stop the work."""
    stream = FaultTolerantStream(sys.stderr)
    stream.write(f"{message}\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
