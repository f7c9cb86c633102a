"""Imbalanced tasks cut out of balanced sets: exact counts, the right rows, reproducible."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.images.imbalance import exponential, halves, pair, step

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@pytest.fixture(scope="module")
def cifar10_labels():
    return np.random.default_rng(0).permutation(np.arange(10).repeat(5000))


def check(task, labels, taking_part):
    """What every task must satisfy."""
    for rows in (task.indices, task.unused):
        assert np.array_equal(rows, np.unique(rows))
    together = np.sort(np.concatenate([task.indices, task.unused]))
    assert np.array_equal(together, np.flatnonzero(np.isin(labels, taking_part)))
    wanted = np.array([task.label_of[int(category)] for category in labels[task.indices]])
    assert np.array_equal(task.labels, wanted)
    assert task.labels.dtype == np.int64
    assert np.array_equal(np.bincount(task.labels), task.class_counts)
    assert np.array_equal(
        task.unused_labels, [task.label_of[int(category)] for category in labels[task.unused]]
    )


@pytest.mark.parametrize(("rho", "positives"), [(0.1, 2500), (0.05, 1250), (0.01, 250), (1.0, 25_000)])
def test_halves_of_cifar10(cifar10_labels, rho, positives):
    task = halves(cifar10_labels, rho, seed=3)
    check(task, cifar10_labels, range(10))
    assert task.class_counts == (25_000, positives)
    assert len(task.unused) == 25_000 - positives
    assert len(task.positive) == 5
    assert np.isin(cifar10_labels[task.indices[task.labels == 1]], task.positive).all()
    assert not np.isin(cifar10_labels[task.indices[task.labels == 0]], task.positive).any()
    each = np.bincount(cifar10_labels[task.indices[task.labels == 1]], minlength=10)
    assert [each[category] for category in task.positive] == [positives // 5] * 5


def test_halves_of_other_sets():
    hundred = np.arange(100).repeat(500)
    assert halves(hundred, 0.01, seed=0).class_counts == (25_000, 250)
    assert len(halves(hundred, 0.01, seed=0).positive) == 50
    assert halves(np.arange(200).repeat(500), 0.05, seed=0).class_counts == (50_000, 2500)
    odd = halves(np.arange(3).repeat(100), 0.1, seed=0)
    assert len(odd.positive) == 1
    assert odd.class_counts == (200, 20)


def test_halves_depend_on_the_seed_alone(cifar10_labels):
    one, two = halves(cifar10_labels, 0.05, seed=3), halves(cifar10_labels, 0.05, seed=3)
    assert np.array_equal(one.indices, two.indices)
    assert one.positive == two.positive
    other = halves(cifar10_labels, 0.05, seed=4)
    assert not np.array_equal(one.indices, other.indices)
    choices = {halves(cifar10_labels, 0.1, seed=seed).positive for seed in range(12)}
    assert len(choices) > 8
    fewer = halves(cifar10_labels, 0.01, seed=3)
    assert fewer.positive == one.positive
    assert set(fewer.indices) < set(one.indices)


def test_too_few_positives_take_negatives_away():
    labels = np.array([0] * 100 + [1] * 10)
    task = pair(labels, minority=1, majority=0, rho=0.3)
    check(task, labels, range(2))
    assert task.class_counts == (33, 10)
    assert pair(labels, minority=0, majority=1, rho=0.3).class_counts == (10, 3)


def test_shares_follow_the_sizes_of_categories():
    labels = np.arange(4).repeat([300, 300, 100, 300])
    for seed in range(6):
        task = halves(labels, 0.1, seed=seed)
        assert task.class_counts[1] == round(0.1 * task.class_counts[0])
        sizes = {category: np.sum(labels == category) for category in task.positive}
        for category, size in sizes.items():
            kept = np.sum(labels[task.indices] == category)
            assert abs(kept - task.class_counts[1] * size / sum(sizes.values())) <= 1


@pytest.mark.parametrize(("rho", "positives"), [(0.002, 10), (0.01, 50), (0.05, 250)])
def test_pair_of_deer_and_horse(cifar10_labels, rho, positives):
    task = pair(cifar10_labels, "deer", "horse", rho, class_names=CIFAR10)
    check(task, cifar10_labels, (4, 7))
    assert task.class_counts == (5000, positives)
    assert task.positive == (4,)
    assert len(task.unused) == 5000 - positives
    by_number = pair(cifar10_labels, 4, 7, rho)
    assert np.array_equal(task.indices, by_number.indices)
    other = pair(cifar10_labels, 4, 7, rho, seed=1)
    assert not np.array_equal(task.indices, other.indices)
    rows, labels = task.relabel(np.array([0, 4, 7, 9, 4]))
    assert rows.tolist() == [1, 2, 4]
    assert labels.tolist() == [1, 0, 1]


def test_exponential_counts_are_the_published_ones(cifar10_labels):
    task = exponential(cifar10_labels, 0.01)
    check(task, cifar10_labels, range(10))
    assert task.class_counts == (5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50)
    assert task.positive == ()
    hundred = exponential(np.arange(100).repeat(500), 0.1)
    assert hundred.class_counts == tuple(int(500 * 0.1 ** (k / 99)) for k in range(100))
    assert (hundred.class_counts[0], hundred.class_counts[-1]) == (500, 50)
    assert exponential(cifar10_labels, 1.0).class_counts == (5000,) * 10
    rows, labels = task.relabel([3, 1])
    assert rows.tolist() == [0, 1]
    assert labels.tolist() == [3, 1]


def test_step_counts(cifar10_labels):
    task = step(cifar10_labels, 0.01, seed=5)
    check(task, cifar10_labels, range(10))
    assert task.class_counts == (5000,) * 5 + (50,) * 5
    assert np.array_equal(task.indices, step(cifar10_labels, 0.01, seed=5).indices)
    assert not np.array_equal(task.indices, step(cifar10_labels, 0.01, seed=6).indices)
    assert step(np.arange(5).repeat(100), 0.29).class_counts == (100, 100, 100, 29, 29)


def test_profiles_keep_within_what_classes_have():
    labels = np.arange(3).repeat([50, 200, 10])
    assert exponential(labels, 0.25).class_counts == (40, 20, 10)
    assert step(labels, 0.1).class_counts == (50, 50, 5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: halves([0, 1], 0.0, 0), "rho must be a number above 0"),
        (lambda: halves([0, 1], "0.1", 0), "rho must be a number above 0 and at most 1, but is '0.1'"),
        (lambda: step([0, 1], None), "rho must be a number"),
        (lambda: pair([0, 1], 0, 1, True), "rho must be a number above 0 and at most 1, but is True"),
        (lambda: halves(np.arange(2).repeat(10), 1e-320, 0), "leaves no positive row beside 10 negatives"),
        (lambda: pair(np.arange(2).repeat(10), 0, 1, 1e-320), "leaves no positive row beside 10 negatives"),
        (lambda: step(np.arange(2).repeat(10), 1e-320), "leaves class 1 without a row"),
        (lambda: exponential(np.arange(3).repeat(10), 1e-320), "leaves class 1 without a row"),
        (lambda: halves([0, 1], 0.5, None), "seed must be a whole number of at least 0, but is None"),
        (lambda: exponential(np.arange(2).repeat(9), 0.5, seed=-1), "seed must be"),
        (lambda: halves(np.array([0, 2**63], np.uint64), 0.5, 0), "labels must be below"),
        (lambda: exponential([0, 10**12], 0.5), "go to 1000000000000 and have 2"),
        (lambda: exponential([0, 1], 1.5), "at most 1"),
        (lambda: halves([0, 0], 0.5, 0), "at least 2 categories"),
        (lambda: halves([0.0, 1.0], 0.5, 0), "whole numbers"),
        (lambda: halves([-1, 1], 0.5, 0), "negative"),
        (lambda: halves(np.arange(2).repeat(10), 0.01, 0), "one, the least, is rho = 0.1"),
        (lambda: step(np.arange(2).repeat(10), 0.01), "leaves class 1 without a row"),
        (lambda: exponential([0, 2], 0.5), "0 to K-1"),
        (lambda: pair([0, 1], 0, 0, 0.5), "two categories"),
        (lambda: pair([0, 1], 0, 5, 0.5), "no row has the majority category 5"),
        (lambda: pair([0, 1], "deer", "horse", 0.5), "give class_names"),
        (lambda: pair([0, 1], "elk", "horse", 0.5, class_names=CIFAR10), "0 of the class names"),
    ],
)
def test_what_cannot_be_cut_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("profile", [exponential, step])
@pytest.mark.parametrize("size", [1, 2, 7, 300, 5000, 12345])
def test_the_least_rho_that_is_named_is_enough(profile, size):
    labels = np.arange(2).repeat(size)
    with pytest.raises(ValueError, match="rho must be at least") as refused:
        profile(labels, 1e-7)
    least = float(str(refused.value).split("at least ")[1].split()[0])
    assert profile(labels, least).class_counts[1] >= 1
    assert least <= 1.1 / size


@pytest.mark.parametrize("category", [0.0, True, None])
def test_a_category_is_a_number_or_a_name(category):
    with pytest.raises(TypeError, match="a category is a whole number or a name"):
        pair([0, 1], category, 1, 0.5)


def test_large_numbers_of_categories_take_no_memory():
    task = halves([3, 10**12] * 10, 0.5, 0)
    assert task.class_counts == (10, 5)
    assert set(task.label_of) == {3, 10**12}
