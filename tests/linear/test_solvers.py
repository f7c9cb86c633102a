"""The model of the curvature that steps are taken with."""

from __future__ import annotations

import numpy as np
import pytest

from raresight.linear.solvers import Curvature, factor, floored


def test_solves_where_the_hessian_is_positive_definite():
    H, g = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([1.0, -1.0])
    assert factor(H).solve(g) == pytest.approx(np.linalg.solve(H, g))
    assert (floored(H) == H).all()


def test_negative_curvature_is_turned_round():
    """Eigenvalues 3 and -1: the step uses 3 and 1, and goes down."""
    H, g = np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([1.0, 0.0])
    values, vectors = np.linalg.eigh(H)
    expected = vectors @ ((vectors.T @ g) / np.abs(values))
    assert factor(H).solve(g) == pytest.approx(expected)
    assert np.linalg.eigvalsh(floored(H)) == pytest.approx([1.0, 3.0])


def test_a_flat_direction_does_not_drift():
    H = np.array([[1.0, -1.0], [-1.0, 1.0]])
    step = factor(H).solve(np.array([1.0, -1.0]) + 1e-16)
    assert step == pytest.approx([0.5, -0.5])
    # A true slope along it is followed.
    assert np.abs(factor(H).solve(np.array([1.0, 0.0]))).max() > 1e6


def test_pairs_teach_the_curvature():
    """On a quadratic, as many independent pairs as variables give its inverse along them."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    H = root @ root.T + np.eye(4)
    for start in (None, factor(1.3 * np.diag(np.diag(H)))):
        curvature = Curvature(start)
        # Steps that are conjugate keep what was learned before.
        for vector in np.linalg.eigh(H)[1].T:
            curvature.learn(vector, H @ vector)
        g = rng.normal(size=4)
        assert curvature.solve(g) == pytest.approx(np.linalg.solve(H, g))


def test_pairs_of_negative_curvature_are_left_out():
    curvature = Curvature()
    curvature.learn(np.array([1.0, 0.0]), np.array([-1.0, 0.0]))
    assert not curvature.pairs
