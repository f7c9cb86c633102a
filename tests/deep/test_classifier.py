"""Deep classifiers learn, are calibrated, and take tables as they come."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deep.deep_tables import mixed_frame, ring_table
from raresight.deep import DeepClassifier
from raresight.deep.parameters import batch_size_for, torch_threads
from raresight.deep.training import DivergedWarning
from raresight.linear import LinearClassifier
from raresight.losses import from_callable
from raresight.metrics import roc_auc
from raresight.nn.nets import mean_probability

COMMON = {"random_state": 0, "n_jobs": 1, "early_stopping": True}  # cross-validation takes longer
SMALL = {"net": "mlp", "width": 16, "max_epochs": 6, "learning_rate": 0.01, **COMMON}
NETS = {
    "mlp": {"width": 32, "learning_rate": 0.01},
    "tabm": {"width": 16, "members": 4, "blocks": 2, "learning_rate": 0.01},
    "tabnet": {"learning_rate": 0.02},
}
LOSSES = ("crossentropy", "tbl(alpha=0.8,C=0.5)", "focal(gamma=2.0)", "vectorscaling(delta=0.5)")


def net_model(name, **options):
    return DeepClassifier(net=name, **{**NETS[name], **COMMON, **options})


def raw_scores(model, X):
    """Of the nets, without the factor and the constant that calibrate them."""
    return model.nets_.scores(model._encoder.apply(X), "cpu").astype(float)


@pytest.mark.parametrize("net", NETS)
def test_learns_what_no_line_separates(net):
    X, y = ring_table(4000)
    fresh = ring_table(4000, seed=1)
    model = net_model(net, max_epochs=12, refit=net == "mlp").fit(X, y)
    assert roc_auc(fresh[1], model.decision_function(fresh[0])) > 0.85
    assert roc_auc(fresh[1], LinearClassifier("tbl").fit(X, y).decision_function(fresh[0])) < 0.6
    importance = model.feature_importances_
    assert importance.sum() == pytest.approx(1)
    assert importance[:2].min() > 1.5 * importance[2]


@pytest.mark.parametrize("loss", LOSSES)
def test_probabilities_are_calibrated(loss):
    X, y = ring_table(3000)
    model = DeepClassifier(loss, **SMALL).fit(X, y)
    p = model.predict_proba(X)
    assert p.sum(1) == pytest.approx(1)
    assert p[:, 1].mean() == pytest.approx(y.mean(), rel=1e-6)
    assert expit(model.predict_log_odds(X)) == pytest.approx(p[:, 1])
    fresh = ring_table(8000, seed=1)
    assert model.predict_proba(fresh[0])[:, 1].mean() == pytest.approx(fresh[1].mean(), rel=0.25)
    assert np.array_equal(model.raw_scores(X), raw_scores(model, X))
    expected = model.calibrator_.log_odds(model.loss_.log_odds(model.raw_scores(X)))
    assert np.array_equal(model.predict_log_odds(X), expected)
    decision = model.decision_function(X)
    assert decision == pytest.approx(expected - model.loss_.log_odds(0.0), abs=1e-12)
    assert np.array_equal(model.predict(X), (decision > 0).astype(int))


def test_the_first_scores_are_those_of_the_prior():
    X, y = ring_table(2000)
    options = {**SMALL, "max_epochs": 1, "learning_rate": 1e-12, "early_stopping": False}
    model = DeepClassifier("tbl", **options).fit(X, y)
    prior = np.log(y.mean() / (1 - y.mean()))
    assert abs(np.median(model.loss_.log_odds(raw_scores(model, X))) - prior) < 1


def test_several_classes():
    X, _ = ring_table(3000)
    y = np.array(["low", "mid", "top"])[np.digitize(X[:, 0] * X[:, 1], [-1, 1])]
    model = DeepClassifier(**{**SMALL, "max_epochs": 10}).fit(X, y)
    p = model.predict_proba(X)
    shares = [np.mean(y == label) for label in model.classes_]
    assert model.decision_function(X).shape == p.shape == (3000, 3)
    assert p.mean(0) == pytest.approx(shares, rel=1e-6)
    assert np.mean(model.predict(X) == y) > 0.8
    assert np.array_equal(model.predict(X), model.classes_[p.argmax(1)])
    assert expit(model.predict_log_odds(X)) == pytest.approx(p, abs=1e-9)


def test_seeds_are_averaged_as_probabilities():
    X, y = ring_table(1500)
    model = DeepClassifier(n_seeds=3, **SMALL).fit(X, y)
    replicas = model.nets_.replicas("cpu")
    inputs = torch.from_numpy(model._encoder.apply(X))
    each = np.stack([model.loss_.probability(one) for one in replicas.scores(inputs).numpy()])
    assert np.ptp(each, axis=0).max() > 0.01
    found = model.loss_.probability(raw_scores(model, X))
    assert found == pytest.approx(each.mean(0), abs=1e-6)


def test_members_are_averaged_as_probabilities():
    X, y = ring_table(500)
    model = net_model("tabm", max_epochs=2, n_seeds=2).fit(X, y)
    replicas = model.nets_.replicas("cpu")
    members = replicas.net.member_scores(torch.from_numpy(model._encoder.apply(X)).double()).detach()
    expected = mean_probability(members, replicas.losses).mean(0).numpy()
    found = model.loss_.probability(raw_scores(model, X))
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_seed_gives_the_same_twice():
    X, y = ring_table(1000)
    one, same, other = (DeepClassifier(**{**SMALL, "random_state": seed}).fit(X, y) for seed in (3, 3, 4))
    assert np.array_equal(one.decision_function(X), same.decision_function(X))
    assert not np.array_equal(one.decision_function(X), other.decision_function(X))


@pytest.mark.parametrize("net", NETS)
def test_scores_do_not_depend_on_the_rows_beside(net):
    X, y = ring_table(700)
    model = net_model(net, max_epochs=2).fit(X, y)
    whole = model.decision_function(X)
    assert whole.dtype == np.float64
    pieces = [model.decision_function(X[i : i + 111]) for i in range(0, 700, 111)]
    assert np.array_equal(np.concatenate(pieces), whole)
    assert model.decision_function(X[17:18])[0] == whole[17]


@pytest.mark.parametrize("loss", ["tbl", "focal(gamma=2.0)", "erf", "squared", "poly(epsilon=-1.0)"])
def test_the_decision_is_the_more_probable_class_where_the_loss_treats_both_alike(loss):
    X, y = ring_table(2000)
    # Stopped long before it has learnt, so that the constant has much to put right.
    model = DeepClassifier(loss, **{**SMALL, "max_epochs": 3, "learning_rate": 0.003}).fit(X, y < 1)
    assert abs(model.calibrator_.levels[0]) > 1e-3
    scores, p = model.decision_function(X), model.predict_proba(X)
    assert 0 < np.mean(model.predict(X)) < 1 or len(np.unique(scores > 0)) == 1
    assert np.array_equal(model.predict(X), scores > 0)
    assert np.array_equal(model.predict(X), p[:, 1] > 0.5)
    for cut in np.quantile(scores, (0.5, 0.9, 0.99)):
        assert np.array_equal(scores > cut, p[:, 1] > expit(cut))


def test_the_decision_of_an_adjusted_loss_is_the_one_it_was_made_for():
    """Logit adjustment decides by the likelihood ratio: at the prior, not at one half."""
    X, y = ring_table(2000)
    prior = float(y.mean())
    model = DeepClassifier(f"logitadjusted(crossentropy,prior={prior!r})", **SMALL).fit(X, y)
    p = model.predict_proba(X)[:, 1]
    assert p.mean() == pytest.approx(prior, rel=1e-6)
    assert np.array_equal(model.predict(X) == 1, p > prior)
    assert np.mean(p > prior) > 1.5 * np.mean(p > 0.5)


def test_class_weights_are_taken_out_of_the_probabilities():
    X, y = ring_table(3000)
    plain = DeepClassifier("crossentropy", **SMALL).fit(X, y)
    balanced = DeepClassifier("crossentropy", class_weight="balanced", **SMALL).fit(X, y)
    assert balanced.predict(X).sum() > 1.2 * plain.predict(X).sum()
    assert balanced.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=1e-6)
    by_name = DeepClassifier("crossentropy", class_weight={1: 11.0}, **SMALL).fit(X, y)
    assert str(by_name.loss_) != str(plain.loss_)
    with pytest.raises(ValueError, match="class_weight names 7"):
        DeepClassifier(class_weight={7: 1.0}, **SMALL).fit(X, y)


def test_frames_with_gaps_and_categories():
    frame, y = mixed_frame(3000)
    fresh, labels = mixed_frame(3000, seed=1)
    model = DeepClassifier(**SMALL, categorical_features=["code"]).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["amount", "shop", "code"]
    assert roc_auc(labels, model.decision_function(fresh)) > 0.85
    assert model.feature_importances_.argmin() == 2
    unknown = fresh.assign(shop=pd.Categorical(["elsewhere"] * 3000))
    with pytest.warns(UserWarning, match="column 'shop' holds in .* categories that training did not see"):
        assert np.isfinite(model.decision_function(unknown)).all()
    known = fresh.shop.astype(object)
    for places, is_reported in ((slice(0, 1000), False), (slice(0, 2900), True)):
        known.iloc[places] = "elsewhere"
        mostly = fresh.assign(shop=pd.Categorical(known))
        if is_reported:
            with pytest.warns(UserWarning, match=r"'shop' holds in \d+ of 3000 rows .* such as 'elsewhere'"):
                model.decision_function(mostly)
        else:
            model.decision_function(mostly)  # a few new ones are usual
    with pytest.raises(ValueError, match="categorical_features: there is no column named 'nothing'"):
        DeepClassifier(**SMALL, categorical_features=["nothing"]).fit(frame, y)
    with pytest.raises(ValueError, match="neither numbers nor categories"):
        DeepClassifier(**SMALL).fit(frame.assign(shop=frame.shop.astype(object)), y)


def test_sparse_rows_are_dense_ones_with_zeros():
    X, y = ring_table(600)
    X[np.abs(X) < 0.5] = 0
    dense = DeepClassifier(**SMALL).fit(X, y)
    thin = DeepClassifier(**SMALL).fit(sparse.csr_matrix(X), y)
    assert np.array_equal(dense.decision_function(X), thin.decision_function(sparse.csr_matrix(X)))


def test_columns_that_say_nothing():
    y = np.arange(200) % 4 == 0
    model = DeepClassifier(**SMALL).fit(np.ones((200, 2)), y)
    assert model.predict_proba(np.ones((3, 2)))[:, 1] == pytest.approx(0.25, abs=1e-6)
    assert not model.feature_importances_.any()


def test_inside_scikit_learn():
    X, y = ring_table(900)
    piped = make_pipeline(StandardScaler(), DeepClassifier(**SMALL)).fit(X, y)
    assert piped.predict_proba(X).shape == (900, 2)
    search = GridSearchCV(
        DeepClassifier(**SMALL), {"loss": ["tbl", "crossentropy"], "width": [4, 8]}, scoring="roc_auc", cv=2
    ).fit(X, y)
    assert set(search.best_params_) == {"loss", "width"}
    calibrated = CalibratedClassifierCV(DeepClassifier(**SMALL), cv=2).fit(X, y)
    assert calibrated.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=0.2)
    options = DeepClassifier(net_options={"batch_norm": True}, **SMALL)
    assert clone(options).get_params() == options.get_params()
    assert options.fit(X, y).nets_.plan.options["batch_norm"] is True


def test_a_fit_that_fails_leaves_the_model_whole():
    X, y = ring_table(400)
    model = DeepClassifier(**SMALL).fit(X, y)
    before = model.decision_function(X)
    with pytest.raises(ValueError, match="one class only"):
        model.fit(X[:, :2], np.zeros(400))
    assert np.array_equal(model.decision_function(X), before)


def test_nets_that_fail_are_reported():
    X, y = ring_table(500)
    wild = {**SMALL, "learning_rate": 300.0, "early_stopping": False, "warmup_epochs": 0, "random_state": 1}
    with pytest.warns(DivergedWarning, match=r"alpha\(alpha=0.3\), seed \d+: .* not finite in epoch 1"):
        model = DeepClassifier(["alpha(alpha=0.3)", "squared"], **wild).fit(X, y, eval_set=(X, y))
    assert str(model.loss_) == "squared"


@pytest.mark.parametrize("net", ["mlp", "tabm"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_nets_that_all_fail_at_once_are_no_model(net, early_stopping):
    X, y = ring_table(500)
    wild = {**SMALL, "net": net, "learning_rate": 1e12, "early_stopping": early_stopping, "warmup_epochs": 0}
    model = DeepClassifier("alpha(alpha=0.3)", **wild, **({"members": 2} if net == "tabm" else {}))
    said = r"no net learned anything: alpha\(alpha=0.3\), seed \d+: .* not finite in epoch 1, .* lower"
    with pytest.raises(ValueError, match=said):
        model.fit(X, y)
    assert not hasattr(model, "classes_")


def test_a_net_that_scores_all_rows_the_same_is_reported():
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 3))
    y = (X[:, 0] + random.normal(size=300) > 1).astype(int)
    wild = {"net": "mlp", "width": 4, "max_epochs": 8, "learning_rate": 1e3, "early_stopping": False}
    flat = []
    for seed in range(4):
        with warnings.catch_warnings(record=True) as reported:
            warnings.simplefilter("always")
            model = DeepClassifier("crossentropy", **wild, random_state=seed, n_jobs=1).fit(X, y)
        flat.append(bool(np.ptp(model.decision_function(X)) == 0))
        said = [one for one in reported if "give all training rows the same score" in str(one.message)]
        assert bool(said) is flat[-1]
        assert all((one.category, one.filename) == (DivergedWarning, __file__) for one in said)
    assert any(flat)
    # Rows that do not differ have no other scores: nothing is said, or it would be an error here.
    DeepClassifier(**SMALL).fit(np.ones((300, 2)), y)


def test_what_is_masked_is_missing():
    X, y = ring_table(300)
    masked = np.ma.array(X, mask=np.random.default_rng(0).random(X.shape) < 0.2)
    options = {**SMALL, "random_state": 0}
    given, plain = (DeepClassifier(**options).fit(table, y) for table in (masked, masked.filled(np.nan)))
    assert np.array_equal(given.predict_proba(masked), plain.predict_proba(masked.filled(np.nan)))
    assert not np.array_equal(given.predict_proba(masked), given.predict_proba(X))


def test_the_rows_of_eval_set_are_named_where_they_do_not_fit():
    X, y = ring_table(300)
    with pytest.raises(ValueError, match="the rows of eval_set cannot be used: X has 1 features"):
        DeepClassifier(**SMALL).fit(X, y, eval_set=(X[:, :1], y))


def test_a_model_is_not_saved_over_a_file(tmp_path):
    X, y = ring_table(300)
    place = tmp_path / "model"
    place.write_text("mine")
    with pytest.raises(NotADirectoryError, match=r"a model is saved as a folder, but .* is a file"):
        DeepClassifier(**SMALL).fit(X, y).save(place)
    assert place.read_text() == "mine"


def test_the_batch_grows_with_the_rows():
    assert [batch_size_for(n) for n in (50, 25_600, 200_000, 10**7)] == [128, 128, 1000, 4096]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"net": "resnet"}, "net must be one of tabm, tabnet, mlp, got 'resnet'"),
        ({"net": "mlp", "members": 3}, "mlp has no members: its sizes are width, blocks"),
        ({"net": "tabnet", "dropout": 0.1}, "tabnet has no dropout"),
        ({"width": 2.5}, "width must be a whole number of at least 1, but is 2.5"),
        ({"max_epochs": 0}, "max_epochs must be a whole number of at least 1, but is 0"),
        ({"batch_size": "large"}, "batch_size must be a whole number"),
        ({"batch_size": np.array([64, 128])}, "batch_size must be a whole number"),
        ({"early_stopping": np.array([True, False])}, "early_stopping must be 'auto', True or False"),
        ({"calibration": np.array(["slope", "level"])}, "calibration must be 'link', 'level' or 'slope'"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"weight_decay": -1}, "weight_decay must be at least 0"),
        ({"validation_fraction": 1.0}, "validation_fraction must be above 0 and below 1"),
        ({"max_fpr": 0}, "max_fpr must be above 0"),
        ({"early_stopping": "yes"}, "early_stopping must be 'auto', True or False, got 'yes'"),
        ({"n_seeds": True}, "n_seeds must be a whole number"),
        ({"n_jobs": 0}, "n_jobs must be a whole number"),
        ({"n_jobs": -2}, "n_jobs must be a whole number"),
        ({"net": "tabm", "dropout": "a"}, "dropout must be a number, but is 'a'"),
        ({"net": "tabm", "dropout": 1.0}, "dropout must be at least 0 and below 1, but is 1.0"),
        ({"width": "a"}, "width must be a whole number of at least 1, but is 'a'"),
        (
            {"net_options": {"depth": 3}},
            "net_options names 'depth', which mlp does not have: its options are ",
        ),
        ({"net_options": {"seeds": (1,)}}, "net_options names 'seeds'"),
        (
            {"width": 16, "net_options": {"hidden": (8,)}},
            "net_options gives 'hidden', which width=16 sets as well for mlp: leave one of them out",
        ),
        ({"blocks": 1, "net_options": {"hidden": (8,)}}, "gives 'hidden', which blocks=1 sets as well"),
        (
            {"net": "tabm", "dropout": 0.0, "net_options": {"dropout": 0.2}},
            "gives 'dropout', which dropout=0.0 sets as well for tabm",
        ),
        (
            {"net": "tabnet", "width": 4, "net_options": {"attention_width": 2}},
            "gives 'attention_width', which width=4 sets as well for tabnet",
        ),
        ({"net": "tabnet", "batch_size": 1}, "batch_size is 1, but tabnet normalises over the rows"),
        (
            {"batch_size": 1, "net_options": {"batch_norm": True}},
            "batch_size is 1, but mlp normalises over the rows of a batch here",
        ),
        ({"calibration": "isotonic"}, "calibration must be 'link', 'level' or 'slope', got 'isotonic'"),
        ({"calibration": None}, "calibration must be 'link', 'level' or 'slope', got None"),
        ({"loss": "vectorscaling(class_counts=(9,1))"}, "for which write 'vectorscaling(delta="),
        ({"device": "tpu"}, "device must be 'auto', 'cpu' or 'cuda', got 'tpu'"),
        ({"loss": "tbl(beta=1)"}, "alpha"),
        ({"loss": "ldam"}, "class counts are"),
        ({"categorical_features": "all"}, "categorical_features must be 'auto' or a list of columns"),
        ({"categorical_features": [True, False]}, "a mask of 2 booleans, but X has 3 columns"),
        (
            {"categorical_features": [True, 2]},
            "categorical_features must hold names, positions or one boolean",
        ),
        ({"categorical_features": [0.5]}, "one boolean per column, but holds 0.5"),
        ({"categorical_features": [3]}, "there is no column 3, X has 3"),
    ],
)
def test_refused(options, said):
    X, y = ring_table(200)
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        DeepClassifier(**{"net": "mlp", **options}).fit(X, y)


def test_refused_types():
    X, y = ring_table(200)
    with pytest.raises(TypeError, match="device must be"):
        DeepClassifier(device=0).fit(X, y)
    with pytest.raises(TypeError, match="loss must be a loss"):
        DeepClassifier(loss=3).fit(X, y)
    with pytest.raises(TypeError, match="categorical_features must be 'auto' or a list of columns, got 2"):
        DeepClassifier(categorical_features=2).fit(X, y)
    with pytest.raises(
        TypeError, match="net_options must be a mapping of options by name or None, got 'deep'"
    ):
        DeepClassifier(net_options="deep").fit(X, y)


def test_a_mask_of_categorical_columns():
    X, y = ring_table(200)
    X = X.round()
    for given, columns in (([False, False, True], [2]), (np.array([True, False, True]), [0, 2]), (None, [])):
        model = DeepClassifier(**{**SMALL, "max_epochs": 1}, categorical_features=given).fit(X, y)
        assert [i for i, one in enumerate(model._encoder.columns) if one.categories is not None] == columns


def test_text_is_taken_where_it_is_named_or_known():
    frame, y = mixed_frame(300)
    text = frame.assign(shop=frame["shop"].astype(object))
    options = {**SMALL, "max_epochs": 2}
    with pytest.raises(ValueError, match="column 'shop' holds neither numbers nor categories"):
        DeepClassifier(**options).fit(text, y)
    named = DeepClassifier(**options, categorical_features=["shop"]).fit(text, y, eval_set=(text, y))
    assert np.array_equal(named.decision_function(text), named.decision_function(frame))
    known = DeepClassifier(**options).fit(frame, y, eval_set=(text, y))
    assert np.array_equal(known.decision_function(text), known.decision_function(frame))


def test_columns_of_another_type_than_in_training_are_reported():
    frame, y = mixed_frame(300)
    frame["code"] = pd.Categorical(frame["code"])
    model = DeepClassifier(**{**SMALL, "max_epochs": 2}).fit(frame, y)
    amounts = frame["amount"].astype(str)
    with pytest.raises(ValueError, match="column 'amount' holds neither numbers"):
        model.predict(frame.assign(amount=amounts))
    with pytest.raises(
        ValueError, match="column 'amount' held numbers in training, but holds categories that are text"
    ):
        model.predict(frame.assign(amount=pd.Categorical(amounts)))
    with pytest.warns(
        UserWarning,
        match=r"column 'code' holds in 300 of 300 rows .* such as '.' \(training saw 0\)",
    ):
        model.predict(frame.assign(code=frame["code"].astype(str).astype("category")))
    some = frame.assign(code=np.where(np.arange(300) >= 150, 9, 1))
    assert model.predict(some).shape == (300,)  # in up to half of the rows a new category is usual
    with pytest.warns(UserWarning, match="'code' holds in 299 of 300 rows .* such as 9"):
        model.predict(frame.assign(code=np.where(np.arange(300) > 0, 9, 1)))
    with pytest.raises(ValueError, match="0 feature"):
        DeepClassifier().fit(frame[[]], y)


def test_all_cores():
    before = torch.get_num_threads()
    with torch_threads(-1):
        assert 1 <= torch.get_num_threads() <= os.cpu_count()
    assert torch.get_num_threads() == before
    X, y = ring_table(200)
    DeepClassifier(**{**SMALL, "max_epochs": 1, "n_jobs": -1}).fit(X, y)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_reported():
    X, y = ring_table(200)
    with pytest.raises(ValueError, match="PyTorch sees no GPU here"):
        DeepClassifier(device="cuda").fit(X, y)


def test_an_option_that_is_given_once_counts():
    X, y = ring_table(200)
    options = {"net": "mlp", "max_epochs": 1, "batch_size": 1, "n_jobs": 1}
    model = DeepClassifier(**options, net_options={"hidden": (5,)}).fit(X[:40], np.arange(40) % 2)
    assert model.nets_.replicas("cpu").net.hidden == (5,)
    thin = DeepClassifier(
        net="tabnet", steps=2, max_epochs=1, n_jobs=1, net_options={"attention_width": 2}
    ).fit(X, y)
    assert thin.nets_.plan.options == {"decision_width": 8, "attention_width": 2, "steps": 2}


def test_a_loss_of_ones_own():
    X, y = ring_table(1000)
    loss = from_callable(lambda z, label: torch.nn.functional.softplus(z) - label * z, name="mine")
    model = DeepClassifier(loss, **SMALL).fit(X, y)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(y.mean(), rel=1e-6)
    with pytest.raises(ValueError, match="has no text that can be read back"):
        model.save("nowhere")


@pytest.mark.parametrize(("net", "rate"), [("mlp", 1e-3), ("tabm", 1e-3), ("tabnet", 2e-2)])
def test_each_net_has_a_learning_rate_of_its_own(net, rate):
    X, y = ring_table(200)
    options = {
        "net": net,
        "width": 8,
        "max_epochs": 2,
        "early_stopping": False,
        "random_state": 0,
        "n_jobs": 1,
    }
    scores = [
        DeepClassifier("crossentropy", learning_rate=given, **options).fit(X, y).decision_function(X)
        for given in (None, rate, 2 * rate)
    ]
    assert np.array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])
