"""What a result was measured on."""

from __future__ import annotations

import csv
import datetime
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def describe() -> dict[str, str]:
    """Processor, cores, date and versions, as columns for a result file."""
    import torch

    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu_name(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Results as CSV, with the columns of the first."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
