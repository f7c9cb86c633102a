"""Tables that are already in memory: pandas, polars, and whatever speaks Arrow."""

from __future__ import annotations

import math
from typing import Any

from raresight.tables._arrow import arrow
from raresight.tables.text_files import refuse_repeated_names


def table_of(frame: Any) -> Any:
    """A pandas or polars frame, an Arrow table, record batch or stream, as an Arrow table.

    The index of a pandas frame is left out. A column of mixed values becomes text.

    Raises:
        TypeError: If it is no table.
        ValueError: If two columns have one name.

    Example:
        >>> import pandas as pd
        >>> table_of(pd.DataFrame({"a": [1, 2], "b": ["x", 3]})).to_pydict()
        {'a': [1, 2], 'b': ['x', '3']}
    """
    pa = arrow()
    if isinstance(frame, pa.Table):
        table = frame
    elif isinstance(frame, pa.RecordBatch):
        table = pa.Table.from_batches([frame])
    elif isinstance(frame, pa.RecordBatchReader):
        table = frame.read_all()
    else:
        library = type(frame).__module__.split(".")[0]
        if library == "pandas" and type(frame).__name__ == "DataFrame":
            table = _from_pandas(frame)
        elif library == "polars" and type(frame).__name__ in ("DataFrame", "LazyFrame"):
            table = _from_polars(frame)
        elif hasattr(frame, "__arrow_c_stream__") and not isinstance(frame, type):
            table = pa.table(frame)
        else:
            raise TypeError(
                "a table is a path, a pandas or polars DataFrame or an Arrow table, "
                f"not {type(frame).__name__}"
            )
    refuse_repeated_names(list(table.schema.names), "the table")
    return table


def _from_pandas(frame: Any) -> Any:
    pa = arrow()
    if frame.columns.nlevels > 1:
        raise ValueError("the frame has column names of several levels; join them to one name each")
    names = [str(name) for name in frame.columns]
    refuse_repeated_names(names, "the frame")
    columns = []
    for position in range(len(names)):
        values = frame.iloc[:, position]
        try:
            column = pa.Array.from_pandas(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            column = pa.array([_as_text(value) for value in values], pa.string())
        columns.append(column)
    return pa.table(dict(zip(names, columns, strict=True)))


def _from_polars(frame: Any) -> Any:
    frame = frame.collect() if type(frame).__name__ == "LazyFrame" else frame
    pa = arrow()
    columns = {}
    for name in frame.columns:
        series = frame.get_column(name)
        if str(series.dtype) == "Object":
            columns[name] = pa.array([_as_text(value) for value in series.to_list()], pa.string())
        else:
            columns[name] = series.to_arrow()
    return pa.table(columns)


def _as_text(value: Any) -> str | None:
    """One value of a mixed column; whole numbers without a point, so that 5 and 5.0 are one level."""
    if value is None or value != value:
        return None
    if (
        isinstance(value, float)
        and math.isfinite(value)
        and value == math.floor(value)
        and abs(value) < 2**53
    ):
        return str(int(value))
    text = str(value)
    return None if text in ("NaT", "<NA>") else text
