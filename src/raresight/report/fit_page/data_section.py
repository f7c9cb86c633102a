"""The data: rows, warnings, columns; and how to get the same result again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from ...automl.wording import repeat_note
from ..fit_content import FitContent
from . import wording as w
from .tables import empty, left_out, sortable_heads, table

__all__ = ["data", "reproduction"]

# A table of 5,000 columns must not make a page of megabytes.
MOST_COLUMNS = 300
MOST_LINES = 100


def data(content: FitContent) -> str:
    """The section of the data's profile."""
    profile = content.profile
    pairs = "".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in _facts(content))
    dropped = (f"{column['name']}: {column['reason']}" for column in profile.get("dropped", ()))
    return f"""
<section id="data" aria-labelledby="data-head">
<h2 id="data-head">Data</h2>
<dl class="pairs">{pairs}</dl>
<h3 id="warnings">Warnings</h3>
{_lines(profile.get("warnings", ()), "No warning.")}
<h3 id="dropped">Columns left out</h3>
{_lines(dropped, "No column was left out.")}
<h3 id="columns">Columns used</h3>
{_columns(profile.get("columns", ()))}
</section>"""


def _facts(content: FitContent) -> list[tuple[str, str]]:
    profile, used = content.profile, content.used
    trained = w.count(used.train_rows)
    if profile.get("positives") is not None:
        trained += f" with {w.counted(profile['positives'], 'positive')}{_rarity(profile.get('prior'))}"
    facts = [
        ("Rows", w.count(used.train_rows + used.test_rows)),
        ("Training rows", trained),
        ("Held-out rows", f"{w.count(used.test_rows)} with {w.counted(used.test_positives, 'positive')}"),
        ("Split", escape(used.split)),
    ]
    if profile.get("rho") is not None:
        facts.append(("Odds of a positive (rho)", w.significant(profile["rho"], 3)))
    if profile.get("duplicates") is not None:
        facts.append(("Training rows that repeat another", w.count(profile["duplicates"])))
    return facts


def _rarity(prior: float | None) -> str:
    return f" ({w.percent(prior)}, one in {w.count(1 / prior)})" if prior else ""


def _lines(lines: Iterable[str], none: str) -> str:
    found = list(lines)
    if not found:
        return f"<p>{none}</p>"
    items = "".join(f"<li>{w.name(line, 500)}</li>" for line in found[:MOST_LINES])
    return f'<ul class="words">{items}</ul>{left_out(len(found) - MOST_LINES, "line")}'


def _columns(columns: Sequence[Mapping[str, Any]]) -> str:
    if not columns:
        return empty("No column was looked at.")
    head = sortable_heads(
        ("Column", ""), ("Kind", ""), ("Missing", "n"), ("Distinct", "n"), ("AUC alone", "n"), ("Note", "")
    )
    shown = columns[:MOST_COLUMNS]
    body = "".join(_column(column) for column in shown)
    return table("column-table", "Columns used", head, body, len(shown), "sortable") + left_out(
        len(columns) - len(shown), "column"
    )


def _column(column: Mapping[str, Any]) -> str:
    title, kind, note = w.name(column["name"]), w.name(column["kind"]), w.name(column.get("note") or "", 200)
    missing, distinct, auc = (column.get(key) for key in ("missing", "distinct", "auc"))
    return (
        f'<tr><th scope="row" data-value="{title}">{title}</th><td data-value="{kind}">{kind}</td>'
        f'<td class="n" data-value="{w.key(missing)}">{w.percent(missing)}</td>'
        f'<td class="n" data-value="{w.key(distinct)}">{w.count(distinct)}</td>'
        f'<td class="n" data-value="{w.key(auc)}">{w.decimal(auc, 3)}</td>'
        f'<td data-value="{note}">{note}</td></tr>'
    )


def reproduction(content: FitContent) -> str:
    """The section that says how to get the same result again."""
    r = content.reproduction
    versions = "".join(f"<li>{w.name(key)} {w.name(value)}</li>" for key, value in r.versions.items())
    return f"""
<section id="reproduce" aria-labelledby="reproduce-head">
<h2 id="reproduce-head">How to reproduce</h2>
<p>{repeat_note(content.search)}</p>
<pre><code>{escape(r.command)}</code></pre>
<dl class="pairs">
<dt>Seed</dt><dd>{r.seed}</dd>
<dt>Data fingerprint</dt><dd><code>{w.name(r.fingerprint) or "not taken"}</code></dd>
<dt>Versions</dt><dd><ul class="inline">{versions or "<li>not recorded</li>"}</ul></dd>
</dl>
</section>"""
