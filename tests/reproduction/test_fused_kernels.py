"""The CUDA kernels of the residual trunk, thread by thread on a CPU, against the layers they replace.

Strided layers, which go through Triton's kernels, are computed in float32 here: the interpreter's bfloat16
products are not those of a GPU (see tests/gpu for them).
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("runs in Triton's interpreter; on a GPU see tests/gpu", allow_module_level=True)

from cuda_on_cpu import emulator
from reproduction.resnet import cuda_driver, fused_kernels, fused_pass, triton_layers, trunk
from reproduction.resnet.triton_layers import Normed, Running, Setting, TritonLayers, plan_layers
from small_resnets import a_net, difference

if emulator.why_not():
    pytest.skip(emulator.why_not(), allow_module_level=True)

BF16 = torch.bfloat16
CHANNELS = (16, 32, 64)
IS_AVAILABLE = fused_kernels.is_available
# Times the images that are done at once: a block and most of a second one.
NOT_FULL = fused_kernels._TILES_OF_BLOCK + 3
# Bytes of registers that the compiler may keep in memory.
MOST_SPILLED = {
    **dict.fromkeys(("backward", "collect", "fold", "lay_out", "pack"), 0),
    "forward": 64,
    "in_use": 400,
}


@pytest.fixture(autouse=True)
def _kernels_on_a_cpu(monkeypatch):
    monkeypatch.setattr(fused_kernels, "kernel", emulator.emulated)
    monkeypatch.setattr(fused_kernels, "is_available", lambda device: True)
    monkeypatch.setattr(fused_pass, "TritonLayers", _WideLayers)
    monkeypatch.setattr(trunk, "_precision", lambda x: BF16)
    # The interpreter's time is that of its programs; their own sizes are tried in test_residual_kernels.
    wide = {name: dict.fromkeys(CHANNELS, (1024, 4)) for name in triton_layers._TILES}
    monkeypatch.setattr(triton_layers, "_TILES", wide)


def _wide(value):
    if isinstance(value, Normed):
        return Normed(value.y.float(), value.mean, value.inverse)
    return value.float() if isinstance(value, torch.Tensor) else value


def _narrow(value):
    if isinstance(value, Normed):
        return Normed(value.y.to(BF16), value.mean, value.inverse)
    return (value[0].to(BF16), *value[1:]) if isinstance(value, tuple) else value.to(BF16)


class _WideLayers(TritonLayers):
    """In float32, rounded in the end."""

    def __init__(self, setting, pixels, *parameters):
        super().__init__(setting, pixels.float(), *parameters)

    def convolve(self, *given):
        return _narrow(super().convolve(*map(_wide, given)))

    def normalise(self, *given):
        return _narrow(super().normalise(*map(_wide, given)))

    def in_use(self, *given):
        return _narrow(super().in_use(*map(_wide, given)))

    def pooled_gradient(self, *given):
        return self._with_sums(super().pooled_gradient, given)

    def norm_gradient(self, *given):
        return _narrow(super().norm_gradient(*map(_wide, given)))

    def weight_gradient(self, *given):
        return super().weight_gradient(*map(_wide, given))

    def input_gradient(self, *given):
        return self._with_sums(super().input_gradient, given)

    @staticmethod
    def _with_sums(call, given):
        # The last is room for the sums, in float32 already: a copy would not be written to.
        return _narrow(call(*map(_wide, given[:-1]), given[-1]))


class _NoLayers(_WideLayers):
    """Of the right sizes, and nothing in them."""

    def _room(self, place):
        layer = self._setting.layers[place]
        y = torch.zeros(self.replicas, self.images, *layer.out_size, dtype=BF16)
        return Normed(y, torch.zeros(self.replicas, layer.channels_out), torch.zeros(1))

    def convolve(self, place, x):
        return self._room(place)

    def normalise(self, place, normed, block_input):
        return normed.y

    def in_use(self, place, x, block_input):
        return self._room(place).y

    def pooled_gradient(self, features_gradient, last, out, sums):
        return last.y, sums

    def norm_gradient(self, place, normed, dz, sums):
        return dz

    def weight_gradient(self, place, x, dy):
        return torch.zeros_like(self._weights[place])

    def input_gradient(self, place, dy, block_gradient, below, out_below, sums):
        return below.y, sums


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def activations(nets, images, channels, seed):
    side = 512 // channels
    return random(nets, images, side, side, channels, seed=seed).to(BF16)


def norms(nets, channels, seed):
    """mean, inverse, gamma and beta."""
    return tuple(1 + 0.3 * random(nets, channels, seed=seed + i) for i in range(4))


def normalised(y, norm):
    mean, inverse, gamma, beta = (part[:, None, None, None] for part in norm)
    return (y.float() - mean) * inverse * gamma + beta


def convolved(x, weights):
    """In float64, of each net."""
    planes = x.double().permute(0, 1, 4, 2, 3)
    found = [F.conv2d(own, w.to(BF16).double(), padding=1) for own, w in zip(planes, weights)]
    return torch.stack(found).permute(0, 1, 3, 4, 2)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("kind", ["as it is", "normed", "kept", "added"])
def test_a_convolution_with_the_norm_before_it_and_the_statistics_after(channels, kind):
    nets, images = 2, NOT_FULL * channels // 16
    before, shortcut = (activations(nets, images, channels, seed) for seed in (1, 2))
    norm = None if kind == "as it is" else norms(nets, channels, 3)
    added = shortcut if kind == "added" else None
    weights = random(nets, channels, channels, 3, 3, seed=9) / (9 * channels) ** 0.5
    ((packed, _),) = fused_kernels.pack([weights], [channels], gradients=False)
    keep = kind in ("kept", "added")
    y, partial, kept = fused_kernels.forward(before, norm, added, packed, nets, keep=keep)

    x = before.float()
    if norm is not None:
        x = normalised(before, norm)
        x = (x + shortcut.float() if added is not None else x).relu()
    assert (kept is not None) == keep
    if kept is not None:
        assert difference(kept, x) < 2e-3
        x = kept
    wanted = convolved(x.to(BF16), weights)
    assert difference(y, wanted) < 2e-3
    block = fused_kernels.images_of_block(channels)
    assert partial.shape[1] == 2
    for place, part in enumerate(wanted.split(block, 1)):
        values = part.reshape(nets, -1, channels)
        mean = values.mean(1)
        assert difference(partial[:, place, 0], mean) < 1e-3
        assert difference(partial[:, place, 1], (values - mean[:, None]).square().sum(1)) < 1e-3


def test_images_shared_by_all_nets():
    before = activations(1, 4, 16, 1)
    weights = random(3, 16, 16, 3, 3, seed=9)
    ((packed, _),) = fused_kernels.pack([weights], [16], gradients=False)
    y, *_ = fused_kernels.forward(before, None, None, packed, 3, keep=False)
    assert difference(y, convolved(before.expand(3, -1, -1, -1, -1), weights)) < 2e-3


@pytest.mark.parametrize(
    ("channels", "kind"),
    [*product(CHANNELS, ["middle of a block", "first of a block"]), (16, "first of all")],
)
def test_the_gradients_of_a_convolution(channels, kind):
    nets, images = 2, NOT_FULL * channels // 16
    dz, y, below, shortcut = (activations(nets, images, channels, seed) for seed in range(1, 5))
    norm, norm_below = norms(nets, channels, 5), norms(nets, channels, 15)
    pixels = dz[0].numel() // channels
    sums = 0.3 * pixels * random(nets, 2, channels, seed=25)
    inputs = 3 if kind == "first of all" else channels
    weights = random(nets, channels, inputs, 3, 3, seed=26) / (9 * channels) ** 0.5
    ((_, packed),) = fused_kernels.pack([weights], [channels], gradients=True)
    middle = kind == "middle of a block"
    x = (normalised(below, norm_below) if middle else activations(nets, images, channels, 27).float()).relu()
    x = x.to(BF16)
    gradient = torch.full_like(weights, torch.nan)
    first = kind == "first of all"
    sums_below = None if first else torch.full((nets, 2, channels), torch.nan)
    dz_below = fused_kernels.backward(
        dz,
        Normed(y, norm[0], norm[1]),
        norm[2],
        sums,
        x=None if middle else x,
        below=None if first else (Normed(below, *norm_below[:2]), *norm_below[2:]),
        shortcut=shortcut if kind == "first of a block" else None,
        weights=packed,
        gradient=gradient,
        sums_below=sums_below,
    )

    mean, inverse, gamma, _ = (part[:, None, None, None] for part in norm)
    plain, along = (sums[:, i, None, None, None] / pixels for i in range(2))
    dy = gamma * inverse * (dz.float() - plain - (y.float() - mean) * inverse * along)
    padded = F.pad(weights, (0, 0, 0, 0, 0, channels - inputs))
    x_wide, w_wide = x.double().requires_grad_(), padded.to(BF16).double().requires_grad_()
    out = torch.stack(
        [F.conv2d(a.permute(0, 3, 1, 2), b, padding=1) for a, b in zip(x_wide, w_wide)]
    ).permute(0, 1, 3, 4, 2)
    dx, dw = torch.autograd.grad(out, (x_wide, w_wide), dy.to(BF16).double())
    assert difference(gradient, dw[:, :, :inputs]) < 1e-4
    if first:
        assert dz_below is None
        return
    wanted = dx + (shortcut.double() if kind == "first of a block" else 0.0)
    wanted = torch.where(x > 0, wanted, 0.0)
    assert difference(dz_below, wanted) < 2e-3
    normed = (below.double() - norm_below[0][:, None, None, None]) * norm_below[1][:, None, None, None]
    assert difference(sums_below[:, 0], wanted.sum((1, 2, 3))) < 2e-3
    assert difference(sums_below[:, 1], (wanted * normed).sum((1, 2, 3))) < 2e-3


def test_images_are_laid_out_with_channels_of_zeros():
    images = random(2, 3, 3, 8, 4)
    found = fused_kernels.lay_out(images)
    assert found.shape == (2, 3, 8, 4, 16)
    assert torch.equal(found[..., :3], images.permute(0, 1, 3, 4, 2).to(BF16))
    assert not found[..., 3:].any()


def test_many_layers_are_packed_and_folded_in_several_launches():
    weights = [random(2, 16, 16, 3, 3, seed=seed) for seed in range(fused_kernels._MOST_LAYERS + 2)]
    packed = fused_kernels.pack(weights, [16] * len(weights), gradients=True)
    for alone, pair in ((weights[0], packed[0]), (weights[-1], packed[-1])):
        ((ahead, back),) = fused_kernels.pack([alone], [16], gradients=True)
        assert torch.equal(ahead, pair[0])
        assert torch.equal(back, pair[1])
    numbers = [[random(2, 16, seed=seed + 50 * i).abs() for seed in range(len(weights))] for i in range(4)]
    for (scale, shift), gamma, beta, mean, variance in zip(fused_kernels.fold(*numbers, 1e-5), *numbers):
        wanted = gamma / (variance + 1e-5).sqrt()
        torch.testing.assert_close(scale.view_as(gamma), wanted)
        torch.testing.assert_close(shift.view_as(gamma), beta - mean * wanted)


# Whole nets.


def kernel_features(net, x):
    convolutions, norm_layers = zip(*net._layers())
    return trunk.trunk(
        x,
        plan_layers(len(net.blocks) // 3, *x.shape[-2:]),
        [layer.weight for layer in convolutions],
        [norm.weight for norm in norm_layers],
        [norm.bias for norm in norm_layers],
        [Running(norm.running_mean, norm.running_var) for norm in norm_layers],
        training=net.training,
    )


def layer_features(net, x):
    x = torch.relu(net.stem_norm(net.stem(x.transpose(0, 1) if x.dim() == 5 else x)))
    for block in net.blocks:
        x = block(x)
    return x.mean((3, 4)).transpose(0, 1)


def gradients_of(net):
    return {name: p.grad for name, p in net.named_parameters() if p.grad is not None}


def test_a_net_is_as_near_as_the_layers_under_autocast():
    net, x, pull = a_net(depth=14), random(2, 4, 3, 32, 32).to(BF16).float(), random(2, 4, 64, seed=1)
    ours, rival, exact = copy.deepcopy(net), copy.deepcopy(net), copy.deepcopy(net).double()
    features = kernel_features(ours, x)
    (features * pull).sum().backward()
    with torch.autocast("cpu", BF16):
        theirs = layer_features(rival, x).float()
    (theirs * pull).sum().backward()
    wanted = layer_features(exact, x.double())
    (wanted * pull).sum().backward()

    assert difference(features, wanted) < 1.2 * difference(theirs, wanted) < 0.01
    right = gradients_of(exact)
    assert gradients_of(ours).keys() == right.keys()
    apart = {name: difference(gradient, right[name]) for name, gradient in gradients_of(ours).items()}
    others = {name: difference(gradient, right[name]) for name, gradient in gradients_of(rival).items()}
    median = sorted(apart.values())[len(apart) // 2]
    assert median < 1.2 * sorted(others.values())[len(others) // 2]
    assert max(apart.values()) < 0.35
    statistics = dict(exact.named_buffers())
    for name, buffer in ours.named_buffers():
        if "running" in name:
            assert difference(buffer, statistics[name]) < 0.01, name

    ours.eval()
    exact.eval()
    # Not as many as a block of the last stage does at once, and the same for all nets.
    few = random(5, 3, 32, 32, seed=3)
    with torch.no_grad():
        assert difference(kernel_features(ours, few), layer_features(exact, few.double())) < 0.01


def test_nets_in_two_groups_have_the_same_bits_and_a_nan_stays_where_it_is(monkeypatch):
    """Of images that all nets share in one case, and that each has for itself in the other."""
    x = random(4, 3, 32, 32)
    plain, spoilt = a_net(depth=8, replicas=3), a_net(depth=8, replicas=3)
    features = kernel_features(plain, x)
    features.sum().backward()
    monkeypatch.setattr(fused_pass, "_FEWEST_FOR_GROUPS", 2)
    with torch.no_grad():
        spoilt.stem.weight[1] = torch.nan
    others = kernel_features(spoilt, x.expand(3, -1, -1, -1, -1))
    others.sum().backward()
    assert others[1].isnan().all()
    found, statistics = gradients_of(spoilt), dict(spoilt.named_buffers())
    # The first group has one net, the second the one that is spoilt and another.
    for k in (0, 2):
        assert torch.equal(features[k], others[k])
        assert all(torch.equal(grad[k], found[name][k]) for name, grad in gradients_of(plain).items())
        assert all(torch.equal(buffer[k], statistics[name][k]) for name, buffer in plain.named_buffers())


def test_shared_images_in_two_groups(monkeypatch):
    net, x = a_net(depth=8, replicas=2), random(4, 3, 32, 32)
    monkeypatch.setattr(fused_pass, "_FEWEST_FOR_GROUPS", 2)
    with torch.no_grad():
        features = kernel_features(net, x)
        wanted = layer_features(copy.deepcopy(net).double(), x.to(BF16).double())
    assert difference(features, wanted) < 0.01


def test_which_passes_the_kernels_take():
    net = a_net(depth=8, replicas=1)

    def takes(pixels, training=True, weight_type=torch.float32):
        convolutions, norm_layers = zip(*net._layers())
        running = tuple(Running(norm.running_mean, norm.running_var) for norm in norm_layers)
        layers = plan_layers(1, *pixels.shape[2:4])
        setting = Setting(layers, running, training, training, 0.1, 1e-5)
        weights = [layer.weight.to(weight_type) for layer in convolutions]
        return fused_pass.FusedPass.takes(setting, pixels, weights, [], [])

    assert takes(torch.zeros(1, 4, 32, 32, 16, dtype=BF16))
    assert not takes(torch.zeros(1, 4, 32, 32, 16))
    assert not takes(torch.zeros(1, 4, 64, 64, 16, dtype=BF16))
    assert not takes(torch.zeros(1, 6, 32, 32, 16, dtype=BF16))
    assert takes(torch.zeros(1, 6, 32, 32, 16, dtype=BF16), training=False)
    assert not takes(torch.zeros(1, 4, 32, 32, 16, dtype=BF16), weight_type=BF16)


@pytest.mark.parametrize(
    ("device", "kind", "shape", "width", "wanted"),
    [
        ("cuda", BF16, (128, 3, 32, 32), 16, "fused"),
        ("cuda", torch.float32, (128, 3, 32, 32), 16, "triton"),
        ("cuda", BF16, (126, 3, 32, 32), 16, "triton"),
        ("cuda", BF16, (128, 3, 64, 64), 16, "triton"),
        ("cuda", BF16, (128, 3, 32, 32), 32, "layers"),
        ("cuda", torch.float64, (128, 3, 32, 32), 16, "layers"),
        ("cpu", BF16, (128, 3, 32, 32), 16, "layers"),
    ],
)
def test_what_trains_a_net_is_known_beforehand(device, kind, shape, width, wanted):
    assert trunk.kernels_for(torch.device(device), kind, shape, width) == wanted


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc, which compiles for a GPU, is not installed")
@pytest.mark.parametrize("which", ["one of each", pytest.param("all", marks=pytest.mark.slow)])
def test_every_kernel_compiles_for_a_gpu_and_fits_into_its_registers(which, monkeypatch, tmp_path):
    """All that a net with three blocks a stage asks for: the deeper ones ask for no other."""
    asked = []

    def note(device, name, threads, shared, defines):
        asked.append((name, defines))
        return lambda grid, arguments: None

    monkeypatch.setattr(fused_kernels, "kernel", note)
    monkeypatch.setattr(fused_pass, "TritonLayers", _NoLayers)
    monkeypatch.setattr(fused_pass, "finish_statistics", lambda setting, place, y, *given: Normed(y, y, y))
    net = a_net(depth=20, replicas=1)
    kernel_features(net, random(1, 4, 3, 32, 32)).sum().backward()
    with torch.no_grad():
        kernel_features(net.eval(), random(1, 4, 3, 32, 32))
    variants = sorted(set(asked))
    assert len(variants) == 27
    assert {name for name, *_ in variants} == {path.stem for path in cuda_driver.SOURCES.glob("*.cu")}

    def compiled(place):
        name, defines = variants[place]
        source = tmp_path / f"{place}.cu"
        source.write_text(cuda_driver.source_of(name))
        command = [
            "nvcc",
            "-arch=sm_90",
            "-std=c++17",
            "-cubin",
            "-Xptxas",
            "-v",
            "-o",
            str(tmp_path / f"{place}"),
        ]
        command += [*(f"-D{key}={value}" for key, value in defines), str(source)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        # A few words are, outside of the loops over rows; more would cost time.
        assert int(re.search(r"(\d+) bytes spill stores", run.stderr)[1]) <= MOST_SPILLED[name], (
            name,
            defines,
        )

    firsts = {name: place for place, (name, _) in reversed([*enumerate(variants)])}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compiled, range(len(variants)) if which == "all" else firsts.values()))


def test_without_a_compiler_that_is_said(monkeypatch):
    monkeypatch.setattr(cuda_driver, "compiler", lambda: None)
    with pytest.raises(RuntimeError, match="NVRTC, the compiler of CUDA C"):
        cuda_driver.compile_cuda("", {}, "sm_90")


def a_gpu(monkeypatch, capability=(9, 0), shared=227 * 1024, compiler=object, kernel=lambda *given: None):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(fused_kernels, "most_shared", lambda device: shared)
    monkeypatch.setattr(fused_kernels, "compiler", compiler)
    monkeypatch.setattr(fused_kernels, "kernel", kernel)
    fused_kernels._runs_on.cache_clear()
    return torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _forget_gpus():
    yield
    fused_kernels._runs_on.cache_clear()


@pytest.mark.parametrize(("capability", "shared"), [((8, 0), 163 * 1024), ((12, 0), 99 * 1024)])
def test_a_gpu_with_less_shared_memory_has_triton(monkeypatch, capability, shared):
    assert not IS_AVAILABLE(a_gpu(monkeypatch, capability, shared))
    assert IS_AVAILABLE(a_gpu(monkeypatch, (10, 0)))
    assert not IS_AVAILABLE(torch.device("cpu"))


def test_a_gpu_that_could_be_faster_is_told(monkeypatch):
    device = a_gpu(monkeypatch, compiler=lambda: None)
    with pytest.warns(fused_kernels.KernelWarning, match=r"\(nvidia-cuda-nvrtc\), was not found"):
        assert not IS_AVAILABLE(device)

    def fails(*given):
        raise RuntimeError("invalid value for --gpu-architecture (-arch)\n")

    device = a_gpu(monkeypatch, kernel=fails)
    with pytest.warns(fused_kernels.KernelWarning, match=r"does not work here \(invalid value .*arch\)\)"):
        assert not IS_AVAILABLE(device)
    # Once.
    assert not IS_AVAILABLE(device)
