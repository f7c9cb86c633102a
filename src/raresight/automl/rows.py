"""From a source to rows for training, rows for the test, and folds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..tables.profile import Profile, make_profile
from ..tables.reader import TableWarning, fingerprint, read_table
from ..tables.schema import Schema, learn_schema
from ..tables.splits import make_folds, split_rows
from .options import Options
from .records import Task

__all__ = ["Rows", "read_rows", "search_task"]

N_FOLDS = 3
# In the search; the final models take every row. A hundred thousand leave a hundred above a rate of 0.001.
MOST_NEGATIVES = 100_000


@dataclass(frozen=True, eq=False)
class Labelled:
    """Rows of the coded matrix with their labels."""

    X: NDArray[Any]
    y: NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Rows:
    """The data of a run; `numbers` are the training rows' places in the source, from 1 on."""

    schema: Schema
    X: NDArray[Any]
    y: NDArray[np.int8]
    numbers: NDArray[np.int64]
    test: Labelled
    times: NDArray[Any] | None
    groups: NDArray[Any] | None
    profile: Profile
    fingerprint: str


def read_rows(source: Any, test: Any, options: Options) -> Rows:
    """Read the source, decide the columns' types, look at them, hold rows out."""
    table, said = _read(source)
    # Kinds and levels of the columns are read off all rows, so that a word late in a column of numbers or a
    # new shop is no surprise; no label of a held-out row has a say in them.
    schema = learn_schema(
        table,
        options.target,
        positive=options.positive,
        time=options.time,
        group=options.group,
        drop=options.drop,
    )
    y, times, groups = schema.labels(table), schema.times(table), schema.groups(table)
    marks = fingerprint(table)
    if test is None:
        split = split_rows(y, test_size=options.test_size, seed=options.seed, times=times, groups=groups)
        train, held = table.take(split.train), table.take(split.test)
        numbers = split.train + 1
        times, groups = (None if a is None else a[split.train] for a in (times, groups))
    else:
        held, more = _read(test)
        train, said = table, [*said, *more]
        numbers = np.arange(1, len(y) + 1)
        marks += fingerprint(held)
    X, y = schema.matrix(train), schema.labels(train)
    judged = Labelled(schema.matrix(held), schema.labels(held))
    _refuse_one_class(judged.y, test)
    profile = make_profile(
        train, schema, X, y, fpr=options.fpr, max_fpr=options.max_fpr, test=(judged.X, judged.y)
    )
    profile = replace(profile, warnings=(*said, *profile.warnings))
    return Rows(schema, X, y, numbers, judged, times, groups, profile, marks)


def _read(source: Any) -> tuple[Any, list[str]]:
    """A table, and the warnings of its reader."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableWarning)
        table = read_table(source)
    for other in caught:
        if not issubclass(other.category, TableWarning):
            warnings.warn(other.message, other.category, stacklevel=2)
    return table, [str(one.message) for one in caught if issubclass(one.category, TableWarning)]


def search_task(rows: Rows, options: Options) -> Task:
    """What the search is of: all positives, and all negatives or a sample of them, in folds.

    Sampled negatives are weighted by the inverse of their share: probabilities stay those of all rows.
    """
    seed = options.seed
    negatives = np.flatnonzero(rows.y == 0)
    X, y, weights = rows.X, rows.y, None
    chosen = np.arange(len(rows.y))
    if len(negatives) > MOST_NEGATIVES:
        generator = np.random.default_rng([seed, 6])
        kept = generator.choice(negatives, MOST_NEGATIVES, replace=False)
        chosen = np.sort(np.concatenate([np.flatnonzero(rows.y == 1), kept]))
        X, y = X[chosen], y[chosen]
        weights = np.where(y == 1, 1.0, len(negatives) / MOST_NEGATIVES)
    times, groups = (None if a is None else a[chosen] for a in (rows.times, rows.groups))
    return Task(
        X=X,
        y=y,
        categorical=rows.schema.categorical,
        n_categories=rows.schema.n_categories,
        folds=make_folds(y, N_FOLDS, seed=seed, times=times, groups=groups),
        weights=weights,
        max_fpr=options.max_fpr,
        fpr=options.fpr,
        seed=seed,
        rows=chosen,
    )


def _refuse_one_class(y: NDArray[np.int8], test: Any) -> None:
    positives = int(y.sum())
    if positives == 0 or positives == len(y):
        which = "positive" if positives == 0 else "negative"
        where = "the test file" if test is not None else "the rows held out"
        raise ValueError(f"{where} have no {which} row: nothing can be evaluated on them")
