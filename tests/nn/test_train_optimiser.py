"""The optimiser of a stack moves each replica as torch's optimiser would, and leaves the frozen alone."""

from __future__ import annotations

import os

import pytest
import torch

from raresight.nn import Recipe
from raresight.nn import optimiser as optimiser_module
from raresight.nn.optimiser import FlatStacks, StackOptimiser, clip_factors
from raresight.nn.schedule import class_weights, learning_rates

SHAPES = [(3, 4, 2), (3, 5), (3,), (3, 2, 3, 3)]


def stacks(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(optimiser="sgd", momentum=0.9, weight_decay=0.01),
        Recipe(optimiser="sgd", momentum=0.0, weight_decay=0.0),
        Recipe(optimiser="adamw", weight_decay=0.02),
        Recipe(optimiser="adamw", betas=(0.5, 0.7), epsilon=1e-3, weight_decay=0.0),
    ],
    ids=["sgd", "plain sgd", "adamw", "other adamw"],
)
def test_moves_as_torch_does(recipe):
    rates = torch.tensor([0.1, 0.02, 0.3], dtype=torch.float64)
    ours = [torch.nn.Parameter(stack) for stack in stacks(0)]
    optimiser = StackOptimiser(ours, 3, recipe)
    alive = torch.ones(3, dtype=torch.bool)
    for step in range(7):
        gradient = optimiser.gather(stacks(step + 1))
        optimiser.step(gradient, rates * (step + 1), alive, torch.tensor(step + 1))
    for k in range(3):
        alone = [torch.nn.Parameter(stack[k].clone()) for stack in stacks(0)]
        if recipe.optimiser == "sgd":
            theirs = torch.optim.SGD(
                alone, lr=1.0, momentum=recipe.momentum, weight_decay=recipe.weight_decay
            )
        else:
            theirs = torch.optim.AdamW(
                alone, betas=recipe.betas, eps=recipe.epsilon, weight_decay=recipe.weight_decay
            )
        for step in range(7):
            theirs.param_groups[0]["lr"] = float(rates[k]) * (step + 1)
            for parameter, stack in zip(alone, stacks(step + 1)):
                parameter.grad = stack[k].clone()
            theirs.step()
        for stack, parameter in zip(ours, alone):
            torch.testing.assert_close(stack[k], parameter, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_frozen_replica_stays_whatever_its_gradient(kind):
    def run(broken):
        parameters = [torch.nn.Parameter(stack) for stack in stacks(0)]
        optimiser = StackOptimiser(parameters, 3, Recipe(optimiser=kind))
        rates = torch.full((3,), 0.1, dtype=torch.float64)
        optimiser.step(optimiser.gather(stacks(1)), rates, torch.ones(3, dtype=torch.bool), torch.tensor(1))
        before = {"weights": optimiser.weights.clone(), **{k: v.clone() for k, v in optimiser.slots.items()}}
        gradient = optimiser.gather(stacks(2))
        if broken:
            gradient[1] = torch.nan
        alive = torch.tensor([True, not broken, True])
        optimiser.step(gradient, rates, alive, torch.tensor(2))
        return before, {"weights": optimiser.weights, **optimiser.slots}, parameters

    before, after, parameters = run(broken=True)
    _, sound, _ = run(broken=False)
    for name, value in after.items():
        assert torch.equal(value[1], before[name][1])
        assert torch.equal(value[[0, 2]], sound[name][[0, 2]])
        assert not torch.equal(value[0], before[name][0])
    assert torch.equal(FlatStacks(parameters, 3).gather(), after["weights"])


def test_flat_stacks_go_there_and_back():
    source, target = stacks(0), [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    flat = FlatStacks(source, 3).gather()
    assert flat.shape == (3, 8 + 5 + 1 + 18)
    FlatStacks(target, 3).write(flat)
    assert all(torch.equal(one, other) for one, other in zip(source, target))
    with pytest.raises(ValueError, match=r"shape \(2, \.\.\.\)"):
        FlatStacks(source, 2)
    with pytest.raises(ValueError, match=r"torch\.int64"):
        FlatStacks([torch.zeros(3, dtype=torch.int64)], 3)


def test_clipping_shortens_only_what_is_too_long():
    norms, limits = torch.tensor([0.5, 2.0, 7.0, 7.0]), torch.tensor([1.0, 1.0, 1.0, torch.inf])
    factors = clip_factors(norms, limits)
    torch.testing.assert_close(factors, torch.tensor([1.0, 0.5, 1 / 7, 1.0]), rtol=1e-6, atol=0)


def test_gradients_are_multiplied_by_their_factors():
    recipes = (Recipe(optimiser="sgd"), Recipe(optimiser="adamw"))
    for recipe in recipes:
        moved = []
        for factor in (None, torch.tensor([0.5, 1.0, 0.25], dtype=torch.float64)):
            optimiser = StackOptimiser([torch.nn.Parameter(stack) for stack in stacks(0)], 3, recipe)
            gradient = optimiser.gather(stacks(1))
            given = gradient if factor is not None else gradient * torch.tensor([[0.5], [1.0], [0.25]])
            rates, alive = torch.full((3,), 0.1, dtype=torch.float64), torch.ones(3, dtype=torch.bool)
            optimiser.step(given, rates, alive, torch.tensor(1), factor)
            moved.append(optimiser.weights)
        torch.testing.assert_close(*moved)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="runs in Triton's interpreter")
def test_the_kernel_moves_as_the_operations_do(monkeypatch):
    """In several blocks, the last of them not full; a model that is not alive stays as it is."""
    pytest.importorskip("triton", reason="Triton is not installed")
    generator = torch.Generator().manual_seed(0)
    start, momentum, gradient = (torch.randn(3, 9001, generator=generator) for _ in range(3))
    gradient[1] = torch.nan
    alive, rates = torch.tensor([True, False, True]), torch.tensor([0.1, 0.2, 0.3])
    results = []
    for by_kernel in (False, True):
        monkeypatch.setattr(optimiser_module, "_has_kernel", lambda weights, use=by_kernel: use)
        recipe = Recipe(optimiser="sgd", weight_decay=0.01)
        optimiser = StackOptimiser([torch.nn.Parameter(start.clone())], 3, recipe)
        optimiser.slots["momentum"].copy_(momentum)
        optimiser.step(gradient.clone(), rates, alive, torch.tensor(1), torch.tensor([0.5, 1.0, 0.25]))
        results.append((optimiser.weights, optimiser.slots["momentum"]))
    for one, other, before in zip(*results, (start, momentum)):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
        assert torch.equal(other[1], before[1])
        assert not torch.equal(other[0], before[0])


def test_learning_rates_rise_and_fall():
    recipe = Recipe(epochs=250, lr=0.002, warmup_epochs=10, decay_epochs=(160, 180))
    table = torch.cat([learning_rates(recipe, 1, epoch, 4) for epoch in range(250)]).flatten()
    torch.testing.assert_close(table[:40], 0.002 * torch.arange(1, 41, dtype=torch.float64) / 40)
    assert set(table[40:640].tolist()) == {0.002}
    torch.testing.assert_close(table[640:720], torch.full((80,), 0.0002, dtype=torch.float64))
    torch.testing.assert_close(table[720:], torch.full((280,), 0.00002, dtype=torch.float64))
    own = learning_rates(Recipe(lr=(0.1, 0.2), warmup_epochs=0), 2, 0, 3)
    assert own.tolist() == [[0.1, 0.2]] * 3


def test_class_weights_come_late_and_to_whom_they_belong():
    recipe = Recipe(drw_epoch=160)
    early, late = (class_weights(recipe, (True, False), (5000, 50), epoch) for epoch in (159, 160))
    assert early.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert late[1].tolist() == [1.0, 1.0]
    torch.testing.assert_close(late[0].sum().item(), 2.0)
    assert late[0, 1] > 50 * late[0, 0]
