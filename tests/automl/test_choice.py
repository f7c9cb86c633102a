"""What becomes the model: the simplest single candidate that is not worse, or a blend that ranks better."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit
from table_search import AIM

import raresight
from raresight.automl import choice
from raresight.automl.choice import blend, calibration_by, choose, complexity, simplest
from raresight.automl.evaluation import baseline_of, fit_all, model_of
from raresight.automl.fold_evaluation import Aim
from raresight.automl.oof_predictions import write_scores
from raresight.automl.records import Limits, SearchResult, SearchTask, Trial, TrialResult, best_of
from raresight.automl.search import search
from raresight.automl.space import make_space
from raresight.common.calibration import held_out_calibrator, two_columns
from raresight.engines import LocalEngine
from raresight.metrics import partial_auc
from raresight.model.families import Candidate
from raresight.tables.splits import Split, read_data

ROWS, POSITIVES = 8000, 240
LABELS = np.repeat(np.array([0, 1], dtype=np.int8), [ROWS - POSITIVES, POSITIVES])
PLAIN = Candidate("lightgbm", "crossentropy", (("n_estimators", 100),))


def task_of(**changes):
    rows = np.arange(ROWS)
    values = {
        "X": np.zeros((ROWS, 1), dtype=np.float32),
        "y": LABELS,
        "categorical": (),
        "n_categories": (),
        "folds": [Split(rows[::2], rows[1::2]), Split(rows[1::2], rows[::2])],
        "weights": None,
        "aim": AIM,
    }
    return SearchTask(**{**values, **changes})


def normal(seed):
    return np.random.default_rng(seed).normal(size=ROWS)


def found_of(folder, columns, candidates=None, origins=None):
    """A search that ended with these out-of-fold log-odds."""
    (folder / "scores").mkdir()
    trials = []
    for number, scores in enumerate(columns):
        scores = np.asarray(scores, dtype=np.float32)
        candidate = PLAIN.having(num_leaves=4 + number) if candidates is None else candidates[number]
        known = ~np.isnan(scores)
        area = partial_auc(LABELS[known], scores[known], AIM.max_fpr, kind="mcclish")
        digest = write_scores(folder, number, scores)
        result = TrialResult(area, 0.5, 1.0, 100, 0.5, scores_sha256=digest)
        origin = "random" if origins is None else origins[number]
        trials.append(Trial(number, candidate, origin, result))
    return SearchResult(tuple(trials), best_of(trials), "trials", 1.0, folder)


def independent(number, gain=1.5):
    """Log-odds that each see a part of what tells the classes apart."""
    return [gain * LABELS + normal(seed) - 5 for seed in range(number)]


# ---- the blend ---------------------------------------------------------------------------


def test_a_blend_of_what_differs_ranks_better_and_is_chosen(tmp_path):
    task, columns = task_of(), independent(2)
    found = found_of(tmp_path, columns)
    chosen = choose(found, task)
    assert {trial.number for trial in chosen.members} == {0, 1}
    assert sum(chosen.weights) == pytest.approx(1, abs=1e-12)
    assert chosen.weights == pytest.approx((0.5, 0.5), abs=0.15)
    alone = choose(found, task, single_only=True)
    assert alone.members == (alone.single,) == (found.best,)
    assert alone.weights == (1.0,)
    assert chosen.single == alone.single
    assert chosen.partial_auc > alone.partial_auc == pytest.approx(found.best.partial_auc, abs=1e-6)
    assert chosen.partial_auc == partial_auc(LABELS, chosen.log_odds, AIM.max_fpr, kind="mcclish")


def test_its_log_odds_are_the_calibrated_mean_of_calibrated_ones(tmp_path):
    # Scales that differ: without a calibration of each, one of them would outweigh the other.
    task, columns = task_of(), independent(2)
    columns[1] = 20 * columns[1] + 3
    chosen = choose(found_of(tmp_path, columns), task)
    assert len(chosen.members) == 2
    assert chosen.weights == pytest.approx((0.5, 0.5), abs=0.15)
    mean = sum(
        weight * (own.slope * columns[trial.number].astype(np.float32).astype(float) + own.levels[0])
        for trial, weight, own in zip(chosen.members, chosen.weights, chosen.calibrators)
    )
    np.testing.assert_allclose(
        chosen.log_odds, chosen.calibrator.slope * mean + chosen.calibrator.levels[0], rtol=1e-12
    )
    assert expit(chosen.log_odds).mean() == pytest.approx(LABELS.mean(), rel=1e-6)
    assert held_out_calibrator(two_columns(chosen.log_odds), LABELS).slope == pytest.approx(1, abs=0.02)
    # A mean of log-odds is too timid: the second calibration makes up for it.
    assert chosen.calibrator.slope > 1.1


def test_there_are_five_members_at_most(tmp_path):
    members, weights = blend(found_of(tmp_path, independent(9, 0.8)), task_of())
    assert 2 <= len(members) <= choice.MOST_MEMBERS == 5
    assert len({trial.number for trial in members}) == len(members)
    assert sum(weights) == pytest.approx(1, abs=1e-12)
    assert weights == sorted(weights, reverse=True)
    assert min(weights) > choice.LEAST_WEIGHT


@pytest.mark.parametrize("useful", [1, 2, 3])
@pytest.mark.parametrize("useless", ["noise", "constant", "wrong way"])
def test_a_useless_candidate_gets_no_weight(tmp_path, useless, useful):
    """Nor where eight additions to three good ones could only unbalance them."""
    scores = {"noise": normal(50), "constant": np.full(ROWS, -3.0), "wrong way": normal(51) - 3 * LABELS}
    members, weights = blend(found_of(tmp_path, [*independent(useful), scores[useless]]), task_of())
    weight = dict(zip((trial.number for trial in members), weights)).get(useful, 0.0)
    # By chance some noise swaps a few rows of some draw the right way.
    assert weight < (0.1 if useless == "noise" else 1e-9)
    assert {trial.number for trial in members} >= set(range(useful))


def test_the_seed_fixes_the_blend(tmp_path):
    shared = normal(90)
    found = found_of(tmp_path, [one + shared for one in independent(4)])
    ours, again = blend(found, task_of()), blend(found, task_of())
    assert ours == again
    others = [blend(found, task_of(aim=replace(AIM, seed=seed)))[1] for seed in (1, 2)]
    assert any(weights != ours[1] for weights in others)


def test_a_blend_that_is_no_better_is_not_chosen(tmp_path, monkeypatch):
    signal = 2 * LABELS + normal(0)
    task, found = task_of(), found_of(tmp_path, [signal, 0.5 * signal + normal(60)])
    monkeypatch.setattr(choice, "blend", lambda found, task: (list(found.trials), [0.1, 0.9]))
    assert choose(found, task).members == (found.trials[0],)
    # Nor one whose members are the same.
    (tmp_path / "same").mkdir()
    found = found_of(tmp_path / "same", [normal(0) + LABELS] * 2)
    monkeypatch.setattr(choice, "blend", lambda found, task: (list(found.trials), [0.5, 0.5]))
    assert choose(found, task).members == (found.trials[0],)


def test_the_best_of_each_family_may_be_a_member(tmp_path):
    """Alone it is behind all of the twelve best, but it sees what they do not."""
    shared = 1.7 * LABELS + normal(0) - 5
    columns = [shared + 0.01 * normal(70 + number) for number in range(choice.POOL)]
    columns.append(1.2 * LABELS + normal(1) - 5)
    candidates = [PLAIN.having(num_leaves=4 + number) for number in range(choice.POOL)]
    task = task_of()
    linear = found_of(tmp_path, columns, [*candidates, Candidate("linear", "crossentropy")])
    assert choice.POOL in {trial.number for trial in blend(linear, task)[0]}
    (tmp_path / "same").mkdir()
    boosted = found_of(tmp_path / "same", columns, [*candidates, PLAIN])
    assert choice.POOL not in {trial.number for trial in blend(boosted, task)[0]}


def test_failed_candidates_and_rows_of_no_fold_take_no_part(tmp_path):
    columns = independent(3)
    unseen = np.arange(ROWS) % 10 == 0
    for scores in columns:
        scores[unseen] = np.nan
    found = found_of(tmp_path, columns)
    failed = replace(found.trials[2], result=replace(found.trials[2].result, message="it broke"))
    found = replace(found, trials=(*found.trials[:2], failed), best=best_of(found.trials[:2]))
    chosen = choose(found, task_of())
    assert {trial.number for trial in chosen.members} == {0, 1}
    np.testing.assert_array_equal(np.isnan(chosen.log_odds), unseen)
    own = calibration_by(columns[0], task_of())
    assert own == held_out_calibrator(two_columns(columns[0][~unseen]), LABELS[~unseen].astype(int))


# ---- the simplest single candidate -------------------------------------------------------


def test_a_simpler_candidate_that_is_as_good_is_preferred(tmp_path):
    strong = 2 * LABELS + normal(0) - 5
    columns = [strong + 0.3 * normal(1), strong + 0.3 * normal(2), strong + 0.3 * normal(3), 0.3 * strong]
    # The last one ranks as the clean signal, so it is the best.
    columns[3] = strong + 0.29 * normal(4)
    fewer, more = (PLAIN.having(n_estimators=number) for number in (50, 400))
    tbl = Candidate("lightgbm", "tbl(alpha=0.8,C=0.5)", PLAIN.parameters)
    task = task_of()
    orders = {
        # Loss first, then defaults, then rounds.
        (tbl, PLAIN, more, fewer): (("default", "default", "random", "random"), 1),
        (tbl, more, fewer, PLAIN): (("default", "random", "random", "random"), 2),
        (tbl, more, more, more): (("default", "random", "spread", "random"), 1),
    }
    for place, (candidates, (origins, simple)) in enumerate(orders.items()):
        folder = tmp_path / str(place)
        folder.mkdir()
        found = found_of(folder, columns, candidates, origins)
        assert min(found.trials, key=complexity).number == simple
        for number in range(4):  # whichever of them is the best by chance
            assert simplest(replace(found, best=found.trials[number]), task).number == simple


def test_one_that_is_worse_beyond_chance_is_not(tmp_path):
    strong = 2.5 * LABELS + normal(0) - 5
    columns = [strong + 1.5 * normal(1), strong]
    candidates = (PLAIN, PLAIN.having(n_estimators=400, num_leaves=7))
    found = found_of(tmp_path, columns, candidates, ("default", "random"))
    assert complexity(found.trials[0]) < complexity(found.trials[1])
    assert simplest(found, task_of()) == found.best == found.trials[1]
    assert choose(found, task_of(), single_only=True).members == (found.trials[1],)


def test_another_family_is_not_simpler(tmp_path):
    strong = 2 * LABELS + normal(0) - 5
    columns = [strong + 0.3 * normal(1), strong + 0.2 * normal(2)]
    candidates = (Candidate("linear", "crossentropy"), PLAIN.having(num_leaves=7))
    found = found_of(tmp_path, columns, candidates, ("default", "random"))
    found = replace(found, best=found.trials[1])
    assert simplest(found, task_of()) == found.trials[1]


# ---- the model ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A table that neither a line nor a few trees have whole, and a search of it."""
    random = np.random.default_rng(5)
    X = random.normal(size=(2400, 4))
    y = random.random(2400) < expit(1.2 * X[:, 0] + 1.5 * (X[:, 1] * X[:, 2] > 0.5) - 4)
    table = pa.table({**dict(zip("abcd", X.T)), "y": y})
    rows = read_data(table, None, target="y", fpr=0.05, max_fpr=0.1)
    task = SearchTask.of(rows, Aim(max_fpr=0.1, fpr=0.05, seed=0))
    folder = tmp_path_factory.mktemp("searched")
    found = search(task, make_space("linear,lightgbm", "tbl(alpha=0.7,C=0.5)"), Limits(4), folder=folder)
    return table, rows, task, found


def test_the_saved_model_of_a_blend_is_the_sum_of_its_members(searched, tmp_path):
    table, rows, task, found = searched
    boosted, linear = found.trials[0], found.trials[1]
    assert (boosted.candidate.family, linear.candidate.family) == ("lightgbm", "linear")
    made = choice._made(found, task, [linear, boosted], [0.3, 0.7], boosted)
    fitted = fit_all([linear, boosted], rows, 0, LocalEngine(1))
    parts = [fitted[trial.number] for trial in made.members]
    model = model_of(rows.schema, made, fitted)
    mean = sum(
        weight * own.log_odds(part.link(part.scores(rows.test.X)))
        for weight, own, part in zip(made.weights, made.calibrators, parts)
    )
    expected = made.calibrator.log_odds(mean)
    np.testing.assert_allclose(model.log_odds_of_matrix(rows.test.X), expected, rtol=1e-9)
    model.save(tmp_path / "model")
    loaded = raresight.load(tmp_path / "model")
    assert len(loaded.members) == 2
    assert sum(member.weight for member in loaded.members) == pytest.approx(1)
    np.testing.assert_array_equal(loaded.log_odds(table), model.log_odds(table))
    # The boosted member was fitted with the rounds that the folds chose.
    assert parts[1].part.classifier.n_estimators == boosted.result.rounds
    # New rows are scored on the level of the out-of-fold rows.
    assert loaded.probability(table).mean() == pytest.approx(rows.y.mean(), rel=0.3)


def test_the_baseline_is_the_first_booster_with_defaults(searched):
    *_, found = searched
    base = baseline_of(found)
    assert base.number == 0
    assert dict(base.candidate.parameters) == {"n_estimators": base.result.rounds}
