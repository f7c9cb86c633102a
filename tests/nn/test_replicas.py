"""K models as one object: their names, scores, probabilities, and weights on disk."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from raresight.losses import parse
from raresight.nn import Replicas, TableRows
from raresight.nn import replicas as module
from raresight.nn.nets import MLP, TabM

torch.set_num_threads(1)

NET = partial(MLP, 3, hidden=(4,), batch_norm=True)
LOSSES = ["crossentropy", "tbl(alpha=0.8,C=0.5)"]
X = np.random.default_rng(0).normal(size=(20, 3))


def test_grid_is_every_pair():
    replicas = Replicas.grid(NET, LOSSES, (4, 9, 1))
    assert replicas.seeds == (4, 9, 1, 4, 9, 1)
    assert [str(loss) for loss in replicas.losses] == [LOSSES[0]] * 3 + [LOSSES[1]] * 3
    assert replicas.names[4] == "tbl(alpha=0.8,C=0.5), seed 9"
    assert len(replicas) == 6
    assert Replicas(NET, LOSSES).seeds == (0, 1)
    first, twin = (replicas.replica(k).state_dict() for k in (1, 4))
    assert all(torch.equal(first[name], twin[name]) for name in first)


def test_scores_are_those_of_each_net_in_use():
    replicas = Replicas(NET, LOSSES)
    replicas.net.train()
    replicas.net(torch.randn(50, 3))  # moves the running statistics
    before = {name: value.clone() for name, value in replicas.net.state_dict().items()}
    scores = replicas.scores(X)
    assert scores.shape == (2, 20)
    assert replicas.net.training
    assert all(torch.equal(value, before[name]) for name, value in replicas.net.state_dict().items())
    for k in range(2):
        alone = replicas.replica(k).eval()
        torch.testing.assert_close(alone(torch.tensor(X, dtype=torch.float32))[0], scores[k])
    assert torch.equal(replicas.scores(TableRows(X, np.zeros(20))), scores)
    assert torch.equal(replicas.scores(torch.tensor(X)), scores)
    coarse = replicas.scores(X, bf16=True)
    assert coarse.dtype == torch.float32
    assert 0 < (coarse - scores).abs().max() < 0.1


def test_rows_go_through_in_parts(monkeypatch):
    replicas = Replicas(NET, LOSSES)
    whole = replicas.scores(X)
    monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", 3 * 2 * 7)
    torch.testing.assert_close(replicas.scores(X), whole)
    assert [len(part) for part in replicas._parts(X)] == [7, 7, 6]


def test_probabilities_are_calibrated_by_each_loss():
    replicas = Replicas(NET, LOSSES)
    scores, chance = replicas.scores(X), replicas.probabilities(X)
    for k, loss in enumerate(LOSSES):
        expected = parse(loss).probability(scores[k].double().numpy())
        np.testing.assert_allclose(chance[k].numpy(), expected, rtol=1e-5)
    assert not torch.allclose(chance[1], torch.sigmoid(scores[1]), atol=1e-3)
    classes = Replicas(partial(NET, outputs=3), LOSSES)
    assert classes.probabilities(X).shape == (2, 20, 3)
    torch.testing.assert_close(classes.probabilities(X).sum(-1), torch.ones(2, 20))


def test_the_probability_of_an_ensemble_is_the_mean_of_its_members():
    replicas = Replicas(partial(TabM, 3, members=4, width=8, blocks=1), LOSSES)
    members = replicas.net.eval().member_scores(torch.tensor(X, dtype=torch.float32))
    assert members.shape == (2, 4, 20)
    each = torch.stack([parse(loss).probability(scores) for loss, scores in zip(LOSSES, members)])
    torch.testing.assert_close(replicas.probabilities(X), each.mean(1))
    assert replicas.scores(X).shape == (2, 20)


def test_weights_go_to_disk_and_back(tmp_path):
    path = tmp_path / "weights.safetensors"
    trained = Replicas(NET, LOSSES)
    with torch.no_grad():
        for stack in trained.net.state_dict().values():
            stack.add_(0.5)
    trained.save(path)
    other = Replicas(NET, LOSSES)
    assert not torch.equal(other.scores(X), trained.scores(X))
    assert other.load_weights(path) is other
    assert torch.equal(other.scores(X), trained.scores(X))
    assert [file.name for file in tmp_path.iterdir()] == ["weights.safetensors"]
    with pytest.raises(ValueError, match=r"with the seeds \[0, 1\], but these have \[5, 6\]"):
        Replicas(NET, LOSSES, (5, 6)).load_weights(path)
    with pytest.raises(ValueError, match="with the losses"):
        Replicas(NET, LOSSES[::-1]).load_weights(path)
    with pytest.raises(ValueError, match=r"another net: layers\.0\.weight is \(2, 4, 3\) there"):
        Replicas(partial(NET, hidden=(5,)), LOSSES).load_weights(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        other.load_weights(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="not the folder of a training"):
        other.load_weights(tmp_path)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="3 seeds were given for 2 losses"):
        Replicas(NET, LOSSES, (1, 2, 3))
    with pytest.raises(ValueError, match="one loss a replica, but is 'crossentropy'"):
        Replicas(NET, "crossentropy")
    with pytest.raises(ValueError, match="one loss a replica"):
        Replicas(NET, [])
    with pytest.raises(ValueError, match="seeds must be at least 0, but one is -1"):
        Replicas(NET, LOSSES, (0, -1))
    with pytest.raises(
        TypeError, match=r"net must build a stack of raresight\.nn\.nets, .* built a Identity"
    ):
        Replicas(torch.nn.Identity, LOSSES)
    with pytest.raises(ValueError, match="x must hold at least one row"):
        Replicas(NET, LOSSES).scores([])


def test_moves_and_changes_precision():
    replicas = Replicas(NET, LOSSES)
    assert replicas.to("cpu", torch.float64) is replicas
    assert replicas.dtype == torch.float64
    assert replicas.scores(X).dtype == torch.float64
    assert replicas.device == torch.device("cpu")
