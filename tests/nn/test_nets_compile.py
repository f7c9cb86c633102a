"""The nets are one graph for torch.compile, and compiled they give the same numbers."""

from __future__ import annotations

import pytest
import torch

from raresight.nn.nets import MLP, TabM, TabNet
from reproduction.resnet import resnet_cifar

torch.set_num_threads(1)

NETS = {
    "mlp": lambda: (MLP(6, hidden=(8,), batch_norm=True, replicas=2), (2, 20, 6)),
    "tabnet": lambda: (TabNet(6, steps=2, ghost_batch=7, replicas=2), (2, 20, 6)),
    "resnet": lambda: (resnet_cifar(8, width=4, replicas=2), (2, 4, 3, 8, 8)),
    "mixed heads": lambda: (MLP(6, hidden=(8,), replicas=2, cosine=(True, False)), (2, 20, 6)),
    "tabm": lambda: (TabM(6, members=3, blocks=2, width=8, replicas=2, cosine=(True, False)), (2, 20, 6)),
}


@pytest.mark.parametrize("name", NETS)
# "aot_eager" traces forward and backward whole; "inductor" also compiles them.
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_nets_give_the_same(name, backend):
    torch.compiler.reset()
    (net, shape), (compiled, _) = NETS[name](), NETS[name]()
    net, compiled = net.double(), compiled.double()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    graph = torch.compile(compiled, fullgraph=True, backend=backend)
    one, two = net(x), graph(x)
    torch.testing.assert_close(two, one, rtol=0, atol=1e-10)
    one.square().sum().backward()
    two.square().sum().backward()
    for (key, expected), got in zip(net.named_parameters(), compiled.parameters()):
        torch.testing.assert_close(got.grad, expected.grad, rtol=0, atol=1e-9, msg=key)
    for (key, expected), got in zip(net.named_buffers(), compiled.buffers()):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10, msg=key)
