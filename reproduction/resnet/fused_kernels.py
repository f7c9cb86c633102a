"""The CUDA kernels of the residual trunk: which there are, and what each is given.

They do a layer of K nets at once, for images of 32 x 32 pixels in bfloat16: the batch norm before a
convolution is taken as its input is loaded, both gradients of a convolution in one pass (two with 64
channels). Each activation is so read and written about eight times a step, where `triton_layers` needs 13.
See the sources in cuda/.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .cuda_driver import compiler, kernel, most_shared
from .triton_layers import Normed, floats, stride_of

SIDE = 32
"""Of the images."""
_TILES_OF_BLOCK = 4
"""How many times a block of threads does 1, 2 or 4 images (of 16, 32 or 64 channels), for one partial sum."""
_THREADS = 256
_LOADING_WARPS, _INPUT_WARPS = 4, 8
"""Of a block of the backward pass: those that load, and those that compute the gradient by the input."""
_MOST_LAYERS = 32
_ROWS = 32
_RAW = 32 * 1024
"""Bytes of the images of a tile."""
_SHARED = 227 * 1024
"""Bytes of shared memory that a block of a Hopper may have."""


class KernelWarning(UserWarning):
    """Nets are trained by slower kernels than the GPU could run."""


class _Backward(ctypes.Structure):
    """`Arguments` of cuda/backward.cu."""

    _fields_ = [
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("dz", "y", "mean", "inverse", "gamma", "sums", "x", "below"),
                *("below_mean", "below_inverse", "below_gamma", "below_beta", "shortcut", "weights"),
                *("dz_below", "partial_sums", "partial_weights"),
            )
        ),
        ("images", ctypes.c_int),
        ("images_of_block", ctypes.c_int),
        ("stride_x", ctypes.c_longlong),
    ]


class _InUse(ctypes.Structure):
    """`Arguments` of cuda/in_use.cu."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("input", "wide", "weights", "scale", "shift", "out", "means")),
        *((name, ctypes.c_int) for name in ("images", "images_of_block", "layers")),
        ("stride_in", ctypes.c_longlong),
    ]


class _Collect(ctypes.Structure):
    """`Arguments` of cuda/collect.cu."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("partial_sums", "partial_weights", "sums", "weights")),
        *((name, ctypes.c_int) for name in ("blocks", "channels", "inputs")),
    ]


class _PackedLayer(ctypes.Structure):
    """`Layer` of cuda/pack.cu."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weight", "forward", "backward")),
        *((name, ctypes.c_int) for name in ("inputs", "channels")),
    ]


class _FoldedNorm(ctypes.Structure):
    """`Norm` of cuda/fold.cu."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("gamma", "beta", "mean", "variance", "scale", "shift")),
        ("channels", ctypes.c_int),
    ]


def is_available(device: torch.device) -> bool:
    """Whether a device can run these kernels: NVIDIA's with the shared memory of a Hopper, and a compiler."""
    if device.type != "cuda" or torch.version.cuda is None:
        return False
    return _runs_on(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _runs_on(device: int) -> bool:
    if torch.cuda.get_device_capability(device) < (9, 0) or most_shared(device) < _SHARED:
        return False
    why = "was not found"
    if compiler() is not None:
        try:
            # A small one, to see: the compiler may not know the device, or the driver not what it makes.
            with torch.cuda.device(device):
                kernel(device, "lay_out", _THREADS, 0, (("THREADS", _THREADS),))
        except RuntimeError as error:
            why = f"does not work here ({str(error).strip()})"
        else:
            return True
    warnings.warn(
        f"NVRTC, the compiler of CUDA C++ that PyTorch's wheels bring (nvidia-cuda-nvrtc), {why}: nets on "
        "images are trained by Triton's kernels, at about half the speed",
        KernelWarning,
        stacklevel=3,
    )
    return False


def suits(kind: torch.dtype, images: int, height: int, width: int, *, training: bool) -> bool:
    """Whether the kernels take such a batch: images of 32 x 32 in bfloat16.

    In training their number must be a multiple of four, which the last stage does at once.
    """
    return kind == torch.bfloat16 and height == width == SIDE and (not training or images % 4 == 0)


def images_of_block(channels: int) -> int:
    """How many images a block of threads does one after the other."""
    return _TILES_OF_BLOCK * channels // 16


def pairs_of(channels: int) -> int:
    """How many pairs of words the packed weights of a layer of one net are."""
    return 9 * (channels // 16) * (channels // 8) * 32


def lay_out(images: Tensor) -> Tensor:
    """Images (K, N, colours, H, W) in float32 as (K, N, H, W, 16) in bfloat16, with channels of zeros."""
    *count, colours, height, width = images.shape
    out = images.new_empty((*count, height, width, 16), dtype=torch.bfloat16)
    pixels = out.numel() // 16
    numbers = (ctypes.c_int(colours), ctypes.c_int(height * width), ctypes.c_longlong(pixels))
    run = _kernel(images, "lay_out", _THREADS, 0)
    run((-(-pixels // _THREADS), 1, 1), [images.contiguous(), out, *numbers])
    return out


def pack(
    weights: Sequence[Tensor], channels: Sequence[int], *, gradients: bool
) -> list[tuple[Tensor, Tensor]]:
    """The weights (K, channels, in, 3, 3) of layers as the kernels take them, for both directions.

    Layers of as many channels that follow each other are neighbours in memory. Without `gradients` those of
    the backward direction are empty.
    """
    nets, like = len(weights[0]), weights[0]
    sizes = [nets * pairs_of(width) * 2 for width in channels]
    room = [like.new_empty(sum(sizes) if wanted else 0, dtype=torch.int32) for wanted in (True, gradients)]
    found = list(
        zip(torch.split(room[0], sizes), torch.split(room[1], sizes) if gradients else [room[1]] * len(sizes))
    )
    layers = [
        _PackedLayer(weight.data_ptr(), ahead.data_ptr(), back.data_ptr(), weight.shape[2], width)
        for weight, width, (ahead, back) in zip(weights, channels, found)
    ]
    blocks = max((width // 16) * (width // 8) for width in channels)
    run = _kernel(like, "pack", 9 * 32, 2 * 16 * 8 * 9 * 4)
    for start in range(0, len(layers), _MOST_LAYERS):
        part = layers[start : start + _MOST_LAYERS]
        run((blocks, nets, len(part)), [(_PackedLayer * _MOST_LAYERS)(*part)])
    return found


def fold(
    scales: Sequence[Tensor],
    shifts: Sequence[Tensor],
    means: Sequence[Tensor],
    variances: Sequence[Tensor],
    epsilon: float,
) -> list[tuple[Tensor, Tensor]]:
    """Batch norms (K, C) as a scale and a shift each; neighbours in memory are as for `pack`."""
    like, nets = scales[0], len(scales[0])
    sizes = [scale.numel() for scale in scales]
    room = [floats(like, sum(sizes)) for _ in range(2)]
    found = list(zip(*(torch.split(part, sizes) for part in room)))
    norms = [
        _FoldedNorm(*(tensor.data_ptr() for tensor in (*given, *out)), given[0].shape[1])
        for given, out in zip(zip(scales, shifts, means, variances), found)
    ]
    run = _kernel(like, "fold", _THREADS, 0)
    for start in range(0, len(norms), _MOST_LAYERS):
        part = norms[start : start + _MOST_LAYERS]
        run(
            (-(-max(sizes) // _THREADS), 1, len(part)),
            [(_FoldedNorm * _MOST_LAYERS)(*part), ctypes.c_float(epsilon), ctypes.c_int(nets)],
        )
    return found


def forward(
    before: Tensor,
    norm: tuple[Tensor, Tensor, Tensor, Tensor] | None,
    shortcut: Tensor | None,
    weights: Tensor,
    nets: int,
    *,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """A convolution: y, the partial statistics of its blocks, and its input x.

        x = relu((before - mean) inverse gamma + beta + shortcut)

    Args:
        before: (K or 1, N, H, W, C).
        norm: mean, inverse, gamma and beta, (K, C) each; None where `before` is x.
        shortcut: Like `before`, or None.
        weights: Packed.
        nets: K.
        keep: Whether x is wanted.
    """
    images, side, _, channels = before.shape[1:]
    count = images_of_block(channels)
    blocks = -(-images // count)
    y = before.new_empty((nets, images, side, side, channels))
    kept = torch.empty_like(y) if keep else None
    partial = floats(before, nets, blocks, 2, channels)
    shared = _tile(channels) + (1 + (shortcut is not None)) * _RAW + _THREADS * 16 + 2 * channels * 4
    run = _kernel(
        before, "forward", _THREADS, shared, CHANNELS=channels, LOADERS=_THREADS,
        ONE_TILE=channels == 64, NORMED=norm is not None, ADDED=shortcut is not None, KEPT=keep,
    )  # fmt: skip
    counts = (ctypes.c_int(images), ctypes.c_int(count), ctypes.c_longlong(stride_of(before)))
    run((blocks, nets, 1), [before, shortcut, *(norm or (None,) * 4), weights, kept, y, partial, *counts])
    return y, partial, kept


def backward(
    dz: Tensor,
    layer: Normed,
    gamma: Tensor,
    sums: Tensor,
    *,
    x: Tensor | None,
    below: tuple[Normed, Tensor, Tensor] | None,
    shortcut: Tensor | None,
    weights: Tensor,
    gradient: Tensor,
    sums_below: Tensor | None,
) -> Tensor | None:
    """dz of the layer below; its sums and the weights' gradient are written where they are wanted.

    Args:
        dz: Of the layer.
        layer: What its convolution gave.
        gamma: Of its batch norm.
        sums: Of dz and dz times the normed y, (K, 2, C).
        x: The layer's input; None where it is what batch norm and relu give of `below`.
        below: What the convolution below gave, with its gamma and beta; None for the first layer, of which no
            gradient by the input is wanted.
        shortcut: A gradient that is added to that by the input, or None.
        weights: Packed, of the backward direction.
        gradient: Room for the weights' gradient, (K, out, in, 3, 3).
        sums_below: Room for those of the layer below, if there is one, as `sums`.
    """
    nets, images, channels = dz.shape[0], dz.shape[1], dz.shape[-1]
    count = images_of_block(channels)
    blocks = -(-images // count)
    is_input = below is not None
    dz_below = torch.empty_like(dz) if is_input else None
    partial_sums = floats(dz, nets, blocks, 2, channels) if is_input else None
    partial_weights = floats(dz, nets, blocks, 9, channels, channels)
    norms = (None, *(None,) * 4) if below is None else (below[0].y, *_norms(below))
    given = (
        *(dz, layer.y, layer.mean, layer.inverse, gamma, sums, x, *norms),
        *(shortcut, weights, dz_below, partial_sums, partial_weights),
    )
    arguments = _Backward(*map(_pointer, given), images, count, 0 if x is None else stride_of(x))
    # With 64 channels the registers do not hold both gradients.
    passes = [(True, False), (False, True)] if channels == 64 and is_input else [(is_input, True)]
    for has_input, has_weight in passes:
        threads = 32 * (_LOADING_WARPS + (12 if has_input and has_weight else 8))
        rows = 4 * (1 + (shortcut is not None) + (x is not None and not has_weight)) + 1 if has_input else 0
        tiles = 2 * (1 + has_weight) * _tile(channels) + _INPUT_WARPS * rows * 512 + 5 * channels * 4
        batch = 2 * (2 + has_weight) * 32 * _LOADING_WARPS * 16
        depth = min(4, (_SHARED - tiles) // batch)
        run = _kernel(
            dz, "backward", threads, tiles + depth * batch, CHANNELS=channels, LOADERS=32 * _LOADING_WARPS,
            DEPTH=depth, ONE_TILE=channels > 16, INPUT=has_input, WEIGHT=has_weight, MIDDLE=x is None,
            ADDED=shortcut is not None,
        )  # fmt: skip
        shares = 2 if channels == 64 and has_weight else 1
        run((blocks * shares, nets, 1), [arguments])
    tensors = (partial_sums, partial_weights, sums_below, gradient)
    collected = _Collect(*map(_pointer, tensors), blocks, channels, gradient.shape[2])
    # Sums of many blocks are worth a thread each.
    threads = 8 * 8 * 9 if channels == 16 else 8 * 8 * 3
    _kernel(dz, "collect", threads, 8 * 8 * 9 * 4)(((channels // 8) ** 2, nets, 1), [collected])
    return dz_below


def in_use(
    x: Tensor, wide: Tensor | None, weights: Tensor, norms: tuple[Tensor, Tensor], layers: int, nets: int
) -> Tensor:
    """The layers of a stage of nets in use: what the last gives, or its means over pixels (K, N, 64).

    Args:
        x: The first layer's input.
        wide: What the stage before gave; None for the first.
        weights: Packed, of the first layer; those of the others follow.
        norms: Scales and shifts, likewise.
        layers: How many.
        nets: K.
    """
    images, channels = x.shape[1], x.shape[-1]
    gives_means = channels == 64
    out = floats(x, nets, images, channels) if gives_means else x.new_empty((nets, *x.shape[1:]))
    given = (x, wide, weights, *norms, *((None, out) if gives_means else (out, None)))
    count = images_of_block(channels)
    arguments = _InUse(*map(_pointer, given), images, count, layers, stride_of(x))
    run = _kernel(
        x, "in_use", _THREADS, 2 * _tile(channels), CHANNELS=channels,
        LOADERS=_THREADS, ONE_TILE=channels == 64,
    )  # fmt: skip
    run((-(-images // count), nets, 1), [arguments])
    return out


def _norms(below: tuple[Normed, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    normed, gamma, beta = below
    return normed.mean, normed.inverse, gamma, beta


def _tile(channels: int) -> int:
    """Bytes of a tile (cuda/tile.cuh)."""
    return _ROWS * (512 // channels + 2) * channels * 2


def _kernel(like: Tensor, name: str, threads: int, shared: int, **defines: int) -> Callable[..., None]:
    chosen = tuple((key, int(value)) for key, value in {"THREADS": threads, **defines}.items())
    return kernel(like.get_device(), name, threads, shared, chosen)


def _pointer(tensor: Tensor | None) -> Any:
    return 0 if tensor is None else tensor.data_ptr()
