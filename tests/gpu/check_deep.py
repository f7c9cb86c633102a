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


def fitted(net, device="cuda", weights=None, **options):
    from raresight.deep import DeepClassifier

    chosen = {**NETS[net], "max_epochs": 10, "max_fpr": 0.1, "random_state": 0, **options}
    return DeepClassifier(["crossentropy", "tbl"], net=net, n_seeds=2, device=device, **chosen).fit(
        X, Y, weights
    )


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
