"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from raresight.boosting import LightGBMClassifier, XGBoostClassifier

# LightGBM counts rows, not weights, when it builds its bins, so rows of weight two and rows that occur twice
# may be split at different places. test_weights_are_repetitions has data whose bins are the same.
BINS = "LightGBM builds its bins from rows without their weights"
EXPECTED = {
    "LightGBMClassifier": {
        "check_sample_weight_equivalence_on_dense_data": BINS,
        "check_sample_weight_equivalence_on_sparse_data": BINS,
    },
}


@pytest.mark.filterwarnings("ignore:.*SCIPY_ARRAY_API.*")
# Some checks train on a few rows, or on noise, where no split is the right answer.
@pytest.mark.filterwarnings("ignore::raresight.boosting.NoSplitWarning")
@parametrize_with_checks(
    [XGBoostClassifier(n_estimators=20, n_jobs=1), LightGBMClassifier(n_estimators=20, n_jobs=1)],
    expected_failed_checks=lambda estimator: EXPECTED.get(type(estimator).__name__, {}),
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
