"""One claim: where one negative in a thousand may raise an alert, choose the loss by partial AUC.

python examples/linear.py
"""

from __future__ import annotations

import numpy as np

from raresight import metrics
from raresight.linear import LinearClassifier, LinearClassifierCV


def payments(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Frauds of two kinds at one in 500: most like honest payments but shifted, some far away and wide."""
    random = np.random.default_rng(seed)
    y = random.random(rows) < 0.002
    X = random.normal(size=(rows, 8))
    kind = random.random(rows) < 0.4
    X[y] += np.where(kind[y, None], [2.0, 1.0, 0, 0, 0, 0, 0, 0], [0.5, -1.0, 1.0, 0, 0, 0, 0, 0])
    X[y & kind] *= 1.8
    return X.astype(np.float32), y.astype(int)


def main() -> None:
    X, y = payments(200_000, seed=0)
    fresh, truth = payments(200_000, seed=1)
    plain = LinearClassifier("crossentropy").fit(X, y)
    chosen = LinearClassifierCV(cv=3, metric="partial_auc", metric_params={"max_fpr": 0.01}).fit(X, y)
    print(f"chosen by cross-validation: {chosen.loss_}, l2 = {chosen.l2_:g}\n")
    print(
        metrics.evaluate(
            truth, chosen.decision_function(fresh), probability=chosen.predict_proba(fresh)[:, 1]
        )
    )
    print("\nagainst cross entropy on the same fresh rows:")
    scores = chosen.decision_function(fresh), plain.decision_function(fresh)
    print(metrics.compare("partial_auc", truth, *scores, max_fpr=0.01))
    print(metrics.compare("recall_at_fpr", truth, *scores, fpr=0.001))


if __name__ == "__main__":
    main()
