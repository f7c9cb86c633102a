"""What is packed into the page: the numbers for the scripts, the assets, plotly.js."""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from ...common.json_values import plain
from ...losses import parse
from ..fit_content import FitContent
from ..fit_parts import BandPoint
from .wording import family_name

__all__ = ["asset", "for_script", "packed_plotly"]


def for_script(content: FitContent) -> str:
    """What the scripts read, as JSON that cannot end its script element; long arrays as base64."""
    curve = content.curve
    facts = {
        "fpr": content.answer.fpr,
        "maxFpr": content.answer.max_fpr,
        "level": content.answer.recall.level,
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
    """The band, through the very interval that the answer gives."""
    a = content.answer
    given = [point for point in content.band if point.fpr != a.fpr]
    own = BandPoint(a.fpr, a.recall.estimate, a.recall.low, a.recall.high)
    return sorted([*given, own], key=lambda point: point.fpr) if given else []


def _winner_place(content: FitContent) -> dict[str, Any] | None:
    """The point of the map that the chosen loss is, if it is one."""
    try:
        loss = parse(content.answer.loss)
    except ValueError:
        return None  # a loss of the user's own is not on the map
    place = (content.answer.family, getattr(loss, "alpha", None), getattr(loss, "C", 0.0))
    for point in content.loss_map:
        if (point.family, point.alpha, point.C) == place:
            return {"family": point.family, "alpha": point.alpha, "C": point.C}
    return None


def _base64(values: Any, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


@cache
def packed_plotly() -> str:
    """plotly.js of the installed plotly, gzipped, in base64; the browser unpacks it."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("the page of a fit needs plotly: pip install 'raresight[fit]'") from error
    packed = gzip.compress(get_plotlyjs().encode("utf-8"), compresslevel=9, mtime=0)
    return base64.b64encode(packed).decode("ascii")


@cache
def asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
