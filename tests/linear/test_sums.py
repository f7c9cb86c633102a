"""Sums over rows: the same fit whatever produced them, and sums far from the minimum."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse

from raresight.linear.minimise import SolverOptions, minimise_all
from raresight.linear.penalties import Penalty
from raresight.linear.reading import make_sample
from raresight.linear.sums import Request, RiskSums, Sample, evaluate
from raresight.losses import Alpha, parse


def test_sums_that_overflow_are_quiet_and_not_finite():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(500, 3)).astype(np.float32)
    labels = (np.arange(500) % 10 == 0).astype(float)
    sample = make_sample(X, labels.astype(int), None, 2, True)
    here = evaluate(sample, [Request(Alpha(0.5), Penalty(), np.full(4, 1e3), 2, double=False)])[0]
    assert not np.isfinite(here.gradient).all()


@dataclass(frozen=True)
class Batches:
    """Rows that come in parts, as a stream or a cluster would give them: only their sums are seen."""

    parts: list[Sample]

    @property
    def columns(self):
        return self.parts[0].columns

    @property
    def n_scores(self):
        return self.parts[0].n_scores

    @property
    def class_totals(self):
        return sum(part.class_totals for part in self.parts)

    def sums(self, requests):
        return [RiskSums.added(same) for same in zip(*(part.sums(requests) for part in self.parts))]


def in_batches(sample: Sample, n_batches: int) -> Batches:
    order = np.random.default_rng(1).permutation(sample.design.n_rows)
    parts = []
    for rows in np.array_split(order, n_batches):
        weights = None if sample.weights is None else sample.weights[rows]
        parts.append(Sample(sample.design.take(rows), sample.labels[rows], weights, sample.n_scores))
    return Batches(parts)


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "l1"])
@pytest.mark.parametrize("kind", ["dense", "sparse", "far columns", "three classes"])
def test_the_same_fit_from_an_array_and_from_batches(kind, solver):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5)) + (1e3 if kind == "far columns" else 0.0)
    codes = (rng.random(3000) < 1 / (1 + np.exp(3 - X[:, 0] + X[:, 0].mean()))).astype(np.int64)
    if kind == "sparse":
        X = sparse.csr_array(X * (rng.random(X.shape) < 0.3))
    if kind == "three classes":
        codes[codes == 1] += rng.random(np.count_nonzero(codes)) < 0.5
    weights = rng.random(3000) + 0.5
    whole = make_sample(X, codes, weights, int(codes.max()) + 1, True)
    options = SolverOptions(1e-3 if solver == "l1" else 0.0, 1e-9, 500, "auto" if solver == "l1" else solver)
    pairs = [(parse("crossentropy"), 1e-3), (parse("tbl"), 1e-2)]
    alone = minimise_all(whole, pairs, options)
    added = minimise_all(in_batches(whole, 7), pairs, options)
    for one, other in zip(alone, added):
        assert one.ending == other.ending == "converged"
        assert other.theta == pytest.approx(one.theta, rel=1e-6, abs=1e-7)
        assert other.evaluation.value == pytest.approx(one.evaluation.value, rel=1e-12)


def test_sums_of_parts_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(1000, 3)), (np.arange(1000) % 20 == 0).astype(np.int64)
    whole = make_sample(X, codes, None, 2, True)
    batches = in_batches(whole, 5)
    assert batches.class_totals == pytest.approx(whole.class_totals)
    asked = [Request(parse("focal"), Penalty(0.1), rng.normal(size=4), 2, double=True)]
    (one,), (other,) = evaluate(whole, asked), evaluate(batches, asked)
    assert other.value == pytest.approx(one.value, rel=1e-13)
    assert other.gradient == pytest.approx(one.gradient, rel=1e-10)
    assert other.hessian == pytest.approx(one.hessian, rel=1e-10)
