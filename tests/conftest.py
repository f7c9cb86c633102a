"""Settings for every test."""

from __future__ import annotations

import os
import shutil

import hypothesis
import numpy as np
import pytest

# Random examples, but the same ones on every machine; no deadline, which a busy machine would miss.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=200)
hypothesis.settings.load_profile("repeatable")

# Without a GPU our Triton kernels are tested in Triton's interpreter, which must be asked for before they are
# imported.
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def _no_luck():
    """What is given no seed draws the same numbers in every run, whatever ran before it."""
    # Estimators without a random_state draw from there.
    np.random.seed(0)  # noqa: NPY002


@pytest.fixture(scope="session", autouse=True)
def _no_cache_of_the_user(tmp_path_factory):
    """Models that tests write are not to be remembered in the home of who runs them."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.pop("XDG_CACHE_HOME")
    if before is not None:
        os.environ["XDG_CACHE_HOME"] = before


# Those run on a GPU machine without pytest: make test-gpu.
collect_ignore = ["gpu"]
