"""scikit-learn's own checks of an estimator, all of them and without an exception."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from raresight.deep import DeepClassifier


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks([DeepClassifier(net="mlp", width=16, max_epochs=12, learning_rate=0.03, n_jobs=1)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks(
    [
        DeepClassifier(),
        DeepClassifier(net="mlp"),
        DeepClassifier(net="tabnet"),
        DeepClassifier(net="mlp", early_stopping=False, precision="float64"),
        DeepClassifier(net="tabm", width=16, members=4, max_epochs=30, learning_rate=0.01),
        DeepClassifier(net="tabnet", max_epochs=30),
    ],
)
def test_scikit_learn_contract_of_all_nets(estimator, check):
    check(estimator)
