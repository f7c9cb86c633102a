"""Commands with hostile input, each made from a kind and a seed.

A case writes its files into a folder and returns the arguments of one command. What is random comes from the
seed alone, so that a case that failed can be run again: `python tests/fuzz/fuzz.py --case tables:17`.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import random
import shutil
import sqlite3
import string
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq

from raresight.common.json_values import digest_of

ROWS = 300
FAST = ["--trials", "1", "--families", "linear", "--losses", "crossentropy", "--jobs", "1", "--quiet"]

NUMBERS = [
    "0", "-0", "1e-320", "1e308", "1e999", "-1e999", "nan", "inf", "-inf", "1,5", "1.500,25", "0x10", "1_000",
    "9007199254740993", "18446744073709551615", "18446744073709551616", "-9223372036854775809", "00123",
    "01234", "1e5", "12%", "$3", "٣", "½", "1 000", "+-1", ".", "1e", "--", "1e-5000",
]  # fmt: skip
DATES = [
    "2021-01-01", "2020/01/01", "01-Apr-2021", "31.12.99", "20210101", "12/31/2021 11:59 PM", "2021-02-30",
    "0000-00-00", "9999-12-31T23:59:59.999999999Z", "1969-12-31 23:59:59", "2021-W01-1", "1e10", "24:00",
]  # fmt: skip
TEXTS = [
    "", " ", "NA", "null", "None", "NaN", "?", "yes", "no", "TRUE", "f", "é", "e\u0301", "🎯", "a\x00b",
    "a\nb", 'a"b', "a,b", "a;b", "\ufeffx", "\u202eabc", "x" * 5000, "=1+1", "<script>alert(1)</script>",
    "[bold]", "{0}", "%s", "\\", "'", "\r", "\t", "\x1b[31m",
]  # fmt: skip
NAMES = [
    "a",
    "b",
    "",
    " ",
    "label",
    "Label",
    "x\ny",
    "amount",
    "when",
    "shop",
    "é",
    "🎯",
    "[red]",
    "index",
    "__len__",
    "a" * 300,
    "1",
    "%",
    '"',
]


@dataclass(frozen=True)
class Case:
    """One command: a kind and a seed."""

    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}"


@dataclass(frozen=True)
class Fixtures:
    """What cases start from, made once by the command itself.

    Attributes:
        models: Folders of finished runs, one a family.
        cut: The folder of a run that was killed in its search.
        table: The table of all.
        outcome: What the run that was killed would have found.
    """

    models: tuple[Path, ...]
    cut: Path
    table: Path
    outcome: Any


def make_case(case: Case, folder: Path, fixtures: Fixtures) -> list[str]:
    """Write the files of a case; returns the arguments of its command."""
    digest = hashlib.sha256(str(case).encode()).digest()
    draw = random.Random(int.from_bytes(digest[:8], "big"))
    return KINDS[case.kind](draw, folder, fixtures)


# ---- tables ------------------------------------------------------------------------------------


def hostile_table(draw: random.Random, rows: int | None = None) -> pa.Table:
    """A few columns that tell something of the label, and some as no reader expects them."""
    n = rows or draw.choice([0, 1, 30, *[ROWS] * 20, 2 * ROWS])
    numbers = np.random.default_rng(draw.randrange(2**32))
    y = (numbers.random(n) < draw.choice([0.0, 0.02, *[0.1] * 9, 0.3, 1.0])).astype(np.int64)
    columns: list[tuple[str, pa.Array]] = [
        ("a", pa.array(numbers.normal(size=n) + 2 * y)),
        ("b", pa.array(numbers.normal(size=n) - y)),
    ]
    for _ in range(draw.randrange(5)):
        free = [name for name in NAMES if name not in [taken for taken, _ in columns]]
        name = draw.choice(NAMES if draw.random() < 0.03 else free)
        columns.append((name, _hostile_column(draw, numbers, n)))
    columns.append(("label", _hostile_label(draw, y)))
    draw.shuffle(columns)
    return pa.Table.from_arrays([array for _, array in columns], names=[name for name, _ in columns])


def _hostile_column(draw: random.Random, numbers: np.random.Generator, n: int) -> pa.Array:
    def texts(choices: list[str], plain: str) -> pa.Array:
        rare = draw.random() * 0.2
        return pa.array(
            [draw.choice(choices) if draw.random() < rare else f"{plain}{i % 7}" for i in range(n)]
        )

    integers = numbers.integers(-(2**62), 2**62, n)
    makers: list[Callable[[], pa.Array]] = [
        lambda: texts(NUMBERS, draw.choice(["", "1.", "1,", "0", "1e", "2021010"])),
        lambda: pa.array([draw.choice(NUMBERS) for _ in range(n)]),
        lambda: texts(DATES, "2021-01-0"),
        lambda: pa.array([draw.choice(DATES) for _ in range(n)]),
        lambda: texts(TEXTS, "shop"),
        lambda: pa.array([draw.choice(TEXTS) for _ in range(n)]),
        lambda: pa.array(numbers.choice([0.0, np.inf, -np.inf, np.nan, 1e308, 5e-324], n)),
        lambda: pa.array(integers),
        lambda: pa.array(integers.astype(np.uint64) + np.uint64(2**63)),
        lambda: pa.array(integers % 10**13, pa.duration("s")),
        lambda: pa.array(integers, pa.timestamp(draw.choice(["s", "ms", "us", "ns"]))),
        lambda: pa.array((integers % 86400).astype(np.int32), pa.time32("s")),
        lambda: pa.array((integers % 40000).astype(np.int32), pa.date32()),
        lambda: pa.array([None] * n, draw.choice([pa.null(), pa.float64(), pa.string(), pa.bool_()])),
        lambda: pa.array([[1, 2]] * n),
        lambda: pa.array([{"x": 1}] * n),
        lambda: pa.array([b"\xff\x00"] * n),
        lambda: pa.array(integers % 3 == 0),
        lambda: pa.array([str(i % 5) for i in range(n)]).dictionary_encode(),
        lambda: pa.array([f"id{i}" for i in range(n)]),
        lambda: pa.array([draw.choice(["x", None]) for _ in range(n)]),
        lambda: pa.array((integers % 1000).astype(np.int64)).cast(pa.decimal128(38, 10)),
        lambda: pa.array(numbers.normal(size=n).astype(np.float16)),
    ]
    return draw.choice(makers)()


def _hostile_label(draw: random.Random, y: np.ndarray[Any, Any]) -> pa.Array:
    makers: list[Callable[[], pa.Array]] = [
        *[lambda: pa.array(y)] * 20,
        lambda: pa.array(y == 1),
        lambda: pa.array(np.where(y == 1, "yes", "no")),
        lambda: pa.array(y + 2**53),
        lambda: pa.array(np.where(y == 1, 2.0**53, 2.0**53 + 2)),
        lambda: pa.array([None if draw.random() < 0.01 else int(v) for v in y], pa.int64()),
        lambda: pa.array(np.where(y == 1, "1", draw.choice(TEXTS + NUMBERS))),
        lambda: pa.array(np.where(y == 1, np.nan, 0.0)),
        lambda: pa.array([str(draw.randrange(3)) for _ in y]),
    ]
    return draw.choice(makers)()


def _csv_text(draw: random.Random, table: pa.Table) -> bytes:
    """CSV as programs write it: any delimiter, quotes that are needed or not, an encoding, ragged rows."""
    mark = draw.choice([",", ";", "\t", "|"])
    end = draw.choice(["\n", "\n", "\r\n", "\r"])
    quoted, careful = draw.random() < 0.5, draw.random() < 0.9

    def cell(value: Any) -> str:
        text = "" if value is None else str(value)
        must = any(sign in text for sign in (mark, '"', "\n", "\r"))
        return '"' + text.replace('"', '""') + '"' if quoted or (must and careful) else text

    rows = zip(*map(_values, table.columns), strict=True)
    lines = [mark.join(map(cell, table.column_names)), *(mark.join(map(cell, row)) for row in rows)]
    if draw.random() < 0.15:
        lines.insert(draw.randrange(len(lines) + 1), draw.choice(["", mark * 30, '"', "# a comment", "\x00"]))
    text = end.join(lines) + draw.choice(["", end])
    encoding = draw.choice([*["utf-8"] * 8, "utf-8-sig", "utf-16", "latin-1", "cp1252"])
    return text.encode(encoding, errors="replace")


def _values(column: pa.ChunkedArray) -> list[Any]:
    """As Python values; times that Python cannot hold are whole numbers."""
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return list(column.cast(pa.int64()).to_pylist())


def write_table(draw: random.Random, table: pa.Table, folder: Path) -> Path:
    """The table in some format, compressed or not, as a file or as a folder of parts."""
    kind = draw.choice(
        ["csv", "csv", "csv", "parquet", "parquet", "arrow", "stream", "feather", "sqlite", "parts"]
    )
    path = folder / f"table.{draw.choice([kind, kind, 'csv', 'dat'])}"
    try:
        if kind == "csv":
            path.write_bytes(_csv_text(draw, table))
        elif kind == "parquet":
            pq.write_table(table, path, compression=draw.choice(["none", "snappy", "zstd", "gzip"]))
        elif kind == "arrow":
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=draw.choice([7, 1000]))
        elif kind == "stream":
            with pa.ipc.new_stream(path, table.schema) as stream:
                stream.write_table(table)
        elif kind == "feather":
            pa.feather.write_feather(table, path)
        elif kind == "sqlite":
            _write_sqlite(table, path)
        else:
            path.mkdir()
            for i in range(draw.randrange(1, 4)):
                pq.write_table(table.slice(i * 100, 100), path / f"part-{i}.parquet")
            if draw.random() < 0.3:
                (path / draw.choice(["_SUCCESS", "notes.txt", "part-9.parquet"])).write_bytes(b"x")
    except (pa.ArrowException, sqlite3.Error, OverflowError, ValueError):
        # What a format cannot hold goes into another one.
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(_csv_text(draw, table))
    if path.is_file() and draw.random() < 0.2:
        _compress(draw, path)
    return path


def _write_sqlite(table: pa.Table, path: Path) -> None:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as base:
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in table.column_names)
        base.execute(f"CREATE TABLE t ({names})")
        marks = ", ".join("?" * table.num_columns)
        rows = zip(*map(_values, table.columns), strict=True)
        texts = (
            [v if isinstance(v, int | float | str | bytes | None) else str(v) for v in row] for row in rows
        )
        base.executemany(f"INSERT INTO t VALUES ({marks})", texts)
    base.close()


def _compress(draw: random.Random, path: Path) -> None:
    content = path.read_bytes()
    kind = draw.choice(["gzip", "bz2", "xz", "zip"])
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for i in range(draw.choice([1, 1, 1, 0, 2])):
                archive.writestr(f"table{i}.csv", content)
        return
    path.write_bytes({"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}[kind](content))


def damage(draw: random.Random, path: Path) -> None:
    """Flip, cut, repeat or overwrite some bytes of a file."""
    content = bytearray(path.read_bytes())
    if not content:
        return
    for _ in range(draw.choice([1, 1, 2, 8])):
        place = draw.randrange(len(content))
        how = draw.choice(["flip", "flip", "cut", "splice", "zero", "number", "end"])
        if how == "flip":
            content[place] ^= 1 << draw.randrange(8)
        elif how == "cut":
            del content[place:]
        elif how == "splice":
            length = draw.choice([1, 16, 400])
            content[place:place] = content[: draw.randrange(len(content) + 1)][:length]
        elif how == "zero":
            content[place : place + draw.choice([1, 8, 64])] = b"\0" * 8
        elif how == "number":
            content[place : place + 4] = draw.choice(
                [b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x80"]
            )
        else:
            content += bytes(draw.randrange(256) for _ in range(draw.choice([1, 20])))
        if not content:
            break
    path.write_bytes(bytes(content))


def tables(draw: random.Random, folder: Path, fixtures: Fixtures) -> list[str]:
    """A fit of a hostile table, in a third of the cases with damaged bytes."""
    path = write_table(draw, hostile_table(draw), folder)
    if draw.random() < 0.35:
        files = [path] if path.is_file() else sorted(path.iterdir())
        damage(draw, draw.choice(files))
    extra = draw.choice([[], [], [], ["--time", "a"], ["--group", "b"], ["--drop", "a"], ["--json"]])
    return [
        "fit",
        str(path),
        "--target",
        "label",
        "--out",
        str(folder / "out"),
        "--fpr",
        "0.05",
        *FAST,
        *extra,
    ]


# ---- options -----------------------------------------------------------------------------------


def options(draw: random.Random, folder: Path, fixtures: Fixtures) -> list[str]:
    """A fit, a score or an analysis with arguments that nobody should give."""
    odd = [*NUMBERS, *TEXTS, *DATES, "0.5", "0.001", "3", "label", "a", "-1", "1h", "5m", "1e9h"]
    odd = [text for text in odd if "\0" not in text]  # no argument of a process can hold it
    names = [
        "target", "positive", "fpr", "max-fpr", "time", "group", "drop", "families", "losses", "trials",
        "budget", "preset", "test-size", "test", "seed", "out", "jobs",
    ]  # fmt: skip
    chosen = {name: draw.choice(odd) for name in draw.sample(names, draw.randrange(1, 4))}
    if "trials" in chosen and chosen["trials"].strip().isdigit():
        chosen["trials"] = "2"  # not a search of hours
    if "budget" in chosen:
        chosen["budget"] = draw.choice(["1s", "0.5s", "-1s", "0", "nan", "1", "s", "1ss"])
    if "out" in chosen and chosen["out"].strip():
        chosen["out"] = draw.choice(
            [str(fixtures.table), "/proc/out", "/dev/null/x", str(fixtures.table.parent), "."]
        )
    if "test" in chosen:
        chosen["test"] = draw.choice([chosen["test"], str(fixtures.table), str(folder)])
    defaults = {
        "target": "label",
        "out": str(folder / "out"),
        "trials": "1",
        "jobs": "1",
        "families": "linear",
    }
    flags = [f"--{name}={value}" for name, value in {**defaults, **chosen}.items()]
    return ["fit", str(fixtures.table), *flags, "--quiet"]


# ---- journals ----------------------------------------------------------------------------------


def journals(draw: random.Random, folder: Path, fixtures: Fixtures) -> list[str]:
    """A run that was killed, continued after somebody changed one of its files."""
    out = folder / "out"
    shutil.copytree(fixtures.cut, out)
    files = sorted(path for path in out.rglob("*") if path.is_file() and path.stat().st_size)
    trials = [path for path in files if path.name == "trials.jsonl"]
    path = draw.choice([*files, *trials * len(files)])
    how = draw.choice(["damage", "damage", "line", "swap", "digit", "remove", "none"])
    lines = path.read_bytes().splitlines(keepends=True)
    if how == "damage":
        damage(draw, path)
    elif how == "remove":
        path.unlink()
    elif how == "line" and len(lines) > 1:
        del lines[draw.randrange(len(lines))]
        path.write_bytes(b"".join(lines))
    elif how == "swap" and len(lines) > 1:
        draw.shuffle(lines)
        path.write_bytes(b"".join(lines))
    elif how == "digit":
        content = bytearray(path.read_bytes())
        digits = [i for i, byte in enumerate(content) if chr(byte) in string.digits]
        if digits:
            place = draw.choice(digits)
            content[place] = ord(str((int(chr(content[place])) + 1) % 10))
            path.write_bytes(bytes(content))
    return [
        "fit",
        str(fixtures.table),
        *json.loads((fixtures.cut / "options.json").read_text()),
        "--out",
        str(out),
        "--resume",
    ]


# ---- model folders -----------------------------------------------------------------------------


def models(draw: random.Random, folder: Path, fixtures: Fixtures) -> list[str]:
    """A model with changed files, in some cases with the digests made right again."""
    model = folder / "model"
    shutil.copytree(draw.choice(fixtures.models) / "model", model)
    files = sorted(path for path in model.rglob("*") if path.is_file())
    path = draw.choice(files)
    how = draw.choice(["damage", "damage", "damage", "json", "json", "remove", "fifo"])
    if how == "damage":
        damage(draw, path)
    elif how == "remove":
        path.unlink()
    elif how == "fifo":
        path.unlink()
        import os

        os.mkfifo(path)
    else:
        path = draw.choice([file for file in files if file.suffix == ".json"])
        content = json.loads(path.read_text())
        _garble(draw, content)
        if "description_sha256" in content:
            del content["description_sha256"]
            content["description_sha256"] = digest_of(content)
        path.write_text(json.dumps(content))
    if draw.random() < 0.5 and how != "fifo":
        _seal(model)
    command = draw.choice([["show", str(model)], ["show", str(model), "--json"], None])
    if command is None:
        command = ["score", str(model), str(fixtures.table), "--out", str(folder / "scores.csv"), "--quiet"]
    return command


def _garble(draw: random.Random, content: Any) -> None:
    """Change one value somewhere in a JSON document."""
    while isinstance(content, dict | list) and content:
        key = draw.choice(list(content)) if isinstance(content, dict) else draw.randrange(len(content))
        if not isinstance(content[key], dict | list) or not content[key] or draw.random() < 0.1:
            odd = [
                None,
                -1,
                0,
                1e308,
                "",
                "x",
                [],
                {},
                True,
                "../../etc/passwd",
                [[]],
                2**63,
                "linear",
                "lightgbm",
            ]
            content[key] = draw.choice(odd)
            if isinstance(content, dict) and draw.random() < 0.2:
                del content[key]
            return
        content = content[key]


def _seal(model: Path) -> None:
    """Make the digests of a changed model right, as an attacker would."""
    place = model / "model.json"
    try:
        described = json.loads(place.read_text())
        for name in list(described["parts"]):
            described["parts"][name] = hashlib.sha256((model / name).read_bytes()).hexdigest()
        described.pop("description_sha256", None)
        described["description_sha256"] = digest_of(described)
        place.write_text(json.dumps(described))
        policies = json.loads((model / "policies.json").read_text())
        policies["model_sha256"] = described["description_sha256"]
        policies.pop("description_sha256", None)
        policies["description_sha256"] = digest_of(policies)
        (model / "policies.json").write_text(json.dumps(policies))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # too damaged to be sealed


# ---- scores ------------------------------------------------------------------------------------


def scores(draw: random.Random, folder: Path, fixtures: Fixtures) -> list[str]:
    """A good model on a hostile table."""
    table = hostile_table(draw)
    if draw.random() < 0.3:
        table = table.drop_columns(
            [name for name in ["label", draw.choice(["a", "b"])] if table.column_names.count(name) == 1]
        )
    path = write_table(draw, table, folder)
    if draw.random() < 0.4:
        damage(draw, draw.choice([path] if path.is_file() else sorted(path.iterdir())))
    out = draw.choice([*["s.csv", "s.parquet", "s.arrow"] * 6, "s.xlsx", "no/s.csv", ""])
    keep = draw.choice([[], [], ["--keep", "a"], ["--keep", "nothing"], ["--keep", ",,"]])
    return [
        "score",
        str(draw.choice(fixtures.models)),
        str(path),
        "--out",
        str(folder / out),
        "--quiet",
        *keep,
    ]


# ---- losses ------------------------------------------------------------------------------------


def losses(draw: random.Random, folder: Path, fixtures: Fixtures) -> list[str]:
    """Losses as nobody writes them."""
    from raresight.losses import all_losses

    known = [str(loss) for loss in all_losses()]
    text = draw.choice([*known, *known, "logitadjusted(tbl,prior=0.1)", "classweighted(focal,weights=(1,9))"])
    characters = list(text)
    for _ in range(draw.choice([0, 1, 1, 1, 2])):
        place = draw.randrange(len(characters) + 1)
        characters[place:place] = draw.choice(
            [*"0123456789()=,:.-'\"[]{}\\ e", "nan", "1e999", "-", "\u0660", "(" * 50, *NUMBERS]
        )
    text = "".join(characters)
    if draw.random() < 0.3:
        return ["losses", text, *draw.choice([[], ["--json"]])]
    prior = draw.choice(["0.001", "0.5", "1e-300", draw.choice(NUMBERS)])
    return ["analyze", text, f"--prior={prior}", *draw.choice([[], ["--json"]])]


KINDS: dict[str, Callable[[random.Random, Path, Fixtures], list[str]]] = {
    "tables": tables,
    "options": options,
    "journals": journals,
    "models": models,
    "scores": scores,
    "losses": losses,
}
