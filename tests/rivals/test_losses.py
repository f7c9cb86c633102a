"""Where other people's losses go wrong, ours do not.

`recorded.json` holds the rivals' own output, with their versions. Each record must show its failure
against multi-precision values, so that it cannot rot into a claim, and our loss must be right at
every one of the same logits, in the same float32.
"""

from __future__ import annotations

import json
from pathlib import Path

import mpmath
import numpy as np
import pytest
import torch

from raresight import nn
from raresight.losses import Alpha, CrossEntropy, Focal, parse

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
OUTPUTS = RECORDED["outputs"]
LARGEST = float(np.finfo(np.float32).max)


def exact_loss(loss, label: int):
    """The loss of one logit in multi-precision arithmetic, written from its definition."""

    def value(z):
        p = 1 / (1 + mpmath.exp(-z if label else z))
        if isinstance(loss, Focal):
            return -((1 - p) ** mpmath.mpf(loss.gamma)) * mpmath.log(p)
        if isinstance(loss, CrossEntropy) or loss == Alpha(1.0):
            return -mpmath.log(p)
        u = 1 / mpmath.mpf(loss.alpha) - 1
        return (p**-u - 1) / u

    return value


def exact_terms(loss, label: int, logits: list[float]) -> dict[str, list[mpmath.mpf]]:
    with mpmath.workdps(600):
        value = exact_loss(loss, label)
        orders = {"value": 0, "gradient": 1, "hessian": 2}
        return {key: [mpmath.diff(value, mpmath.mpf(z), n) for z in logits] for key, n in orders.items()}


def is_right(got: float, exact: mpmath.mpf, tolerance: float) -> bool:
    """Right for float32: near, or saturated where the truth overflows, or zero where it underflows."""
    if not np.isfinite(got):
        return False
    if abs(exact) > LARGEST:
        return got == np.copysign(LARGEST, float(mpmath.sign(exact)))
    return bool(abs(got - exact) <= tolerance * abs(exact) + 1.2e-38)


@pytest.mark.parametrize("record", OUTPUTS, ids=lambda r: f"{r['rival']}: {r['ours']}, label {r['label']}")
def test_rival_fails_and_we_do_not(record):
    loss, label, logits = parse(record["ours"]), record["label"], record["logits"]
    exact = exact_terms(loss, label, logits)
    wrong = 0
    for key in ("value", "gradient", "hessian"):
        if record[key] is not None:
            pairs = zip(record[key], exact[key], strict=True)
            # An infinite value where the truth overflows too is no failure.
            wrong += sum(
                not is_right(float(got), truth, 0.01) and not (abs(truth) > LARGEST and np.isinf(float(got)))
                for got, truth in pairs
            )
    assert wrong > 0, "the record shows no failure"
    z = np.array(logits, dtype=np.float32)
    ours = dict(
        zip(("value", "gradient", "hessian"), loss.derivatives(z, np.full(z.shape, label)), strict=True)
    )
    for key, terms in ours.items():
        for got, truth, at in zip(terms, exact[key], logits, strict=True):
            assert is_right(float(got), truth, 2e-5), (key, at, got, truth)
    leaf = torch.from_numpy(z).requires_grad_()
    nn.as_module(loss, reduction="none")(leaf, torch.full((len(z),), float(label))).sum().backward()
    for got, truth in zip(leaf.grad.tolist(), exact["gradient"], strict=True):
        assert is_right(got, truth, 2e-5)


def test_crashes_are_on_record():
    assert {record["error"] for record in RECORDED["crashes"]} == {
        "TypeError: train() got an unexpected keyword argument 'feval'"
    }
