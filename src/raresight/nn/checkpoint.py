"""The checkpoint folder of a training, so that it can resume after a crash.

    training.json               identity of the training, last finished epoch, name of its state file
    state-000012.safetensors    weights, statistics, the optimiser's memory, and which replicas are frozen
    journal.jsonl               the results so far, one line per replica and epoch
    lock                        held by the process that trains

`training.json` is replaced last. So whenever the process is killed, it names a complete state and journal
entries that are on the disk. Newer files are removed on resumption, and their epochs are trained again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..common.atomic_files import remove_unfinished, write_json
from .tensor_files import read_tensors, write_tensors

__all__ = [
    "BEST",
    "BEST_EPOCHS",
    "OURS",
    "Checkpoint",
    "OtherTrainingError",
    "TrainingFolder",
    "current_state",
    "differences",
]

FORMAT = "raresight.training"
FORMAT_VERSION = 1
OURS = "training/"
"""Prefix in a state file of tensors that are not stacks of the net, whose names have no slash."""
BEST = "best/"
"""Second prefix, of the stacks with the weights of each replica's best epoch."""
BEST_EPOCHS = "best_epochs"
"""Name after `OURS` of the best epochs, 0 for a replica without one."""
_POINTER = "training.json"
_JOURNAL = "journal.jsonl"
# The entries of training.json, with their types.
_KINDS: dict[str, tuple[type, ...]] = {
    "epoch": (int,),
    "state": (str, type(None)),
    "journal_entries": (int,),
    "seconds": (int, float),
    "identity": (dict,),
}


@dataclass(frozen=True)
class Checkpoint:
    """The progress and the state of a training.

    Attributes:
        epoch: Number of finished epochs.
        tensors: The state after them, None before the first state is saved.
        journal_entries: Number of entries in the journal that belong to them.
        seconds: Duration of these epochs.
    """

    epoch: int = 0
    tensors: Mapping[str, Tensor] | None = None
    journal_entries: int = 0
    seconds: float = 0.0


class OtherTrainingError(ValueError):
    """The folder holds a different training, which cannot resume here."""


class TrainingFolder:
    """A folder of one training, which `identity` describes in plain values."""

    def __init__(self, folder: Path, identity: Mapping[str, Any]) -> None:
        self._folder = folder
        # Through JSON, which makes lists of tuples, so that it compares equal to what is read.
        self._identity = json.loads(json.dumps(identity, allow_nan=False))

    @property
    def journal(self) -> Path:
        return self._folder / _JOURNAL

    def open(self, *, resume: bool) -> Checkpoint:
        """Return the checkpoint of this folder; a folder without a training gets an empty one.

        A training that only adds epochs resumes from the shorter one and takes over its folder. A different
        training that failed before its first result, for example by a wrong setting, is replaced.

        Raises:
            ValueError: The folder holds another training, or `resume` is False and it holds this one.
        """
        pointer = self._folder / _POINTER
        has_results = self.journal.exists() and self.journal.stat().st_size > 0
        if not pointer.exists():
            if has_results:
                raise ValueError(
                    f"{self._folder} holds a {_JOURNAL} but no {_POINTER}: choose another folder, or move "
                    "that file away"
                )
            return self._begin()
        described = _read_pointer(pointer)
        state = described["state"]
        different = differences(described["identity"], self._identity)
        if not has_results and described["epoch"] == 0 and (state is None or different):
            return self._begin()
        if not resume:
            raise ValueError(
                f"{self._folder} holds a training already: choose another folder, or pass resume=True"
            )
        goes_further = _goes_further(described["identity"], self._identity)
        if different and not goes_further:
            raise OtherTrainingError(
                f"{self._folder} holds another training: {'; '.join(different)}. Choose another folder"
            )
        tensors = None if state is None else read_tensors(self._folder / state)
        self._clear_all_but(state)
        found = Checkpoint(described["epoch"], tensors, described["journal_entries"], described["seconds"])
        if goes_further:
            # Nothing else in a recipe depends on its length, so the weights are those of a training that was
            # as long from the start.
            self._point(found, state)
        return found

    def _begin(self) -> Checkpoint:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Before any state is written: a state of epoch 0 in the folder may belong to another training.
        self._point(Checkpoint(), None)
        return Checkpoint()

    def save(self, checkpoint: Checkpoint, metadata: Mapping[str, str]) -> None:
        """Write this checkpoint, whose journal entries must be on the disk."""
        if checkpoint.tensors is None:
            raise ValueError("a checkpoint needs its tensors")
        state = f"state-{checkpoint.epoch:06d}.safetensors"
        write_tensors(self._folder / state, checkpoint.tensors, metadata=metadata)
        self._point(checkpoint, state)
        self._clear_all_but(state)

    def _clear_all_but(self, state: str | None) -> None:
        """Remove other states and unfinished files."""
        for left in self._folder.glob("state-*.safetensors"):
            if left.name != state:
                left.unlink()
        remove_unfinished(self._folder)

    def _point(self, checkpoint: Checkpoint, state: str | None) -> None:
        described = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "epoch": checkpoint.epoch,
            "state": state,
            "journal_entries": checkpoint.journal_entries,
            "seconds": round(checkpoint.seconds, 3),
            "identity": self._identity,
        }
        write_json(self._folder / _POINTER, described)


def current_state(folder: Path) -> Path:
    """Return the file with the weights of a training's last checkpoint."""
    described = _read_pointer(folder / _POINTER)
    if described["state"] is None or described["epoch"] == 0:
        raise ValueError(
            f"the training in {folder} has no weights yet: it was stopped before its first checkpoint"
        )
    return folder / str(described["state"])


def _read_pointer(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path.parent} holds no {path.name}: it is not the folder of a training")
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON, it is damaged: {error}") from None
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise ValueError(f"{path} does not describe a training of raresight")
    if described.get("format_version") != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {described.get('format_version')!r}, this raresight reads "
            f"{FORMAT_VERSION}"
        )
    missing = _KINDS.keys() - described.keys()
    if missing:
        raise ValueError(f"{path} lacks {', '.join(sorted(missing))}: it is damaged")
    for name, kinds in _KINDS.items():
        if not isinstance(described[name], kinds) or isinstance(described[name], bool):
            raise ValueError(f"{path} is damaged: {name} is {_shown(described[name])}")
    return described


def _goes_further(there: Any, here: Any) -> bool:
    """Return whether the recipe has more epochs here than there, and nothing else differs."""
    try:
        before, now = there["recipe"]["epochs"], here["recipe"]["epochs"]
    except (KeyError, TypeError):
        return False
    longer = {**there, "recipe": {**there["recipe"], "epochs": now}}
    return bool(before < now) and not differences(longer, here)


def differences(there: Any, here: Any, name: str = "") -> list[str]:
    """Describe each difference between two descriptions in plain values.

    >>> differences({"lr": 0.1, "seeds": [0]}, {"lr": 0.2, "seeds": [0]})
    ['lr is 0.1 there and 0.2 here']
    """
    if isinstance(there, dict) and isinstance(here, dict):
        found = []
        for key in dict.fromkeys((*there, *here)):
            inner = f"{name}.{key}" if name else str(key)
            found += differences(there.get(key), here.get(key), inner)
        return found
    return [] if there == here else [f"{name} is {_shown(there)} there and {_shown(here)} here"]


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:197]}..."
