"""Triton kernels of the residual trunk: K stacked nets, activations [K, N, H, W, C], sums in float32.

Every kernel runs on a grid (blocks of pixels, replicas), or a little more, and nothing crosses replicas. A
reduction over pixels leaves one partial result a block, and a second kernel adds them up in a fixed order:
no atomics, so the same seed gives the same bits twice. A variance is the sum of squared distances from the
block's own mean, and blocks are merged by Chan's formula, so no digits are lost where the mean is large
beside the deviation.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Triton's language has names of its own for types and mutable "constants", and is not typed.
# mypy: ignore-errors


@triton.jit
def _tap_sums(
    x, w, p, valid, k, x_stride,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, S: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """sum over taps t of x[k, S p + t - 1] @ w[k, t], for output pixels p."""
    HO: tl.constexpr = H // S
    WO: tl.constexpr = W // S
    column = p % WO
    row = (p // WO) % HO
    image = p // (WO * HO)
    ci = tl.arange(0, CI)
    co = tl.arange(0, CO)
    x += k * x_stride
    w += k * (9 * CI * CO)
    sums = tl.zeros((BM, CO), tl.float32)
    # A loop, not unrolled: Triton fetches the next tap while this one is multiplied.
    for t in range(9):
        row_in = row * S + (t // 3 - 1)
        column_in = column * S + (t % 3 - 1)
        inside = (row_in >= 0) & (row_in < H) & (column_in >= 0) & (column_in < W) & valid
        a = tl.load(
            x + ((image * H + row_in) * W + column_in)[:, None] * CI + ci[None, :],
            mask=inside[:, None], other=0.0,
        )  # fmt: skip
        b = tl.load(w + t * (CI * CO) + ci[:, None] * CO + co[None, :])
        sums = tl.dot(a, b, sums, input_precision="tf32x3")
    return sums


@triton.jit
def convolve(
    x, w, y, partial, NP, x_stride,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, S: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """y[k, p] = sum over taps t of x[k, S p + t - 1] @ w[k, t].

    partial: of each block, the channels' means and the sums of squared distances from them.
    """
    block = tl.program_id(0)
    k = tl.program_id(1).to(tl.int64)
    p = block * BM + tl.arange(0, BM)
    valid = p < NP
    co = tl.arange(0, CO)
    sums = _tap_sums(x, w, p, valid, k, x_stride, H, W, CI, CO, S, BM)
    rounded = sums.to(y.dtype.element_ty)
    tl.store(y + (k * NP + p)[:, None] * CO + co[None, :], rounded, mask=valid[:, None])
    count = tl.minimum(NP - block * BM, BM).to(tl.float32)
    seen = tl.where(valid[:, None], rounded.to(tl.float32), 0.0)
    mean = tl.sum(seen, 0) / count
    distance = tl.where(valid[:, None], seen - mean[None, :], 0.0)
    place = partial + (k * tl.num_programs(0) + block) * (2 * CO) + co
    tl.store(place, mean)
    tl.store(place + CO, tl.sum(distance * distance, 0))


@triton.jit
def convolve_normalised(
    x, w, scale, shift, shortcut, a, NP, x_stride,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, S: tl.constexpr,
    SHORTCUT: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """a[k, p] = relu(scale (sum over taps t of x[k, S p + t - 1] @ w[k, t]) + shift + shortcut).

    For nets in use, whose batch norm is known beforehand: nothing lies in memory between. SHORTCUT as in
    `normalise`.
    """
    k = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    valid = p < NP
    c = tl.arange(0, CO)
    z = _tap_sums(x, w, p, valid, k, x_stride, H, W, CI, CO, S, BM)
    z = z * tl.load(scale + k * CO + c)[None, :] + tl.load(shift + k * CO + c)[None, :]
    _rectify(z, shortcut, a, p, valid[:, None], k, c, NP, H // S, W // S, CO, SHORTCUT)


@triton.jit
def finish_statistics(
    partial, mean_out, inverse_out, running_mean, running_var, NP, momentum, epsilon,
    BLOCKS: tl.constexpr, C: tl.constexpr, BM: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Mean and 1/deviation of each channel from the blocks' own; moves the running statistics."""
    k = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, C)
    partial += k * BLOCKS * (2 * C)
    total = tl.zeros((TILE, C), tl.float32)
    for start in range(0, BLOCKS, TILE):
        b = start + tl.arange(0, TILE)
        ok = (b < BLOCKS)[:, None]
        count = tl.minimum(NP - b * BM, BM).to(tl.float32)[:, None]
        total += count * tl.load(partial + b[:, None] * (2 * C) + c[None, :], mask=ok, other=0.0)
    mean = tl.sum(total, 0) / NP
    squares = tl.zeros((TILE, C), tl.float32)
    for start in range(0, BLOCKS, TILE):
        b = start + tl.arange(0, TILE)
        ok = (b < BLOCKS)[:, None]
        count = tl.minimum(NP - b * BM, BM).to(tl.float32)[:, None]
        place = partial + b[:, None] * (2 * C) + c[None, :]
        apart = tl.load(place, mask=ok, other=0.0) - mean[None, :]
        squares += tl.where(ok, tl.load(place + C, mask=ok, other=0.0) + count * apart * apart, 0.0)
    variance = tl.sum(squares, 0) / NP
    tl.store(mean_out + k * C + c, mean)
    tl.store(inverse_out + k * C + c, 1.0 / tl.sqrt(variance + epsilon))
    old = tl.load(running_mean + k * C + c)
    tl.store(running_mean + k * C + c, old + momentum * (mean - old))
    unbiased = variance * (NP / (NP - 1.0))
    old = tl.load(running_var + k * C + c)
    tl.store(running_var + k * C + c, old + momentum * (unbiased - old))


@triton.jit
def normalise(
    y, mean, inverse, gamma, beta, shortcut, a, NP,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, SHORTCUT: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """a = relu((y - mean) inverse gamma + beta + shortcut).

    SHORTCUT 0: none; 1: as it is; 2: every second pixel, C/4 channels of zeros on both sides.
    """
    k = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, C)
    ok = (p < NP)[:, None]
    scale = tl.load(gamma + k * C + c) * tl.load(inverse + k * C + c)
    places = (k * NP + p)[:, None] * C + c[None, :]
    z = tl.load(y + places, mask=ok, other=0.0).to(tl.float32) - tl.load(mean + k * C + c)[None, :]
    z = z * scale[None, :] + tl.load(beta + k * C + c)[None, :]
    _rectify(z, shortcut, a, p, ok, k, c, NP, H, W, C, SHORTCUT)


@triton.jit
def _rectify(
    z, shortcut, a, p, ok, k, c, NP,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, SHORTCUT: tl.constexpr,
):  # fmt: skip
    """a = relu(z + shortcut)."""
    places = (k * NP + p)[:, None] * C + c[None, :]
    if SHORTCUT == 1:
        z += tl.load(shortcut + places, mask=ok, other=0.0).to(tl.float32)
    if SHORTCUT == 2:
        image = p // (W * H)
        pixel = (image * (2 * H) + 2 * ((p // W) % H)) * (2 * W) + 2 * (p % W)
        channel = c - C // 4
        inside = ok & ((channel >= 0) & (channel < C // 2))[None, :]
        wide = (k * (NP * 4) + pixel)[:, None] * (C // 2) + channel[None, :]
        z += tl.load(shortcut + wide, mask=inside, other=0.0).to(tl.float32)
    # Not maximum: a NaN must stay one.
    tl.store(a + places, tl.where(z <= 0.0, 0.0, z).to(a.dtype.element_ty), mask=ok)


@triton.jit
def pooled_gradient(
    features_gradient, a, y, mean, inverse, dz, partial, NP,
    PLACES: tl.constexpr, C: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Gradient before the last relu, from that of the mean over places; partial: sums for its batch norm."""
    k = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, C)
    ok = (p < NP)[:, None]
    places = (k * NP + p)[:, None] * C + c[None, :]
    images = (k * (NP // PLACES) + p // PLACES)[:, None] * C + c[None, :]
    gradient = tl.load(features_gradient + images, mask=ok, other=0.0) / PLACES
    partial += (k * tl.num_programs(0) + tl.program_id(0)) * (2 * C)
    _finish_gradient(gradient, a, y, mean, inverse, dz, partial, places, ok, k, c, C, True, 0, 0)


@triton.jit
def _finish_gradient(
    gradient, a, y, mean, inverse, dz, partial, places, ok, k, c,
    C: tl.constexpr, FROM_OUTPUT: tl.constexpr, gamma, beta,
):  # fmt: skip
    """Cut off where the relu was at rest, store, and leave the sums of dz and dz * normed y in `partial`."""
    normed = tl.load(y + places, mask=ok, other=0.0).to(tl.float32) - tl.load(mean + k * C + c)[None, :]
    normed *= tl.load(inverse + k * C + c)[None, :]
    if FROM_OUTPUT:
        active = tl.load(a + places, mask=ok, other=0.0).to(tl.float32) > 0.0
    else:
        # Without a shortcut the output is known from y, and need not be read.
        active = normed * tl.load(gamma + k * C + c)[None, :] + tl.load(beta + k * C + c)[None, :] > 0.0
    kept = tl.where(active & ok, gradient, 0.0).to(dz.dtype.element_ty)
    tl.store(dz + places, kept, mask=ok)
    wide = kept.to(tl.float32)
    tl.store(partial + c, tl.sum(wide, 0))
    tl.store(partial + C + c, tl.sum(wide * normed, 0))


@triton.jit
def add_partial_sums(partial, out, BLOCKS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr):
    """out[k, :] = sum over blocks of partial[k, block, :]."""
    k = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDTH)
    total = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(0, BLOCKS, TILE):
        b = start + tl.arange(0, TILE)
        total += tl.load(
            partial + (k * BLOCKS + b)[:, None] * WIDTH + c[None, :], mask=(b < BLOCKS)[:, None], other=0.0
        )
    tl.store(out + k * WIDTH + c, tl.sum(total, 0))


@triton.jit
def norm_gradient(dz, y, mean, inverse, gamma, sums, dy, NP, C: tl.constexpr, BM: tl.constexpr):
    """dy = gamma inverse (dz - mean(dz) - normed y * mean(dz * normed y)); sums holds both, times NP."""
    k = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, C)
    ok = (p < NP)[:, None]
    places = (k * NP + p)[:, None] * C + c[None, :]
    inverses = tl.load(inverse + k * C + c)
    normed = tl.load(y + places, mask=ok, other=0.0).to(tl.float32) - tl.load(mean + k * C + c)[None, :]
    normed *= inverses[None, :]
    plain = tl.load(sums + k * (2 * C) + c) / NP
    along = tl.load(sums + k * (2 * C) + C + c) / NP
    scale = tl.load(gamma + k * C + c) * inverses
    gradient = tl.load(dz + places, mask=ok, other=0.0).to(tl.float32)
    gradient = scale[None, :] * (gradient - plain[None, :] - normed * along[None, :])
    tl.store(dy + places, gradient.to(dy.dtype.element_ty), mask=ok)


@triton.jit
def input_gradient(
    dy, w, shortcut, a, y, mean, inverse, gamma, beta, dz, partial, NP,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, S: tl.constexpr,
    SHORTCUT: tl.constexpr, FROM_OUTPUT: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Gradient by the input of a convolution, plus the shortcut's, before the relu below.

    SHORTCUT as in `normalise`: how the gradient of the block's output reaches its input.

    A program does pixels whose rows have the same remainder by S, and whose columns do: they are
    reached by the same taps, with stride 2 by at most two by two of them. The programs of neighbouring pixels
    follow each other, so that what they share is still in the cache.
    """
    k = tl.program_id(1).to(tl.int64)
    down = tl.program_id(0) // S % S
    right = tl.program_id(0) % S
    HO: tl.constexpr = H // S
    WO: tl.constexpr = W // S
    p = tl.program_id(0) // (S * S) * BM + tl.arange(0, BM)
    valid = p < NP // (S * S)
    column_of = p % WO
    row_of = (p // WO) % HO
    image = p // (WO * HO)
    ci = tl.arange(0, CI)
    co = tl.arange(0, CO)
    w += k * (9 * CI * CO)
    dy += k * (NP // (S * S)) * CO
    sums = tl.zeros((BM, CI), tl.float32)
    ACROSS: tl.constexpr = 4 - S
    for t in range(ACROSS * ACROSS):
        # With stride 2 taps 0 and 2 lead to odd rows, tap 1 to even ones.
        tap_down = S * (t // ACROSS) + (S - 1) * (1 - down)
        tap_right = S * (t % ACROSS) + (S - 1) * (1 - right)
        row_out = row_of + (down + 1 - tap_down) // S
        column_out = column_of + (right + 1 - tap_right) // S
        inside = (row_out >= 0) & (row_out < HO) & (column_out >= 0) & (column_out < WO) & valid
        inside = inside & (tap_down < 3) & (tap_right < 3)
        d = tl.load(
            dy + ((image * HO + row_out) * WO + column_out)[:, None] * CO + co[None, :],
            mask=inside[:, None], other=0.0,
        )  # fmt: skip
        tap = tl.minimum(tap_down * 3 + tap_right, 8)
        b = tl.load(w + tap * (CI * CO) + ci[None, :] * CO + co[:, None])
        sums = tl.dot(d, b, sums, input_precision="tf32x3")
    pixel = (image * H + row_of * S + down) * W + column_of * S + right
    places = (k * NP + pixel)[:, None] * CI + ci[None, :]
    ok = valid[:, None]
    if SHORTCUT == 1:
        sums += tl.load(shortcut + places, mask=ok, other=0.0).to(tl.float32)
    if SHORTCUT == 2:
        even = valid & (down + right == 0)
        wide = (k * (NP // 4) + p)[:, None] * CO + (ci + CO // 4)[None, :]
        sums += tl.load(shortcut + wide, mask=even[:, None], other=0.0).to(tl.float32)
    partial += (k * tl.num_programs(0) + tl.program_id(0)) * (2 * CI)
    _finish_gradient(sums, a, y, mean, inverse, dz, partial, places, ok, k, ci, CI, FROM_OUTPUT, gamma, beta)


@triton.jit
def weight_gradient(
    x, dy, partial, NP, x_stride, CHUNK: tl.constexpr,
    H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, S: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """partial[k, chunk, tap] = sum over the chunk's pixels p of x[k, S p + tap - 1]' dy[k, p].

    A program does one kernel row: three taps padded to four, CHUNK output pixels.
    """
    vertical = tl.program_id(0)
    chunk = tl.program_id(1)
    k = tl.program_id(2).to(tl.int64)
    HO: tl.constexpr = H // S
    WO: tl.constexpr = W // S
    j = tl.arange(0, 4 * CI)
    tap = j // CI
    ci = j % CI
    co = tl.arange(0, CO)
    x += k * x_stride
    dy += k * NP * CO
    sums = tl.zeros((4 * CI, CO), tl.float32)
    for start in range(0, CHUNK, BM):
        p = chunk * CHUNK + start + tl.arange(0, BM)
        valid = p < NP
        row_in = ((p // WO) % HO) * S + vertical - 1
        column_in = ((p % WO) * S)[:, None] + (tap - 1)[None, :]
        inside = (valid & (row_in >= 0) & (row_in < H))[:, None] & (column_in >= 0) & (column_in < W)
        pixel = (((p // (WO * HO)) * H + row_in) * W)[:, None] + column_in
        a = tl.load(x + pixel * CI + ci[None, :], mask=inside & (tap < 3)[None, :], other=0.0)
        d = tl.load(dy + p[:, None] * CO + co[None, :], mask=valid[:, None], other=0.0)
        sums = tl.dot(tl.trans(a), d, sums, input_precision="tf32x3")
    taps = vertical * 3 + tap
    place = ((k * tl.num_programs(1) + chunk) * 9 + taps) * CI + ci
    tl.store(partial + place[:, None] * CO + co[None, :], sums, mask=(tap < 3)[:, None])
