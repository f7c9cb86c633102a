"""The families without nets on the fraud table, split by split; what is finished outlives a kill.

Until the results are written, each family and split that all methods have finished is a line of a journal
beside them. A run that agrees in table, seed, methods, settings and versions takes it from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from raresight.common.versions import versions_of

from .card_fraud import CardFraud
from .deep.journal import add_records, key_text, need_writable, read_lines
from .fraud_about import About
from .fraud_measures import EPOCHS, REFERENCE, Record, against, judged
from .fraud_methods import SETTINGS, Scores, run_method
from .fraud_report import made_with
from .fraud_splits import Key, Rows, luck

__all__ = ["UNFINISHED_FITS", "fit_families"]

UNFINISHED_FITS = "unfinished_fraud_fits.jsonl.gz"
"""The journal, in the folder of the results; who has written these removes it."""

Group = tuple[Key, str]
"""A split and a family: its methods are compared with each other, and are finished together."""


def fit_families(
    table: CardFraud,
    families: Sequence[str],
    methods: Sequence[str],
    rows_of: dict[Key, Rows],
    about: About,
    journal: Path,
    jobs: int | None,
    tell: Callable[[str], None],
) -> tuple[list[Record], list[Record]]:
    """The metrics of every method on every split, and the differences to cross entropy.

    Args:
        table: The fraud table.
        families: Without nets.
        methods: Cross entropy first.
        rows_of: The splits.
        about: The table and the seed.
        journal: Where finished groups are kept, and found.
        jobs: Fits at once; None for one a core.
        tell: Hears how far it is.
    """
    groups = [(key, family) for key in rows_of for family in families]
    names = {group: key_text(_fit_of(group, methods, about)) for group in groups}
    finished = read_lines(journal, lambda row: key_text(row["fit"]))
    missing = [group for group in groups if names[group] not in finished]
    total, kept = len(groups) * len(methods), (len(groups) - len(missing)) * len(methods)
    if kept:
        tell(f"{kept} of {total} fits are there from a run that was ended")
    fits = zip(
        [(group, method) for group in missing for method in methods],
        _fits(table, missing, methods, rows_of, about.seed, jobs),
        strict=True,
    )
    found: dict[str, Scores] = {}
    for done, ((group, method), scores) in enumerate(fits):
        (kind, repeat, fold), family = group
        tell(f"{kept + done + 1} of {total}: {family}, {method}, {kind} {repeat}.{fold}")
        found[method] = scores
        if len(found) == len(methods):
            record = {"fit": _fit_of(group, methods, about), **_measured(table, group, rows_of, found)}
            need_writable(journal)
            add_records(journal, [record])
            finished[names[group]] = record
            found = {}
    lines = [finished[names[group]] for group in groups]
    return [row for line in lines for row in line["each"]], [row for line in lines for row in line["pairs"]]


def _measured(
    table: CardFraud, group: Group, rows_of: dict[Key, Rows], found: dict[str, Scores]
) -> dict[str, list[Record]]:
    """The rows of a group: each method's metrics, and their differences to cross entropy."""
    (kind, repeat, fold), family = group
    y = table.y[rows_of[group[0]][1]]
    made = made_with(_versions(family))
    each: list[Record] = []
    pairs: list[Record] = []
    for method, scores in found.items():
        name = {"split": kind, "repeat": repeat, "fold": fold, "family": family, "method": method}
        no_net = dict.fromkeys(EPOCHS, "")
        each.append({**name, **judged(y, scores), "device": "CPU", "seeds": 1, **no_net, **made})
        pairs += [{**name, **row} for row in against(y, scores, found[REFERENCE])]
    return {"each": each, "pairs": pairs}


def _fits(
    table: CardFraud,
    groups: Sequence[Group],
    methods: Sequence[str],
    rows_of: dict[Key, Rows],
    seed: int,
    jobs: int | None,
) -> Iterator[Scores]:
    """The scores of every method on every split, in order, as they come."""
    from joblib import Parallel, delayed

    def task(group: Group, method: str) -> Any:
        key, family = group
        train, test = rows_of[key]
        X, y = table.X[train], table.y[train]
        return delayed(run_method)(family, method, X, y, table.X[test], luck(seed, key))

    found: Iterator[Scores] = Parallel(jobs or -1, return_as="generator", pre_dispatch="2*n_jobs")(
        task(group, method) for group in groups for method in methods
    )
    return found


def _fit_of(group: Group, methods: Sequence[str], about: About) -> Record:
    """All that decides the results of a group."""
    (kind, repeat, fold), family = group
    return {
        "family": family,
        "split": kind,
        "repeat": repeat,
        "fold": fold,
        "seed": about.seed,
        "methods": list(methods),
        "settings": {method: list(losses) for method, losses in SETTINGS.items()},
        "table": about.table,
        "versions": dict(_versions(family)),
    }


def _versions(family: str) -> dict[str, str]:
    return dict(versions_of(["numpy", "scipy", "scikit-learn", family]))
