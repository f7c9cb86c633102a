"""A classifier written and read again, and files that are not what was written."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch

from deep.deep_tables import mixed_frame, ring_table
from raresight.common.json_values import digest_of
from raresight.deep import DeepClassifier
from raresight.losses import from_callable, parse

FILES = ["deep.json", "deep.safetensors"]


@pytest.mark.parametrize(
    "options",
    [
        {"net": "mlp", "width": 8, "net_options": {"batch_norm": True}, "class_weight": {"bad": 3.0}},
        {"net": "tabm", "width": 8, "members": 3, "n_seeds": 2, "loss": ["tbl", parse("focal(gamma=1.5)")]},
        {"net": "tabnet", "loss": parse("tbl(alpha=0.7,C=1)")},
    ],
)
def test_comes_back_as_it_was(options, tmp_path):
    frame, y = mixed_frame(600)
    labels = np.where(y == 1, "bad", "good")
    model = DeepClassifier(**options, max_epochs=2, random_state=3, n_jobs=1).fit(frame, labels)
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == FILES
    again = DeepClassifier.load(tmp_path / "model")
    assert np.array_equal(again.decision_function(frame), model.decision_function(frame))
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    assert np.array_equal(again.predict(frame), model.predict(frame))
    names = (
        "calibrator_",
        "loss_",
        "losses_",
        "validation_scores_",
        "best_epochs_",
        "n_epochs_",
        "n_features_in_",
    )
    for name in names:
        assert getattr(again, name) == getattr(model, name)
    for name in ("feature_importances_", "feature_names_in_", "classes_", "validation_history_"):
        assert np.array_equal(getattr(again, name), getattr(model, name))
    given = {**model.get_params(), "loss": None}
    assert {**again.get_params(), "loss": None} == given
    # Parameters are enough to train the same again.
    twin = DeepClassifier(**again.get_params()).fit(frame, labels)
    assert np.array_equal(twin.decision_function(frame), model.decision_function(frame))


def test_several_classes_and_arrays(tmp_path):
    X, _ = ring_table(400)
    y = np.digitize(X[:, 0], [-1, 1]) * 10
    model = DeepClassifier(net="mlp", width=8, max_epochs=2, early_stopping=False, n_jobs=1).fit(X, y)
    model.save(tmp_path)
    again = DeepClassifier.load(tmp_path)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.classes_.dtype == model.classes_.dtype
    assert not hasattr(again, "feature_names_in_")
    assert again.validation_scores_ is None


def test_a_loss_whose_nets_failed_has_no_score(tmp_path):
    X, y = ring_table(500)
    model = DeepClassifier(net="mlp", width=4, max_epochs=1, n_jobs=1).fit(X, y, eval_set=(X, y))
    model.validation_scores_["focal(gamma=2.0)"] = float("nan")
    model.validation_history_[0, 0, 0] = np.nan
    model.save(tmp_path)
    again = DeepClassifier.load(tmp_path)
    assert np.isnan(again.validation_scores_["focal(gamma=2.0)"])
    assert np.isnan(again.validation_history_).all()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    X, y = ring_table(300)
    DeepClassifier(net="mlp", width=4, max_epochs=1, n_jobs=1).fit(X, y).save(folder)
    return folder


@pytest.fixture
def copied(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "copy")


def rewrite(folder, **entries):
    """Change entries as another program would, with the digest that belongs to them."""
    described = json.loads((folder / "deep.json").read_text()) | entries
    described["description_sha256"] = digest_of(described)
    (folder / "deep.json").write_text(json.dumps(described))


def drop_entry(folder, name):
    described = json.loads((folder / "deep.json").read_text())
    del described[name]
    (folder / "deep.json").write_text(json.dumps(described))


@pytest.mark.parametrize("name", FILES)
def test_files_that_are_missing_or_changed(name, copied):
    path = copied / name
    content = path.read_bytes()
    path.write_bytes(content[:-10])
    with pytest.raises(ValueError, match=r"damaged|changed or truncated since"):
        DeepClassifier.load(copied)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} does not exist: a model is a folder with"):
        DeepClassifier.load(copied)


def test_an_entry_that_was_changed_by_hand(copied):
    path = copied / "deep.json"
    path.write_text(path.read_text().replace('"n_epochs": 1', '"n_epochs": 2'))
    with pytest.raises(ValueError, match="not the file that was saved: it was changed since"):
        DeepClassifier.load(copied)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"format": "other"}, "does not describe a model of raresight.deep"),
        ({"format_version": 99}, "format version 99, this raresight reads 1"),
        ({"net": {"name": "resnet"}}, "lacks an entry or has a wrong one: the net 'resnet' is unknown"),
        ({"columns": [{"scaled": True}]}, "lacks an entry or has a wrong one"),
        ({"parameters": {}}, "lacks an entry or has a wrong one"),
        ({"loss": "nothing"}, "lacks an entry or has a wrong one"),
        ({"calibrator": {"slope": 1.0, "levels": [0.1, 0.2]}}, "the calibrator has 2 levels where"),
        ({"calibrator": {"slope": 0.0, "levels": [0.1]}}, "a calibrator has a slope above 0"),
        ({"calibrator": None}, "lacks an entry or has a wrong one"),
        ({"weights": "../deep.safetensors"}, "its weights cannot be in '../deep.safetensors', but in"),
    ],
)
def test_descriptions_that_make_no_sense(entries, said, copied):
    rewrite(copied, **entries)
    with pytest.raises(ValueError, match=said):
        DeepClassifier.load(copied)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_file_has_the_calibrator(classes, tmp_path):
    X, y = ring_table(400)
    y = y if classes == 2 else np.digitize(X[:, 0], [-1, 1])
    model = DeepClassifier(net="mlp", width=4, max_epochs=1, n_jobs=1).fit(X, y, eval_set=(X, y))
    assert model.calibrator_.slope != 1
    model.save(tmp_path)
    described = json.loads((tmp_path / "deep.json").read_text())
    assert (described["format_version"], described["calibrator"]) == (1, model.calibrator_.to_dict())
    again = DeepClassifier.load(tmp_path)
    assert again.calibrator_ == model.calibrator_
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    drop_entry(tmp_path, "calibrator")
    rewrite(tmp_path)
    with pytest.raises(ValueError, match="lacks an entry or has a wrong one: 'calibrator'"):
        DeepClassifier.load(tmp_path)


def logistic(name, factor):
    return from_callable(lambda z, y: factor * torch.nn.functional.softplus((1 - 2 * y) * z), name=name)


# The second name reads as another loss than the function.
@pytest.mark.parametrize("name", ["mine", "erf"])
def test_a_loss_of_a_function_that_lost_is_given_as_its_text(name, tmp_path):
    """So that the nets of the loss that was kept can be saved and loaded."""
    X, y = ring_table(600)
    # So small that no step is taken.
    lost = logistic(name, 1e-12)
    options = {
        "net": "mlp",
        "width": 8,
        "max_epochs": 15,
        "learning_rate": 0.03,
        "random_state": 0,
        "n_jobs": 1,
    }
    model = DeepClassifier([lost, "crossentropy"], **options)
    model.fit(X, y, eval_set=(X, y))
    assert model.loss_ == parse("crossentropy")
    model.save(tmp_path / "first")
    loaded = DeepClassifier.load(tmp_path / "first")
    loaded.save(tmp_path / "second")
    for again in (loaded, DeepClassifier.load(tmp_path / "second")):
        assert again.losses_ == (name, parse("crossentropy"))
        assert again.loss_ == parse("crossentropy")
        assert again.validation_scores_ == model.validation_scores_
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_loss_of_a_function_that_was_kept_cannot_be_saved(tmp_path):
    X, y = ring_table(400)
    model = DeepClassifier(logistic("mine", 1.0), net="mlp", width=8, max_epochs=2, n_jobs=1).fit(X, y)
    with pytest.raises(ValueError, match="the loss mine has no text that can be read back"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_parameters_that_json_does_not_have(saved, tmp_path):
    X, y = ring_table(200)
    model = DeepClassifier(net="mlp", width=4, max_epochs=1, random_state=np.random.RandomState(0)).fit(X, y)
    # A generator has moved on since: what was trained with it is not lost for that.
    model.save(tmp_path / "model")
    loaded = DeepClassifier.load(tmp_path / "model")
    assert loaded.random_state is None
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    with pytest.raises(ValueError, match=r"random_state=.* cannot be written as JSON"):
        model.set_params(random_state=object()).save(tmp_path / "other")


def test_numbers_of_numpy_within_parameters_are_saved(tmp_path):
    X, y = ring_table(200)
    X[:, 1] = X[:, 1] > 0
    options = {"hidden": np.array([4, 4]), "batch_norm": np.False_}
    model = DeepClassifier(
        net="mlp", net_options=options, max_epochs=1, categorical_features=list(np.flatnonzero([0, 1]))
    )
    model.fit(X, y).save(tmp_path / "model")
    loaded = DeepClassifier.load(tmp_path / "model")
    assert loaded.categorical_features == [1]
    assert loaded.net_options == {"hidden": [4, 4], "batch_norm": False}
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))


def test_a_model_that_cannot_be_saved_leaves_the_one_of_before(tmp_path):
    X, y = ring_table(200)
    model = DeepClassifier(net="mlp", width=4, max_epochs=1).fit(X, y)
    model.save(tmp_path / "model")
    other = DeepClassifier(net="mlp", width=4, max_epochs=1, random_state=1).fit(X, y)
    other.n_epochs_ = float("inf")
    with pytest.raises(ValueError, match="JSON"):
        other.save(tmp_path / "model")
    loaded = DeepClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
