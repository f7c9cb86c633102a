"""Triton device code of the losses: phi of the margin, and the passes over scores and class logits.

One pass reads a score and its label once and writes the gradient once. Each program writes one float64 sum,
and the caller adds these in a fixed order. Phi and the inputs are chosen when a kernel is compiled. Rows of
numbers are those of `raresight.nn.kernels.packed`.

Accuracy in float32: e^-|m| is corrected by the rounding error of its argument. 1 - p and log p are formed
from it without cancellation. For small h, e^h - 1 is a polynomial.

Constants are literals, since Triton compares every global that a kernel reads at every launch. KIND is the
number of a body in `raresight.nn.kernels`, and 6 its `_BODY_NUMBERS`.
"""

# mypy: ignore-errors

# Triton compiles these functions itself: their arguments are pointers and numbers without Python types.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _saturate(a):
    return tl.minimum(a, 3.4028234663852886e38, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _finite(a):
    largest = 3.4028234663852886e38
    return tl.clamp(a, -largest, largest, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _exp_of_negative(a):
    """Compute e^a for a <= 0 by 2^(a log2 e), corrected by the rounding error of that product."""
    a = tl.maximum(a, -1000.0, propagate_nan=tl.PropagateNan.ALL)
    power = a * 1.4426950216293335  # log2(e) rounded to float32; below, the rest of it
    rest = tl.fma(a, 1.4426950216293335, -power) + a * 1.925963033500e-08
    return tl.exp2(power) * (1.0 + rest * 0.6931471805599453)


@triton.jit
def _logistic(m):
    """Return x = -log p, q = 1 - p, p = sigma(m) and -log q, each to full relative precision."""
    d = tl.abs(m)
    e = _exp_of_negative(-d)
    one, two = 1.0 + e, 2.0 + e
    inverse = 1.0 / (one * two)
    larger = two * inverse
    smaller = e * larger
    s = e * (one * inverse)  # log(1 + e) = 2 artanh(e / (2 + e)), a fitted polynomial to 1e-8
    t = s * s
    near = s * (2.0 + t * (0.666663229 + t * (0.400246501 + t * (0.279643446 + t * 0.281614542))))
    up = m >= 0
    x = tl.where(up, near, near + d)
    other = tl.where(up, near + d, near)
    return x, tl.where(up, smaller, larger), tl.where(up, larger, smaller), other


@triton.jit
def _excess(x, q):
    """Compute x - q, for q < 1/2 with s = q/(2 - q) as q s + 2 s^3 (1/3 + s^2/5 + ...)."""
    s = q / (2.0 - q)
    t = s * s
    series = 0.09090909 + t * (0.07692308 + t * (0.06666667 + t * 0.05882353))
    series = 0.33333334 + t * (0.2 + t * (0.14285715 + t * (0.11111111 + t * series)))
    return tl.where(q < 0.5, q * s + 2.0 * s * t * series, x - q)


@triton.jit
def _boosting(m, u, C, k, g, v, r):
    """Compute e^(-Cq) (e^(ux) - 1)/u and q (e^(ux - Cq) - C p loss); see `raresight.losses.alpha`."""
    x, q, p, _ = _logistic(m)
    h = u * x
    log2e = 1.4426950408889634
    damping = tl.exp2((-log2e * C) * q)
    # (e^h - 1)/h for |h| < 1/2, a fitted polynomial to 1.3e-8.
    series = 0.0416653231 + h * (0.00833369885 + h * (0.00139972183 + h * 0.000198239664))
    series = 1.0 + h * (0.50000006 + h * (0.166666627 + h * series))
    near = damping * (x * series)
    grown = tl.exp2(((log2e * u) * x - log2e * k) - (log2e * C) * q)
    is_near = tl.abs(h) < 0.5
    value = _saturate(tl.where(is_near, near, grown * v - damping * r))
    growth = tl.where(is_near, damping + u * near, grown * g)
    # The value is saturated first: a p of 0 times an infinite loss would be NaN.
    return value, _saturate(q * (growth - (C * p) * value))


@triton.jit
def _focal(m, gamma):
    x, q, p, other = _logistic(m)
    damping = _exp_of_negative(-gamma * other)
    return damping * x, damping * (q + gamma * (p * x))


@triton.jit
def _poly(m, c, d, f):
    x, q, p, _ = _logistic(m)
    return _saturate(c * x + d * q + f * _excess(x, q)), q * (c + d * p + f * q)


@triton.jit
def _erf(m):
    """Compute psi(m) - m Psi(-m) and Psi(-m) by psi(v), v = |m|, and two polynomials in t = (v-3)/(v+3).

    Mills' ratio Psi(-v)/psi(v) is P(t)/(v + 3), and the loss over psi(v) is Q(t)/(v + 3)^2; both to
    1e-8 for v <= 16, beyond which psi(v) is zero. A negative m has the loss of -m, plus v.
    """
    v = tl.abs(m)
    near = tl.minimum(v, 18.0, propagate_nan=tl.PropagateNan.ALL)
    inverse = 1.0 / (near + 3.0)
    t = (near - 3.0) * inverse
    a = -0.0006138450778 + t * (0.0003315368039 + t * 0.0001379116472)
    a = -0.02622546478 + t * (0.01747025056 + t * (0.002568301123 + t * (-0.002590598077 + t * a)))
    a = 1.827541793 + t * (-1.276705967 + t * (0.5765688526 + t * (-0.1184700892 + t * a)))
    b = -0.008938536744 + t * (0.001502246782 + t * (0.001860097803 + t * 0.000329737958))
    b = -0.2185113564 + t * (0.0893522433 + t * (0.03630033148 + t * (-0.01558597643 + t * b)))
    b = 3.104247745 + t * (-3.706549893 + t * (2.085118708 + t * (-0.3689713927 + t * b)))
    square = near * near
    rest = tl.fma(near, near, -square)
    density = _exp_of_negative(-0.5 * square) * (0.3989422804 - 0.1994711402 * rest)
    core = density * b * (inverse * inverse)
    tail = density * a * inverse
    up = m >= 0
    return tl.where(up, core, v + core), tl.where(up, tail, 1.0 - tail)


@triton.jit
def _phi(m, n0, n1, n2, n3, n4, n5, KIND: tl.constexpr):
    """Return phi(m) and -phi'(m), both finite."""
    if KIND == 0:  # cross entropy
        x, q, _, _ = _logistic(m)
        value, slope = x, q
    elif KIND == 1:  # squared
        _, q, p, _ = _logistic(m)
        value, slope = q * q, 2.0 * p * (q * q)
    elif KIND == 2:
        value, slope = _erf(m)
    elif KIND == 3:
        value, slope = _focal(m, n0)
    elif KIND == 4:
        value, slope = _poly(m, n0, n1, n2)
    else:
        value, slope = _boosting(m, n0, n1, n2, n3, n4, n5)
    return value, slope


@triton.jit
def _number(row, index):
    return tl.load(row + index).to(tl.float32)


@triton.jit
def binary_pass(
    scores,  # (replicas, n)
    labels,  # (replicas, n), or (n,) with label_step 0; the share of label 1 where SOFT
    negatives,  # the share of label 0 where it is not 1 - labels, or None
    weights,  # (replicas, n), (n,) with weight_row 0, one number with weight_step 0 besides, or None
    label_weights,  # (replicas, 2), or None
    table,  # (rows, 14) float64
    replicas,  # the replica of each row of the table; None: the row's own number
    gradient,  # (replicas, n), or None
    results,  # (replicas, programs) float64 sums, or (replicas, n) losses
    n,
    label_step,
    weight_step,
    weight_row,
    scale,
    device_scale,  # instead of `scale`, or None
    KIND: tl.constexpr,
    PLAIN: tl.constexpr,  # the margin is z or -z, and labels have no weights
    SOFT: tl.constexpr,
    REDUCE: tl.constexpr,
    BLOCK: tl.constexpr,
    LOOPS: tl.constexpr,
):
    row = table + tl.program_id(1) * 14
    n0, n1, n2 = _number(row, 0), _number(row, 1), _number(row, 2)
    n3, n4, n5 = _number(row, 3), _number(row, 4), _number(row, 5)
    a0, a1, b0, b1 = _number(row, 6), _number(row, 7), _number(row, 8), _number(row, 9)
    w0, w1 = _number(row, 12), _number(row, 13)
    replica = tl.program_id(1).to(tl.int64)
    if replicas is not None:
        replica = tl.load(replicas + replica).to(tl.int64)
    if label_weights is not None:
        w0 = w0 * tl.load(label_weights + replica * 2).to(tl.float32)
        w1 = w1 * tl.load(label_weights + replica * 2 + 1).to(tl.float32)
    s0, s1 = -a0 * w0, -a1 * w1
    factor = scale if device_scale is None else tl.load(device_scale).to(tl.float32)
    first = replica * n
    total = tl.zeros((BLOCK,), tl.float32)
    start = tl.program_id(0).to(tl.int64) * (BLOCK * LOOPS)
    for i in range(LOOPS):
        place = start + i * BLOCK + tl.arange(0, BLOCK)
        inside = place < n
        z = tl.load(scores + first + place, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(labels + replica * label_step + place, mask=inside, other=0)
        if SOFT:
            share = y.to(tl.float32)
            if negatives is not None:
                rest = tl.load(negatives + first + place, mask=inside, other=0.0).to(tl.float32)
            else:
                rest = 1.0 - share
            one, slope_one = _phi(_finite(a1 * z + b1), n0, n1, n2, n3, n4, n5, KIND)
            zero, slope_zero = _phi(_finite(a0 * z + b0), n0, n1, n2, n3, n4, n5, KIND)
            value = _finite(share * _saturate(w1 * one) + rest * _saturate(w0 * zero))
            slope = _finite(share * _finite(s1 * slope_one) + rest * _finite(s0 * slope_zero))
        else:
            # A label other than 0 or 1 gives NaN, since a device cannot raise an error.
            positive = y == 1
            if PLAIN:
                m = _finite(tl.where(positive, z, tl.where(y == 0, -z, float("nan"))))
                value, slope = _phi(m, n0, n1, n2, n3, n4, n5, KIND)
                slope = tl.where(positive, -slope, slope)
            else:
                offset = tl.where(positive, b1, tl.where(y == 0, b0, float("nan")))
                m = _finite(tl.where(positive, a1, a0) * z + offset)
                value, slope = _phi(m, n0, n1, n2, n3, n4, n5, KIND)
                value = _saturate(tl.where(positive, w1, w0) * value)
                slope = _finite(tl.where(positive, s1, s0) * slope)
        if weights is not None:
            chosen = weights + replica * weight_row + place * weight_step
            sample = tl.load(chosen, mask=inside, other=0.0).to(tl.float32)
            value = _finite(sample * value)
            slope = _finite(sample * slope)
        if REDUCE:
            # Scaled down, so that a sum of the largest float32 over all steps does not overflow.
            total += tl.where(inside, value * (0.5 / LOOPS), 0.0)
        else:
            tl.store(results + first + place, value * factor, mask=inside)
        if gradient is not None:
            tl.store(gradient + first + place, (slope * factor).to(gradient.dtype.element_ty), mask=inside)
    if REDUCE:
        mean = tl.sum(total.to(tl.float64), 0) * (2.0 * LOOPS) * factor
        tl.store(results + replica * tl.num_programs(0) + tl.program_id(0), mean)


@triton.jit
def class_pass(
    scores,  # (replicas, n / inner, classes, inner)
    labels,  # (replicas, n), or (n,) with label_step 0
    weights,  # (replicas, n), (n,) with weight_row 0, one number with weight_step 0 besides, or None
    label_weights,  # (replicas, classes), or None
    table,  # (rows, 6 + 4 classes) float64
    replicas,
    gradient,
    results,  # (replicas, programs) float64 sums, or (replicas, n) losses
    n,
    inner,
    label_step,
    weight_step,
    weight_row,
    scale,
    device_scale,  # instead of `scale`, or None
    CLASSES: tl.constexpr,
    KIND: tl.constexpr,
    HAS_INNER: tl.constexpr,
    REDUCE: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = table + tl.program_id(1) * (6 + 4 * CLASSES)
    n0, n1, n2 = _number(row, 0), _number(row, 1), _number(row, 2)
    n3, n4, n5 = _number(row, 3), _number(row, 4), _number(row, 5)
    replica = tl.program_id(1).to(tl.int64)
    if replicas is not None:
        replica = tl.load(replicas + replica).to(tl.int64)
    factor = scale if device_scale is None else tl.load(device_scale).to(tl.float32)

    classes = tl.arange(0, WIDTH)
    real = classes < CLASSES
    class_row = row + 6 + classes
    scales = tl.load(class_row, mask=real, other=0.0).to(tl.float32)[None, :]
    shifts = tl.load(class_row + CLASSES, mask=real, other=0.0).to(tl.float32)[None, :]
    margins = tl.load(class_row + 2 * CLASSES, mask=real, other=0.0).to(tl.float32)[None, :]

    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < n
    if HAS_INNER:
        base = (place // inner) * (CLASSES * inner) + place % inner
        offset = replica * n * CLASSES + base[:, None] + classes[None, :].to(tl.int64) * inner
    else:
        offset = replica * n * CLASSES + place[:, None] * CLASSES + classes[None, :]
    both = inside[:, None] & real[None, :]
    f = tl.load(scores + offset, mask=both, other=0.0).to(tl.float32)
    y = tl.load(labels + replica * label_step + place, mask=inside, other=0).to(tl.int64)
    known = (y >= 0) & (y < CLASSES)
    label = classes[None, :] == y[:, None]

    # The label's margin to the log-sum-exp of the others, their largest taken out before the exponential.
    g = scales * _finite(f) + shifts
    g = _finite(tl.where(label, g - margins, g))
    others = tl.where(label | (classes[None, :] >= CLASSES), float("-inf"), g)
    largest = tl.max(others, 1)
    relative = _exp_of_negative(others - largest[:, None])
    total = tl.sum(relative, 1)
    own = tl.sum(tl.where(label, g, 0.0), 1)
    w = relative / total[:, None]
    value, slope = _phi(_finite(own - largest - tl.log(total)), n0, n1, n2, n3, n4, n5, KIND)
    slopes = tl.where(label, -slope[:, None], slope[:, None] * w)
    if KIND == 1:
        spread = tl.sum(w * w, 1)
        half = 0.5 * (1.0 + spread)
        slopes = slopes * half[:, None] + value[:, None] * (w * (w - spread[:, None]))
        value = value * half

    allowed = inside & known
    weight = tl.load(row + 6 + 3 * CLASSES + y, mask=allowed, other=float("nan")).to(tl.float32)
    if label_weights is not None:
        weight *= tl.load(label_weights + replica * CLASSES + y, mask=allowed, other=float("nan")).to(
            tl.float32
        )
    value = _finite(weight * value)
    slopes = _finite(weight[:, None] * (slopes * scales))
    if weights is not None:
        chosen = weights + replica * weight_row + place * weight_step
        sample = tl.load(chosen, mask=inside, other=0.0).to(tl.float32)
        value = _finite(sample * value)
        slopes = _finite(sample[:, None] * slopes)
    if REDUCE:
        mean = tl.sum(tl.where(inside, value, 0.0).to(tl.float64), 0) * factor
        tl.store(results + replica * tl.num_programs(0) + tl.program_id(0), mean)
    else:
        tl.store(results + replica * n + place, value * factor, mask=inside)
    if gradient is not None:
        tl.store(gradient + offset, (slopes * factor).to(gradient.dtype.element_ty), mask=both)


@triton.jit
def rescale_pass(gradient, factor, n, BLOCK: tl.constexpr, LOOPS: tl.constexpr):
    """Do gradient *= factor, which is on the device; a factor of 1 reads and writes nothing."""
    times = tl.load(factor).to(tl.float32)
    if times != 1.0:
        start = tl.program_id(0).to(tl.int64) * (BLOCK * LOOPS)
        for i in range(LOOPS):
            place = start + i * BLOCK + tl.arange(0, BLOCK)
            inside = place < n
            g = tl.load(gradient + place, mask=inside, other=0.0).to(tl.float32)
            tl.store(gradient + place, (g * times).to(gradient.dtype.element_ty), mask=inside)
