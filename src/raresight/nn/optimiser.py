"""SGD and AdamW for a stack of replicas whose weights lie in one tensor, one row per replica.

No value is read back from the device, so that a CUDA graph can hold a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .kernels import has_triton
from .recipe import Recipe

__all__ = ["FlatStacks", "StackOptimiser", "clip_factors"]


class FlatStacks:
    """Tensors of shape (K, ...) as one of shape (K, P), and back, in one or two GPU kernels each way."""

    def __init__(self, stacks: Sequence[Tensor], replicas: int) -> None:
        self.replicas = replicas
        for stack in stacks:
            if not stack.is_contiguous() or stack.shape[0] != replicas or not stack.is_floating_point():
                raise ValueError(
                    f"weights and buffers must be contiguous floats of shape ({replicas}, ...), one row per "
                    f"replica, but one is {stack.dtype} of shape {tuple(stack.shape)}"
                )
        # Views, so that writing to them writes to the stacks.
        self._rows = [stack.detach().view(replicas, -1) for stack in stacks]
        self._sizes = [rows.shape[1] for rows in self._rows]

    def gather(self, stacks: Sequence[Tensor] | None = None) -> Tensor:
        """Return the stacks, or others of their shapes such as gradients, as a new tensor (K, P)."""
        if stacks is None:
            return torch.cat(self._rows, dim=1)
        return torch.cat([stack.reshape(self.replicas, -1) for stack in stacks], dim=1)

    def write(self, flat: Tensor) -> None:
        """Copy (K, P) into the stacks."""
        torch.split_with_sizes_copy(flat, self._sizes, dim=1, out=self._rows)


def clip_factors(norms: Tensor, limits: Tensor) -> Tensor:
    """Return the factors that bring gradient norms within their limits, as torch's `clip_grad_norm_`.

        min(1, limit / (norm + 1e-6))

    >>> clip_factors(torch.tensor([0.5, 4.0]), torch.tensor([1.0, 1.0]))
    tensor([1.0000, 0.2500])
    """
    return (limits / (norms + 1e-6)).clamp(max=1.0)


def _has_kernel(weights: Tensor) -> bool:
    # The kernel counts places within a replica in 32 bits.
    return weights.is_cuda and weights.dtype == torch.float32 and weights.shape[1] < 2**31 and has_triton()


class StackOptimiser:
    """SGD or AdamW for K independent models.

    SGD:    m <- momentum m + g + weight_decay w,   w <- w - lr m
    AdamW:  w <- w (1 - lr weight_decay),   m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2,
            w <- w - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon)

    A replica moves as it would alone under `torch.optim.SGD` or `torch.optim.AdamW`. Rows that are not alive
    keep their values, whatever their gradients.

    Attributes:
        weights: (K, P), the weights of all parameters.
        slots: The optimiser's state, each (K, P): "momentum"; or "mean" and "square".

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([[1.0], [2.0]]))
        >>> optimiser = StackOptimiser([weight], 2, Recipe(optimiser="sgd", weight_decay=0.0))
        >>> optimiser.step(
        ...     torch.ones(2, 1), torch.full((2,), 0.5), torch.tensor([True, False]), torch.tensor(1)
        ... )
        >>> weight.detach().flatten()
        tensor([0.5000, 2.0000])
    """

    def __init__(self, parameters: Sequence[Tensor], replicas: int, recipe: Recipe) -> None:
        self._recipe = recipe
        self._stacks = FlatStacks(parameters, replicas)
        self.weights = self._stacks.gather()
        names = ("momentum",) if recipe.optimiser == "sgd" else ("mean", "square")
        self.slots = {name: torch.zeros_like(self.weights) for name in names}

    def gather(self, gradients: Sequence[Tensor]) -> Tensor:
        """Return the gradients of the parameters as (K, P)."""
        return self._stacks.gather(gradients)

    def reread(self) -> None:
        """Copy the parameters to the optimiser's weights, after another writer such as a checkpoint."""
        self.weights.copy_(self._stacks.gather())

    def write(self) -> None:
        """Copy the optimiser's weights to the parameters."""
        self._stacks.write(self.weights)

    def show(self, weights: Tensor) -> None:
        """Copy other weights, (K, P), to the parameters, until `write` or the next step."""
        self._stacks.write(weights)

    @torch.no_grad()
    def step(
        self,
        gradient: Tensor,
        rate: Tensor,
        alive: Tensor,
        count: Tensor,
        factor: Tensor | None = None,
    ) -> None:
        """Move the weights.

        Args:
            gradient: (K, P); it may be overwritten.
            rate: (K,), the learning rates.
            alive: (K,), bool; the other replicas do not move.
            count: The number of the step, from 1, as a tensor without axes.
            factor: (K,), factors of the gradients, to clip them. Default: 1.
        """
        if self._recipe.optimiser == "sgd" and _has_kernel(self.weights):
            ones = torch.ones_like(rate) if factor is None else factor
            self._sgd_by_kernel(gradient, ones, rate, alive)
            self.write()
            return
        if factor is not None:
            gradient.mul_(factor.unsqueeze(1))
        rate, alive = rate.unsqueeze(1), alive.unsqueeze(1)
        # By `where` and not by a product with 0, which would keep the NaN of a frozen replica's gradient.
        if self._recipe.optimiser == "sgd":
            moved = self._sgd(gradient, rate, alive)
        else:
            moved = self._adamw(gradient, rate, alive, count)
        torch.where(alive, moved, self.weights, out=self.weights)
        self.write()

    def _sgd(self, gradient: Tensor, rate: Tensor, alive: Tensor) -> Tensor:
        momentum = self.slots["momentum"]
        pull = torch.add(gradient, self.weights, alpha=self._recipe.weight_decay)
        pull.add_(momentum, alpha=self._recipe.momentum)
        torch.where(alive, pull, momentum, out=momentum)
        return torch.addcmul(self.weights, momentum, rate, value=-1.0)

    def _sgd_by_kernel(self, gradient: Tensor, factor: Tensor, rate: Tensor, alive: Tensor) -> None:
        """Do the same in one pass over the weights instead of five."""
        from .kernels.sgd import sgd_step

        sgd_step(
            self.weights,
            self.slots["momentum"],
            gradient,
            factor,
            rate,
            alive,
            inertia=self._recipe.momentum,
            decay=self._recipe.weight_decay,
        )

    def _adamw(self, gradient: Tensor, rate: Tensor, alive: Tensor, count: Tensor) -> Tensor:
        first, second = self._recipe.betas
        mean, square = self.slots["mean"], self.slots["square"]
        torch.where(alive, torch.lerp(mean, gradient, 1 - first), mean, out=mean)
        torch.where(
            alive, (square * second).addcmul_(gradient, gradient, value=1 - second), square, out=square
        )
        # In float64: 1 - 0.999^t loses three digits in float32 for the first steps.
        age = count.to(torch.float64)
        mean_bias = (1 - torch.pow(first, age)).to(mean.dtype)
        square_bias = (1 - torch.pow(second, age)).sqrt().to(mean.dtype)
        length = (square.sqrt() / square_bias).add_(self._recipe.epsilon)
        shrunk = self.weights * (1 - rate * self._recipe.weight_decay)
        return shrunk.addcmul_(mean / length, rate / mean_bias, value=-1.0)
