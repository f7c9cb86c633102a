"""What the docs say of other nets for tables is what the benchmark has written down."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("bench_deep")


def test_the_table_is_that_of_the_file(bench):
    rows = bench.read(ROOT / "benchmarks" / "results" / "deep.csv")
    text = bench.summary(rows)
    assert text.count("\n") == 1 + len(bench.PAIRS)
    assert text in (ROOT / "docs" / "estimators.md").read_text(encoding="utf-8")


def test_differences_are_paired_by_table(bench):
    def row(model, kind, auc, loss, seconds, seed=0):
        return {
            "model": model,
            "kind": kind,
            "rows": "9",
            "seed": str(seed),
            "partial_auc_0.01": str(auc),
            "log_loss": str(loss),
            "seconds": str(seconds),
        }

    rows = [row("a", "x", 0.6, 0.1, 2), row("a", "y", 0.9, 0.3, 8), row("a", "z", 0.1, 9.0, 1)]
    rows += [row("b", "x", 0.5, 0.2, 1), row("b", "y", 0.7, 0.2, 1)]
    found = bench.compared(rows, "a", "b")
    assert found.tables == 2
    assert found.partial_auc == pytest.approx((15.0, 5.0))
    assert found.log_loss == pytest.approx((0.0, 50.0))
    assert found.slower == pytest.approx(4.0)
    assert bench.compared(rows, "a", "c") is None
