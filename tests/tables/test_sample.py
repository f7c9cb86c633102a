"""The bundled sample."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from raresight.tables import learn_schema, load_sample, open_batches, read_table, sample_path


def test_the_sample_is_small_and_rare():
    table = load_sample()
    frauds = int(np.sum(table["Class"].to_numpy()))
    assert frauds == 492
    assert frauds / table.num_rows <= 0.01
    assert sample_path().stat().st_size <= 3_000_000
    assert table.column_names == ["Time", *(f"V{number}" for number in range(1, 29)), "Amount", "Class"]
    assert all(table.schema.field(f"V{number}").type == pa.float32() for number in range(1, 29))


def test_rows_are_in_the_order_of_time_and_amounts_are_exact_cents():
    table = load_sample()
    assert (np.diff(table["Time"].to_numpy()) >= 0).all()
    cents = table["Amount"].to_numpy() * 100
    np.testing.assert_allclose(cents, np.round(cents), atol=1e-8)
    steps = table["V1"].to_numpy().astype(np.float64) * 4096
    np.testing.assert_array_equal(steps, np.round(steps))


def test_the_word_sample_stands_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_table("sample").equals(load_sample())
    assert pa.Table.from_batches(open_batches("sample")).equals(load_sample())
    (tmp_path / "sample").write_text("a,b\n1,2\n")
    assert read_table("sample").to_pydict() == {"a": ["1"], "b": ["2"]}


def test_all_columns_are_features():
    table = load_sample()
    schema = learn_schema(table, "Class")
    assert schema.dropped == ()
    assert len(schema.feature_names) == 30
    assert schema.dtype == np.float32
    assert schema.labels(table).sum() == 492


def test_attribution_and_licence_lie_beside_it():
    folder = sample_path().parent
    for name in ("README.md", "LICENSE-card-fraud.txt"):
        text = (folder / name).read_text()
        for word in ("Worldline", "Machine", "Database Contents License", "Dal Pozzolo", "2015"):
            assert word in text
