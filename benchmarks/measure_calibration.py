"""What slope and level by out-of-fold rows do to the probabilities of `raresight fit`, on held-out rows.

Log-loss with the loss's link and the level of the training rows alone, with slope and level by the rows of
cross-validation, and with the slope and level that the held-out rows themselves would choose, which nobody
has. Twelve candidates a run are enough: the search is not what is measured.

    python benchmarks/measure_calibration.py [--families linear,lightgbm,xgboost,deep] [--out rows.csv]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from scipy.special import expit

import raresight
from machine import describe, write_rows
from raresight.common.calibration import held_out_calibrator, two_columns
from raresight.tables import load_sample

SEEDS = (0, 1, 2)
TRIALS = 12


def simulated(seed: int, rows: int = 20_000) -> tuple[Any, str]:
    """Eight normal columns, of which four matter, two by their product; 3 % positives."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 8))
    odds = -5 + X[:, 0] + X[:, 1] * X[:, 2] + 0.8 * np.abs(X[:, 3])
    columns = {f"x{i}": X[:, i] for i in range(8)}
    return pyarrow.table({**columns, "event": random.random(rows) < expit(odds)}), "event"


def sample(seed: int) -> tuple[Any, str]:
    """The bundled card-fraud table; the seed only draws the held-out rows."""
    return load_sample(), "Class"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", default="linear,lightgbm,xgboost,deep")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    found = []
    for table in (simulated, sample):
        for family in chosen.families.split(","):
            for seed in SEEDS:
                found.append({**measured(table, family, seed), **describe()})
                print(", ".join(f"{name} {value}" for name, value in list(found[-1].items())[:9]), flush=True)
    for family in chosen.families.split(","):
        own = [row for row in found if row["family"] == family]
        ratios = [row["calibrated"] / row["link_and_level"] for row in own]
        better = sum(ratio < 1 for ratio in ratios)
        print(f"{family}: log-loss {np.mean(ratios):.4f} times as large, smaller in {better} of {len(own)}")
    if chosen.out:
        write_rows(chosen.out, found)


def measured(table: Any, family: str, seed: int) -> dict[str, Any]:
    """One run, evaluated with and without its calibration."""
    rows, target = table(seed)
    result = raresight.fit(rows, target=target, families=family, trials=TRIALS, seed=seed, jobs=2)
    slope, level = (result.model.facts["calibration"][name] for name in ("slope", "level"))
    y, after = result.held_out.y.astype(np.int64), result.held_out.log_odds
    before = (after - level) / slope
    best = held_out_calibrator(two_columns(before), y)
    return {
        "table": table.__name__,
        "family": family,
        "seed": seed,
        "slope": round(slope, 4),
        "best_slope": round(best.slope, 4),
        "link_and_level": round(_log_loss(y, before), 6),
        "calibrated": round(_log_loss(y, after), 6),
        "best": round(_log_loss(y, best.log_odds(before)), 6),
        "positives": int(y.sum()),
        "candidate": result.model.describe(),
    }


def _log_loss(y: Any, log_odds: Any) -> float:
    return float(np.mean(np.logaddexp(0.0, np.where(y == 1, -log_odds, log_odds))))


if __name__ == "__main__":
    main()
