"""Nets that are K independent replicas of one architecture, trained as one.

Weights are stacked: every parameter and buffer has shape (K, ...). Inputs are (K, N, ...), or (N, ...) for
all replicas; scores are (K, N), or (K, N, classes). A net alone is a net with `replicas=1`.
"""

from .layers import ReplicaNet
from .mlp import MLP
from .resnet import ResNet, resnet_cifar
from .tabm import TabM, mean_probability
from .tabnet import TabNet, TabNetDetails

__all__ = [
    "MLP",
    "ReplicaNet",
    "ResNet",
    "TabM",
    "TabNet",
    "TabNetDetails",
    "mean_probability",
    "resnet_cifar",
]
