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

# Numbers that the widest layer of all replicas may have for the rows that pass through at once outside of
# training; on a GPU one for so many bytes of its memory, if that is more.
_NUMBERS_AT_ONCE = 1 << 26
_BYTES_A_NUMBER = 256
# The entry of a weight file that describes net, losses and seeds.
_METADATA = "raresight.replicas"


class Replicas:
    """K models that share an architecture and differ in loss and seed, trained as one by `train`.

    Args:
        net: Called as `net(replicas=K, seeds=seeds)`: builds the stack, such as `partial(MLP, 30)` or
            `partial(resnet_cifar, 32)`.
        losses: One per replica, as objects or texts.
        seeds: One per replica, whole numbers of at least 0 and below 2**32, which decide its first weights
            and its batches. Default: 0 to K-1. Replicas with the same seed start alike and see the same
            batches.

    Attributes:
        net: The stack; every weight has shape (K, ...).
        losses: The K losses.
        seeds: The K seeds.
        table: The losses as a module that takes the scores of all replicas.
        class_weights: (K, classes), the weights of the classes in the loss under which each replica was
            trained last (deferred reweighting), set by `train`; None without.

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
        """Every loss with every seed, loss by loss."""
        chosen, numbers = _as_losses(losses), checked_seeds(seeds)
        if not numbers:
            raise ValueError("seeds must hold at least one seed, but is empty")
        pairs = [(loss, seed) for loss in chosen for seed in numbers]
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

    @property
    def class_weights(self) -> tuple[tuple[float, ...], ...] | None:
        """The class weights of each replica at the end of its training; see the class."""
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
        """The K losses with the class weights of the end of the training, by whose links scores are read."""
        if self._class_weights is None:
            return self.losses
        return tuple(
            loss if len(set(weights)) == 1 else ClassWeighted(loss, weights)
            for loss, weights in zip(self.losses, self._class_weights)
        )

    def description(self) -> dict[str, Any]:
        """What these replicas are, apart from their weights, in plain values as JSON has them."""
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
        """What a file with the weights says of them, for `load_weights`: by default, as they are now."""
        weights = self._class_weights if class_weights is None else class_weights.tolist()
        return {_METADATA: json.dumps({**self.description(), "class_weights": weights})}

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
        under autocast, but for its head.
        """
        return self._outputs_of(self.net, x, bf16=bf16)

    def probabilities(self, x: ArrayLike | Tensor | RowSource) -> Tensor:
        """Calibrated probabilities: each replica's scores through the link of its own loss.

        (K, N), the probability of label 1; or (K, N, classes). An ensemble's is the mean of its members'. NaN
        where a score is, as of a replica that diverged. The link undoes `class_weights` as that of
        `losses.ClassWeighted` does.
        """
        if isinstance(self.net, TabM):
            members = self._outputs_of(self.net.member_scores, x, rows_axis=2)
            return mean_probability(members, self.weighted_losses)
        several = self.net.outputs > 1
        scores = self.scores(x)
        found = [probability_of(loss, row, several) for loss, row in zip(self.weighted_losses, scores)]
        return torch.stack(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the weights as one safetensors file, which appears whole or not at all.

        Folders on the way to it are made.
        """
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        write_tensors(place, dict(self.net.state_dict()), metadata=self.metadata())

    def load_weights(self, path: str | os.PathLike[str]) -> Self:
        """Take over the weights of a file that `save` wrote, or of the folder of a training; returns itself.

        Of a training with `keep="best"` they are of the best epochs so far, as `train` would leave them, else
        of the last checkpoint; it may be under way. Net, losses and seeds must be those of these replicas;
        the class weights are taken over, too. Losses are compared by their texts, and so those made of
        a function by their names. The weights get the precision that these replicas have.
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

            # A copy: a NumPy array may be one that cannot be written to, of which torch warns.
            def part(chosen: slice) -> Tensor:
                return values[chosen] if isinstance(values, Tensor) else torch.tensor(values[chosen])

        count = max(1, self._numbers_at_once() // (self.net.numbers_per_row(row_numbers) * len(self)))
        for start in range(0, rows, count):
            yield part(slice(start, start + count)).to(self.device, self.dtype)

    def _numbers_at_once(self) -> int:
        if self.device.type != "cuda":
            return _NUMBERS_AT_ONCE
        memory = torch.cuda.get_device_properties(self.device).total_memory
        return max(_NUMBERS_AT_ONCE, memory // _BYTES_A_NUMBER)


def _read_weights(path: Path) -> tuple[Path, dict[str, str], dict[str, Tensor]]:
    """A file of weights, what it says of itself, and its tensors; of a folder the newest state."""
    tries = 10 if path.is_dir() else 1
    while True:
        file = current_state(path) if path.is_dir() else path
        tries -= 1
        try:
            return file, tensor_metadata(file), read_tensors(file)
        except FileNotFoundError:
            # A training that is under way has put a newer state in its place.
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
    """Losses given as objects or texts."""
    if isinstance(losses, (str, Loss)) or not isinstance(losses, Iterable):
        raise TypeError(
            f"losses must be a sequence with one loss per replica, but is {losses!r}: put one loss in a list"
        )
    found = tuple(parse(loss) if isinstance(loss, str) else loss for loss in losses)
    if not found:
        raise ValueError("losses must be a sequence with one loss per replica, but is empty")
    return found
