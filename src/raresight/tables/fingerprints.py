"""A number that tells whether two tables are the same."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from raresight.tables._arrow import arrow, mask_of, missing_of, numbers_from
from raresight.tables.text_values import is_text


def fingerprint(table: Any) -> str:
    """SHA-256 of a table's column names, types and values, in order, however it is cut into chunks.

    Text counts as text and a dictionary as the values it stands for, however they are stored.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"a": [1, 2, None]})
        >>> fingerprint(table) == fingerprint(pa.concat_tables([table.slice(0, 1), table.slice(1)]))
        True
        >>> fingerprint(table) == fingerprint(pa.table({"a": [1, 2, 0]}))
        False
    """
    digest = hashlib.sha256()
    digest.update(f"{table.num_rows} {table.num_columns}".encode())
    for name, values in zip(table.schema.names, table.columns, strict=True):
        for text in (name, _type_name(values.type)):
            digest.update(f"{len(text.encode())}:{text}".encode())
        digest.update(_of_values(values))
    return digest.hexdigest()


def _type_name(type_: Any) -> str:
    pa = arrow()
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return "string" if is_text(type_) else str(type_)


def _of_values(values: Any) -> bytes:
    """A digest of a column: of the places of its missing values, the lengths of its texts, and its bytes."""
    pa = arrow()
    content, lengths, missing = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    offset = 0
    for stored in chunks:
        chunk = stored.dictionary_decode() if pa.types.is_dictionary(stored.type) else stored
        if chunk.null_count:
            missing.update((np.flatnonzero(missing_of(chunk)) + offset).astype("<i8").tobytes())
        offset += len(chunk)
        if is_text(chunk.type):
            texts = chunk.cast(pa.large_string()).fill_null("").cast(pa.large_binary())
            if len(texts) == 0:
                continue
            starts = np.frombuffer(texts.buffers()[1], dtype=np.int64)[
                texts.offset : texts.offset + len(texts) + 1
            ]
            lengths.update(np.diff(starts).astype("<i8").tobytes())
            if texts.buffers()[2] is not None:
                content.update(memoryview(texts.buffers()[2])[int(starts[0]) : int(starts[-1])])
        elif pa.types.is_boolean(chunk.type):
            content.update(mask_of(chunk).tobytes())
        elif pa.types.is_integer(chunk.type) or pa.types.is_floating(chunk.type):
            zero = pa.scalar(0, pa.int8()).cast(chunk.type)
            content.update(numbers_from(chunk.fill_null(zero)).tobytes())
        elif (
            pa.types.is_timestamp(chunk.type)
            or pa.types.is_date64(chunk.type)
            or pa.types.is_time64(chunk.type)
        ):
            content.update(numbers_from(chunk.cast(pa.int64()).fill_null(0)).tobytes())
        elif pa.types.is_date32(chunk.type) or pa.types.is_time32(chunk.type):
            content.update(numbers_from(chunk.cast(pa.int32()).fill_null(0)).tobytes())
        else:
            for value in chunk.to_pylist():
                content.update(repr(value).encode() + b"\x00")
    return content.digest() + lengths.digest() + missing.digest()
