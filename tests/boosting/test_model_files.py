"""Saving and loading: equal predictions, and files that are refused with the reason."""

from __future__ import annotations

import hashlib
import json
import subprocess

import numpy as np
import pytest

from boosting.boosting_tables import rare_table
from raresight.boosting import LightGBMClassifier, XGBoostClassifier, native_files
from raresight.common.json_values import digest_of
from raresight.losses import ClassWeighted, LogitAdjusted
from raresight.metrics.eval_metrics import lightgbm_metric, xgboost_metric

X, Y = rare_table(1500, 0.1)
NAMES = {XGBoostClassifier: "model.json", LightGBMClassifier: "model.txt"}
both = pytest.mark.parametrize("kind", list(NAMES))


def fitted(kind, labels=Y, **parameters):
    return kind("tbl", n_estimators=5, n_jobs=1, **parameters).fit(X, labels)


def saved(kind, folder):
    path = folder / NAMES[kind]
    fitted(kind).save(path)
    return path, folder / (path.name + ".raresight.json")


def signed(description):
    return json.dumps(description | {"description_sha256": digest_of(description)})


@both
@pytest.mark.parametrize(
    "labels",
    [Y, Y.astype(bool), np.array(["no", "yes"])[Y], np.array(["no", "yes"], dtype=object)[Y], Y + 1.0],
    ids=["int", "bool", "text", "object", "float"],
)
def test_round_trip(kind, labels, tmp_path):
    model = fitted(kind, labels, max_depth=3)
    model.save(tmp_path / NAMES[kind])
    loaded = kind.load(tmp_path / NAMES[kind])
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.get_params() == model.get_params()
    assert loaded.start_score_ == model.start_score_
    np.testing.assert_array_equal(loaded.feature_importances_, model.feature_importances_)


@both
def test_round_trip_of_classes_metrics_and_compositions(kind, tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.choice(["a", "b", "c"], len(X), p=[0.8, 0.15, 0.05])
    model = kind("tbl", n_estimators=4, n_jobs=1).fit(X, labels)
    model.save(tmp_path / NAMES[kind])
    np.testing.assert_array_equal(kind.load(tmp_path / NAMES[kind]).predict_proba(X), model.predict_proba(X))
    metric = (xgboost_metric if kind is XGBoostClassifier else lightgbm_metric)("recall_at_fpr", fpr=0.02)
    loss = ClassWeighted(LogitAdjusted(model.loss_, 0.1), (1.0, 3.0))
    stopped = kind(loss, n_estimators=30, n_jobs=1, early_stopping_rounds=3, eval_metric=metric)
    stopped.fit(X, Y, eval_set=[(X, Y)])
    stopped.save(tmp_path / NAMES[kind])
    loaded = kind.load(tmp_path / NAMES[kind])
    assert loaded.loss_ == loss
    assert loaded.best_iteration_ == stopped.best_iteration_
    assert loaded.evals_result_ == stopped.evals_result_
    assert loaded.eval_metric.params == {"fpr": 0.02}
    np.testing.assert_array_equal(loaded.predict_proba(X), stopped.predict_proba(X))
    loaded.fit(X, Y, eval_set=[(X, Y)])  # the parameters are whole, too


def test_xgboost_writes_ubj(tmp_path):
    model = fitted(XGBoostClassifier)
    model.save(tmp_path / "model.ubj")
    np.testing.assert_array_equal(
        XGBoostClassifier.load(tmp_path / "model.ubj").predict_proba(X), model.predict_proba(X)
    )


@both
def test_no_pickle_on_disk(kind, tmp_path):
    path, side = saved(kind, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([path.name, side.name])
    description = json.loads(side.read_text())
    assert description["loss"] == "tbl(alpha=0.8,C=0.5)"
    assert description["library"] in ("xgboost", "lightgbm")
    text = path.read_text()
    assert text.startswith("{" if kind is XGBoostClassifier else "tree")


@both
def test_damaged_files_are_refused(kind, tmp_path):
    path, side = saved(kind, tmp_path)
    content, text = path.read_bytes(), side.read_text()

    def refuse(message, error=ValueError):
        with pytest.raises(error, match=message):
            kind.load(path)
        path.write_bytes(content)
        side.write_text(text)

    path.write_bytes(content[:-20])
    refuse("changed or truncated")
    path.write_bytes(content.replace(b"1", b"2", 1))
    refuse("changed or truncated")
    side.write_text(text[:-10])
    refuse("damaged")
    side.write_text("[]")
    refuse("not a side-file")
    described = json.loads(text)
    side.write_text(json.dumps(described | {"format_version": 2}))
    refuse("format version 2, this raresight reads up to 1")
    side.write_text(json.dumps(described | {"library": "catboost"}))
    refuse("a model of catboost, not of")
    side.write_text(json.dumps({key: value for key, value in described.items() if key != "classes"}))
    refuse("changed since")
    side.write_text(signed({key: value for key, value in described.items() if key != "classes"}))
    refuse("lacks an entry or has a wrong one: 'classes'")
    side.unlink()
    refuse("does not exist", FileNotFoundError)
    kind.load(path)  # whole again


EDITS = {
    "loss": "focal",
    "classes": {"dtype": "<i8", "values": [0, 2]},
    "categories": {"0": {"dtype": "str", "values": ["a", "b"]}},
    "parameters": {"loss": "tbl", "n_estimators": 7},
    "calibrator": {"slope": 1.0, "levels": [1.0]},
    "trained_on_sparse": True,
}


@both
def test_an_edited_side_file_is_refused(kind, tmp_path):
    path, side = saved(kind, tmp_path)
    described = json.loads(side.read_text())
    for name, value in EDITS.items():
        assert described[name] != value
        side.write_text(json.dumps(described | {name: value}))
        with pytest.raises(ValueError, match=r"raresight\.json is not the file .*: it was changed"):
            kind.load(path)
    for version in (-5, True, 0, 1.0, "1"):
        side.write_text(signed(described | {"format_version": version}))
        with pytest.raises(ValueError, match="format version"):
            kind.load(path)
    side.write_text(json.dumps(dict(reversed(described.items()))))  # the same entries
    kind.load(path)


@both
@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"loss": "tble"}, "did you mean 'tbl'"),
        ({"classes": {"dtype": "<i8", "values": [0]}}, "at least 2"),
        ({"classes": {"dtype": "<i8", "values": [0, 1, 2]}}, "start_score must be a list of 3"),
        ({"start_score": [float("nan")]}, "start_score must hold finite numbers"),
        (
            {"calibrator": {"slope": 1.0, "levels": [0.0, 0.0]}},
            "levels of .* must be a list of 1",
        ),
        (
            {"calibrator": {"slope": 1.0, "levels": ["0"]}},
            "levels of .* must hold finite numbers",
        ),
        ({"calibrator": {"slope": 0.0, "levels": [0.0]}}, "a slope above 0"),
        ({"n_features": 0}, "n_features must be"),
        ({"feature_names": ["a"]}, "1 feature_names for 6"),
        ({"categories": {"6": {"dtype": "str", "values": ["a"]}}}, "column 6 of 6"),
        ({"trained_on_sparse": 1}, "trained_on_sparse must be"),
    ],
)
def test_a_side_file_that_contradicts_itself_is_refused(kind, edit, message, tmp_path):
    """The digest is right: whoever wrote this file did not write what `load` needs."""
    path, side = saved(kind, tmp_path)
    side.write_text(signed(json.loads(side.read_text()) | edit))
    with pytest.raises(ValueError, match=rf"raresight\.json lacks an entry or has a wrong one: .*{message}"):
        kind.load(path)


def test_models_of_the_other_library_are_refused(tmp_path):
    path, _ = saved(XGBoostClassifier, tmp_path)
    with pytest.raises(ValueError, match="a model of xgboost, not of lightgbm"):
        LightGBMClassifier.load(path)


@both
def test_what_cannot_be_saved_is_said(kind, tmp_path):
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        fitted(kind).set_params(random_state=object()).save(tmp_path / NAMES[kind])
    assert not list(tmp_path.iterdir())
    # A generator has moved on since: the model is saved without it.
    model = fitted(kind, random_state=np.random.RandomState(0))
    model.save(tmp_path / NAMES[kind])
    assert kind.load(tmp_path / NAMES[kind]).random_state is None
    (tmp_path / NAMES[kind]).unlink()
    wrong = tmp_path / ("model.txt" if kind is XGBoostClassifier else "model.json")
    with pytest.raises(ValueError, match="writes"):
        fitted(kind).save(wrong)


def test_a_loss_from_a_function_cannot_be_saved(tmp_path):
    torch = pytest.importorskip("torch")
    from raresight.losses import from_callable

    loss = from_callable(lambda z, y: torch.nn.functional.softplus((1 - 2 * y) * z), name="mine")
    model = XGBoostClassifier(loss, n_estimators=2, n_jobs=1).fit(X, Y)
    assert model.predict_proba(X)[:, 1].mean() == pytest.approx(Y.mean(), rel=1e-3)
    with pytest.raises(ValueError, match="no text that can be read back"):
        model.save(tmp_path / "model.json")


# ---- files that were made to do harm ------------------------------------------------------


def with_line(name, value):
    """Set the first number of the first line of this name; LightGBM then crashes or never comes back."""

    def change(content):
        head, rest = content.decode().split(f"{name}=", 1)
        # Without the sizes of trees, which a change of length would spoil: LightGBM then reads line by line.
        text = f"{head}{name}={value} {rest.split(' ', 1)[1]}"
        return "".join(ln for ln in text.splitlines(keepends=True) if not ln.startswith("tree_sizes="))

    return change


def with_node(name, node, value):
    """Set an entry of a node of XGBoost's first tree."""

    def change(content):
        model = json.loads(content)
        model["learner"]["gradient_booster"]["model"]["trees"][0][name][node] = value
        return json.dumps(model)

    return change


CRAFTED = [
    (LightGBMClassifier, with_line("left_child", 0)),
    (LightGBMClassifier, with_line("left_child", 20_000_000)),
    (LightGBMClassifier, with_line("split_feature", 2_000_000_000)),
    (XGBoostClassifier, with_node("left_children", 0, 1_000_000)),
    (XGBoostClassifier, with_node("parents", 1, 99_999_999)),
    (XGBoostClassifier, with_node("split_indices", 0, 2_000_000)),
]


@pytest.mark.parametrize(("kind", "change"), CRAFTED)
@pytest.mark.parametrize("labels", [Y, Y + (X[:, 1] > 1)], ids=["two classes", "three classes"])
def test_a_file_that_would_crash_the_library_is_refused(kind, change, labels, tmp_path):
    path = tmp_path / NAMES[kind]
    fitted(kind, labels).save(path)
    path.write_text(change(path.read_bytes()))
    side = path.with_name(path.name + ".raresight.json")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    side.write_text(signed(json.loads(side.read_text()) | {"sha256": digest}))
    with pytest.raises(ValueError, match=r"is no sound model file: .*take the model from where"):
        kind.load(path)


KINDS = [
    (LightGBMClassifier, {"boosting": "dart"}),
    (XGBoostClassifier, {"booster": "dart"}),
    (XGBoostClassifier, {"num_parallel_tree": 2}),
]


@pytest.mark.parametrize(("kind", "native"), [(kind, {}) for kind in NAMES] + KINDS)
@pytest.mark.parametrize("labels", [Y, Y + (X[:, 1] > 1)], ids=["two classes", "three classes"])
def test_a_file_from_elsewhere_is_tried_once(kind, native, labels, tmp_path, monkeypatch):
    started = []
    run = subprocess.run

    def counted(arguments, **options):
        started.append(arguments)
        return run(arguments, **options)

    monkeypatch.setattr(native_files.subprocess, "run", counted)
    path = tmp_path / NAMES[kind]
    model = fitted(kind, labels, **native)
    model.save(path)
    kind.load(path)  # this user wrote it
    assert not started
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for _ in range(2):
        np.testing.assert_array_equal(kind.load(path).predict_proba(X), model.predict_proba(X))
    assert len(started) == 1
