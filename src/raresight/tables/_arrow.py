"""Import Arrow, and move its arrays to NumPy without copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray


def arrow() -> Any:
    """Import `pyarrow`; the error names the extra to install."""
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("reading tables needs pyarrow: pip install 'raresight[tables]'") from error
    return pyarrow


def compute() -> Any:
    """Import `pyarrow.compute`."""
    arrow()
    import pyarrow.compute

    return pyarrow.compute


@contextmanager
def naming_column(name: str) -> Iterator[None]:
    """Name the column in what Arrow raises about its values."""
    try:
        yield
    except (arrow().ArrowException, OverflowError) as error:
        raise ValueError(f"column {name!r} holds values that cannot be read") from error


def whole(values: Any) -> Any:
    """Join the chunks of a column to one array."""
    pa = arrow()
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return values


def mask_of(values: Any) -> NDArray[np.bool_]:
    """Convert truth values to NumPy, false where missing."""
    array = whole(values)
    truths = _bits(array.buffers()[1], array)
    return truths & _bits(array.buffers()[0], array) if array.null_count else truths


def missing_of(values: Any) -> NDArray[np.bool_]:
    """Mark the missing values of a column."""
    return mask_of(compute().is_null(whole(values)))


def numbers_from(array: Any) -> NDArray[Any]:
    """Convert integers or floats to NumPy: without a copy, or as floats with NaN where values are missing.

    Arrow's own conversion loads pandas, which takes longer than all other work on a small table.
    """
    dtype = np.dtype(array.type.to_pandas_dtype())
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.full(len(array), np.nan) if len(array) else np.empty(0, dtype)
    numbers: NDArray[Any] = np.frombuffer(
        buffer, dtype, count=len(array), offset=array.offset * dtype.itemsize
    )
    if array.null_count == 0:
        return numbers
    numbers = numbers.astype(dtype if dtype.kind == "f" else np.float64)
    numbers[~_bits(array.buffers()[0], array)] = np.nan
    return numbers


def _bits(buffer: Any, array: Any) -> NDArray[np.bool_]:
    if buffer is None:
        return np.ones(len(array), dtype=bool)
    start, stop = array.offset, array.offset + len(array)
    packed = np.frombuffer(buffer, np.uint8, count=(stop + 7) // 8 - start // 8, offset=start // 8)
    return np.unpackbits(packed, bitorder="little")[start % 8 : start % 8 + len(array)].astype(bool)
