"""Imbalanced training sets cut out of balanced ones: which rows, with which labels.

Two make a binary task out of categories, with odds `rho` = positives/negatives: `halves` and `pair`. Two keep
all classes, with `rho` = smallest/largest class, as in Cao et al., "Learning imbalanced datasets with
label-distribution-aware margin loss" (NeurIPS 2019): `exponential` and `step`.

Everything is decided by the seed. With the same seed a smaller `rho` keeps a part of the same minority rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Imbalanced:
    """Rows of a set and their labels in the imbalanced task.

    Attributes:
        indices: Rows that train, ascending.
        labels: Their labels: 1 for the rare side of a binary task, or the class.
        class_counts: Rows of each label: (negatives, positives), or one count a class.
        label_of: Each category's label in the task; categories that take no part are not in it.
        unused: Rows of categories that take part which were left out, ascending: for a validation set.
        unused_labels: Their labels.
        positive: The categories whose label is 1 in a binary task; empty if all classes are kept.
    """

    indices: NDArray[np.intp]
    labels: NDArray[np.int64]
    class_counts: tuple[int, ...]
    label_of: dict[int, int]
    unused: NDArray[np.intp]
    unused_labels: NDArray[np.int64]
    positive: tuple[int, ...]

    def relabel(self, labels: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
        """All rows of another set, such as the test set, that take part, and their labels in the task.

        Example:
            >>> pair([0, 0, 1, 1, 2, 2], minority=2, majority=0, rho=0.5).relabel([0, 1, 2])
            (array([0, 2]), array([0, 1]))
        """
        categories = _checked_labels(labels)
        rows = np.flatnonzero(np.isin(categories, list(self.label_of)))
        return rows, _relabelled(categories[rows], self.label_of)


def halves(labels: ArrayLike, rho: float, seed: int) -> Imbalanced:
    """Half of the categories, drawn at random, is the rare positive class; the others are the negatives.

    As many negatives are kept as possible, usually all, and `rho` times as many positives, in equal shares of
    their categories. Of an odd number of categories the smaller half is positive.

    Args:
        labels: Category of each row.
        rho: Positives/negatives, in (0, 1].
        seed: Decides which categories are positive and which of their rows are kept. The categories do not
            depend on `rho`.

    Example:
        >>> task = halves(np.arange(10).repeat(100), rho=0.01, seed=0)
        >>> task.class_counts, len(task.positive), len(task.unused)
        ((500, 5), 5, 495)
    """
    categories = _checked_labels(labels)
    names = np.unique(categories)
    if len(names) < 2:
        raise ValueError(f"halves needs rows of at least 2 categories, but there is {len(names)}")
    generator = _random(seed)
    positive = np.sort(generator.permutation(names)[: len(names) // 2])
    label_of = {int(name): int(name in positive) for name in names}
    return _binary(categories, label_of, rho, generator)


def pair(
    labels: ArrayLike,
    minority: int | str,
    majority: int | str,
    rho: float,
    *,
    seed: int = 0,
    class_names: Sequence[str] | None = None,
) -> Imbalanced:
    """One category is the rare positive class, another the negatives; the others take no part.

    Args:
        labels: Category of each row.
        minority: The positive category, by number, or by its name in `class_names`.
        majority: The negative category.
        rho: Positives/negatives, in (0, 1].
        seed: Decides which rows are kept.
        class_names: The name of each category, in the order of their numbers.

    Example:
        >>> names = ("cat", "deer", "horse")
        >>> task = pair(np.arange(3).repeat(100), "deer", "horse", 0.05, class_names=names)
        >>> task.class_counts, task.positive
        ((100, 5), (1,))
    """
    categories = _checked_labels(labels)
    positive, negative = _number_of(minority, class_names), _number_of(majority, class_names)
    if positive == negative:
        raise ValueError(f"minority and majority must be two categories, but both are {positive}")
    for number, side in ((positive, "minority"), (negative, "majority")):
        if number not in categories:
            raise ValueError(f"no row has the {side} category {number}")
    return _binary(categories, {negative: 0, positive: 1}, rho, _random(seed))


def exponential(labels: ArrayLike, rho: float, *, seed: int = 0) -> Imbalanced:
    """Class sizes that fall geometrically from the first class to the last, which has `rho` times its size.

        n_k = floor(n rho^(k/(K-1))),  k = 0 .. K-1

    with n the largest size that the classes allow.

    Example:
        >>> exponential(np.arange(10).repeat(5000), rho=0.01).class_counts
        (5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50)
    """
    categories, count = _checked_classes(labels)
    return _profiled(categories, [_checked_rho(rho) ** (k / (count - 1)) for k in range(count)], rho, seed)


def step(labels: ArrayLike, rho: float, *, seed: int = 0) -> Imbalanced:
    """The last half of the classes has `rho` times the size of the others.

    Of an odd number of classes the smaller half is rare.

    Example:
        >>> step(np.arange(4).repeat(500), rho=0.1).class_counts
        (500, 500, 50, 50)
    """
    categories, count = _checked_classes(labels)
    rare = count // 2
    return _profiled(categories, [1.0] * (count - rare) + [_checked_rho(rho)] * rare, rho, seed)


def _binary(
    categories: NDArray[np.int64], label_of: dict[int, int], rho: float, generator: np.random.Generator
) -> Imbalanced:
    rho = _checked_rho(rho)
    rows = np.flatnonzero(np.isin(categories, list(label_of)))
    positive = _relabelled(categories[rows], label_of) == 1
    # Both sides are put in order first, so that the draw of one does not depend on the size of the other.
    rare = _spread(rows[positive], categories, generator)
    common = _spread(rows[~positive], categories, generator)
    n_common = _whole(min(len(common), len(rare) / rho))
    n_rare = round(rho * n_common)
    if n_rare == 0:
        raise ValueError(
            f"rho = {rho:g} leaves no positive row beside {n_common} negatives: one, the least, is rho = "
            f"{1 / n_common:.2g}"
        )
    kept = np.concatenate([rare[:n_rare], common[:n_common]])
    return _chosen(categories, rows, kept, label_of, is_binary=True)


def _profiled(categories: NDArray[np.int64], shares: list[float], rho: float, seed: int) -> Imbalanced:
    available = np.bincount(categories)
    largest = _whole(min(int(size) / share for size, share in zip(available, shares)))
    sizes = [_whole(largest * share) for share in shares]
    if min(sizes) == 0:
        raise ValueError(
            f"rho = {rho:g} leaves class {sizes.index(0)} without a row: rho must be at least "
            f"{_rounded_up(1 / largest):g} here"
        )
    generator = _random(seed)
    kept = [
        generator.permutation(np.flatnonzero(categories == label))[:size] for label, size in enumerate(sizes)
    ]
    label_of = {label: label for label in range(len(sizes))}
    return _chosen(categories, np.arange(len(categories)), np.concatenate(kept), label_of, is_binary=False)


def _chosen(
    categories: NDArray[np.int64],
    rows: NDArray[np.intp],
    kept: NDArray[np.intp],
    label_of: dict[int, int],
    *,
    is_binary: bool,
) -> Imbalanced:
    indices = np.sort(kept)
    unused = np.setdiff1d(rows, indices, assume_unique=True)
    labels = _relabelled(categories[indices], label_of)
    counts = np.bincount(labels, minlength=max(label_of.values()) + 1)
    return Imbalanced(
        indices=indices,
        labels=labels,
        class_counts=tuple(int(count) for count in counts),
        label_of=label_of,
        unused=unused,
        unused_labels=_relabelled(categories[unused], label_of),
        positive=tuple(name for name, label in label_of.items() if label == 1) if is_binary else (),
    )


def _spread(
    rows: NDArray[np.intp], categories: NDArray[np.int64], generator: np.random.Generator
) -> NDArray[np.intp]:
    """The rows in a random order whose every beginning has the categories in their shares.

    The r-th of n rows of a category gets a random place in [r/n, (r+1)/n).
    """
    place = np.empty(len(rows))
    for category in np.unique(categories[rows]):
        own = generator.permutation(np.flatnonzero(categories[rows] == category))
        place[own] = (np.arange(len(own)) + generator.random(len(own))) / len(own)
    return rows[np.argsort(place, kind="stable")]


def _relabelled(categories: NDArray[np.int64], label_of: dict[int, int]) -> NDArray[np.int64]:
    """The labels of categories that are all in `label_of`; their numbers may be large."""
    names = np.array(sorted(label_of), dtype=np.int64)
    labels = np.array([label_of[int(name)] for name in names], dtype=np.int64)
    return labels[np.searchsorted(names, categories)]


def _whole(number: float) -> int:
    """Rounded down, but not by a whole one because a product such as 0.29 * 100 fell short of it."""
    return math.floor(number * (1 + 1e-12))


def _rounded_up(number: float) -> float:
    """To two digits.

    >>> _rounded_up(1 / 300), _rounded_up(1 / 500)
    (0.0034, 0.002)
    """
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    return float(f"{math.ceil(number / unit * (1 - 1e-12)) * unit:.2g}")


def _number_of(category: int | str, class_names: Sequence[str] | None) -> int:
    if not isinstance(category, str):
        if isinstance(category, (bool, np.bool_)) or not isinstance(category, (int, np.integer)):
            raise TypeError(f"a category is a whole number or a name, but one is {category!r}")
        return int(category)
    if class_names is None:
        raise ValueError(f"the category {category!r} is given by name: give class_names, too")
    found = [number for number, name in enumerate(class_names) if name == category]
    if len(found) != 1:
        raise ValueError(
            f"{len(found)} of the class names {', '.join(class_names)} are {category!r}, not one"
        )
    return found[0]


def _random(seed: int) -> np.random.Generator:
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, but is {seed!r}")
    return np.random.default_rng(seed)


def _checked_rho(rho: float) -> float:
    is_number = isinstance(rho, (int, float, np.integer, np.floating)) and not isinstance(rho, bool)
    if not is_number or not 0 < rho <= 1:
        raise ValueError(f"rho must be a number above 0 and at most 1, but is {rho!r}")
    return float(rho)


def _checked_labels(labels: ArrayLike) -> NDArray[np.int64]:
    categories = np.asarray(labels)
    if categories.ndim != 1 or categories.dtype.kind not in "iu" or not len(categories):
        raise ValueError(
            "labels must be whole numbers in one dimension, "
            f"but are {categories.dtype} of shape {categories.shape}"
        )
    if categories.min() < 0:
        raise ValueError(f"labels must not be negative, but one is {categories.min()}")
    if categories.max() > np.iinfo(np.int64).max:
        raise ValueError(f"labels must be below 2**63, but one is {categories.max()}")
    return categories.astype(np.int64)


def _checked_classes(labels: ArrayLike) -> tuple[NDArray[np.int64], int]:
    """Labels 0 to K-1, each of which has rows, and K."""
    categories = _checked_labels(labels)
    names = np.unique(categories)
    if len(names) < 2 or names[-1] != len(names) - 1:
        raise ValueError(
            "labels must be 0 to K-1 for K of at least 2 classes that all have rows, "
            f"but go to {names[-1]} and have {len(names)} different values"
        )
    return categories, len(names)
