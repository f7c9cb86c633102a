"""K independent models as one: the same architecture with K losses and K seeds."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..losses import ClassWeighted, Loss, parse
from .batches import RowSource
from .checkpoint import BEST, BEST_EPOCHS, OURS, current_state, differences
from .loss_table import LossTable
from .nets import ReplicaNet
from .nets.layers import checked_seeds
from .nets.tabm import TabM, mean_probability, probability_of
from .row_values import as_array
from .tensor_files import read_tensors, tensor_metadata, write_tensors

__all__ = ["Replicas"]

# Outside of training, rows pass through the net in parts. The widest layer of all replicas has at most this
# many numbers for a part. On a GPU it may have one number per 256 bytes of memory if that is more: with small
# parts the GPU waits for launches.
_NUMBERS_AT_ONCE = 1 << 26
_BYTES_PER_NUMBER = 256
# Metadata entry of a weight file, which describes net, losses and seeds.
_METADATA = "raresight.replicas"


class Replicas:
    """K models that share an architecture and differ in loss and seed, trained as one by `train`.

    Args:
        net: Called as `net(replicas=K, seeds=seeds)`: builds the stack, such as `partial(MLP, 30)` or
            `partial(resnet_cifar, 32)`.
        losses: One per replica, as objects or texts.
        seeds: One per replica, integers from 0 to 2**32 - 1. A seed decides the first weights and the
            batches, so replicas with the same seed start alike and see the same batches. Default: 0 to K-1.

    Attributes:
        net: The stack; every weight has shape (K, ...).
        losses: The K losses.
        seeds: The K seeds.
        table: The losses as a module that takes the scores of all replicas.
        class_weights: (K, classes), the class weights in the last epoch of each replica (deferred
            reweighting), set by `train`. None without reweighting.

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
        _check_builder(net)
        self.losses = _as_losses(losses)
        self.seeds = tuple(range(len(self.losses))) if seeds is None else checked_seeds(seeds)
        if len(self.seeds) != len(self.losses):
            raise ValueError(
                f"{len(self.seeds)} seeds were given for {len(self.losses)} losses: give one per replica, or "
                "use Replicas.grid for all pairs"
            )
        self.net = net(replicas=len(self.losses), seeds=self.seeds)
        if not isinstance(self.net, ReplicaNet):
            raise TypeError(
                "net must build a stack of raresight.nn.nets, such as partial(MLP, 30), but it built a "
                f"{type(self.net).__name__}"
            )
        if self.net.seeds != self.seeds:
            raise ValueError(
                f"net built a stack of seeds {_shortly(self.net.seeds)}, but was asked for "
                f"{_shortly(self.seeds)}: it must hand on its arguments replicas and seeds, as partial does"
            )
        self._class_weights: tuple[tuple[float, ...], ...] | None = None
        self.table = LossTable(self.losses, outputs=self.net.outputs)

    @classmethod
    def grid(cls, net: Callable[..., ReplicaNet], losses: Sequence[Loss | str], seeds: Sequence[int]) -> Self:
        """Build replicas of every loss with every seed, loss by loss."""
        chosen, numbers = _as_losses(losses), checked_seeds(seeds)
        if not numbers:
            raise ValueError("seeds must hold at least one seed, but is empty")
        pairs = [(loss, seed) for loss in chosen for seed in numbers]
        return cls(net, [loss for loss, _ in pairs], [seed for _, seed in pairs])

    def __len__(self) -> int:
        return len(self.losses)

    @property
    def names(self) -> tuple[str, ...]:
        """Return loss and seed of each replica as a text."""
        return tuple(f"{loss}, seed {seed}" for loss, seed in zip(self.losses, self.seeds))

    @property
    def device(self) -> torch.device:
        return self.net.head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the precision of the weights."""
        return self.net.head.weight.dtype

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        """Move the weights to a device, and to a precision if one is given; returns itself."""
        self.net.to(device=device, dtype=dtype)
        self.table.to(device)
        return self

    @property
    def class_weights(self) -> tuple[tuple[float, ...], ...] | None:
        """Return the class weights in the last epoch of each replica; see the class."""
        return self._class_weights

    @class_weights.setter
    def class_weights(self, weights: Sequence[Sequence[float]] | Tensor | None) -> None:
        if weights is None:
            self._class_weights = None
            return
        rows = weights.tolist() if isinstance(weights, Tensor) else weights
        found = tuple(tuple(float(weight) for weight in row) for row in rows)
        classes = max(self.net.outputs, 2)
        fits = len(found) == len(self) and all(len(row) == classes for row in found)
        if not fits or not all(0 < weight < math.inf for row in found for weight in row):
            raise ValueError(
                f"class_weights must hold a row for each of {len(self)} replicas, with {classes} finite "
                f"weights above 0, but is {found}"
            )
        self._class_weights = found

    @property
    def weighted_losses(self) -> tuple[Loss, ...]:
        """Return the K losses with the class weights of the last epoch, whose links give probabilities."""
        if self._class_weights is None:
            return self.losses
        return tuple(
            loss if len(set(weights)) == 1 else ClassWeighted(loss, weights)
            for loss, weights in zip(self.losses, self._class_weights)
        )

    def description(self) -> dict[str, Any]:
        """Return net, losses and seeds in plain values as JSON has them."""
        described = {
            "net": {
                "kind": type(self.net).__name__,
                "options": self.net.options(),
                "cosine": self.net.cosine,
            },
            "losses": [str(loss) for loss in self.losses],
            "seeds": self.seeds,
        }
        found: dict[str, Any] = json.loads(json.dumps(described, allow_nan=False))
        return found

    def metadata(self, class_weights: Tensor | None = None) -> dict[str, str]:
        """Return the metadata of a weight file, by default with the current class weights."""
        weights = self._class_weights if class_weights is None else class_weights.tolist()
        return {_METADATA: json.dumps({**self.description(), "class_weights": weights})}

    def replica(self, k: int) -> ReplicaNet:
        """Return a copy of replica k as a net alone."""
        return self.net.replica(k)

    def statistics(self) -> dict[str, Tensor]:
        """Return the buffers of the replicas, each (K, ...), such as the running means of batch norm."""
        weights = dict(self.net.named_parameters())
        return {name: buffer for name, buffer in self.net.state_dict().items() if name not in weights}

    def scores(self, x: ArrayLike | Tensor | RowSource, *, bf16: bool = False) -> Tensor:
        """Return the scores of rows, (K, N) or (K, N, classes), in evaluation mode, on the weights' device.

        `x` has the shape (N, ...), or is a source of rows. With `bf16` the net runs under autocast, except
        for its head, so that scores are not rounded to 8 bits.
        """
        return self._outputs_of(self.net, x, bf16=bf16)

    def probabilities(self, x: ArrayLike | Tensor | RowSource) -> Tensor:
        """Return each replica's probabilities, its scores through the link of its own loss.

        (K, N), the probability of label 1; or (K, N, classes). An ensemble's is the mean of its members'. A
        score that is NaN, as of a replica that diverged, has the probability NaN. The link undoes
        `class_weights`, as that of `losses.ClassWeighted` does.
        """
        if isinstance(self.net, TabM):
            members = self._outputs_of(self.net.member_scores, x, rows_axis=2)
            return mean_probability(members, self.weighted_losses)
        several = self.net.outputs > 1
        scores = self.scores(x)
        found = [probability_of(loss, row, several) for loss, row in zip(self.weighted_losses, scores)]
        return torch.stack(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights as one safetensors file, atomically; missing folders are made."""
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(place, dict(self.net.state_dict()), metadata=self.metadata())

    def load_weights(self, path: str | os.PathLike[str]) -> Self:
        """Load the weights of a file of `save`, or of the folder of a training; returns itself.

        A training with `keep="best"` gives the weights of the best epochs so far, otherwise of the last
        checkpoint. It may still run. Net, losses and seeds must be those of these replicas, whose class
        weights are replaced, too. Losses are compared by their texts, which for a loss made from a function
        is its name. The weights are converted to the precision of these replicas.
        """
        file, metadata, tensors = _read_weights(Path(path))
        text = metadata.get(_METADATA)
        if text is None:
            raise ValueError(f"{file} does not hold the weights of replicas")
        described = json.loads(text)
        class_weights = described.pop("class_weights", None)
        different = differences(described, self.description())
        if different:
            raise ValueError(f"{file} holds other replicas: {'; '.join(different)}")
        state = self.net.state_dict()
        epochs = tensors.get(f"{OURS}{BEST_EPOCHS}")
        if epochs is not None:
            # As `train` leaves them: a frozen replica without a best epoch has its first weights.
            is_kept = (epochs > 0) | tensors[f"{OURS}frozen"]
            for name in tensors.keys() & state.keys():
                tensors[name][is_kept] = tensors[f"{OURS}{BEST}{name}"][is_kept]
        for name, stack in state.items():
            if name not in tensors or tensors[name].shape != stack.shape:
                found = tuple(tensors[name].shape) if name in tensors else "missing"
                raise ValueError(
                    f"{file} is of another net: {name} is {found} there, but {tuple(stack.shape)} here"
                )
        with torch.no_grad():
            for name, stack in state.items():
                stack.copy_(tensors[name])
        self.class_weights = class_weights
        return self

    def _outputs_of(
        self,
        pass_through: Callable[[Tensor], Tensor],
        x: ArrayLike | Tensor | RowSource,
        *,
        rows_axis: int = 1,
        bf16: bool = False,
    ) -> Tensor:
        """Pass rows through the net in evaluation mode, part by part."""
        was_training = self.net.training
        self.net.eval()
        try:
            with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
                parts = [pass_through(part).to(self.dtype) for part in self._parts(x)]
            return torch.cat(parts, dim=rows_axis)
        finally:
            self.net.train(was_training)

    def _parts(self, x: ArrayLike | Tensor | RowSource) -> Iterator[Tensor]:
        """Yield rows on the device, as many at a time as memory allows."""
        part: Callable[[slice], Tensor]
        if isinstance(x, RowSource):
            source, rows, row_numbers = x, len(x), x.row_numbers
            if source.labels.device != self.device:
                source = source.to(self.device, self.dtype)
            part = source.part
        else:
            values = x if isinstance(x, Tensor) else as_array(x, "x")
            axes = 1 + self.net.row_axes
            if values.ndim != axes or not len(values):
                raise ValueError(
                    f"x must hold at least one row, with rows first and {axes} axes in all, but has shape "
                    f"{tuple(values.shape)}"
                )
            rows, row_numbers = len(values), math.prod(values.shape[1:])

            # A copy, since torch warns about NumPy arrays that are read-only.
            def part(chosen: slice) -> Tensor:
                return values[chosen] if isinstance(values, Tensor) else torch.tensor(values[chosen])

        count = max(1, self._numbers_at_once() // (self.net.numbers_per_row(row_numbers) * len(self)))
        for start in range(0, rows, count):
            yield part(slice(start, start + count)).to(self.device, self.dtype)

    def _numbers_at_once(self) -> int:
        if self.device.type != "cuda":
            return _NUMBERS_AT_ONCE
        memory = torch.cuda.get_device_properties(self.device).total_memory
        return max(_NUMBERS_AT_ONCE, memory // _BYTES_PER_NUMBER)


def _read_weights(path: Path) -> tuple[Path, dict[str, str], dict[str, Tensor]]:
    """Read a weight file: path, metadata and tensors; of a folder the newest state."""
    tries = 10 if path.is_dir() else 1
    while True:
        file = current_state(path) if path.is_dir() else path
        tries -= 1
        try:
            return file, tensor_metadata(file), read_tensors(file)
        except FileNotFoundError:
            # A running training has replaced the state between the look at its name and the read.
            if not tries:
                raise


def _shortly(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds[:5])) + (", ..." if len(seeds) > 5 else "")


def _check_builder(net: Any) -> None:
    if isinstance(net, torch.nn.Module) or not callable(net):
        kind = "a net that is built already, of type" if isinstance(net, torch.nn.Module) else "of type"
        raise TypeError(
            "net must be what builds a stack, called as net(replicas=K, seeds=seeds), such as "
            f"partial(MLP, 30), but is {kind} {type(net).__name__}"
        )


def _as_losses(losses: Any) -> tuple[Loss, ...]:
    """Return losses given as objects or texts as objects."""
    if isinstance(losses, (str, Loss)) or not isinstance(losses, Iterable):
        raise TypeError(
            f"losses must be a sequence with one loss per replica, but is {losses!r}: put one loss in a list"
        )
    found = tuple(parse(loss) if isinstance(loss, str) else loss for loss in losses)
    if not found:
        raise ValueError("losses must be a sequence with one loss per replica, but is empty")
    return found
