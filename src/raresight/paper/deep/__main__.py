"""Train the nets of the paper's experiments: numpy, torch and safetensors suffice.

python -m raresight.paper.deep --experiment table2 --data cifar-10-batches-bin --out results/deep --minutes 10
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..command import UNFINISHED, exit_code, tell
from .experiments import EXPERIMENTS, check_rhos
from .plan import STACK, plan_text
from .settings import DATASETS, ROLES, SIZES, Setup, size_of

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when nothing is left to train, 3 when time ran out before, 2 for an error."""
    parser = argparse.ArgumentParser(
        prog="python -m raresight.paper.deep", description=str(__doc__).splitlines()[0]
    )
    add = parser.add_argument
    add("--experiment", required=True, nargs="+", choices=list(EXPERIMENTS), help="one or several, in order")
    add("--data", type=Path, help="folder of the image set")
    add("--out", type=Path, default=Path("results/deep"), help="folder of the journals")
    add("--dataset", default="cifar10", choices=list(DATASETS))
    lengths = f"{', '.join(SIZES)}, or epochs of search and result such as 8,16"
    add("--size", default="short", help=f"{lengths}; for deer among horses half as many again")
    add("--minutes", type=float, help="stop before so many have passed")
    add("--stack", type=int, default=STACK, help="the most nets trained as one")
    add("--device", help="such as cuda; left out, a GPU if there is one")
    add("--role", nargs="+", default=list(ROLES), choices=list(ROLES), help="only these trainings")
    add("--rho", nargs="+", type=float, help="only these imbalances")
    add("--depth", type=int, help="layers of the net; left out, the paper's")
    add("--width", type=int, default=16, help="channels of its first stage")
    add("--checkpoints", type=Path, help="folder for stacks under way; left out, unfinished/ in --out")
    add("--part-of-set", action="store_true", help="accept an image set that is not complete")
    add("--plan", action="store_true", help="print how many trainings are left and how long they take")
    chosen = parser.parse_args(arguments)
    if chosen.data is None and not chosen.plan:
        parser.error("--data, the folder of the image set, is needed")
    return exit_code(lambda: _run(chosen))


def _run(chosen: argparse.Namespace) -> int:
    setup = Setup(chosen.dataset, size_of(chosen.size), chosen.depth, chosen.width)
    if chosen.plan:
        text = plan_text(chosen.experiment, setup, chosen.stack, chosen.rho, chosen.role, chosen.out)
        sys.stdout.write(f"{text}\n")
        return 0
    check_rhos([EXPERIMENTS[name] for name in chosen.experiment], chosen.rho)
    import time

    from .runs import run_experiment

    begun, left = time.monotonic(), 0
    for name in chosen.experiment:
        minutes = None if chosen.minutes is None else chosen.minutes - (time.monotonic() - begun) / 60
        outcome = run_experiment(
            EXPERIMENTS[name],
            setup,
            chosen.data,
            chosen.out,
            device=chosen.device,
            stack=chosen.stack,
            minutes=minutes,
            roles=chosen.role,
            rhos=chosen.rho,
            checkpoints=chosen.checkpoints,
            complete=not chosen.part_of_set,
            tell=tell,
        )
        left += outcome.left
        tell(f"{name}: {outcome.trained} trained in {outcome.seconds:.0f} s, {outcome.left} left")
    return UNFINISHED if left else 0


if __name__ == "__main__":
    sys.exit(main())
