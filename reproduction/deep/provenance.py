"""What a training ran on, for the files of results."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from raresight import __version__

__all__ = ["device_name", "provenance"]


def provenance(device: torch.device | str) -> dict[str, Any]:
    """Device, versions and date.

    >>> sorted(provenance("cpu"))
    ['date', 'device', 'versions']
    """
    versions = {
        "raresight": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    if "tabm" in sys.modules:
        versions["tabm"] = str(getattr(sys.modules["tabm"], "__version__", "unknown"))
    return {
        "device": device_name(device),
        "versions": versions,
        "date": datetime.now(UTC).date().isoformat(),
    }


def device_name(device: torch.device | str) -> str:
    """The name of a GPU, or the kind of processor."""
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else platform.machine()
