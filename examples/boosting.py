"""One claim: stop XGBoost on what you will be judged by, recall at a false-positive rate.

python examples/boosting.py
"""

from __future__ import annotations

import numpy as np

from raresight import metrics
from raresight.boosting import XGBoostClassifier
from raresight.metrics import xgboost_metric


def machines(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Failures at one in 170, where two readings are off in the same direction; some readings missing."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 10)).astype(np.float32)
    log_odds = -8.5 + 5 * np.minimum(X[:, 0], X[:, 1]) * (X[:, 0] > 0) + 0.8 * X[:, 2]
    y = random.random(rows) < 1 / (1 + np.exp(-log_odds))
    X[random.random(X.shape) < 0.05] = np.nan
    return X, y.astype(int)


def main() -> None:
    X, y = machines(120_000, seed=0)
    valid, valid_y = machines(120_000, seed=1)
    fresh, truth = machines(120_000, seed=2)
    model = XGBoostClassifier(
        loss="tbl(alpha=0.8,C=0.5)",
        n_estimators=400,
        learning_rate=0.05,
        max_depth=4,
        early_stopping_rounds=30,
        eval_metric=xgboost_metric("recall_at_fpr", fpr=0.001),
        random_state=0,
    ).fit(X, y, eval_set=(valid, valid_y))
    print(f"best round {model.best_iteration_}; start score {model.start_score_:.3f}")
    threshold = metrics.threshold_at_fpr(valid_y, model.decision_function(valid), 0.001, confidence=0.95)
    alert = model.decision_function(fresh) >= threshold
    print(
        metrics.evaluate(truth, model.decision_function(fresh), probability=model.predict_proba(fresh)[:, 1])
    )
    print(
        f"at the threshold set on validation rows with confidence 0.95: false-positive rate "
        f"{alert[truth == 0].mean():.5f}, recall {alert[truth == 1].mean():.3f}"
    )


if __name__ == "__main__":
    main()
