"""Train the nets of the fraud comparison: numpy, scipy, scikit-learn and torch suffice (and tabm for TabM).

python -m raresight.paper.fraud_deep --data creditcard.npz --out results/deep --minutes 9

Where there is no pyarrow, take the table as .npz, which `raresight.data.save_card_fraud` writes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .command import UNFINISHED, check_minutes, exit_code, tell
from .fraud_methods import DEEP_FAMILIES, LOSS_METHODS, SETTINGS, families_of
from .fraud_splits import REPEATS, split_keys

__all__ = ["main", "plan_text"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 when nothing is left to train, 3 when time ran out before, 2 for an error."""
    parser = argparse.ArgumentParser(
        prog="python -m raresight.paper.fraud_deep", description=str(__doc__).splitlines()[0]
    )
    add = parser.add_argument
    add("--data", type=Path, help="the fraud table: creditcard.csv, Parquet or .npz")
    add(
        "--out",
        type=Path,
        default=Path("results/deep"),
        help="folder of the journal: DIR/deep for --out DIR of raresight paper",
    )
    add("--minutes", type=float, help="stop before so many have passed")
    add("--nets", nargs="+", default=list(DEEP_FAMILIES), choices=list(DEEP_FAMILIES))
    add("--seeds", type=int, help="nets of each loss setting; left out, 3 of tabnet and 1 of tabm")
    add("--epochs", type=int, help="at most; left out, 30")
    add("--repeats", type=int, default=REPEATS, help="how often the stratified folds are drawn")
    add("--seed", type=int, default=0, help="seed of splits and trainings")
    add("--device", default="auto", help="such as cuda or cpu (hours); left out, a GPU if there is one")
    add("--plan", action="store_true", help="print how much is trained and how long a GPU takes")
    chosen = parser.parse_args(arguments)
    if chosen.data is None and not chosen.plan:
        parser.error("--data, the fraud table, is needed")
    return exit_code(lambda: _run(chosen))


def _run(chosen: argparse.Namespace) -> int:
    from .fraud_nets import JOURNAL, net_setups, train_cells

    check_minutes(chosen.minutes)
    if chosen.plan:
        journal = chosen.out / JOURNAL
        counted = (chosen.nets, chosen.seeds, chosen.repeats, chosen.epochs)
        text = plan_text(*counted, journal, chosen.seed, chosen.data)
        sys.stdout.write(f"{text}\n")
        return 0
    from ..data import read_card_fraud

    setups = net_setups(chosen.nets, chosen.seeds, chosen.epochs)
    left = train_cells(
        read_card_fraud(chosen.data),
        chosen.out / JOURNAL,
        setups,
        seed=chosen.seed,
        repeats=chosen.repeats,
        device=chosen.device,
        minutes=chosen.minutes,
        tell=tell,
    )
    tell(f"{left} left" if left else "nothing left")
    return UNFINISHED if left else 0


def plan_text(
    nets: Sequence[str] = DEEP_FAMILIES,
    seeds: int | None = None,
    repeats: int | None = None,
    epochs: int | None = None,
    journal: Path | None = None,
    seed: int = 0,
    data: Path | None = None,
) -> str:
    """How many stacks there are, how large, how many are left, and how long one H200 takes for these.

    Args:
        nets: Families, `deep` for all nets; others are fitted on the CPU and have no plan.
        seeds: Nets of each loss setting; None for the family's own number.
        repeats: How often the stratified folds are drawn; None for the usual number.
        epochs: At most; None for the family's own number.
        journal: What it has with this seed is not left to train.
        seed: Of splits and trainings.
        data: The table, of which alone results count; None for any.
    """
    from ..data import read_card_fraud
    from .fraud_nets import Cell, cells_in, net_setups, planned_seconds

    losses = len(LOSS_METHODS) - len(SETTINGS) + sum(len(settings) for settings in SETTINGS.values())
    drawn = REPEATS if repeats is None else repeats
    chosen = families_of(nets)
    plain = [family for family in chosen if family not in DEEP_FAMILIES]
    if plain:
        raise ValueError(f"only the nets {', '.join(DEEP_FAMILIES)} of fraud have a plan, not {plain[0]}")
    keys = split_keys(drawn)
    table = None if data is None else read_card_fraud(data)
    done = set() if journal is None else cells_in(journal, seed, table)
    lines, total = [], 0.0
    for setup in net_setups(chosen, seeds, epochs):
        seconds = planned_seconds(setup, "NVIDIA H200") or 0.0
        left = sum(Cell(setup, key) not in done for key in keys)
        total += left * seconds / 60
        lines.append(
            f"{setup.net}: {len(keys)} splits, {left} left, {losses} losses x {setup.seeds} seeds in one "
            f"stack, at most {setup.epochs} epochs of batches of {setup.batch}: about {seconds:.0f} s a "
            f"split, {left * seconds / 60:.1f} min"
        )
    return "\n".join(
        [*lines, f"all: {total:.1f} min of one H200, as planned; shorter where patience ends it"]
    )


if __name__ == "__main__":
    sys.exit(main())
