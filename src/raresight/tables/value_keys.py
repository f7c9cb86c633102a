"""Keys of 64 bits that stand for values, so that millions of them can be remembered in little space."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from raresight.tables._arrow import arrow, compute, numbers_from

Keys = NDArray[np.uint64]

# What stands for a missing value among the keys: the bits of NaN.
MISSING = np.float64(np.nan).view(np.uint64)
# Beyond it float64 has no hundredths.
_LARGEST = 2.0**53 / 100


def text_keys(texts: Any) -> Keys:
    """Hash the texts of an Arrow array; missing and empty ones have the key `MISSING`.

    Example:
        >>> import pyarrow as pa
        >>> keys = text_keys(pa.array(["a", "b", "a", None, ""]))
        >>> keys == keys[0], keys == MISSING
        (array([ True, False,  True, False, False]), array([False, False, False,  True,  True]))
    """
    pa = arrow()
    coded = texts.fill_null("").dictionary_encode()
    distinct = coded.dictionary.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
    # Python's own hash differs from process to process.
    hashes = b"".join(
        blake2b(text, digest_size=8).digest() if text else MISSING.tobytes() for text in distinct
    )
    keys: Keys = np.frombuffer(hashes, "<u8")[numbers_from(coded.indices)]
    return keys


def number_keys(numbers: NDArray[Any]) -> Keys:
    """Return the bits of numbers, rounded to two decimals; missing ones have the key `MISSING`.

    A number has one key in float32 and in float64.

    Example:
        >>> bool((number_keys(np.array([0.1, -0.0], np.float32)) == number_keys(np.array([0.1, 0.0]))).all())
        True
    """
    return rounded(numbers).view(np.uint64)


def rounded(numbers: NDArray[Any]) -> NDArray[np.float64]:
    """Round numbers to two decimals; those too large to have any stay as they are."""
    exact = np.asarray(numbers, np.float64)
    with np.errstate(over="ignore"):
        near = np.where(np.abs(exact) < _LARGEST, np.round(exact * 100) / 100, exact)
    near += 0.0  # of the two zeros one stays
    near[np.isnan(near)] = np.nan
    return near


def rare_keys(texts: Any, kept: list[str]) -> bytes:
    """Return the sorted keys of 32 bits of distinct texts, without those kept.

    One new value in 4,000 is taken for a known one where a million are known.
    """
    left_out = texts.filter(
        compute().invert(compute().is_in(texts, value_set=arrow().array(kept, texts.type)))
    )
    return np.unique(_checksums(left_out)).tobytes()


def is_rare(texts: Any, rare: bytes) -> NDArray[np.bool_]:
    """Tell which texts are among those of `rare_keys`."""
    coded = texts.dictionary_encode()
    known = places_in(np.frombuffer(rare, "<u4"), _checksums(coded.dictionary))[1]
    found: NDArray[np.bool_] = known[numbers_from(coded.indices)]
    return found


def _checksums(texts: Any) -> NDArray[np.uint32]:
    # Each batch that is scored waits for this. With BLAKE2 it took twice as long.
    written = texts.cast(arrow().large_string()).cast(arrow().large_binary()).to_pylist()
    return np.fromiter(map(crc32, written), "<u4", len(written))


def places_in(known: NDArray[Any], keys: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Find keys among sorted ones: the place of each, and whether it is there."""
    if len(known) == 0:
        return np.zeros(len(keys), np.intp), np.zeros(len(keys), bool)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return places, known[places] == keys
