"""The folder of a model: what is written, what it must hold, and how changes are found.

    model.json      what the fit made: schema, members, calibrator, facts, versions, and the SHA-256 of each
                    other file of the fit and of its own other entries
    held_out.npz    the log-odds of the held-out rows by class, if there were any
    values.npz      the values that training had, as keys, where they are too many for `model.json`
    member-1/       the native files of a member, and so on
    policies.json   the thresholds, which may change after the fit, with a digest of their own
    signature.json  who has the key vouches for both digests; see `raresight.model.signature`

The digest in `model.json` therefore stands for the whole fitted part: as long as it is the same, so is the
model, whatever became of its policies. `policies.json` names the digest of the model that it belongs to.
Digests guard against accidents (a changed or truncated file), not against attackers, who write matching ones.
A signature guards against attackers without the key. Nothing is a pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..common.atomic_files import replacing_folder, write_json
from ..common.json_values import digest_of

__all__ = [
    "FORMAT_VERSION",
    "MODEL_FILE",
    "POLICIES_FILE",
    "SIGNATURE_FILE",
    "find_model",
    "read_description",
    "read_folder",
    "write_description",
    "write_folder",
    "write_policies",
]

MODEL_FILE = "model.json"
POLICIES_FILE = "policies.json"
FORMAT_VERSION = 1
SIGNATURE_FILE = "signature.json"
_FORMATS = {
    MODEL_FILE: "raresight.model",
    POLICIES_FILE: "raresight.policies",
    SIGNATURE_FILE: "raresight.signature",
}

Described = dict[str, Any]


def write_folder(
    folder: str | Path,
    write_fit: Callable[[Path], tuple[Mapping[str, Any], Sequence[str]]],
    policies: Mapping[str, Any],
) -> str:
    """Write a model as a folder, which appears whole or not at all; returns the digest of its fitted part.

    Args:
        folder: An earlier model in its place is replaced; a folder that holds anything else is refused.
        write_fit: Writes the files of the fit into a folder; returns the entries of `model.json` and the
            names of these files.
        policies: The entries of `policies.json`.
    """
    target = Path(folder)
    _refuse_foreign(target)
    with replacing_folder(target) as unfinished:
        entries, names = write_fit(unfinished)
        parts = {name: _sha256(unfinished / name) for name in names}
        # The policies name the digest of this description, which therefore comes first.
        fit = write_description(unfinished / MODEL_FILE, {**entries, "parts": parts})
        _write_policies(unfinished, fit, policies)
    return str(fit["description_sha256"])


def write_policies(folder: str | Path, digest: str, policies: Mapping[str, Any]) -> None:
    """Replace the policies of the saved model whose fitted part has this digest.

    No file of the fit is touched.
    """
    place = find_model(folder)
    fit = read_description(place / MODEL_FILE)
    if fit["description_sha256"] != digest:
        raise ValueError(
            f"{place} holds another model than these policies are for: load the model from there, or save it"
        )
    _write_policies(place, fit, policies)


def read_folder(folder: str | Path) -> tuple[Described, Described]:
    """Read `model.json` and `policies.json`, and check every file against its digest.

    Raises:
        FileNotFoundError: There is no such folder, or a file of the model is missing.
        ValueError: A file was changed or truncated, comes from a newer raresight, or is of no model.
    """
    place = find_model(folder)
    if not place.is_dir():
        what = "is a file" if place.exists() else "does not exist"
        raise FileNotFoundError(f"{place} {what}: a model is a folder with {MODEL_FILE} in it")
    if not os.path.lexists(place / MODEL_FILE):
        raise FileNotFoundError(f"{place} holds no {MODEL_FILE}: it is not a model of raresight")
    fit = read_description(place / MODEL_FILE)
    _check_parts(place, fit.get("parts"))
    path = place / POLICIES_FILE
    policies = read_description(path)
    if policies.get("model_sha256") != fit["description_sha256"]:
        raise ValueError(f"{path} belongs to another model than {MODEL_FILE} beside it")
    if not isinstance(policies.get("policies"), dict):
        raise ValueError(f"{path} lacks its policies")
    return fit, policies


def find_model(folder: str | Path) -> Path:
    """Find the folder of a model: the folder itself, or `model/` in the folder of a run."""
    place = Path(folder)
    inside = place / "model"
    return inside if not (place / MODEL_FILE).exists() and (inside / MODEL_FILE).exists() else place


def _write_policies(folder: Path, fit: Described, policies: Mapping[str, Any]) -> None:
    write_description(
        folder / POLICIES_FILE, {"model_sha256": fit["description_sha256"], "policies": dict(policies)}
    )


def write_description(path: Path, entries: Mapping[str, Any]) -> Described:
    """Write entries with their format and their digest; returns what was written."""
    head = {"format": _FORMATS[path.name], "format_version": FORMAT_VERSION}
    # As it will be read: tuples are lists then, and the digest is of the same values.
    described: Described = json.loads(json.dumps({**head, **entries}, allow_nan=False))
    described["description_sha256"] = digest_of(described)
    write_json(path, described)
    return described


def read_description(path: Path) -> Described:
    """Read what `write_description` wrote and check its digest."""
    _check_plain(path.parent, path.name)
    try:
        described: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as JSON, it is damaged: {error}") from None
    if not isinstance(described, dict) or described.get("format") != _FORMATS[path.name]:
        raise ValueError(f"{path} does not describe a model of raresight")
    found = described.get("format_version")
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise ValueError(f"{path} has no format version that makes sense: {found!r}")
    if found > FORMAT_VERSION:
        raise ValueError(
            f"{path} has format version {found}, this raresight {__version__} reads up to {FORMAT_VERSION}: "
            "upgrade raresight"
        )
    if described.get("description_sha256") != digest_of(described):
        raise ValueError(f"{path} is not the file that was saved: it was changed since")
    return dict(described)


def _check_parts(folder: Path, parts: Any) -> None:
    if not isinstance(parts, dict) or not parts:
        raise ValueError(f"{folder / MODEL_FILE} names no native model file")
    for name, digest in parts.items():
        path = folder / name
        # A description that was made up must not have files elsewhere read.
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ValueError(
                f"{folder / MODEL_FILE} names {name!r}, which is not a file of the model's folder"
            )
        _check_plain(folder, name)
        if _sha256(path) != digest:
            raise ValueError(f"{path} is not the file that was saved: it was changed or truncated since")


def _check_plain(folder: Path, name: str) -> None:
    """Refuse what is no plain file, without opening it: a pipe waits for ever, a link leads elsewhere."""
    path = folder
    for step in Path(name).parts:
        path = path / step
        try:
            mode = path.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(f"{path} is missing: the model is not complete without it") from None
        if stat.S_ISLNK(mode):
            raise ValueError(f"{path} is a link: copy the model with its files, as cp -RL does")
    if path == folder or not stat.S_ISREG(mode):
        raise ValueError(f"{path} is not a plain file: it is no part of a model")


def _refuse_foreign(target: Path) -> None:
    """Raise an error unless the place is free or holds a model and nothing else."""
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir() or target.is_symlink():
        raise ValueError(f"{target} exists and is not a folder: choose another place for the model")
    if not any(target.iterdir()):
        return
    try:
        _check_plain(target, MODEL_FILE)
        described = json.loads((target / MODEL_FILE).read_text(encoding="utf-8"))
        known = described["format"] == _FORMATS[MODEL_FILE] and {*_FORMATS, *described["parts"]}
    except (OSError, ValueError, KeyError, TypeError):
        known = set()
    if not known:
        raise ValueError(f"{target} exists and is not a model of raresight: choose another folder")
    names = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}
    foreign = sorted(names - known)
    if foreign:
        raise ValueError(
            f"{target} holds {foreign[0]}, which is not a part of the model there: choose another folder, or "
            "move that file away"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
