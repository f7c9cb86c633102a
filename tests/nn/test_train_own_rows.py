"""Replicas of one stack that are trained on rows of their own."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

from raresight.nn import Recipe, Replicas, TableRows
from raresight.nn.batches import draw_epoch
from raresight.nn.nets import MLP
from raresight.nn.training_loop import training_session

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(90, 4))
Y = (RANDOM.random(90) < 0.3).astype(np.int64)
WEIGHTS = np.exp(RANDOM.normal(size=90))
# Of different lengths, one row in both, and in no order.
ROWS = (torch.from_numpy(RANDOM.permutation(90)[:50]), torch.from_numpy(RANDOM.permutation(90)[:53]))
RECIPE = Recipe(epochs=3, batch=16, lr=0.05, precision="float64")


def trained(losses, seeds, source, rows_of=None, epochs=3):
    replicas = Replicas(partial(MLP, 4, hidden=(6,)), losses, seeds).to("cpu", torch.float64)
    with training_session(replicas, source.to("cpu", torch.float64), RECIPE, rows_of=rows_of) as course:
        for _ in range(epochs):
            course.run_epoch()
        return {name: stack.detach().clone() for name, stack in replicas.net.state_dict().items()}, course


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_each_is_trained_as_if_its_rows_were_all_there_are(weights):
    """Two sets of rows, each with two losses and two seeds; batches are the same for both losses."""
    losses, seeds = ["crossentropy", "tbl"] * 4, [3, 3, 8, 8] * 2
    rows_of = [ROWS[0]] * 4 + [ROWS[1]] * 4
    together, course = trained(losses, seeds, TableRows(X, Y, weights), rows_of)
    # The fewest rows decide how many steps there are: 50 and 53 both make three batches of 16.
    assert course.step.steps == 3
    for k in range(8):
        own = rows_of[k].numpy()
        alone = TableRows(X[own], Y[own], None if weights is None else weights[own])
        found, _ = trained(losses[k : k + 1], seeds[k : k + 1], alone)
        for name, stack in found.items():
            torch.testing.assert_close(together[name][k : k + 1], stack, rtol=1e-9, atol=1e-12)
    # Rows, seed and loss each make a difference.
    for k in (1, 2, 4):
        assert not torch.allclose(together["head.weight"][0], together["head.weight"][k])


def test_rows_that_are_not_its_own_do_not_matter():
    changed, labels = X.copy(), Y.copy()
    others = np.setdiff1d(np.arange(90), ROWS[0].numpy())
    changed[others], labels[others] = 100.0, 1 - Y[others]
    first, _ = trained(["crossentropy"], [0], TableRows(X, Y), [ROWS[0]])
    second, _ = trained(["crossentropy"], [0], TableRows(changed, labels), [ROWS[0]])
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_draws_are_of_the_rows_given_and_as_many_as_the_fewest_allow():
    draws = draw_epoch(TableRows(X, Y), (3, 8), 0, 16, rows=ROWS)
    assert draws.order.shape == (3, 2, 16)
    for place, rows in enumerate(ROWS):
        drawn = draws.order[:, place].flatten().tolist()
        assert len(set(drawn)) == 48
        assert set(drawn) <= set(rows.tolist())
    # 20 rows do not fill a batch of 32: it has as many as there are.
    assert draw_epoch(TableRows(X, Y), (3, 8), 0, 32, rows=(ROWS[0], ROWS[1][:20])).order.shape == (1, 2, 20)


def test_rows_must_be_given_for_each_replica():
    with pytest.raises(ValueError, match=r"shorter|longer"):
        trained(["crossentropy"] * 2, [0, 1], TableRows(X, Y), [ROWS[0]])
