"""The anchor: other authors' recipe, and their accuracies beside ours."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import deep_job
from deep_records import record
from raresight.losses import LDAM, ClassWeighted, effective_number_weights
from raresight.nn.schedule import class_weights, deferred_replicas, learning_rates
from reproduction.__main__ import main
from reproduction.experiments import stack
from reproduction.experiments.anchor import accuracy_table
from reproduction.experiments.budget import evaluated_epochs
from reproduction.experiments.methods import build_loss, is_cosine
from reproduction.experiments.net_trial import SIZES, Setup
from reproduction.experiments.stack import recipe_of
from reproduction.experiments.trials import ANCHOR, anchor_trials, known_trials
from reproduction.images.imbalance import exponential
from reproduction.training_records import add_records, journal_path, read_records
from tiny_cifar import write_tiny_cifar10

torch.set_num_threads(1)

FULL = Setup("cifar100", SIZES["full"])
COUNTS = exponential(np.arange(100).repeat(500), 0.01).class_counts
TRIALS = anchor_trials(FULL)
METHODS = [trial.method for trial in TRIALS]


def authors_rate(epoch):
    """`adjust_learning_rate` of LDAM's authors, their epochs from 0."""
    if epoch < 5:
        return 0.1 * (epoch + 1) / 5
    return 0.1 * (1 if epoch < 160 else 0.01 if epoch < 180 else 0.0001)


def test_the_set_is_theirs():
    assert list(COUNTS) == [int(500 * 0.01 ** (k / 99.0)) for k in range(100)]
    assert (sum(COUNTS), COUNTS[0], COUNTS[-1]) == (10847, 500, 5)


def test_the_recipe_is_theirs():
    recipe = recipe_of(TRIALS)
    for epoch in range(200):
        # Ours rises by steps: at the end of an epoch the rates are the same.
        assert learning_rates(recipe, 24, epoch, 84)[-1, 0].item() == pytest.approx(authors_rate(epoch))
    assert (recipe.epochs, recipe.batch, recipe.momentum, recipe.weight_decay) == (200, 128, 0.9, 2e-4)
    losses = [build_loss(trial.method, trial.parameters, COUNTS) for trial in TRIALS]
    assert losses[METHODS.index("LDAM")] == losses[METHODS.index("LDAM-DRW")] == LDAM(COUNTS)
    assert (LDAM(COUNTS).scale, LDAM(COUNTS).max_margin) == (30.0, 0.5)
    deferred = deferred_replicas(recipe, losses)
    assert [method for method, late in zip(METHODS, deferred, strict=True) if late] == ["LDAM-DRW"] * 3
    place = METHODS.index("LDAM-DRW")
    assert (class_weights(recipe, deferred, COUNTS, 159) == 1).all()
    weights = class_weights(recipe, deferred, COUNTS, 160)
    raw = (1 - 0.9999) / (1 - 0.9999 ** np.array(COUNTS))
    assert weights[place].numpy() == pytest.approx(raw / raw.sum() * 100)
    assert (weights[METHODS.index("LDAM")] == 1).all()
    assert {method for method in METHODS if is_cosine(method)} == {"LDAM", "LDAM-DRW"}
    limits = dict(zip(METHODS, recipe.clip, strict=True))
    assert {method for method, limit in limits.items() if limit} == {"alpha+LA", "TBL", "TBL+LA"}


def test_its_trials_are_known_and_judged_late():
    assert list(known_trials(ANCHOR, FULL, {})) == TRIALS
    judged = evaluated_epochs(TRIALS[0])
    assert judged == (*range(20, 160, 20), *range(160, 201, 5))
    assert evaluated_epochs(replace(TRIALS[0], epochs=1)) == (1,)
    assert evaluated_epochs(replace(TRIALS[0], epochs=5))[-1] == 5


def test_a_stack_is_trained_and_read_again(tmp_path):
    data = write_tiny_cifar10(tmp_path, train_images=20, test_images=4)
    wanted = ("CE", "LDAM", "LDAM-DRW", "TBL")
    small = {"dataset": "cifar10", "rho": 0.2, "depth": 8, "width": 2, "epochs": 10}
    trials = tuple(replace(trial, **small) for trial in TRIALS if trial.seed == 0 and trial.method in wanted)
    records = deep_job.run(data, tmp_path / "stack", trials)
    assert [record["clip"] for record in records] == [None, None, None, 5.0]
    assert [record["frozen"] for record in records] == [None] * 4
    losses = {record["trial"]["method"]: record["curve"]["train_loss"] for record in records}
    late = records[0]["curve"]["epoch"].index(9)
    assert losses["LDAM"][: late - 1] == losses["LDAM-DRW"][: late - 1]
    assert losses["LDAM"][late:] != losses["LDAM-DRW"][late:]
    journal = journal_path(tmp_path, "anchor", "cifar10")
    add_records(journal, records)
    assert list(read_records(journal)) == [trial.key for trial in trials]


def test_the_link_of_ldam_has_no_weights_without_deferred_reweighting():
    run = object.__new__(stack._StackTraining)
    chosen = [TRIALS[METHODS.index(method)] for method in ("LDAM", "LDAM-DRW")]
    recipe = recipe_of(chosen)
    run._trials, run._recipe, run._counts = tuple(chosen), recipe, COUNTS
    run._replicas = type("Stack", (), {"losses": [LDAM(COUNTS)] * 2})()
    for epoch, weighted in ((160, False), (161, True)):
        run._loop = type("Loop", (), {"epoch": epoch})()
        late = ClassWeighted(LDAM(COUNTS), effective_number_weights(COUNTS))
        assert run._loss_now(0) == LDAM(COUNTS)
        assert run._loss_now(1) == (late if weighted else LDAM(COUNTS))


def test_the_table_is_of_the_journal(tmp_path, capsys):
    journal = journal_path(tmp_path / "deep", "anchor", "cifar100")
    new = []
    for trial in TRIALS:
        if trial.method in ("CE", "VS") and (trial.method, trial.seed) != ("VS", 2):
            own = json.loads(json.dumps(record(trial, 0.4)))
            own["curve"]["test_accuracy"] = [0.41, 0.42 + trial.seed / 100, 0.4]
            new.append({**own, "clip": None})
    add_records(journal, new)
    assert main(["anchor", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| CE | 3 | 40.00 ± 0.00 | 43.00 ± 1.00 | 38.06 ± 1.03 |  |"
    assert "| VS | 2 | 40.00 ± 0.00 | 42.50 ± 0.71 | 42.67 ± 0.48 |  |" in lines
    assert "| TBL | 0 |  |  |  |  |" in lines
    assert "\n".join(lines) == accuracy_table(FULL, read_records(journal))
