from __future__ import annotations

import json
from pathlib import Path

import pytest

from raresight.metrics import _counting, _tail


@pytest.fixture(scope="session")
def golden_auc():
    """Multi-precision reference values for AUC and opAUC."""
    return json.loads((Path(__file__).parents[1] / "data" / "golden_auc.json").read_text())


@pytest.fixture(params=["small data", "large data"])
def both_ways(request, monkeypatch):
    """The ways for small and for large data, both on the rows of a test."""
    if request.param == "large data":
        monkeypatch.setattr(_counting, "WORTH_BUCKETS", 1)
        monkeypatch.setattr(_counting, "KEPT_AT_MOST", 2.0)
        monkeypatch.setattr(_counting, "BUCKETS", 1 << 12)
        monkeypatch.setattr(_counting, "BLOCK", 64)
        monkeypatch.setattr(_tail, "WORTH_CUTTING", 1)
        monkeypatch.setattr(_tail, "SAMPLE", 16)
        monkeypatch.setattr(_tail, "MOST", 1.0)
