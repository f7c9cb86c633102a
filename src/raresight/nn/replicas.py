"""K independent models as one: the same architecture with K losses and K seeds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..losses import Loss, parse
from .batches import RowSource
from .checkpoint import current_state
from .loss_table import LossTable
from .nets import ReplicaNet
from .nets.tabm import TabM, mean_probability
from .safe_files import read_tensors, tensor_metadata, write_tensors

__all__ = ["Replicas"]

# Numbers of input rows that pass through all replicas at once outside of training.
_NUMBERS_AT_ONCE = 1 << 25


class Replicas:
    """K models that share an architecture and differ in loss and seed, trained as one by `train`.

    Args:
        net: Called as `net(replicas=K, seeds=seeds)`: builds the stack, such as `partial(MLP, 30)` or
            `partial(resnet_cifar, 32)`.
        losses: One a replica, as objects or texts.
        seeds: One a replica, whole numbers of at least 0, which decide its first weights and its batches;
            0 to K-1 unless given. Replicas with the same seed start alike and see the same batches.

    Attributes:
        net: The stack; every weight has shape (K, ...).
        losses: The K losses.
        seeds: The K seeds.
        table: The losses as a module that takes the scores of all replicas.

    Example:
        >>> from functools import partial
        >>> from raresight.nn.nets import MLP
        >>> net = partial(MLP, 4, hidden=(8,))
        >>> replicas = Replicas.grid(net, ["erf", "tbl(alpha=0.8,C=0.5)"], seeds=(0, 1))
        >>> replicas.names
        ('erf, seed 0', 'erf, seed 1', 'tbl(alpha=0.8,C=0.5), seed 0', 'tbl(alpha=0.8,C=0.5), seed 1')
        >>> replicas.scores(torch.zeros(5, 4)).shape
        torch.Size([4, 5])
    """

    def __init__(
        self,
        net: Callable[..., ReplicaNet],
        losses: Sequence[Loss | str],
        seeds: Sequence[int] | None = None,
    ) -> None:
        if isinstance(losses, str) or not len(losses):
            raise ValueError(f"losses must be a sequence with one loss a replica, but is {losses!r}")
        self.losses = tuple(parse(loss) if isinstance(loss, str) else loss for loss in losses)
        self.seeds = tuple(range(len(losses))) if seeds is None else tuple(int(seed) for seed in seeds)
        if len(self.seeds) != len(self.losses):
            raise ValueError(
                f"{len(self.seeds)} seeds were given for {len(self.losses)} losses: give one a replica, or "
                "use Replicas.grid for all pairs"
            )
        if min(self.seeds) < 0:
            raise ValueError(f"seeds must be at least 0, but one is {min(self.seeds)}")
        self.net = net(replicas=len(self.losses), seeds=self.seeds)
        if not isinstance(self.net, ReplicaNet):
            raise TypeError(
                "net must build a stack of raresight.nn.nets, such as partial(MLP, 30), but it built a "
                f"{type(self.net).__name__}"
            )
        self.table = LossTable(self.losses, outputs=self.net.outputs)

    @classmethod
    def grid(cls, net: Callable[..., ReplicaNet], losses: Sequence[Loss | str], seeds: Sequence[int]) -> Self:
        """Every loss with every seed, loss by loss."""
        pairs = [(loss, seed) for loss in losses for seed in seeds]
        return cls(net, [loss for loss, _ in pairs], [seed for _, seed in pairs])

    def __len__(self) -> int:
        return len(self.losses)

    @property
    def names(self) -> tuple[str, ...]:
        """Loss and seed of each replica."""
        return tuple(f"{loss}, seed {seed}" for loss, seed in zip(self.losses, self.seeds))

    @property
    def device(self) -> torch.device:
        return self.net.head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return self.net.head.weight.dtype

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        """Move the weights to a device, and change their precision if asked for; returns itself."""
        self.net.to(device=device, dtype=dtype)
        self.table.to(device)
        return self

    def replica(self, k: int) -> ReplicaNet:
        """A copy of replica k as a net alone."""
        return self.net.replica(k)

    def statistics(self) -> dict[str, Tensor]:
        """The buffers that belong to the replicas, each (K, ...), such as the running means of batch norm."""
        weights = dict(self.net.named_parameters())
        return {name: buffer for name, buffer in self.net.state_dict().items() if name not in weights}

    def scores(self, x: ArrayLike | Tensor | RowSource, *, bf16: bool = False) -> Tensor:
        """The scores of rows, (K, N) or (K, N, classes), on the device of the weights, as the net is used.

        `x` has the shape (N, ...), as the net takes it, or is a source of rows. With `bf16` the net runs
        under autocast.
        """
        return self._outputs_of(self.net, x, bf16=bf16)

    def probabilities(self, x: ArrayLike | Tensor | RowSource) -> Tensor:
        """Calibrated probabilities: each replica's scores through the link of its own loss.

        (K, N), the probability of label 1; or (K, N, classes). An ensemble's is the mean of its members'.
        """
        if isinstance(self.net, TabM):
            members = self._outputs_of(self.net.member_scores, x, rows_axis=2)
            return mean_probability(members, self.losses)
        several = self.net.outputs > 1
        scores = self.scores(x)
        found = [loss.probability(row, multiclass=several) for loss, row in zip(self.losses, scores)]
        return torch.stack(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights as one safetensors file, which appears whole or not at all."""
        described = {"losses": [str(loss) for loss in self.losses], "seeds": list(self.seeds)}
        write_tensors(
            Path(path), dict(self.net.state_dict()), metadata={"raresight.replicas": json.dumps(described)}
        )

    def load_weights(self, path: str | os.PathLike[str]) -> Self:
        """Take over the weights of a file that `save` wrote, or of the folder of a training; returns itself.

        Losses, seeds and shapes must be those of these replicas.
        """
        place = Path(path)
        file = current_state(place) if place.is_dir() else place
        text = tensor_metadata(file).get("raresight.replicas")
        if text is None:
            raise ValueError(f"{file} does not hold the weights of replicas")
        described = json.loads(text)
        mine = {"losses": [str(loss) for loss in self.losses], "seeds": list(self.seeds)}
        for name, value in mine.items():
            if described[name] != value:
                raise ValueError(
                    f"{file} holds replicas with the {name} {described[name]}, but these have {value}"
                )
        tensors = read_tensors(file)
        state = self.net.state_dict()
        for name, stack in state.items():
            if name not in tensors or tensors[name].shape != stack.shape:
                found = tuple(tensors[name].shape) if name in tensors else "missing"
                raise ValueError(
                    f"{file} is of another net: {name} is {found} there, but {tuple(stack.shape)} here"
                )
        with torch.no_grad():
            for name, stack in state.items():
                stack.copy_(tensors[name])
        return self

    def _outputs_of(
        self,
        pass_through: Callable[[Tensor], Tensor],
        x: ArrayLike | Tensor | RowSource,
        *,
        rows_axis: int = 1,
        bf16: bool = False,
    ) -> Tensor:
        """What a pass through the net gives for rows, taken part by part."""
        was_training = self.net.training
        self.net.eval()
        try:
            with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
                parts = [pass_through(part).to(self.dtype) for part in self._parts(x)]
            return torch.cat(parts, dim=rows_axis)
        finally:
            self.net.train(was_training)

    def _parts(self, x: ArrayLike | Tensor | RowSource) -> Iterator[Tensor]:
        """Rows on the device, as many at a time as memory allows."""
        if isinstance(x, RowSource):
            source, row_numbers = x, x.row_numbers
            if source.labels.device != self.device:
                source = source.to(self.device, self.dtype)
            part: Callable[[slice], Tensor] = source.part
        else:
            rows = x if isinstance(x, Tensor) else torch.from_numpy(np.asarray(x))
            if rows.dim() < 2 or not len(rows):
                raise ValueError(
                    f"x must hold at least one row, with rows first, but has shape {tuple(rows.shape)}"
                )
            row_numbers = rows[0].numel()
            part = rows.__getitem__
        count = max(1, _NUMBERS_AT_ONCE // (row_numbers * len(self) * self.net.members))
        for start in range(0, len(x) if isinstance(x, RowSource) else len(rows), count):
            chunk: Any = part(slice(start, start + count))
            yield chunk.to(self.device, self.dtype)
