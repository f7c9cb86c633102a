"""Settings for every test."""

from __future__ import annotations

import hypothesis

# Random examples, but the same ones on every machine; no deadline, which a busy machine would miss.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=200)
hypothesis.settings.load_profile("repeatable")
