"""Split rows into training and held-out rows and into folds: stratified, by time, or by group.

- Stratified: each class is split separately at random, so that both sides have the same share of positives.
  Copies of a row stay on one side.
- By time: the model learns from the past and is evaluated on later rows. Rows of one time stay together.
- By group: all rows of a group, such as a customer, are on the same side. Positives and negatives are split
  as evenly as whole groups allow.
- By time and by group: the held-out rows are later, and of groups that training has not seen. A group with
  rows before and after the cut goes to one of the sides; its rows beyond the cut are left out.

`read_data` goes all the way from a source to `Data`: read, decide the schema, split, profile, make folds.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from raresight.common.row_groups import copies_of
from raresight.tables._arrow import arrow
from raresight.tables.column_codec import DecimalMarks, read_with_marks
from raresight.tables.fingerprints import Fingerprint
from raresight.tables.held_out_checks import positive_share_warnings
from raresight.tables.leaks import find_leaks
from raresight.tables.profile import Profile, make_profile
from raresight.tables.reader import Batches, TableWarning, open_batches
from raresight.tables.schema import (
    Schema,
    check_name,
    keys_of,
    learn_schema,
    summarize_parts,
    text_columns_to_count,
)
from raresight.tables.summaries import TableSummary
from raresight.tables.value_counts import ValueCounts, learn_counts
from raresight.tables.value_keys import Keys

N_FOLDS = 3
# Largest number of negatives in the search; final models use every row. At a false-positive rate of 0.001
# this many give a hundred false positives.
MOST_NEGATIVES = 100_000
# With fewer different rows, a class cannot be shared between the held-out rows and the folds.
FEWEST_DIFFERENT = 10
# Rows moved at a time.
_BLOCK = 1 << 14


@dataclass(frozen=True)
class Split:
    """Positions of the training and of the held-out rows, each in ascending order."""

    train: NDArray[np.intp]
    test: NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of the coded matrix with their labels, and the times or groups that they have."""

    X: NDArray[Any]
    y: NDArray[np.int8]
    times: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class SearchRows:
    """The rows of a search: all positives, and all negatives or a sample of them.

    Attributes:
        rows: Their positions among the training rows.
        weights: The inverse of the sampled share of negatives, so that probabilities stay those of all rows.
            None if no row is left out.
        folds: The folds for cross-validation.
    """

    rows: NDArray[np.intp]
    weights: NDArray[np.float64] | None
    folds: list[Split]


@dataclass(frozen=True, eq=False)
class CountFeatures:
    """Counts of values as further features of the training and the held-out rows; see `ValueCounts`."""

    counts: tuple[ValueCounts, ...]
    train: NDArray[np.float32]
    test: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Data:
    """A table that is ready for a search: typed columns, labels, held-out rows and folds.

    Attributes:
        schema: The meaning of each column.
        X, y: Coded matrix and labels of the training rows.
        numbers: Row numbers of the training rows in the source, from 1 on.
        test: The held-out rows.
        times, groups: The values that order or group the training rows, if any.
        search: The rows and folds of the search.
        profile: Statistics and warnings.
        fingerprint: A digest that is equal for sources of equal rows.
        counts: Further features, which `schema` and the matrices do not have; see `with_counts`.
    """

    schema: Schema
    X: NDArray[Any]
    y: NDArray[np.int8]
    numbers: NDArray[np.int64]
    test: LabelledRows
    times: NDArray[Any] | None
    groups: NDArray[Any] | None
    search: SearchRows
    profile: Profile
    fingerprint: str
    counts: CountFeatures

    def with_counts(self) -> Data:
        """Return the same rows with the features that are counts, after all others.

        Their names are `schema.count_names` of the result. It is this record if no column is worth counting.
        """
        more = self.counts
        if not more.counts:
            return self
        return replace(
            self,
            schema=replace(self.schema, counts=more.counts),
            X=np.hstack([self.X, more.train], dtype=self.X.dtype, casting="same_kind"),
            test=replace(self.test, X=np.hstack([self.test.X, more.test], dtype=self.X.dtype)),
        )


def read_data(
    source: Any,
    test: Any = None,
    *,
    target: str,
    fpr: float,
    max_fpr: float,
    positive: Any = None,
    time: str | None = None,
    group: str | None = None,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    test_size: float = 0.25,
    seed: int = 0,
) -> Data:
    """Read a source, decide what its columns mean, hold rows out and make folds.

    The source is read twice, batch by batch: once to decide the columns' types on all rows, once to code the
    rows. Beside the coded matrix only a batch is in memory.

    Args:
        source: As for `read_table`.
        test: A source of held-out rows. Default: a share `test_size` of the rows is held out.
        target, positive, time, group, drop: As for `learn_schema`.
        fpr, max_fpr: The false-positive rates of `make_profile`.
        keep: Columns to learn from even if they give the target away: see `find_leaks`.
        test_size: As for `split_rows`.
        seed: Decides which rows are held out, sampled for the search and dealt to the folds.

    Raises:
        ValueError: If the source cannot be read, or its rows cannot be split.

    Example:
        >>> import pyarrow as pa
        >>> x, fraud = [float(i % 7) for i in range(400)], [int(i < 40) for i in range(400)]
        >>> data = read_data(pa.table({"x": x, "y": fraud}), target="y", fpr=0.01, max_fpr=0.1)
        >>> data.X.shape, data.test.X.shape, len(data.search.folds)
        ((300, 1), (100, 1), 3)
    """
    batches, notes = _open(source)
    # Kinds and categories are decided on all rows, so that late values cannot break them. Labels of held-out
    # rows are not used for that.
    named = [name for name in dict.fromkeys([target, time, group]) if name and name in batches.schema.names]
    digest = Fingerprint(batches.schema)
    kept: list[Any] = []
    summary = summarize_parts(_fingerprinted(batches, digest, named, kept))
    if summary.rows == 0:
        raise ValueError(f"{source} has column names but no rows")
    schema = learn_schema(summary, target, positive=positive, time=time, group=group, drop=drop)
    for name in keep:
        check_name(batches.schema.names, name, "column to keep")
    order = arrow().Table.from_batches(kept)
    y, times, groups = schema.labels(order), schema.times(order), schema.groups(order)
    fingerprint = digest.hexdigest()
    keys = {name: np.empty(len(y), np.uint64) for name in text_columns_to_count(summary, schema)}
    X = _code_rows(schema, batches, len(y), keys)

    def split_of(X: NDArray[Any]) -> tuple[Split, NDArray[Any] | None]:
        copies = _copies(X, y) if times is None and groups is None else None
        if test is not None:
            return Split(np.arange(len(y)), np.arange(0)), copies
        how: dict[str, Any] = {"times": times, "groups": groups, "copies": copies}
        return split_rows(y, test_size=test_size, seed=seed, **how), copies

    split, copies = split_of(X)
    leaks = find_leaks(schema, X, y, split.train)
    left_out = {name: f"gives the target away: {leaks[name]}" for name in leaks if name not in keep}
    # Where every column gives the target away, there is nothing else to learn from.
    if left_out and len(left_out) < len(schema.columns):
        X = _without(X, schema, left_out)
        schema = schema.without(left_out)
        split, copies = split_of(X)
    # A column that gives the target away is not counted either.
    keys = {name: keys[name] for name in text_columns_to_count(summary, schema) if name in keys}
    if test is None:
        X, held = _take_apart(X, split)
        counts = _count_values(summary, schema, (X, held), split, keys)
        held_out_rows = LabelledRows(
            held, y[split.test], *(None if a is None else a[split.test] for a in (times, groups))
        )
        if copies is not None:
            notes += positive_share_warnings(y[split.train], y[split.test])
        left = len(y) - len(split.train) - len(split.test)
        if left:
            notes.append(
                f"{left} of the {len(y)} rows are left out: their {group!r} is on the other side of the "
                f"split by {time!r}"
            )
        y, numbers = y[split.train], split.train + 1
        times, groups, copies = (None if a is None else a[split.train] for a in (times, groups, copies))
    else:
        counts = _count_values(summary, schema, (X, X[:0]), split, keys)
        numbers = np.arange(1, len(y) + 1)
        held_out_rows, more, other = _read_test(replace(schema, counts=counts.counts), test)
        held_out_rows, held_counts = _without_counts(held_out_rows, len(counts.counts))
        counts = replace(counts, test=held_counts)
        notes, fingerprint = [*notes, *more], fingerprint + other
    _refuse_one_class(held_out_rows.y, test)
    profile = make_profile(
        summary,
        schema,
        X,
        y,
        fpr=fpr,
        max_fpr=max_fpr,
        test=(held_out_rows.X, held_out_rows.y),
        copies_together=copies is not None,
        leaks=leaks,
    )
    profile = replace(profile, warnings=(*notes, *profile.warnings))
    search = _search_rows(y, times, groups, copies, seed)
    return Data(schema, X, y, numbers, held_out_rows, times, groups, search, profile, fingerprint, counts)


def _open(source: Any) -> tuple[Batches, list[str]]:
    """Open a source in batches, and collect the warnings of its reader."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TableWarning)
        batches = open_batches(source)
    for other in caught:
        if not issubclass(other.category, TableWarning):
            warnings.warn(other.message, other.category, stacklevel=3)
    return batches, [str(one.message) for one in caught if issubclass(one.category, TableWarning)]


def _fingerprinted(batches: Batches, digest: Fingerprint, names: list[str], kept: list[Any]) -> Iterator[Any]:
    """Yield the batches; update the fingerprint and keep some of their columns."""
    # An empty batch first, so that the columns are known without any row.
    kept.append(arrow().RecordBatch.from_pylist([], schema=batches.schema).select(names))
    yield arrow().RecordBatch.from_pylist([], schema=batches.schema)
    for batch in batches:
        digest.update(batch)
        kept.append(batch.select(names))
        yield batch


def _code_rows(schema: Schema, batches: Batches, rows: int, keys: Mapping[str, Keys]) -> NDArray[Any]:
    """Code the rows as one matrix, and fill in the keys of columns of text."""
    matrix = np.empty((rows, len(schema.feature_names)), schema.dtype)
    start = 0
    for batch in batches:
        matrix[start : start + batch.num_rows] = schema.matrix(batch, first_row=start)
        for name, own in keys_of(batch, keys).items():
            keys[name][start : start + len(own)] = own
        start += batch.num_rows
    return matrix


def _take_apart(matrix: NDArray[Any], split: Split) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the training and the held-out rows; the first take the memory of the matrix."""
    held, train = matrix[split.test], split.train
    # Positions ascend, so that each row moves forward, onto one that has moved already.
    for start in range(0, len(train), _BLOCK):
        block = train[start : start + _BLOCK]
        matrix[start : start + len(block)] = matrix[block]
    matrix.resize((len(train), matrix.shape[1]), refcheck=False)
    return matrix, held


def _without(matrix: NDArray[Any], schema: Schema, names: Collection[str]) -> NDArray[Any]:
    """Take columns out of a matrix, in its own memory."""
    kept = [column.name not in names for column in schema.columns for _ in column.features]
    width, flat = sum(kept), matrix.reshape(-1)
    for start in range(0, len(matrix), _BLOCK):
        block = matrix[start : start + _BLOCK][:, kept]
        flat[start * width : start * width + block.size] = block.ravel()
    del flat
    matrix.resize((len(matrix), width), refcheck=False)
    return matrix


def _copies(X: NDArray[Any], y: NDArray[np.int8]) -> NDArray[np.int64] | None:
    """Return the same number for all copies of a row; None where the rows are split one by one."""
    copies = copies_of(X, y.astype(np.int64))
    if copies is None or min(len(np.unique(copies[y == value])) for value in (0, 1)) < FEWEST_DIFFERENT:
        return None
    return copies


def _count_values(
    summary: TableSummary,
    schema: Schema,
    coded: tuple[NDArray[Any], NDArray[Any]],
    split: Split,
    keys: Mapping[str, Keys],
) -> CountFeatures:
    """Count values in the training rows, and make the features of these and of the held-out rows."""
    train, held = ({name: own[rows] for name, own in keys.items()} for rows in (split.train, split.test))
    numeric = {name: coded[0][:, place] for name, place in schema.numeric.items()}
    counts = learn_counts(summary, numeric, train, schema.feature_names)
    counted = replace(schema, counts=counts)
    return CountFeatures(
        counts,
        counted.count_features(coded[0], train, in_training=True),
        counted.count_features(coded[1], held),
    )


def _without_counts(rows: LabelledRows, counts: int) -> tuple[LabelledRows, NDArray[np.float32]]:
    """Take the last features away, and return them, too."""
    ordinary = rows.X.shape[1] - counts
    last = rows.X[:, ordinary:].astype(np.float32)
    return replace(rows, X=np.ascontiguousarray(rows.X[:, :ordinary])), last


def _read_test(schema: Schema, source: Any) -> tuple[LabelledRows, list[str], str]:
    """Read held-out rows from a source of their own; return warnings and its fingerprint, too."""
    batches, notes = _open(source)

    # A file of held-out rows need not have the group column: no feature is made of it.
    named = [name for name in (schema.time, schema.group) if name and name in batches.schema.names]

    def read(marks: DecimalMarks) -> tuple[LabelledRows, str]:
        digest, coded, labels, kept, rows = Fingerprint(batches.schema), [], [], [], 0
        for batch in batches:
            coded.append(schema.matrix(batch, first_row=rows, marks=marks))
            marks.settle()
            labels.append(schema.labels(batch, first_row=rows))
            digest.update(batch)
            kept.append(batch.select(named))
            rows += batch.num_rows
        if not rows:
            raise ValueError(f"{source} has column names but no rows")
        order = arrow().Table.from_batches(kept)
        times = schema.times(order) if schema.time in named else None
        groups = schema.groups(order) if schema.group in named else None
        held_out = LabelledRows(np.concatenate(coded), np.concatenate(labels), times, groups)
        return held_out, digest.hexdigest()

    held_out, fingerprint = read_with_marks(read)
    return held_out, notes, fingerprint


def _search_rows(
    y: NDArray[np.int8],
    times: NDArray[Any] | None,
    groups: NDArray[Any] | None,
    copies: NDArray[Any] | None,
    seed: int,
) -> SearchRows:
    """Choose the rows of the search and its folds."""
    negatives = np.flatnonzero(y == 0)
    weights = None
    if len(negatives) > MOST_NEGATIVES:
        generator = np.random.default_rng([seed, 6])
        kept = generator.choice(negatives, MOST_NEGATIVES, replace=False)
        chosen = np.sort(np.concatenate([np.flatnonzero(y == 1), kept]))
        weights = np.where(y[chosen] == 1, 1.0, len(negatives) / MOST_NEGATIVES)
    else:
        chosen = np.arange(len(y))
    times, groups, copies = (None if a is None else a[chosen] for a in (times, groups, copies))
    folds = make_folds(y[chosen], N_FOLDS, seed=seed, times=times, groups=groups, copies=copies)
    return SearchRows(chosen, weights, folds)


def _refuse_one_class(y: NDArray[np.int8], test: Any) -> None:
    positives = int(y.sum())
    if positives == 0 or positives == len(y):
        which = "positive" if positives == 0 else "negative"
        where = "the test file" if test is not None else "the rows held out"
        raise ValueError(f"{where} have no {which} row: nothing can be evaluated on them")


def split_rows(
    y: ArrayLike,
    *,
    test_size: float,
    seed: int,
    times: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    copies: ArrayLike | None = None,
) -> Split:
    """Hold out a share of the rows for the final evaluation.

    Args:
        y: Labels, 0 or 1.
        test_size: Share of the rows to hold out, in (0, 1). By time and by group it is met as closely as
            equal times and whole groups allow.
        seed: Decides the draw. A split by time does not depend on it.
        times: If given, the latest rows are held out.
        groups: If given, whole groups are held out. With times, a group that has rows on both sides of the
            cut goes to one of them, half of such groups to each. Its other rows are on neither side.
        copies: The same number for all copies of a row, such as those of `row_groups`: they stay on one side.
            Copies are of one class. Not used with times or groups. Default: rows are split one by one.

    Raises:
        ValueError: If one of the sides would have no positive or no negative row.

    Example:
        >>> split = split_rows([0, 0, 0, 1, 0, 0, 0, 1], test_size=0.5, seed=0)
        >>> len(split.train), len(split.test)
        (4, 4)
        >>> split_rows([0, 1, 0, 1], test_size=0.5, seed=0, times=[1, 2, 3, 4]).test
        array([2, 3])
    """
    labels = _checked_labels(y)
    if not 0 < test_size < 1:
        raise ValueError(f"test_size must be between 0 and 1, but is {test_size:g}")
    when, who = _checked_order(labels, times, groups)
    rng = np.random.default_rng(seed)
    if when is not None:
        split = _hold_out_latest(labels, when, test_size)
        if who is None:
            return split
        split = _without_shared_groups(labels, who, split, rng)
        lacking = _class_missing(labels, split)
        if lacking:
            raise ValueError(
                f"the rows cannot be split by time and by group: {lacking}; use another test size, or one of "
                "the two"
            )
        return split
    if who is not None:
        side = _assign_groups(labels, who, (1 - test_size, test_size), rng)
        split = _split_of(side == 1)
        lacking = _class_missing(labels, split)
        if lacking:
            raise ValueError(
                f"the groups cannot be split so that both sides have both classes: {lacking} "
                "(are all positives in one group?)"
            )
        return split
    held = np.zeros(len(labels), dtype=bool)
    same = None if copies is None else np.asarray(copies)
    for value in (0, 1):
        rows = np.flatnonzero(labels == value)
        places, sizes = (rows, rows) if same is None else _largest_first(same[rows], rng)
        if len(sizes) < 2:
            kind = f"{'' if same is None else 'different '}{_class_name(value)}"
            raise ValueError(f"a split needs at least 2 {kind} rows, one for each side; seen: {len(sizes)}")
        if same is None:
            held[rng.permutation(rows)[: _held_count(len(rows), test_size)]] = True
        else:
            held[rows] = _held_copies(sizes, test_size)[places]
    return _split_of(held)


def _held_count(rows: int, test_size: float) -> int:
    return min(max(round(test_size * rows), 1), rows - 1)


def _largest_first(
    copies: NDArray[Any], rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the place of each row's copies among all different rows, and how many copies each place has.

    The row with the most copies comes first; those with equally many are in random order.
    """
    _, places, sizes = np.unique(copies, return_inverse=True, return_counts=True)
    drawn = rng.permutation(len(sizes))
    order = drawn[np.argsort(-sizes[drawn], kind="stable")]
    place = np.empty(len(order), dtype=np.intp)
    place[order] = np.arange(len(order))
    return place[places.ravel()], sizes[order]


def _held_copies(sizes: NDArray[np.intp], test_size: float) -> NDArray[np.bool_]:
    """Choose which different rows of a class are held out with all their copies.

    Args:
        sizes: Number of copies of each, the largest first.
        test_size: Share of the rows to hold out.
    """
    count = _held_count(len(sizes), test_size)
    # The last of every few, so that both sides have rows with many copies and rows with few.
    held = np.zeros(len(sizes), dtype=bool)
    held[(np.arange(1, count + 1) * len(sizes)) // count - 1] = True
    # The row with the most copies is never held out. Where it is a large part of its class, too few rows are
    # held out so far, and the share of positives would differ between the sides. Rows with the fewest copies
    # make up for it, as long as half of the different rows remain for training.
    lacking = _held_count(int(sizes.sum()), test_size) - int(sizes[held].sum())
    spare = np.flatnonzero(~held)[::-1][: max(len(sizes) // 2 - count, 0)]
    held[spare[np.cumsum(sizes[spare]) <= lacking]] = True
    return held


def make_folds(
    y: ArrayLike,
    n_folds: int,
    *,
    seed: int,
    times: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    copies: ArrayLike | None = None,
) -> list[Split]:
    """Make the splits for cross-validation inside the training rows.

    Stratified and by group, every row is evaluated once. By time the window expands: the rows are cut into
    `n_folds` + 1 periods with about equal numbers of rows. Each fold trains on all periods before its own.

    Each side of each fold has positives and negatives. Where `n_folds` folds are not possible, the list has
    fewer, at least two.

    Args:
        y: Labels, 0 or 1.
        n_folds: Number of folds.
        seed: Decides the draw.
        times, groups, copies: As for `split_rows`.

    Raises:
        ValueError: If not even two folds can be made.

    Example:
        >>> folds = make_folds([0, 1] * 6, 3, seed=0)
        >>> [len(fold.test) for fold in folds]
        [4, 4, 4]
        >>> [fold.test.tolist() for fold in make_folds([0, 1] * 4, 3, seed=0, times=range(8))]
        [[2, 3], [4, 5], [6, 7]]
        >>> len(make_folds([0] * 10 + [1] * 2, 5, seed=0))
        2
    """
    labels = _checked_labels(y)
    if n_folds < 2:
        raise ValueError(f"n_folds must be at least 2, but is {n_folds}")
    when, who = _checked_order(labels, times, groups)
    same = None if copies is None else np.asarray(copies)
    reason = ""
    for count in range(n_folds, 1, -1):
        if when is not None:
            folds = _expanding_folds(when, count)
            if who is not None:
                rng = np.random.default_rng(seed)
                folds = [_without_shared_groups(labels, who, split, rng) for split in folds]
        elif who is not None:
            fold = _assign_groups(labels, who, (1 / count,) * count, np.random.default_rng(seed))
            folds = [_split_of(fold == number) for number in range(count)]
        else:
            folds = _stratified_folds(labels, same, count, np.random.default_rng(seed))
        reasons = [_class_missing(labels, split) for split in folds]
        if len(folds) == count and not any(reasons):
            return folds
        reason = next((text for text in reasons if text), "too few different times")
    raise ValueError(f"no two folds with both classes on both sides can be made: {reason}")


def _checked_labels(y: ArrayLike) -> NDArray[np.int8]:
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"labels must have one dimension, but have the shape {labels.shape}")
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("labels must be 0 or 1")
    return labels.astype(np.int8)


def _checked_order(
    labels: NDArray[np.int8], times: ArrayLike | None, groups: ArrayLike | None
) -> tuple[NDArray[Any] | None, NDArray[np.intp] | None]:
    """Return times as ranks and groups as numbers from 0, or None."""
    for name, values in (("times", times), ("groups", groups)):
        if values is not None and len(np.asarray(values)) != len(labels):
            raise ValueError(f"{name} has {len(np.asarray(values))} values for {len(labels)} rows")
    when = who = None
    if times is not None:
        moments = np.asarray(times)
        if moments.dtype.kind in "fmM" and (np.isnan(moments) | (moments != moments)).any():
            raise ValueError("times has missing values; the rows cannot be put in order")
        when = np.unique(moments, return_inverse=True)[1]
    if groups is not None:
        who = np.unique(np.asarray(groups), return_inverse=True)[1]
        if len(who) and who.max() == 0:
            raise ValueError("all rows are of one group; a split by group needs at least two")
    return when, who


def _split_of(held: NDArray[np.bool_]) -> Split:
    return Split(train=np.flatnonzero(~held), test=np.flatnonzero(held))


def _class_name(value: int) -> str:
    return "positive" if value else "negative"


def _class_missing(labels: NDArray[np.int8], split: Split) -> str:
    """Say which side of a split has no row of a class; empty if both sides have both classes."""
    for side, rows in (("training", split.train), ("test", split.test)):
        for value in (1, 0):
            if not (labels[rows] == value).any():
                return f"the {len(rows)} {side} rows have no {_class_name(value)}"
    return ""


def _hold_out_latest(labels: NDArray[np.int8], when: NDArray[Any], test_size: float) -> Split:
    if when.max(initial=0) == 0:
        raise ValueError("all rows have the same time; they cannot be split into past and future")
    # `later[t - 1]` rows are of time t or later. The cut closest to the wanted number of rows is taken.
    later = np.cumsum(np.bincount(when)[::-1])[::-1][1:]
    cut = 1 + int(np.argmin(np.abs(later - test_size * len(when))))
    split = _split_of(when >= cut)
    for side, rows in (("test rows, the latest", split.test), ("training rows, the earliest", split.train)):
        for value in (1, 0):
            if not (labels[rows] == value).any():
                raise ValueError(
                    f"the {side} {len(rows)} by time, have no {_class_name(value)}; "
                    "use another test size or no time column"
                )
    return split


def _without_shared_groups(
    labels: NDArray[np.int8], groups: NDArray[np.intp], split: Split, rng: np.random.Generator
) -> Split:
    """Leave out rows, so that no group is on both sides of a split by time.

    To leave out all training rows of the groups in the test rows would keep only customers who are gone; to
    leave out the test rows of known groups would evaluate newcomers alone. Half of them each is fair to both.
    """
    size = groups.max() + 1
    early, late = (np.bincount(groups[rows], minlength=size) for rows in (split.train, split.test))
    rows = np.flatnonzero(((early > 0) & (late > 0))[groups])
    if len(rows) == 0:
        return split
    numbers = np.unique(groups[rows], return_inverse=True)[1].ravel()
    side = np.full(len(labels), -1)
    side[rows] = _assign_groups(labels[rows], numbers, (0.5, 0.5), rng)
    return Split(split.train[side[split.train] != 1], split.test[side[split.test] != 0])


def _expanding_folds(when: NDArray[Any], n_folds: int) -> list[Split]:
    """Cut after i/(n_folds + 1) of the rows, at the nearest border between two times."""
    earlier = np.concatenate([[0], np.cumsum(np.bincount(when))])
    wanted = np.arange(1, n_folds + 1) / (n_folds + 1) * len(when)
    cuts = [int(np.argmin(np.abs(earlier - place))) for place in wanted]
    borders = [*cuts, len(earlier) - 1]
    folds = []
    for start, stop in pairwise(borders):
        if 0 < start < stop:
            folds.append(
                Split(
                    train=np.flatnonzero(when < start), test=np.flatnonzero((when >= start) & (when < stop))
                )
            )
    return folds


def _stratified_folds(
    labels: NDArray[np.int8], copies: NDArray[Any] | None, n_folds: int, rng: np.random.Generator
) -> list[Split]:
    fold = np.empty(len(labels), dtype=np.intp)
    dealt = 0
    for value in (1, 0):
        rows = np.flatnonzero(labels == value)
        if copies is None:
            rows = rng.permutation(rows)
            places = np.arange(len(rows))
        else:
            # Dealt out in turn, largest first, folds differ by no more rows than the most copies of a row.
            places = _largest_first(copies[rows], rng)[0]
        # The second class continues at the fold after the last one used, which keeps folds equal in size.
        fold[rows] = (dealt + places) % n_folds
        dealt += int(places.max(initial=-1)) + 1
    return [_split_of(fold == number) for number in range(n_folds)]


def _assign_groups(
    labels: NDArray[np.int8], groups: NDArray[np.intp], shares: Sequence[float], rng: np.random.Generator
) -> NDArray[np.intp]:
    """Assign a part to each row, so that all rows of a group are in one part.

    The largest groups come first; each goes to the part that is emptiest relative to its share. Groups with
    positives are balanced by positives. Then groups without are balanced by rows, which evens out negatives.
    """
    positives = np.bincount(groups, weights=labels).astype(np.intp)
    rows = np.bincount(groups)
    shuffled = rng.permutation(len(rows))
    order = shuffled[np.lexsort((-rows[shuffled], -positives[shuffled]))]
    filled_positives = [0.0] * len(shares)
    filled_rows = [0.0] * len(shares)
    part_of = np.empty(len(rows), dtype=np.intp)
    for group in order.tolist():
        mine, size = int(positives[group]), int(rows[group])
        part = min(
            range(len(shares)),
            key=lambda k: (filled_positives[k] / shares[k] if mine else 0.0, filled_rows[k] / shares[k]),
        )
        filled_positives[part] += mine
        filled_rows[part] += size
        part_of[group] = part
    return part_of[groups]
