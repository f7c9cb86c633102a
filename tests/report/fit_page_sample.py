"""A fit to show: simulated scores of a rare class, and candidates as a search would leave them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from raresight.automl.evaluation import InfluentialRow, SearchSummary
from raresight.automl.records import FoldResult, Trial
from raresight.metrics import interval, threshold_at_fpr
from raresight.metrics.comparison import Comparison
from raresight.model.families import Candidate
from raresight.report.fit_content import Answer, FitContent, MapPoint, Reliability, Reproduction, RowsUsed
from raresight.report.fit_measures import band_of, curve_of, distribution_of, information_of, reliability_of

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\"&'</table>"
FPR, MAX_FPR = 0.001, 0.01
WINNER = "tbl(alpha=0.8,C=0.5)"
LONG_LOSS = "vectorscaling(delta=0.6603,delta_neg=1.0,iota_pos=0.0,iota_neg=0.0)"


def scores(rows: int, prior: float, seed: int) -> tuple[Any, Any]:
    """Labels and log-odds; rounded, so that scores repeat."""
    random = np.random.default_rng(seed)
    y = (random.random(rows) < prior).astype(int)
    log_odds = np.round(random.normal(size=rows) * 2 - 9 + y * (6 + random.normal(size=rows)), 4)
    return y, log_odds


def fit_content(y: Any, log_odds: Any) -> FitContent:
    positives = int(y.sum())
    negatives = len(y) - positives
    threshold = threshold_at_fpr(y, log_odds, FPR)
    alert = log_odds >= threshold
    probability = 1 / (1 + np.exp(-log_odds))
    recall = interval("recall_at_fpr", y, log_odds, fpr=FPR, draws=200)
    answer = Answer(
        family="lightgbm",
        loss=WINNER,
        parameters={"learning_rate": 0.0512345, "n_estimators": 312},
        headline=f"The model catches {recall.estimate:.1%} of the rows with fraud = yes.",
        cost="At most 0.1% of the other rows raise a false alert.",
        recall=recall,
        fpr=FPR,
        max_fpr=MAX_FPR,
        alerts_per_100k=float(alert.mean() * 1e5),
        precision=float(y[alert].mean()),
        threshold=threshold,
        threshold_probability=float(1 / (1 + np.exp(-threshold))),
        fpr_seen=float(alert[y == 0].mean()),
        fpr_bound=0.0012,
        safe=(threshold + 0.2, 0.5),
        loss_sentence="The loss mattered: it gained 1.32 points of partial AUC.",
        loss_mattered=True,
        partial_auc=interval("partial_auc", y, log_odds, max_fpr=MAX_FPR, draws=200),
        auc=interval("roc_auc", y, log_odds),
    )
    names = [f"V{i}" for i in range(1, 31)]
    return FitContent(
        title="Fit of transactions.parquet",
        made="2026-11-15 14:02 UTC",
        answer=answer,
        curve=curve_of(y, log_odds),
        band=band_of(y, log_odds, points=12, draws=200),
        reliability=Reliability(reliability_of(y, np.sqrt(probability)), reliability_of(y, probability)),
        distribution=distribution_of(y, log_odds),
        leaderboard=leaderboard(60),
        winner=leaderboard(1)[0].candidate,
        loss_map=loss_map(),
        importance=tuple((name, 2 * (30 - i) / 930) for i, name in enumerate(names)),
        information=information_of(y, log_odds, [WINNER, "crossentropy", LONG_LOSS], positives / len(y)),
        influential=tuple(InfluentialRow(1000 + i, i % 2, 0.01 * i, 0.1 / (i + 1)) for i in range(20)),
        profile={
            "rows": 4 * len(y),
            "positives": 4 * positives,
            "prior": positives / len(y),
            "rho": positives / negatives,
            "duplicates": 27,
            "columns": [
                {"name": n, "kind": "numeric", "missing": 0.02, "distinct": 100 + i, "note": "", "auc": 0.6}
                for i, n in enumerate(names)
            ],
            "dropped": [{"name": "customer", "reason": "looks like an identifier"}],
            "warnings": ["27 rows are exact copies of another row."],
        },
        used=RowsUsed(3 * len(y), len(y), positives, "stratified by the label"),
        reproduction=Reproduction(
            "raresight fit transactions.parquet --target fraud", 0, {"numpy": "2.3"}, "9f2c"
        ),
        search=SearchSummary(55, 5, 0, 60, 38.2, "trials"),
    )


def leaderboard(rows: int) -> tuple[Trial, ...]:
    return tuple(_trial(i) for i in range(rows))


def _trial(i: int) -> Trial:
    """The winner, cross entropy with defaults at place 21 and with the winner's parameters at 31."""
    family = ("lightgbm", "xgboost", "linear")[i % 3] if i not in (0, 20, 30) else "lightgbm"
    loss = {0: WINNER, 1: LONG_LOSS, 20: "crossentropy", 30: "crossentropy"}.get(i, f"focal(gamma={i / 20})")
    parameters = {"lightgbm": ("num_leaves", 31), "xgboost": ("max_depth", 6), "linear": ("l2", 0.05)}[family]
    gain = None
    if i < 55 and i != 20:
        low, middle, high = (0.01 * k - 0.001 * i for k in (1, 2, 3))
        gain = Comparison("partial_auc", 0.9, 0.9 - middle, middle, low, high, 0.5, 0.95, "delong")
    return Trial(
        number=i,
        candidate=Candidate(family, loss, () if i == 20 else (parameters,)),
        origin="search",
        values={},
        folds={0: FoldResult(0.9 - 0.001 * i, 0.7 - 0.001 * i, float((7 * i) % 60))},
        state="complete" if i < 55 else "pruned",
        comparison=gain,
    )


def loss_map() -> tuple[MapPoint, ...]:
    return tuple(
        MapPoint(family, alpha, C, 0.9 - (alpha - 0.8) ** 2 - 0.1 * (C - 0.5) ** 2)
        for family in ("lightgbm", "linear")
        for alpha in (0.6, 0.8, 1.0)
        for C in (0.0, 0.5, 1.0)
    )


def hostile(content: FitContent) -> FitContent:
    """Names that would run if they were not escaped, and sections without anything to show."""
    leaders = (replace(content.leaderboard[0], candidate=Candidate("linear", HOSTILE)),)
    column = {
        "name": HOSTILE,
        "kind": "categorical",
        "missing": 0,
        "distinct": 3,
        "note": HOSTILE,
        "auc": None,
    }
    return replace(
        content,
        title=HOSTILE,
        answer=replace(
            content.answer,
            family=HOSTILE,
            loss=HOSTILE,
            headline=HOSTILE,
            loss_sentence=HOSTILE,
            parameters={HOSTILE: 1},
            safe=None,
        ),
        leaderboard=leaders,
        notes=(HOSTILE,),
        loss_map=(),
        loss_map_note=f"The map is empty: {HOSTILE}",
        importance=((HOSTILE, 0.9), ("plain", 0.1)),
        influential=(),
        influential_note="Influence was not computed: 900 columns are more than 500.",
        information=(replace(content.information[0], loss=HOSTILE, index=None),),
        profile={
            "rows": 10,
            "columns": [column],
            "dropped": [{"name": HOSTILE, "reason": HOSTILE}],
            "warnings": [HOSTILE],
        },
        used=replace(content.used, split=HOSTILE),
        reproduction=Reproduction(HOSTILE, 0, {HOSTILE: HOSTILE}, HOSTILE),
    )
