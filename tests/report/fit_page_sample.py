"""A fit to show: simulated scores of a rare class, and candidates as a search would leave them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from raresight.automl.evaluation import (
    HeldOutEvaluation,
    InfluentialRow,
    Outcome,
    SearchSummary,
    Threshold,
    find_threshold,
)
from raresight.automl.options import Options
from raresight.automl.records import Trial, TrialResult
from raresight.metrics import evaluate
from raresight.metrics.comparison import Comparison
from raresight.model.families import Candidate
from raresight.report.fit_content import FitContent, MapPoint, Reliability
from raresight.report.fit_measures import band_of, curve_of, distribution_of, information_of, reliability_of
from raresight.tables.profile import ColumnProfile, DroppedProfile, Profile

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>\"&'</table>"
FPR, MAX_FPR = 0.001, 0.01
NOTES = {3: "dates read as DD.MM.YYYY; '?' is missing"}
WINNER = "tbl(alpha=0.8,C=0.5)"
LONG_LOSS = "vectorscaling(delta=0.6603,delta_neg=1.0,iota_pos=0.0,iota_neg=0.0)"


def scores(rows: int, prior: float, seed: int) -> tuple[Any, Any]:
    """Labels and log-odds; rounded, so that scores repeat."""
    random = np.random.default_rng(seed)
    y = (random.random(rows) < prior).astype(int)
    log_odds = np.round(random.normal(size=rows) * 2 - 9 + y * (6 + random.normal(size=rows)), 4)
    return y, log_odds


def outcome_of(y: Any, log_odds: Any) -> Outcome:
    positives = int(y.sum())
    negatives = len(y) - positives
    names = [f"V{i}" for i in range(1, 31)]
    return Outcome(
        options=Options(
            data="transactions.parquet", target="fraud", fpr=FPR, max_fpr=MAX_FPR, trials=60, jobs=1
        ),
        model=model_of("fraud", leaderboard(1)[0].candidate),
        leaderboard=leaderboard(60),
        baseline=20,
        search=SearchSummary(55, 5, 60, 38.2, "trials"),
        held_out=held_out_of(y, log_odds),
        losses=(WINNER, "crossentropy", LONG_LOSS),
        best_loss=None,
        profile=Profile(
            rows=3 * len(y),
            positives=3 * positives,
            prior=positives / len(y),
            rho=positives / negatives,
            duplicates=27,
            columns=tuple(
                ColumnProfile(n, "numeric", 0.02, 100 + i, NOTES.get(i, ""), 0.6, example="-1.3598")
                for i, n in enumerate(names)
            ),
            dropped=(DroppedProfile("customer", "looks like an identifier", "c-1071"),),
            warnings=("27 rows are exact copies of another row.",),
        ),
        influential=tuple(InfluentialRow(1000 + i, i % 2, 0.01 * i, 0.1 / (i + 1)) for i in range(20)),
        no_influence="",
        fingerprint="9f2c",
        versions={"numpy": "2.3"},
        made="2026-11-15 14:02 UTC",
        seconds=40.0,
    )


def model_of(target: str, *chosen: Candidate) -> Any:
    """What the page reads of a model."""
    members = [
        SimpleNamespace(weight=1 / len(chosen), fitted=SimpleNamespace(candidate=one)) for one in chosen
    ]
    return SimpleNamespace(schema=SimpleNamespace(target=target, positive="yes"), members=members)


def held_out_of(y: Any, log_odds: Any) -> HeldOutEvaluation:
    threshold = find_threshold(y, log_odds, FPR).log_odds
    alert = log_odds >= threshold
    probability = 1 / (1 + np.exp(-log_odds))
    gain = Comparison("partial_auc", 0.9, 0.88, 0.02, 0.01, 0.03, 0.01, 0.95, "delong")
    return HeldOutEvaluation(
        y=y,
        log_odds=log_odds,
        naive=np.sqrt(probability),
        evaluation=evaluate(y, log_odds, fpr=FPR, max_fpr=MAX_FPR, threshold=threshold),
        threshold=Threshold(threshold, float(alert[y == 0].mean()), 0.0012, threshold + 0.2, 0.5),
        against_baseline=gain,
        against_twin=gain,
    )


def fit_content(y: Any, log_odds: Any) -> FitContent:
    outcome = outcome_of(y, log_odds)
    held_out = outcome.held_out
    return FitContent(
        outcome=outcome,
        curve=curve_of(y, log_odds),
        band=band_of(y, log_odds, points=12, draws=200),
        reliability=Reliability(reliability_of(y, held_out.naive), reliability_of(y, held_out.probability)),
        distribution=distribution_of(y, log_odds),
        loss_map=loss_map(),
        importance=tuple((f"V{i + 1}", 2 * (30 - i) / 930) for i in range(30)),
        information=information_of(y, log_odds, outcome.losses, outcome.profile.prior),
    )


def of_outcome(content: FitContent, **changes: Any) -> FitContent:
    """The content with changes of its outcome."""
    return replace(content, outcome=replace(content.outcome, **changes))


def leaderboard(rows: int) -> tuple[Trial, ...]:
    return tuple(_trial(i) for i in range(rows))


def _trial(i: int) -> Trial:
    """The winner, and cross entropy with defaults at place 21."""
    family = ("lightgbm", "xgboost", "linear")[i % 3] if i not in (0, 20) else "lightgbm"
    loss = {0: WINNER, 1: LONG_LOSS, 20: "crossentropy"}.get(i, f"focal(gamma={i / 20})")
    parameters = {"lightgbm": ("num_leaves", 31), "xgboost": ("max_depth", 6), "linear": ("l2", 0.05)}[family]
    gain = None
    if i < 55 and i != 20:
        low, middle, high = (0.01 * k - 0.001 * i for k in (1, 2, 3))
        gain = Comparison("partial_auc", 0.9, 0.9 - middle, middle, low, high, 0.5, 0.95, "delong")
    return Trial(
        number=i,
        # The folds chose the rounds of the defaults, too.
        candidate=Candidate(family, loss, (("n_estimators", 140),) if i == 20 else (parameters,)),
        origin="default" if i == 20 else "random",
        result=TrialResult(
            0.9 - 0.001 * i,
            0.7 - 0.001 * i,
            float((7 * i) % 60),
            message="" if i < 55 else "its scores are not finite",
        ),
        comparison=gain,
    )


def loss_map() -> tuple[MapPoint, ...]:
    return tuple(
        MapPoint(family, "TBL", "alpha", alpha, "C", C, 0.9 - (alpha - 0.8) ** 2 - 0.1 * (C - 0.5) ** 2)
        for family in ("lightgbm", "linear")
        for alpha in (0.6, 0.8, 1.0)
        for C in (0.0, 0.5, 1.0)
    )


def hostile(content: FitContent) -> FitContent:
    """Names that would run if they were not escaped, and sections without anything to show."""
    outcome = content.outcome
    winner = Candidate("linear", HOSTILE, (("l2", 0.5),))
    changed = of_outcome(
        content,
        options=Options(target=HOSTILE, time=f"{HOSTILE} time", trials=1, jobs=1),
        model=model_of(HOSTILE, winner),
        leaderboard=(replace(outcome.leaderboard[0], candidate=Candidate("linear", HOSTILE)),),
        held_out=replace(outcome.held_out, threshold=replace(outcome.held_out.threshold, safe=None)),
        profile=replace(
            outcome.profile,
            columns=(ColumnProfile(HOSTILE, "categorical", 0.0, 3, HOSTILE, example=HOSTILE),),
            dropped=(DroppedProfile(HOSTILE, HOSTILE, HOSTILE),),
            warnings=(HOSTILE,),
        ),
        influential=(),
        no_influence=f"Influence was not computed: {HOSTILE}",
        fingerprint=HOSTILE,
        versions={HOSTILE: HOSTILE},
        made=HOSTILE,
    )
    return replace(
        changed,
        loss_map=(),
        importance=((HOSTILE, 0.9), ("plain", 0.1)),
        information=(replace(content.information[0], loss=HOSTILE, index=None),),
    )
