"""One claim: the rows that pull hardest on a fit are where to look for wrong labels.

python examples/influence.py
"""

from __future__ import annotations

import numpy as np

from raresight.linear import LinearClassifier


def main() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(50_000, 6))
    y = (random.random(50_000) < 1 / (1 + np.exp(7 - X @ [2.0, 1.5, 1.0, 0, 0, 0]))).astype(int)
    wrong = random.choice(np.flatnonzero(y == 0), 25, replace=False)
    labels = y.copy()
    labels[wrong] = 1  # honest rows entered as frauds
    print(f"{y.sum()} true positives and {len(wrong)} wrong ones among {len(y):,} rows\n")
    for loss in ("crossentropy", "tbl(alpha=0.8,C=0.5)", "alpha(alpha=0.7)"):
        model = LinearClassifier(loss).fit(X, labels)
        pulls = model.influence(X, labels)
        found = [int(np.isin(wrong, pulls.top(count)).sum()) for count in (25, 50, 100)]
        print(f"{loss:22} wrong labels among the 25, 50, 100 hardest pulls: {found}")
        ratio = pulls.pull.max() / np.median(pulls.pull[labels == 1])
        print(f"{'':22} the hardest pulls {ratio:.1f} times a typical positive")


if __name__ == "__main__":
    main()
