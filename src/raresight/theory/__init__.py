"""Compute what a loss does as the event gets rarer: risk, information, decay index, limits, influence.

`gaussian` (linear rules on Gaussian mixtures) and `influence` are for researchers: no other room uses them.
"""

from .experiments import (
    DensityExperiment,
    DiscreteExperiment,
    EmpiricalExperiment,
    Experiment,
    GaussianExperiment,
)
from .information import (
    ExplainedInterval,
    LocalIndex,
    decay_exponent,
    divergence,
    explained_fraction,
    explained_interval,
    local_index,
    statistical_information,
)
from .risk import bayes_risk, centred_f_function, f_function, limiting_f_function, pointwise_risk

__all__ = [
    "DensityExperiment",
    "DiscreteExperiment",
    "EmpiricalExperiment",
    "Experiment",
    "ExplainedInterval",
    "GaussianExperiment",
    "LocalIndex",
    "bayes_risk",
    "centred_f_function",
    "decay_exponent",
    "divergence",
    "explained_fraction",
    "explained_interval",
    "f_function",
    "limiting_f_function",
    "local_index",
    "pointwise_risk",
    "statistical_information",
]
