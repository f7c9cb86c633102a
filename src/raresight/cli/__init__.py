"""The command line: a thin shell over the library, one file per command."""

from __future__ import annotations

import dis
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from .. import __version__
from ..common.memory import need_memory
from . import analyze, fit, losses, score, show, sign

__all__ = ["app", "main"]

_LONGEST = 800
_NO_MEMORY = "memory ran out: use fewer jobs, fewer rows or columns, or a larger machine"
# How the loader of shared libraries says it, also in a worker's error.
_UNMAPPED = ("failed to map segment", "cannot allocate memory")

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


app.command(epilog=fit.EXAMPLE)(fit.fit)
app.command(epilog=score.EXAMPLE)(score.score)
app.command(epilog=show.EXAMPLE)(show.show)
app.command(epilog=sign.EXAMPLE)(sign.sign)
app.command(epilog=losses.EXAMPLE)(losses.losses)
app.command(epilog=analyze.EXAMPLE)(analyze.analyze)


def main() -> None:
    """Run the command line: whatever goes wrong is one sentence, its traceback shown only with --debug."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    if debug:  # accepted before and after the command's name
        arguments = ["--debug", *(argument for argument in arguments if argument != "--debug")]
    warnings.showwarning = _show_warning
    try:
        try:
            app(args=arguments, prog_name="raresight")
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # a full disk is noticed here, not while Python ends
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of a library written in Rust is no Exception
        if debug:
            raise
        try:
            text = _sentence(error, arguments)
        except MemoryError:
            text = _NO_MEMORY
        _show_error(text)
        _forget_output()
        sys.exit(1)


def _sentence(error: BaseException, arguments: list[str]) -> str:
    """Say in one sentence what went wrong: in our words, or in the system's about a file."""
    text = str(error)
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        return f"{error.filename or 'the output'}: {error.strerror[0].lower()}{error.strerror[1:]}"
    if _is_ours(error) and text:
        return text
    if isinstance(error, MemoryError):
        return _NO_MEMORY
    if isinstance(error, ImportError):
        what = error.name or error.path or "that is needed"
        is_short = any(words in text.lower() for words in _UNMAPPED) or _is_memory_short()
        advice = "memory ran out, allow more, see ulimit -v" if is_short else "install it again"
        return f"the library {what} cannot be loaded: {advice}"
    asked = " ".join(["raresight", *arguments[:2]])
    return f"{asked} stopped for a reason that it did not foresee: --debug at its end shows the details"


def _is_memory_short() -> bool:
    """Return whether memory for a large library is missing: its import then fails in many ways."""
    try:
        need_memory(256, "a library")
    except MemoryError:
        return True
    return False


def _is_ours(error: BaseException) -> bool:
    """Return whether a `raise` of raresight made the error, here or in a worker: its text is a sentence then.

    What Python and libraries raise is about their insides: "'utf-16-le' codec can't decode byte 0x2a".
    """
    own = str(Path(__file__).parents[1])
    if type(error.__cause__).__name__ == "_RemoteTraceback":
        frames = re.findall(r'File "([^"]+)", line .*\n\s+(\S+)', str(error.__cause__))
        return bool(frames) and frames[-1][0].startswith(own) and frames[-1][1] == "raise"
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None:
        return False
    code = place.tb_frame.f_code
    is_raise = dis.opname[code.co_code[place.tb_lasti]] == "RAISE_VARARGS"
    return is_raise and code.co_filename.startswith(own)


def _forget_output() -> None:
    """Let go of output that cannot be written: Python would try again at its end, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (AttributeError, ValueError):  # it is closed
        return


def _show_error(text: str) -> None:
    _show("bold red", "error", text)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _show("bold yellow", "warning", str(message) or type(message).__name__)


def _show(style: str, word: str, text: str) -> None:
    line = _line(text)
    try:
        said = f"[{style}]{word}:[/] {escape(line)}"
        Console(stderr=True).print(said, highlight=False, soft_wrap=True)
    except (MemoryError, ImportError):  # rich loads its tables with the first line that it prints
        sys.stderr.write(f"{word}: {line}\n")


def _line(text: str) -> str:
    """Return text for one line of a terminal, without control characters from names in the data."""
    if len(text) > _LONGEST:  # an option or a name in the data may have any length
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
