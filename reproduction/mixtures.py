"""The Gaussian mixtures that the paper's figures are drawn on."""

from __future__ import annotations

from raresight.theory.gaussian import GaussianMixture

from .simulate import read_clusters

__all__ = ["paper_mixture", "single_clusters"]


def paper_mixture() -> tuple[GaussianMixture, GaussianMixture]:
    """Minority and majority of section 2.3: two clusters each."""
    return read_clusters(None)


def single_clusters() -> tuple[GaussianMixture, GaussianMixture]:
    """One cluster each, of different shapes. The paper does not give those of its first figure."""
    minority = GaussianMixture([1.0], [[1.0, 1.0]], [[[1.0, 0.3], [0.3, 0.5]]])
    majority = GaussianMixture([1.0], [[0.0, 0.0]], [[[1.0, -0.2], [-0.2, 2.0]]])
    return minority, majority
