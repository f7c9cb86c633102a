"""All losses of a split in one stack: each method gets what its own classifier gives."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.fraud.methods import losses_of
from reproduction.fraud.net_stack import NetSetup, fit_methods

METHODS = ("cross entropy", "LDAM", "TBL", "class weights")


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(1000, 3)).astype(np.float32)
    y = (generator.random(1000) < 1 / (1 + np.exp(3.5 - 2 * X[:, 0] * X[:, 1] - X[:, 2]))).astype(np.int8)
    return X[:800], y[:800], X[800:]


def fitted(setup, rows, methods=METHODS, **options):
    X, y, test = rows
    losses = {method: losses_of(method, y) for method in methods}
    return fit_methods(setup, losses, X, y, test, seed=3, device="cpu", **options)


@pytest.mark.parametrize(("net", "seeds", "methods"), [("tabnet", 2, METHODS), ("tabm", 1, METHODS[2:])])
def test_a_method_is_what_its_classifier_gives(rows, net, seeds, methods):
    setup = NetSetup(net, seeds=seeds, epochs=2, batch=128, patience=2)
    outcome = fitted(setup, rows, methods)
    X, y, test = rows
    assert outcome.failures == ()
    for method, found in outcome.methods.items():
        losses = losses_of(method, y)
        alone = setup.classifier(losses, seed=3, device="cpu").fit(X, y)
        assert found.chosen == str(alone.loss_)
        assert found.best_epochs == alone.best_epochs_
        assert found.validation_scores == pytest.approx(alone.validation_scores_, abs=1e-6)
        assert len(found.validation_scores) == len(losses)
        np.testing.assert_allclose(found.score, alone.raw_scores(test), atol=2e-4)
        np.testing.assert_allclose(found.probability, alone.predict_proba(test)[:, 1], atol=2e-5)


def test_a_method_ends_when_its_own_patience_does(rows):
    setup = NetSetup("mlp", seeds=1, epochs=25, batch=128, patience=1)
    outcome = fitted(setup, rows)
    judged = {
        method: max(
            int(np.isfinite(outcome.history[loss]).sum(axis=1).max()) for loss in found.validation_scores
        )
        for method, found in outcome.methods.items()
    }
    assert max(judged.values()) == outcome.epochs
    assert min(judged.values()) < outcome.epochs
    X, y, _ = rows
    for method, epochs in judged.items():
        alone = setup.classifier(losses_of(method, y), seed=3, device="cpu").fit(X, y)
        assert alone.n_epochs_ == epochs
        assert alone.best_epochs_ == outcome.methods[method].best_epochs


def test_a_training_can_be_given_up(rows):
    heard = []

    def after_epoch(epoch):
        heard.append(epoch)
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(NetSetup("mlp", seeds=1, epochs=5, batch=512), rows, after_epoch=after_epoch)
    assert heard == [1, 2]
