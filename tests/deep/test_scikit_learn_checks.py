"""scikit-learn's own checks of an estimator, all but the two that nets trained in batches cannot pass."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from raresight.deep import DeepClassifier


def expected_failures(estimator):
    reason = "batches are drawn row by row: a row of weight two is in one batch, the row twice in two"
    kinds = ("dense", "sparse")
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in kinds}


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks(
    [DeepClassifier(net="mlp", width=16, max_epochs=12, learning_rate=0.03, n_jobs=1)],
    expected_failed_checks=expected_failures,
)
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
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract_of_all_nets(estimator, check):
    check(estimator)
