"""Small residual nets whose norms do something, and how far two results are apart."""

from __future__ import annotations

import torch

from reproduction.resnet import resnet_cifar


def a_net(depth=8, replicas=2):
    net = resnet_cifar(depth, replicas=replicas).train()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if "norm" in name:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return net


def difference(found, wanted):
    found, wanted = found.detach().double(), wanted.detach().double()
    return float((found - wanted).norm() / wanted.norm())
