"""Tables of the page, and the words that stand in for an empty one."""

from __future__ import annotations

from html import escape

from .wording import counted

__all__ = ["empty", "heads", "left_out", "sortable_heads", "table"]

# How many rows a table shows before its button is pressed; page.css hides the others.
FIRST_ROWS = {"leaders": 12, "influential-table": 12, "column-table": 15}


def heads(*columns: tuple[str, str]) -> str:
    """Column headings; the class "n" is for numbers."""
    return "".join(f'<th scope="col" class="{kind}">{label}</th>' for label, kind in columns)


def sortable_heads(*columns: tuple[str, str]) -> str:
    return heads(*((f'<button type="button">{label}</button>', kind) for label, kind in columns))


def table(identity: str, label: str, head: str, body: str, rows: int, kind: str = "") -> str:
    """A table in a box of its own that scrolls sideways; a long one has a button that shows all of it."""
    more = ""
    if rows > FIRST_ROWS.get(identity, rows):
        more = (
            f'<button type="button" class="more" data-more="{identity}" aria-expanded="false" hidden>'
            f"Show all {rows}</button>"
        )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table id="{identity}" class="{kind}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{more}"
    )


def left_out(rows: int, what: str) -> str:
    """How many of the things named, in the singular, are not shown."""
    if rows <= 0:
        return ""
    verb = "is" if rows == 1 else "are"
    return f'<p class="note">{counted(rows, f"further {what}")} {verb} not shown here.</p>'


def empty(why: str) -> str:
    return f'<p class="empty">{escape(why)}</p>'
