"""What was trained so far: one line of JSON per training, appended as trainings finish."""

from __future__ import annotations

import gzip
import json
import os
import platform
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from raresight import __version__

from .experiments.metrics import BINARY_METRICS, CLASS_METRICS
from .experiments.settings import CLASS_TASKS, Trial

if TYPE_CHECKING:
    import torch

# ---- Gzip files that grow ----------------------------------------------------------------------------------

# What zlib calls the format of gzip files.
_GZIP = 16 + zlib.MAX_WBITS


@dataclass(frozen=True)
class _Content:
    """What a file holds: all whole lines, the bytes of its complete members, and whole lines after them."""

    lines: tuple[bytes, ...]
    whole_bytes: int
    torn_lines: tuple[bytes, ...]


def read_packed_lines(path: Path) -> tuple[bytes, ...]:
    """The lines, none where there is no file; of a torn end those that are whole."""
    _refuse_unpacked(path)
    return _content(path, path.read_bytes()).lines if path.exists() else ()


def add_packed_lines(path: Path, lines: list[bytes]) -> None:
    """Append lines, and bring them to the disk; one process after the other."""
    _refuse_unpacked(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _add_lines(path, lines)
    except OSError as error:
        # On a full disk it does not say which file it is about.
        raise OSError(error.errno, error.strerror, str(path)) from None


def _add_lines(path: Path, lines: list[bytes]) -> None:
    with _alone_with(path) as file:
        content = file.read()
        found = _content(path, content)
        if len(content) == found.whole_bytes:
            _write(file, _member(lines))
            return
        # Into a new file, since a kill in the midst of mending this one would lose what it has.
        mended = path.with_name(f"{path.name}.unfinished")
        with mended.open("wb") as new:
            _write(new, content[: found.whole_bytes] + _member([*found.torn_lines, *lines]))
        mended.replace(path)


def _member(lines: list[bytes]) -> bytes:
    # Without a time, so that the same lines are the same bytes.
    return gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0)


def _write(file: IO[bytes], content: bytes) -> None:
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


@contextmanager
def _alone_with(path: Path) -> Iterator[IO[bytes]]:
    """The file, at its beginning, once no other process has it."""
    import fcntl  # not on every system, where journals can still be read

    while True:
        with path.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Who had it before may have put a mended one in its place.
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.seek(0)
                yield file
                return


def _refuse_unpacked(path: Path) -> None:
    """An error for a plain file of that name, as there were before: its lines would be overlooked."""
    plain = path.with_suffix("")
    if plain.exists():
        raise ValueError(
            f"{plain} is not packed, and would be overlooked: add it by gzip -c {plain.name} >> {path.name}, "
            "and move it away"
        )


def _content(path: Path, content: bytes) -> _Content:
    lines: list[bytes] = []
    place = 0
    # gzip takes zeros behind a member for nothing, too.
    while rest := content[place:].lstrip(b"\0"):
        member = zlib.decompressobj(wbits=_GZIP)
        try:
            text = member.decompress(rest)
        except zlib.error as error:
            raise ValueError(
                f"{path} is damaged at byte {place} ({error}): it is no gzip file, or has other bytes in it; "
                f"head -c {place} {path.name} is what comes before"
            ) from None
        if not member.eof:
            torn = tuple(text[: text.rfind(b"\n") + 1].splitlines())
            return _Content((*lines, *torn), place, torn)
        # By members: a text without a newline at its end must not run into the next.
        lines += text.splitlines()
        place = len(content) - len(member.unused_data)
    return _Content(tuple(lines), len(content), ())


# ---- Records -----------------------------------------------------------------------------------------------

Record = Mapping[str, Any]
"""A finished trial.

`trial` (the setting), `loss` (with the class counts in it), `class_counts`, `curve` (columns by name: epoch,
train_loss, gradient_norm_max, and the metrics with `validation_` or `test_` before their names), `frozen`
(why it stopped, or null), `seconds` (its share of the stack's), `stack` (how many were trained together),
`device`, `precision`, `clip` (of an anchor null for no limit), `recipe` (batch, schedule and the like; the
first journals have none, their trainings had those of `stack.recipe_of`, too), `images` (a digest of the
whole set, likewise), `versions` and `date`.
"""
_NEEDED = ("curve", "frozen", "class_counts", "device", "precision", "clip", "versions", "date")


def journal_path(folder: Path, experiment: str, dataset: str) -> Path:
    """Where the results of an experiment are kept."""
    return folder / f"{experiment}-{dataset}.jsonl.gz"


def read_records(path: Path) -> dict[str, Record]:
    """The finished trials by their keys; none where there is no file. What is torn at its end is left out."""
    return {**read_lines(path, _checked_key)}


def _checked_key(record: dict[str, Any]) -> str:
    """The key of a record that has all that tables need; else an error that says what it lacks."""
    trial = Trial.from_dict(record["trial"])
    lacking = [name for name in _NEEDED if name not in record]
    curve = {} if "curve" in lacking else dict(record["curve"])
    metrics = CLASS_METRICS if trial.task in CLASS_TASKS else BINARY_METRICS
    sets = ["test", *(["validation"] if trial.held_out else [])]
    columns = ["epoch", "gradient_norm_max", *(f"{name}_{metric}" for name in sets for metric in metrics)]
    lacking += [f"curve.{name}" for name in columns if name not in curve]
    if lacking:
        raise ValueError(f"it lacks {', '.join(lacking)}")
    if type(trial.epochs) is not int or not isinstance(record.get("images", ""), str):
        raise ValueError("its epochs are no whole number, or its images no digest")
    lists = [column for column in curve.values() if isinstance(column, list)]
    numbers = all(value is None or isinstance(value, (int, float)) for column in lists for value in column)
    clips = (int, float, type(None)) if trial.role == "anchor" else (int, float)
    if len(lists) < len(curve) or not numbers or not isinstance(record["clip"], clips):
        raise ValueError("its curve or its clip are no numbers")
    lengths = {len(column) for column in lists}
    if len(lengths) > 1 or not curve["epoch"]:
        raise ValueError("the columns of its curve are not equally long")
    return trial.key


def origin(records: Sequence[Record]) -> Record:
    """Set, net, draws and seeds of trainings, and what they ran on; several are joined."""

    def joined(values: Iterable[Any], by: str = " ") -> str:
        return by.join(dict.fromkeys(map(str, values)))

    return {
        **{
            name: joined(record["trial"][name] for record in records)
            for name in ("dataset", "depth", "width")
        },
        "draws": joined(record["trial"]["draw"] for record in records),
        "seeds": joined(record["trial"]["seed"] for record in records),
        # The names of devices have spaces in them.
        "device": joined((record["device"] for record in records), " and "),
        "precision": joined((record["precision"] for record in records), " and "),
        "torch": joined(record["versions"]["torch"] for record in records),
        "raresight": joined(record["versions"]["raresight"] for record in records),
        "date": joined(record["date"] for record in records),
    }


def clip_words(records: Sequence[Record]) -> str:
    """The limit of gradient norms, or several.

    >>> clip_words([{"clip": 5.0}, {"clip": 5.0}, {"clip": 2.5}])
    '5 or 2.5'
    """
    return " or ".join(dict.fromkeys(f"{record['clip']:g}" for record in records))


def largest_norm(record: Record) -> float:
    """The largest gradient norm of the judged epochs, before clipping."""
    return max((norm for norm in record["curve"]["gradient_norm_max"] if norm is not None), default=0.0)


def key_text(what: Mapping[str, Any]) -> str:
    """What was done, as a key: the same text whatever the order of its parts.

    >>> key_text({"b": 2, "a": 1}) == key_text({"a": 1, "b": 2})
    True
    """
    return json.dumps(what, sort_keys=True)


def read_lines(path: Path, key_of: Callable[[dict[str, Any]], str]) -> dict[str, dict[str, Any]]:
    """The lines of a journal by keys, the later one of two; an error for one that has no key."""
    records: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(read_packed_lines(path), start=1):
        try:
            record = json.loads(line)
            records[key_of(record)] = record
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is damaged at line {number} of its text ({error}): unpack it, remove that line and "
                "pack it again, to train it again"
            ) from None
    return records


def need_writable(path: Path) -> None:
    """An error where a journal could not be added to, before what it is to have is trained."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written: nets would be trained for nothing")


def add_records(path: Path, records: Sequence[Record]) -> None:
    """Append finished trials, and bring them to the disk."""
    lines = [json.dumps(record, ensure_ascii=False, allow_nan=False).encode() for record in records]
    add_packed_lines(path, lines)


# ---- Provenance --------------------------------------------------------------------------------------------


def provenance(device: torch.device | str) -> dict[str, Any]:
    """Device, versions and date.

    >>> sorted(provenance("cpu"))
    ['date', 'device', 'versions']
    """
    import torch

    versions = {
        "raresight": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    if "tabm" in sys.modules:
        versions["tabm"] = str(getattr(sys.modules["tabm"], "__version__", "unknown"))
    return {
        "device": device_name(device),
        "versions": versions,
        "date": datetime.now(UTC).date().isoformat(),
    }


def device_name(device: torch.device | str) -> str:
    """The name of a GPU, or the kind of processor."""
    import torch

    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else platform.machine()
