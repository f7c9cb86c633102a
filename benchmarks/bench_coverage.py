"""How often 95 % intervals cover the truth, and how often tests reject a true hypothesis.

Simulated worlds of few positives, in which the population's metrics are known:

- normal: positives N(2, 1), negatives N(0, 1); "shift 1", "shift 3" and "near perfect" (4) with another mean;
- t(2): Student's t with 2 degrees of freedom, positives moved by 3;
- half hidden: half of the positives are N(3.5, 1), the others are drawn as negatives are;
- tied: normal scores, rounded to whole numbers.

In the comparisons two scores share 80 % of their variance. They are equally good, so that the difference is
zero, or the second is the first with noise. In the worlds of groups rows share effects: customers of three
positives and three negatives, or of three negatives, whose own effect is half of the variance; and a slow
drift, where rows close in time are alike.

With 4,000 repetitions a share of 0.95 has a standard error of 0.0034. All tables take about five hours of one
core.

    OMP_NUM_THREADS=1 python benchmarks/bench_coverage.py [--repetitions 4000] [--jobs 2] [--table ...]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import cache, partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter
from scipy.stats import norm

from machine import describe, write_rows
from raresight.metrics import compare, interval, threshold_at_fpr, time_blocks

Floats = NDArray[np.float64]
Generator = np.random.Generator
Row = dict[str, Any]

POSITIVES = (15, 30, 100, 300)
NEGATIVES = 3_000
DRAWS = 500  # of bootstraps; the library's default is four times as many
SHARED = 0.8  # of the variance of one score is also that of the other

# ---- worlds: what several scores of the same rows are, positives first -------------------


def normal(
    generator: Generator, positives: int, negatives: int, scores: int = 1, shift: float = 2.0
) -> Floats:
    rows = positives + negatives
    common = np.sqrt(SHARED) * generator.standard_normal(rows)
    common[:positives] += shift
    return common + np.sqrt(1 - SHARED) * generator.standard_normal((scores, rows))


def shifted(shift: float) -> Callable[..., Floats]:
    return lambda *rows: normal(*rows, shift=shift)


def heavy(generator: Generator, positives: int, negatives: int, scores: int = 1) -> Floats:
    def t(*size: int) -> Floats:
        return generator.standard_normal(size) / np.sqrt(generator.standard_exponential(size))

    rows = positives + negatives
    common = np.sqrt(SHARED) * t(rows)
    common[:positives] += 3
    return common + np.sqrt(1 - SHARED) * t(scores, rows)


def half_hidden(generator: Generator, positives: int, negatives: int, scores: int = 1) -> Floats:
    found = normal(generator, positives, negatives, scores, shift=0.0)
    found[:, :positives] += np.where(generator.random(positives) < 0.5, 3.5, 0.0)
    return found


def tied(generator: Generator, positives: int, negatives: int, scores: int = 1) -> Floats:
    return np.round(normal(generator, positives, negatives, scores))


WORLDS = {
    "shift 1": shifted(1.0),
    "normal": normal,
    "shift 3": shifted(3.0),
    "near perfect": shifted(4.0),
    "t(2)": heavy,
    "half hidden": half_hidden,
    "tied": tied,
}
PAIRED = [name for name in WORLDS if not name.startswith("shift")]
METRICS: list[tuple[str, dict[str, float], float]] = [
    ("roc_auc", {}, 1.0),
    ("partial_auc", {"max_fpr": 0.1}, 0.1),
    ("partial_auc", {"max_fpr": 0.01}, 0.01),
    ("recall_at_fpr", {"fpr": 0.01}, 0.01),
]


def named(metric: str, params: dict[str, float]) -> dict[str, Any]:
    return {**params, "kind": "mean"} if metric == "partial_auc" else dict(params)


def labels(positives: int, negatives: int) -> NDArray[np.int8]:
    return np.repeat(np.array([1, 0], dtype=np.int8), [positives, negatives])


@cache
def population(world: str, metric: str, rate: float, noise: float = 0.0) -> float:
    """The metric of the population: the mean of ten samples of a million rows."""
    generator, found = np.random.default_rng(99), []
    for _ in range(10):
        scores = WORLDS[world](generator, 500_000, 500_000)[0]
        if noise:
            scores = scores + noise * generator.standard_normal(len(scores))
        negative = np.sort(scores[500_000:])
        above, through = (
            1 - np.searchsorted(negative, scores[:500_000], side) / 500_000 for side in ("right", "left")
        )
        if metric == "recall_at_fpr":
            found.append(np.mean(through <= rate))
        else:
            inside = np.where(
                through <= rate,
                rate - (above + through) / 2,
                np.maximum(rate - above, 0) ** 2 / (2 * np.maximum(through - above, 1e-12)),
            )
            found.append(np.mean(inside) / rate)
    return float(np.mean(found))


# ---- tables ------------------------------------------------------------------------------


class Count:
    """Which side of the truth intervals were on, and how wide they were."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def add(self, found: Any) -> None:
        self.ends.append((found.low, found.high))

    def summary(self, truth: float) -> Row:
        low, high = np.array(self.ends).T
        return {
            "truth": round(truth, 5),
            "covered": round(float(np.mean((low <= truth) & (truth <= high))), 4),
            "truth_below": round(float(np.mean(truth < low)), 4),
            "truth_above": round(float(np.mean(truth > high)), 4),
            "mean_width": round(float(np.mean(high - low)), 5),
            "repetitions": len(low),
        }


ONE_SCORE = [(world, positives) for world in WORLDS for positives in POSITIVES]


def one_score(repetitions: int, world: str, positives: int) -> Iterator[Row]:
    """Intervals of the metrics of one score."""
    generator, y = np.random.default_rng(positives), labels(positives, NEGATIVES)
    counts = [Count() for _ in METRICS]
    for seed in range(repetitions):
        scores = WORLDS[world](generator, positives, NEGATIVES)[0]
        for count, (metric, params, _) in zip(counts, METRICS, strict=True):
            count.add(interval(metric, y, scores, draws=DRAWS, seed=seed, **named(metric, params)))
    for count, (metric, _, rate) in zip(counts, METRICS, strict=True):
        name = {"world": world, "metric": metric, "rate": rate, "positives": positives}
        yield name | {"negatives": NEGATIVES} | count.summary(population(world, metric, rate))


TWO_SCORES = [
    *((world, 0.0, NEGATIVES, positives) for positives in POSITIVES for world in PAIRED),
    *((world, 0.0, 20_000, positives) for positives in (30, 100) for world in PAIRED),
    *((world, 0.7, NEGATIVES, positives) for positives in POSITIVES for world in PAIRED[:4]),
]


def two_scores(repetitions: int, world: str, noise: float, negatives: int, positives: int) -> Iterator[Row]:
    """Differences of two scores: `rejected` and, where ten positives differ, `rejected_ten` at 5 %."""
    generator, y = np.random.default_rng(positives), labels(positives, negatives)
    counts = [Count() for _ in METRICS]
    differ: list[list[int]] = [[] for _ in METRICS]
    for seed in range(repetitions):
        if noise:
            a = WORLDS[world](generator, positives, negatives)[0]
            b = a + noise * generator.standard_normal(len(a))
        else:
            a, b = WORLDS[world](generator, positives, negatives, 2)
        places = [rates(scores, positives) for scores in (a, b)]
        for count, number, (metric, params, rate) in zip(counts, differ, METRICS, strict=True):
            count.add(compare(metric, y, a, b, draws=DRAWS, seed=seed, **named(metric, params)))
            # Placements, or whether the positive is caught, cut at the rate.
            cut = [one <= rate if metric == "recall_at_fpr" else np.minimum(one, rate) for one in places]
            number.append(int(np.count_nonzero(cut[0] != cut[1])))
    for count, number, (metric, _, rate) in zip(counts, differ, METRICS, strict=True):
        truth = 0.0
        if noise:
            truth = population(world, metric, rate) - population(world, metric, rate, noise)
        low, high = np.array(count.ends).T
        rejected, ten = (low > 0) | (high < 0), np.array(number) >= 10
        yield {
            "world": world,
            "second": "noisy" if noise else "equally good",
            "metric": metric,
            "rate": rate,
            "positives": positives,
            "negatives": negatives,
            "differ": round(float(np.mean(number)), 1),
            "rejected": round(float(np.mean(rejected)), 4),
            "ten_differ": round(float(np.mean(ten)), 4),
            "rejected_ten": round(float(np.mean(rejected[ten])), 4) if ten.any() else "",
        } | count.summary(truth)


def rates(scores: Floats, positives: int) -> Floats:
    """The share of negatives at or above each positive."""
    negative = np.sort(scores[positives:])
    return 1 - np.searchsorted(negative, scores[:positives], side="left") / len(negative)


def customers(
    generator: Generator, positives: int, negatives: int, scores: int
) -> tuple[Floats, NDArray[Any]]:
    """Scores of customers with three rows of a class each; half of the variance is the customer's."""
    rows = positives + negatives
    group = np.concatenate([np.arange(positives), np.arange(negatives)]) // 3
    effect = generator.standard_normal((scores + 1, group.max() + 1))[:, group]
    own = generator.standard_normal((scores + 1, rows))
    both = (effect + own) / np.sqrt(2)
    found = np.sqrt(SHARED) * both[0] + np.sqrt(1 - SHARED) * both[1:]
    found[:, :positives] += 2
    return found, group


def drifting(
    generator: Generator, positives: int, negatives: int, scores: int
) -> tuple[Floats, NDArray[Any]]:
    """Scores that drift slowly, a third of their variance, and thirty stretches of time."""
    rows = positives + negatives
    when = generator.permutation(rows)
    keep = np.exp(-1 / 20)
    noise = generator.standard_normal((scores + 1, rows)) * np.sqrt(1 - keep**2)
    drift = lfilter([1], [1, -keep], noise, axis=1)[:, when]
    both = np.sqrt(1 / 3) * drift + np.sqrt(2 / 3) * generator.standard_normal((scores + 1, rows))
    found = np.sqrt(SHARED) * both[0] + np.sqrt(1 - SHARED) * both[1:]
    found[:, :positives] += 2
    return found, time_blocks(when)


DEPENDENT = {"customers": customers, "drift": drifting}
GROUPS = [(world, positives) for world in DEPENDENT for positives in POSITIVES]


def groups(repetitions: int, world: str, positives: int) -> Iterator[Row]:
    """Intervals and differences of dependent rows, by rows and by groups."""
    generator, y = np.random.default_rng(positives), labels(positives, NEGATIVES)
    counts = {(k, by, what): Count() for k in range(len(METRICS)) for by in (0, 1) for what in (0, 1)}
    for seed in range(repetitions):
        (a, b), group = DEPENDENT[world](generator, positives, NEGATIVES, 2)
        for k, (metric, params, _) in enumerate(METRICS):
            for by in (0, 1):
                given = named(metric, params) | {"draws": DRAWS, "seed": seed}
                given["groups"] = group if by else None
                counts[k, by, 0].add(interval(metric, y, a, **given))
                counts[k, by, 1].add(compare(metric, y, a, b, **given))
    for (k, by, what), count in counts.items():
        metric, _, rate = METRICS[k]
        truth = 0.0 if what else population("normal", metric, rate)
        yield {
            "world": world,
            "units": "groups" if by else "rows",
            "what": "difference" if what else "metric",
            "metric": metric,
            "rate": rate,
            "positives": positives,
            "negatives": NEGATIVES,
        } | count.summary(truth)


THRESHOLDS = [
    (fpr, size, share, hot)
    for fpr in (0.01, 0.001)
    for size, share, hot in [
        *((size, share, 0.0) for size in (1, 3, 10, 30, 100) for share in (0.1, 0.5)),
        *((size, 0.0, 0.02) for size in (3, 10, 30)),
    ]
]


def thresholds(repetitions: int, fpr: float, size: int, share: float, hot: float) -> Iterator[Row]:
    """How often a threshold with 95 % confidence keeps its rate: customers of some size, hot ones, drift."""
    rows = 9_000
    group = np.arange(rows) // size
    generator = np.random.default_rng(size)
    kept: dict[str, list[float]] = {"rows": [], "groups": []}
    alerts: dict[str, list[float]] = {"rows": [], "groups": []}
    for _ in range(repetitions):
        effect = generator.standard_normal(group.max() + 1)[group]
        lifted = 2.0 * (generator.random(group.max() + 1) < hot)[group]
        scores = np.sqrt(share) * effect + np.sqrt(1 - share) * generator.standard_normal(rows) + lifted
        for units, given in (("rows", None), ("groups", group)):
            try:
                found = threshold_at_fpr(np.zeros(rows), scores, fpr, confidence=0.95, groups=given)
            except ValueError:
                continue
            true = (1 - hot) * norm.sf(found) + hot * norm.sf(found - 2)
            kept[units].append(true <= fpr)
            alerts[units].append(true)
    for units in kept:
        yield {
            "group_size": size,
            "shared_variance": share,
            "hot_groups": hot,
            "fpr": fpr,
            "negatives": rows,
            "units": units,
            "kept": round(float(np.mean(kept[units])), 4) if kept[units] else "",
            "mean_fpr": float(f"{np.mean(alerts[units]):.3g}") if kept[units] else "",
            "no_threshold": round(1 - len(kept[units]) / repetitions, 4),
            "repetitions": repetitions,
        }


TABLES: dict[str, tuple[Callable[..., Iterator[Row]], list[Any]]] = {
    "coverage": (one_score, ONE_SCORE),
    "coverage_differences": (two_scores, TWO_SCORES),
    "coverage_groups": (groups, GROUPS),
    "coverage_thresholds": (thresholds, THRESHOLDS),
}


def rows(table: str, repetitions: int, case: tuple[Any, ...]) -> list[Row]:
    return list(TABLES[table][0](repetitions, *case))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=4000)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--table", choices=TABLES, action="append", help="default: all")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    versions = describe()
    for table in arguments.table or TABLES:
        found = []
        with Pool(arguments.jobs) as pool:
            for some in pool.imap(partial(rows, table, arguments.repetitions), TABLES[table][1]):
                for row in some:
                    found.append(row | versions)
                    print(*row.values(), flush=True)
        path = arguments.folder / f"{table}.csv"
        write_rows(path, found)
        print(f"written to {path}")


if __name__ == "__main__":
    main()
