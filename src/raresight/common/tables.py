"""Reading features: NumPy, pandas, polars and scipy.sparse, with native categories and missing values.

Both boosting libraries take pandas DataFrames with categorical columns as they are, and remember the
categories in their model files. What is done here is what they leave open: polars, columns named categorical
by the caller, and a value at prediction that training did not see, which counts as missing in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from .checks import check_arrow
from .json_values import kind_of_values

# By position, because names may be numbers.
Categories = dict[int, list[Any]]
# Up to here float64 has all whole numbers.
_LARGEST_WHOLE = 2**53


def is_frame(X: Any) -> bool:
    """Return whether X is a table with named columns, of pandas or polars."""
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def is_sparse(X: Any) -> bool:
    """Return whether X is a matrix of scipy.sparse."""
    return bool(sparse.issparse(X))


def known_table(X: Any) -> Any:
    """Convert an Arrow table or batch to a DataFrame, whose names scikit-learn reads; others stay.

    Sparse matrices become CSR with one number per place, after a check of every index. What is masked in a
    masked array is missing: NumPy and scikit-learn would drop the mask.
    """
    if isinstance(X, np.ma.MaskedArray):
        if X.dtype.kind in "buif":
            return np.ma.filled(X.astype(np.promote_types(X.dtype, np.float32)), np.nan)
        return np.ma.filled(X.astype(object), None)
    if is_sparse(X):
        return _sound_rows(X)
    kind = type(X)
    if kind.__module__.startswith("polars") and kind.__name__ == "LazyFrame":
        raise TypeError("X is a polars LazyFrame, which holds no rows yet: pass X.collect()")
    if kind.__module__.startswith("pyarrow") and kind.__name__ in ("Table", "RecordBatch"):
        return _arrow_as_pandas(X)
    return X


def _sound_rows(X: Any) -> Any:
    """Return a sparse matrix by rows, each place once; refuse indices that lead out of it.

    SciPy checks none of them, and the boosters and SciPy's own conversions end the process by a wrong one.
    """
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, but is sparse with the shape {X.shape}")
    wrong = _wrong_places(X)
    if not wrong and X.format != "csr":
        X = X.tocsr()
        wrong = _wrong_places(X)  # of the formats that Python writes
    if wrong:
        raise ValueError(f"X is no sound sparse matrix of the shape {X.shape}: {wrong}")
    if not X.has_canonical_format:
        # Several numbers at one place mean their sum, of which the boosters take one.
        X = X.copy()
        X.sum_duplicates()
    return X


def _wrong_places(X: Any) -> str:
    """Say what is wrong with the indices of a sparse matrix; empty if nothing is."""
    if X.format == "coo":
        stored, lines = len(X.data), zip((X.row, X.col), X.shape)
    elif X.format in ("csr", "csc", "bsr"):
        block = X.blocksize if X.format == "bsr" else (1, 1)
        extents = [size // side for size, side in zip(X.shape, block)]
        major, minor = extents[::-1] if X.format == "csc" else extents
        starts = X.indptr
        if starts.ndim != 1 or starts.dtype.kind not in "iu" or len(starts) != major + 1:
            return f"indptr must hold {major + 1} whole numbers"
        if starts[0] != 0 or (starts[1:] < starts[:-1]).any():
            return "indptr must begin with 0 and never fall"
        stored = int(starts[-1])
        if len(X.data) < stored or len(X.indices) < stored:
            return f"indptr names {stored} numbers, but there are {min(len(X.data), len(X.indices))}"
        lines = zip([X.indices[:stored]], [minor])
    else:
        return ""
    for places, size in lines:
        if places.ndim != 1 or places.dtype.kind not in "iu" or len(places) != stored:
            return f"its indices must be {stored} whole numbers, one for each number that is stored"
        if stored and (places.min() < 0 or places.max() >= size):
            return (
                f"an index is {places.min() if places.min() < 0 else places.max()}, not from 0 to {size - 1}"
            )
    return ""


def read_table(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    categorical: Any = "auto",
    parameter: str = "categorical_feature",
) -> Any:
    """Read X as what estimators take: a float array, a CSR matrix or a pandas DataFrame.

    With `reset` the estimator learns the number and the names of the columns; otherwise they are compared
    with those it knows. NaN, None and null are missing values; infinity in an array is refused. Of a
    DataFrame the columns of `categorical`, as `categorical_columns` takes them, may hold text.
    """
    X = known_table(X)
    if is_frame(X):
        frame = _as_pandas(X)
        if not frame.columns.is_unique:
            twice = frame.columns[frame.columns.duplicated()][0]
            raise ValueError(f"two columns are named {twice!r}: rename one, such as by X.columns = [...]")
        validate_data(estimator, frame, reset=reset, skip_check_array=True)
        _check_frame(frame, set(categorical_columns(frame, categorical, parameter)))
        return frame
    _check_whole_categories(X, categorical, parameter)
    # Whole numbers become float64: LightGBM reads types other than float as float32 and drops digits.
    table: Any = validate_data(
        estimator,
        X,
        reset=reset,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite="allow-nan",
    )
    # LightGBM knows the older of scipy's two kinds of sparse table.
    older: Any = sparse.csr_matrix
    return older(table) if isinstance(table, sparse.sparray) else table


def _check_whole_categories(X: Any, categorical: Any, parameter: str) -> None:
    """Refuse categories of an array that are equal in float64, in which arrays are read."""
    if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in "iu" or not len(X):
        return
    for i in categorical_columns(X, categorical, parameter):
        # The ends, since the absolute value of the smallest number of a type is none of that type.
        if max(-int(X[:, i].min()), int(X[:, i].max())) > _LARGEST_WHOLE:
            raise ValueError(
                f"column {i} of X is categorical and holds whole numbers beyond 2^53, of which float64 would "
                "merge some: pass a DataFrame, or number the categories anew"
            )


def categorical_columns(X: Any, given: Any, parameter: str = "categorical_feature") -> list[int]:
    """Return positions of the categorical columns: those of pandas' type, and those the caller names.

    `given` is "auto" or None (only those of pandas' type), a list of names or positions, or a mask with one
    boolean per column, as in scikit-learn.

    >>> categorical_columns(np.zeros((2, 3)), [False, True, True])
    [1, 2]
    >>> categorical_columns(np.zeros((2, 3)), [0, 2])
    [0, 2]
    """
    names = [str(name) for name in X.columns] if is_frame(X) else None
    found = set()
    if names is not None:
        found = {i for i, dtype in enumerate(X.dtypes) if str(dtype) == "category"}
    if isinstance(given, str):
        if given != "auto":
            raise ValueError(f"{parameter} must be 'auto' or a list of columns, got {given!r}")
        return sorted(found)
    if given is None:
        return sorted(found)
    if not isinstance(given, Iterable):
        raise TypeError(f"{parameter} must be 'auto' or a list of columns, got {given!r}")
    columns = list(given)
    if columns and all(isinstance(column, (bool, np.bool_)) for column in columns):
        if len(columns) != X.shape[1]:
            raise ValueError(
                f"{parameter} is a mask of {len(columns)} booleans, but X has {X.shape[1]} columns: give one "
                "for each of them"
            )
        return sorted(found.union(np.flatnonzero(columns).tolist()))
    for column in columns:
        if isinstance(column, str):
            if names is None or column not in names:
                raise ValueError(f"{parameter}: there is no column named {column!r}")
            found.add(names.index(column))
            continue
        is_number = isinstance(column, Real) and not isinstance(column, (bool, np.bool_))
        if not (is_number and np.isfinite(column) and column == int(column)):
            raise ValueError(
                f"{parameter} must hold names, positions or one boolean per column, but holds {column!r}"
            )
        if not 0 <= column < X.shape[1]:
            raise ValueError(f"{parameter}: there is no column {column}, X has {X.shape[1]}")
        found.add(int(column))
    return sorted(found)


def check_names(X: Any, refused: str, library: str) -> None:
    """Refuse names of columns that the library would answer with an error of its own."""
    if not is_frame(X):
        return
    for name in map(str, X.columns):
        wrong = next((character for character in name if character in refused), None)
        if wrong is not None:
            raise ValueError(
                f"{library} takes no {wrong!r} in the name of a column, as in {name!r}: rename it, such as "
                "X.rename(columns={...})"
            )


def learn_categories(X: Any, columns: Sequence[int], kinds: Sequence[str], library: str) -> Categories:
    """Return the values of each categorical column of a DataFrame, in the order in which they are numbered.

    `kinds` are the types of categories that the library can hold, by the names of `VALUE_KINDS`.
    """
    if not is_frame(X):
        _check_codes(X, columns)
        return {}
    categories = {}
    for i in columns:
        column = X.iloc[:, i]
        kept = column.astype("category").cat.categories.tolist()
        check_categories(kept, str(X.columns[i]), kinds, library)
        categories[i] = kept
    return categories


def check_categories(values: list[Any], column: str, kinds: Iterable[str], owner: str) -> None:
    """Refuse categories that are of none of the kinds `owner` can hold, or of several at once."""
    kind = kind_of_values(values)
    if kind not in kinds:
        raise ValueError(
            f"the categories of column {column!r} are {kind}, {owner} takes {' or '.join(kinds)}: write them "
            "as text, such as X[column].astype('category').cat.rename_categories(str)"
        )


def apply_categories(X: Any, categories: Mapping[int, list[Any]]) -> Any:
    """Return X with the categories of training; a value that training did not see becomes a missing one."""
    if not is_frame(X) or not categories:
        return X
    import pandas  # type: ignore[import-untyped]

    frame = X.copy(deep=False)
    for i, known in categories.items():
        values = frame.iloc[:, i]
        if str(values.dtype) != "category" or values.cat.categories.tolist() != known:
            plain = values.astype(object)
            frame.isetitem(i, pandas.Categorical(plain.where(plain.isin(known), None), categories=known))
    return frame


def _arrow_as_pandas(X: Any) -> Any:
    """Return an Arrow table or batch as a DataFrame, truth values and columns of nulls alone as numbers."""
    import pyarrow as pa

    table = check_arrow(pa.Table.from_batches([X]) if isinstance(X, pa.RecordBatch) else X, "X")
    for place, field in enumerate(table.schema):
        if pa.types.is_boolean(field.type) or pa.types.is_null(field.type):
            numbers = table.column(place).cast(pa.int8()).cast(pa.float64())
            table = table.set_column(place, field.name, numbers)
    return table.to_pandas()


def _as_pandas(X: Any) -> Any:
    """Return a polars DataFrame column by column, pandas unchanged."""
    if type(X).__module__.split(".")[0] != "polars":
        return X
    try:
        import pandas
    except ImportError as error:
        raise ImportError("a polars DataFrame is read through pandas: pip install pandas") from error
    columns: dict[str, Any] = {}
    for column in X.iter_columns():
        kind = str(column.dtype)
        if kind.startswith("Enum"):
            columns[column.name] = pandas.Categorical(
                column.to_list(), categories=list(column.dtype.categories)
            )
        elif kind == "Categorical" or kind.startswith("Categorical("):
            columns[column.name] = pandas.Categorical(column.to_list())
        elif kind == "Boolean":
            columns[column.name] = np.array([np.nan if v is None else float(v) for v in column.to_list()])
        else:
            columns[column.name] = column.to_numpy()
    return pandas.DataFrame(columns)


def _check_frame(frame: Any, categorical: set[int]) -> None:
    if frame.shape[0] == 0:
        raise ValueError(
            f"Found array with 0 sample(s) (shape={frame.shape}) while a minimum of 1 is required."
        )
    if frame.shape[1] == 0:
        raise ValueError(
            f"Found array with 0 feature(s) (shape={frame.shape}) while a minimum of 1 is required."
        )
    wrong = [
        str(name)
        for i, (name, dtype) in enumerate(zip(frame.columns, frame.dtypes))
        if getattr(dtype, "kind", "f") not in "iufb" and i not in categorical
    ]
    if wrong:
        raise ValueError(
            f"column {wrong[0]!r} holds neither numbers nor categories"
            + (f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else "")
            + ": make it numeric or categorical, such as X[column].astype('category')"
        )
    numbers = frame.select_dtypes("number")
    if numbers.shape[1] and np.isinf(numbers.to_numpy(dtype=np.float64, na_value=np.nan)).any():
        raise ValueError("Input X contains infinity: write missing values as NaN")


def _check_codes(X: Any, columns: Sequence[int]) -> None:
    """Refuse categories in an array that are not numbers from 0 on: both libraries need those."""
    for i in columns:
        values = X[:, [i]].toarray() if hasattr(X, "toarray") else X[:, i]
        present = values[~np.isnan(values)]
        if present.size and (present.min() < 0 or np.any(present != np.floor(present))):
            raise ValueError(
                f"categorical column {i} must hold whole numbers from 0 on; pass a DataFrame with "
                "categorical columns for other values"
            )
