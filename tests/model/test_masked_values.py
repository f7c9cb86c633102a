"""What is masked is not used, by no family of models: neither as a label nor as a weight."""

from __future__ import annotations

import numpy as np
import pytest

from raresight.boosting import LightGBMClassifier, XGBoostClassifier
from raresight.deep import DeepClassifier
from raresight.linear import LinearClassifier, LinearClassifierCV

RANDOM = np.random.default_rng(0)
Y = np.arange(200) % 4 // 3
X = RANDOM.normal(size=(200, 3)) + Y[:, None]
HIDDEN = np.arange(200) == 7
MODELS = {
    "linear": LinearClassifier(),
    "linear, chosen": LinearClassifierCV(cv=2),
    "LightGBM": LightGBMClassifier(n_estimators=2, n_jobs=1),
    "XGBoost": XGBoostClassifier(n_estimators=2, n_jobs=1),
    "deep": DeepClassifier(net="mlp", width=4, max_epochs=1, n_jobs=1),
}


@pytest.mark.parametrize("name", MODELS)
def test_masked_labels_and_weights_are_refused(name):
    model = MODELS[name]
    masked, weights = np.ma.array(Y, mask=HIDDEN), np.ma.array(np.ones(200), mask=HIDDEN)
    with pytest.raises(ValueError, match=r"^y is masked at row 7; leave masked rows out first$"):
        model.fit(X, masked)
    with pytest.raises(ValueError, match=r"^y is masked at row 7"):
        model.fit(X, masked[:, None])
    with pytest.raises(ValueError, match=r"^sample_weight is masked at row 7"):
        model.fit(X, Y, sample_weight=weights)
    if name in ("LightGBM", "XGBoost", "deep"):
        with pytest.raises(
            ValueError, match=r"^the labels of eval_set(\[0\])? cannot be used: y is masked at row 7"
        ):
            model.fit(X, Y, eval_set=(X, masked) if name == "deep" else [(X, masked)])


def test_a_mask_that_hides_nothing_does_not_stand_in_the_way():
    masked, weights = np.ma.array(Y, mask=np.zeros(200, bool)), np.ma.array(np.ones(200))
    plain = LinearClassifier().fit(X, Y, sample_weight=np.ones(200))
    assert (LinearClassifier().fit(X, masked, sample_weight=weights).coef_ == plain.coef_).all()


def test_influence_refuses_masked_labels():
    masked = np.ma.array(Y, mask=HIDDEN)
    with pytest.raises(ValueError, match="y is masked at row 7"):
        LinearClassifier().fit(X, Y).influence(X, masked)
