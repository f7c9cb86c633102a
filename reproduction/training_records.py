"""Journals of finished trainings: one entry per training, appended when it finishes.

The files are those of `raresight.common.journal`. Several processes may train for one journal.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from raresight import __version__
from raresight.common.atomic_files import hold_folder
from raresight.common.journal import Journal, read_journal

from .experiments.balanced_metrics import BINARY_METRICS, CLASS_METRICS
from .experiments.net_trial import CLASS_TASKS, NetTrial

if TYPE_CHECKING:
    import torch

# ---- Records -----------------------------------------------------------------------------------------------

Record = Mapping[str, Any]
"""A finished trial.

* `trial`: the setting; `loss`: the loss with its class counts; `class_counts`.
* `curve`: columns by name: epoch, train_loss, gradient_norm_max, and metrics with the prefix `validation_` or
  `test_`.
* `frozen`: why it stopped, or null.
* `seconds`: its share of the time of the stack; `stack`: trials in the stack.
* `device`, `precision`, `clip` (null for no limit), `recipe` (batch, schedule and others).
* `images`: a digest of the image set; the first trainings have none.
* `versions` and `date`.
"""
_NEEDED = ("curve", "frozen", "class_counts", "device", "precision", "clip", "versions", "date")


def journal_path(folder: Path, experiment: str, dataset: str) -> Path:
    """Return the path of the journal of an experiment."""
    return folder / f"{experiment}-{dataset}.jsonl.xz"


def read_records(path: Path) -> dict[str, Record]:
    """Read the finished trials by their keys; none if there is no file. A torn last line is ignored."""
    return {**read_keyed(path, _checked_key)}


def _checked_key(record: dict[str, Any]) -> str:
    """Return the key of a record; raise an error if it lacks anything that tables need."""
    trial = NetTrial.from_dict(record["trial"])
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
    """Return columns with image set, net, draws, seeds and device of trainings; several values are joined."""

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


def format_clip_limits(records: Sequence[Record]) -> str:
    """Format the limits of gradient norms.

    >>> format_clip_limits([{"clip": 5.0}, {"clip": 5.0}, {"clip": 2.5}])
    '5 or 2.5'
    """
    return " or ".join(dict.fromkeys(f"{record['clip']:g}" for record in records))


def largest_norm(record: Record) -> float:
    """Return the largest gradient norm of the evaluated epochs, before clipping."""
    return max((norm for norm in record["curve"]["gradient_norm_max"] if norm is not None), default=0.0)


def key_text(what: Mapping[str, Any]) -> str:
    """Return a key for a record of plain values: a text that does not depend on their order.

    >>> key_text({"b": 2, "a": 1}) == key_text({"a": 1, "b": 2})
    True
    """
    return json.dumps(what, sort_keys=True)


def read_keyed(path: Path, key_of: Callable[[dict[str, Any]], str]) -> dict[str, dict[str, Any]]:
    """Read the entries of a journal by key; the last one counts. No file means no entries.

    Raises:
        ValueError: The file is damaged, or an entry has no key.
    """
    records: dict[str, dict[str, Any]] = {}
    for number, record in enumerate(read_journal(path) if path.exists() else (), start=1):
        try:
            records[key_of(record)] = record
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} has no result in line {number} ({error}): unpack it, remove that line, and "
                f"write it anew by python -m reproduction.seal_journals {path}"
            ) from None
    return records


def need_writable(path: Path) -> None:
    """Raise an error if the journal is not writable, before training starts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"{path} cannot be written, so results would be lost: check its permissions")


def add_records(path: Path, records: Sequence[Record]) -> None:
    """Append finished trials and flush them to the disk. Other processes wait."""
    # Open it anew each time: checksums chain to the last line, which another process may have written.
    with hold_folder(path.parent, "adding results", wait=True), Journal(path) as journal:
        journal.append(records)
        journal.sync()


# ---- Provenance --------------------------------------------------------------------------------------------


def provenance(device: torch.device | str) -> dict[str, Any]:
    """Return device, versions and date of a training.

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
    """Return the name of a GPU, or the kind of processor."""
    import torch

    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else platform.machine()
