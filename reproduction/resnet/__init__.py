"""The residual nets of the paper's experiments on images, K replicas at once, with kernels of their own."""

from .resnet import ResNet, resnet_cifar

__all__ = ["ResNet", "resnet_cifar"]
