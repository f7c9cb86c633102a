"""K models as one object: their names, scores, probabilities, and weights on disk."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from raresight.losses import ClassWeighted, CrossEntropy, parse
from raresight.nn import Replicas, TableRows
from raresight.nn import replicas as module
from raresight.nn.nets import MLP, TabM, TabNet

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


@pytest.mark.parametrize("net", [partial(MLP, 3), partial(TabNet, 3)])
@pytest.mark.parametrize("outputs", [1, 3])
def test_scores_under_autocast_are_not_rounded_to_bfloat16(net, outputs):
    replicas = Replicas(partial(net, outputs=outputs), LOSSES)
    coarse = replicas.scores(X, bf16=True)
    assert not torch.equal(coarse.bfloat16().float(), coarse)
    replicas.net.train()
    with torch.autocast("cpu", torch.bfloat16):
        in_training = replicas.net(torch.tensor(X, dtype=torch.float32))
    assert in_training.dtype == torch.bfloat16


def test_rows_go_through_in_parts(monkeypatch):
    replicas = Replicas(NET, LOSSES)
    whole = replicas.scores(X)
    monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", 4 * 2 * 7)
    torch.testing.assert_close(replicas.scores(X), whole)
    assert [len(part) for part in replicas._parts(X)] == [7, 7, 6]
    # The widest layer counts, and each member of an ensemble.
    monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", 64 * 2 * 7)
    wide = Replicas(partial(MLP, 3, hidden=(4, 64, 5)), LOSSES)
    assert [len(part) for part in wide._parts(TableRows(X, np.zeros(20)))] == [7, 7, 6]


@pytest.mark.parametrize(
    ("net", "row_shape"),
    [
        (MLP(3, hidden=(4, 64, 5)), (3,)),
        (MLP(30, hidden=(4,)), (30,)),
        (TabNet(6, decision_width=16, attention_width=16), (6,)),
        (TabM(3, members=4, width=8, blocks=2), (3,)),
        (TabM(3, members=4, width=8, blocks=1, embedding="linear", embedding_width=7), (3,)),
    ],
    ids=["wide mlp", "narrow mlp", "tabnet", "tabm", "embedded tabm"],
)
def test_numbers_of_the_widest_layer(net, row_shape):
    seen = []
    for layer in net.modules():
        layer.register_forward_hook(lambda module, inputs, output: seen.append(output.numel()))
    net.eval()(torch.zeros(10, *row_shape))
    largest = max(seen) / 10
    assert largest <= net.numbers_per_row(row_shape[0]) <= max(2 * largest, row_shape[0])


def test_an_array_that_cannot_be_written_to_is_taken():
    fixed = X.copy()
    fixed.flags.writeable = False
    replicas = Replicas(NET, LOSSES)
    assert torch.equal(replicas.scores(fixed), replicas.scores(X))


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
    with pytest.raises(ValueError, match=r"seeds is \[0, 1\] there and \[5, 6\] here"):
        Replicas(NET, LOSSES, (5, 6)).load_weights(path)
    with pytest.raises(ValueError, match="losses is "):
        Replicas(NET, LOSSES[::-1]).load_weights(path)
    with pytest.raises(ValueError, match=r"net\.options\.hidden is \[4\] there and \[5\] here"):
        Replicas(partial(NET, hidden=(5,)), LOSSES).load_weights(path)
    # What the shapes of the weights do not show.
    with pytest.raises(ValueError, match=r"net\.cosine is \[false, false\] there and \[false, true\] here"):
        Replicas(partial(NET, cosine=(False, True)), LOSSES).load_weights(path)
    with pytest.raises(ValueError, match=r"another net: head\.weight is \(2, 1, 4\) there, but \(2, 3, 4\)"):
        Replicas(partial(NET, outputs=3), LOSSES).load_weights(path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        other.load_weights(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="not the folder of a training"):
        other.load_weights(tmp_path)


def test_a_file_of_a_net_with_other_options_is_refused(tmp_path):
    """The weights of both have the same shapes."""

    class Twin(MLP):
        """Another kind."""

    plain = Replicas(partial(TabNet, 3), ["erf"])
    plain.save(tmp_path / "new" / "folder" / "weights.safetensors")
    with pytest.raises(ValueError, match=r"net\.options\.gamma is 1\.3 there and 1\.5 here"):
        Replicas(partial(TabNet, 3, gamma=1.5), ["erf"]).load_weights(
            tmp_path / "new/folder/weights.safetensors"
        )
    Replicas(NET, ["erf"]).save(tmp_path / "mlp")
    with pytest.raises(ValueError, match=r'net\.kind is "MLP" there and "Twin" here'):
        Replicas(partial(Twin, 3, hidden=(4,), batch_norm=True), ["erf"]).load_weights(tmp_path / "mlp")


@pytest.mark.parametrize("outputs", [1, 3])
def test_class_weights_are_undone_and_kept(tmp_path, outputs):
    net = partial(NET, outputs=outputs)
    plain, weighted = Replicas(net, LOSSES), Replicas(net, LOSSES)
    weights = ((0.5, 2.0, 1.0)[: max(2, outputs)], (1.0,) * max(2, outputs))
    weighted.class_weights = torch.tensor(weights, dtype=torch.float64)
    assert weighted.class_weights == weights
    loss = ClassWeighted(CrossEntropy(), weights[0])
    assert weighted.weighted_losses == (loss, weighted.losses[1])
    chance = weighted.probabilities(X)
    torch.testing.assert_close(chance[0], loss.probability(plain.scores(X)[0], multiclass=outputs > 1))
    assert torch.equal(chance[1], plain.probabilities(X)[1])
    assert (chance[0] - plain.probabilities(X)[0]).abs().max() > 0.05
    assert torch.equal(weighted.scores(X), plain.scores(X))
    weighted.save(tmp_path / "weights")
    assert torch.equal(plain.load_weights(tmp_path / "weights").probabilities(X), chance)
    assert plain.class_weights == weights
    Replicas(net, LOSSES).save(tmp_path / "weights")
    assert plain.load_weights(tmp_path / "weights").class_weights is None
    for wrong in (weights[:1], ((1.0,), (1.0,)), ((0.0,) * len(weights[0]),) * 2):
        with pytest.raises(ValueError, match="class_weights must hold a row for each of 2 replicas"):
            plain.class_weights = wrong


def test_class_weights_of_an_ensemble():
    replicas = Replicas(partial(TabM, 3, members=4, width=8, blocks=1), LOSSES)
    replicas.class_weights = ((0.5, 3.0), (1.0, 1.0))
    members = replicas.net.eval().member_scores(torch.tensor(X, dtype=torch.float32))
    expected = ClassWeighted(CrossEntropy(), (0.5, 3.0)).probability(members[0]).mean(0)
    torch.testing.assert_close(replicas.probabilities(X)[0], expected)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="3 seeds were given for 2 losses"):
        Replicas(NET, LOSSES, (1, 2, 3))
    for losses in ("crossentropy", CrossEntropy(), 3):
        with pytest.raises(TypeError, match=r"one loss per replica, but is .*: put one loss in a list"):
            Replicas(NET, losses)
        with pytest.raises(TypeError, match="one loss per replica, but is "):
            Replicas.grid(NET, losses, (0, 1))
    with pytest.raises(ValueError, match="one loss per replica"):
        Replicas(NET, [])
    with pytest.raises(ValueError, match="seeds must hold at least one seed, but is empty"):
        Replicas.grid(NET, ["erf"], [])
    for seed in (-1, 2**32):
        with pytest.raises(
            ValueError, match=rf"seeds must be at least 0 and below 2\*\*32, but one is {seed}"
        ):
            Replicas(NET, LOSSES, (0, seed))
    for seed in (1.7, True, None, "1"):
        with pytest.raises(TypeError, match=f"seeds must be whole numbers, but one is {seed!r}"):
            Replicas(NET, LOSSES, (0, seed))
        with pytest.raises(TypeError, match=f"seeds must be whole numbers, but one is {seed!r}"):
            NET(replicas=2, seeds=(0, seed))
    with pytest.raises(TypeError, match="seeds must be whole numbers, but one is '0'"):
        Replicas(NET, LOSSES, "01")
    with pytest.raises(TypeError, match="a sequence of whole numbers, one per replica, but is 5"):
        Replicas.grid(NET, LOSSES, 5)
    assert Replicas(NET, LOSSES, np.array([3, 4])).seeds == (3, 4)
    assert Replicas(NET, LOSSES, (0, 2**32 - 1)).seeds[1] == 2**32 - 1
    with pytest.raises(TypeError, match=r"but is a net that is built already, of type MLP"):
        Replicas(NET(), LOSSES)
    with pytest.raises(TypeError, match=r"such as partial\(MLP, 30\), but is of type str"):
        Replicas("mlp", LOSSES)
    with pytest.raises(
        TypeError, match=r"net must build a stack of raresight\.nn\.nets, .* built a Identity"
    ):
        Replicas(torch.nn.Identity, LOSSES)
    with pytest.raises(ValueError, match="built a stack of seeds 0, 1, but was asked for 7, 7: it must hand"):
        Replicas(lambda replicas, seeds: NET(replicas=replicas), LOSSES, (7, 7))
    with pytest.raises(ValueError, match="built a stack of seeds 0, but was asked for 0, 1"):
        Replicas(lambda replicas, seeds: NET(), LOSSES)
    with pytest.raises(ValueError, match="x must hold at least one row"):
        Replicas(NET, LOSSES).scores([])


def test_moves_and_changes_precision():
    replicas = Replicas(NET, LOSSES)
    assert replicas.to("cpu", torch.float64) is replicas
    assert replicas.dtype == torch.float64
    assert replicas.scores(X).dtype == torch.float64
    assert replicas.device == torch.device("cpu")
