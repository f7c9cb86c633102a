"""TabM: an ensemble of nets for tables that share most weights, through the `tabm` package of its authors.

Gorishniy, Kotelnikov and Babenko, "TabM: advancing tabular deep learning with parameter-efficient ensembling"
(ICLR 2025).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ...common.checks import check_whole
from ...losses import Loss
from .heads import MemberHead
from .layers import ReplicaLayer, ReplicaNet

__all__ = ["TabM", "mean_probability"]

Embedding = Literal["linear", "periodic"]
Sharing = Literal["tabm", "tabm-mini", "tabm-packed"]


def probability_of(loss: Loss, scores: Tensor, several: bool = False) -> Tensor:
    """Return `loss.probability`, and NaN for a score of NaN, which losses refuse; `several`: of (N, classes).

    >>> from raresight.losses import parse
    >>> probability_of(parse("crossentropy"), torch.tensor([0.0, float("nan")]))
    tensor([0.5000,    nan])
    """
    unknown = scores.isnan()
    found: Tensor = loss.probability(scores.masked_fill(unknown, 0.0), multiclass=several)
    return found.masked_fill(unknown.any(-1, keepdim=True) if several else unknown, torch.nan)


def mean_probability(member_scores: Tensor, losses: Sequence[Loss]) -> Tensor:
    """Return the mean of the members' probabilities by the loss of their replica, as TabM predicts.

    Args:
        member_scores: (K, members, N) as from `TabM.member_scores`; or (K, members, N, classes).
        losses: One per replica.

    Returns:
        P(y=1), (K, N); or the posterior, (K, N, classes).

    Example:
        >>> from raresight.losses import parse
        >>> scores = torch.tensor([[[-1.0], [1.0]], [[-1.0], [1.0]]])
        >>> mean_probability(scores, [parse("crossentropy"), parse("focal(gamma=2.0)")]).shape
        torch.Size([2, 1])
    """
    if len(losses) != len(member_scores):
        raise ValueError(
            f"{len(losses)} losses were given for {len(member_scores)} replicas: give one for each"
        )
    means = []
    for scores, loss in zip(member_scores, losses):
        if scores.dim() == 2:
            means.append(probability_of(loss, scores).mean(0))
        else:
            # Classes are axis 1 of what losses take in torch.
            posterior = probability_of(loss, scores.flatten(0, 1), several=True)
            means.append(posterior.view_as(scores).mean(0))
    return torch.stack(means)


class TabM(ReplicaNet):
    """K ensembles of `members` dense nets each, which share their weights except for factors of their own.

    As its authors advise, each member is trained on its own loss (`training_scores`), and the prediction is
    the mean of the members' probabilities. `net(x)` is the score of that mean, with the sigmoid (softmax) as
    the probability:

        z = log(mean s(z_i)) - log(mean s(-z_i)),   s the sigmoid

    A loss may have another link. `mean_probability` returns the mean of the probabilities by that link.

    Needs the `tabm` package: pip install 'raresight[tabm]'. Rows should be standardised. Dropout follows from
    the seed of a replica and its number of batches, so that it is the same in a stack and alone.

    Args:
        features: Number of values per row.
        outputs: 1 for a binary score, or one logit per class.
        members: Number of nets per ensemble, k of the paper.
        blocks: Number of hidden layers. Default: 3, or 2 after an embedding.
        width: Width of a hidden layer.
        dropout: Share of hidden units set to zero in training.
        sharing: Which weights each member has of its own. "tabm": factors in each layer. "tabm-mini": factors
            in the first layer. "tabm-packed": all weights.
        embedding: "linear" or "periodic" maps each value of a row to a vector first. None: no embedding.
        embedding_width: Length of that vector.
        replicas: K, the number of ensembles.
        seeds: One per replica. Default: 0 to K-1.
        cosine: Whether the scores are cosines, as LDAM expects them: one bool, or one per replica.

    Example:
        >>> net = TabM(5, members=4, width=16, replicas=2)
        >>> rows, labels = torch.zeros(10, 5), torch.zeros(10)
        >>> net(rows).shape, net.member_scores(rows).shape
        (torch.Size([2, 10]), torch.Size([2, 4, 10]))
        >>> net.training_scores(rows).shape, net.training_labels(labels).shape
        (torch.Size([2, 40]), torch.Size([40]))
    """

    def __init__(
        self,
        features: int,
        *,
        outputs: int = 1,
        members: int = 32,
        blocks: int | None = None,
        width: int = 512,
        dropout: float = 0.1,
        sharing: Sharing = "tabm",
        embedding: Embedding | None = None,
        embedding_width: int = 24,
        replicas: int = 1,
        seeds: Sequence[int] | None = None,
        cosine: Sequence[bool] | bool = False,
    ) -> None:
        super().__init__(replicas, seeds, outputs, cosine)
        if blocks is None:
            blocks = 3 if embedding is None else 2
        features, members = check_whole(features, "features"), check_whole(members, "members")
        blocks, width = check_whole(blocks, "blocks"), check_whole(width, "width")
        embedding_width = check_whole(embedding_width, "embedding_width")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, but is {dropout}")
        self.features, self.members = features, members
        self._options: dict[str, Any] = {
            "features": features,
            "members": members,
            "blocks": blocks,
            "width": width,
            "dropout": dropout,
            "sharing": sharing,
            "embedding": embedding,
            "embedding_width": embedding_width,
        }
        self.backbone = _Backbone(self.seeds, partial(_build, **self._options))
        self.head = MemberHead(self.cosine, members, width, outputs)
        self.reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        """Map rows (N, features) or (K, N, features) to ensembles' scores (K, N), or (K, N, outputs)."""
        scores = self.member_scores(x)
        # By log-sum-exp of logarithms: the mean of probabilities rounds to 0 or 1 for large scores.
        if self.outputs == 1:
            return F.logsigmoid(scores).logsumexp(1) - F.logsigmoid(-scores).logsumexp(1)
        return F.log_softmax(scores, -1).logsumexp(1) - math.log(self.members)

    def member_scores(self, x: Tensor) -> Tensor:
        """Return the scores of each member: (K, members, N), or (K, members, N, outputs)."""
        x = self.checked_input(x, (self.features,))
        return self.head_scores(self.backbone(x).transpose(1, 2))

    def training_scores(self, x: Tensor) -> Tensor:
        return self.member_scores(x).flatten(1, 2)

    def numbers_per_row(self, row_numbers: int) -> int:
        embedded = 1 if self._options["embedding"] is None else int(self._options["embedding_width"])
        return self.members * max(row_numbers * embedded, int(self._options["width"]), self.outputs)

    def options(self) -> dict[str, Any]:
        return dict(self._options)


class _Backbone(ReplicaLayer):
    """The package's nets without their last layer: (K, N, features) to (K, N, members, width).

    `body` is such a net whose parameters have a first axis for the replicas. It is called with the slice of
    one replica, and `torch.func.vmap` makes batched products of the calls. All replicas share rows of shape
    (N, features).
    """

    seeds: Tensor
    batches: Tensor

    def __init__(self, seeds: Sequence[int], build: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.build = build
        self.body = self._built(0)
        for part in self.body.modules():
            for name, value in part.named_parameters(recurse=False):
                stack = value.detach().new_zeros((len(seeds), *value.shape))
                part.register_parameter(name, nn.Parameter(stack))
        self._dropouts = [name for name, part in self.body.named_modules() if isinstance(part, _Dropout)]
        # Dropout depends on these two buffers alone: the seed, and the number of batches seen.
        low = torch.tensor([seed & _LOW_32 for seed in seeds])
        high = torch.tensor([seed >> 32 & _LOW_32 for seed in seeds])
        self.register_buffer("seeds", _mixed(_mixed(low) ^ high), persistent=False)
        # A float like all statistics of a net; exact in float32 up to 16 million batches.
        self.register_buffer("batches", torch.zeros(len(seeds)))

    def reset_replica(self, k: int, generator: torch.Generator) -> None:
        seed = int(torch.randint(2**62, (), generator=generator))
        fresh = self._built(seed)
        with torch.no_grad():
            for name, stack in self.body.named_parameters():
                stack[k] = fresh.get_parameter(name)
            self.batches[k] = 0

    def _built(self, seed: int) -> nn.Module:
        with _DrawsFrom(torch.Generator().manual_seed(seed)), torch.device("cpu"):
            return self.build()

    def forward(self, x: Tensor) -> Tensor:
        values: dict[str, Tensor] = dict(self.body.named_parameters())
        if self._dropouts and self.training:
            self.batches.add_(1)
            batch = self.batches.to(torch.int64)
            for number, name in enumerate(self._dropouts):
                values[f"{name}.key"] = _mixed(_mixed(self.seeds + number) ^ batch)
        rows = 0 if x.dim() == 3 else None
        features: Tensor = torch.func.vmap(self._call, in_dims=(0, rows))(values, x)
        return features

    def _call(self, values: dict[str, Tensor], x: Tensor) -> Tensor:
        features: Tensor = torch.func.functional_call(self.body, values, (x,))
        return features


class _DrawsFrom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Make this thread's random draws in the block come from a given generator.

    The package takes no generator. Seeding PyTorch's global one would mix the draws of all threads.
    """

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generator = generator

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            if all(argument.name != "generator" for argument in func._schema.arguments):
                raise RuntimeError(f"{func} draws first weights of TabM, but takes no generator")
            given["generator"] = self.generator
        return func(*args, **given)


class _Dropout(nn.Module):
    """Dropout decided by a key: the same key, shape and share drop the same places."""

    key: Tensor

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        places = torch.arange(x.numel(), device=x.device).view(x.shape)
        is_kept = _mixed(places ^ self.key) >= int(self.share * 2**32)
        return torch.where(is_kept, x / (1 - self.share), 0)


_LOW_32 = 0xFFFFFFFF


def _mixed(bits: Tensor) -> Tensor:
    """Hash 32 bits to 32 bits, one to one, in int64.

    Two rounds of shift and product, as in the finalisers of MurmurHash3 (Appleby).
    """
    for factor, shift in ((0x85EBCA6B, 13), (0xC2B2AE35, 16)):
        bits = bits & _LOW_32
        bits = ((bits ^ (bits >> 16)) * factor) & _LOW_32
        bits = bits ^ (bits >> shift)
    return bits


def _build(
    *,
    features: int,
    members: int,
    blocks: int,
    width: int,
    dropout: float,
    sharing: Sharing,
    embedding: Embedding | None,
    embedding_width: int,
) -> nn.Module:
    """Build the package's net of one replica without its last layer, with dropout by key."""
    try:
        import rtdl_num_embeddings
        import tabm
    except ImportError as error:
        raise ImportError("TabM needs the tabm package: pip install 'raresight[tabm]'") from error
    if embedding not in (None, "linear", "periodic"):
        raise ValueError(f'embedding must be "linear", "periodic" or None, but is {embedding!r}')
    if sharing not in ("tabm", "tabm-mini", "tabm-packed"):
        raise ValueError(f'sharing must be "tabm", "tabm-mini" or "tabm-packed", but is {sharing!r}')
    # Built from parts, since the package's net uses an operation that torch.func.vmap does not support.
    parts: list[nn.Module] = []
    if embedding == "linear":
        parts = [rtdl_num_embeddings.LinearReLUEmbeddings(features, embedding_width), nn.Flatten()]
    elif embedding == "periodic":
        parts = [rtdl_num_embeddings.PeriodicEmbeddings(features, embedding_width, lite=False), nn.Flatten()]
    numbers = 1 if embedding is None else embedding_width
    is_packed = sharing == "tabm-packed"
    backbone = tabm.make_tabm_backbone(
        d_in=features * numbers,
        n_blocks=blocks,
        d_block=width,
        dropout=0.0,
        k=members,
        arch_type=sharing,
        # As in the package's own net, all factors of one feature start with one value.
        start_scaling_init=None if is_packed else "random-signs" if embedding is None else "normal",
        start_scaling_init_chunks=None if is_packed else [numbers] * features,
    )
    for part in list(backbone.modules()):
        for name, inner in list(part.named_children()):
            if isinstance(inner, nn.Dropout):
                setattr(part, name, _Dropout(dropout) if dropout else nn.Identity())
    return nn.Sequential(*parts, tabm.EnsembleView(k=members), backbone)
