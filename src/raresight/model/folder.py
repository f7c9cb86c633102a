"""A model as a folder: `model.json`, and the native files of its family beside it.

`model.json` holds the schema of the table, the family, the loss and its link, the start score, the threshold,
what was measured, the versions, and the SHA-256 of each native file and of its own other entries. The digests
guard against accidents (a changed or truncated file), not against attackers.
"""

from __future__ import annotations

import glob
import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from .. import __version__
from ..boosting.objective import import_library
from ..common.json_values import digest_of
from ..common.versions import versions_of
from ..linear.threads import in_threads
from ..tables.reader import read_table
from ..tables.schema import Schema
from .blocks import row_blocks
from .boosted_part import BOOSTER_FILES
from .candidate import FAMILIES, require_family
from .families import Fitted

__all__ = ["FORMAT_VERSION", "MODEL_FILE", "Model", "find_model", "load"]

Floats = NDArray[np.float64]

MODEL_FILE = "model.json"
FORMAT = "raresight.model"
FORMAT_VERSION = 2

# The share of unknown categories in a column from which somebody should look.
_MANY_UNKNOWN = 0.5


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model with its schema and its threshold, which takes tables as they come.

    Attributes:
        schema: Which columns are read, and how.
        fitted: The model of coded rows.
        threshold: Rows whose log-odds are at least this raise an alert.
        fpr: The false-positive rate for which the threshold was set.
        facts: JSON values worth keeping, such as metrics, the data's fingerprint and the seed.

    Tables may be of pandas, polars or Arrow, or paths of files.

    >>> import pyarrow, tempfile
    >>> from raresight.tables.schema import learn_schema
    >>> from raresight.model.candidate import Candidate
    >>> from raresight.model.families import fit_candidates
    >>> table = pyarrow.table({"amount": [float(i % 50) for i in range(500)], "fraud": [0, 0, 0, 0, 1] * 100})
    >>> schema = learn_schema(table, "fraud")
    >>> X, y = schema.matrix(table), schema.labels(table)
    >>> candidate = Candidate("linear", "tbl")
    >>> (fitted,) = fit_candidates([candidate], X, y, schema.categorical, schema.n_categories)
    >>> model = Model(schema, fitted, threshold=-1.0, fpr=0.01)
    >>> folder = tempfile.mkdtemp()
    >>> model.save(folder)
    >>> bool((load(folder).log_odds(table) == model.log_odds(table)).all())
    True
    """

    schema: Schema
    fitted: Fitted
    threshold: float
    fpr: float
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise ValueError(f"threshold must be finite log-odds, got {self.threshold}")
        if not 0 <= self.fpr <= 1:
            raise ValueError(f"fpr must be between 0 and 1, got {self.fpr}")
        columns = len(self.schema.feature_names)
        if columns != self.fitted.n_columns:
            raise ValueError(
                f"the schema gives {columns} columns, but the {self.fitted.candidate.family} model was "
                f"fitted to {self.fitted.n_columns}: they do not belong together"
            )

    def log_odds(self, table: Any) -> Floats:
        """Calibrated log-odds of each row.

        Warns of columns of categories most of whose values training did not have: written otherwise, as in
        other letters or with blanks after them, a category is scored as missing.
        """
        rows = read_table(table)
        for name, share in self.schema.unknown_share(rows).items():
            if share > _MANY_UNKNOWN:
                warnings.warn(
                    f"{share:.0%} of the values of {name!r} are none that training had and are scored as "
                    "missing: are they written otherwise here?",
                    stacklevel=2,
                )
        return self.log_odds_of_rows(rows)

    def log_odds_of_rows(self, rows: Any, first_row: int = 0) -> Floats:
        """The same for an Arrow table or batch; `first_row` rows came before it, for messages."""
        return self.fitted.log_odds(self._coded(rows, first_row))

    def _coded(self, table: Any, first_row: int) -> NDArray[Any]:
        """The schema's matrix, made on all cores."""
        n_rows = table.num_rows
        blocks = row_blocks(n_rows)
        if len(blocks) < 2:
            return self.schema.matrix(table, first_row=first_row)
        matrix = np.empty((n_rows, self.fitted.n_columns), dtype=self.schema.dtype)

        def fill(rows: slice) -> None:
            part = table.slice(rows.start, rows.stop - rows.start)
            matrix[rows] = self.schema.matrix(part, first_row=first_row + rows.start)

        in_threads(fill, blocks, self.fitted.threads)
        return matrix

    def probability(self, table: Any) -> Floats:
        """Calibrated probability of each row."""
        return np.asarray(expit(self.log_odds(table)))

    def alert(self, table: Any) -> NDArray[np.bool_]:
        """Whether each row's log-odds reach the threshold."""
        return np.asarray(self.log_odds(table) >= self.threshold)

    def save(self, folder: str | Path) -> None:
        """Write the model as a folder, which appears whole or not at all.

        An earlier model in its place is replaced; a folder that holds anything else is refused.
        """
        target = Path(folder)
        _refuse_foreign(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}.{os.getpid()}.unfinished")
        _remove_leftovers(target)
        try:
            unfinished.mkdir()
            self._write(unfinished)
            _put_in_place(unfinished, target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    def _write(self, folder: Path) -> None:
        fitted = self.fitted.save(folder)
        parts = fitted.pop("files")
        described: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "family": self.fitted.candidate.family,
            **fitted,
            "threshold": float(self.threshold),
            "fpr": float(self.fpr),
            "facts": _plain(self.facts, "facts"),
            "versions": versions_of(["numpy", self.fitted.candidate.family]),
            "schema": self.schema.to_dict(),
            "parts": {name: _sha256(folder / name) for name in parts},
        }
        # As it will be read: tuples are lists then, and the digest is of the same values.
        described = json.loads(json.dumps(described, allow_nan=False))
        described["description_sha256"] = digest_of(described)
        text = json.dumps(described, indent=1, ensure_ascii=False)
        (folder / MODEL_FILE).write_text(text, encoding="utf-8")


def find_model(folder: str | Path) -> Path:
    """The folder of a model: the one given, or the one inside the folder of a run."""
    place = Path(folder)
    inside = place / "model"
    return inside if not (place / MODEL_FILE).exists() and (inside / MODEL_FILE).exists() else place


def load(folder: str | Path) -> Model:
    """Read a model that `Model.save` wrote; predictions then use all cores.

    `folder` may also be that of the run which made the model.

    Raises:
        FileNotFoundError: There is no such folder, or a file of the model is missing.
        ValueError: A file was changed or truncated, comes from a newer raresight, is no model, or its
            schema does not fit the native model.
        ImportError: The library of the model's family is not installed.
    """
    source = find_model(folder)
    described = _read_description(source)
    family = described.get("family")
    if family not in FAMILIES:
        raise ValueError(
            f"{source / MODEL_FILE} is of the family {family!r}, unknown to this raresight, which knows "
            f"{', '.join(FAMILIES)}"
        )
    _check_parts(source, described.get("parts"))
    if family in BOOSTER_FILES:
        import_library(family)
    else:
        require_family(family)
    try:
        schema = Schema.from_dict(described["schema"])
        threshold, fpr, facts = float(described["threshold"]), float(described["fpr"]), described["facts"]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{source / MODEL_FILE} lacks or garbles an entry: {error!r}") from None
    return Model(schema, Fitted.load(source, described), threshold, fpr, facts)


def _read_description(folder: Path) -> dict[str, Any]:
    path = folder / MODEL_FILE
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise FileNotFoundError(f"{folder} {what}: a model is a folder with {MODEL_FILE} in it")
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no {MODEL_FILE}: it is not a model of raresight")
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON, it is damaged: {error}") from None
    if not isinstance(described, dict) or described.get("format") != FORMAT:
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
    return described


def _check_parts(folder: Path, parts: Any) -> None:
    if not isinstance(parts, dict) or not parts:
        raise ValueError(f"{folder / MODEL_FILE} names no native model file")
    for name, digest in parts.items():
        path = folder / name
        if Path(name).name != name:
            raise ValueError(
                f"{folder / MODEL_FILE} names {name!r}, which is not a file of the model's folder"
            )
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: the model is not complete without it")
        if _sha256(path) != digest:
            raise ValueError(f"{path} is not the file that was saved: it was changed or truncated since")


def _refuse_foreign(target: Path) -> None:
    """An error unless the place is free or holds a model and nothing else."""
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir() or target.is_symlink():
        raise ValueError(f"{target} exists and is not a folder: choose another place for the model")
    names = {path.name for path in target.iterdir()}
    if not names:
        return
    try:
        described = json.loads((target / MODEL_FILE).read_text(encoding="utf-8"))
        known = described["format"] == FORMAT and {MODEL_FILE, *described["parts"]}
    except (OSError, ValueError, KeyError, TypeError):
        known = set()
    if not known:
        raise ValueError(f"{target} exists and is not a model of raresight: choose another folder")
    foreign = sorted(names - known)
    if foreign:
        raise ValueError(
            f"{target} holds {foreign[0]}, which is not a part of the model there: choose another folder, or "
            "move that file away"
        )


def _remove_leftovers(target: Path) -> None:
    """What processes that are no more left half done."""
    for suffix in ("unfinished", "replaced"):
        for left in target.parent.glob(f".{glob.escape(target.name)}.*.{suffix}"):
            owner = left.name.split(".")[-2]
            if owner.isdigit() and (int(owner) == os.getpid() or not _is_running(int(owner))):
                shutil.rmtree(left, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it is somebody else's
        return True
    return True


def _put_in_place(unfinished: Path, target: Path) -> None:
    """Rename the finished folder; an earlier model steps aside first and comes back if that fails."""
    if not target.exists():
        unfinished.rename(target)
        return
    aside = target.with_name(f".{target.name}.{os.getpid()}.replaced")
    shutil.rmtree(aside, ignore_errors=True)
    target.rename(aside)
    try:
        unfinished.rename(target)
    except BaseException:
        aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any, where: str) -> Any:
    """JSON values; numbers that JSON does not have (NaN, infinity) become null."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    raise TypeError(f"{where} holds {value!r}, which cannot be written as JSON")
