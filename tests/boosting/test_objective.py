"""Objectives in the libraries' own training: values, weights, both call forms, the built-in trees."""

from __future__ import annotations

import copy
import pickle

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from boosting.boosting_tables import rare_table
from loss_cases import SOME_CLASS_LOSSES, SOME_LOSSES, has_link, non_convex_tbl
from raresight.boosting import objective, start_of
from raresight.boosting.gradients import BLOCK, FLOOR, Gradients
from raresight.losses import TBL, CrossEntropy, Focal, Squared, parse

ROWS = 300
RNG = np.random.default_rng(0)
LABELS = (RNG.random(ROWS) < 0.2).astype(np.float32)
SCORES = RNG.normal(-1.0, 2.0, ROWS).astype(np.float32)
CLASSES = RNG.integers(0, 4, ROWS)
LOGITS = RNG.normal(0.0, 1.5, (ROWS, 4)).astype(np.float32)
LIBRARIES = ["xgboost", "lightgbm"]
LGB = {"verbose": -1, "num_threads": 1, "metric": "None", "min_data_in_leaf": 5, "lambda_l2": 1.0}


def start_curvature(loss, labels):
    share = labels.mean(dtype=np.float64)
    return start_of(loss, (1 - share, share)).curvature


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("loss", SOME_LOSSES, ids=str)
def test_derivatives_are_the_loss_own(loss, library):
    gradient, hessian = objective(loss, library)(LABELS, SCORES)
    assert gradient.dtype == hessian.dtype == np.float32
    exact = SCORES.astype(np.float64)
    np.testing.assert_allclose(gradient, loss.gradient(exact, LABELS), rtol=2e-4, atol=2e-6)
    second = loss.hessian(exact, LABELS)
    floor = FLOOR * start_curvature(loss, LABELS) if has_link(loss) else hessian.min()
    assert hessian.min() >= np.float32(floor)
    np.testing.assert_allclose(hessian, np.maximum(second, floor), rtol=5e-4, atol=2e-6)


@pytest.mark.parametrize(("library", "factor"), [("xgboost", 2.0), ("lightgbm", 4 / 3)])
@pytest.mark.parametrize("loss", SOME_CLASS_LOSSES, ids=str)
def test_derivatives_of_class_logits(loss, library, factor):
    gradient, hessian = objective(loss, library)(CLASSES, LOGITS)
    assert gradient.shape == hessian.shape == LOGITS.shape
    exact = LOGITS.astype(np.float64)
    np.testing.assert_allclose(gradient, loss.gradient(exact, CLASSES), rtol=5e-4, atol=5e-6)
    assert hessian.min() > 0
    second = factor * loss.hessian_diagonal(exact, CLASSES)
    np.testing.assert_allclose(hessian, np.maximum(second, hessian.min()), rtol=5e-4, atol=5e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("text", ["crossentropy", "tbl", "focal", "squared"])
def test_parts_with_the_shares_of_all_rows_are_parts_of_the_whole(text, weighted):
    """Workers on parts of the rows agree on the floor, even the one without a positive."""
    loss = parse(text)
    labels = np.sort(LABELS)  # all positives in the second half
    weights = RNG.random(ROWS).astype(np.float32) + 0.5 if weighted else None
    whole = Gradients(loss, labels, weights, n_classes=1)
    scores = 4 * SCORES  # far enough for rows at the floor
    expected = whole(scores)
    totals = np.bincount(labels.astype(int), weights)
    half = [slice(0, ROWS // 2), slice(ROWS // 2, ROWS)]
    assert not labels[half[0]].any()
    for rows in half:
        own = None if weights is None else weights[rows]
        part = Gradients(loss, labels[rows], own, n_classes=1, shares=totals / totals.sum())
        assert part.floor == whole.floor
        for ours, theirs in zip(part(scores[rows]), expected):
            np.testing.assert_array_equal(ours, theirs[rows])
    assert (expected[1] == whole.floor).any() or weighted


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_objectives_of_parts_have_the_floor_of_all_rows(library):
    """Scores so far out that only the floor is left of the Hessian."""
    shares, z = (0.999, 0.001), np.full(4, 60.0)
    y = np.array([1, 1, 0, 1])
    made = objective("crossentropy", library, shares)
    if library == "catboost":
        hessian = -np.array([bend for _, bend in made.calc_ders_range(z, y, None)])
    else:
        hessian = made(y, z.astype(np.float32))[1]
    np.testing.assert_allclose(hessian, 1e-6 * 0.999 * 0.001, rtol=1e-6)


def test_parts_of_class_logits_with_the_shares_of_all_rows():
    totals = np.bincount(CLASSES)
    whole = Gradients(TBL(), CLASSES, None, n_classes=4)
    expected = whole(LOGITS)
    order = np.argsort(CLASSES, kind="stable")
    for rows in np.array_split(order, 2):
        part = Gradients(TBL(), CLASSES[rows], None, n_classes=4, shares=totals / totals.sum())
        for ours, theirs in zip(part(LOGITS[rows]), expected):
            np.testing.assert_array_equal(ours, theirs[rows])


def test_many_blocks_equal_one():
    rows = 3 * BLOCK + 17
    rng = np.random.default_rng(1)
    labels, scores = rng.random(rows) < 0.1, rng.normal(-3, 2, rows).astype(np.float32)
    gradient, hessian = Gradients(TBL(), labels, None, n_classes=1)(scores)
    np.testing.assert_allclose(gradient, TBL().gradient(scores, labels), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(hessian, TBL().hessian(scores, labels), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    "loss", [CrossEntropy(), TBL(), TBL(0.5, 1.0), Focal(2.0), parse("ldam(class_counts=(90,10))")]
)
def test_huge_margins_take_the_careful_way(loss):
    """Beyond 80 the quick formulas would overflow; the results must stay those of the loss."""
    scores = np.array([-500, -120, -85, -79, -10, 0, 10, 79, 85, 120, 500], dtype=np.float32)
    for label in (0, 1):
        labels = np.full(scores.size + 1, label)
        labels[-1] = 1 - label
        padded = np.append(scores, np.float32(0))
        gradient, hessian = objective(loss, "xgboost")(labels, padded)
        assert np.isfinite(gradient).all()
        assert np.isfinite(hessian).all()
        assert (hessian > 0).all()
        np.testing.assert_allclose(gradient, loss.gradient(padded, labels), rtol=1e-4)


@pytest.mark.parametrize("library", LIBRARIES)
def test_weights_multiply_and_the_floor_does_not_lift_a_weight_of_zero(library):
    weights = RNG.integers(0, 4, ROWS).astype(np.float64)
    plain = objective("squared", library)(LABELS, SCORES)
    weighted = objective("squared", library)(LABELS, SCORES, weights)
    # The floor depends on the weighted share of positives, so rows at the floor differ in the seventh digit.
    np.testing.assert_allclose(weighted[0], plain[0] * weights, rtol=1e-5)
    np.testing.assert_allclose(weighted[1], plain[1] * weights, rtol=1e-5, atol=1e-6)
    assert (weighted[1][weights == 0] == 0).all()


def test_one_object_follows_changing_labels():
    custom = objective("tbl", "xgboost")
    labels = LABELS.copy()
    first = custom(labels, SCORES)[0].copy()
    labels[:] = 1 - labels
    second = custom(labels, SCORES)[0]
    np.testing.assert_allclose(second, TBL().gradient(SCORES, labels), rtol=1e-4, atol=1e-6)
    assert not np.allclose(first, second)
    heavier = custom(labels, SCORES, np.full(ROWS, 2.0))[0]
    np.testing.assert_allclose(heavier, 2 * second, rtol=1e-6)


def test_results_that_are_kept_are_not_overwritten():
    """Memory is used again only once nobody holds it: here one of the two, or a part of it, is held."""
    for held in (0, 1):
        custom = objective("tbl", "xgboost")
        whole = custom(LABELS, SCORES)[held]
        copied = whole.copy()
        custom(LABELS, SCORES + 1)
        np.testing.assert_array_equal(whole, copied)
        part = custom(LABELS, SCORES)[held][:5]
        custom(LABELS, SCORES + 1)
        np.testing.assert_array_equal(part, copied[:5])


def test_objects_are_copied_without_the_labels():
    custom = objective("tbl", "lightgbm")
    custom(LABELS, SCORES)
    for twin in (copy.deepcopy(custom), pickle.loads(pickle.dumps(custom))):
        assert twin._seen is None
        np.testing.assert_array_equal(twin(LABELS, SCORES)[0], custom(LABELS, SCORES)[0])


def repeated(X, y, weights):
    return np.repeat(X, weights, axis=0), np.repeat(y, weights)


@pytest.mark.parametrize("wrapper", [False, True], ids=["train", "scikit-learn"])
def test_xgboost_weights_are_repetitions(wrapper):
    X, y = rare_table(400, 0.2, columns=3)
    X = np.round(X, 1)  # few values, so that the bins of both trainings are the same
    weights = np.random.default_rng(2).integers(1, 4, len(y))
    custom = objective("tbl", "xgboost")

    def scores(features, labels, weight):
        parameters = {"max_depth": 3, "base_score": -1.0, "nthread": 1}
        if wrapper:
            parameters["n_jobs"] = parameters.pop("nthread")
            model = xgb.XGBRegressor(objective=custom, n_estimators=5, **parameters)
            return model.fit(features, labels, sample_weight=weight).predict(X)
        booster = xgb.train(parameters, xgb.DMatrix(features, labels, weight=weight), 5, obj=custom)
        return booster.predict(xgb.DMatrix(X))

    twice = scores(*repeated(X, y, weights), None)
    np.testing.assert_allclose(scores(X, y, weights), twice, atol=1e-4)
    assert np.abs(scores(X, y, None) - twice).max() > 0.01


@pytest.mark.parametrize("wrapper", [False, True], ids=["train", "scikit-learn"])
def test_lightgbm_weights_are_repetitions(wrapper):
    X, y = rare_table(400, 0.2, columns=3)
    X = np.round(X, 0)
    weights = np.random.default_rng(2).integers(1, 4, len(y))
    custom = objective("tbl", "lightgbm")
    parameters = {**LGB, "objective": custom, "num_leaves": 8, "min_data_in_leaf": 1, "min_data_in_bin": 1}

    def scores(features, labels, weight):
        if wrapper:
            own = {
                name: value for name, value in parameters.items() if name not in ("num_threads", "verbose")
            }
            model = lgb.LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1, **own)
            return model.fit(features, labels, sample_weight=weight).predict(X)
        return lgb.train(parameters, lgb.Dataset(features, labels, weight=weight), 5).predict(X)

    twice = scores(*repeated(X, y, weights), None)
    np.testing.assert_allclose(scores(X, y, weights), twice, atol=1e-4)
    assert np.abs(scores(X, y, None) - twice).max() > 0.01


# ---- the libraries' own objectives ------------------------------------------------------------------------


def test_cross_entropy_grows_the_trees_of_xgboost():
    X, y = rare_table(20_000, 0.02)
    weights = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    prior = float(np.average(y, weights=weights))
    parameters = {"max_depth": 5, "eta": 0.2, "nthread": 1, "min_child_weight": 0.5}
    data = xgb.DMatrix(X, y, weight=weights)
    own = xgb.train({**parameters, "objective": "binary:logistic", "base_score": prior}, data, 20)
    start = float(np.log(prior / (1 - prior)))
    custom = xgb.train(
        {**parameters, "base_score": start}, data, 20, obj=objective("crossentropy", "xgboost")
    )
    np.testing.assert_allclose(
        custom.predict(data, output_margin=True), own.predict(data, output_margin=True), atol=2e-4
    )
    ours, theirs = custom.trees_to_dataframe(), own.trees_to_dataframe()
    assert len(ours) == len(theirs)
    assert (ours["Feature"] == theirs["Feature"]).mean() > 0.995
    same = (ours["Feature"] == theirs["Feature"]) & (ours["Feature"] != "Leaf")
    np.testing.assert_allclose(ours["Split"][same], theirs["Split"][same], rtol=1e-6)


def test_cross_entropy_grows_the_trees_of_lightgbm():
    X, y = rare_table(20_000, 0.02)
    weights = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    prior = float(np.average(y, weights=weights))
    parameters = {**LGB, "num_leaves": 15, "learning_rate": 0.2}
    own = lgb.train({**parameters, "objective": "binary"}, lgb.Dataset(X, y, weight=weights), 20)
    start = np.full(len(y), np.log(prior / (1 - prior)))
    data = lgb.Dataset(X, y, weight=weights, init_score=start)
    custom = lgb.train({**parameters, "objective": objective("crossentropy", "lightgbm")}, data, 20)
    np.testing.assert_allclose(custom.predict(X) + start, own.predict(X, raw_score=True), atol=2e-4)
    ours, theirs = custom.trees_to_dataframe(), own.trees_to_dataframe()
    assert len(ours) == len(theirs)
    assert (ours["split_feature"].fillna("") == theirs["split_feature"].fillna("")).mean() > 0.995


def three_classes(rows=3000):
    X, _ = rare_table(rows, 0.1)
    return X, np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [0.8, 2.5])


def test_cross_entropy_grows_the_trees_of_softprob():
    X, y = three_classes()
    data = xgb.DMatrix(X, y)
    parameters = {"max_depth": 4, "num_class": 3, "nthread": 1, "base_score": [0.0, 0.0, 0.0]}
    own = xgb.train({**parameters, "objective": "multi:softprob"}, data, 10)
    custom = xgb.train(parameters, data, 10, obj=objective("crossentropy", "xgboost"))
    np.testing.assert_allclose(
        custom.predict(data, output_margin=True), own.predict(data, output_margin=True), atol=2e-4
    )


def test_cross_entropy_grows_the_trees_of_multiclass():
    X, y = three_classes()
    parameters = {**LGB, "num_leaves": 8, "num_class": 3}
    shares = np.bincount(y) / len(y)
    own = lgb.train({**parameters, "objective": "multiclass"}, lgb.Dataset(X, y), 10)
    start = np.tile(np.log(shares), (len(y), 1))
    data = lgb.Dataset(X, y, init_score=start)
    custom = lgb.train({**parameters, "objective": objective("crossentropy", "lightgbm")}, data, 10)
    np.testing.assert_allclose(custom.predict(X) + start, own.predict(X, raw_score=True), atol=2e-4)


# ---- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(ROWS), "one class is missing: no training label is 1"),
        (np.full(ROWS, 2.0), "labels must be 0 or 1"),
        (np.full(ROWS, np.nan), "must not be missing"),
        (np.empty(0), "there are no labels"),
    ],
)
def test_bad_labels_are_named(labels, message):
    with pytest.raises(ValueError, match=message):
        objective("tbl", "xgboost")(labels, SCORES)


def test_other_bad_input():
    with pytest.raises(ValueError, match="library must be one of xgboost, lightgbm, catboost"):
        objective("tbl", "sklearn")
    with pytest.raises(TypeError, match="loss must be a loss"):
        objective(3, "xgboost")
    with pytest.raises(ValueError, match="unknown loss"):
        objective("tble", "xgboost")
    with pytest.raises(ValueError, match="not negative"):
        objective("tbl", "xgboost")(LABELS, SCORES, -np.ones(ROWS))
    with pytest.raises(ValueError, match="y has 300 rows, but sample_weight has 299"):
        objective("tbl", "xgboost")(LABELS, SCORES, np.ones(ROWS - 1))
    with pytest.raises(ValueError, match="do not fit"):
        objective("tbl", "xgboost")(LABELS, SCORES[:-1])
    wrong = SCORES.copy()
    wrong[7] = np.nan
    with pytest.raises(FloatingPointError, match="row 7 is nan"):
        objective("tbl", "xgboost")(LABELS, wrong)
    with pytest.raises(ValueError, match="whole numbers"):
        objective("tbl", "xgboost")(CLASSES + 0.5, LOGITS)


def test_a_loss_without_a_link_still_has_derivatives():
    loss = non_convex_tbl(np.inf, 0.0)
    gradient, hessian = objective(loss, "xgboost")(LABELS, SCORES)
    np.testing.assert_allclose(gradient, loss.gradient(SCORES, LABELS), rtol=1e-4, atol=1e-6)
    assert hessian.min() > 0


def test_floor_scales_with_the_prior():
    """An absolute floor would be either useless at one prior or ruinous at another."""
    floors = []
    for prior in (0.3, 1e-3):
        labels = np.zeros(20_000)
        labels[: round(prior * labels.size)] = 1
        start = start_of(Squared(), (1 - prior, prior))
        scores = np.full(labels.size, start.scores[0], dtype=np.float32)
        # Badly misclassified positives have negative curvature under the squared loss.
        scores[0] -= 2
        hessian = objective("squared", "xgboost")(labels, scores)[1]
        floors.append(float(hessian[0]))
        assert floors[-1] == pytest.approx(1e-6 * start.curvature, rel=1e-5)
    assert floors[0] > 1e3 * floors[1]


# ---- CatBoost ---------------------------------------------------------------------------------------------

CATBOOST = {
    "iterations": 15,
    "learning_rate": 0.3,
    "depth": 4,
    "verbose": False,
    "random_seed": 0,
    "thread_count": 1,
    "leaf_estimation_method": "Newton",
    "leaf_estimation_iterations": 1,
    "bootstrap_type": "No",
    "random_strength": 0,
    "boosting_type": "Plain",
    "score_function": "L2",
    "allow_writing_files": False,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Failed to import numba")
@pytest.mark.parametrize("weighted", [False, True])
def test_catboost_grows_its_own_trees(weighted):
    import catboost

    X, y = rare_table(2000, 0.2)
    weights = np.random.default_rng(4).integers(1, 4, len(y)) if weighted else None
    data = catboost.Pool(X, y, weight=weights)
    parameters = {**CATBOOST, "boost_from_average": False}
    own = catboost.CatBoost({**parameters, "loss_function": "Logloss"}).fit(data)
    custom = {"loss_function": objective("crossentropy", "catboost"), "eval_metric": "Logloss"}
    ours = catboost.CatBoost({**parameters, **custom}).fit(data)
    np.testing.assert_allclose(ours.predict(X), own.predict(X), atol=1e-8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Failed to import numba")
def test_catboost_grows_its_own_trees_for_classes():
    import catboost

    X, y = three_classes(1500)
    data = catboost.Pool(X, y)
    own = catboost.CatBoost({**CATBOOST, "loss_function": "MultiClass"}).fit(data)
    custom = {"loss_function": objective("crossentropy", "catboost"), "eval_metric": "MultiClass"}
    ours = catboost.CatBoost({**CATBOOST, **custom}).fit(data)
    np.testing.assert_allclose(ours.predict(X), own.predict(X), atol=1e-8)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Failed to import numba")
@pytest.mark.parametrize("text", ["tbl", "focal(gamma=2.0)", "logitadjusted(crossentropy,0.05)"])
def test_catboost_lowers_the_loss_that_it_is_given(text):
    import catboost

    X, y = rare_table(4000, 0.05)
    loss = parse(text)
    start = start_of(loss, (1 - y.mean(), y.mean())).scores[0]
    data = catboost.Pool(X, y, baseline=np.full(len(y), start))
    parameters = {**CATBOOST, "boost_from_average": False, "eval_metric": "Logloss"}
    model = catboost.CatBoost({**parameters, "loss_function": objective(loss, "catboost")}).fit(data)
    # Predictions for a plain array leave the baseline out.
    scores = model.predict(X, prediction_type="RawFormulaVal") + start
    assert loss.value(scores, y).mean() < 0.6 * loss.value(np.full(len(y), start), y).mean()
    assert loss.probability(scores).mean() == pytest.approx(y.mean(), rel=0.2)


def test_catboost_derivatives_are_those_of_minus_the_loss():
    """What CatBoost calls, called by hand: it climbs, so both signs are turned."""
    custom = objective("tbl", "catboost")
    weights = np.full(ROWS, 3.0)
    first, second = np.array(custom.calc_ders_range(list(SCORES), list(LABELS), list(weights))).T
    exact = SCORES.astype(np.float64)
    np.testing.assert_allclose(first, -3 * TBL().gradient(exact, LABELS), rtol=1e-12)
    np.testing.assert_allclose(second, -3 * TBL().hessian(exact, LABELS), rtol=1e-12)
    gradient, matrix = custom.calc_ders_multi(list(LOGITS[0]), float(CLASSES[0]), 2.0)
    exact = LOGITS[:1].astype(np.float64)
    np.testing.assert_allclose(gradient, -2 * TBL().gradient(exact, CLASSES[:1])[0], rtol=1e-12)
    np.testing.assert_allclose(matrix, -2 * TBL().hessian_matrix(exact, CLASSES[:1])[0], rtol=1e-12)


def test_each_dataset_keeps_its_own_labels():
    """The labels of a dataset are read once, and rows given in between do not take their place."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 2)), np.arange(50) % 5 == 0
    first, second = xgb.DMatrix(X, label=y), xgb.DMatrix(X, label=~y)
    scores = rng.normal(size=50).astype(np.float32)
    function, plain = objective("tbl", "xgboost"), TBL()
    for _ in range(2):
        for data, labels in ((first, y), (second, ~y), (first, y)):
            assert function(scores, data)[0] == pytest.approx(plain.gradient(scores, labels), abs=1e-6)
        function((np.arange(50) % 2).astype(float), scores)
        assert function(scores, first)[0] == pytest.approx(plain.gradient(scores, y), abs=1e-6)
    del first
    again = xgb.DMatrix(X, label=~y)
    assert function(scores, again)[0] == pytest.approx(plain.gradient(scores, ~y), abs=1e-6)
