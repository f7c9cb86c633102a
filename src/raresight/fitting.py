"""The main job in one walk: options, table, rows, search, outcome, model folder, report."""

from __future__ import annotations

import importlib.util
import inspect
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from .automl.evaluation import Outcome, conclude
from .automl.fold_evaluation import Aim
from .automl.options import TABLE, Options, check_names
from .automl.records import Limits, Progress, SearchTask
from .automl.run_identity import check_place, open_run
from .automl.search import search
from .common.atomic_files import write_file, write_json
from .common.memory import need_memory
from .common.progress import duration
from .engines import Interrupts, LocalEngine
from .tables.splits import read_data

__all__ = ["FitProgress", "FitResult", "fit"]


@dataclass(frozen=True)
class FitProgress:
    """Progress of a fit: its stage, that of the search, and notes on the data.

    Attributes:
        stage: The stage as text, such as "Searching".
        progress: Progress of the search, or None.
        columns: What the columns are and which were dropped, once they are known.
        notes: Warnings about the data.
    """

    stage: str
    progress: Progress | None = None
    columns: str = ""
    notes: tuple[str, ...] = ()


Listener = Callable[[FitProgress], None]


class FitResult(Outcome):
    """The outcome of a fit, which can be saved and shown; its attributes are those of `Outcome`."""

    def save(self, folder: str | Path) -> Path:
        """Write `model/`, `report.html`, `leaderboard.csv` and `evaluation.json` into the folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder / "model")
        write_json(folder / "evaluation.json", self.to_dict())
        write_file(folder / "leaderboard.csv", self.leaderboard_csv())
        self.report(folder / "report.html")
        return folder

    def report(self, path: str | Path) -> Path:
        """Write the report, one page that opens without a network."""
        from .report.fit_content import content_of
        from .report.fit_page import write_fit_page

        return write_fit_page(content_of(self), Path(path))


def fit(
    data: Any,
    *,
    test: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    listener: Listener | None = None,
    **options: Any,
) -> FitResult:
    """Choose family, loss and parameters, calibrate, find the threshold, and evaluate on unseen rows.

    Candidates are compared by cross-validated partial AUC up to `max_fpr` (ties by recall at `fpr`) inside
    the training rows; the rows held out are scored once, at the end. Plain cross entropy with defaults is
    always among the candidates, and the winner's own parameters under cross entropy are fitted beside it, so
    that the result can say whether the loss mattered.

    Args:
        data: A path (CSV, Parquet, Arrow, SQLite, a folder of parts), the word "sample" for the bundled
            table, or a pandas, polars or Arrow table.
        test: A source of test rows, instead of rows held out.
        out: Folder for the journal, so that a killed run can be continued, and for the results. Default:
            nothing is kept but what `FitResult.save` writes.
        resume: Continue the run in `out`.
        listener: Function called with a `FitProgress` at each step.

    Raises:
        ValueError: If the data or the options do not allow an honest answer; the message says why.

    Example:
        >>> import numpy as np, pyarrow
        >>> random = np.random.default_rng(0)
        >>> rare = np.arange(4000) % 50 == 0
        >>> table = pyarrow.table({"amount": random.normal(size=4000) + 2 * rare, "fraud": rare})
        >>> result = fit(table, target="fraud", families="linear", losses="tbl", trials=3, fpr=0.01, jobs=1)
        >>> result.winner.family
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
    data: Any, test: Any, options: Options, folder: Path, resume: bool, save: bool, tell: Listener
) -> FitResult:
    begun = time.perf_counter()
    check_place(folder, (data, test) if save else ())
    if (folder / "run.json").exists() and not resume:
        open_run(folder, options, "", resume=False)  # refused before anything is read
    tell(FitProgress("Reading the table"))
    rows = read_data(data, test, **options.of(read_data))
    open_run(folder, options, rows.fingerprint, resume=resume)
    budget = options.seconds(len(rows.y), rows.X.shape[1])
    # Reading counts, too, but leaves at least half for the search.
    read = time.perf_counter() - begun
    searching = None if budget is None else max(budget - read, budget / 2)
    limit = "" if budget is None else f"; the fit takes about {duration(budget)}"
    columns = rows.profile.column_summary()
    tell(FitProgress(f"Searching{limit}", columns=columns, notes=rows.profile.warnings))
    rows = rows.with_counts()
    task = SearchTask.of(rows, Aim(**options.of(Aim)))
    with LocalEngine(options.jobs, folder / "search", options.space.modules) as engine:
        found = search(
            task,
            options.space,
            Limits(options.trials, searching),
            folder=folder / "search",
            engine=engine,
            listener=lambda progress: tell(FitProgress(f"Searching{limit}", progress)),
        )
        need_memory(256, "the evaluation")
        # What is left takes seconds: a first Ctrl-C waits for it, a second one ends it.
        with nullcontext() if found.stopped_by == "interrupted" else Interrupts():
            result = conclude(
                FitResult,
                rows,
                task,
                found,
                options,
                engine,
                seconds=lambda: time.perf_counter() - begun,
                tell=lambda stage: tell(FitProgress(stage)),
            )
            if save:
                tell(FitProgress("Writing the model and the report"))
                result.save(folder)
    return result


def _need_libraries() -> None:
    """Refuse to start without a library that is needed after the search."""
    for name in ("pyarrow", "plotly"):
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"fit needs {name}: pip install 'raresight[fit]'")


def _silent(step: FitProgress) -> None:
    """Report nothing."""


def _name_of(source: Any) -> str:
    return str(source) if isinstance(source, (str, Path)) else TABLE


def _signature() -> inspect.Signature:
    """Make the signature of `fit`, with the options in place of `**options`."""
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
    lines = [f"        {one.name}: {one.metadata['help']}\n" for one in Options.typed() if one.name != "test"]
    fit.__doc__ = fit.__doc__.replace("        test: A source", f"{''.join(lines)}        test: A source", 1)
