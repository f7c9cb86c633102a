"""Nets that are K independent replicas of one architecture, trained as one.

Weights are stacked: every parameter and buffer has shape (K, ...). Inputs are (K, N, ...), or (N, ...) for
all replicas. Scores are (K, N), or (K, N, classes). A single net has `replicas=1`.

A net of your own is a `ReplicaNet` made of `ReplicaLayer`s, such as `Linear` and `BatchNorm` (docs/deep.md).
"""

from .heads import make_head
from .layers import BatchNorm, Linear, ReplicaLayer, ReplicaNet, draw_normal
from .mlp import MLP
from .tabm import TabM, mean_probability
from .tabnet import TabNet, TabNetDetails

__all__ = [
    "MLP",
    "BatchNorm",
    "Linear",
    "ReplicaLayer",
    "ReplicaNet",
    "TabM",
    "TabNet",
    "TabNetDetails",
    "draw_normal",
    "make_head",
    "mean_probability",
]
