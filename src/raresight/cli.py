"""The command line: a thin shell over the library."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console
from rich.status import Status

from . import __version__
from .common.lasting_stream import LastingStream

if TYPE_CHECKING:
    from .paper.deep.settings import Setup

# What the experiments with nets take in Python alone.
_WITHOUT_OPTION = ("depth", "width", "complete", "checkpoints")

app = typer.Typer(
    name="raresight",
    help="Classification of rare events: losses, theory, metrics and models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"raresight {__version__}")
        raise typer.Exit


@app.callback()
def raresight(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Classification of rare events: losses, theory, metrics and models."""


@app.command()
def fit(
    data: Annotated[
        str,
        typer.Argument(
            help="CSV, Parquet or Arrow file, a folder of parts, or the word sample for the bundled table."
        ),
    ],
    target: Annotated[str, typer.Option(help="Column with the two classes.")],
    positive: Annotated[
        str | None, typer.Option(help="Value of the rare class; left out, 1, true or the rarer one.")
    ] = None,
    fpr: Annotated[float, typer.Option(help="False-positive rate that alarms may cause.")] = 0.001,
    max_fpr: Annotated[
        float | None,
        typer.Option(
            help="Largest false-positive rate of the partial AUC to choose by; 0.01, or --fpr if larger."
        ),
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column of time: train on the past, test on the latest rows.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="Column of groups: none is on both sides of a split.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(help="Column not to learn from, such as one that gives the target away; several times."),
    ] = None,
    families: Annotated[
        str | None,
        typer.Option(
            help="Of linear,lightgbm,xgboost and nets deep,tabm,tabnet; left out, those installed but nets."
        ),
    ] = None,
    losses: Annotated[
        str | None, typer.Option(help="Losses such as 'tbl,focal(gamma=2)'; left out, seven of them.")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Time for the search, such as 90s or 5m.")] = None,
    trials: Annotated[
        int | None, typer.Option(help="Number of candidates. With neither: 100 of them or 3 minutes.")
    ] = None,
    test_size: Annotated[float, typer.Option(help="Share of rows held out.")] = 0.25,
    test: Annotated[str | None, typer.Option(help="File of test rows instead.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; left out, named after the data.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    seed: Annotated[int, typer.Option(help="Everything random comes from it.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes; left out, one a core.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Choose, calibrate and judge a model for a rare event: a table in, a model and a report out."""
    from .job import fit as run
    from .job.live import shown
    from .job.options import default_folder

    folder = out or default_folder(data)
    console = _progress_console()
    try:
        with shown(console, quiet) as listener:
            result = run(
                data,
                target=target,
                positive=positive,
                fpr=fpr,
                max_fpr=max_fpr,
                time=time,
                group=group,
                families=families,
                losses=losses,
                budget=budget,
                trials=trials,
                test_size=test_size,
                test=test,
                out=folder,
                resume=resume,
                seed=seed,
                jobs=jobs,
                drop=drop,
                listener=listener,
            )
    except KeyboardInterrupt:
        kept = (folder / "run.json").exists()
        hint = "go on by the same command with --resume" if kept else "nothing was written"
        console.print(f"stopped; {hint}", highlight=False)
        raise typer.Exit(130) from None
    if json:
        import json as encoder

        typer.echo(encoder.dumps(result.to_dict(), indent=2))
        return
    typer.echo(result)
    typer.echo(f"model: {folder / 'model'}")
    typer.echo(f"report: {folder / 'report.html'}")


@app.command()
def score(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of the run that made it.")],
    data: Annotated[str, typer.Argument(help="CSV, Parquet or Arrow file, or a folder of parts.")],
    out: Annotated[Path, typer.Option(help="File to write: .parquet, .csv or .arrow.")],
    keep: Annotated[str | None, typer.Option(help="Columns of the data to copy, such as id,when.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Score rows: log-odds, probability and alert, in the order of the rows, at constant memory."""
    from .job.score_command import score_with_progress

    typer.echo(score_with_progress(model, data, out, keep, _progress_console(), quiet))


@app.command()
def show(
    model: Annotated[Path, typer.Argument(help="Folder of a model, or of the run that made it.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show what a model is: loss, columns, threshold, metrics, versions."""
    from .job.show_command import model_facts, model_lines

    if json:
        import json as encoder

        typer.echo(encoder.dumps(model_facts(model), indent=2))
    else:
        typer.echo("\n".join(model_lines(model)))


@app.command()
def losses(
    names: Annotated[
        list[str] | None, typer.Argument(help="Losses such as 'tbl(alpha=0.7,C=1)'; left out, every loss.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the losses and their gradients to this PNG, SVG or PDF file.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Show every loss with its parameters, properties and formula."""
    from .losses import all_losses, parse
    from .report.loss_table import loss_rows, loss_table

    chosen = tuple(parse(name) for name in names) if names else all_losses()
    if json:
        import json as encoder

        typer.echo(encoder.dumps(loss_rows(chosen), indent=2))
    else:
        Console().print(loss_table(chosen))
    if plot is not None:
        from .report.loss_figure import draw_losses

        draw_losses(chosen, plot)
        typer.echo(f"wrote {plot}", err=True)


@app.command()
def analyze(
    losses: Annotated[
        list[str], typer.Argument(help="Losses such as 'tbl(alpha=0.8,C=0.5)', or module:name for your own.")
    ],
    prior: Annotated[float, typer.Option(help="Share of positives, P(y=1).")] = 1e-3,
    json: Annotated[bool, typer.Option("--json", help="Print the analysis as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write interactive curves to this page.")] = None,
    scores: Annotated[
        Path | None, typer.Option(help="CSV of held-out scores of your own model: the experiment to use.")
    ] = None,
    target: Annotated[str, typer.Option(help="Column of --scores with the 0/1 labels.")] = "y",
    score: Annotated[str, typer.Option(help="Column of --scores with the scores.")] = "score",
) -> None:
    """Say what losses do at your imbalance: shape, decay of information, influence."""
    from .report.analysis_input import find_loss, read_scores
    from .theory.analysis import REFERENCE, analyse

    chosen = [find_loss(text) for text in losses]
    experiment = REFERENCE if scores is None else read_scores(scores, target, score)
    what = "N(1, 1) against N(0, 1)" if scores is None else f"the ROC convex hull of {scores.name}"
    analyses = [analyse(loss, prior, experiment) for loss in chosen]
    if json:
        import json as encoder

        typer.echo(encoder.dumps([analysis.to_dict() for analysis in analyses], indent=2))
    else:
        from .report.analysis_table import analysis_table

        Console().print(analysis_table(analyses, what))
    if html is not None:
        from .report.analysis_page import write_analysis_page

        write_analysis_page(chosen, analyses, experiment, what, html)
        typer.echo(f"wrote {html}", err=True)


@app.command()
def paper(
    name: Annotated[
        str,
        typer.Argument(
            help="table1, figure1, figure2, figure3, theorem2, influence; all for these; with --data fraud, "
            "and with nets table2, table4, ablation-c, minority, brier; overview, which has the results of "
            "all nets in short."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("results"),
    seed: Annotated[int, typer.Option(help="Seed of the samples.")] = 0,
    data: Annotated[
        Path | None,
        typer.Option(
            help="fraud: the table, creditcard.csv, Parquet or .npz; nets: the folder of the image set. Left "
            "out, nets are not trained and the results at hand are shown."
        ),
    ] = None,
    families: Annotated[
        str | None,
        typer.Option(
            help="fraud: families, such as linear,xgboost,lightgbm, or deep for tabnet,tabm: these take "
            "hours without a GPU. Others keep the results that the folder has."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="fraud: methods to show, such as 'cross entropy,TBL'; nets are trained with all of them at "
            "once, whichever are shown."
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="fraud: fits at once; left out, one a core.")] = None,
    repeats: Annotated[
        int | None, typer.Option(help="fraud: how often the stratified folds are drawn; left out, 3.")
    ] = None,
    net_seeds: Annotated[
        int | None,
        typer.Option(help="fraud: nets of each loss setting; left out, 3 for tabnet and 1 for tabm."),
    ] = None,
    net_epochs: Annotated[
        int | None, typer.Option(help="fraud: the most that nets are trained; left out, 30.")
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="nets: cifar10, cifar100 or tinyimagenet; left out, cifar10.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            help="nets: train so long: short, medium, full, or epochs of search and result such as 8,16, for "
            "deer among horses half as many again; left out, short. Shown are all that there are."
        ),
    ] = None,
    rho: Annotated[
        str | None, typer.Option(help="nets: train only these imbalances, such as 0.01,0.05.")
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            help="nets: stop training before so many have passed, after an epoch (the first of a stack may "
            "take longer); called again, go on. Exit code 3 if something is left to train."
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="nets: such as cuda or cpu; left out, a GPU if there is one.")
    ] = None,
    stack: Annotated[
        int | None, typer.Option(help="nets: the most that are trained as one; left out, 48.")
    ] = None,
    results_only: Annotated[
        bool,
        typer.Option(
            "--results-only",
            help="fraud and nets: train nothing, show the results at hand.",
        ),
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan",
            help="nets, those of fraud too: only print how many are left to train and how long a GPU takes.",
        ),
    ] = False,
) -> None:
    """Write a table or figure of the paper: its numbers, and a picture of them."""
    from .paper import ALL, DEEP_NAMES, NAMES, options_of, reproduce
    from .paper.command import (
        INTERRUPTED,
        UNFINISHED,
        UnfinishedError,
        check_minutes,
        interrupted_words,
    )

    rhos = None if rho is None else _listed_numbers("--rho", rho)
    if stack is not None and stack < 1:
        raise ValueError(f"--stack must be at least 1, but is {stack}")
    check_minutes(minutes, "--minutes")
    if plan and name not in (*DEEP_NAMES, "fraud"):
        raise ValueError(f"only {', '.join(DEEP_NAMES)} have a plan, and the nets of fraud, not {name}")
    options: dict[str, object] = {"data": data} if data is not None else {}
    for option, text in (("dataset", dataset), ("size", size), ("device", device)):
        if text is not None:
            options[option] = text
    if rhos is not None:
        options["rhos"] = rhos
    if results_only:
        options["results_only"] = True
    for option, given in (("families", families), ("methods", methods)):
        if given is not None:
            options[option] = _listed(given)
    numbers = (
        *(("jobs", jobs), ("repeats", repeats), ("net_seeds", net_seeds), ("net_epochs", net_epochs)),
        *(("minutes", minutes), ("stack", stack)),
    )
    for option, number in numbers:
        if number is not None:
            options[option] = number
    _refuse_strange(name, options, () if name == ALL else options_of(name))
    if plan and name == "fraud":
        from .paper.fraud_deep import plan_text as fraud_plan
        from .paper.fraud_nets import JOURNAL

        nets = _listed(families or "deep")
        journal = out / "deep" / JOURNAL
        typer.echo(fraud_plan(nets, net_seeds, repeats, net_epochs, journal, seed, data))
        return
    if plan:
        from .paper.deep.experiments import EXPERIMENTS, check_rhos
        from .paper.deep.plan import STACK, plan_text
        from .paper.deep.report import refuse_seed

        refuse_seed(name, seed)
        setup = _setup_of_nets(dataset, size)
        EXPERIMENTS[DEEP_NAMES[name]].check(setup, name)
        check_rhos([EXPERIMENTS[DEEP_NAMES[name]]], rhos, name)
        most = STACK if stack is None else stack
        typer.echo(plan_text([DEEP_NAMES[name]], setup, most, rhos, journals=out / "deep"))
        return
    for part in NAMES if name == ALL else (name,):
        console = _progress_console()
        with console.status(part) as status:
            try:
                paths = reproduce(part, out, seed, _teller(console, status), **options)
            except UnfinishedError as unfinished:
                console.print(_plain(unfinished), highlight=False, soft_wrap=True)
                raise typer.Exit(UNFINISHED) from None
            except KeyboardInterrupt:
                console.print(
                    interrupted_words(part, keeps=part not in NAMES), highlight=False, soft_wrap=True
                )
                raise typer.Exit(INTERRUPTED) from None
        for path in paths:
            typer.echo(path)
    if name in DEEP_NAMES and data is not None and minutes is not None and not results_only:
        from .paper.deep.plan import trainings_left

        left = trainings_left(DEEP_NAMES[name], _setup_of_nets(dataset, size), rhos, out / "deep")
        if left:
            text = f"out of time: {left} trainings are left, with which the same command goes on"
            console.print(text, highlight=False, soft_wrap=True)
            raise typer.Exit(UNFINISHED)


@app.command()
def simulate(
    losses: Annotated[
        list[str] | None, typer.Argument(help="Losses whose lines to draw; left out, a telling few.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with your own clusters; left out, the paper's mixture.")
    ] = None,
    prior: Annotated[float, typer.Option(help="Share of positives, P(y=1).")] = 1 / 501,
    out: Annotated[Path, typer.Option(help="Picture to write: PNG, SVG or PDF.")] = Path("simulation.png"),
    seed: Annotated[int, typer.Option(help="Seed of the points drawn.")] = 0,
) -> None:
    """Draw the lines that losses learn on two-dimensional Gaussian clusters, with their AUC."""
    from .report.analysis_input import find_loss
    from .report.simulation import DEFAULT_LOSSES, draw_simulation, read_clusters, simulation_table

    chosen = [find_loss(text) for text in losses or DEFAULT_LOSSES]
    minority, majority = read_clusters(config)
    rules = draw_simulation(chosen, minority, majority, prior, out, seed)
    Console().print(simulation_table(chosen, rules, minority, majority, prior))
    typer.echo(f"wrote {out}", err=True)


def main() -> None:
    """Run the command line: an error is one line, its traceback shown only with --debug."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    if debug:  # accepted before and after the command's name
        arguments = ["--debug", *(argument for argument in arguments if argument != "--debug")]
    warnings.showwarning = _show_warning
    try:
        app(args=arguments, prog_name="raresight")
    except (ValueError, TypeError, ImportError, OSError, RuntimeError) as error:
        if debug:
            raise
        Console(stderr=True).print(f"[bold red]error:[/] {_plain(error)}", highlight=False, soft_wrap=True)
        sys.exit(1)


def _setup_of_nets(dataset: str | None, size: str | None) -> Setup:
    from .paper.deep.settings import Setup, size_of

    return Setup(dataset or "cifar10", size_of(size or "short"))


def _progress_console() -> Console:
    return Console(file=cast(IO[str], LastingStream(sys.stderr)))


def _teller(console: Console, status: Status) -> Callable[[str], None]:
    """Shows a step in the line of the status; in a log file, where none is rewritten, in one of its own."""
    line = partial(console.print, highlight=False, soft_wrap=True)
    show: Callable[[str], None] = status.update if console.is_terminal else line
    return lambda text: show(_plain(text))


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")]


def _listed_numbers(option: str, text: str) -> list[float]:
    try:
        return [float(item) for item in text.split(",")]
    except ValueError:
        raise ValueError(f"{option} must be numbers such as 0.01,0.05, but is {text!r}") from None


def _refuse_strange(name: str, given: Iterable[str], known: Sequence[str]) -> None:
    """An error for options that a part of the paper does not take, named as they are typed."""

    def typed(options: Iterable[str]) -> str:
        return ", ".join("--rho" if one == "rhos" else f"--{one.replace('_', '-')}" for one in options)

    strange = [option for option in given if option not in known]
    if strange:
        own = [option for option in known if option not in _WITHOUT_OPTION]
        rest = f"; its options are {typed(own)}" if own else ""
        raise ValueError(f"paper {name} takes no {typed(strange)}{rest}")


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    Console(stderr=True).print(f"[bold yellow]warning:[/] {_plain(message)}", highlight=False, soft_wrap=True)


def _plain(error: Exception | str) -> str:
    from rich.markup import escape

    return escape(str(error) or type(error).__name__)
