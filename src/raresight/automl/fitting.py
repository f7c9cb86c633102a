"""From a table to a chosen, calibrated and judged model."""

from __future__ import annotations

import importlib.util
import shlex
import tempfile
import time as clock
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
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
from .options import Options, make_options
from .result import FitResult
from .rows import Rows, SearchRows, describe_split, read_rows, search_rows
from .run_folder import check_place, open_run
from .search import Limits, Progress, SearchResult, Task, search
from .space import Space, make_space

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
    target: str,
    positive: Any = None,
    fpr: float = 0.001,
    max_fpr: float | None = None,
    time: str | None = None,
    group: str | None = None,
    families: str | Iterable[str] | None = None,
    losses: str | Iterable[str] | None = None,
    budget: str | float | None = None,
    trials: int | None = None,
    test_size: float = 0.25,
    test: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
    jobs: int | None = None,
    drop: str | Iterable[str] | None = None,
    listener: Listener | None = None,
) -> FitResult:
    """Choose a family, a loss and their parameters, calibrate, find the threshold, and judge on unseen rows.

    Candidates are compared by cross-validated partial AUC up to `max_fpr` (ties by recall at `fpr`) inside
    the training rows; the rows held out are scored once, at the end. Plain cross entropy with defaults is
    always among the candidates, and the winner's own parameters under cross entropy are fitted beside it, so
    that the result can say whether the loss mattered.

    Args:
        data: A path (CSV, Parquet, Arrow, a folder of parts), the word "sample" for the bundled table, or a
            pandas, polars or Arrow table.
        target: The column with the two classes.
        positive: Its value for the rare class; left out, 1, true or the rarer one.
        fpr: The false-positive rate that alarms may cause: the threshold is set for it.
        max_fpr: The largest false-positive rate of the partial AUC that candidates compete in; None for 0.01,
            or `fpr` where that is larger.
        time: Column of time: hold out the latest rows, and validate on later rows than one trains on.
        group: Column of groups, such as customers: no group is on both sides of a split.
        families: Of "linear", "lightgbm", "xgboost" and the nets "deep" (a plain one), "tabm", "tabnet"; left
            out, all that are installed but nets, which take many times as long.
        losses: Names or texts of losses, such as "tbl,focal(gamma=2)"; left out, seven of them.
        budget: Time for the search, such as "5m" or seconds.
        trials: Number of candidates. With neither: 100 candidates or three minutes.
        test_size: Share of the rows held out.
        test: A source of test rows instead.
        out: Folder for the journal, so that a killed run can go on, and for the results. Left out, nothing
            is kept but what `FitResult.save` writes.
        resume: Go on with the run in `out`.
        seed: Everything random comes from it.
        jobs: Processes; left out, one a core.
        drop: Columns that are not to be learnt from, such as one that gives the target away.
        listener: Called with a `Step` whenever there is something to tell.

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
    _need_libraries()
    options = make_options(
        target=target,
        positive=positive,
        fpr=fpr,
        max_fpr=max_fpr,
        time=time,
        group=group,
        budget=budget,
        trials=trials,
        test_size=test_size,
        seed=seed,
        jobs=jobs,
        drop=drop,
    )
    space = make_space(
        *(one if one is None or isinstance(one, str) else list(one) for one in (families, losses))
    )
    if resume and out is None:
        raise ValueError("there is nothing to resume without a folder: give it by out")
    with tempfile.TemporaryDirectory(prefix="raresight-") as scratch:
        folder = Path(scratch) / "run" if out is None else Path(out)
        return _run(data, test, options, space, folder, resume, out is not None, listener or _silent)


def _run(
    data: Any,
    test: Any,
    options: Options,
    space: Space,
    folder: Path,
    resume: bool,
    save: bool,
    tell: Listener,
) -> FitResult:
    begun = clock.perf_counter()
    check_place(folder)
    if (folder / "run.json").exists() and not resume:
        open_run(folder, options, {}, resume=False)  # refused before anything is read
    tell(Step("Reading the table"))
    rows = read_rows(data, test, options)
    what = {"families": list(space.families), "losses": list(space.losses), "data": rows.fingerprint}
    open_run(folder, options, what, resume=resume)
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
            space,
            Limits(options.trials, options.seconds),
            folder=folder / "search",
            engine=engine,
            listener=lambda progress: tell(Step("Searching", progress)),
        )
        # What is left takes seconds: a first Ctrl-C waits for it, a second one ends it.
        with nullcontext() if found.stopped_by == "interrupted" else Interrupts():
            result = _conclude(data, test, options, space, rows, chosen, task, found, engine, tell, begun)
            if save:
                tell(Step("Writing the model and the report"))
                result.save(folder)
    return result


def _conclude(
    data: Any,
    test: Any,
    options: Options,
    space: Space,
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
    command = _command(data, test, _as_done(options, found), space)
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
        source=Path(data).name if isinstance(data, (str, Path)) else "table",
        split=describe_split(options, test),
        command=command,
        options=options,
        versions=versions_of([*_LIBRARIES, *packages_of(space.families)]),
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
        return replace(options, seconds=None)
    return replace(options, trials=len(found.trials), seconds=None)


def _tried_losses(found: SearchResult) -> list[str]:
    """One loss a kind: the best setting tried of each, best first."""
    best: dict[str, tuple[float, str]] = {}
    for trial in found.trials:
        if trial.partial_auc is not None and trial.state == "complete":
            kind = trial.candidate.loss.split("(")[0]
            if kind not in best or trial.partial_auc > best[kind][0]:
                best[kind] = (trial.partial_auc, trial.candidate.loss)
    return [loss for _, loss in sorted(best.values(), reverse=True)]


def _command(data: Any, test: Any, options: Options, space: Space) -> str:
    """The command line that does the same."""
    source = str(data) if isinstance(data, (str, Path)) else "TABLE"
    parts = ["raresight", "fit", source, "--target", options.target]
    if options.positive is not None:
        parts += ["--positive", options.positive]
    parts += ["--fpr", f"{options.fpr:g}", "--max-fpr", f"{options.max_fpr:g}"]
    for name, column in (("--time", options.time), ("--group", options.group)):
        if column is not None:
            parts += [name, column]
    for column in options.drop:
        parts += ["--drop", column]
    parts += ["--families", ",".join(space.families), "--losses", ",".join(space.losses)]
    if options.trials is not None:
        parts += ["--trials", str(options.trials)]
    if options.seconds is not None:
        parts += ["--budget", f"{options.seconds:g}s"]
    if test is None:
        parts += ["--test-size", f"{options.test_size:g}"]
    else:
        parts += ["--test", str(test) if isinstance(test, (str, Path)) else "TABLE"]
    return shlex.join([*parts, "--seed", str(options.seed)])
