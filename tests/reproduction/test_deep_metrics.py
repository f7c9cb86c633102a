"""The metrics of the paper's experiments with nets, against formulas written out by hand."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, roc_auc_score

from raresight.losses import ClassWeighted, effective_number_weights
from raresight.nn import Replicas
from reproduction.experiments.balanced_metrics import (
    BINARY_METRICS,
    CLASS_METRICS,
    binary_metrics,
    class_metrics,
)
from reproduction.experiments.methods import METHODS, build_loss, is_cosine, paper_parameters
from reproduction.experiments.stack import evaluate_replicas
from reproduction.images.rows import ImageRows
from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)


def test_binary_metrics_by_hand():
    random = np.random.default_rng(0)
    y = np.arange(400) % 2
    z = random.normal(size=400) + y
    log_odds, rho = 1.3 * z - 2, 0.05
    found = binary_metrics(y, z, log_odds, rho)
    assert tuple(found) == BINARY_METRICS
    probability = 1 / (1 + np.exp(-log_odds) * rho)
    assert found["roc_auc"] == pytest.approx(roc_auc_score(y, z))
    assert found["partial_auc_0.01"] == pytest.approx(roc_auc_score(y, z, max_fpr=0.01))
    # Of 200 negatives two may be above the threshold, of one in a thousand none.
    ordered = np.sort(z[y == 0])[::-1]
    assert found["recall_0.01"] == np.mean(z[y == 1] > ordered[2])
    assert found["recall_0.001"] == np.mean(z[y == 1] > ordered[0])
    assert found["accuracy"] == np.mean((z > 0) == y)
    assert found["minority_accuracy"] == np.mean(z[y == 1] > 0)
    assert found["accuracy_linked"] == np.mean((probability > 0.5) == y)
    assert found["minority_accuracy_linked"] == np.mean(probability[y == 1] > 0.5)
    assert found["brier"] == pytest.approx(brier_score_loss(y, 1 / (1 + np.exp(-z))))
    assert found["brier_linked"] == pytest.approx(brier_score_loss(y, probability))


def test_large_scores_do_not_overflow():
    y = np.array([0, 1])
    found = binary_metrics(y, np.array([-1e4, 1e4]), np.array([-1e4, 1e4]), 1e-3)
    assert (found["brier"], found["accuracy_linked"], found["roc_auc"]) == (0, 1, 1)


def test_class_metrics_by_hand():
    random = np.random.default_rng(1)
    labels = random.integers(0, 4, 300)
    f = random.normal(size=(300, 4)) + 1.5 * np.eye(4)[labels]
    counts = (100, 40, 10, 10)
    posterior = f - np.log(np.exp(f).sum(1, keepdims=True))
    found = class_metrics(labels, f, posterior, counts)
    assert tuple(found) == CLASS_METRICS
    weighed = np.exp(posterior) / np.array(counts)
    share = weighed / weighed.sum(1, keepdims=True)
    guess, linked = f.argmax(1), share.argmax(1)
    assert found["accuracy"] == np.mean(guess == labels)
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(labels, guess))
    assert found["accuracy_linked"] == np.mean(linked == labels)
    each = [np.mean(linked[labels == k] == k) for k in range(4)]
    assert found["balanced_accuracy_linked"] == pytest.approx(np.mean(each))
    assert found["common_accuracy_linked"] == pytest.approx(np.mean(each[:2]))
    assert (
        found["rare_accuracy_linked"] == found["minority_accuracy_linked"] == pytest.approx(np.mean(each[2:]))
    )
    assert found["brier_linked"] == pytest.approx(np.mean(np.sum((share - np.eye(4)[labels]) ** 2, axis=1)))


def stack_of(counts, outputs):
    losses = [build_loss(m, paper_parameters(m, "cifar10", "halves", 0.01), counts) for m in METHODS]
    cosine = tuple(is_cosine(method) for method in METHODS)
    replicas = Replicas(partial(resnet_cifar, 8, width=2, outputs=outputs, cosine=cosine), losses)
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)
    rows = ImageRows(pixels, np.arange(60) % max(outputs, 2), mean=(0.5,) * 3, std=(0.25,) * 3)
    return replicas, rows, losses


def test_probabilities_are_those_of_each_loss_with_the_prior_taken_out():
    counts = (950, 50)
    replicas, rows, losses = stack_of(counts, 1)
    labels = rows.labels.numpy()
    found = evaluate_replicas(replicas, rows, losses, counts)
    probabilities = replicas.probabilities(rows).double().numpy()
    for metrics, eta in zip(found, probabilities, strict=True):
        balanced = eta / (eta + (1 - eta) * 50 / 950)
        assert metrics["brier_linked"] == pytest.approx(np.mean((balanced - labels) ** 2), abs=1e-5)
        assert metrics["accuracy_linked"] == pytest.approx(np.mean((balanced > 0.5) == labels), abs=1e-6)
    scores = replicas.scores(rows).double().numpy()
    adjusted = METHODS.index("CE+LA")
    # What is adjusted by the prior in training is right for a balanced set as it is.
    assert found[adjusted]["brier"] == found[adjusted]["brier_linked"]
    assert found[adjusted]["accuracy"] == pytest.approx(np.mean((scores[adjusted] > 0) == labels), abs=1e-6)


def test_late_class_weights_are_taken_out_of_the_probability():
    counts = (950, 50)
    replicas, rows, losses = stack_of(counts, 1)
    place = METHODS.index("LDAM-DRW")
    weights = effective_number_weights(counts)
    late = [ClassWeighted(loss, weights) if k == place else loss for k, loss in enumerate(losses)]
    early, found = (evaluate_replicas(replicas, rows, each, counts)[place] for each in (losses, late))
    eta = replicas.probabilities(rows)[place].double().numpy()
    odds = eta / (1 - eta) / (weights[1] / weights[0]) * 950 / 50
    expected = np.mean((odds / (1 + odds) - rows.labels.numpy()) ** 2)
    assert found["brier_linked"] == pytest.approx(expected, abs=1e-5)
    assert abs(found["brier_linked"] - early["brier_linked"]) > 1e-3
    assert found["roc_auc"] == early["roc_auc"]


def test_several_classes_are_judged_by_their_posterior():
    counts = (500, 100, 20)
    replicas, rows, losses = stack_of(counts, 3)
    labels = rows.labels.long().numpy()
    found = evaluate_replicas(replicas, rows, losses, counts)
    for metrics, eta in zip(found, replicas.probabilities(rows).double().numpy(), strict=True):
        share = eta / np.array(counts)
        share /= share.sum(1, keepdims=True)
        assert metrics["accuracy_linked"] == pytest.approx(np.mean(share.argmax(1) == labels), abs=1e-6)
        expected = np.mean(np.sum((share - np.eye(3)[labels]) ** 2, axis=1))
        assert metrics["brier_linked"] == pytest.approx(expected, abs=1e-5)


def test_a_net_that_is_not_finite_has_no_metrics():
    replicas, rows, losses = stack_of((950, 50), 1)
    with torch.no_grad():
        replicas.net.head.bias[0] = float("nan")
    broken, sound, *_ = evaluate_replicas(replicas, rows, losses, (950, 50))
    assert broken == dict.fromkeys(BINARY_METRICS)
    assert None not in sound.values()
