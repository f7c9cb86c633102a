from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def golden_auc():
    """Multi-precision reference values for AUC and opAUC."""
    return json.loads((Path(__file__).parents[1] / "data" / "golden_auc.json").read_text())
