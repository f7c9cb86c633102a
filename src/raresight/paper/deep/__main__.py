"""Train the nets of the paper's experiments: numpy, torch and safetensors suffice.

python -m raresight.paper.deep --experiment table2 --data cifar-10-batches-bin --out results/deep --minutes 10
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ..command import UNFINISHED, check_minutes, exit_code, tell
from .experiments import EXPERIMENTS, check_beyond, check_rhos, check_roles
from .plan import STACK, plan_text
from .settings import DATASETS, ROLES, SIZES, Setup, size_of

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when nothing is left to train, 3 when time ran out before, 2 for an error.

    Final trainings that wait for a search which was not asked for are an error, not something left: the same
    command would never come to them.
    """
    parser = argparse.ArgumentParser(
        prog="python -m raresight.paper.deep", description=str(__doc__).splitlines()[0]
    )
    add = parser.add_argument
    add("--experiment", required=True, nargs="+", choices=list(EXPERIMENTS), help="one or several, in order")
    add("--data", type=Path, help="folder of the image set")
    add(
        "--out",
        type=Path,
        default=Path("results/deep"),
        help="folder of the journals: DIR/deep for --out DIR of raresight paper",
    )
    add("--dataset", default="cifar10", choices=list(DATASETS))
    lengths = f"{', '.join(SIZES)}, or epochs of search and result such as 8,16"
    add("--size", default="short", help=f"{lengths}; for deer among horses half as many again")
    add("--minutes", type=float, help="stop before so many have passed")
    add("--stack", type=int, default=STACK, help="the most nets trained as one")
    add("--device", help="such as cuda; left out, a GPU if there is one")
    add("--role", nargs="+", choices=list(ROLES), help="only these trainings; left out, all")
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
    check_minutes(chosen.minutes)
    names = list(dict.fromkeys(chosen.experiment))
    experiments = [EXPERIMENTS[name] for name in names]
    check_roles(experiments, chosen.role or ())
    roles = chosen.role or ROLES
    setup = Setup(chosen.dataset, size_of(chosen.size), chosen.depth, chosen.width)
    check_beyond(experiments, setup, chosen.role or (), chosen.rho)
    if chosen.plan:
        text = plan_text(names, setup, chosen.stack, chosen.rho, roles, chosen.out)
        sys.stdout.write(f"{text}\n")
        return 0
    check_rhos(experiments, chosen.rho)
    import time

    from .runs import run_experiment

    begun, left = time.monotonic(), 0
    waits_for: list[str] = []
    for name in names:
        minutes = None if chosen.minutes is None else chosen.minutes - (time.monotonic() - begun) / 60
        outcome = run_experiment(
            EXPERIMENTS[name],
            setup,
            chosen.data,
            chosen.out,
            device=chosen.device,
            stack=chosen.stack,
            minutes=minutes,
            roles=roles,
            rhos=chosen.rho,
            checkpoints=chosen.checkpoints,
            complete=not chosen.part_of_set,
            tell=tell,
        )
        left += outcome.left
        waits_for += [f"{name}, {line}" for line in outcome.waits_for]
        tell(f"{name}: {outcome.trained} trained in {outcome.seconds:.0f} s, {outcome.left} left")
    if waits_for:
        words = (
            "the search comes first, which chooses the settings of the trainings after it; it lacks "
            f"{'; '.join(waits_for)}: train them with --role search, or all with --role search "
            f"{' '.join(role for role in ('final', 'beyond') if role in roles)}"
        )
        if not left:
            raise ValueError(words)
        tell(words)
    return UNFINISHED if left else 0


if __name__ == "__main__":
    sys.exit(main())
