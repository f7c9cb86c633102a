"""Tables as they come: each with what `raresight fit` must make of it, a model or one clear sentence."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

ROWS = 600


def frame(rows: int = ROWS, positives: int = 40, seed: int = 0) -> pd.DataFrame:
    """Four numeric columns, the first two of which tell something of the label."""
    random = np.random.default_rng(seed)
    y = np.zeros(rows, dtype=int)
    y[random.choice(rows, positives, replace=False)] = 1
    X = random.normal(size=(rows, 4))
    X[:, 0] += 2 * y
    X[:, 1] -= y
    return pd.DataFrame(X, columns=["a", "b", "c", "d"]).assign(label=y)


@dataclass(frozen=True)
class Case:
    """`write` makes the file and returns its path; `error` is part of the sentence expected, or None."""

    name: str
    write: Callable[[Path], Path]
    error: str | None = None
    options: tuple[str, ...] = ()
    target: str = "label"
    says: str = ""  # what a model's warnings or dropped columns must mention
    trials: int = 2
    families: str = "linear,lightgbm"
    tags: tuple[str, ...] = field(default=())


CASES: list[Case] = []


def case(name: str, error: str | None = None, **settings: object) -> Callable[..., Callable[[Path], Path]]:
    def add(write: Callable[[Path], Path]) -> Callable[[Path], Path]:
        CASES.append(Case(name, write, error, **settings))  # type: ignore[arg-type]
        return write

    return add


def csv(table: pd.DataFrame, folder: Path, name: str = "table.csv", **options: object) -> Path:
    path = folder / name
    table.to_csv(path, index=False, **options)
    return path


def parquet(table: pd.DataFrame, folder: Path) -> Path:
    path = folder / "table.parquet"
    table.to_parquet(path, index=False)
    return path


def text(content: str | bytes, folder: Path, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---- labels ------------------------------------------------------------------------------


@case("no positive", error="both classes")
def _(folder: Path) -> Path:
    return csv(frame().assign(label=0), folder)


@case("one positive", error="positive")
def _(folder: Path) -> Path:
    return csv(frame(positives=1), folder)


@case("four positives", error="positive")
def _(folder: Path) -> Path:
    return csv(frame(positives=4), folder)


@case("eight positives")
def _(folder: Path) -> Path:
    return csv(frame(positives=8), folder)


@case("labels as yes and no")
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: np.where(t.label == 1, "yes", "no")), folder)


@case("labels as text, positive given", options=("--positive", "ham"))
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: np.where(t.label == 1, "spam", "ham")), folder)


@case("positive that does not exist", error="eggs", options=("--positive", "eggs"))
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: np.where(t.label == 1, "spam", "ham")), folder)


@case("labels as booleans")
def _(folder: Path) -> Path:
    return parquet(frame().assign(label=lambda t: t.label == 1), folder)


@case("labels as floats")
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: t.label.astype(float)), folder)


@case("labels 1 and 2")
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: t.label + 1), folder)


@case("labels -1 and 1")
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: 2 * t.label - 1), folder)


@case("three labels", error="two values")
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: t.label + (t.index == 5) * 2), folder)


@case("labels that are numbers with decimals", error="two values")
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: t.a), folder)


@case("a label missing", error="missing")
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: t.label.where(t.index != 7)), folder)


@case("target that does not exist", error="labl", target="labl")
def _(folder: Path) -> Path:
    return csv(frame(), folder)


@case("positives are the majority")
def _(folder: Path) -> Path:
    return csv(frame().assign(label=lambda t: 1 - t.label), folder)


# ---- columns -----------------------------------------------------------------------------


@case("a column all missing", says="empty")
def _(folder: Path) -> Path:
    return csv(frame().assign(empty=np.nan), folder)


@case("every column all missing", error="column")
def _(folder: Path) -> Path:
    return csv(frame()[["label"]].assign(x=np.nan, y=np.nan), folder)


@case("no column but the target", error="column")
def _(folder: Path) -> Path:
    return csv(frame()[["label"]], folder)


@case("constant columns", says="same")
def _(folder: Path) -> Path:
    return csv(frame().assign(same=3.0, word="x"), folder)


@case("only constant columns", error="column")
def _(folder: Path) -> Path:
    return csv(frame()[["label"]].assign(same=3.0), folder)


@case("5,000 columns", trials=1, families="lightgbm")
def _(folder: Path) -> Path:
    random = np.random.default_rng(0)
    wide = pd.DataFrame(
        random.normal(size=(ROWS, 5000)).astype(np.float32), columns=[f"x{i}" for i in range(5000)]
    )
    return parquet(pd.concat([frame(), wide], axis=1), folder)


@case("duplicate names", error="a")
def _(folder: Path) -> Path:
    return text("a,a,label\n" + "".join(f"{i},{i},{i % 9 == 0:d}\n" for i in range(200)), folder)


@case("two targets of one name", error="label")
def _(folder: Path) -> Path:
    return text("label,a,label\n" + "".join(f"0,{i},{i % 9 == 0:d}\n" for i in range(200)), folder)


@case("unicode names and values", target="Ωlabel 🎯")
def _(folder: Path) -> Path:
    table = frame().rename(columns={"label": "Ωlabel 🎯", "a": "größe", "b": "名前"})
    return csv(table.assign(ville=np.where(table.index % 3 == 0, "Orléans", "北京")), folder)


@case("names that boosters refuse")
def _(folder: Path) -> Path:
    return csv(frame().rename(columns={"a": "a[0]", "b": "<b>", "c": 'c"{x}:,', "d": ""}), folder)


@case("numbers and words in a column")
def _(folder: Path) -> Path:
    return csv(frame().assign(mixed=lambda t: np.where(t.index % 2 == 0, "seven", t.c.astype(str))), folder)


@case("question marks among numbers")
def _(folder: Path) -> Path:
    return csv(frame().assign(a=lambda t: t.a.astype(str).where(t.index % 10 != 0, "?")), folder)


@case("a word late in a long column of numbers")
def _(folder: Path) -> Path:
    table = frame(rows=60_000, positives=300)
    return csv(table.assign(c=lambda t: t.c.astype(str).where(t.index != 59_990, "oops")), folder)


@case("infinite values")
def _(folder: Path) -> Path:
    return parquet(frame().assign(a=lambda t: t.a.where(t.index % 50 != 0, np.inf)), folder)


@case("numbers beyond float32")
def _(folder: Path) -> Path:
    return parquet(frame().assign(a=lambda t: t.a * 1e200), folder)


@case("large whole numbers")
def _(folder: Path) -> Path:
    return parquet(frame().assign(a=lambda t: (t.a * 1e15).astype("int64")), folder)


@case("dates")
def _(folder: Path) -> Path:
    when = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(ROWS) * 7, unit="h")
    return parquet(frame().assign(when=when), folder)


@case("dates as text")
def _(folder: Path) -> Path:
    when = (pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(ROWS), unit="D")).strftime("%Y-%m-%d")
    return csv(frame().assign(when=when), folder)


@case("codes with leading zeros", says="leading zeros")
def _(folder: Path) -> Path:
    return csv(frame().assign(zip=lambda t: "0" + (1230 + t.index % 9).astype(str)), folder)


@case("dates in numbers", says="YYYYMMDD")
def _(folder: Path) -> Path:
    return parquet(frame().assign(day=lambda t: 20210101 + t.index % 28), folder)


@case("dates with names of months, years of two digits and AM or PM", says="MM/DD/YYYY")
def _(folder: Path) -> Path:
    when = pd.Timestamp("2021-04-01") + pd.to_timedelta(np.arange(ROWS) * 7, unit="h")
    ways = {"oracle": "%d-%b-%y", "german": "%d.%m.%y", "excel": "%m/%d/%Y %I:%M %p", "slashes": "%Y/%m/%d"}
    return csv(frame().assign(**{name: when.strftime(way) for name, way in ways.items()}), folder)


@case("dates that no value makes clear", says="not read as dates")
def _(folder: Path) -> Path:
    return csv(frame().assign(when=lambda t: [f"{1 + i % 12}/{1 + i % 7}/2021" for i in t.index]), folder)


@case("integers near 2**64", says="beyond the 16 digits")
def _(folder: Path) -> Path:
    order = np.random.default_rng(0).permutation(ROWS)
    numbers = np.array([2**64 - 1 - int(i) for i in order], np.uint64)
    return parquet(frame().assign(hash=numbers, few=numbers // 100), folder)


@case("durations and moments beyond their range", says="294246")
def _(folder: Path) -> Path:
    table = pa.Table.from_pandas(frame(), preserve_index=False)
    far = pa.array(10**13 * (np.arange(ROWS) % 3) + np.arange(ROWS) // 2)
    table = table.append_column("wait", far.cast(pa.duration("s")))
    table = table.append_column("when", far.cast(pa.timestamp("s")))
    path = folder / "table.parquet"
    pq.write_table(table, path)
    return path


@case("dates with time zone")
def _(folder: Path) -> Path:
    when = pd.date_range("2024-01-01", periods=ROWS, freq="h", tz="Europe/Brussels")
    return parquet(frame().assign(when=when), folder)


@case("300 classes of category")
def _(folder: Path) -> Path:
    return csv(
        frame(rows=3000, positives=90).assign(shop=lambda t: "shop " + (t.index % 300).astype(str)), folder
    )


@case("identifiers", says="identifier")
def _(folder: Path) -> Path:
    return csv(
        frame().assign(customer_id=np.arange(ROWS) + 10_000, key=[f"u-{i:06x}" for i in range(ROWS)]), folder
    )


@case("target leaked as a copy", says="copy")
def _(folder: Path) -> Path:
    return csv(frame().assign(copy=lambda t: t.label), folder)


@case("target leaked as text", says="status")
def _(folder: Path) -> Path:
    return csv(frame().assign(status=lambda t: np.where(t.label == 1, "blocked", "fine")), folder)


@case("booleans with gaps")
def _(folder: Path) -> Path:
    flag = pd.array(np.where(np.arange(ROWS) % 3 == 0, True, False), dtype="boolean")
    flag[:20] = pd.NA
    return parquet(frame().assign(flag=flag), folder)


@case("decimals, durations and lists")
def _(folder: Path) -> Path:
    from decimal import Decimal

    table = pa.Table.from_pandas(frame(), preserve_index=False)
    table = table.append_column("price", pa.array([Decimal(i % 70) / 4 for i in range(ROWS)]))
    table = table.append_column("wait", pa.array(np.arange(ROWS) * 1000, type=pa.duration("ms")))
    table = table.append_column("tags", pa.array([["x"] * (i % 3) for i in range(ROWS)]))
    path = folder / "table.parquet"
    pq.write_table(table, path)
    return path


@case("every row twice", says="repeat")
def _(folder: Path) -> Path:
    return csv(pd.concat([frame(), frame()]), folder)


@case("missing values everywhere")
def _(folder: Path) -> Path:
    random = np.random.default_rng(1)
    table = frame()
    features = table.drop(columns="label").mask(random.random((ROWS, 4)) < 0.6)
    return csv(features.assign(label=table.label), folder)


@case("one column")
def _(folder: Path) -> Path:
    return csv(frame()[["a", "label"]], folder)


@case("perfectly separated")
def _(folder: Path) -> Path:
    return csv(frame().assign(a=lambda t: t.a + 100 * t.label), folder)


# ---- files -------------------------------------------------------------------------------


@case("a file that is not there", error="no")
def _(folder: Path) -> Path:
    return folder / "absent.csv"


@case("a 0-byte file", error="empty")
def _(folder: Path) -> Path:
    return text("", folder)


@case("a header alone", error="row")
def _(folder: Path) -> Path:
    return text("a,b,label\n", folder)


@case("a truncated Parquet file", error="table.parquet")
def _(folder: Path) -> Path:
    path = parquet(frame(), folder)
    path.write_bytes(path.read_bytes()[:-500])
    return path


@case("a Parquet name on a CSV file")
def _(folder: Path) -> Path:
    return csv(frame(), folder, "table.parquet")


@case("bytes of no format", error="table.csv")
def _(folder: Path) -> Path:
    return text(np.random.default_rng(0).bytes(5000), folder)


@case("ragged rows", error="row")
def _(folder: Path) -> Path:
    lines = csv(frame(), folder).read_text().splitlines()
    lines[100] += ",9,9"
    return text("\n".join(lines), folder)


@case("semicolons and decimal points")
def _(folder: Path) -> Path:
    return csv(frame(), folder, sep=";")


@case("tabs")
def _(folder: Path) -> Path:
    return csv(frame(), folder, "table.tsv", sep="\t")


@case("quotes with commas and line breaks inside")
def _(folder: Path) -> Path:
    return csv(frame().assign(note=lambda t: np.where(t.index % 2, 'one, "two"', "line\nbreak")), folder)


@case("gzip without the name")
def _(folder: Path) -> Path:
    content = csv(frame(), folder).read_bytes()
    return text(gzip.compress(content), folder)


@case("a mark of byte order and Windows line ends")
def _(folder: Path) -> Path:
    content = csv(frame(), folder).read_text().replace("\n", "\r\n")
    return text(b"\xef\xbb\xbf" + content.encode(), folder)


@case("latin-1 text")
def _(folder: Path) -> Path:
    table = frame().assign(city=lambda t: np.where(t.index % 2, "Liège", "Bruxelles"))
    return text(table.to_csv(index=False).encode("latin-1"), folder)


@case("a SQLite database")
def _(folder: Path) -> Path:
    path = folder / "table.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        frame().to_sql("rows", connection, index=False)
    return path


@case("a SQLite database of two tables", error="name one of them, as in")
def _(folder: Path) -> Path:
    path = folder / "table.db"
    with closing(sqlite3.connect(path)) as connection:
        frame().to_sql("rows", connection, index=False)
        frame().to_sql("more", connection, index=False)
    return path


@case("a SQLite database cut short", error="damaged or cut short")
def _(folder: Path) -> Path:
    path = folder / "table.db"
    with closing(sqlite3.connect(path)) as connection:
        frame().to_sql("rows", connection, index=False)
    path.write_bytes(path.read_bytes()[:20_000])
    return path


@case("a folder of parts")
def _(folder: Path) -> Path:
    parts = folder / "parts"
    parts.mkdir()
    for number in range(3):
        frame(seed=number).to_parquet(parts / f"part-{number}.parquet")
    return parts


@case("parts that differ", error="part")
def _(folder: Path) -> Path:
    parts = folder / "parts"
    parts.mkdir()
    frame().to_csv(parts / "part-0.csv", index=False)
    frame().rename(columns={"a": "z"}).to_csv(parts / "part-1.csv", index=False)
    return parts


@case("an empty folder", error="folder")
def _(folder: Path) -> Path:
    parts = folder / "parts"
    parts.mkdir()
    return parts


@case("an Arrow file")
def _(folder: Path) -> Path:
    path = folder / "table.arrow"
    pyarrow.feather.write_feather(pa.Table.from_pandas(frame(), preserve_index=False), path)
    return path


# ---- splits and options ------------------------------------------------------------------


@case("split by time", options=("--time", "when"))
def _(folder: Path) -> Path:
    return csv(frame().assign(when=np.arange(ROWS)), folder)


@case("all positives early", error="positive", options=("--time", "when"))
def _(folder: Path) -> Path:
    return csv(frame().sort_values("label", ascending=False).assign(when=np.arange(ROWS)), folder)


@case("split by group", options=("--group", "who"))
def _(folder: Path) -> Path:
    return csv(frame().assign(who=lambda t: t.index % 60), folder)


@case("one group only", error="group", options=("--group", "who"))
def _(folder: Path) -> Path:
    return csv(frame().assign(who="me"), folder)


@case("a column as time and group", error="name the same column", options=("--time", "a", "--group", "a"))
def _(folder: Path) -> Path:
    return csv(frame(), folder)


@case("a column of time that is not there", error="when", options=("--time", "when"))
def _(folder: Path) -> Path:
    return csv(frame(), folder)


@case("times missing", error="when", options=("--time", "when"))
def _(folder: Path) -> Path:
    return csv(frame().assign(when=lambda t: t.a.where(t.index > 3)), folder)


@case("an unknown family", error="copse", options=("--families", "copse"))
def _(folder: Path) -> Path:
    return csv(frame(), folder)


@case("an unknown loss", error="hinge", options=("--losses", "hinge"))
def _(folder: Path) -> Path:
    return csv(frame(), folder)


@case("a rate of two", error="fpr", options=("--fpr", "2"))
def _(folder: Path) -> Path:
    return csv(frame(), folder)


@case("a budget that is no time", error="5m", options=("--budget", "soon"))
def _(folder: Path) -> Path:
    return csv(frame(), folder)


@case("a test file of its own", options=("--test", "TEST"))
def _(folder: Path) -> Path:
    csv(frame(seed=5), folder, "test.csv")
    return csv(frame(), folder)


@case("a test file without a column", error="'b'", options=("--test", "TEST"))
def _(folder: Path) -> Path:
    csv(frame(seed=5).drop(columns="b"), folder, "test.csv")
    return csv(frame(), folder)


@case("a test file without positives", error="positive", options=("--test", "TEST"))
def _(folder: Path) -> Path:
    csv(frame(seed=5).assign(label=0), folder, "test.csv")
    return csv(frame(), folder)
