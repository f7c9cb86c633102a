"""What a result was measured on."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path


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


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
