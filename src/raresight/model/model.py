"""A fitted model: members, calibrator and policies; it scores tables.

A model has one member, or is a blend of several. Each member sees its own columns of the coded table and
gives raw scores z, which the inverse link lambda of its loss turns into log-odds. The weighted mean of these
goes through one calibrator:

    log-odds = a sum_i w_i lambda_i(z_i) + b,    w_i > 0,  sum_i w_i = 1.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..boosting.native_files import trust
from ..common.array_files import pack, unpack
from ..common.atomic_files import write_file
from ..common.calibration import Calibrator
from ..common.versions import versions_of
from ..linear.threads import by_blocks, cached_blocks, in_threads
from ..metrics.sketch import RankSketch
from ..tables.column_codec import DecimalMarks, read_with_marks
from ..tables.reader import read_table
from ..tables.schema import Schema
from .families import FAMILIES, Candidate, Fitted, packages_of
from .folder import MODEL_FILE, find_model, read_folder, write_folder, write_policies
from .policies import DEFAULT_POLICY, Policy
from .signature import Key, check_signature

__all__ = ["Member", "Model", "load"]

Floats = NDArray[np.float64]

_HELD_OUT_FILE = "held_out.npz"
_VALUES_FILE = "values.npz"
# A column with a larger share of unknown categories raises a warning.
_MANY_UNKNOWN = 0.5


@dataclass(frozen=True, eq=False)
class Member:
    """A fitted candidate in a model.

    Attributes:
        fitted: The candidate. Its calibrator is the identity: the model has one for all members.
        weight: Weight in the blend.
        columns: The features of the schema that it sees, in its order. Default: all.
    """

    fitted: Fitted
    weight: float = 1.0
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.fitted.calibrator != Calibrator():
            raise ValueError(
                "a member has no calibrator of its own: build the model with `Model.of`, which composes them"
            )

    def positions(self, schema: Schema) -> list[int] | None:
        """Return the places of its columns in the schema's matrix, or None for all in order."""
        names = schema.feature_names
        wanted = names if self.columns is None else self.columns
        if len(wanted) != self.fitted.n_columns:
            raise ValueError(
                f"the schema gives {len(wanted)} columns, but the {self.fitted.candidate.family} model was "
                f"fitted to {self.fitted.n_columns}: they do not belong together"
            )
        if self.columns is None or self.columns == names:
            return None
        places = {name: place for place, name in enumerate(names)}
        unknown = [name for name in wanted if name not in places]
        if unknown:
            raise ValueError(f"a member sees the column {unknown[0]!r}, which the schema does not have")
        return [places[name] for name in wanted]


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model with its schema and its policies, which takes tables of any library.

    Attributes:
        schema: Schema of the columns that are read.
        members: One fitted candidate, or those of a blend; their weights sum to one.
        calibrator: Slope and level of the members' weighted mean log-odds.
        policies: Thresholds by name, see `Policy`.
        held_out: The model's log-odds of held-out rows by class, from which further policies can be read.
        facts: JSON values worth keeping, such as metrics, the data's fingerprint and the seed.
        digest: SHA-256 of the fitted part in the folder from which the model was read.

    Tables may be of pandas, polars or Arrow, or paths of files.

    >>> import pyarrow, tempfile
    >>> from raresight.tables.schema import learn_schema
    >>> from raresight.model.families import Candidate, fit_candidates
    >>> table = pyarrow.table({"amount": [float(i % 50) for i in range(500)], "fraud": [0, 0, 0, 0, 1] * 100})
    >>> schema = learn_schema(table, "fraud")
    >>> X, y = schema.matrix(table), schema.labels(table)
    >>> candidate = Candidate("linear", "tbl")
    >>> fitted = fit_candidates([candidate], X, y, schema.categorical, schema.n_categories)
    >>> model = Model.of(schema, fitted, policies={"default": Policy("fixed", -1.0)})
    >>> folder = tempfile.mkdtemp()
    >>> model.save(folder)
    >>> bool((load(folder).log_odds(table) == model.log_odds(table)).all())
    True
    """

    schema: Schema
    members: tuple[Member, ...]
    calibrator: Calibrator = field(default_factory=Calibrator)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    held_out: RankSketch | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""

    def __post_init__(self) -> None:
        _check_weights([member.weight for member in self.members])
        if len(self.calibrator.levels) != 1:
            raise ValueError(f"a model of two classes has one level, got {self.calibrator}")
        _ = self._positions  # which refuses members that do not fit the schema

    @classmethod
    def of(
        cls,
        schema: Schema,
        fitted: Sequence[Fitted],
        *,
        weights: Sequence[float] | None = None,
        columns: Sequence[tuple[str, ...] | None] | None = None,
        policies: Mapping[str, Policy] | None = None,
        held_out: RankSketch | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Model:
        """Make a model of fitted candidates, whose calibrators become one.

        Args:
            schema: Schema of the columns that are read. Counts that no member sees are left out.
            fitted: One candidate, or several for a blend.
            weights: Their shares of the blend of calibrated log-odds, above 0 and with the sum 1. Default:
                equal ones.
            columns: The features that each of them sees. Default: all.
            policies, held_out, facts: Attributes of the model.
        """
        shares = [1 / max(len(fitted), 1)] * len(fitted) if weights is None else list(weights)
        _check_weights(shares)
        seen = [None] * len(fitted) if columns is None else list(columns)
        if None not in seen:
            # Values that no member needs are neither kept nor counted.
            names = {name for own in seen if own for name in own}
            schema = replace(schema, counts=tuple(one for one in schema.counts if one.feature in names))
        # sum_i w_i (a_i lambda_i + b_i) is the slope sum_i w_i a_i times a mean with weights w_i a_i, and a
        # level. For one member these are its own numbers, to the bit.
        slopes = [share * one.calibrator.slope for share, one in zip(shares, fitted, strict=True)]
        slope = math.fsum(slopes)
        level = math.fsum(share * one.calibrator.levels[0] for share, one in zip(shares, fitted))
        members = tuple(
            Member(replace(one, calibrator=Calibrator()), own / slope, names)
            for one, own, names in zip(fitted, slopes, seen, strict=True)
        )
        return cls(schema, members, Calibrator(slope, (level,)), policies or {}, held_out, facts or {})

    # ---- scores --------------------------------------------------------------------------

    def log_odds(self, table: Any) -> Floats:
        """Return calibrated log-odds of each row.

        Warns of each categorical column with mostly unknown values: a category with other letters or blanks
        than in training is scored as missing.
        """
        rows = read_table(table)
        for name, share in self.schema.unknown_share(rows).items():
            if share > _MANY_UNKNOWN:
                warnings.warn(
                    f"{share:.0%} of the values of {name!r} are none that training had and are scored as "
                    "missing: are they written differently here?",
                    stacklevel=2,
                )
        return self.log_odds_of_rows(rows)

    def log_odds_of_rows(self, rows: Any, first_row: int = 0, marks: DecimalMarks | None = None) -> Floats:
        """Return calibrated log-odds of an Arrow table or batch; other arguments as for `Schema.matrix`."""
        if marks is None:
            return read_with_marks(lambda marks: self.log_odds_of_rows(rows, first_row, marks))
        return self.log_odds_of_matrix(self._coded(rows, first_row, marks))

    def log_odds_of_matrix(self, X: NDArray[Any]) -> Floats:
        """Return calibrated log-odds of rows of the schema's coded matrix."""
        # Of all rows at once: the libraries use the cores by themselves. The links then go block by block.
        scores = [
            member.fitted.scores(X if places is None else X[:, places])
            for member, places in zip(self.members, self._positions)
        ]

        def calibrated(rows: slice) -> Floats:
            mean: Any = 0.0
            for member, own in zip(self.members, scores):
                log_odds = member.fitted.link(own[rows])
                # Almost every model has one member: its log-odds need no further pass.
                mean = log_odds if len(scores) == 1 else mean + member.weight * log_odds
            return self.calibrator.log_odds(mean)

        return by_blocks(calibrated, len(X), self._threads)

    def naive_probability_of_matrix(self, X: NDArray[Any]) -> Floats:
        """Return sigmoid(z), the probability under the link of cross entropy, whatever the losses."""
        mean: Floats = np.zeros(len(X))
        for member, places in zip(self.members, self._positions):
            mean += member.weight * np.asarray(member.fitted.scores(X if places is None else X[:, places]))
        return np.asarray(expit(mean))

    def probability(self, table: Any) -> Floats:
        """Return the calibrated probability of each row."""
        return np.asarray(expit(self.log_odds(table)))

    def alert(self, table: Any, policy: str = DEFAULT_POLICY) -> NDArray[np.bool_]:
        """Return whether each row's log-odds reach the threshold of a policy."""
        threshold = self.policy(policy).threshold
        return np.asarray(self.log_odds(table) >= threshold)

    def policy(self, name: str = DEFAULT_POLICY) -> Policy:
        """Return a policy by name."""
        if name not in self.policies:
            known = ", ".join(map(repr, self.policies)) or "none"
            raise ValueError(f"the model has no policy {name!r}; it has {known}")
        return self.policies[name]

    def with_policy(self, name: str, policy: Policy) -> Model:
        """Return the model with a policy added or replaced."""
        return replace(self, policies={**self.policies, name: policy})

    @cached_property
    def _positions(self) -> list[list[int] | None]:
        return [member.positions(self.schema) for member in self.members]

    @property
    def _threads(self) -> int | None:
        return self.members[0].fitted.threads

    def _coded(self, table: Any, first_row: int, marks: DecimalMarks) -> NDArray[Any]:
        """Make the schema's matrix on all cores."""
        n_rows = table.num_rows
        blocks = cached_blocks(n_rows)
        if len(blocks) < 2:
            matrix = self.schema.matrix(table, first_row=first_row, marks=marks)
            marks.settle()
            return matrix
        # Arrow and NumPy let go of the interpreter while they convert, so threads help.
        matrix = np.empty((n_rows, len(self.schema.feature_names)), dtype=self.schema.dtype)

        def fill(rows: slice) -> None:
            part = table.slice(rows.start, rows.stop - rows.start)
            matrix[rows] = self.schema.matrix(part, first_row=first_row + rows.start, marks=marks)

        in_threads(fill, blocks, self._threads)
        marks.settle()
        return matrix

    # ---- description ---------------------------------------------------------------------

    def importance(self) -> Floats:
        """Return the share of each feature of the schema; see `Fitted.importance`."""
        total = np.zeros(len(self.schema.feature_names))
        for member, places in zip(self.members, self._positions):
            total[slice(None) if places is None else places] += member.weight * member.fitted.importance()
        return total

    def describe(self) -> str:
        """Describe the candidate, or those of a blend with their weights, in one line."""
        if len(self.members) == 1:
            return self.members[0].fitted.candidate.describe()
        texts = (f"{one.weight:.3g} x ({one.fitted.candidate.describe()})" for one in self.members)
        return "blend of " + " + ".join(texts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the members' fits."""
        return tuple(dict.fromkeys(text for member in self.members for text in member.fitted.warnings))

    # ---- the folder ----------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write the model as a folder, which appears whole or not at all.

        An earlier model in its place is replaced; a folder that holds anything else is refused.
        """
        write_folder(folder, self._write_fit, self._described_policies())

    def save_policies(self, folder: str | Path) -> None:
        """Write the policies alone into the folder from which the model was read, or into a copy of it.

        The files of the fit do not change.

        Raises:
            ValueError: The folder holds another model.
        """
        write_policies(folder, self.digest, self._described_policies())

    def _described_policies(self) -> dict[str, Any]:
        return {name: policy.to_dict() for name, policy in self.policies.items()}

    def _write_fit(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        files, members = [], []
        for number, member in enumerate(self.members, start=1):
            place = _member_folder(number)
            (folder / place).mkdir()  # of its own: two members of one family have files of the same names
            described = member.fitted.save(folder / place)
            files += [f"{place}/{name}" for name in FAMILIES[member.fitted.candidate.family].files]
            columns = None if member.columns is None else list(member.columns)
            members.append({"folder": place, "weight": member.weight, "columns": columns, **described})
        if self.held_out is not None:
            self.held_out.save(folder / _HELD_OUT_FILE)
            files.append(_HELD_OUT_FILE)
        if arrays := self.schema.arrays():
            write_file(folder / _VALUES_FILE, pack("values", arrays))
            files.append(_VALUES_FILE)
        packages = packages_of(member.fitted.candidate.family for member in self.members)
        return {
            "members": members,
            "calibrator": self.calibrator.to_dict(),
            "facts": _plain(self.facts, "facts"),
            "versions": versions_of(["numpy", *packages]),
            "schema": self.schema.to_dict(),
        }, files


def load(folder: str | Path, *, verify: Key | None = None) -> Model:
    """Read a model that `Model.save` wrote; predictions then use all cores.

    The digests in the folder guard against accidents, not against attackers, who write matching ones. What
    the libraries of boosters read is therefore tried in a process of its own first, with limits of time and
    memory, unless this user wrote or checked them on this machine. That keeps a damaged file from
    crashing the program; it does not make a stranger's model tell the truth. For that there are signatures.

    Args:
        folder: Folder of a model, or of the run that made it.
        verify: Key of the signature that the model must have: itself as bytes, or the path of its file.
            Default: no signature is needed.

    Raises:
        FileNotFoundError: There is no such folder, or a file of the model is missing.
        ValueError: A file was changed or truncated, comes from a newer raresight, is no model, is not
            signed with the key, or its schema does not fit the native model.
        ImportError: A library of the model's family is not installed.
    """
    described, written_policies = read_folder(folder)
    source = find_model(folder)
    if verify is not None:
        check_signature(source, described, written_policies, verify)
    try:
        _check_files(source, described)
        if verify is not None:
            # Who signed the model vouches for its files, so that none needs the trial.
            for part in described["parts"].values():
                trust(part)
        schema = _read_schema(source, described)
        calibrator = Calibrator.from_dict(described["calibrator"])
        facts = described["facts"]
        members = tuple(_read_member(source, entry) for entry in described["members"])
        read = {name: Policy.from_dict(policy) for name, policy in written_policies["policies"].items()}
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, ValueError) as error:
        if isinstance(error, ValueError) and str(source) in str(error):
            raise  # it names its file already
        raise ValueError(f"{source / MODEL_FILE} lacks an entry or has a wrong one: {error}") from None
    held_out = RankSketch.load(source / _HELD_OUT_FILE) if _HELD_OUT_FILE in described["parts"] else None
    return Model(schema, members, calibrator, read, held_out, facts, described["description_sha256"])


def _read_schema(source: Path, described: Mapping[str, Any]) -> Schema:
    values = described["schema"]
    if _VALUES_FILE not in described["parts"]:
        return Schema.from_dict(values)
    path = source / _VALUES_FILE
    return unpack("values", path.read_bytes(), str(path), partial(Schema.from_dict, values))


def _check_files(source: Path, described: Mapping[str, Any]) -> None:
    """Refuse a model whose digests are of other files than those that will be read."""
    families = [Candidate.from_dict(entry["candidate"]).family for entry in described["members"]]
    if not families:
        raise ValueError("a model needs at least one member")
    folders = [_member_folder(number) for number in range(1, len(families) + 1)]
    if [entry["folder"] for entry in described["members"]] != folders:
        raise ValueError(f"{source / MODEL_FILE} has members in other folders than member-1 and so on")
    wanted = {
        f"{place}/{name}" for place, family in zip(folders, families) for name in FAMILIES[family].files
    }
    listed = {*described["parts"]} - {_HELD_OUT_FILE, _VALUES_FILE}
    for name in sorted(wanted - listed):
        raise ValueError(f"{source / MODEL_FILE} has no digest of {name}, which its members are read from")
    for name in sorted(listed - wanted):
        raise ValueError(f"{source / MODEL_FILE} lists {name}, which none of its members is read from")


def _member_folder(number: int) -> str:
    return f"member-{number}"


def _check_weights(weights: Sequence[float]) -> None:
    if not weights:
        raise ValueError("a model needs at least one member")
    for weight in weights:
        if not (math.isfinite(weight) and weight > 0):
            raise ValueError(f"the weight of a member must be a number above 0, got {weight}")
    total = math.fsum(weights)
    if abs(total - 1) > 1e-9:
        raise ValueError(f"the weights of the members must sum to one, got {total}")


def _read_member(source: Path, entry: Mapping[str, Any]) -> Member:
    fitted = Fitted.load(source / str(entry["folder"]), entry)
    columns = entry["columns"]
    return Member(fitted, float(entry["weight"]), None if columns is None else tuple(map(str, columns)))


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
