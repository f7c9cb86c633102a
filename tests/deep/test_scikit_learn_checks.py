"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from raresight.deep import DeepClassifier

# Nets that are trained exactly: nothing that is drawn or normalised by rows, and sums in float64.
EXACT = {"early_stopping": False, "precision": "float64", "n_jobs": 1}

ROUNDING = "parts that take turns are drawn by rows, and sums of float32 differ with the order of rows"
ROWS = "dropout and batch norm go by rows, however they are weighted"


def expected(estimator):
    reason = ROUNDING if estimator.net == "mlp" else ROWS
    return {
        "check_sample_weight_equivalence_on_dense_data": reason,
        "check_sample_weight_equivalence_on_sparse_data": reason,
    }


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks(
    [DeepClassifier(net="mlp", width=16, max_epochs=12, learning_rate=0.03, **EXACT)],
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks(
    [
        DeepClassifier(net="mlp", **EXACT),
        DeepClassifier(net="tabm", dropout=0.0, **EXACT),
    ],
)
def test_scikit_learn_contract_of_the_larger_nets(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
@parametrize_with_checks(
    [
        DeepClassifier(n_jobs=1),
        DeepClassifier(net="mlp", width=16, max_epochs=12, learning_rate=0.03, n_jobs=1),
        DeepClassifier(net="tabm", width=16, members=4, max_epochs=30, learning_rate=0.01, n_jobs=1),
        DeepClassifier(net="tabnet", max_epochs=30, learning_rate=0.02, n_jobs=1),
    ],
    expected_failed_checks=expected,
)
def test_scikit_learn_contract_with_two_exceptions(estimator, check):
    check(estimator)
