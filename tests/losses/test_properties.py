"""Properties that hold for every score and every parameter, tried on random ones."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loss_cases import non_convex_tbl
from raresight.losses import (
    LDAM,
    TBL,
    Alpha,
    ClassWeighted,
    CrossEntropy,
    Erf,
    Focal,
    LogitAdjusted,
    Poly,
    Squared,
    VectorScaling,
    parse,
)
from raresight.losses.tbl import convex_bound, monotone_bound, unique_bound

scores = st.floats(-700, 700)
moderate = st.floats(-30, 30)
alphas = st.floats(0.05, 20)


@st.composite
def tbls(draw):
    alpha = draw(alphas)
    return non_convex_tbl(alpha, draw(st.floats(0, 0.98)) * unique_bound(alpha))


symmetric = st.one_of(
    st.sampled_from([CrossEntropy(), Squared(), Erf()]),
    st.builds(Focal, st.floats(0, 20)),
    st.builds(Poly, st.floats(-1, 20)),
    st.builds(Alpha, alphas),
    tbls(),
)
asymmetric = st.one_of(
    st.builds(
        VectorScaling,
        st.floats(0.05, 10),
        delta_neg=st.floats(0.05, 10),
        iota_pos=st.floats(-5, 5),
        iota_neg=st.floats(-5, 5),
    ),
    st.builds(
        LDAM, st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), st.floats(0, 2), st.floats(0.1, 40)
    ),
    st.builds(LogitAdjusted, symmetric, st.floats(1e-9, 1 - 1e-9), st.floats(-2, 2)),
    st.builds(ClassWeighted, symmetric, st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))),
)
losses = st.one_of(symmetric, asymmetric)


@given(symmetric, scores)
def test_symmetry(loss, z):
    positive, negative = loss.derivatives(z, 1), loss.derivatives(-z, 0)
    assert positive[0] == negative[0]
    assert positive[1] == -negative[1]
    assert positive[2] == negative[2]


@given(losses, st.lists(scores, min_size=2, max_size=20))
def test_monotone_where_claimed(loss, zs):
    z = np.sort(np.array(zs))
    assert loss.is_monotone
    assert np.all(loss.gradient(z, np.ones(z.size)) <= 0)
    assert np.all(loss.gradient(z, np.zeros(z.size)) >= 0)
    value = loss.value(z, np.ones(z.size))
    assert np.all(np.diff(value) <= 1e-12 * value[:-1])


@given(losses, scores)
def test_convex_where_claimed(loss, z):
    if loss.is_convex:
        for label in (0, 1):
            value, _, bend = loss.derivatives(z, label)
            assert bend >= -1e-13 * abs(value)


@given(losses, st.floats(-600, 600))
def test_link_and_back(loss, log_odds):
    z = loss.score(log_odds)
    assert loss.log_odds(z) == pytest.approx(log_odds, rel=1e-10, abs=1e-10)


@given(losses, st.lists(moderate, min_size=2, max_size=20))
def test_probability_is_one_and_rises(loss, zs):
    z = np.sort(np.array(zs))
    probability = loss.probability(z)
    assert np.all((probability >= 0) & (probability <= 1))
    assert np.all(np.diff(probability) >= -1e-14)


@given(losses)
def test_text_round_trip(loss):
    if loss.is_convex or not str(loss).count("tbl"):
        assert parse(str(loss)) == loss


@given(moderate, st.sampled_from([0, 1]))
def test_limits(z, y):
    ce = CrossEntropy().derivatives(z, y)

    def near(loss, reference, step):
        for got, want in zip(loss.derivatives(z, y), reference, strict=True):
            assert got == pytest.approx(want, rel=step * 1e3, abs=step * 1e3)

    near(Alpha(1 + 1e-9), ce, 1e-8)
    near(Alpha(1 - 1e-9), ce, 1e-8)
    near(Alpha(1.0), ce, 1e-15)
    near(Focal(1e-9), ce, 1e-8)
    near(Focal(0.0), ce, 1e-15)
    near(Poly(1e-9), ce, 1e-8)
    near(Poly(0.0), ce, 1e-15)
    near(VectorScaling(1.0), ce, 1e-15)
    near(TBL(0.7, 0.0), Alpha(0.7).derivatives(z, y), 1e-15)
    near(TBL(0.7, 1e-12), Alpha(0.7).derivatives(z, y), 1e-8)
    near(LogitAdjusted(Focal(2.0), 0.5), Focal(2.0).derivatives(z, y), 1e-15)
    near(ClassWeighted(Erf(), (1.0, 1.0)), Erf().derivatives(z, y), 1e-15)


@given(moderate)
def test_alpha_half_is_exponential(z):
    assert Alpha(0.5).value(z, 1) == pytest.approx(math.exp(-z), rel=1e-13)
    assert Alpha(math.inf).value(z, 1) == pytest.approx(1 / (1 + math.exp(z)), rel=1e-13)


@given(st.floats(0, 3.9), moderate)
def test_tbl_at_one_half(C, z):
    loss = non_convex_tbl(0.5, C)
    assert loss.value(z, 1) * loss.value(z, 0) == pytest.approx(math.exp(-C), rel=1e-12)


@given(tbls(), st.floats(-200, 200))
def test_tbl_against_multiprecision(loss, z):
    mpmath.mp.dps = 400
    alpha, C, m = mpmath.mpf(loss.alpha), mpmath.mpf(loss.C), mpmath.mpf(z)
    p = 1 / (1 + mpmath.exp(-m))
    u = 1 / alpha - 1
    exact = mpmath.exp(-C * (1 - p)) * ((p**-u - 1) / u if u else -mpmath.log(p))
    if u * -mpmath.log(p) > math.log(np.finfo(float).max):
        assert loss.value(z, 1) == np.finfo(float).max
    else:
        assert loss.value(z, 1) == pytest.approx(float(exact), rel=1e-12)


@given(alphas)
def test_tbl_bounds(alpha):
    if alpha <= 1:
        assert 0 < convex_bound(alpha) <= unique_bound(alpha) * (1 + 1e-9)
        assert convex_bound(alpha) >= 1.28
    assert unique_bound(alpha) <= monotone_bound(alpha) * (1 + 1e-9)
    with pytest.raises(ValueError, match="C_uniq"):
        TBL(alpha, unique_bound(alpha) * 1.001)


@given(tbls())
def test_tbl_link_rises_right_up_to_the_bound(loss):
    z = np.linspace(-40, 40, 4001)
    assert np.all(np.diff(loss.log_odds(z)) > 0)


@given(st.floats(0.06, 5), st.floats(1.01, 1.3))
def test_tbl_link_falls_somewhere_beyond_the_bound(alpha, factor):
    beyond = non_convex_tbl(alpha, 0.5 * unique_bound(alpha))
    object.__setattr__(beyond, "C", factor * unique_bound(alpha))  # past the constructor's refusal
    z = np.linspace(-12, 12, 24001)
    link = beyond.log_odds(z)
    assert not np.all(np.diff(link) > 0)
