"""Models on disk: what comes back, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import expit

from model.model_tables import plain_columns
from raresight.common.calibration import Calibrator
from raresight.common.json_values import digest_of
from raresight.model import Candidate, Member, Model, Policy, fit_candidates, load, policy_at_fpr
from raresight.model.folder import FORMAT_VERSION, MODEL_FILE, POLICIES_FILE
from raresight.model.policies import held_out_sketch
from raresight.tables.schema import Schema, learn_schema
from raresight.tables.splits import read_data

TABLE = pa.table(plain_columns(2000))
SCHEMA = learn_schema(TABLE, "fraud")
# Of nets the plain one, which is fast; tests/deep/test_net_families.py has the others.
FAMILIES = ("linear", "lightgbm", "xgboost", "deep")
PARTS = {
    "linear": ["member-1/linear.json"],
    "lightgbm": ["member-1/lightgbm.txt", "member-1/lightgbm.txt.raresight.json"],
    "xgboost": ["member-1/xgboost.ubj", "member-1/xgboost.ubj.raresight.json"],
    "deep": ["member-1/deep.json", "member-1/deep.safetensors"],
}
FEW = {"linear": (), "deep": (("epochs", 5), ("learning_rate", 0.01), ("width", 32))}
LIBRARIES = {"lightgbm": "lightgbm", "xgboost": "xgboost", "deep": "torch"}
PER_PART = [(family, part) for family in FAMILIES for part in PARTS[family]]


DEFAULT = {"default": Policy("fpr", -1.5, {"fpr": 0.001})}


def fitted_to(family: str, columns: slice = slice(None)):
    """A fitted candidate of all or some of the columns; the last two hold categories."""
    candidate = Candidate(family, "tbl", FEW.get(family, (("n_estimators", 20),)))
    X = SCHEMA.matrix(TABLE)[:, columns]
    kept = range(len(SCHEMA.feature_names))[columns]
    coded = [(kept.index(j), n) for j, n in zip(SCHEMA.categorical, SCHEMA.n_categories) if j in kept]
    categorical, n_categories = [j for j, _ in coded], [n for _, n in coded]
    return fit_candidates([candidate], X, SCHEMA.labels(TABLE), categorical, n_categories)[0]


def make(family: str, **changes) -> Model:
    facts = {"metrics": {"recall": np.float64(0.5), "nothing": float("nan")}, "data": {"fingerprint": "ab12"}}
    return Model.of(SCHEMA, [fitted_to(family)], **{"policies": DEFAULT, "facts": facts} | changes)


def with_threads(model: Model, threads: int) -> Model:
    members = tuple(replace(one, fitted=replace(one.fitted, threads=threads)) for one in model.members)
    return replace(model, members=members)


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> dict[str, tuple[Model, Path]]:
    folder = tmp_path_factory.mktemp("models")
    models = {family: (make(family), folder / family) for family in FAMILIES}
    for model, path in models.values():
        model.save(path)
    return models


@pytest.fixture
def copied(saved, tmp_path):
    """A copy of a saved model that a test may spoil."""

    def copy(family: str) -> Path:
        return Path(shutil.copytree(saved[family][1], tmp_path / family))

    return copy


def rewrite(path: Path, **entries) -> str:
    """Change entries as a newer or another program would, with the digest that belongs to them."""
    described = json.loads(path.read_text()) | entries
    described["description_sha256"] = digest_of(described)
    path.write_text(json.dumps(described))
    return described["description_sha256"]


def rewrite_fit(folder: Path, **entries) -> None:
    """The same for the fitted part, to which the policies then belong."""
    rewrite(folder / POLICIES_FILE, model_sha256=rewrite(folder / MODEL_FILE, **entries))


def rewrite_member(folder: Path, **entries) -> None:
    (member,) = json.loads((folder / MODEL_FILE).read_text())["members"]
    rewrite_fit(folder, members=[member | entries])


@pytest.mark.parametrize("family", FAMILIES)
def test_comes_back_as_it_was(family, saved):
    model, folder = saved[family]
    back = load(folder)
    assert files_in(folder) == sorted([MODEL_FILE, POLICIES_FILE, *PARTS[family]])
    assert np.array_equal(back.log_odds(TABLE), model.log_odds(TABLE))
    assert back.schema == SCHEMA
    assert back.policies == DEFAULT
    assert back.calibrator == model.calibrator
    assert back.facts == {"metrics": {"recall": 0.5, "nothing": None}, "data": {"fingerprint": "ab12"}}
    for mine, theirs in zip(back.members, model.members, strict=True):
        assert mine.fitted.candidate == theirs.fitted.candidate
        assert mine.fitted.start_score == theirs.fitted.start_score
    assert np.array_equal(back.importance(), model.importance())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_description_says_what_the_model_is(family, saved):
    described = json.loads((saved[family][1] / MODEL_FILE).read_text())
    (member,) = described["members"]
    assert member["candidate"]["family"] == family
    assert member["loss"] == "tbl(alpha=0.8,C=0.5)"
    assert {"raresight", "python", "numpy"} <= set(described["versions"])
    assert family == "linear" or any(name.startswith(LIBRARIES[family]) for name in described["versions"])
    assert set(described["parts"]) == set(PARTS[family])
    assert Schema.from_dict(described["schema"]) == SCHEMA


@pytest.mark.parametrize("family", FAMILIES)
def test_tables_of_any_kind_give_the_same(family, saved, tmp_path):
    model = saved[family][0]
    expected = model.log_odds(TABLE)
    assert len(np.unique(expected)) > 100
    frame = pd.DataFrame(TABLE.to_pydict())
    assert np.array_equal(model.log_odds(frame), expected)
    assert np.array_equal(model.log_odds(pl.from_arrow(TABLE)), expected)
    assert np.array_equal(model.log_odds(TABLE.combine_chunks().to_batches()[0]), expected)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert np.array_equal(model.log_odds(tmp_path / "rows.csv"), expected)
    # The target, other columns and the order of columns do not matter.
    assert np.array_equal(model.log_odds(frame[["day", "country", "amount", "score"]]), expected)
    assert np.array_equal(model.probability(TABLE), expit(expected))
    assert np.array_equal(model.alert(TABLE), expected >= -1.5)
    assert 0 < model.alert(TABLE).sum() < 1000


@pytest.mark.parametrize("family", FAMILIES)
def test_large_tables_are_shared_between_cores(family, saved):
    model = saved[family][0]
    columns = plain_columns(40_000, seed=1)
    table = pa.table(columns)
    alone = model.log_odds_of_matrix(SCHEMA.matrix(table))
    for threads in (1, 3):
        assert np.array_equal(with_threads(model, threads).log_odds(table), alone)
    amounts = [str(amount) for amount in columns["amount"]]
    amounts[35_000] = "much"
    with pytest.raises(ValueError, match="column 'amount' holds 'much' in row 35001"):
        with_threads(model, 3).log_odds(pa.table(columns | {"amount": amounts}))


def test_saving_again_replaces_the_model_and_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "inner" / "model"
    make("lightgbm").save(folder)
    make("linear", policies={"default": Policy("fixed", 2.0)}).save(folder)
    assert load(folder).policy().threshold == 2.0
    assert files_in(folder) == ["member-1/linear.json", MODEL_FILE, POLICIES_FILE]
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_what_killed_processes_left_is_removed(tmp_path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = [tmp_path / f".model.{gone.pid}.{suffix}" for suffix in ("unfinished", "replaced")]
    others = tmp_path / f".model.{os.getppid()}.unfinished"  # of a process that is still at work
    for folder in (*left, others):
        folder.mkdir()
        (folder / "part").write_text("half")
    make("linear").save(tmp_path / "model")
    assert {path.name for path in tmp_path.iterdir()} == {"model", others.name}


def test_an_empty_folder_is_taken(tmp_path):
    make("linear").save(tmp_path)
    assert load(tmp_path).policies == DEFAULT


def test_foreign_folders_are_left_alone(tmp_path, copied):
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "chapter.txt").write_text("words")
    with pytest.raises(ValueError, match="is not a model of raresight: choose another folder"):
        make("linear").save(other)
    assert (other / "chapter.txt").read_text() == "words"
    (other / MODEL_FILE).write_text('{"format": "something else"}')
    with pytest.raises(ValueError, match="is not a model of raresight"):
        make("linear").save(other)
    with pytest.raises(ValueError, match="exists and is not a folder"):
        make("linear").save(other / "chapter.txt")
    folder = copied("linear")
    (folder / "notes.txt").write_text("words")
    with pytest.raises(ValueError, match=r"holds notes\.txt, which is not a part of the model"):
        make("linear").save(folder)
    assert files_in(folder) == ["member-1/linear.json", MODEL_FILE, "notes.txt", POLICIES_FILE]
    (folder / "notes.txt").rename(folder / "member-1" / "notes.txt")
    with pytest.raises(ValueError, match=r"holds member-1/notes\.txt, which is not a part of the model"):
        make("linear").save(folder)


def test_a_failed_save_leaves_the_earlier_model(copied):
    folder = copied("linear")
    before = (folder / MODEL_FILE).read_bytes()
    with pytest.raises(TypeError, match=r"facts\.odd holds .*, which cannot be written as JSON"):
        make("linear", facts={"odd": object()}).save(folder)
    assert (folder / MODEL_FILE).read_bytes() == before
    assert [path.name for path in folder.parent.iterdir()] == ["linear"]


@pytest.mark.parametrize(("family", "part"), PER_PART)
def test_missing_changed_and_truncated_parts(family, part, copied):
    path = copied(family) / part
    content = path.read_bytes()
    for spoiled in (content[:-1], content[: len(content) // 2], b"", content[:100] + b"!" + content[101:]):
        path.write_bytes(spoiled)
        with pytest.raises(
            ValueError, match=f"{part} is not the file that was saved: it was changed or truncated"
        ):
            load(path.parents[1])
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{part} is missing"):
        load(path.parents[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_calibrated_model_comes_back(family, saved, tmp_path):
    fitted = fitted_to(family)
    twice = fitted.calibrated(Calibrator(0.5, (-1.0,))).calibrated(Calibrator(3.0))
    moved = Model.of(SCHEMA, [twice])
    moved.save(tmp_path / "moved")
    expected = 1.5 * fitted.log_odds(SCHEMA.matrix(TABLE)) - 3.0
    np.testing.assert_allclose(moved.log_odds(TABLE), expected, rtol=1e-12)
    np.testing.assert_array_equal(moved.log_odds(TABLE), twice.log_odds(SCHEMA.matrix(TABLE)))
    np.testing.assert_array_equal(load(tmp_path / "moved").log_odds(TABLE), moved.log_odds(TABLE))


def test_changed_descriptions(copied):
    folder = copied("linear")
    path = folder / MODEL_FILE
    text = path.read_text()
    path.write_text(text.replace('"recall": 0.5', '"recall": 0.9'))
    with pytest.raises(ValueError, match=r"model\.json is not the file that was saved: it was changed"):
        load(folder)
    path.write_text(text[:-40])
    with pytest.raises(ValueError, match="cannot be read as JSON, it is damaged"):
        load(folder)
    path.write_text("[1, 2]")
    with pytest.raises(ValueError, match="does not describe a model of raresight"):
        load(folder)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"holds no model\.json"):
        load(folder)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load(folder / "nowhere")
    with pytest.raises(FileNotFoundError, match="is a file"):
        load(folder / "member-1" / "linear.json")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"format_version": FORMAT_VERSION + 1}, f"format version {FORMAT_VERSION + 1}.*upgrade raresight"),
        ({"format_version": "1"}, "no format version that makes sense"),
        ({"members": []}, "at least one member"),
        ({"members": None}, "lacks an entry or has a wrong one"),
        ({"parts": {}}, "names no native model file"),
        ({"parts": {"../linear.json": "00"}}, "not a file of the model's folder"),
        ({"calibrator": {"slope": 0.0, "levels": [0.0]}}, "a slope above 0"),
        ({"calibrator": {"slope": -1.0, "levels": [0.0]}}, "a slope above 0"),
        ({"calibrator": {"slope": 1.0, "levels": [0.0, 1.0]}}, "two classes has one level"),
        ({"schema": {"columns": []}}, "no schema of a table"),
    ],
)
def test_descriptions_that_make_no_sense(entries, message, copied):
    folder = copied("linear")
    rewrite_fit(folder, **entries)
    with pytest.raises(ValueError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"candidate": {"family": "copse", "loss": "tbl", "parameters": {}}}, "unknown family 'copse'"),
        ({"start_score": "high"}, r"model\.json lacks an entry or has a wrong one: .*high"),
        ({"n_columns": "../../etc/passwd"}, r"model\.json lacks an entry or has a wrong one"),
        ({"weight": "heavy"}, r"model\.json lacks an entry or has a wrong one"),
        ({"loss": "nonsense"}, "unknown loss 'nonsense'"),
        ({"weight": 0.5}, "weights of the members must sum to one"),
        ({"weight": -1.0}, "must be a number above 0"),
        ({"columns": ["amount"]}, "the schema gives 1 columns, but the linear model was fitted to"),
        ({"columns": [*SCHEMA.feature_names[1:], "shop"]}, "'shop', which the schema does not have"),
        ({"n_columns": 3}, "columns, its description 3"),
    ],
)
def test_members_that_make_no_sense(entries, message, copied):
    folder = copied("linear")
    rewrite_member(folder, **entries)
    with pytest.raises(ValueError, match=message):
        load(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_schema_of_other_columns_is_refused(family, copied):
    folder = copied(family)
    narrow = learn_schema(TABLE.select(["amount", "fraud"]), "fraud")
    rewrite_fit(folder, schema=narrow.to_dict())
    with pytest.raises(ValueError, match=r"the schema gives 1 columns, but the .* was fitted to"):
        load(folder)


# ---- blends ------------------------------------------------------------------------------


def blend_of_two() -> Model:
    """A booster of all columns and a linear model of the last ones, calibrated in different ways."""
    names = SCHEMA.feature_names
    fitted = [fitted_to("lightgbm"), fitted_to("linear", slice(1, None))]
    fitted[1] = fitted[1].calibrated(Calibrator(1.7, (0.3,)))
    return Model.of(
        SCHEMA,
        [fit.calibrated(Calibrator(0.9, (-0.2,))) for fit in fitted],
        weights=[0.7, 0.3],
        columns=[None, names[1:]],
        policies=DEFAULT,
    )


def test_a_blend_is_the_weighted_mean_of_its_members_log_odds():
    X = SCHEMA.matrix(TABLE)
    first, second = fitted_to("lightgbm"), fitted_to("linear", slice(1, None))
    second = second.calibrated(Calibrator(1.7, (0.3,)))
    mean = 0.7 * first.log_odds(X) + 0.3 * second.log_odds(X[:, 1:])
    np.testing.assert_allclose(blend_of_two().log_odds(TABLE), 0.9 * mean - 0.2, rtol=1e-12, atol=1e-12)


def test_a_blend_comes_back_to_the_bit(tmp_path):
    model = blend_of_two()
    model.save(tmp_path / "blend")
    back = load(tmp_path / "blend")
    assert np.array_equal(back.log_odds(TABLE), model.log_odds(TABLE))
    assert np.array_equal(back.importance(), model.importance())
    assert back.importance().sum() == pytest.approx(1.0)
    assert back.calibrator == model.calibrator
    assert [one.weight for one in back.members] == [one.weight for one in model.members]
    assert [one.columns for one in back.members] == [None, SCHEMA.feature_names[1:]]
    assert {"member-1/lightgbm.txt", "member-2/linear.json"} < set(files_in(tmp_path / "blend"))


def model_with_counts(*, seen: bool) -> tuple[Model, pa.Table]:
    """A blend whose second member sees how often a value occurs, or neither does."""
    random = np.random.default_rng(0)
    shops = [f"shop {number}" for number in random.zipf(1.5, 900) % 400]
    table = pa.table({"shop": shops, "amount": random.normal(size=900), "y": random.random(900) < 0.2})
    data = read_data(table, target="y", fpr=0.01, max_fpr=0.1)
    counted = data.with_counts()
    columns = [data.schema.feature_names, (counted if seen else data).schema.feature_names]
    fitted = [
        fit_candidates(
            [Candidate("lightgbm", "crossentropy")],
            counted.X[:, : len(names)],
            data.y,
            data.schema.categorical,
            data.schema.n_categories,
        )[0]
        for names in columns
    ]
    return Model.of(counted.schema, fitted, columns=columns, policies=DEFAULT), table


def test_counts_of_values_come_back(tmp_path):
    model, table = model_with_counts(seen=True)
    model.save(tmp_path / "model")
    assert "values.npz" in files_in(tmp_path / "model")
    back = load(tmp_path / "model")
    assert back.schema == model.schema
    assert back.schema.count_names == ("count of shop",)
    assert np.array_equal(back.log_odds(table), model.log_odds(table))
    path = tmp_path / "model" / "values.npz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"values\.npz is not the file that was saved"):
        load(tmp_path / "model")


def test_a_list_of_values_that_does_not_fit_is_refused(tmp_path):
    folder = tmp_path / "model"
    model_with_counts(seen=True)[0].save(folder)
    schema = json.loads((folder / MODEL_FILE).read_text())["schema"]
    schema["counts"][0]["values"] += 1
    rewrite_fit(folder, schema=schema)
    with pytest.raises(ValueError, match=r"values\.npz is not a complete values file"):
        load(folder)


def test_counts_that_no_member_sees_are_left_out():
    model, _ = model_with_counts(seen=False)
    assert model.schema.counts == ()


def test_members_are_checked():
    fitted = fitted_to("linear")
    with pytest.raises(ValueError, match="no calibrator of its own"):
        Member(fitted)
    with pytest.raises(ValueError, match="at least one member"):
        Model(SCHEMA, ())
    with pytest.raises(ValueError, match="at least one member"):
        Model.of(SCHEMA, [])
    with pytest.raises(ValueError, match=r"must sum to one, got 2\.0"):
        Model.of(SCHEMA, [fitted, fitted], weights=[1.0, 1.0])
    with pytest.raises(ValueError, match="must be a number above 0, got 0"):
        Model.of(SCHEMA, [fitted, fitted], weights=[1.0, 0.0])
    with pytest.raises(ValueError, match="must sum to one"):
        Model(SCHEMA, (Member(replace(fitted, calibrator=Calibrator()), 0.5),))


# ---- what changes after the fit ----------------------------------------------------------


@pytest.fixture(scope="module")
def held_out():
    return held_out_sketch(SCHEMA.labels(TABLE), make("linear").log_odds(TABLE))


def test_policies_are_added_without_a_change_of_the_fit(tmp_path, held_out):
    folder = tmp_path / "model"
    make("linear", held_out=held_out).save(folder)
    before = {name: (folder / name).read_bytes() for name in files_in(folder)}
    model = load(folder)
    careful = policy_at_fpr(model.held_out, 0.05, confidence=0.9)
    model.with_policy("careful", careful).save_policies(folder)
    changed = {name for name, content in before.items() if (folder / name).read_bytes() != content}
    assert changed == {POLICIES_FILE}
    assert files_in(folder) == sorted(before)
    back = load(folder)
    assert back.policies == DEFAULT | {"careful": careful}
    log_odds = back.log_odds(TABLE)
    assert np.array_equal(back.alert(TABLE, "careful"), log_odds >= careful.threshold)
    assert np.array_equal(back.alert(TABLE), log_odds >= -1.5)
    with pytest.raises(ValueError, match="no policy 'night'; it has 'default', 'careful'"):
        back.alert(TABLE, "night")
    assert back.digest == model.digest
    other = tmp_path / "other"
    make("lightgbm").save(other)
    for stranger in (back, make("linear")):
        with pytest.raises(ValueError, match="holds another model than these policies are for"):
            stranger.save_policies(other)
    assert load(other).policies == DEFAULT


def test_the_held_out_sketch_comes_back(tmp_path, held_out):
    make("linear", held_out=held_out).save(tmp_path / "model")
    back = load(tmp_path / "model").held_out
    y, log_odds = SCHEMA.labels(TABLE), make("linear").log_odds(TABLE)
    assert (back.positives, back.negatives, back.exact) == (y.sum(), len(y) - y.sum(), True)
    policy = policy_at_fpr(back, 0.01)
    assert policy.kind == "fpr"
    assert np.mean(log_odds[y == 0] >= policy.threshold) <= 0.01
    assert policy_at_fpr(back, 0.05, confidence=0.95).threshold > policy_at_fpr(back, 0.05).threshold
    path = tmp_path / "model" / "held_out.npz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"held_out\.npz is not the file that was saved"):
        load(tmp_path / "model")


def test_policies_of_another_model_or_tampered_with_are_refused(copied):
    folder = copied("linear")
    path = folder / POLICIES_FILE
    text = path.read_text()
    path.write_text(text.replace('"threshold": -1.5', '"threshold": -9.5'))
    with pytest.raises(ValueError, match=r"policies\.json is not the file that was saved: it was changed"):
        load(folder)
    path.write_text((copied("lightgbm") / POLICIES_FILE).read_text())
    with pytest.raises(ValueError, match="belongs to another model"):
        load(folder)
    path.write_text(text)
    rewrite(path, policies={"default": {"kind": "fpr", "threshold": None, "promise": {"fpr": 0.1}}})
    with pytest.raises(ValueError, match="threshold must be a number"):
        load(folder)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"policies\.json is missing"):
        load(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fpr", float("inf"), {"fpr": 0.1}), "threshold must be finite"),
        (("fpr", 0.0, {"fpr": 1.5}), "fpr must be between 0 and 1"),
        (("fpr", 0.0, {}), "promises fpr"),
        (("fixed", 0.0, {"fpr": 0.1}), "promises no number"),
        (("fpr_bound", 0.0, {"fpr": 0.1}), "promises fpr and confidence"),
        (("luck", 0.0, {}), "unknown kind of policy 'luck'"),
    ],
)
def test_policies_that_make_no_sense(arguments, message):
    with pytest.raises(ValueError, match=message):
        Policy(*arguments)


@pytest.mark.parametrize("family", ["lightgbm", "xgboost"])
def test_a_library_that_is_not_installed_is_named(family, saved):
    script = (
        f"import sys; sys.modules[{family!r}] = None\n"
        "from raresight.model import load\n"
        f"load({str(saved[family][1])!r})"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "ImportError: " in run.stderr
    assert family in run.stderr
    assert "pip install 'raresight[boosting]'" in run.stderr


def test_another_process_scores_alike(saved):
    folders = [str(folder) for _, folder in saved.values()]
    script = (
        "import sys, pyarrow as pa\n"
        "from model.model_tables import plain_columns\n"
        "from raresight.model import load\n"
        "table = pa.table(plain_columns(2000))\n"
        f"for folder in {folders!r}:\n"
        "    sys.stdout.buffer.write(load(folder).log_odds(table).tobytes())"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, env=env)
    expected = np.concatenate([model.log_odds(TABLE) for model, _ in saved.values()])
    assert np.array_equal(np.frombuffer(run.stdout), expected)


def test_categories_that_are_written_otherwise_are_told(saved):
    model = saved["linear"][0]
    frame = pd.DataFrame(TABLE.to_pydict())
    padded = frame.assign(
        country=frame.country.astype(object).where(frame.country.isna(), frame.country + " ")
    )
    for score in (model.log_odds, model.probability, model.alert):
        with pytest.warns(UserWarning, match=r"of the values of 'country' are none that training had"):
            score(padded)
    # A few new ones are no surprise.
    frame.loc[:9, "country"] = "Atlantis"
    assert np.isfinite(model.log_odds(frame)).all()
