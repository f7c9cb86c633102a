"""Reproduce tables and figures of the paper, and train the nets that they need."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from raresight.common.progress import FaultTolerantStream

from . import ALL, DEEP_NAMES, NAMES, PARTS, SIMULATE, UnfinishedError, options_of, reproduce
from .experiments.net_trial import PAPER_WIDTH, Setup, refuse_seed, size_of

__all__ = ["main"]

UNFINISHED = 3
"""The exit code if time ran out before the end."""
INTERRUPTED = 130
"""The exit code after Ctrl-C, as in shells."""

_SPELLED = {"rhos": "--rho", "roles": "--role", "complete": "--part-of-set", "figures": "--no-figures"}
_NAMES_HELP = """
names:
  theory, no data needed
    table1       losses as the prior vanishes: statistical information and its limit
    figure1      decision lines of losses on two Gaussian clusters
    figure2      AUC of the lines of alpha loss over alpha, on the paper's mixture
    figure3      decision lines of losses on the paper's mixture, 1 to 500
    theorem2     the limit of decision lines at vanishing priors
    influence    the effect of deleting a row, predicted and refitted
    all          the six above
    simulate     decision lines of any losses on clusters of your own
  experiments, data needed to train
    fraud        Table 3 on the ULB card-fraud table
    table2       half of the categories of an image set rare
    table4       ten classes, with sizes that fall exponentially or in a step
    ablation-c   Figure 4: the effect of C
    minority     Appendix D: accuracy of the minority, deer among horses
    brier        Appendix D: Brier score, deer among horses
    anchor       published accuracies on CIFAR-100-LT, trained again
  pages
    overview     all experiments with nets on one page
    docs         the numbers in docs/, from the results
"""
_EXAMPLES = """
examples:
  python -m reproduction all
  python -m reproduction table2 --help
  python -m reproduction table2 --plan --size full
  python -m reproduction table2 --size full --data cifar-10-batches-bin --minutes 25
  python -m reproduction table2 --size full --data cifar-10-batches-bin --train-only
  python -m reproduction fraud --data creditcard.csv --families linear xgboost
  python -m reproduction docs

exit codes:
  0 complete, 2 error, 3 out of time (run the same command to resume), 130 Ctrl-C
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 if complete, 2 after an error, 3 if time ran out before the end, 130 after Ctrl-C.
    """
    try:
        words = sys.argv[1:] if arguments is None else list(arguments)
        given = vars(_parser([word for word in words if word in PARTS]).parse_args(words))
        return _run(list(dict.fromkeys(given.pop("names"))), given)
    except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        _tell(f"error: {' '.join(str(error).split()) or type(error).__name__}")
        return UNFINISHED if isinstance(error, UnfinishedError) else 2


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # Errors of the command line are one line, as all other errors of the command.
        raise ValueError(message)


def _parser(names: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser. Its help shows the options of these names, or all options without names."""
    lines = _NAMES_HELP.splitlines()
    shown = "\n".join(line for line in lines if not names or line.split()[:1] in [[name] for name in names])
    parser = _Parser(
        prog="python -m reproduction",
        usage=f"python -m reproduction {' '.join(names) or 'NAME [NAME ...]'} [OPTIONS]",
        description="\n\n".join([str(__doc__), shown.strip("\n")]),
        epilog=_EXAMPLES.lstrip(),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=26, width=100
        ),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help=argparse.SUPPRESS)
    taken = {option for name in names if name != ALL for option in options_of(name)}

    def group(title: str) -> Callable[..., None]:
        add = parser.add_argument_group(title).add_argument

        def option(spelled: str, text: str, **facts: Any) -> None:
            name = facts.get("dest") or spelled.removeprefix("--").replace("-", "_")
            shown = not names or name in ("out", "seed") or name in taken
            add(spelled, help=text if shown else argparse.SUPPRESS, **facts)

        return option

    every = group("every name")
    every("--out", "folder of results; journals are in DIR/deep. Default: results", type=Path, metavar="DIR")
    every(
        "--seed",
        "seed of samples, splits and fits; nets on images have fixed seeds. Default: 0",
        type=int,
        metavar="N",
    )
    data = group("experiments")
    data(
        "--data",
        "creditcard.csv (or as .parquet or .npz), or folder of an image set",
        type=Path,
        metavar="PATH",
    )
    data("--results-only", "train nothing, write existing results", action="store_true")
    data("--train-only", "train nets without writing tables; needs no Matplotlib", action="store_true")
    data("--no-figures", "write tables only", dest="figures", action="store_false")
    data("--plan", "print what is left to train, and the GPU time it takes", action="store_true")
    data(
        "--minutes",
        "time limit of training; the same command resumes it. Default: none",
        type=float,
        metavar="N",
    )
    data("--device", "cuda or cpu. Default: a GPU if there is one", metavar="NAME")
    images = group("nets on images")
    images("--dataset", "cifar10, cifar100 or tinyimagenet. Default: cifar10", metavar="NAME")
    images(
        "--size",
        "short, medium, full, or epochs of search and result, as in 8,16. Default: short",
        metavar="SIZE",
    )
    images("--rho", "train only these imbalances", dest="rhos", nargs="+", type=float, metavar="RHO")
    roles = "train only these: search, final, paper, beyond, ablation. Default: all"
    images("--role", roles, dest="roles", nargs="+", metavar="ROLE")
    images("--stack", "upper limit of nets that are trained as one stack. Default: 48", type=int, metavar="N")
    images("--depth", "layers of the net. Default: the paper's", type=int, metavar="N")
    images("--width", "channels of its first stage. Default: 16", type=int, metavar="N")
    folder = "folder of unfinished stacks. Default: deep/unfinished in the folder of results"
    images("--checkpoints", folder, type=Path, metavar="DIR")
    images("--part-of-set", "accept an incomplete image set", dest="complete", action="store_false")
    fraud = group("fraud")
    families = "linear, xgboost, lightgbm, tabnet, tabm, or deep (the last two). Default: the first three"
    fraud("--families", families, nargs="+", metavar="NAME")
    fraud(
        "--methods", "methods to show, such as 'cross entropy' TBL. Default: all", nargs="+", metavar="NAME"
    )
    fraud("--jobs", "fits at a time. Default: one per core", type=int, metavar="N")
    fraud("--repeats", "how often the folds are drawn. Default: 3", type=int, metavar="N")
    fraud("--net-seeds", "nets per loss setting. Default: 3 for tabnet, 1 for tabm", type=int, metavar="N")
    fraud("--net-epochs", "upper limit of epochs of a net. Default: 30", type=int, metavar="N")
    simulated = group("simulate")
    simulated(
        "--losses",
        "losses whose decision lines are drawn. Default: five of the paper's",
        nargs="+",
        metavar="LOSS",
    )
    simulated(
        "--clusters", "TOML file with your own clusters. Default: the paper's", type=Path, metavar="FILE"
    )
    simulated("--prior", "share of positives, P(y=1). Default: 1/501", type=float, metavar="P")
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
            # The time limit is that of all parts together.
            own["minutes"] = max(0.0, minutes - (time.monotonic() - begun) / 60)
        try:
            code = max(code, _one(name, own))
        except KeyboardInterrupt:
            _tell(_interrupt_message(name))
            return INTERRUPTED
    return code


def _one(name: str, given: dict[str, Any]) -> int:
    """Run one part; return the exit code."""
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
    from .experiments.budget import trainings_left

    left = trainings_left(DEEP_NAMES[name], _setup_of(given), given.get("rhos"), out / "deep")
    if left:
        _tell(f"out of time: {left} trainings are left; run the same command to resume")
    return UNFINISHED if left else 0


def _print_plan(names: Sequence[str], given: dict[str, Any]) -> int:
    journals = given.get("out", Path("results")) / "deep"
    if "fraud" in names:
        if len(names) > 1:
            raise ValueError("--plan of fraud cannot be combined with other names: give fraud alone")
        from .fraud.net_training import JOURNAL, plan_text

        families, seed = given.get("families", ["deep"]), given.get("seed", 0)
        counted = (given.get("net_seeds"), given.get("repeats"), given.get("net_epochs"))
        text = plan_text(families, *counted, journals / JOURNAL, seed, given.get("data"))
    else:
        from .experiments.budget import STACK
        from .experiments.budget import plan_text as plan_of_nets
        from .experiments.net_trial import ROLES

        rhos, roles = given.get("rhos"), given.get("roles", ROLES)
        chosen = list(dict.fromkeys(DEEP_NAMES[name] for name in names))
        text = plan_of_nets(chosen, _setup_of(given), given.get("stack", STACK), rhos, roles, journals)
    sys.stdout.write(f"{text}\n")
    return 0


def _check_nets(names: Sequence[str], given: dict[str, Any]) -> None:
    """Raise an error for nets that none of the parts has, before anything is trained."""
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
    """Raise an error for options that a part does not take, named as they are typed."""
    known = ("out", "seed", *(() if name == ALL else options_of(name)))
    strange = [option for option in given if option not in known]
    if strange:
        rest = f"; its options are {_typed(known[2:])}" if known[2:] else ""
        raise ValueError(f"{name} takes no {_typed(strange)}{rest}")


def _typed(options: Sequence[str]) -> str:
    return ", ".join(_SPELLED.get(one, f"--{one.replace('_', '-')}") for one in options)


def _interrupt_message(name: str) -> str:
    """Return what is kept of a part after Ctrl-C."""
    if name in (*NAMES, SIMULATE):
        return f"interrupted: {name} starts anew when it is run again"
    if name == "fraud":
        return "interrupted: finished families and splits are kept; run the same command to resume"
    return (
        "interrupted: finished nets are kept, others as of about a minute or an epoch ago; run the same "
        "command to resume"
    )


def _tell(message: str) -> None:
    """Write a line of progress at once. A closed standard error does not stop the work."""
    stream = FaultTolerantStream(sys.stderr)
    stream.write(f"{message}\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
