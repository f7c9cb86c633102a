"""TabM against the net of its authors' package, and what an ensemble asks of training."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import tabm
import torch
from rtdl_num_embeddings import LinearReLUEmbeddings, PeriodicEmbeddings

from raresight.losses import parse
from raresight.nn.loss_table import LossTable
from raresight.nn.nets import MLP, TabM
from raresight.nn.nets.tabm import _DrawsFrom, _Dropout, mean_probability

torch.set_num_threads(1)

FEATURES, MEMBERS = 6, 3


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def make(**options):
    return TabM(FEATURES, members=MEMBERS, width=8, **options).double()


@pytest.mark.parametrize("sharing", ["tabm", "tabm-mini", "tabm-packed"])
@pytest.mark.parametrize("embedding", [None, "linear", "periodic"])
def test_members_are_those_of_the_package(sharing, embedding):
    """The same weights in the package's whole net give the same scores."""
    net = make(outputs=2, sharing=sharing, embedding=embedding, embedding_width=5, replicas=2).eval()
    embeddings = {
        None: lambda: None,
        "linear": lambda: LinearReLUEmbeddings(FEATURES, 5),
        "periodic": lambda: PeriodicEmbeddings(FEATURES, 5, lite=False),
    }
    x = random(7, FEATURES)
    for k in range(2):
        reference = tabm.TabM.make(
            n_num_features=FEATURES,
            num_embeddings=embeddings[embedding](),
            d_out=2,
            k=MEMBERS,
            d_block=8,
            arch_type=sharing,
        ).double()
        own = {name: value[k] for name, value in net.backbone.body.named_parameters()}
        theirs = {}
        for name in reference.state_dict():
            if name.startswith("num_module."):
                theirs[name] = own.pop("0." + name.removeprefix("num_module."))
            elif name.startswith("backbone."):
                place = 1 if embedding is None else 3
                theirs[name] = own.pop(f"{place}." + name.removeprefix("backbone."))
        assert not own
        theirs |= {"output.weight": net.head.weight[k].mT, "output.bias": net.head.bias[k]}
        reference.load_state_dict(theirs)
        expected = reference.eval()(x)
        torch.testing.assert_close(net.member_scores(x)[k].transpose(0, 1), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("sharing", ["tabm", "tabm-mini", "tabm-packed"])
@pytest.mark.parametrize("embedding", [None, "periodic"])
def test_weights_start_as_in_the_package(sharing, embedding):
    """Signs or normal numbers for the first factors of the members, ones for the others."""
    net = TabM(FEATURES, members=MEMBERS, width=8, sharing=sharing, embedding=embedding, embedding_width=5)
    drawn = net.backbone._built(7)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        reference = tabm.TabM.make(
            n_num_features=FEATURES,
            num_embeddings=embedding and PeriodicEmbeddings(FEATURES, 5, lite=False),
            d_out=None,
            k=MEMBERS,
            d_block=8,
            arch_type=sharing,
        )
    for mine, theirs in zip(drawn.parameters(), reference.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def first_weights(seed):
    net = TabM(FEATURES, members=4, width=64, seeds=(seed,))
    return torch.cat([value.detach().flatten() for value in net.parameters()])


def test_weights_start_the_same_in_threads_and_leave_the_common_generator_alone():
    seeds = range(24)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    expected = [first_weights(seed) for seed in seeds]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(first_weights, seeds))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert [torch.equal(*pair) for pair in zip(found, expected)] == [True] * len(seeds)


def test_draws_that_take_no_generator_are_refused():
    with _DrawsFrom(torch.Generator().manual_seed(0)):
        assert torch.empty(3).uniform_().shape == (3,)
        with pytest.raises(
            RuntimeError, match=r"aten\.rand\.default draws first weights of TabM, but takes no"
        ):
            torch.rand(3)


def test_prediction_is_the_mean_of_probabilities():
    x = 3 * random(20, FEATURES)
    binary, classes = make(replicas=2).eval(), make(replicas=2, outputs=4).eval()
    expected = torch.sigmoid(binary.member_scores(x)).mean(1)
    torch.testing.assert_close(torch.sigmoid(binary(x)), expected)
    posterior = torch.softmax(classes.member_scores(x), -1).mean(1)
    torch.testing.assert_close(torch.softmax(classes(x), -1), posterior)
    # The mean of the scores would be another ensemble.
    assert (binary(x) - binary.member_scores(x).mean(1)).abs().max() > 1e-4


def test_scores_far_out_stay_finite():
    net = make().eval()
    with torch.no_grad():
        net.head.bias.fill_(-900.0)
    assert ((net(random(5, FEATURES)) + 900).abs() < 10).all()


def test_mean_probability_goes_by_the_loss():
    losses = [parse("crossentropy"), parse("focal(gamma=2.0)")]
    scores = random(2, MEMBERS, 5)
    means = mean_probability(scores, losses)
    for k, loss in enumerate(losses):
        torch.testing.assert_close(means[k], loss.probability(scores[k]).mean(0))
    torch.testing.assert_close(means[0], torch.sigmoid(scores[0]).mean(0))
    classes = random(2, MEMBERS, 5, 4)
    posterior = mean_probability(classes, losses)
    torch.testing.assert_close(posterior[0], torch.softmax(classes[0], -1).mean(0))
    torch.testing.assert_close(posterior.sum(-1), torch.ones(2, 5, dtype=torch.float64))
    with pytest.raises(ValueError, match="1 losses were given for 2 replicas"):
        mean_probability(scores, losses[:1])


@pytest.mark.parametrize("outputs", [1, 3])
def test_training_takes_the_mean_of_the_losses_of_the_members(outputs):
    net = make(replicas=2, outputs=outputs).eval()
    x, labels = random(2, 9, FEATURES), torch.arange(18).view(2, 9) % max(2, outputs)
    table = LossTable(["crossentropy", "focal(gamma=2.0)"], outputs=outputs)
    scores = net.member_scores(x)
    each = torch.stack([table(scores[:, member], labels) for member in range(MEMBERS)])
    together = table(net.training_scores(x), net.training_labels(labels))
    torch.testing.assert_close(together, each.mean(0))
    assert net.training_labels(labels[0]).tolist() == labels[0].tolist() * MEMBERS


def test_nets_without_members_train_on_their_scores():
    net, x, labels = MLP(FEATURES, replicas=2).double(), random(9, FEATURES), torch.arange(9)
    assert net.members == 1
    assert torch.equal(net.training_scores(x), net(x))
    assert net.training_labels(labels) is labels


def test_dropout():
    drop = _Dropout(0.25)
    drop.key.fill_(123456789)
    x = torch.ones(400, 500)
    out = drop(x)
    share = (out == 0).double().mean().item()
    assert share == pytest.approx(0.25, abs=0.005)
    torch.testing.assert_close(out.unique(), torch.tensor([0.0, 1 / 0.75]))
    for axis in (0, 1):  # as even in each row and column as chance allows
        spread = (out == 0).double().mean(axis).std().item()
        assert spread == pytest.approx((0.25 * 0.75 / out.shape[axis]) ** 0.5, rel=0.2)
    assert torch.equal(drop(x), out)
    drop.key.add_(1)
    both = ((drop(x) == 0) & (out == 0)).double().mean().item()
    assert both == pytest.approx(0.0625, abs=0.005)
    assert torch.equal(drop.eval()(x), x)


def test_dropout_follows_seed_and_batch():
    x = random(50, FEATURES)
    net, other = make(dropout=0.3, replicas=2, seeds=(5, 5)), make(dropout=0.3, seeds=(6,))
    first, second = net(x), net(x)
    torch.testing.assert_close(first[0], first[1], rtol=0, atol=1e-12)
    assert not torch.allclose(first, second)
    assert net.backbone.batches.tolist() == [2, 2]
    with torch.no_grad():
        for mine, theirs in zip(other.parameters(), net.parameters()):
            mine.copy_(theirs[:1])
    assert not torch.allclose(other(x)[0], first[0])
    # Taken up again from the state alone.
    again = make(dropout=0.3, replicas=2, seeds=(5, 5))
    again.load_state_dict(net.state_dict())
    torch.testing.assert_close(again(x), net(x), rtol=0, atol=0)
    torch.testing.assert_close(net.eval()(x), net(x), rtol=0, atol=0)
    assert not torch.allclose(make(dropout=0.0).train()(x), make(dropout=0.3).train()(x))


def test_building_leaves_the_common_generator_alone():
    before = torch.random.get_rng_state()
    make(replicas=2)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_it_learns():
    x = random(512, FEATURES)
    y = (x[:, 0] * x[:, 1] > 0).double()
    net = TabM(FEATURES, members=4, width=32, blocks=2, replicas=2).double()
    optimiser = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(60):
        optimiser.zero_grad()
        scores, labels = net.training_scores(x), net.training_labels(y.expand(2, -1))
        torch.nn.functional.binary_cross_entropy_with_logits(scores, labels).backward()
        optimiser.step()
    assert ((net.eval()(x) > 0) == (y == 1)).double().mean() > 0.95


def test_what_cannot_be_built_is_refused():
    for options, message in (
        ({"members": 0}, "members must be a whole number of at least 1, but is 0"),
        ({"blocks": 0}, "blocks must be a whole number"),
        ({"width": 8.0}, "width must be a whole number"),
        ({"dropout": 1.0}, "dropout must be"),
        ({"sharing": "half"}, "sharing must be"),
        ({"embedding": "square"}, "embedding must be"),
    ):
        with pytest.raises(ValueError, match=message):
            TabM(FEATURES, **options)


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tabm", None)
    with pytest.raises(ImportError, match=r"pip install 'raresight\[tabm\]'"):
        TabM(FEATURES)
