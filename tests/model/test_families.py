"""Every family behind one face: candidates, fits, scores."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import expit

from model.model_tables import coded_table
from raresight.boosting import LightGBMClassifier, XGBoostClassifier, start_of
from raresight.boosting.defaults import CHILD_POSITIVES, L2_POSITIVES, limits_of
from raresight.linear import LinearClassifier
from raresight.losses import parse
from raresight.metrics import roc_auc
from raresight.model import families
from raresight.model.families import Candidate, Fitted, fit_candidates, installed_families

LOSSES = (
    "crossentropy",
    "tbl(alpha=0.8,C=0.5)",
    "focal(gamma=2.0)",
    "ldam(class_counts=(2850,150))",
    "vectorscaling(delta=0.5)",
)
SHALLOW = ("linear", "lightgbm", "xgboost")
# Of nets the plain one, which is fast; tests/deep/test_net_families.py has the others.
FAMILIES = (*SHALLOW, "deep")
BOOSTERS = ("lightgbm", "xgboost")
FEW = {
    "linear": (),
    "lightgbm": (("n_estimators", 30),),
    "xgboost": (("n_estimators", 30),),
    "deep": (("epochs", 5), ("learning_rate", 0.01), ("width", 32)),
}


def small(family: str, loss: str = "tbl", **parameters) -> Candidate:
    return Candidate(family, loss, tuple({**dict(FEW[family]), **parameters}.items()))


def fit(candidate: Candidate, table, **options) -> Fitted:
    (fitted,) = fit_candidates([candidate], *table, **options)
    return fitted


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("categories", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_learns_and_is_calibrated(family, loss, categories, missing, tmp_path):
    table = coded_table(3000, categories=categories, missing=missing)
    fitted = fit(small(family, loss), table)
    assert fitted.warnings == ()
    assert fitted.loss == parse(loss)
    assert fitted.start_score == pytest.approx(start_of(fitted.loss, (0.95, 0.05)).scores[0])
    log_odds = fitted.log_odds(table.X)
    assert log_odds.dtype == np.float64
    assert expit(log_odds).mean() == pytest.approx(table.y.mean(), rel=0.02)
    fresh = coded_table(3000, categories=categories, missing=missing, seed=1)
    assert roc_auc(fresh.y, fitted.log_odds(fresh.X)) > 0.8
    assert fitted.naive_probability(fresh.X) == pytest.approx(expit(fitted.scores(fresh.X).astype(float)))
    importance = fitted.importance()
    assert importance.shape == (table.X.shape[1],)
    assert importance.sum() == pytest.approx(1.0)
    assert importance[[0, 1]].min() > importance[2]
    description = fitted.save(tmp_path)
    loaded = Fitted.load(tmp_path, description)
    assert loaded.candidate == fitted.candidate
    assert loaded.loss == fitted.loss
    # The calibrator belongs to the model, which composes those of its members.
    assert np.array_equal(loaded.calibrated(fitted.calibrator).log_odds(fresh.X), fitted.log_odds(fresh.X))
    assert np.array_equal(loaded.importance(), importance)


def test_a_forest_learns_is_calibrated_and_is_read_again(tmp_path):
    table = coded_table(3000)
    candidate = Candidate("forest", "crossentropy", (("n_estimators", 60), ("num_leaves", 31)))
    fitted, weighted = (
        fit(candidate, table, seed=3, weights=weights) for weights in (None, np.where(table.y == 1, 1.0, 5.0))
    )
    assert fitted.warnings == ()
    fresh = coded_table(3000, seed=1)
    log_odds = fitted.log_odds(fresh.X)
    assert roc_auc(fresh.y, log_odds) > 0.8
    assert expit(fitted.log_odds(table.X)).mean() == pytest.approx(table.y.mean(), rel=0.02)
    # Scores are log-odds of the mean share of positives in the leaves, as plain LightGBM has it.
    share = fitted.part.classifier.booster_.predict(fresh.X)
    assert (share >= 0).all()
    assert (share <= 1).all()
    assert expit(fitted.scores(fresh.X)) == pytest.approx(share, abs=1e-9)
    # Weights make negatives so many times as frequent.
    shift = weighted.log_odds(fresh.X) - log_odds
    assert np.median(shift) == pytest.approx(-np.log(5), abs=0.5)
    pieces = [fitted.log_odds(fresh.X[begin : begin + 701]) for begin in range(0, 3000, 701)]
    assert np.array_equal(np.concatenate(pieces), log_odds)
    again = fit(candidate, table, seed=3).log_odds(fresh.X)
    assert np.array_equal(again, log_odds)
    assert not np.array_equal(fit(candidate, table, seed=4).log_odds(fresh.X), log_odds)
    importance = fitted.importance()
    assert importance.sum() == pytest.approx(1.0)
    assert importance.argmax() == 0
    loaded = Fitted.load(tmp_path, fitted.save(tmp_path))
    assert np.array_equal(loaded.calibrated(fitted.calibrator).log_odds(fresh.X), log_odds)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).log_odds(fresh.X), log_odds)
    with pytest.raises(ValueError, match="random forest takes no loss"):
        fit(Candidate("forest", "tbl"), table)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_of_a_row_do_not_depend_on_the_rows_around_it(family):
    table = coded_table(3000)
    fitted = fit(small(family), table)
    whole = fitted.log_odds(table.X)
    pieces = [fitted.log_odds(table.X[begin : begin + 701]) for begin in range(0, 3000, 701)]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert fitted.log_odds(table.X[17:18])[0] == whole[17]
    assert fitted.log_odds(table.X[:0]).shape == (0,)


@pytest.mark.parametrize("family", FAMILIES)
def test_categories_that_training_rows_lack_count_as_missing(family):
    X, y, categorical, n_categories = coded_table(3000)
    seen = X[:, 4] != 7
    fitted = fit(small(family), (X[seen], y[seen], categorical, n_categories))
    unseen, missing = X[:50].copy(), X[:50].copy()
    unseen[:, 4], missing[:, 4] = 7, np.nan
    assert np.isfinite(fitted.log_odds(unseen)).all()
    if family != "xgboost":
        # XGBoost sends missing values along the branch that gained most, an unknown code along the other.
        assert np.array_equal(fitted.log_odds(unseen), fitted.log_odds(missing))
    unseen[:, 4] = 39
    assert np.isfinite(fitted.log_odds(unseen)).all()


# tests/deep/test_weights.py has those of nets, whose batches are other ones where rows are repeated.
@pytest.mark.parametrize("family", SHALLOW)
def test_weights_count_as_repetitions(family):
    X, y, categorical, n_categories = coded_table(2000, categories=family == "linear")
    repeats = np.random.default_rng(0).integers(1, 4, len(y)) if family == "linear" else np.full(len(y), 3)
    # Without drawing rows: of repeated ones other copies would be drawn.
    candidate = small(family, "crossentropy", **({} if family == "linear" else {"row_fraction": 1.0}))
    weighted = fit(candidate, (X, y, categorical, n_categories), weights=repeats)
    times = np.repeat(np.arange(len(y)), repeats)
    repeated = fit(candidate, (X[times], y[times], categorical, n_categories))
    gap = np.abs(expit(weighted.log_odds(X)) - expit(repeated.log_odds(X)))
    once = fit(candidate, (X, y, categorical, n_categories))
    apart = np.abs(expit(once.log_odds(X)) - expit(repeated.log_odds(X)))
    # Medians and bins are those of the rows, repeated or not.
    assert gap.mean() < 0.4 * apart.mean()


@pytest.mark.parametrize("loss", ["crossentropy", "tbl(alpha=0.8,C=0.5)"])
@pytest.mark.parametrize("family", FAMILIES)
def test_drawn_negatives_weighted_up_keep_the_level(family, loss):
    X, y, categorical, n_categories = coded_table(20_000, prior=0.01, categories=False)
    kept = (y == 1) | (np.random.default_rng(0).random(len(y)) < 0.2)
    weights = np.where(y[kept] == 1, 1.0, 5.0)
    drawn = (X[kept], y[kept], categorical, n_categories)
    fitted = fit(small(family, loss), drawn, weights=weights)
    p = expit(fitted.log_odds(X[kept]))
    assert np.average(p, weights=weights) == pytest.approx(np.average(y[kept], weights=weights), rel=0.02)
    # On all rows the level is as good as a model of 200 positives has it, not five times too high.
    assert expit(fitted.log_odds(X)).mean() == pytest.approx(0.01, rel=0.4)
    assert expit(fit(small(family, loss), drawn).log_odds(X)).mean() > 0.03


def test_linear_candidates_together_are_those_alone():
    table = coded_table(3000)
    candidates = [
        Candidate("linear", "tbl", (("l2", 1e-3),)),
        Candidate("linear", "crossentropy"),
        Candidate("linear", "tbl"),
    ]
    together = fit_candidates(candidates, *table)
    assert [fitted.candidate for fitted in together] == candidates
    for fitted in together:
        assert fitted.log_odds(table.X) == pytest.approx(
            fit(fitted.candidate, table).log_odds(table.X), abs=1e-5
        )


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_linear_scores_are_those_of_the_classifier(kind):
    table = coded_table(3000, kind=kind)
    fitted = fit(Candidate("linear", "tbl"), table)
    features = fitted.part.features
    model = LinearClassifier("tbl").fit(features.apply(table.X), table.y)
    expected = model.predict_log_odds(features.apply(table.X.astype(np.float64)))
    assert fitted.log_odds(table.X) - fitted.calibrator.levels[0] == pytest.approx(expected, abs=1e-5)
    assert abs(fitted.calibrator.levels[0]) < 0.05


@pytest.mark.parametrize(
    ("family", "kind"), [("lightgbm", LightGBMClassifier), ("xgboost", XGBoostClassifier)]
)
def test_boosters_with_the_defaults_of_the_classifiers_are_these(family, kind):
    table = coded_table(3000, categories=False)
    share = "feature_fraction" if family == "lightgbm" else "colsample_bytree"
    usual = {"learning_rate": 0.1, "row_fraction": 1.0, share: 1.0}
    fitted = fit(small(family, **usual, leaf_weight=CHILD_POSITIVES, l2=L2_POSITIVES), table)
    options = {"force_col_wise": True, "deterministic": True} if family == "lightgbm" else {}
    model = kind("tbl", n_estimators=30, random_state=0, n_jobs=1, **options).fit(table.X, table.y)
    assert np.array_equal(fitted.log_odds(table.X), model.predict_log_odds(table.X))


@pytest.mark.parametrize("loss", LOSSES[:3])
@pytest.mark.parametrize("family", BOOSTERS)
def test_leaf_weight_restrains(family, loss):
    table = coded_table(3000)
    light, heavy = (fit(small(family, loss, leaf_weight=weight), table) for weight in (1.0, 8.0))
    costs = [
        model.loss.value(model.scores(table.X).astype(float), table.y).mean() for model in (light, heavy)
    ]
    assert costs[1] > 1.1 * costs[0]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("family", BOOSTERS)
def test_leaf_weight_and_l2_count_positive_rows_in_units_of_the_loss(family, loss):
    X, y, categorical, n_categories = coded_table(3000)
    weights = np.where(y == 1, 1.0, 3.0)
    fitted = fit(
        small(family, loss, leaf_weight=0.5, l2=3.0, n_estimators=2),
        (X, y, categorical, n_categories),
        weights=weights,
    )
    prior = np.average(y, weights=weights)
    limits = limits_of(parse(loss), start_of(parse(loss), (1 - prior, prior)))
    given = fitted.part.classifier.get_params()
    names = ("min_child_weight", "reg_lambda")
    if family == "lightgbm":
        names = ("min_sum_hessian_in_leaf", "lambda_l2")
    assert given[names[0]] == pytest.approx(0.5 * limits.min_child_weight / CHILD_POSITIVES, rel=1e-12)
    assert given[names[1]] == pytest.approx(3.0 * limits.l2 / L2_POSITIVES, rel=1e-12)


@pytest.mark.parametrize("family", BOOSTERS)
def test_a_fit_in_pieces_is_the_fit(family):
    """For every number of rounds: the trees of a longer training are those of a shorter one."""
    X, y, categorical, n_categories = coded_table(2000)
    weights = np.where(y == 1, 1.0, 3.0)
    rows = (X[:1500], y[:1500], categorical, n_categories)
    options = {"weights": weights[:1500], "seed": 3}
    candidate = small(family, "tbl(alpha=0.8,C=0.5)", row_fraction=0.7, n_estimators=1)
    growing = families.begin_candidate(candidate, *rows, watched=(X[1500:], y[1500:]), **options)
    done = 0
    for rounds in (1, 4, 12):
        growing.grow(rounds - done)
        done = rounds
        fitted = fit(candidate.having(n_estimators=rounds), rows, **options)
        expected = fitted.link(fitted.scores(X[1500:]))
        # XGBoost keeps scores as single floats, LightGBM adds the start to the first tree alone.
        assert growing.log_odds() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_seeds_and_threads_reproduce_exactly(family):
    table = coded_table(5000)
    share = {"lightgbm": {"feature_fraction": 0.5}, "xgboost": {"colsample_bytree": 0.5}}.get(family, {})
    candidate = small(family, **share)
    one, same = (fit(candidate, table, seed=3).log_odds(table.X) for _ in range(2))
    assert np.array_equal(one, same)
    if family == "deep":
        # Two threads cost nets of this size many times what they save, most of all on a busy machine.
        assert not np.array_equal(one, fit(candidate, table, seed=4).log_odds(table.X))
        return
    two, again = (fit(candidate, table, seed=3, threads=2).log_odds(table.X) for _ in range(2))
    assert np.array_equal(two, again)
    if share:
        assert not np.array_equal(one, fit(candidate, table, seed=4).log_odds(table.X))


@pytest.mark.parametrize("family", FAMILIES)
def test_survives_a_trip_to_another_process(family):
    table = coded_table(2000)
    fitted = fit(small(family), table)
    back = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(back.log_odds(table.X), fitted.log_odds(table.X))


def test_warnings_are_kept():
    X = np.linspace(-1, 1, 50)[:, None]
    y = (X[:, 0] > 0).astype(int)
    separated, fine = fit_candidates(
        [Candidate("linear", "crossentropy", (("l2", 0.0),)), Candidate("linear", "crossentropy")],
        X,
        y,
        [],
        [],
    )
    assert "a hyperplane separates" in separated.warnings[0]
    assert fine.warnings == ()
    X = np.linspace(-1, 1, 200)[:, None]
    few = np.zeros(200, dtype=int)
    few[:2] = 1
    for family in BOOSTERS:
        fitted = fit(small(family, leaf_weight=CHILD_POSITIVES), (X, few, [], []))
        assert "no round found a split" in fitted.warnings[0]
        assert expit(fitted.log_odds(X)) == pytest.approx(np.full(200, 0.01))
        assert not fitted.importance().any()


def test_a_loss_that_is_not_convex_says_so():
    text = "tbl(alpha=0.8,C=1.7)"
    table = coded_table(2000)
    for family in FAMILIES:
        fitted = fit(small(family, text), table)
        assert fitted.warnings == (f"{text} is not convex in the score: C=1.7 is above C_conv = 1.6465",)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_printed(family):
    script = (
        "import numpy as np\n"
        "from raresight.model.families import Candidate\n"
        "from raresight.model.families import fit_candidates\n"
        "rng = np.random.default_rng(0)\n"
        "X = rng.normal(size=(500, 4)).astype(np.float32)\n"
        "X[:, 1] = rng.integers(0, 30, 500); X[:, 2] = 1; X[:9, 1] = np.nan\n"
        "y = np.zeros(500, dtype=int); y[:5] = 1\n"
        f"fit_candidates([Candidate({family!r}, 'tbl')], X, y, [1], [30])[0].log_odds(X)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (run.stdout, run.stderr) == ("", "")


def test_refused():
    X, y, categorical, n_categories = coded_table(300)
    table = (X, y, categorical, n_categories)
    assert fit_candidates([], *table) == []
    with pytest.raises(ValueError, match="one family are fitted together, got lightgbm and linear"):
        fit_candidates([small("linear"), small("lightgbm")], *table)
    for family in FAMILIES:
        with pytest.raises(ValueError, match="one class only, 0"):
            fit(small(family), (X, np.zeros(300), categorical, n_categories))
        with pytest.raises(ValueError, match=r"class counts are\s*\(285,15\)"):
            fit(small(family, "ldam"), table)
        with pytest.raises(ValueError, match="has 5 columns"):
            fit(small(family), table).scores(X[:, :2])
    with pytest.raises(ValueError, match="0 and 1 only"):
        fit(small("linear"), (X, y * 2, categorical, n_categories))
    with pytest.raises(ValueError, match="300 labels"):
        fit(small("linear"), (X, y[1:], categorical, n_categories))
    with pytest.raises(ValueError, match="weights must be finite and not negative"):
        fit(small("linear"), table, weights=np.full(300, np.nan))


# ---- candidates --------------------------------------------------------------------------


def test_parameters_are_kept_sorted_as_numbers():
    one = Candidate("xgboost", "tbl", (("max_depth", 4.0), ("learning_rate", 1)))
    two = Candidate("xgboost", "tbl", (("learning_rate", np.float64(1.0)), ("max_depth", np.int64(4))))
    assert one == two
    assert hash(one) == hash(two)
    assert one.parameters == (("learning_rate", 1.0), ("max_depth", 4))
    assert [type(value) for _, value in one.parameters] == [float, int]
    assert one.text == "xgboost, tbl, learning_rate=1.0, max_depth=4"
    assert one.describe() == "XGBoost, tbl, learning rate 1, max depth 4"


@pytest.mark.parametrize("family", families.FAMILIES)
def test_json_round_trip_and_defaults(family):
    plain = Candidate(family, "crossentropy")
    assert plain.settings() == families.FAMILIES[family].defaults
    full = Candidate(
        family,
        "tbl(alpha=0.1,C=0.3)",
        tuple(
            (name, 0.1 + 2 / 3 if value != int(value) else 7)
            for name, value in families.FAMILIES[family].defaults.items()
        ),
    )
    for candidate in (plain, full):
        assert Candidate.from_dict(json.loads(json.dumps(candidate.to_dict()))) == candidate


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("copse", "tbl"), "unknown family 'copse'; known are linear, lightgbm, xgboost"),
        (("linear", "tbl", (("num_leaves", 3),)), "linear has no parameter 'num_leaves' here; it has l2"),
        (("linear", "tbl", (("l2", float("nan")),)), "l2 must be at least 0 and finite"),
        (("linear", "tbl", (("l2", -1.0),)), "l2 must be at least 0 and finite"),
        (("lightgbm", "tbl", (("num_leaves", 3.5),)), "num_leaves must be a whole number"),
        (("lightgbm", "tbl", (("num_leaves", 3), ("num_leaves", 4))), "num_leaves is given twice"),
    ],
)
def test_candidates_that_make_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        Candidate(*arguments)


def test_types_of_candidates():
    with pytest.raises(TypeError, match="loss is a text"):
        Candidate("linear", 3)
    with pytest.raises(TypeError, match="l2 must be a number, but is True"):
        Candidate("linear", "tbl", (("l2", True),))
    with pytest.raises(ValueError, match="described by family, loss and parameters"):
        Candidate.from_dict({"family": "linear"})


def test_families_without_their_library_are_left_out():
    assert installed_families() == tuple(families.FAMILIES)
    script = (
        "import sys; sys.modules['lightgbm'] = None\n"
        "from raresight.model.families import installed_families\nprint(installed_families())"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "('linear', 'xgboost', 'deep', 'tabm', 'tabnet')"
