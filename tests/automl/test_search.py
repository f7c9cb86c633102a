"""Searches in this process: outcome, failures, limits, and folders that hold something else."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from table_search import AIM, TRIALS, facts, small_space, small_task

from raresight.automl.evaluation import baseline_of, leaderboard
from raresight.automl.records import Limits
from raresight.automl.search import REFITS, search
from raresight.automl.space import candidates, make_space
from raresight.common.json_values import digest_of
from raresight.engines import LocalEngine
from raresight.metrics import partial_auc, recall_at_fpr
from raresight.tables.splits import Split


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_the_values_are_those_of_the_scores(whole, tmp_path):
    task = small_task()
    found = search(task, small_space(), Limits(TRIALS), folder=whole[1])
    assert len(found.trials) == TRIALS
    for trial in found.trials:
        if trial.state != "complete":
            with pytest.raises(ValueError, match="is not complete"):
                found.out_of_fold(trial.number)
            continue
        scores = found.out_of_fold(trial.number)
        assert scores.dtype == np.float32
        assert np.isfinite(scores).all()
        # Of all folds together.
        assert trial.partial_auc == partial_auc(task.y, scores, task.aim.max_fpr, kind="mcclish")
        assert trial.recall == recall_at_fpr(task.y, scores, task.aim.fpr)
        assert trial.seconds > 0
        assert trial.result.refit_seconds > 0
        assert trial.result.rounds == dict(trial.candidate.parameters).get("n_estimators", 0)
        assert (trial.result.rounds > 0) == (trial.candidate.family == "lightgbm")
    complete = [trial for trial in found.trials if trial.state == "complete"]
    assert found.best == min(complete, key=lambda t: (-t.partial_auc, -t.recall, t.number))
    assert found.stopped_by == "trials"
    assert names(whole[1]) == {"trials.jsonl", "lock", "scores", "search.json"}
    scored = {f"{trial.number}.npy" for trial in complete}
    assert scored <= names(whole[1] / "scores")
    assert not [name for name in names(whole[1] / "scores") if "-" in name or "tmp" in name]


def test_a_finished_search_is_not_repeated(whole):
    journal = whole[1] / "trials.jsonl"
    before = len(journal.read_bytes().splitlines())
    found = search(small_task(), small_space(), Limits(TRIALS), folder=whole[1])
    assert facts(found) == whole[0]
    assert len(journal.read_bytes().splitlines()) <= before + 1  # the seconds spent


def test_the_seed_decides(whole, tmp_path):
    found = search(small_task(aim=replace(AIM, seed=1)), small_space(), Limits(TRIALS), folder=tmp_path)
    other, same = facts(found)["trials"], whole[0]["trials"]
    random = [trial["number"] for trial in same if trial["origin"] == "random"]
    assert [trial["origin"] for trial in other] == [trial["origin"] for trial in same]
    assert random
    for ours, theirs in zip(other, same):
        # Planned ones are the same settings, whose rows and columns are drawn by the seed.
        settings = [trial["candidate"]["parameters"] | {"n_estimators": 0} for trial in (ours, theirs)]
        assert (settings[0] == settings[1]) == (ours["number"] not in random)
        if ours["number"] in random:
            continue
        is_boosted = ours["candidate"]["family"] == "lightgbm" and ours["state"] == "complete"
        draws_none = {"row_fraction": 1.0, "feature_fraction": 1.0}.items() <= settings[0].items()
        assert (ours["scores"] != theirs["scores"]) == (is_boosted and not draws_none)


def test_failed_candidates_say_why(whole):
    failed = [trial for trial in whole[0]["trials"] if trial["state"] == "failed"]
    assert {trial["candidate"]["family"] for trial in failed} == {"linear", "lightgbm"}
    for trial in failed:
        assert trial["candidate"]["loss"] == "poly(epsilon=1e308)"
        assert trial["message"]
        assert trial["partial_auc"] is None
        assert "\n" not in trial["message"]
    # The linear ones that were to be fitted with it were fitted.
    good = [trial for trial in whole[0]["trials"] if trial["candidate"]["loss"] != "poly(epsilon=1e308)"]
    assert all(trial["state"] != "failed" for trial in good)


def test_all_failing_is_an_error(tmp_path):
    task = small_task()
    bad = np.flatnonzero(task.y == 0)[:500]
    folds = [Split(np.setdiff1d(np.arange(len(task.y)), bad), bad)]
    with pytest.raises(
        RuntimeError, match=r"no candidate could be evaluated; the first failed so: .*positive"
    ):
        search(small_task(folds=folds), make_space("linear", "focal"), Limits(50), folder=tmp_path)


def test_weights_count(tmp_path):
    task = small_task()
    weights = np.where(task.y == 1, 1.0, np.random.default_rng(0).integers(1, 4, len(task.y)))
    task = small_task(weights=weights)
    found = search(task, make_space("linear,lightgbm", "focal"), Limits(2), folder=tmp_path / "weighted")
    plain = search(small_task(), make_space("linear,lightgbm", "focal"), Limits(2), folder=tmp_path / "plain")
    for trial, other in zip(found.trials, plain.trials):
        scores = found.out_of_fold(trial.number)
        area = partial_auc(task.y, scores, task.aim.max_fpr, kind="mcclish", sample_weight=weights)
        assert trial.partial_auc == area
        assert trial.recall == recall_at_fpr(task.y, scores, task.aim.fpr, sample_weight=weights)
        assert not np.allclose(scores, plain.out_of_fold(other.number), atol=0.01)
    row = leaderboard(found, task, 0)[0]
    assert row.number == 0 or row.comparison.method == "bootstrap"


def test_one_weight_per_class_is_as_fast_as_none_and_moves_the_level(tmp_path):
    weights = np.where(small_task().y == 1, 1.0, 5.0)
    task, space = small_task(weights=weights), make_space("linear", "focal")
    found = search(task, space, Limits(2), folder=tmp_path / "weighted")
    scores = found.out_of_fold(0)
    # A weight for each class leaves both rates as they are.
    assert found.trials[0].partial_auc == partial_auc(task.y, scores, task.aim.max_fpr, kind="mcclish")
    plain = search(small_task(), space, Limits(2), folder=tmp_path / "plain").out_of_fold(0)
    assert np.median(plain - scores) == pytest.approx(np.log(5), abs=0.5)
    row = leaderboard(found, task, 0)[-1]
    assert row.number == 0 or row.comparison.method != "bootstrap"


def test_more_trials_later_are_the_same_trials(whole, tmp_path):
    for trials in (1, 4, 9, TRIALS):
        found = search(small_task(), small_space(), Limits(trials), folder=tmp_path)
        assert len(found.trials) == trials
    assert facts(found) == whole[0]


def test_two_jobs_find_the_same(whole, tmp_path):
    with LocalEngine(2, tmp_path) as engine:
        found = search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path, engine=engine)
    assert facts(found) == whole[0]
    assert names(tmp_path) == {"trials.jsonl", "lock", "scores", "search.json"}


def test_without_time_only_cross_entropy_is_tried_and_more_time_goes_on(whole, tmp_path):
    space, task = small_space(), small_task()
    for _ in range(2):  # the time spent counts when it is called again
        found = search(task, space, Limits(seconds=0.001), folder=tmp_path)
        assert found.stopped_by == "budget"
        (only,) = found.trials
        assert (only.candidate.family, only.candidate.loss) == ("lightgbm", "crossentropy")
        # It grew no further than to the first look.
        assert only.result.rounds == 15
    spent = found.seconds
    shutil.rmtree(tmp_path)
    found = search(task, space, Limits(1), folder=tmp_path)
    found = search(task, space, Limits(TRIALS, seconds=found.seconds + spent + 0.5), folder=tmp_path)
    assert found.seconds > spent
    found = search(task, space, Limits(TRIALS, seconds=1000.0), folder=tmp_path)
    assert facts(found) == whole[0]


def test_a_budget_is_kept(tmp_path):
    task = small_task(of_all_rows=3.0)
    found = search(task, small_space(), Limits(seconds=2.5), folder=tmp_path)
    assert found.stopped_by == "budget"
    assert len(found.trials) >= 2
    assert found.seconds < 10  # one step more, on a busy machine
    # Time is left for the fits to all rows: of as many models as a blend has, of three times the rows.
    best = sorted((trial for trial in found.trials if trial.partial_auc), key=lambda one: -one.partial_auc)
    refits = 3.0 * sum(trial.result.refit_seconds for trial in best[:REFITS])
    before = max(trial.seconds for trial in found.trials)
    assert found.seconds < 2.5 - refits + 3 * before


def test_the_fits_that_follow_may_take_all_the_time(tmp_path):
    # A million times the rows would take hours, so the search ends after its first candidate.
    found = search(
        small_task(of_all_rows=1e6), small_space(), Limits(seconds=20.0), folder=tmp_path / "large"
    )
    assert len(found.trials) == 1
    assert found.stopped_by == "budget"
    assert found.seconds < 10


def test_what_the_listener_hears(tmp_path):
    heard, task = [], small_task()
    found = search(task, small_space(), Limits(7), folder=tmp_path, listener=heard.append)
    assert [progress.done for progress in heard] == sorted(progress.done for progress in heard)
    assert heard[0].done == 0
    assert heard[0].running
    assert heard[0].best is None
    assert heard[-1].trials == found.trials
    assert heard[-1].best == found.best
    assert heard[-1].running == ()
    assert heard[-1].seconds_left == 0
    assert {progress.total for progress in heard} == {7}
    # When a candidate begins and when it ends, of which the linear ones do so together.
    groups = list(islice(candidates(small_space(), task.class_counts, 0), 7))
    assert [len(group) for group in groups] == [1] * 7
    assert len(heard) == 2 * len(found.trials)
    starts = [progress.running for progress in heard[::2]]
    assert starts == [tuple(trial.candidate for trial in group) for group in groups]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"aim": replace(AIM, seed=5)}, "the seed (there 0, now 5)"),
        ({"aim": replace(AIM, fpr=0.01)}, "fpr (there 0.05, now 0.01)"),
        ({"aim": replace(AIM, max_fpr=0.2)}, "max_fpr (there 0.1, now 0.2)"),
        ({"y": "one label"}, "the rows, labels or weights"),
        ({"X": "one value"}, "the rows, labels or weights"),
        ({"weights": np.ones(1200)}, "the rows, labels or weights"),
        ({"folds": "fewer"}, "the folds"),
        ({"n_categories": (4,)}, "which columns hold categories"),
    ],
)
def test_another_search_in_the_folder_is_refused(whole, changes, said):
    task = small_task()
    if "y" in changes:
        changes = {"y": np.where(np.arange(1200) == 7, 1 - task.y, task.y)}
    if "X" in changes:
        changed = task.X.copy()
        changed[5, 2] += 1e-3
        changes = {"X": changed}
    if "folds" in changes:
        changes = {"folds": task.folds[:2]}
    with pytest.raises(ValueError, match="holds another search; different: ") as error:
        search(small_task(**changes), small_space(), Limits(TRIALS), folder=whole[1])
    assert said in str(error.value)


def test_another_space_or_library_is_refused(whole, tmp_path):
    with pytest.raises(ValueError, match="different: the losses"):
        search(small_task(), make_space("linear,lightgbm", "focal"), Limits(TRIALS), folder=whole[1])
    shutil.copytree(whole[1], tmp_path / "old")
    path = tmp_path / "old" / "search.json"
    written = json.loads(path.read_text())
    written["versions"]["lightgbm"] = "1.0"
    path.write_text(json.dumps(written | {"description_sha256": digest_of(written)}))
    with pytest.raises(ValueError, match=r"versions of the libraries .*1\.0"):
        search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path / "old")
    path.write_text("{")
    with pytest.raises(ValueError, match="is damaged"):
        search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path / "old")
    path.unlink()
    with pytest.raises(ValueError, match=r"without its search\.json"):
        search(small_task(), small_space(), Limits(TRIALS), folder=tmp_path / "old")


def test_limits_are_needed():
    with pytest.raises(ValueError, match="needs a limit"):
        Limits()
    with pytest.raises(ValueError, match="trials must be at least 1"):
        Limits(0)
    with pytest.raises(ValueError, match="seconds must be above 0"):
        Limits(seconds=0.0)


def test_the_leaderboard(whole):
    task = small_task()
    found = search(task, small_space(), Limits(TRIALS), folder=whole[1])
    base = baseline_of(found)
    assert (base.number, base.candidate.family, base.candidate.loss) == (0, "lightgbm", "crossentropy")
    rows = leaderboard(found, task, base.number)
    assert len(rows) == TRIALS
    assert {row.number for row in rows} == set(range(TRIALS))
    states = [row.state for row in rows]
    assert states == sorted(states, key=["complete", "failed"].index)
    areas = [row.partial_auc for row in rows if row.state == "complete"]
    assert areas == sorted(areas, reverse=True)
    assert replace(rows[0], comparison=None) == found.best
    assert base.comparison is None
    for row in rows:
        assert (row.comparison is not None) == (row.state == "complete" and row.number != base.number)
    best = rows[0].comparison
    assert best.a == pytest.approx(found.best.partial_auc)
    assert best.b == pytest.approx(base.partial_auc)
    assert best.low < best.difference < best.high
    # Where the first one failed, the next one takes its place.
    failed = replace(base, result=replace(base.result, message="it broke"))
    assert baseline_of(replace(found, trials=(failed, *found.trials[1:]))).number == 1


def test_counts_of_values_are_tried_first(tmp_path):
    task = small_task()
    random = np.random.default_rng(0)
    for helps in (True, False):
        told = 2.0 * task.y if helps else np.zeros(len(task.y))
        X = np.column_stack([task.X, random.normal(size=len(task.y)) + told]).astype(np.float32)
        folder = tmp_path / str(helps)
        with LocalEngine(2, folder) as engine:
            found = search(
                small_task(X=X, n_counts=1), small_space(), Limits(6), folder=folder, engine=engine
            )
        assert [trial.number for trial in found.trials] == list(range(6))
        first, second, *others = found.trials
        assert first.candidate.having(n_estimators=1) == second.candidate.having(n_estimators=1)
        assert (first.with_counts, second.with_counts) == (False, True)
        assert {trial.with_counts for trial in others} == {helps}
        for trial in found.trials:  # each has its own scores
            if trial.state == "complete":
                assert trial.partial_auc == pytest.approx(
                    partial_auc(task.y, found.out_of_fold(trial.number), task.aim.max_fpr, kind="mcclish")
                )
        again = search(small_task(X=X, n_counts=1), small_space(), Limits(6), folder=folder)
        assert facts(again) == facts(found)
