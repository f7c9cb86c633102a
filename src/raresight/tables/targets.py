"""Decide the two values of the target column, and which of them is the positive one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, mask_of, numbers_from, whole
from raresight.tables.column_codec import is_number, plain, texts_of, typed_numbers
from raresight.tables.summaries import MOST_COUNTED, ColumnSummary, as_integers
from raresight.tables.text_values import FALSE, NO_VALUE, TRUE, is_text, numbers_in_text, truths

TargetKind = Literal["boolean", "number", "text"]

# Pairs of values whose positive one is obvious, in small letters.
_PAIRS = (
    ("no", "yes"),
    ("n", "y"),
    ("false", "true"),
    ("f", "t"),
    ("0", "1"),
    ("-1", "1"),
    ("negative", "positive"),
    ("neg", "pos"),
    ("genuine", "fraud"),
    ("legit", "fraud"),
    ("legitimate", "fraud"),
    ("normal", "fraud"),
    ("not fraud", "fraud"),
    ("no fraud", "fraud"),
    ("non-fraud", "fraud"),
    ("ok", "fraud"),
    ("good", "bad"),
    ("normal", "anomaly"),
    ("normal", "abnormal"),
    ("normal", "attack"),
    ("benign", "malignant"),
    ("benign", "malicious"),
    ("benign", "attack"),
    ("healthy", "sick"),
    ("ham", "spam"),
    ("ok", "failure"),
    ("pass", "fail"),
)


@dataclass(frozen=True)
class Target:
    """The two values as text, their kind, and a note on how the positive one was chosen."""

    negative: str
    positive: str
    kind: TargetKind
    note: str = ""


def learn_target(summary: ColumnSummary, positive: Any = None) -> Target:
    """Find the two values of a target column.

    Args:
        summary: Of an Arrow column.
        positive: The positive value; as text it is matched to the values ("1" matches 1, 1.0 and True). None:
            1 of 0 and 1, true of false and true, the second of a known pair such as no/yes, or the rarer one.

    Raises:
        ValueError: If there are not exactly two values, some are missing, or `positive` is none of them.

    Example:
        >>> import pyarrow as pa
        >>> from raresight.tables.summaries import summarize_column
        >>> learn_target(summarize_column("fraud", pa.array(["no", "yes", "no"]))).positive
        'yes'
        >>> learn_target(summarize_column("fraud", pa.array([0.0, 1.0])), "1")
        Target(negative='0', positive='1', kind='number', note='')
    """
    name = summary.name
    kind: TargetKind
    if summary.texts is not None:
        values, weights = summary.texts.examples
        counts = dict(zip(values.to_pylist(), weights.tolist(), strict=True))
        _refuse_some(summary.missing + counts.pop("", 0), summary.rows, name)
        counts, kind = _meant(counts, name)
    elif summary.kind in ("number", "boolean") and not summary.type.startswith("duration"):
        numbers = summary.numbers
        _refuse_some(summary.rows - numbers.count, summary.rows, name)
        if numbers.few is None:
            raise ValueError(
                f"the target column {name!r} must have two values, but has more than {MOST_COUNTED}; "
                "choose a column of two values with --target"
            )
        kind = "boolean" if summary.kind == "boolean" else "number"
        # Labels of decimals are read as float64, so what is equal there is refused here.
        is_whole = numbers.integer and not summary.type.startswith("decimal")
        convert = bool if kind == "boolean" else int if is_whole else float
        counts = {_text(convert(value)): count for value, count in numbers.few.items()}
    elif summary.kind == "nothing":
        raise ValueError(f"the target column {name!r} has no values; every row needs one")
    else:
        raise ValueError(
            f"the target column {name!r} is of the type {summary.type}; "
            "a target is text, truth values or numbers"
        )
    if len(counts) != 2:
        raise ValueError(_not_two(counts, name, kind))
    if positive is not None:
        chosen, note = _matched(positive, list(counts), kind, name), ""
    else:
        chosen, note = _guessed(counts, kind)
    other = next(value for value in counts if value != chosen)
    return Target(negative=other, positive=chosen, kind=kind, note=note)


def _meant(counts: dict[str, int], name: str) -> tuple[dict[str, int], TargetKind]:
    """Turn counts of texts into counts of numbers or truth values, if all texts are such.

    Labels with leading zeros are codes, such as 01 and 02, and stay text.
    """
    pa = arrow()
    present = {text: count for text, count in counts.items() if text.strip() not in NO_VALUE}
    texts = pa.array(list(present), pa.string())
    numbers = numbers_from(numbers_in_text(texts))
    truth_values = truths(texts).to_pylist()
    kind: TargetKind
    values: list[Any]
    if present and None not in truth_values:
        # The user's own spelling, unless there are several of one value.
        own = len(present) == 2
        kind, values = "boolean", list(present) if own else [str(value) for value in truth_values]
    elif present and np.isfinite(numbers).all() and not any(re.match(r"\s*0\d", text) for text in present):
        # As numbers, because 1e20 and 100000000000000000000 are one.
        kind, values = "number", [_number(text) for text in present]
    else:
        return counts, "text"
    # Among numbers, "NA" is no value; among words it may be one.
    _refuse_some(sum(counts.values()) - sum(present.values()), sum(counts.values()), name)
    meant: dict[Any, int] = {}
    for value, count in zip(values, present.values(), strict=True):
        meant[value] = meant.get(value, 0) + count
    return {_text(value): count for value, count in meant.items()}, kind


def labels_of(values: Any, name: str, target: Target, first_row: int = 0) -> NDArray[np.int8]:
    """Return labels: 1 for the positive value, 0 for the negative one.

    Raises:
        ValueError: If a value is missing or neither of the two, naming it and its row.
    """
    pc = compute()
    array, kind = _readable(values, name)
    _refuse_missing(array, name)
    if target.kind == "text":
        texts = texts_of(array)
        is_positive = mask_of(pc.equal(texts, target.positive))
        is_negative = mask_of(pc.equal(texts, target.negative))
    else:
        numbers = _as_numbers(array, kind)
        is_positive, is_negative = (numbers == _number(value) for value in (target.positive, target.negative))
        if (is_positive & is_negative).any():  # exact in training, but of another type now
            raise ValueError(_equal_in_float64(name, target.positive))
    strange = ~(is_positive | is_negative)
    if strange.any():
        row = int(np.argmax(strange))
        raise ValueError(
            f"the target column {name!r} holds {_text(array[row].as_py())!r} in row {first_row + row + 1}, "
            f"which is neither {target.negative!r} nor {target.positive!r}; correct it or leave the row out"
        )
    return is_positive.astype(np.int8)


def _readable(values: Any, name: str) -> tuple[Any, TargetKind]:
    pa = arrow()
    array = plain(whole(values))
    if is_text(array.type):
        return array, "text"
    if pa.types.is_boolean(array.type):
        return array, "boolean"
    if is_number(array.type) and not pa.types.is_duration(array.type):
        return array, "number"
    if pa.types.is_null(array.type):
        raise ValueError(f"the target column {name!r} has no values; every row needs one")
    raise ValueError(
        f"the target column {name!r} is of the type {array.type}; a target is text, truth values or numbers"
    )


def _refuse_missing(array: Any, name: str) -> None:
    pa, pc = arrow(), compute()
    missing = array.null_count
    if pa.types.is_floating(array.type):
        missing = int(pc.sum(pc.is_null(array, nan_is_null=True)).as_py() or 0)
    elif is_text(array.type):
        missing += int(pc.sum(pc.equal(array, "")).as_py() or 0)
    _refuse_some(missing, len(array), name)


def _refuse_some(missing: int, rows: int, name: str) -> None:
    if missing:
        raise ValueError(
            f"the target column {name!r} is missing in {missing} of {rows} rows; "
            "leave out the rows whose label is not known"
        )


def _as_numbers(array: Any, kind: TargetKind) -> NDArray[Any]:
    if kind != "text":
        return typed_numbers(array)
    pa, pc = arrow(), compute()
    numbers = pc.coalesce(numbers_in_text(array), truths(array).cast(pa.float64()))
    # In float64 the labels 2^53 and 2^53 + 1 would be one.
    text = pc.utf8_trim_whitespace(array)
    exact = as_integers(text, numbers)
    if exact is not None:
        return numbers_from(exact)
    if (pc.max(pc.abs(numbers)).as_py() or 0.0) < 2.0**53:
        return numbers_from(numbers)
    # Beyond 64 bits only Python's numbers are exact. Labels have few distinct texts.
    by_text: dict[str, float | int] = {}
    for written, number in zip(text.to_pylist(), numbers.to_pylist(), strict=True):
        if written not in by_text:
            by_text[written] = np.nan if number is None else _number(written)
    read: NDArray[Any] = np.array([by_text[written] for written in text.to_pylist()], object)
    return read


def _text(value: Any) -> str:
    """Write a target value as text: 1 for 1 and 1.0, True for a truth value, text as it is."""
    if isinstance(value, bool | str):
        return str(value)
    number = float(value)
    if math.isfinite(number) and number == math.floor(number) and abs(number) < 2**53:
        return str(int(number))
    return str(value) if isinstance(value, int) else repr(number)


def _number(text: str) -> float | int:
    """Return the number of a target value that is a truth value or a number; whole numbers stay exact."""
    if text.strip() in (*TRUE, *FALSE):
        return float(text.strip().lower() == "true")
    try:
        return int(text)
    except ValueError:
        return float(text)


def _not_two(counts: dict[str, int], name: str, kind: TargetKind) -> str:
    if len(counts) == 0:
        return f"the target column {name!r} has no rows"
    if len(counts) == 1:
        (value,) = counts
        if kind == "number" and abs(_number(value)) >= 2**53:
            return _equal_in_float64(name, value)
        return (
            f"the target column {name!r} holds only {value!r} in all rows; a model needs rows of both classes"
        )
    common = sorted(counts, key=lambda value: (-counts[value], value))
    seen = ", ".join(repr(value) for value in common[:5]) + (", …" if len(common) > 5 else "")
    advice = (
        "choose a column of two values with --target"
        if len(counts) > 20
        else "make a column of two values of it, or choose another one with --target"
    )
    return f"the target column {name!r} must have two values, but has {len(counts)} ({seen}); {advice}"


def _equal_in_float64(name: str, value: str) -> str:
    return (
        f"the target column {name!r} holds numbers near {value}, which float64 cannot tell apart; "
        "write the labels as 0 and 1"
    )


def _matched(positive: Any, values: list[str], kind: TargetKind, name: str) -> str:
    given = positive.item() if isinstance(positive, np.generic) else positive
    asked = _text(given) if isinstance(given, bool | int | float) else str(given)
    if asked in values:
        return asked
    if kind == "text":
        trimmed = [value for value in values if value.strip() == asked.strip()]
    else:
        wanted = _asked_number(asked)
        trimmed = [value for value in values if wanted is not None and _number(value) == wanted]
    if len(trimmed) == 1:
        return trimmed[0]
    raise ValueError(
        f"the target column {name!r} never holds the positive value {asked!r}; "
        f"its values are {values[0]!r} and {values[1]!r}"
    )


def _asked_number(text: str) -> float | int | None:
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        return _number(text)
    except ValueError:
        return None


def _guessed(counts: dict[str, int], kind: TargetKind) -> tuple[str, str]:
    by_name = {value.strip().lower(): value for value in counts}
    for negative, positive in _PAIRS:
        if set(by_name) == {negative, positive}:
            return by_name[positive], ""
    first, second = sorted(counts, key=lambda value: (counts[value], value))
    if counts[first] == counts[second]:
        # Equally many: the later one in the alphabet, or the larger number.
        first = max(counts, key=(lambda v: v) if kind == "text" else _number)
        return first, f"{first!r} was taken as the positive value; both are equally frequent"
    return first, f"{first!r} was taken as the positive value because it is the rarer one"
