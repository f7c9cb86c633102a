"""One HTML file out of the content, the assets and the charting library."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ...common.atomic_files import write_file
from ..fit_content import FitContent
from .answer import answer
from .candidates import candidates
from .data_section import data, reproduction
from .embedding import asset, for_script, packed_plotly
from .evidence import evidence, features
from .interactive import curves, explorer

__all__ = ["write_fit_page"]

# Nothing may be fetched, whatever is written into the page.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
SCRIPTS = ("explorer.js", "numbers.js", "charts.js", "page.js")


def write_fit_page(content: FitContent, path: Path | str) -> Path:
    """Write the page of a fit: one file of about 2.5 MB that opens from disk and fetches nothing.

    Args:
        content: What to show.
        path: Where; folders that are missing are made.

    Returns:
        The path.

    Raises:
        ImportError: If plotly is not installed.

    Example:
        `write_fit_page(content, "out/report.html")`
    """
    target = Path(path)
    page = _page(content)
    target.parent.mkdir(parents=True, exist_ok=True)
    return write_file(target, page)


def _page(content: FitContent) -> str:
    sections = (answer, explorer, curves, candidates, features, evidence, data, reproduction)
    body = "\n".join(section(content) for section in sections)
    scripts = "\n".join(asset(name) for name in SCRIPTS)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(content.title)}</title>
<style>
{asset("page.css")}
</style>
<noscript><style>.explorer, .charts, .maps, #theme {{ display: none; }}</style></noscript>
</head>
<body>
<a class="skip" href="#answer">Skip to the answer</a>
<header>
<div><h1>{escape(content.title)}</h1><p>raresight fit, {escape(content.made)}</p></div>
<button type="button" id="theme" class="screen">Dark theme</button>
</header>
<nav class="screen" aria-label="Sections"><a href="#explorer">Explorer</a><a href="#curves">Curves</a><a
href="#candidates">Candidates</a><a href="#features">Features</a><a href="#evidence">Evidence</a><a
href="#data">Data</a><a href="#reproduce">Reproduce</a></nav>
<main>
{body}
</main>
<footer><p>Written by raresight. The page holds everything it shows and fetches nothing.</p></footer>
<script type="application/json" id="content">{for_script(content)}</script>
<script type="text/plain" id="plotly">{packed_plotly()}</script>
<script>
{scripts}
</script>
</body>
</html>
"""
