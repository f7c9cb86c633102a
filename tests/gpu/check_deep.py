"""`DeepClassifier` on a GPU: the same twice, as on the CPU, with weights. Needs scikit-learn and SciPy.

TabM takes part where the tabm package is installed.
"""

from __future__ import annotations

from functools import wraps
from importlib.util import find_spec

import numpy as np
from run import skipped

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(4000, 5))
Y = (RANDOM.random(4000) < 1 / (1 + np.exp(9 - 2 * (X[:, 0] ** 2 + X[:, 1] ** 2)))).astype(int)
WEIGHTS = RANDOM.exponential(size=4000)
NETS = {
    "mlp": {"width": 32, "learning_rate": 0.01},
    "tabnet": {"learning_rate": 0.02},
}
if find_spec("tabm"):
    NETS["tabm"] = {"width": 16, "members": 4, "learning_rate": 0.01}


def where_it_can_be(check):
    """The check, skipped where the estimator cannot be imported."""

    @wraps(check)
    def guarded():
        missing = [name for name in ("scipy", "sklearn") if not is_there(name)]
        return skipped(f"DeepClassifier needs {' and '.join(missing)}") if missing else check()

    return guarded


def is_there(name):
    try:
        return find_spec(name) is not None
    except ValueError:  # it was taken away on purpose
        return False


def fitted(net, device="cuda", weights=None, rows=slice(None), losses=("crossentropy", "tbl"), **options):
    from raresight.deep import DeepClassifier

    chosen = {**NETS[net], "max_epochs": 10, "max_fpr": 0.1, "random_state": 0, "early_stopping": True}
    chosen |= options
    model = DeepClassifier(list(losses), net=net, n_seeds=2, device=device, **chosen)
    return model.fit(X[rows], Y[rows], None if weights is None else weights[rows])


@where_it_can_be
def check_the_same_twice():
    for net in NETS:
        one, other = fitted(net), fitted(net)
        assert np.array_equal(one.decision_function(X), other.decision_function(X)), net


@where_it_can_be
def check_as_good_as_on_the_cpu():
    from raresight.metrics import roc_auc

    for net in NETS:
        for weights in (None, WEIGHTS):
            areas = [
                roc_auc(Y, fitted(net, device, weights).decision_function(X)) for device in ("cuda", "cpu")
            ]
            assert min(areas) > 0.85, (net, areas)
            assert abs(areas[0] - areas[1]) < 0.03, (net, areas)


@where_it_can_be
def check_a_model_of_the_gpu_predicts_the_same_on_the_cpu():
    for net in NETS:
        model = fitted(net)
        here = model.decision_function(X)
        there = model.set_params(device="cpu").decision_function(X)
        assert np.abs(here - there).max() < 1e-5, net


@where_it_can_be
def check_few_positives_choose_the_epochs_on_the_device():
    """Too few to hold some out: cross-validation chooses the same twice, and the ranking is learnt."""
    from raresight.metrics import roc_auc

    few = np.sort(np.concatenate([np.flatnonzero(Y == 1)[:20], np.flatnonzero(Y == 0)[:2000]]))
    others = np.setdiff1d(np.arange(len(Y)), few)
    for net in NETS:
        one, other = (fitted(net, rows=few, early_stopping="auto") for _ in range(2))
        assert one.best_epochs_ == other.best_epochs_, net
        scores = one.decision_function(X[others])
        assert np.array_equal(scores, other.decision_function(X[others])), net
        assert roc_auc(Y[others], scores) > 0.75, net
