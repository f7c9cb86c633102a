"""What reading a CSV file costs, from the file to typed, split data.

A million rows of 30 columns by default: 25 floats, an amount, a whole number, a category, a time and a label.
Each way runs in a process of its own, so that its peak of memory is its own. `data` is the whole way of a
fit: scan, types, fingerprint, split, coded matrix and profile. `batches` only parses, and hands text over.
polars, pandas and pyarrow guess types and stop at a frame or table.

    python benchmarks/bench_reading.py [--rows 1000000] [--repeats 3] [--out benchmarks/results/reading.csv]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from machine import describe, write_rows

WAYS = {
    "data": "from raresight.tables import read_data; read_data(path, target='label', fpr=0.01, max_fpr=0.1)",
    "batches": "from raresight.tables import open_batches; sum(b.num_rows for b in open_batches(path))",
    "polars": "import polars; polars.read_csv(path)",
    "pandas": "import pandas; pandas.read_csv(path)",
    "pyarrow": "import pyarrow.csv; pyarrow.csv.read_csv(path)",
}
MEASURE = """
import json, resource, sys, time
path = sys.argv[1]
wall, cpu = time.perf_counter(), time.process_time()
{code}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, peak]))
"""


def write_table(path: Path, rows: int, seed: int = 0) -> None:
    """Write the file in parts, so that writing needs little memory."""
    rng = np.random.default_rng(seed)
    shops = np.array([f"shop {number}" for number in range(300)])
    with path.open("wb") as file:
        for start in range(0, rows, 100_000):
            n = min(100_000, rows - start)
            columns = {f"x{place}": rng.normal(size=n).round(6) for place in range(25)}
            columns["amount"] = rng.lognormal(3, 1, n).round(2)
            columns["n"] = rng.integers(0, 100_000, n)
            columns["shop"] = shops[rng.integers(0, 300, n)]
            columns["when"] = (np.datetime64("2024-01-01T00:00:00") + rng.integers(0, 10**7, n)).astype(str)
            columns["label"] = (rng.random(n) < 0.01).astype(int)
            options = pyarrow.csv.WriteOptions(include_header=start == 0)
            pyarrow.csv.write_csv(pa.table(columns), file, write_options=options)


def measure(code: str, path: Path) -> list[float]:
    """Wall time, CPU time and peak of memory of one run."""
    command = [sys.executable, "-c", MEASURE.format(code=code), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results/reading.csv")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write_table(path, options.rows)
        size = path.stat().st_size / 1e6
        seen: dict[str, list[list[float]]] = {way: [] for way in WAYS}
        # In turns, so that whatever else runs on the machine slows each of them alike.
        for _ in range(options.repeats):
            for way, code in WAYS.items():
                seen[way].append(measure(code, path))
    # Others may have been at work: then the CPU seconds are the figures to compare.
    about = {**describe(), "load": f"{os.getloadavg()[0]:.1f}"}
    rows = []
    for way, runs in seen.items():
        wall, cpu, peak = (min(run[place] for run in runs) for place in range(3))
        rows.append(
            {
                "way": way,
                "rows": options.rows,
                "size_mb": round(size),
                "repeats": options.repeats,
                "wall_s": round(wall, 2),
                "cpu_s": round(cpu, 2),
                "peak_mb": round(peak),
                **about,
            }
        )
        print(f"{way:8} {wall:7.2f} s wall {cpu:7.2f} s CPU {peak:6.0f} MB")
    write_rows(options.out, rows)


if __name__ == "__main__":
    main()
