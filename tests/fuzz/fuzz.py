"""Run fuzz cases for hours, or one case again.

python tests/fuzz/fuzz.py --minutes 60 [--seed 1000] [--kinds tables,scores]
python tests/fuzz/fuzz.py --case tables:17
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

from fuzz_cases import KINDS, Case
from harness import laboratory, run_case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", default=[], help="kind:seed, to run again")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--cases", type=int, help="at most so many")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    chosen = [Case(text.split(":")[0], int(text.split(":")[1])) for text in asked.case]
    endless = (Case(kind, seed) for seed in itertools.count(asked.seed) for kind in asked.kinds.split(","))
    done = failed = 0
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as folder,
        laboratory(Path(folder)) as (server, fixtures),
    ):
        for case in chosen or itertools.islice(endless, asked.cases):
            finding = run_case(server, fixtures, case)
            done += 1
            if finding:
                failed += 1
                print(f"{finding}\n", flush=True)
            if time.monotonic() > end:
                break
    print(f"{done} cases, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
