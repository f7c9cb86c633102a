"""Whether TabM should drop hidden numbers: shares of dropout, on the tables of measure_early_stopping.py.

Every share is fitted to the same rows with the defaults of `DeepClassifier` otherwise, and judged by 100,000
others of the same kind. Tables are written as they are done; called again, it goes on:

    python benchmarks/measure_dropout.py --out rows.csv [--shares 0 0.1] [--seeds 3] [--part 0/2]
"""

from __future__ import annotations

from measure_early_stopping import measure, table_arguments, tables
from raresight.deep import DeepClassifier


def main() -> None:
    parser = table_arguments(str(__doc__), seeds=3, sizes=[0, 1])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.1])
    chosen = parser.parse_args()
    for about, train, test in tables(chosen):
        for share in chosen.shares:
            model = DeepClassifier(
                chosen.loss, net="tabm", dropout=share, random_state=about["seed"], n_jobs=1
            )
            measure(chosen.out, {**about, "dropout": share}, model, train, test)


if __name__ == "__main__":
    main()
