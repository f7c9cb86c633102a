"""From a table to a chosen, calibrated and judged model."""

from __future__ import annotations

import importlib.util
import inspect
import tempfile
import time as clock
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import MISSING, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..common.versions import versions_of
from ..engines import Interrupts, LocalEngine
from ..model.families import packages_of
from ..model.model import Model
from ..model.policies import held_out_sketch
from .evaluation import calibration_by, fit_all, judge, loss_verdict, policies_of, twin_of
from .influential import influential_rows
from .leaderboard import baseline_of, leaderboard
from .notes import notes_of
from .options import TABLE, Options, check_names
from .result import FitResult
from .rows import Rows, SearchRows, describe_split, read_rows, search_rows
from .run_folder import check_place, open_run
from .search import Limits, Progress, SearchResult, Task, search

__all__ = ["Step", "fit"]


@dataclass(frozen=True)
class Step:
    """What a run is at: a stage in words, the progress of the search, or what was seen in the data.

    Attributes:
        stage: What is being done.
        progress: Where the search stands.
        columns: What the columns are and which were dropped, once they are known.
        notes: Warnings about the data.
    """

    stage: str
    progress: Progress | None = None
    columns: str = ""
    notes: tuple[str, ...] = ()


Listener = Callable[[Step], None]


def fit(
    data: Any,
    *,
    test: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    listener: Listener | None = None,
    **options: Any,
) -> FitResult:
    """Choose a family, a loss and their parameters, calibrate, find the threshold, and judge on unseen rows.

    Candidates are compared by cross-validated partial AUC up to `max_fpr` (ties by recall at `fpr`) inside
    the training rows; the rows held out are scored once, at the end. Plain cross entropy with defaults is
    always among the candidates, and the winner's own parameters under cross entropy are fitted beside it, so
    that the result can say whether the loss mattered.

    Args:
        data: A path (CSV, Parquet, Arrow, a folder of parts), the word "sample" for the bundled table, or a
            pandas, polars or Arrow table.
        test: A source of test rows, instead of rows held out.
        out: Folder for the journal, so that a killed run can go on, and for the results. Default: nothing
            is kept but what `FitResult.save` writes.
        resume: Continue the run in `out`.
        listener: Called with a `Step` whenever there is something to report.

    Raises:
        ValueError: If the data or the options do not allow an honest answer; the message says why.

    Example:
        >>> import numpy as np, pyarrow
        >>> random = np.random.default_rng(0)
        >>> rare = np.arange(4000) % 50 == 0
        >>> table = pyarrow.table({"amount": random.normal(size=4000) + 2 * rare, "fraud": rare})
        >>> result = fit(table, target="fraud", families="linear", losses="tbl", trials=3, fpr=0.01, jobs=1)
        >>> result.model.members[0].fitted.candidate.family
        'linear'
    """
    check_names(options)
    _need_libraries()
    asked = Options(data=_name_of(data), test=None if test is None else _name_of(test), **options)
    if resume and out is None:
        raise ValueError("there is nothing to resume without a folder: give it by out")
    with tempfile.TemporaryDirectory(prefix="raresight-") as scratch:
        folder = Path(scratch) / "run" if out is None else Path(out)
        return _run(data, test, asked, folder, resume, out is not None, listener or _silent)


def _run(
    data: Any,
    test: Any,
    options: Options,
    folder: Path,
    resume: bool,
    save: bool,
    tell: Listener,
) -> FitResult:
    begun = clock.perf_counter()
    check_place(folder)
    if (folder / "run.json").exists() and not resume:
        open_run(folder, options, "", resume=False)  # refused before anything is read
    tell(Step("Reading the table"))
    rows = read_rows(data, test, options)
    open_run(folder, options, rows.fingerprint, resume=resume)
    tell(Step("Searching", columns=rows.profile.column_summary(), notes=rows.profile.warnings))
    chosen = search_rows(rows, options.seed)
    task = Task(
        X=rows.X if chosen.weights is None else rows.X[chosen.rows],
        y=rows.y if chosen.weights is None else rows.y[chosen.rows],
        categorical=rows.schema.categorical,
        n_categories=rows.schema.n_categories,
        folds=chosen.folds,
        weights=chosen.weights,
        max_fpr=options.max_fpr,
        fpr=options.fpr,
        seed=options.seed,
    )
    with LocalEngine(options.jobs, folder / "search") as engine:
        found = search(
            task,
            options.space,
            Limits(options.trials, options.budget),
            folder=folder / "search",
            engine=engine,
            listener=lambda progress: tell(Step("Searching", progress)),
        )
        # What is left takes seconds: a first Ctrl-C waits for it, a second one ends it.
        with nullcontext() if found.stopped_by == "interrupted" else Interrupts():
            result = _conclude(options, rows, chosen, task, found, engine, tell, begun)
            if save:
                tell(Step("Writing the model and the report"))
                result.save(folder)
    return result


def _conclude(
    options: Options,
    rows: Rows,
    chosen: SearchRows,
    task: Task,
    found: SearchResult,
    engine: LocalEngine,
    tell: Listener,
    begun: float,
) -> FitResult:
    """From the end of the search to the result."""
    winner = found.best.candidate
    baseline = baseline_of(found, winner.family)
    tell(Step(f"Fitting the winner to all training rows: {winner.describe()}"))
    wanted = [winner, baseline.candidate, twin_of(winner)]
    fitted = fit_all(wanted, rows, options.seed, engine)
    out_of_fold = found.out_of_fold(found.best.number)
    calibration = calibration_by(out_of_fold, task)
    out_of_fold = calibration.log_odds(out_of_fold)
    fitted[winner] = fitted[winner].calibrated(calibration)
    tell(Step("Judging on the held-out rows"))
    judged = judge(
        rows,
        *(fitted[candidate] for candidate in wanted),
        fpr=options.fpr,
        max_fpr=options.max_fpr,
        seed=options.seed,
    )
    mattered, sentence = loss_verdict(winner, judged)
    with warnings.catch_warnings():
        # A stand-in model that has not quite converged still shows the rows that pull.
        warnings.simplefilter("ignore")
        influential, no_influence = influential_rows(rows, chosen, winner.loss, out_of_fold)
    board = leaderboard(found, task, baseline.number)
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    command = _as_done(options, found).command()
    model = Model.of(
        rows.schema,
        [fitted[winner]],
        policies=policies_of(judged.threshold, options.fpr),
        held_out=held_out_sketch(rows.test.y, judged.log_odds),
        facts={
            "metrics": judged.evaluation.to_dict(),
            "threshold": {name: getattr(judged.threshold, name) for name in _THRESHOLD_FACTS},
            "calibration": {"slope": calibration.slope, "level": calibration.levels[0]},
            "data": {
                "fingerprint": rows.fingerprint,
                "training_rows": len(rows.y),
                "training_positives": int(rows.y.sum()),
                "test_rows": len(rows.test.y),
                "test_positives": int(rows.test.y.sum()),
            },
            "seed": options.seed,
            "made": made,
            "command": command,
        },
    )
    return FitResult(
        model=model,
        leaderboard=board,
        evaluation=judged.evaluation,
        judged=judged,
        found=_summary(found, options.trials),
        notes=notes_of(found, options.trials, judged, rows.test.y),
        loss_mattered=mattered,
        loss_sentence=sentence,
        profile=rows.profile,
        influential=influential,
        no_influence=no_influence,
        test_y=rows.test.y,
        losses=tuple(_tried_losses(found)),
        source="table" if options.data == TABLE else Path(options.data).name,
        split=describe_split(options),
        command=command,
        options=options,
        versions=versions_of([*_LIBRARIES, *packages_of(options.families)]),
        fingerprint=rows.fingerprint,
        made=made,
        seconds=clock.perf_counter() - begun,
    )


_LIBRARIES = ("numpy", "scipy", "scikit-learn", "pyarrow", "optuna")
_THRESHOLD_FACTS = ("log_odds", "fpr_seen", "fpr_bound", "safe", "safe_recall")


def _need_libraries() -> None:
    """Better now than after the search."""
    for name in ("pyarrow", "optuna", "plotly"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"fit needs {name}: pip install 'raresight[fit]'")


def _silent(step: Step) -> None:
    """Nobody listens."""


def _summary(found: SearchResult, planned: int | None) -> dict[str, Any]:
    states = [trial.state for trial in found.trials]
    return {
        "stopped_by": found.stopped_by,
        "seconds": found.seconds,
        "planned": planned,
        # Whether a run of so many trials does the same: a round cut short may have left gaps.
        "reproducible": [trial.number for trial in found.trials] == list(range(len(found.trials))),
        **{state: states.count(state) for state in ("complete", "pruned", "failed")},
    }


def _as_done(options: Options, found: SearchResult) -> Options:
    """The options that ask for what was done: so many trials, whatever the time."""
    if found.stopped_by == "trials":
        return replace(options, budget=None)
    return replace(options, trials=len(found.trials), budget=None)


def _tried_losses(found: SearchResult) -> list[str]:
    """One loss a kind: the best setting tried of each, best first."""
    best: dict[str, tuple[float, str]] = {}
    for trial in found.trials:
        if trial.partial_auc is not None and trial.state == "complete":
            kind = trial.candidate.loss.split("(")[0]
            if kind not in best or trial.partial_auc > best[kind][0]:
                best[kind] = (trial.partial_auc, trial.candidate.loss)
    return [loss for _, loss in sorted(best.values(), reverse=True)]


def _name_of(source: Any) -> str:
    return str(source) if isinstance(source, (str, Path)) else TABLE


def _signature() -> inspect.Signature:
    """Of `fit`, with the options in place of `**options`."""
    *shown, _ = inspect.signature(fit).parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    taken = [
        inspect.Parameter(
            one.name,
            kind,
            default=inspect.Parameter.empty if one.default is MISSING else one.default,
            annotation=one.type,
        )
        for one in Options.typed()
        if one.name != "test"
    ]
    return inspect.Signature([shown[0], *taken, *shown[1:]], return_annotation="FitResult")


fit.__signature__ = _signature()  # type: ignore[attr-defined]
if fit.__doc__:  # not under python -OO
    told = [f"        {one.name}: {one.metadata['help']}\n" for one in Options.typed() if one.name != "test"]
    fit.__doc__ = fit.__doc__.replace("        test: A source", f"{''.join(told)}        test: A source", 1)
