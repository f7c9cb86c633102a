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
from raresight.model.candidate import Candidate
from raresight.model.families import fit_candidates
from raresight.model.folder import FORMAT_VERSION, MODEL_FILE, Model, load
from raresight.tables.schema import Schema, learn_schema

TABLE = pa.table(plain_columns(2000))
SCHEMA = learn_schema(TABLE, "fraud")
# Of nets the plain one, which is fast; tests/deep/test_net_families.py has the others.
FAMILIES = ("linear", "lightgbm", "xgboost", "deep")
PARTS = {
    "linear": ["linear.json"],
    "lightgbm": ["lightgbm.txt", "lightgbm.txt.raresight.json"],
    "xgboost": ["xgboost.ubj", "xgboost.ubj.raresight.json"],
    "deep": ["deep.json", "deep.safetensors"],
}
FEW = {"linear": (), "deep": (("epochs", 5), ("learning_rate", 0.01), ("width", 32))}
LIBRARIES = {"lightgbm": "lightgbm", "xgboost": "xgboost", "deep": "torch"}
PER_PART = [(family, part) for family in FAMILIES for part in PARTS[family]]


def make(family: str, **changes) -> Model:
    candidate = Candidate(family, "tbl", FEW.get(family, (("n_estimators", 20),)))
    X, y = SCHEMA.matrix(TABLE), SCHEMA.labels(TABLE)
    (fitted,) = fit_candidates([candidate], X, y, SCHEMA.categorical, SCHEMA.n_categories)
    facts = {"metrics": {"recall": np.float64(0.5), "nothing": float("nan")}, "data": {"fingerprint": "ab12"}}
    return Model(
        **{"schema": SCHEMA, "fitted": fitted, "threshold": -1.5, "fpr": 0.001, "facts": facts} | changes
    )


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


def rewrite(folder: Path, **entries) -> None:
    """Change entries as a newer or another program would, with the digest that belongs to them."""
    path = folder / MODEL_FILE
    described = json.loads(path.read_text()) | entries
    described["description_sha256"] = digest_of(described)
    path.write_text(json.dumps(described))


@pytest.mark.parametrize("family", FAMILIES)
def test_comes_back_as_it_was(family, saved):
    model, folder = saved[family]
    back = load(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted([MODEL_FILE, *PARTS[family]])
    assert np.array_equal(back.log_odds(TABLE), model.log_odds(TABLE))
    assert back.schema == SCHEMA
    assert (back.threshold, back.fpr) == (-1.5, 0.001)
    assert back.facts == {"metrics": {"recall": 0.5, "nothing": None}, "data": {"fingerprint": "ab12"}}
    assert back.fitted.candidate == model.fitted.candidate
    assert back.fitted.start_score == model.fitted.start_score
    assert np.array_equal(back.fitted.importance(), model.fitted.importance())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_description_says_what_the_model_is(family, saved):
    described = json.loads((saved[family][1] / MODEL_FILE).read_text())
    assert described["family"] == family
    assert described["loss"] == "tbl(alpha=0.8,C=0.5)"
    assert "inverse link of tbl(alpha=0.8,C=0.5)" in described["link"]
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
    alone = model.fitted.log_odds(SCHEMA.matrix(table))
    for threads in (1, 3):
        shared = replace(model, fitted=replace(model.fitted, threads=threads))
        assert np.array_equal(shared.log_odds(table), alone)
    amounts = [str(amount) for amount in columns["amount"]]
    amounts[35_000] = "much"
    with pytest.raises(ValueError, match="column 'amount' holds 'much' in row 35001"):
        replace(model, fitted=replace(model.fitted, threads=3)).log_odds(
            pa.table(columns | {"amount": amounts})
        )


def test_saving_again_replaces_the_model_and_leaves_nothing_behind(tmp_path):
    folder = tmp_path / "inner" / "model"
    make("lightgbm").save(folder)
    make("linear", threshold=2.0).save(folder)
    assert load(folder).threshold == 2.0
    assert sorted(path.name for path in folder.iterdir()) == ["linear.json", MODEL_FILE]
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
    assert load(tmp_path).fpr == 0.001


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
    assert sorted(path.name for path in folder.iterdir()) == ["linear.json", MODEL_FILE, "notes.txt"]


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
            load(path.parent)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"{part} is missing"):
        load(path.parent)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_calibrated_model_comes_back(family, saved, tmp_path):
    model = saved[family][0]
    moved = replace(
        model, fitted=model.fitted.calibrated(Calibrator(0.5, (-1.0,))).calibrated(Calibrator(3.0))
    )
    moved.save(tmp_path / "moved")
    expected = 1.5 * model.log_odds(TABLE) - 3.0
    np.testing.assert_allclose(moved.log_odds(TABLE), expected, rtol=1e-12)
    np.testing.assert_array_equal(load(tmp_path / "moved").log_odds(TABLE), moved.log_odds(TABLE))


def test_changed_descriptions(copied):
    folder = copied("linear")
    path = folder / MODEL_FILE
    text = path.read_text()
    path.write_text(text.replace('"threshold": -1.5', '"threshold": -9.5'))
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
        load(folder / "linear.json")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"format_version": FORMAT_VERSION + 1}, f"format version {FORMAT_VERSION + 1}.*upgrade raresight"),
        ({"format_version": "1"}, "no format version that makes sense"),
        ({"family": "forest"}, "family 'forest', unknown to this raresight"),
        ({"parts": {}}, "names no native model file"),
        ({"parts": {"../linear.json": "00"}}, "not a file of the model's folder"),
        ({"threshold": None}, "lacks or garbles an entry"),
        ({"start_score": "high"}, "high"),
        ({"calibrator": {"slope": 0.0, "levels": [0.0]}}, "a slope above 0"),
        ({"calibrator": {"slope": -1.0, "levels": [0.0]}}, "a slope above 0"),
        ({"schema": {"columns": []}}, "no schema of a table"),
        ({"loss": "nonsense"}, "unknown loss 'nonsense'"),
    ],
)
def test_descriptions_that_make_no_sense(entries, message, copied):
    folder = copied("linear")
    rewrite(folder, **entries)
    with pytest.raises(ValueError, match=message):
        load(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_schema_of_other_columns_is_refused(family, copied):
    folder = copied(family)
    narrow = learn_schema(TABLE.select(["amount", "fraud"]), "fraud")
    rewrite(folder, schema=narrow.to_dict())
    with pytest.raises(ValueError, match=r"the schema gives 1 columns, but the .* was fitted to"):
        load(folder)
    rewrite(folder, schema=SCHEMA.to_dict(), n_columns=3)
    with pytest.raises(ValueError, match="columns, its description 3"):
        load(folder)


def test_numbers_that_are_none_are_refused():
    with pytest.raises(ValueError, match="threshold must be finite"):
        make("linear", threshold=float("inf"))
    with pytest.raises(ValueError, match="fpr must be between 0 and 1"):
        make("linear", fpr=1.5)


@pytest.mark.parametrize("family", ["lightgbm", "xgboost"])
def test_a_library_that_is_not_installed_is_named(family, saved):
    script = (
        f"import sys; sys.modules[{family!r}] = None\n"
        "from raresight.model.folder import load\n"
        f"load({str(saved[family][1])!r})"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert f"ImportError: {family} is not installed: pip install 'raresight[boosting]'" in run.stderr


def test_another_process_scores_alike(saved):
    folders = [str(folder) for _, folder in saved.values()]
    script = (
        "import sys, pyarrow as pa\n"
        "from model.model_tables import plain_columns\n"
        "from raresight.model.folder import load\n"
        "table = pa.table(plain_columns(2000))\n"
        f"for folder in {folders!r}:\n"
        "    sys.stdout.buffer.write(load(folder).log_odds(table).tobytes())"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, cwd=Path(__file__).parents[1]
    )
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
