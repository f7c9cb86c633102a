"""Write the page of a fit: one HTML file from the content, the assets and the charting library."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import asdict, astuple
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from ...common.atomic_files import write_file
from ...common.json_values import plain
from ..fit_content import FitContent, map_place
from ..fit_measures import BandPoint
from .evidence import candidates, data, evidence, features, reproduction
from .html import family_name
from .operating_point import answer, curves, explorer

__all__ = ["write_fit_page"]

# The browser may fetch nothing, whatever text from the data gets into the page.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
SCRIPTS = ("explorer.js", "numbers.js", "charts.js", "page.js")


def write_fit_page(content: FitContent, path: Path | str) -> Path:
    """Write the page of a fit: one file of about 2.5 MB that opens from disk and fetches nothing.

    Args:
        content: The outcome with its curves and tables.
        path: The file; missing folders are created.

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
    outcome = content.outcome
    title = escape(f"{outcome.source}: {outcome.options.target}")
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
<title>{title}</title>
<style>
{asset("page.css")}
</style>
<noscript><style>.explorer, .charts, .maps, #theme {{ display: none; }}</style></noscript>
</head>
<body>
<a class="skip" href="#answer">Skip to the answer</a>
<header>
<div><h1>{title}</h1><p>raresight fit, {escape(outcome.made)}</p></div>
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


def for_script(content: FitContent) -> str:
    """Return the data of the scripts as JSON that cannot end its script element; long arrays as base64."""
    curve, found = content.curve, content.outcome.evaluation
    facts = {
        "fpr": found.fpr,
        "maxFpr": found.max_fpr,
        "level": found["recall_at_fpr"].level,
        "curve": {
            "thresholds": _base64(curve.thresholds, "<f8"),
            "tp": _base64(curve.true_positives, "<u4"),
            "fp": _base64(curve.false_positives, "<u4"),
            "positives": int(curve.positives),
            "negatives": int(curve.negatives),
            "exactToFpr": float(curve.exact_to_fpr),
        },
        "band": plain(_band(content)),
        "reliability": plain(content.reliability),
        "distribution": plain(content.distribution),
        "lossMap": plain(content.loss_map),
        "families": {point.family: family_name(point.family) for point in content.loss_map},
        "winnerPlace": _winner_place(content),
    }
    text = json.dumps(facts, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _band(content: FitContent) -> list[BandPoint]:
    """Return the band, with the interval of the answer at its rate."""
    found = content.outcome.evaluation
    recall = found["recall_at_fpr"]
    given = [point for point in content.band if point.fpr != found.fpr]
    own = BandPoint(found.fpr, recall.estimate, recall.low, recall.high)
    return sorted([*given, own], key=lambda point: point.fpr) if given else []


def _winner_place(content: FitContent) -> dict[str, Any] | None:
    """Return the point of the chosen loss on the map, or None."""
    try:
        place = map_place(content.outcome.winner)
    except ValueError:
        return None  # a loss of the user that this process does not know
    on_map = (point for point in content.loss_map if astuple(point)[:-1] == place)
    point = next(on_map, None)
    return None if point is None else asdict(point)


def _base64(values: Any, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


@cache
def packed_plotly() -> str:
    """Return plotly.js of the installed plotly, gzipped, in base64; the browser unpacks it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("the page of a fit needs plotly: pip install 'raresight[fit]'") from error
    packed = gzip.compress(get_plotlyjs().encode("utf-8"), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")


@cache
def asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
