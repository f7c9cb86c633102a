"""Compare values of an option of `DeepClassifier` on the tables of measure_early_stopping.py.

Every value is fitted to the same rows, with the defaults otherwise, and evaluated on 100,000 other rows of
the same kind. Each result is written at once; a second call resumes:

    python benchmarks/measure_options.py --net tabm --option dropout --values 0 0.1 --out rows.csv
"""

from __future__ import annotations

from measure_early_stopping import measure, table_arguments, tables
from raresight.deep import DeepClassifier


def main() -> None:
    parser = table_arguments(str(__doc__), seeds=3, sizes=[0, 1])
    parser.add_argument("--net", required=True)
    parser.add_argument("--option", required=True)
    parser.add_argument("--values", type=float, nargs="+", required=True)
    chosen = parser.parse_args()
    for about, train, test in tables(chosen):
        for value in chosen.values:
            given = {chosen.option: value}
            model = DeepClassifier(chosen.loss, net=chosen.net, random_state=about["seed"], n_jobs=1, **given)
            named = {"net": chosen.net, "option": chosen.option, **about, "value": value}
            measure(chosen.out, named, model, train, test)


if __name__ == "__main__":
    main()
