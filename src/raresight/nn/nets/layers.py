"""Layers of K replicas: stacked weights, products and convolutions of all at once, batch norm of each.

No layer mixes replicas, forward or backward, so that a NaN in one replica does not reach another.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ...common.checks import check_whole

__all__ = [
    "BatchNorm",
    "GhostBatchNorm",
    "Linear",
    "ReplicaLayer",
    "ReplicaNet",
    "checked_seeds",
    "draw_normal",
]

# torch's generators use 32 bits of a seed: two seeds that differ above them would start alike.
_SEEDS = 2**32


def checked_seeds(seeds: Any) -> tuple[int, ...]:
    """Return seeds as ints; raise an error for others and for those out of range."""
    if not isinstance(seeds, Iterable):
        raise TypeError(f"seeds must be a sequence of whole numbers, one per replica, but is {seeds!r}")
    found = []
    for seed in seeds:
        try:
            number = operator.index(seed)
        except TypeError:
            number = None
        if number is None or isinstance(seed, bool):
            raise TypeError(f"seeds must be whole numbers, but one is {seed!r}")
        if not 0 <= number < _SEEDS:
            raise ValueError(f"seeds must be at least 0 and below 2**32, but one is {number}")
        found.append(number)
    return tuple(found)


def _bools(name: str, given: Any, replicas: int) -> tuple[bool, ...]:
    """Return one bool per replica, given for each or for all."""
    if isinstance(given, (bool, np.bool_)):
        return (bool(given),) * replicas
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if not all(isinstance(entry, (bool, np.bool_)) for entry in found):
        raise TypeError(f"{name} must be a bool, or one for each replica, but is {given!r}")
    if len(found) != replicas:
        raise ValueError(
            f"{name} has {len(found)} for {replicas} replicas: give one bool for each or for all"
        )
    return tuple(map(bool, found))


class ReplicaLayer(nn.Module, ABC):
    """A layer with weights; each is a stack of shape (K, ...)."""

    @abstractmethod
    def reset_replica(self, k: int, generator: torch.Generator) -> None:
        """Draw the first weights of replica k."""


class ReplicaNet(nn.Module, ABC):
    """A stack of nets. Its last layer is `head`, with `weight` and `bias`; see `start_at_` for the bias.

    Replica k starts from the weights of the same net alone with `seeds=(seeds[k],)`. Default of `seeds`: 0 to
    K-1. `cosine` says whether the head of each replica, or of all, gives cosines.

    A net may be an ensemble of `members`. Each member is trained on its own loss, and `net(x)` is their
    common score. Training uses `training_scores` and `training_labels`. For `members` = 1 they are `net(x)`
    and the labels.
    """

    head: Linear
    members: int = 1
    row_axes: int = 1
    """Number of axes of one row: 1 in a table, 3 for an image."""

    def __init__(
        self,
        replicas: int,
        seeds: Sequence[int] | None,
        outputs: int,
        cosine: Sequence[bool] | bool = False,
    ) -> None:
        super().__init__()
        replicas, outputs = check_whole(replicas, "replicas"), check_whole(outputs, "outputs")
        self.replicas, self.outputs = replicas, outputs
        self.seeds = tuple(range(replicas)) if seeds is None else checked_seeds(seeds)
        if len(self.seeds) != replicas:
            raise ValueError(f"{len(self.seeds)} seeds were given for {replicas} replicas: give one for each")
        self.cosine = _bools("cosine", cosine, replicas)

    def reset_parameters(self) -> None:
        """Draw the first weights, for each replica by its own generator, in the order of the layers.

        The draws are float64 on the CPU, so that they depend neither on the device nor on the precision.
        """
        for k, seed in enumerate(self.seeds):
            # One generator per replica: its draws depend neither on K nor on the other seeds.
            generator = torch.Generator().manual_seed(seed)
            for layer in self.modules():
                if isinstance(layer, ReplicaLayer):
                    layer.reset_replica(k, generator)

    def replica(self, k: int) -> Self:
        """Return replica k as a net alone: a copy with its weights, running statistics, mode and device."""
        if not 0 <= k < self.replicas:
            raise IndexError(f"replica {k} was asked for, but there are 0 to {self.replicas - 1}")
        like = next(self.parameters())
        alone = type(self)(
            **self.options(), outputs=self.outputs, replicas=1, seeds=(self.seeds[k],), cosine=self.cosine[k]
        ).to(device=like.device, dtype=like.dtype)
        alone.load_state_dict({name: stack[k : k + 1] for name, stack in self.state_dict().items()})
        return alone.train(self.training)

    def training_scores(self, x: Tensor) -> Tensor:
        """Return the scores that the losses take in training: (K, members N), or (K, members N, outputs).

        Those of the first member come first, as in `training_labels`.
        """
        scores: Tensor = self(x)
        return scores

    def training_labels(self, labels: Tensor) -> Tensor:
        """Repeat labels (N,) or (K, N) for each member: (members N,) or (K, members N); also row weights."""
        return labels if self.members == 1 else labels.repeat(*(1,) * (labels.dim() - 1), self.members)

    def start_at_(self, scores: Tensor) -> None:
        """Set the bias of the head to constants (K, outputs), in place, as for a start at the prior.

        Cosines have no bias, so those replicas do not change.
        """
        bias = self.head.bias
        assert bias is not None
        if scores.shape != (self.replicas, self.outputs):
            raise ValueError(
                f"the start must have shape {(self.replicas, self.outputs)}, but has {tuple(scores.shape)}"
            )
        plain = [k for k, is_cosine in enumerate(self.cosine) if not is_cosine]
        # (K, outputs), or (K, members, outputs).
        shape = (len(plain), *(1,) * (bias.dim() - 2), self.outputs)
        with torch.no_grad():
            bias[plain] = scores[plain].to(bias).view(shape).expand(len(plain), *bias.shape[1:])

    def numbers_per_row(self, row_numbers: int) -> int:
        """Return the number of values of a row in the widest layer of a replica, for all members.

        It decides how many rows pass through at once outside of training. Here the widest weight decides. A
        net whose layers keep places, such as convolutions, has wider layers and overrides this.
        """
        widths = [stack.shape[1] for stack in self.parameters() if stack.dim() > 1]
        return self.members * max([row_numbers, *widths])

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return the arguments of the net in plain values, without replicas, seeds, outputs and cosine."""

    def checked_input(self, x: Tensor, row_shape: tuple[int | None, ...]) -> Tensor:
        """Return the input if it is (N, *row_shape) or (K, N, *row_shape), None being any size."""
        rows = len(row_shape)
        fits = x.dim() in (rows + 1, rows + 2) and all(
            wanted in (None, seen) for wanted, seen in zip(row_shape, x.shape[-rows:])
        )
        if not fits or (x.dim() == rows + 2 and x.shape[0] != self.replicas):
            row = ", ".join("any" if size is None else str(size) for size in row_shape)
            raise ValueError(
                f"the input must have shape (N, {row}) for all replicas or ({self.replicas}, N, {row}), "
                f"but has {tuple(x.shape)}"
            )
        return x

    def head_scores(self, features: Tensor) -> Tensor:
        """Map features (K, ..., F) to scores (K, ...), or (K, ..., classes).

        In evaluation mode the head has the precision of its weights, also under autocast. Scores with the 8
        bits of bfloat16 would have many ties, and coarse ranks.
        """
        if self.training:
            scores: Tensor = self.head(features)
        else:
            with torch.autocast(features.device.type, enabled=False):
                scores = self.head(features.to(self.head.weight.dtype))
        return scores.squeeze(-1) if self.outputs == 1 else scores


class Linear(ReplicaLayer):
    """x W' + b for each replica: (K, N, in) or (N, in) to (K, N, out).

    Weights start normal with variance gain/in (He: gain 2, before a ReLU), biases at zero.
    """

    def __init__(
        self, replicas: int, in_features: int, out_features: int, *, bias: bool = True, gain: float = 2.0
    ) -> None:
        super().__init__()
        self.gain = gain
        self.weight = nn.Parameter(torch.zeros(replicas, out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(replicas, out_features)) if bias else None

    def reset_replica(self, k: int, generator: torch.Generator) -> None:
        draw_normal(self.weight, k, self.gain, generator)
        if self.bias is not None:
            _fill(self.bias, k, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        stacked = x.expand(len(self.weight), *x.shape[-2:])
        if self.bias is None:
            return torch.bmm(stacked, self.weight.mT)
        return torch.baddbmm(self.bias.unsqueeze(1), stacked, self.weight.mT)


class BatchNorm(ReplicaLayer):
    """Batch norm of the features of each replica: (K, N, C) to (K, N, C).

        (x - m) / sqrt(v + epsilon) * weight + bias

    with m and v = mean((x - m)^2) over the batch in training, and running means of them otherwise. bfloat16
    and float16 are normalised in float32.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, replicas: int, features: int, *, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.weight = nn.Parameter(torch.ones(replicas, features))
        self.bias = nn.Parameter(torch.zeros(replicas, features))
        self.register_buffer("running_mean", torch.zeros(replicas, features))
        self.register_buffer("running_var", torch.ones(replicas, features))

    def reset_replica(self, k: int, generator: torch.Generator) -> None:
        for stack, start in ((self.weight, 1), (self.bias, 0), (self.running_mean, 0), (self.running_var, 1)):
            _fill(stack, k, start)

    def forward(self, x: Tensor) -> Tensor:
        return self.normalise(x, batch_axes=(1,), feature_shape=(x.shape[0], 1, x.shape[2]))

    def normalise(self, x: Tensor, batch_axes: tuple[int, ...], feature_shape: tuple[int, ...]) -> Tensor:
        """Normalise over the batch axes; weight and bias are viewed in `feature_shape` beside x."""
        if not self.training:
            mean, variance = self.running_mean.view(feature_shape), self.running_var.view(feature_shape)
            return self._scaled(_widened(x) - mean, variance, feature_shape).to(x.dtype)
        centred, mean, variance = _moments(x, batch_axes)
        # The batch is normalised by its biased variance, the running one is unbiased, as in torch.
        count = x.numel() // mean.numel()
        self._record(mean.view_as(self.bias), variance.view_as(self.bias) * (count / (count - 1)))
        return self._scaled(centred, variance, feature_shape).to(x.dtype)

    def _scaled(self, centred: Tensor, variance: Tensor, feature_shape: tuple[int, ...]) -> Tensor:
        scale = self.weight.view(feature_shape) * torch.rsqrt(variance + self.epsilon)
        return centred * scale + self.bias.view(feature_shape)

    def _record(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of a batch; `variance` is the unbiased one."""
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(variance.to(self.running_var.dtype), self.momentum)


class GhostBatchNorm(BatchNorm):
    """Batch norm within parts of at most `ghost_batch` rows, of sizes that differ by at most 1: (K, N, C).

    No part has only one row, which has no variance: with parts of two rows, an odd batch has one part of
    three. The running statistics move once per batch, towards the mean of its parts' statistics. See Hoffer
    et al., "Train longer, generalize better" (2017).
    """

    def __init__(self, replicas: int, features: int, *, ghost_batch: int, momentum: float) -> None:
        super().__init__(replicas, features, momentum=momentum)
        self.ghost_batch = ghost_batch

    def forward(self, x: Tensor) -> Tensor:
        replicas, rows, features = x.shape
        parts = min(-(-rows // self.ghost_batch), rows // 2)
        if not self.training or parts <= 1:
            return super().forward(x)
        # The first `longer` parts have one row more than the others. Parts of one size are one tensor.
        size, longer = divmod(rows, parts)
        cut = longer * (size + 1)
        pieces = [(x[:, cut:], parts - longer, size)]
        if longer:
            pieces.insert(0, (x[:, :cut], longer, size + 1))
        normalised, means, variances = [], [], []
        for piece, count, length in pieces:
            blocks = piece.reshape(replicas, count, length, features)
            centred, mean, variance = _moments(blocks, (2,))
            normalised.append(self._scaled(centred, variance, (replicas, 1, 1, features)).flatten(1, 2))
            means.append(mean)
            variances.append(variance * (length / (length - 1)))
        self._record(torch.cat(means, 1).mean((1, 2)), torch.cat(variances, 1).mean((1, 2)))
        return torch.cat(normalised, 1).to(x.dtype)


def _moments(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Return x - mean, mean and variance over the axes, in float32 or higher."""
    wide = _widened(x)
    mean = wide.mean(axes, keepdim=True)
    if x.numel() < 2 * mean.numel():
        raise ValueError(
            "batch norm in training needs at least 2 values per feature, but the batch has fewer"
        )
    # In two passes: mean(x^2) - mean^2 loses all digits where the mean is large beside the deviation.
    centred = wide - mean
    return centred, mean, centred.square().mean(axes, keepdim=True)


def _widened(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def draw_normal(stack: Tensor, k: int, gain: float, generator: torch.Generator) -> None:
    """Draw the first weights of replica k as He et al. (2015): normal with variance gain/fan-in."""
    shape = stack.shape[1:]
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    _fill(stack, k, drawn * math.sqrt(gain / math.prod(shape[1:])))


def _fill(stack: Tensor, k: int, values: Tensor | float) -> None:
    with torch.no_grad():
        stack[k] = values
