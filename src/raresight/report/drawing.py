"""Colours, file kinds and the optional import of matplotlib, for all pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..common.atomic_files import replacing

__all__ = ["COLOURS", "figure_class", "picture_path", "save"]

# Okabe and Ito's colours, which people with any colour vision can distinguish; dashes distinguish the rest.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def figure_class() -> Any:
    """Return matplotlib's Figure, or raise an error that names the extra to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install 'raresight[report]'") from error
    return Figure


def picture_path(path: Path | str) -> Path:
    """Return the path of a picture to write and create its folder; refuse other endings."""
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"cannot draw to {target}: the file must end in .png, .svg or .pdf")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def save(figure: Any, target: Path) -> Path:
    """Write the figure; an SVG without the date, so that the same picture is the same file."""
    kind = target.suffix.lower()[1:]
    with replacing(target) as aside:
        # Its name has another ending, so the kind of file must be said.
        figure.savefig(aside, dpi=150, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return target
