"""What is trained in the paper's experiments with nets: trials, their identity, counts and losses."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deep_records import record as known_record
from raresight.losses import LDAM, LogitAdjusted, VectorScaling
from reproduction.__main__ import main
from reproduction.experiments import runs
from reproduction.experiments.budget import FUSED, LAYERED, LAYERED_FLOAT32, plan, stack_seconds
from reproduction.experiments.methods import (
    METHODS,
    build_loss,
    candidates,
    choose,
    is_cosine,
    paper_parameters,
)
from reproduction.experiments.net_trial import DATASETS, SIZES, NetTrial, Setup, Size, folder_name, size_of
from reproduction.experiments.trials import (
    EXPERIMENTS,
    SEARCH_SEED,
    SEEDS,
    Cell,
    cell_trials,
    known_trials,
    paper_trials,
    search_trials,
)
from reproduction.training_records import add_records, journal_path, read_records

ROOT = Path(__file__).parents[2]
SETUP = Setup()


def record(trial, validation, test=0.5, frozen=None):
    curve = {"validation_roc_auc": [validation], "test_roc_auc": [test]}
    return {"trial": trial.to_dict(), "curve": curve, "frozen": frozen}


def searched(validation):
    """A finished search of the first cell of Table 2, with a validation AUC for each trial."""
    experiment = EXPERIMENTS["table2"]
    trials = search_trials(experiment, experiment.cells[0], SETUP)
    return {trial.key: record(trial, validation(trial), test=1 - validation(trial)) for trial in trials}


def test_a_trial_is_the_same_after_a_file():
    for trial in search_trials(EXPERIMENTS["table2"], Cell("halves", 0.01), SETUP):
        read = NetTrial.from_dict(json.loads(json.dumps(trial.to_dict())))
        assert read == trial
        assert read.key == trial.key


def test_what_decides_a_result_decides_the_key():
    trial = search_trials(EXPERIMENTS["table2"], Cell("halves", 0.01), SETUP)[-1]
    changes = {
        "dataset": "cifar100", "task": "pair", "rho": 0.02, "draw": 7, "held_out": False, "depth": 20,
        "width": 8, "method": "TBL", "parameters": (("alpha", 0.5), ("C", 0.5)), "lr": 0.1, "seed": 9,
        "epochs": 3, "role": "final",
    }  # fmt: skip
    assert changes.keys() == trial.to_dict().keys()
    keys = {replace(trial, **{name: value}).key for name, value in changes.items()}
    assert len(keys | {trial.key}) == len(changes) + 1
    # Written down: a journal of today must be read tomorrow.
    one = NetTrial(
        "cifar10", "pair", 0.01, 1, True, 32, 16, "VS", (("tau", 1.25), ("gamma", 0.2)), 0.02, 2, 16, "final"
    )
    assert one.key == (
        '{"dataset":"cifar10","depth":32,"draw":1,"epochs":16,"held_out":true,"lr":0.02,"method":"VS",'
        '"parameters":{"gamma":0.2,"tau":1.25},"rho":0.01,"role":"final","seed":2,"task":"pair","width":16}'
    )
    assert folder_name((one,)) != folder_name((one, one))


@pytest.mark.parametrize(
    ("name", "size", "counts"),
    [
        # 3 parameter-free losses and 6 with 2 settings, 3 rates, 2 draws, 3 cells; 9 losses x 3 seeds.
        ("table2", "short", {"search": 270, "final": 162, "paper": 81}),
        # Beyond the rates 5 losses, 2 draws and 3 seeds in 2 cells.
        ("table2", "full", {"search": 378, "final": 162, "paper": 81, "beyond": 60}),
        ("table4", "short", {"search": 180, "final": 108, "paper": 108}),
        ("deer-horse", "medium", {"search": 270, "final": 162, "paper": 81}),
        ("ablation-c", "full", {"ablation": 8 * 2 * 2 * 3 * 2}),
    ],
)
def test_planned_trainings(name, size, counts):
    setup = Setup(size=SIZES[size])
    lines = plan(name, setup)
    assert {line.role: line.trainings for line in lines} == counts
    # What is planned is what is trained.
    experiment, finished = EXPERIMENTS[name], {}
    for trial in list(known_trials(experiment, setup, {})):
        curve = {f"validation_{experiment.choose_by}": [trial.lr]}
        finished[trial.key] = {"trial": trial.to_dict(), "curve": curve, "frozen": None}
    trained = list(known_trials(experiment, setup, finished))
    assert len({trial.key for trial in trained}) == len(trained) == sum(counts.values())


def test_short_experiments_fit_into_half_an_hour_of_a_gpu():
    minutes = {name: sum(line.minutes for line in plan(name, SETUP)) for name in EXPERIMENTS}
    assert minutes["table2"] < 15
    assert minutes["table4"] < 12
    assert minutes["deer-horse"] + minutes["ablation-c"] < 8
    full = sum(line.minutes for line in plan("table2", Setup(size=SIZES["full"])))
    assert full > 8 * minutes["table2"]


def test_a_plan_leaves_out_what_is_trained():
    cells = EXPERIMENTS["table2"].cells
    trials = [t for cell in cells for t in paper_trials(EXPERIMENTS["table2"], cell, SETUP)]
    known = {trial.key: {"trial": trial.to_dict()} for trial in trials[: 27 + 10]}
    (line,) = plan("table2", SETUP, roles=["paper"], finished=known)
    assert (line.trainings, line.left) == (81, 81 - 37)
    parts = [plan("table2", SETUP, rhos=[cell.rho], roles=["paper"])[0].minutes for cell in cells]
    assert parts[2] < line.minutes < parts[1] + parts[2]
    # Others of the same settings, but longer or of another net, are others.
    for setup in (replace(SETUP, depth=20), replace(SETUP, size=SIZES["full"])):
        assert plan("table2", setup, roles=["paper"], finished=known)[0].left == 81
    known = {trial.key: {"trial": trial.to_dict()} for trial in trials}
    (line,) = plan("table2", SETUP, roles=["paper"], finished=known)
    assert (line.left, line.minutes) == (0, 0)


def test_the_plan_agrees_with_the_committed_trainings():
    """What the stacks of 14 epochs and more took, by the share of each of their nets."""
    stacks = {}
    for name in ("table2", "table4", "deer-horse", "ablation-c"):
        for record in read_records(journal_path(ROOT / "results" / "deep", name, "cifar10")).values():
            trial = NetTrial.from_dict(record["trial"])
            if trial.epochs >= 14:
                coarse = record.get("recipe", {}).get("bf16_evaluation", False)
                pace = LAYERED if coarse else LAYERED_FLOAT32
                # The first nets, all by Triton's kernels, do not say so.
                if record.get("kernels", "triton") == "fused":
                    pace = FUSED
                key = (name, trial.stack_key, trial.role, record["stack"], record["date"], pace)
                stacks.setdefault(key, []).append((trial, record["seconds"]))
    ratios, fused = [], 0
    for (*_, size, _, pace), nets in stacks.items():
        took = size * sum(seconds for _, seconds in nets) / len(nets)
        planned = stack_seconds([nets[0][0]] * size, pace=pace)
        fused += pace is FUSED
        ratios.append(took / planned)
        # Those that were the first on a machine compiled their kernels, which is not told apart.
        assert took < 1.1 * planned + runs._FIRST_START
    assert len(ratios) > 40
    assert fused >= 4
    assert np.median(ratios) == pytest.approx(1, abs=0.03)
    least, most = np.quantile(ratios, [0.05, 0.9])
    assert least > 0.91
    assert most < runs._MARGIN
    # One stack of 32 had another beside it on the GPU for its first epochs.
    assert max(ratios) < 1.3
    assert min(ratios) > 0.9


def test_the_cost_of_a_stack_agrees_with_what_was_measured():
    trial = NetTrial("cifar10", "halves", 0.01, 0, False, 32, 16, "CE", (), 0.002, 0, 250, "search")
    # 16 nets for 250 epochs over 25,000 images: 4 minutes (docs/deep.md), and 8 by Triton's kernels.
    assert stack_seconds([trial] * 16) == pytest.approx(245, rel=0.05)
    assert stack_seconds([trial] * 16, pace=LAYERED) == pytest.approx(480, rel=0.1)
    deep = replace(trial, dataset="cifar100", depth=44)
    assert stack_seconds([deep] * 16) / stack_seconds([trial] * 16) == pytest.approx(0.82 / 0.60, rel=0.05)
    # Six do not fill the GPU: 130 s for 203 epochs over 25,000 images, judged by 15,000 after each.
    final = replace(trial, rho=0.1, held_out=True, role="final", epochs=203)
    assert stack_seconds([final] * 6) == pytest.approx(130, rel=0.05)
    assert stack_seconds([final]) > 0.9 * stack_seconds([final] * 6)


def test_no_loss_has_more_tries_than_another():
    for count in (2, 3):
        for dataset, task, rho in (("cifar10", "halves", 0.01), ("cifar100", "halves", 0.01),
                                   ("tinyimagenet", "halves", 0.05), ("cifar10", "pair", 0.05)):  # fmt: skip
            found = {method: candidates(method, dataset, task, rho, count) for method in METHODS}
            for method, settings in found.items():
                assert settings[0] == paper_parameters(method, dataset, task, rho)
                assert len(set(settings)) == (count if settings[0] else 1), method
    assert all(data.paper_lr in data.lrs for data in DATASETS.values())


def test_seeds_of_the_search_are_not_reported():
    trials = list(known_trials(EXPERIMENTS["table2"], SETUP, searched(lambda trial: 0.5)))
    for trial in trials:
        assert (trial.seed == SEARCH_SEED) == (trial.role == "search")
        assert trial.held_out == (trial.role != "paper")
    assert SEARCH_SEED not in SEEDS


def test_settings_are_chosen_on_validation_rows_and_over_all_draws():
    def validation(trial):
        # The second rate is best on average, the third in the first draw, the first on the test set.
        return {0.002: 0.6, 0.006: 0.8, 0.02: 0.9 if trial.draw == 0 else 0.5}[trial.lr]

    finished = searched(validation)
    cell = EXPERIMENTS["table2"].cells[0]
    trials = cell_trials(EXPERIMENTS["table2"], cell, SETUP, finished)
    assert {trial.lr for trial in trials["final"]} == {0.006}
    assert {trial.lr for trial in trials["paper"]} == {0.002}
    assert {chosen.lr for chosen in choose(list(finished.values()), "test_roc_auc").values()} == {0.002}
    assert choose(list(finished.values()), "validation_roc_auc")["TBL"].value == pytest.approx(0.8)
    # One trial less, and nothing is chosen yet.
    first = next(iter(finished))
    del finished[first]
    assert "final" not in cell_trials(EXPERIMENTS["table2"], cell, SETUP, finished)


def test_a_setting_that_fails_is_not_chosen():
    finished = searched(lambda trial: trial.lr)
    best = [
        key for key, found in finished.items() if found["trial"]["lr"] == 0.02 and found["trial"]["draw"] == 1
    ]
    for key in best:
        finished[key] = {**finished[key], "frozen": "loss not finite at epoch 3, step 1"}
    assert {chosen.lr for chosen in choose(list(finished.values()), "validation_roc_auc").values()} == {0.006}
    undefined = [{**found, "curve": {"validation_roc_auc": [None]}} for found in finished.values()]
    assert choose(undefined, "validation_roc_auc")["CE"].value == -math.inf


def test_losses_know_the_counts_of_their_training_rows():
    counts = (950, 50)
    losses = {m: build_loss(m, paper_parameters(m, "cifar10", "halves", 0.05), counts) for m in METHODS}
    adjusted = {method for method, loss in losses.items() if isinstance(loss, LogitAdjusted)}
    assert adjusted == {"CE+LA", "Focal+LA", "Poly+LA", "alpha+LA", "TBL+LA"}
    assert all(losses[method].prior == pytest.approx(0.05) for method in adjusted)
    assert losses["LDAM-DRW"] == LDAM(counts)
    assert [method for method in METHODS if is_cosine(method)] == ["LDAM-DRW"]
    # Written out: l(1, z) = log(1 + exp(-tau log rho - delta z)), l(0, z) = log(1 + exp(tau log rho + z)).
    z, rho = np.array([-1.0, 2.0]), 50 / 950
    vs = losses["VS"]
    assert isinstance(vs, VectorScaling)
    positive = np.log1p(np.exp(-1.25 * np.log(rho) - rho**0.2 * z))
    assert vs.value(z, np.ones(2)) == pytest.approx(positive)
    assert vs.value(z, np.zeros(2)) == pytest.approx(np.log1p(np.exp(1.25 * np.log(rho) + z)))
    several = (500, 100, 20)
    for method in METHODS:
        loss = build_loss(method, paper_parameters(method, "cifar10", "step", 0.01), several)
        assert loss.n_classes in (None, 3), method
    with pytest.raises(ValueError, match="method must be one of CE, CE\\+LA"):
        build_loss("Hinge", (), counts)


def test_sizes_and_sets_are_checked():
    assert size_of("3, 5").final_epochs == 5
    for text in ("long", "3", "0,5", "3,5,7"):
        with pytest.raises(ValueError, match="size must be one of short, medium, full"):
            size_of(text)
    with pytest.raises(ValueError, match="dataset must be one of cifar10"):
        Setup("mnist")
    assert [Setup(name).layers for name in DATASETS] == [32, 44, 56]


def test_the_plan_is_printed(capsys, tmp_path):
    trials = paper_trials(EXPERIMENTS["table4"], EXPERIMENTS["table4"].cells[0], Setup(size=SIZES["full"]))
    add_records(
        journal_path(tmp_path / "deep", "table4", "cifar10"),
        [known_record(trial, 0.7) for trial in trials[:3]],
    )
    words = ["table4", "ablation-c", "--plan", "--size", "full", "--out", str(tmp_path)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "ResNet-32, size full" in text
    assert [line.split()[:5] for line in text.splitlines()[2:]] == [
        ["table4", "search", "252", "252", "50"],
        ["table4", "final", "108", "108", "250"],
        ["table4", "paper", "108", "105", "250"],
        ["ablation-c", "ablation", "192", "192", "250"],
        ["all", "660", "657", text.split()[-1]],
    ]
    assert main(["table4", "ablation-c", "--plan", "--role", "paper", "ablation"]) == 0
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[2:-1]]
    assert lines == [["table4", "paper"], ["ablation-c", "ablation"]]


def test_a_plan_counts_what_is_trained_and_not_what_is_alike():
    """Finals of another search are no finals of this one."""
    experiment, finished = EXPERIMENTS["table2"], {}
    for cell in experiment.cells:
        for _ in range(2):
            for trials in cell_trials(experiment, cell, Setup(), finished).values():
                finished |= {trial.key: known_record(trial, 0.7) for trial in trials}
    assert [line.left for line in plan("table2", Setup(), finished=finished)] == [0, 0, 0]
    other = Setup(size=Size("1,14", 1, 14))
    assert [line.left for line in plan("table2", other, finished=finished)] == [270, 162, 0]
