"""The reader of the card-fraud table, on small files of its form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from reproduction.fraud.table import read_card_fraud, save_card_fraud


@pytest.fixture
def table():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(50, 28)), columns=[f"V{n}" for n in range(1, 29)])
    frame.insert(0, "Time", np.arange(50.0)[::-1])
    frame["Amount"] = generator.integers(0, 10_000, 50) / 100
    frame["Class"] = (np.arange(50) % 10 == 0).astype(int)
    return pd.concat([frame, frame.iloc[:3]], ignore_index=True)


def test_csv_and_parquet_agree(table, tmp_path):
    table.to_csv(tmp_path / "creditcard.csv", index=False)
    cents = table.drop(columns="Amount").assign(AmountCents=np.round(table["Amount"] * 100).astype("int32"))
    cents.to_parquet(tmp_path / "creditcard.parquet")
    one, two = read_card_fraud(tmp_path / "creditcard.csv"), read_card_fraud(tmp_path / "creditcard.parquet")
    assert np.array_equal(one.X, two.X)
    assert np.array_equal(one.y, two.y)
    assert one.X.dtype == np.float32
    assert one.X.shape == (50, 29)


def test_arrays_are_read_as_they_were_written(table, tmp_path):
    table.to_csv(tmp_path / "creditcard.csv", index=False)
    one = read_card_fraud(tmp_path / "creditcard.csv")
    two = read_card_fraud(save_card_fraud(one, tmp_path / "creditcard.npz"))
    for name in ("X", "y", "seconds"):
        before, after = getattr(one, name), getattr(two, name)
        assert before.dtype == after.dtype
        assert np.array_equal(before, after)
    assert two.duplicates == 3
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        save_card_fraud(one, tmp_path / "creditcard.csv")
    np.savez(tmp_path / "other.npz", X=one.X)
    with pytest.raises(ValueError, match="no array 'y'"):
        read_card_fraud(tmp_path / "other.npz")


def test_rows_are_in_the_order_of_time_and_once(table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    data = read_card_fraud(tmp_path / "a.csv")
    assert data.duplicates == 3
    assert np.array_equal(data.seconds, np.arange(50))
    assert data.y.sum() == 5
    assert data.y[49] == 1
    assert data.X[49, 0] == np.float32(table["V1"][0])
    assert data.X[49, 28] == pytest.approx(np.log1p(table["Amount"][0]))


def test_quoted_header_as_published(table, tmp_path):
    table.assign(Class=table["Class"].map('"{}"'.format)).to_csv(tmp_path / "q.csv", index=False, quoting=3)
    text = (tmp_path / "q.csv").read_text().splitlines()
    text[0] = ",".join(f'"{name}"' for name in text[0].split(","))
    (tmp_path / "q.csv").write_text("\n".join(text))
    assert read_card_fraud(tmp_path / "q.csv").y.sum() == 5


def test_what_is_not_the_table_is_refused(table, tmp_path):
    with pytest.raises(FileNotFoundError, match="no file"):
        read_card_fraud(tmp_path / "absent.csv")
    table.drop(columns="V7").to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(ValueError, match="no column 'V7'"):
        read_card_fraud(tmp_path / "b.csv")
    table.assign(Class=2).to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(ValueError, match="Class must be 0 or 1"):
        read_card_fraud(tmp_path / "c.csv")
    holed = table.copy()
    holed.loc[4, "V3"] = np.nan
    holed.to_parquet(tmp_path / "d.parquet")
    with pytest.raises(ValueError, match="missing value in column 'V3', row 4"):
        read_card_fraud(tmp_path / "d.parquet")
    (tmp_path / "e.csv").write_text("hello\nworld\n")
    with pytest.raises(ValueError, match="not the card-fraud table"):
        read_card_fraud(tmp_path / "e.csv")
