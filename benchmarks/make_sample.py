"""Make the sample of card payments that is bundled with the package, from the full table.

All 492 frauds and 48,708 genuine payments drawn at random, so that fraud is 1 in 100, in the original order.
To keep the file below 3 MB the components V1 to V28 are rounded to multiples of 1/4096 (an error of at most
0.00012, where their standard deviations are 0.33 to 1.96); times, amounts and classes are exact.

    python benchmarks/make_sample.py creditcard.parquet
        [--out src/raresight/tables/sample/card_fraud_sample.parquet]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from raresight.tables import read_table

COMPONENTS = tuple(f"V{number}" for number in range(1, 29))
STEP = 2.0**-12
GENUINE = 48_708
LARGEST = 3_000_000
BUNDLED = Path(__file__).parent.parent / "src/raresight/tables/sample/card_fraud_sample.parquet"


def sample(table: pa.Table) -> pa.Table:
    """The rows of the sample, in the order of the table, with its columns as they are bundled."""
    is_fraud = table["Class"].to_numpy() == 1
    drawn = np.random.default_rng(0).choice(np.flatnonzero(~is_fraud), GENUINE, replace=False)
    rows = table.take(pa.array(np.sort(np.concatenate([np.flatnonzero(is_fraud), drawn]))))
    euros = (
        rows["AmountCents"].to_numpy() / 100
        if "AmountCents" in rows.column_names
        else rows["Amount"].to_numpy()
    )
    components = {
        name: (np.round(rows[name].to_numpy().astype(np.float64) / STEP) * STEP).astype(np.float32)
        for name in COMPONENTS
    }
    return pa.table(
        {
            "Time": rows["Time"].to_numpy().astype(np.int32),
            **components,
            "Amount": euros.astype(np.float64),
            "Class": rows["Class"].to_numpy().astype(np.int8),
        }
    )


def write(table: pa.Table, path: Path) -> None:
    """Each column in the encoding that makes it smallest."""
    encodings = {"Time": "DELTA_BINARY_PACKED", **dict.fromkeys(COMPONENTS, "BYTE_STREAM_SPLIT")}
    pyarrow.parquet.write_table(
        table,
        path,
        compression="zstd",
        compression_level=22,
        use_dictionary=["Amount", "Class"],
        column_encoding=encodings,
        row_group_size=len(table),
        data_page_size=1 << 22,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path, help="the full table, creditcard.csv or its Parquet form")
    parser.add_argument("--out", type=Path, default=BUNDLED)
    options = parser.parse_args()
    drawn = sample(read_table(options.table))
    write(drawn, options.out)
    size = options.out.stat().st_size
    frauds = int(drawn["Class"].to_numpy().sum())
    print(f"{options.out}: {len(drawn)} rows, {frauds} frauds, {size} bytes")
    if size > LARGEST:
        raise SystemExit(f"larger than {LARGEST} bytes")


if __name__ == "__main__":
    main()
