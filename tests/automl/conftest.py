"""The helpers of these tests are found by name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The outcome of a search that nothing disturbs: its facts and its folder."""
    from table_search import TRIALS, facts, small_space, small_task

    from raresight.automl.records import Limits
    from raresight.automl.search import search

    folder = tmp_path_factory.mktemp("whole")
    found = search(small_task(), small_space(), Limits(TRIALS), folder=folder)
    return facts(found), folder
