"""A digest that is equal for equal tables."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from raresight.tables._arrow import arrow, mask_of, missing_of, naming_column, numbers_from
from raresight.tables.text_values import is_text

__all__ = ["Fingerprint", "fingerprint"]


def fingerprint(table: Any) -> str:
    """Compute the SHA-256 of a table's column names, types and values, in order.

    It does not depend on chunks, nor on how text or a dictionary is stored.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"a": [1, 2, None]})
        >>> fingerprint(table) == fingerprint(pa.concat_tables([table.slice(0, 1), table.slice(1)]))
        True
        >>> fingerprint(table) == fingerprint(pa.table({"a": [1, 2, 0]}))
        False
    """
    made = Fingerprint(table.schema)
    made.update(table)
    return made.hexdigest()


class Fingerprint:
    """The fingerprint of a table that is read part by part.

    Args:
        schema: The Arrow schema of the parts.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._rows = 0
        self._columns = [_ColumnDigest() for _ in schema.names]

    def update(self, part: Any) -> None:
        """Add the rows of an Arrow table or record batch."""
        self._rows += part.num_rows
        for digest, name, values in zip(self._columns, self._schema.names, part.columns, strict=True):
            with naming_column(name):
                digest.update(values)

    def hexdigest(self) -> str:
        """Return the fingerprint of all rows so far."""
        digest = hashlib.sha256(f"{self._rows} {len(self._columns)}".encode())
        for field, column in zip(self._schema, self._columns, strict=True):
            for text in (field.name, _type_name(field.type)):
                digest.update(f"{len(text.encode())}:{text}".encode())
            digest.update(column.digest())
        return digest.hexdigest()


def _type_name(type_: Any) -> str:
    pa = arrow()
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return "string" if is_text(type_) else str(type_)


class _ColumnDigest:
    """A digest of the places of a column's missing values, the lengths of its texts, and its bytes."""

    def __init__(self) -> None:
        self._content, self._lengths, self._missing = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
        self._offset = 0

    def digest(self) -> bytes:
        return self._content.digest() + self._lengths.digest() + self._missing.digest()

    def update(self, values: Any) -> None:
        for chunk in values.chunks if isinstance(values, arrow().ChunkedArray) else [values]:
            self._add(chunk)

    def _add(self, stored: Any) -> None:
        pa = arrow()
        chunk = stored.dictionary_decode() if pa.types.is_dictionary(stored.type) else stored
        if chunk.null_count:
            self._missing.update((np.flatnonzero(missing_of(chunk)) + self._offset).astype("<i8").tobytes())
        self._offset += len(chunk)
        if is_text(chunk.type):
            texts = chunk.cast(pa.large_string()).fill_null("").cast(pa.large_binary())
            if len(texts) == 0:
                return
            starts = np.frombuffer(texts.buffers()[1], dtype=np.int64)[
                texts.offset : texts.offset + len(texts) + 1
            ]
            self._lengths.update(np.diff(starts).astype("<i8").tobytes())
            if texts.buffers()[2] is not None:
                self._content.update(memoryview(texts.buffers()[2])[int(starts[0]) : int(starts[-1])])
        elif pa.types.is_boolean(chunk.type):
            self._content.update(mask_of(chunk).tobytes())
        elif pa.types.is_integer(chunk.type) or pa.types.is_floating(chunk.type):
            zero = pa.scalar(0, pa.int8()).cast(chunk.type)
            self._content.update(numbers_from(chunk.fill_null(zero)).tobytes())
        elif (
            pa.types.is_timestamp(chunk.type)
            or pa.types.is_duration(chunk.type)
            or pa.types.is_date64(chunk.type)
            or pa.types.is_time64(chunk.type)
        ):
            self._content.update(numbers_from(chunk.cast(pa.int64()).fill_null(0)).tobytes())
        elif pa.types.is_date32(chunk.type) or pa.types.is_time32(chunk.type):
            self._content.update(numbers_from(chunk.cast(pa.int32()).fill_null(0)).tobytes())
        else:
            for value in chunk.to_pylist():
                self._content.update(repr(value).encode() + b"\x00")
