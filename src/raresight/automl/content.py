"""The report's content from what a run found."""

from __future__ import annotations

import math

import numpy as np

from ..losses import TBL, Alpha, parse
from ..report.fit_content import FitContent
from ..report.fit_measures import band_of, curve_of, distribution_of, information_of, reliability_of
from ..report.fit_parts import (
    Answer,
    LeaderRow,
    MapPoint,
    Reliability,
    Reproduction,
    Role,
    RowsUsed,
    SearchSummary,
)
from .evaluation import CROSS_ENTROPY, twin_of
from .records import Trial
from .result import FitResult

__all__ = ["content_of"]

_FEATURES = 40


def content_of(result: FitResult) -> FitContent:
    """Everything the page shows, measured on the held-out rows."""
    y, log_odds = result.test_y, result.judged.log_odds
    probability = np.exp(-np.logaddexp(0.0, -log_odds))
    profile = result.profile.to_dict()
    seed = result.options.seed
    loss_map = _loss_map(result.leaderboard)
    return FitContent(
        title=f"{result.source}: {result.options.target}",
        made=result.made,
        answer=_answer(result),
        curve=curve_of(y, log_odds),
        band=band_of(y, log_odds, seed=seed),
        reliability=Reliability(
            before=reliability_of(y, result.judged.naive), after=reliability_of(y, probability)
        ),
        distribution=distribution_of(y, log_odds),
        leaderboard=_leader_rows(result),
        loss_map=loss_map,
        importance=_importance(result),
        information=information_of(y, log_odds, result.losses, result.profile.prior),
        influential=result.influential,
        profile=profile,
        used=RowsUsed(result.profile.rows, len(y), int(y.sum()), result.split),
        search=_search_summary(result),
        reproduction=Reproduction(
            result.command,
            seed,
            result.versions,
            result.fingerprint,
            exact=bool(result.found["reproducible"]),
        ),
        loss_map_note="" if loss_map else "No candidate with TBL or alpha loss was evaluated to the end.",
        influential_note=result.no_influence,
    )


def _answer(result: FitResult) -> Answer:
    found, threshold = result.evaluation, result.judged.threshold
    candidate = result.model.members[0].fitted.candidate
    safe = None
    if threshold.safe is not None and threshold.safe_recall is not None:
        safe = (threshold.safe, threshold.safe_recall)
    return Answer(
        family=candidate.family,
        loss=candidate.loss,
        parameters=dict(candidate.parameters),
        recall=found["recall_at_fpr"],
        fpr=found.fpr,
        max_fpr=found.max_fpr,
        alerts_per_100k=found.alarms / found.rows * 100_000,
        precision=found.precision,
        threshold=threshold.log_odds,
        threshold_probability=1 / (1 + math.exp(-threshold.log_odds)) if threshold.log_odds > -700 else 0.0,
        fpr_seen=threshold.fpr_seen,
        fpr_bound=threshold.fpr_bound,
        safe=safe,
        loss_sentence=result.loss_sentence,
        loss_mattered=result.loss_mattered,
        partial_auc=found["partial_auc"],
        auc=found["roc_auc"],
    )


def _search_summary(result: FitResult) -> SearchSummary:
    found = result.found
    return SearchSummary(
        complete=found["complete"],
        pruned=found["pruned"],
        failed=found["failed"],
        planned=found["planned"],
        seconds=found["seconds"],
        stopped_by=found["stopped_by"],
    )


def _leader_rows(result: FitResult) -> tuple[LeaderRow, ...]:
    winner = result.model.members[0].fitted.candidate
    rows = []
    for rank, trial in enumerate(result.leaderboard, 1):
        candidate, difference = trial.candidate, trial.comparison
        role: Role = ""
        if rank == 1 and candidate == winner:
            role = "winner"
        elif candidate.family == winner.family and candidate.loss == CROSS_ENTROPY:
            role = "baseline" if not candidate.parameters else "twin" if candidate == twin_of(winner) else ""
        rows.append(
            LeaderRow(
                rank=rank,
                family=candidate.family,
                loss=candidate.loss,
                parameters=dict(candidate.parameters),
                partial_auc=trial.partial_auc,
                recall=trial.recall,
                seconds=trial.seconds,
                state=trial.state,
                difference=None
                if difference is None
                else (difference.difference, difference.low, difference.high),
                role=role,
            )
        )
    return tuple(rows)


def _loss_map(board: tuple[Trial, ...]) -> tuple[MapPoint, ...]:
    """Partial AUC by (alpha, C), the best of each pair and family: other parameters differ, too."""
    best: dict[tuple[str, float, float], float] = {}
    for trial in board:
        if trial.state != "complete" or trial.partial_auc is None:
            continue
        kind = trial.candidate.loss.split("(")[0]
        if kind not in (TBL.name, Alpha.name):
            continue
        loss = parse(trial.candidate.loss)
        place = (
            trial.candidate.family,
            float(loss.alpha),  # type: ignore[attr-defined]
            float(getattr(loss, "C", 0.0)),
        )
        best[place] = max(best.get(place, 0.0), trial.partial_auc)
    return tuple(MapPoint(*place, value) for place, value in best.items())


def _importance(result: FitResult) -> tuple[tuple[str, float], ...]:
    shares = result.model.importance()
    order = np.argsort(-shares, kind="stable")[:_FEATURES]
    names = result.model.schema.feature_names
    return tuple((names[i], float(shares[i])) for i in order if shares[i] > 0)
