"""Fill numbers and tables of the pages in docs/ from the result files.

A page has markers, which its readers do not see:

    <!--= mean fraud.csv split=time family=xgboost method=TBL metric=roc_auc -->97.9<!--/-->

`python -m reproduction docs` replaces the text between them. The commands are:

* `table FILE TITLE`: the first table below a title of a Markdown file.
* `cell FILE TITLE COLUMN name=value ...`: the cell of that table in the row with these values. If it has a
  difference with its interval, only these.
* `mean FILE name=value ...`: the mean in a row of a CSV file, in points.
* `difference FILE name=value ...`: the difference in a row of a CSV file with its interval, in points.
* `count WHICH FILE name=value ...`: how many differences in these rows of a CSV file are beyond chance and
  at least 0.1 points; WHICH is better, worse or all.
* `signs WHICH FILE RIVALS METHODS name=value ...`: the same for the comparisons of a page of verdicts.

A value may be several, joined by "|", or the beginning of one, such as "halves*".
"""

from __future__ import annotations

import csv
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from raresight.common.atomic_files import write_files

from .estimates import effect_on

__all__ = ["PAGES", "run", "updated"]

_ROOT = Path(__file__).parents[1]
PAGES = (_ROOT / "docs" / "results.md", *sorted((_ROOT / "docs" / "results").glob("*.md")))
_MARKER = re.compile(r"<!--= (?P<command>.*?) -->.*?<!--/-->", re.DOTALL)
_DIFFERENCE = re.compile(r"[-+]\d[\d.]* \[[-+]\d[\d.]*, [-+]\d[\d.]*\]")

Row = Mapping[str, str]


def run(results: Path, seed: int = 0, tell: Callable[[str], None] = lambda message: None) -> list[Path]:
    """Update the numbers and tables of the pages; return the pages that changed."""
    before = {page: page.read_text(encoding="utf-8") for page in PAGES}
    after = {page: updated(text, results) for page, text in before.items()}
    return write_files({page: text for page, text in after.items() if text != before[page]})


def updated(page: str, results: Path) -> str:
    """Return the text of a page, with values from the result files in a folder.

    Raises:
        ValueError: A marker has an unknown command, or names a missing file, title, row or column.
    """

    def filled(marker: re.Match[str]) -> str:
        command = marker["command"]
        try:
            text = _answer(results, shlex.split(command))
        except (ValueError, KeyError, OSError) as error:
            raise ValueError(f"the marker {command!r} has no answer: {error}") from error
        gap = "\n\n" if "\n" in text else ""
        return f"<!--= {command} -->{gap}{text}{gap}<!--/-->"

    return _MARKER.sub(filled, page)


def _answer(results: Path, words: Sequence[str]) -> str:
    name, *rest = words
    if name == "table":
        file, title = rest
        return _lines(results / file, title)
    if name == "cell":
        file, title, column, *where = rest
        row = _only(_markdown_rows(results / file, title), where)
        found = _DIFFERENCE.search(row[column])
        return found[0] if found else row[column]
    if name in ("mean", "difference"):
        file, *where = rest
        row = _only(_csv_rows(results / file), where)
        if name == "mean":
            return f"{100 * float(row['mean']):.1f}"
        one = _difference(row)
        return f"{one.mean:+.1f} [{one.low:+.1f}, {one.high:+.1f}]"
    if name == "count":
        which, file, *where = rest
        rows = _where(_csv_rows(results / file), where)
        return _counted(which, [_sign(row) for row in rows])
    if name == "signs":
        which, file, rivals, methods, *where = rest
        rows = _where(_verdicts(results / file), where)
        columns = [f"{method} less {rivals}" for method in methods.split("|")]
        return _counted(which, [_sign_of(row[column]) for row in rows for column in columns if row[column]])
    raise ValueError(f"unknown command {name!r}")


# ---- Rows --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _markdown_rows(path: Path, title: str) -> list[Row]:
    """Return the rows of a table by column. An empty first cell means that of the row above, as in print."""
    head, _, *body = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in _lines(path, title).splitlines()
    ]
    rows: list[Row] = []
    for cells in body:
        row = dict(zip(head, cells, strict=True))
        if rows and not cells[0] and head[0]:
            row[head[0]] = rows[-1][head[0]]
        rows.append(row)
    return rows


def _lines(path: Path, title: str) -> str:
    """Return the first table below a title."""
    after = re.split(rf"^(?:#+ |\*\*){re.escape(title)}(?:\*\*)?$", _text(path), flags=re.MULTILINE)
    if len(after) == 1:
        raise ValueError(f"{path.name} has no title {title!r}")
    table = re.search(r"^\|.*?(?:\n(?!\|)|\Z)", after[1], flags=re.MULTILINE | re.DOTALL)
    if table is None:
        raise ValueError(f"there is no table below {title!r} in {path.name}")
    return table[0].strip()


def _verdicts(path: Path) -> list[Row]:
    """Return all comparisons of a page of verdicts, each with its measure."""
    titles = re.findall(r"^#### (?!In short)(.*)$", _text(path), flags=re.MULTILINE)
    return [{**row, "measure": title} for title in titles for row in _markdown_rows(path, title)]


@lru_cache(maxsize=64)
def _csv_rows(path: Path) -> list[Row]:
    return list(csv.DictReader(_text(path).splitlines()))


@lru_cache(maxsize=64)
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _where(rows: Sequence[Row], conditions: Sequence[str]) -> list[Row]:
    """Return the rows that meet all conditions, each a `name=value`."""
    for condition in conditions:
        name, _, wanted = condition.partition("=")
        if rows and name not in rows[0]:
            raise ValueError(f"there is no column {name!r}; there are {', '.join(rows[0])}")
        values = wanted.split("|")
        rows = [row for row in rows if any(_is(row[name], value) for value in values)]
    if not rows:
        raise ValueError(f"no row has {', '.join(conditions)}")
    return list(rows)


def _is(found: str, wanted: str) -> bool:
    return found.startswith(wanted[:-1]) if wanted.endswith("*") else found == wanted


def _only(rows: Sequence[Row], conditions: Sequence[str]) -> Row:
    found = _where(rows, conditions)
    if len(found) > 1:
        raise ValueError(f"{len(found)} rows have {', '.join(conditions)}")
    return found[0]


# ---- Differences -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Difference:
    """A difference and the ends of its interval."""

    mean: float
    low: float
    high: float


def _difference(row: Row) -> _Difference:
    name = "difference" if "difference" in row else "difference_to_C_0"
    return _Difference(*(100 * float(row[column]) for column in (name, "low", "high")))


def _sign(row: Row) -> str:
    """Return "better" or "worse" of a difference that is beyond chance and large enough, else nothing."""
    one = _difference(row)
    effect = effect_on(row.get("metric", ""), one.mean / 100, one.low / 100, one.high / 100)
    return {"gain": "better", "loss": "worse"}.get(effect, "")


def _sign_of(cell: str) -> str:
    """Return the sign of a cell in a page of verdicts, which marks these differences."""
    return next((word for word in ("better", "worse") if f"**{word}**" in cell), "")


def _counted(which: str, signs: Sequence[str]) -> str:
    if which not in ("better", "worse", "all"):
        raise ValueError(f"count better, worse or all, not {which!r}")
    return str(len(signs) if which == "all" else signs.count(which))
