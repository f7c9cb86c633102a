"""Models from elsewhere: what a made-up file can do, and what a signature finds."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import random
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from model.model_tables import plain_columns
from raresight.boosting import native_files
from raresight.boosting.native_files import UncheckedModelWarning
from raresight.cli import app
from raresight.common.json_values import digest_of
from raresight.model import Candidate, Model, Policy, fit_candidates, load, sign_model
from raresight.model.families import FAMILIES
from raresight.model.folder import MODEL_FILE, POLICIES_FILE, SIGNATURE_FILE
from raresight.tables.schema import learn_schema

TABLE = pa.table(plain_columns(2000))
SCHEMA = learn_schema(TABLE, "fraud")
BOOSTERS = ("lightgbm", "xgboost")
KEY = b"0123456789abcdef0123456789abcdef"


def make(family: str) -> Model:
    few = {"linear": (), "deep": (("epochs", 1), ("width", 32))}.get(family, (("n_estimators", 5),))
    X, y = SCHEMA.matrix(TABLE), SCHEMA.labels(TABLE)
    fitted = fit_candidates([Candidate(family, "tbl", few)], X, y, SCHEMA.categorical, SCHEMA.n_categories)
    return Model.of(SCHEMA, fitted, policies={"default": Policy("fixed", -1.5)})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for family in ("linear", *BOOSTERS, "deep"):
        make(family).save(folder / family)
    return folder


@pytest.fixture
def copied(saved, tmp_path):
    return lambda family: Path(shutil.copytree(saved / family, tmp_path / family))


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A user of another machine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def children(monkeypatch):
    """The processes that were started."""
    started = []
    run = subprocess.run

    def counted(arguments, **options):
        started.append(arguments)
        return run(arguments, **options)

    monkeypatch.setattr(native_files.subprocess, "run", counted)
    return started


def rewrite(path: Path, **entries) -> str:
    described = json.loads(path.read_text()) | entries
    described["description_sha256"] = digest_of(described)
    path.write_text(json.dumps(described))
    return described["description_sha256"]


def seal(folder: Path, **entries) -> None:
    """Make all digests right, as an attacker would."""
    for family in BOOSTERS:
        native, side = (folder / "member-1" / name for name in FAMILIES[family].files)
        if native.exists() and side.exists():
            rewrite(side, sha256=hashlib.sha256(native.read_bytes()).hexdigest())
    parts = json.loads((folder / MODEL_FILE).read_text())["parts"]
    parts = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() if (folder / name).exists() else digest
        for name, digest in parts.items()
    }
    digest = rewrite(folder / MODEL_FILE, **{"parts": parts} | entries)
    rewrite(folder / POLICIES_FILE, model_sha256=digest)


def native_file(folder: Path, family: str) -> Path:
    return folder / "member-1" / FAMILIES[family].files[0]


# ---- a process of its own reads first -----------------------------------------------------


@pytest.mark.parametrize("family", BOOSTERS)
def test_a_model_from_elsewhere_is_tried_once(family, saved, elsewhere, children):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = load(saved / family)
    assert len(children) == 1
    again = load(saved / family)
    assert len(children) == 1
    assert np.array_equal(first.log_odds(TABLE), again.log_odds(TABLE))


@pytest.mark.parametrize("family", ["linear", *BOOSTERS])
def test_an_own_model_is_not_tried(family, tmp_path, elsewhere, children):
    make(family).save(tmp_path / "model")
    load(tmp_path / "model")
    assert not children


@pytest.mark.parametrize("family", ["linear", "deep"])
def test_a_model_without_a_native_reader_is_not_tried(family, saved, elsewhere, children):
    load(saved / family)
    assert not children


def endless(text: str) -> str:
    """The first split leads back to itself."""
    start = text.index("left_child=") + len("left_child=")
    end = text.index(" ", start)
    return text[:start] + "0" + text[end:]


def far_column(text: str) -> str:
    start = text.index("split_feature=") + len("split_feature=")
    end = text.index(" ", start)
    return text[:start] + "2000000000" + text[end:]


def no_score(text: str) -> str:
    start = text.index("leaf_value=") + len("leaf_value=")
    end = text.index(" ", start)
    return text[:start] + "nan" + text[end:]


def garbled_parameters(text: str) -> str:
    """LightGBM reads beyond the end of a list of one."""
    return text.replace("[objective: custom]", "[objective   custom]")


@pytest.mark.parametrize("change", [endless, far_column, no_score, garbled_parameters])
def test_made_up_trees_and_parameters_are_refused(change, copied):
    folder = copied("lightgbm")
    path = native_file(folder, "lightgbm")
    text = change(path.read_text())
    assert text != path.read_text()
    # Without the sizes of trees, which a change of length would spoil: LightGBM then reads line by line.
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("tree_sizes=")]
    path.write_text("".join(lines))
    seal(folder)
    with pytest.raises(ValueError, match=r"lightgbm\.txt is no sound model file: .*take the model from"):
        load(folder)


@pytest.mark.parametrize("family", BOOSTERS)
def test_sealed_damage_never_harms_this_process(family, copied):
    """Each file is refused by a sentence or scores in a process that ends well."""
    folder = copied(family)
    path = native_file(folder, family)
    content = path.read_bytes()
    draws = random.Random(0)
    survivors = []
    for number in range(12):
        spoiled = bytearray(content)
        place = draws.randrange(len(spoiled))
        how = number % 3
        if how == 0:
            spoiled[place] ^= 1 << draws.randrange(8)
        elif how == 1:
            spoiled[place : place + 4] = b"\xff\xff\xff\x7f"
        else:
            del spoiled[place:]
        path.write_bytes(bytes(spoiled))
        seal(folder)
        try:
            load(folder)
        except ValueError as error:
            assert "\n" not in str(error)  # noqa: PT017
        else:
            survivors.append(shutil.copytree(folder, folder.parent / f"survivor-{number}"))
    script = (
        "import sys, pyarrow as pa\n"
        "from model.model_tables import plain_columns\n"
        "from raresight.model import load\n"
        "table = pa.table(plain_columns(2000))\n"
        "for folder in sys.argv[1:]:\n"
        "    load(folder).log_odds(table)\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", script, *survivors],
        capture_output=True,
        text=True,
        timeout=120,
        env=env,
        check=False,
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import time; time.sleep(60)", "did not end in 1 seconds"),
        ("import os; os.abort()", "its reader crashed"),
    ],
)
def test_a_reader_that_hangs_or_crashes_is_a_refusal(
    program, message, saved, elsewhere, tmp_path, monkeypatch
):
    reader = tmp_path / "reader.py"
    reader.write_text(f"print('begun', flush=True)\n{program}\n")
    monkeypatch.setattr(native_files, "_READER", reader)
    monkeypatch.setattr(native_files, "_SECONDS", 1)
    begun = time.monotonic()
    with pytest.raises(ValueError, match=message):
        load(saved / "lightgbm")
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize("how", ["no interpreter", "frozen", "another program", "no library"])
def test_where_no_process_can_be_started_a_warning_says_so(how, saved, elsewhere, monkeypatch):
    if how == "no interpreter":
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    elif how == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    elif how == "another program":
        monkeypatch.setattr(sys, "executable", "/bin/false")
    else:
        monkeypatch.setitem(native_files._LIBRARIES, "lightgbm", "lightgbm.sklearn")
    with pytest.warns(UncheckedModelWarning, match="Go on only with a model that you trust"):
        load(saved / "lightgbm")


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("family", BOOSTERS)
def test_a_library_that_is_not_installed_is_named(family, saved, monkeypatch):
    monkeypatch.setitem(sys.modules, family, None)
    with pytest.raises(ImportError, match=r"pip install 'raresight\[boosting\]'"):
        load(saved / family)


def test_nothing_is_remembered_where_nothing_can_be_written(saved, monkeypatch, children):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    load(saved / "lightgbm")
    load(saved / "lightgbm")
    assert len(children) == 2


# ---- the parts are those that are read ----------------------------------------------------


def test_a_changed_family_is_refused(copied):
    for family, other in (("lightgbm", "linear"), ("linear", "lightgbm"), ("xgboost", "lightgbm")):
        folder = copied(family)
        (member,) = json.loads((folder / MODEL_FILE).read_text())["members"]
        candidate = {"family": other, "loss": "tbl", "parameters": {}}
        seal(folder, members=[member | {"candidate": candidate}])
        with pytest.raises(
            ValueError, match=r"has no digest of member-1/.*, which its members are read from"
        ):
            load(folder)


def test_a_changed_kind_of_net_is_refused(copied):
    folder = copied("deep")
    (member,) = json.loads((folder / MODEL_FILE).read_text())["members"]
    seal(folder, members=[member | {"candidate": {"family": "tabnet", "loss": "tbl", "parameters": {}}}])
    with pytest.raises(ValueError, match="holds the net 'mlp', but the family tabnet is the net 'tabnet'"):
        load(folder)


def test_weights_in_a_second_file_are_refused(copied):
    folder = copied("deep")
    member = folder / "member-1"
    shutil.copy(member / "deep.safetensors", member / "deep-2.safetensors")
    rewrite(member / "deep.json", weights="deep-2.safetensors")
    seal(folder)
    with pytest.raises(ValueError, match=r"has its weights in another file than deep\.safetensors"):
        load(folder)


def test_parts_are_exactly_the_files_that_are_read(copied):
    folder = copied("lightgbm")
    (folder / "notes.txt").write_text("")
    seal(folder)
    described = json.loads((folder / MODEL_FILE).read_text())
    parts, empty = described["parts"], hashlib.sha256(b"").hexdigest()
    seal(folder, parts=parts | {"notes.txt": empty})
    with pytest.raises(ValueError, match=r"lists notes\.txt, which none of its members is read from"):
        load(folder)
    seal(folder, parts={name: digest for name, digest in parts.items() if name.endswith("json")})
    with pytest.raises(ValueError, match=r"has no digest of member-1/lightgbm\.txt"):
        load(folder)
    (member,) = described["members"]
    shutil.copytree(folder / "member-1", folder.parent / "outside")
    seal(folder, parts=parts, members=[member | {"folder": "../outside"}])
    with pytest.raises(ValueError, match="members in other folders than member-1"):
        load(folder)


@pytest.mark.parametrize("name", [MODEL_FILE, POLICIES_FILE, "member-1/linear.json", "member-1"])
def test_links_and_pipes_are_refused_without_opening_them(name, copied):
    folder = copied("linear")
    path = folder / name
    moved = path.rename(folder.parent / "moved")
    path.symlink_to(moved)
    with pytest.raises(ValueError, match="is a link: copy the model with its files"):
        load(folder)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises((ValueError, FileNotFoundError), match=r"is not a plain file|is missing"):
        load(folder)
    if name == MODEL_FILE:
        with pytest.raises(ValueError, match="is not a model of raresight"):
            make("linear").save(folder)


def test_codes_that_would_fill_the_memory_are_refused(copied):
    folder = copied("linear")
    path = folder / "member-1" / "linear.json"
    text = path.read_text()
    for spoiled in ("[0, 9000000000000000000]", "[1, 0]", "[-5, 0]"):
        described = json.loads(text)
        described["features"]["levels"][0]["codes"] = json.loads(spoiled)
        path.write_text(json.dumps(described))
        seal(folder)
        with pytest.raises(ValueError, match=r"linear\.json is not a linear model"):
            load(folder)


# ---- signatures ---------------------------------------------------------------------------


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "team.key"
    path.write_bytes(KEY + b"\n")
    return path


def test_a_signed_model_is_verified(copied, key_file, elsewhere, children):
    folder = copied("lightgbm")
    assert sign_model(folder, key_file) == folder / SIGNATURE_FILE
    for key in (KEY, key_file, str(key_file)):
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)
        load(folder, verify=key)
    assert not children  # who signed it vouches for its files
    load(folder)
    # Signing is no part of the model: it can be saved over, and the signature goes.
    make("linear").save(folder)
    with pytest.raises(ValueError, match=r"is not signed: it has no signature\.json"):
        load(folder, verify=KEY)


def test_tampering_another_key_and_no_signature_are_told_apart(copied, key_file):
    folder = copied("lightgbm")
    with pytest.raises(ValueError, match="is not signed"):
        load(folder, verify=KEY)
    sign_model(folder, KEY)
    with pytest.raises(ValueError, match="was signed with another key than the one given"):
        load(folder, verify=KEY[::-1])
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def restored():
        for path, content in whole.items():
            path.write_bytes(content)

    seal(folder, calibrator={"slope": 2.0, "levels": [0.0]})
    load(folder)
    with pytest.raises(ValueError, match="is not what was signed: the model or its policies were changed"):
        load(folder, verify=KEY)
    restored()
    rewrite(folder / POLICIES_FILE, policies={"default": Policy("fixed", 99.0).to_dict()})
    with pytest.raises(ValueError, match="is not what was signed"):
        load(folder, verify=KEY)
    restored()
    rewrite(folder / SIGNATURE_FILE, hmac_sha256=None)
    with pytest.raises(ValueError, match="is not what was signed"):
        load(folder, verify=KEY)
    restored()
    load(folder, verify=KEY)
    changed = load(folder).with_policy("night", Policy("fixed", 1.0))
    changed.save_policies(folder)
    with pytest.raises(ValueError, match="is not what was signed"):
        load(folder, verify=KEY)
    sign_model(folder, KEY)
    assert "night" in load(folder, verify=KEY).policies


def test_comparison_is_in_constant_time(copied, monkeypatch):
    folder = copied("linear")
    sign_model(folder, KEY)
    compared = []

    def watched(a, b):
        compared.append((a, b))
        return hmac_compare(a, b)

    hmac_compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", watched)
    load(folder, verify=KEY)
    assert len(compared) == 2


def test_keys_that_are_none(copied, tmp_path, monkeypatch):
    folder = copied("linear")
    monkeypatch.delenv("RARESIGHT_KEY", raising=False)
    with pytest.raises(ValueError, match="there is no key: give the file that holds it, or set"):
        sign_model(folder)
    with pytest.raises(FileNotFoundError):
        sign_model(folder, tmp_path / "no.key")
    os.mkfifo(tmp_path / "pipe.key")
    with pytest.raises(ValueError, match=r"pipe\.key is not a regular file but a pipe"):
        sign_model(folder, tmp_path / "pipe.key")
    with pytest.raises(ValueError, match="is not a regular file but a folder"):
        sign_model(folder, tmp_path)
    for content in (b"", b"short", b"x" * (1 << 17)):
        (tmp_path / "bad.key").write_bytes(content)
        with pytest.raises(ValueError, match=r"bad\.key must hold 16 to"):
            sign_model(folder, tmp_path / "bad.key")
    monkeypatch.setenv("RARESIGHT_KEY", KEY.decode())
    with pytest.raises(ValueError, match="there is no key"):
        load(folder, verify="")


def test_the_commands_sign_and_verify(copied, key_file, tmp_path, monkeypatch):
    folder = copied("linear")
    monkeypatch.delenv("RARESIGHT_KEY", raising=False)

    def command(*arguments):
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    rows = tmp_path / "rows.parquet"
    pq.write_table(TABLE, rows)
    score = ("score", folder, rows, "--out", tmp_path / "scores.csv", "--quiet")
    assert command("sign", folder, "--key-file", key_file).exit_code == 0
    for arguments in (("show", folder), ("show", folder, "--json"), score):
        assert command(*arguments, "--verify", key_file).exit_code == 0
    other = tmp_path / "other.key"
    other.write_bytes(KEY[::-1])
    for arguments in (("show", folder), ("show", folder, "--json"), score):
        assert "signed with another key" in str(command(*arguments, "--verify", other).exception)
        monkeypatch.setenv("RARESIGHT_KEY", KEY[::-1].decode())
        assert "signed with another key" in str(command(*arguments).exception)
        monkeypatch.setenv("RARESIGHT_KEY", KEY.decode())
        assert command(*arguments).exit_code == 0
        monkeypatch.delenv("RARESIGHT_KEY")
