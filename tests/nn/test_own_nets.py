"""A net and a row source from outside the package train as replicas like the package's own."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from raresight.nn import Recipe, Replicas, RowSource, train
from raresight.nn.nets import BatchNorm, Linear, ReplicaNet, make_head

LOSSES = ["crossentropy", "tbl(alpha=0.8,C=0.5)", "ldam(class_counts=(80,20))"]
RECIPE = Recipe(epochs=3, batch=16, lr=0.02, warmup_epochs=1, precision="float64")


class Squares(ReplicaNet):
    """A linear layer, the squares of its features, batch norm and a head."""

    def __init__(self, features, width=6, *, outputs=1, replicas=1, seeds=None, cosine=False):
        super().__init__(replicas, seeds, outputs, cosine)
        self.features, self.width = features, width
        self.layer, self.norm = Linear(replicas, features, width), BatchNorm(replicas, width)
        self.head = make_head(self.cosine, width, outputs)
        self.reset_parameters()

    def forward(self, x):
        hidden = self.layer(self.checked_input(x, (self.features,))).square()
        return self.head_scores(self.norm(hidden))

    def options(self):
        return {"features": self.features, "width": self.width}


class NoisyRows(RowSource):
    """Rows to whose numbers noise is added in training."""

    def __init__(self, values, labels):
        self.values, self.labels = values, labels

    @property
    def row_numbers(self):
        return self.values.shape[1]

    def to(self, device, dtype):
        return self.replaced(values=self.values.to(device, dtype), labels=self.labels.to(device))

    def draw(self, by, count):
        return (torch.randn(count, generator=by, dtype=torch.float64),)

    def batch(self, index, changes):
        rows = self.values[index]
        return rows + 0.1 * changes[0].unsqueeze(-1) if changes else rows

    def part(self, rows):
        return self.values[rows]

    def fingerprint(self):
        return f"noisy rows, {float(self.values.sum())!r}"


@pytest.fixture(scope="module")
def rows():
    points = torch.randn(120, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return NoisyRows(points, (points.square().sum(1) > 4.5).to(torch.uint8))


def trained(losses, seeds, rows, cosine=False, **options):
    replicas = Replicas(partial(Squares, 3, cosine=cosine), losses, seeds)
    result = train(replicas, rows, RECIPE, evaluation=rows, progress=False, **options)
    return replicas, result


def test_each_replica_is_trained_as_if_alone(rows):
    together, _ = trained(LOSSES, (3, 3, 8), rows, cosine=(False, False, True))
    for k, (loss, seed) in enumerate(zip(LOSSES, (3, 3, 8), strict=True)):
        alone, _ = trained([loss], (seed,), rows, cosine=k == 2)
        for name, stack in alone.net.state_dict().items():
            torch.testing.assert_close(
                together.net.state_dict()[name][k : k + 1], stack, rtol=1e-9, atol=1e-11
            )


def test_what_is_drawn_of_an_epoch_comes_back_to_its_batches(rows):
    noisy, _ = trained(LOSSES[:1], (3,), rows)
    replicas = Replicas(partial(Squares, 3), LOSSES[:1], (3,))
    plain = Recipe.from_dict({**RECIPE.to_dict(), "augment": False})
    train(replicas, rows, plain, progress=False)
    assert not torch.equal(noisy.net.layer.weight, replicas.net.layer.weight)


def test_it_is_saved_and_resumed(rows, tmp_path):
    first, result = trained(LOSSES[:2], (0, 1), rows, folder=tmp_path)
    again, resumed = trained(LOSSES[:2], (0, 1), rows, folder=tmp_path)
    assert resumed.history == result.history
    assert all(
        torch.equal(a, b) for a, b in zip(first.net.state_dict().values(), again.net.state_dict().values())
    )
    first.save(tmp_path / "weights.safetensors")
    loaded = Replicas(partial(Squares, 3), LOSSES[:2], (0, 1)).to("cpu", torch.float64)
    loaded.load_weights(tmp_path / "weights.safetensors")
    assert torch.equal(loaded.scores(rows), first.scores(rows))
