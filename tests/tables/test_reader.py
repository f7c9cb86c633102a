"""Tables from files: each file is read right, or refused in one clear sentence."""

from __future__ import annotations

import bz2
import gc
import gzip
import lzma
import subprocess
import sys
import zipfile

import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

from raresight.tables import TableWarning, open_batches, read_table

ROWS = "amount,country\n10.5,DE\n,FR\n"
VALUES = {"amount": ["10.5", None], "country": ["DE", "FR"]}
TABLE = pa.table({"amount": [10.5, None, 3.0], "n": [1, 2, 3], "country": ["DE", "FR", None]})


def write(folder, content, name="table.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def values_of(folder, content, **options):
    return read_table(write(folder, content), **options).to_pydict()


def packed_by_arrow(content, codec):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiter_is_told_by_content(tmp_path, delimiter):
    assert values_of(tmp_path, ROWS.replace(",", delimiter)) == VALUES


def test_delimiter_inside_quotes_and_decimal_commas_do_not_mislead(tmp_path):
    text = 'name;price;note\n"a, b";"1";"x,y,z"\n"c, d";"2";"p,q,r"\n'
    assert values_of(tmp_path, text) == {
        "name": ["a, b", "c, d"],
        "price": ["1", "2"],
        "note": ["x,y,z", "p,q,r"],
    }


def test_the_delimiter_may_stand_above_the_header(tmp_path):
    assert values_of(tmp_path, "sep=;\r\n" + ROWS.replace(",", ";")) == VALUES


def test_a_quote_inside_a_field_is_a_character(tmp_path):
    assert values_of(tmp_path, 'a,b\n1,"x"\n2,6" pipe\n') == {"a": ["1", "2"], "b": ["x", '6" pipe']}


def test_quotes_doubled_quotes_and_line_ends_in_fields(tmp_path):
    text = 'a,"b\nc",d\n1,"he said ""no""",x\n2,"two\nlines",y\n'
    read = values_of(tmp_path, text)
    assert read == {"a": ["1", "2"], "b\nc": ['he said "no"', "two\nlines"], "d": ["x", "y"]}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends(tmp_path, end):
    assert values_of(tmp_path, ROWS.replace("\n", end)) == VALUES


@pytest.mark.parametrize(
    "text", [ROWS.rstrip("\n"), "\n\n" + ROWS, ROWS + "\n\n", ROWS.replace("\n", "\n\n")]
)
def test_empty_lines_and_a_missing_last_line_end(tmp_path, text):
    assert values_of(tmp_path, text) == VALUES


def test_in_one_column_an_empty_line_is_a_missing_value(tmp_path):
    assert values_of(tmp_path, "a\n1\n\n3\n") == {"a": ["1", None, "3"]}


def test_byte_order_mark_is_no_part_of_the_first_name(tmp_path):
    assert values_of(tmp_path, b"\xef\xbb\xbf" + ROWS.encode()) == VALUES


def test_utf16_as_spreadsheets_write_it(tmp_path):
    assert values_of(tmp_path, ROWS.replace("DE", "Köln").encode("utf-16"))["country"] == ["Köln", "FR"]


def test_unicode_names_and_values(tmp_path):
    assert values_of(tmp_path, "größe,国\n1,é\n2,😀\n") == {"größe": ["1", "2"], "国": ["é", "😀"]}


def test_latin1_is_read_with_a_warning(tmp_path):
    path = write(tmp_path, "a,b\n1,Köln\n".encode("latin-1"))
    with pytest.warns(TableWarning, match=r"not UTF-8; it was read as Latin-1"):
        assert read_table(path).to_pydict() == {"a": ["1"], "b": ["Köln"]}


def test_a_late_byte_that_is_not_utf8_changes_the_whole_file(tmp_path):
    content = b"a,b\n" + b"1,x\n" * 600_000 + b"2,\xff\n"
    with pytest.warns(TableWarning):
        assert read_table(write(tmp_path, content))["b"][-1].as_py() == "ÿ"


@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        bz2.compress,
        lzma.compress,
        lambda content: packed_by_arrow(content, "zstd"),
        lambda content: packed_by_arrow(content, "lz4"),
        lambda content: gzip.compress(content[:20]) + gzip.compress(content[20:]),
    ],
    ids=["gzip", "bz2", "xz", "zstd", "lz4", "two gzip members"],
)
def test_compression_is_told_by_content_not_by_name(tmp_path, pack):
    path = write(tmp_path, pack(ROWS.encode()), "named_wrongly.csv")
    assert read_table(path).to_pydict() == VALUES
    assert pa.Table.from_batches(open_batches(path)).to_pydict() == VALUES


def test_zip_of_one_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "t.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inner.csv", ROWS)
    assert read_table(tmp_path / "t.zip").to_pydict() == VALUES


def test_columns_are_chosen_in_the_order_asked(tmp_path):
    assert values_of(tmp_path, ROWS, columns=["country"]) == {"country": ["DE", "FR"]}
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(TABLE, path)
    assert read_table(path, columns=["n", "amount"]).column_names == ["n", "amount"]
    with pytest.raises(ValueError, match=r"lacks the column 'nn'"):
        read_table(path, columns=["nn"])


def test_a_name_for_the_column_of_row_numbers(tmp_path):
    assert values_of(tmp_path, ",a\n0,5\n1,6\n") == {"Unnamed: 0": ["0", "1"], "a": ["5", "6"]}


def test_five_thousand_columns(tmp_path):
    names = ",".join(f"a column with a long name {i}" for i in range(5000))
    table = read_table(write(tmp_path, names + "\n" + (",".join(["1.5"] * 5000) + "\n") * 3))
    assert table.shape == (3, 5000)
    assert table["a column with a long name 4999"].to_pylist() == ["1.5"] * 3


# Columns are text; what it means is decided by the schema


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        (["1", "2.50", "-.5", "1e3"], ["1", "2.50", "-.5", "1e3"]),
        (["01234", " 5 "], ["01234", " 5 "]),
        (["True", "NA", "nan", "inf"], ["True", "NA", "nan", "inf"]),
        (["99999999999999999999", "0x1F"], ["99999999999999999999", "0x1F"]),
        (["2024-01-01", "x"], ["2024-01-01", "x"]),
        (["", "x"], [None, "x"]),
        (['""', "x"], [None, "x"]),
    ],
)
def test_text_is_handed_over_as_it_stands(tmp_path, fields, read):
    text = "a,b\n" + "".join(f"{field},1\n" for field in fields)
    assert values_of(tmp_path, text) == {"a": read, "b": ["1"] * len(fields)}


def test_a_value_beyond_any_sample_is_not_cut(tmp_path):
    path = write(tmp_path, "a,b\n" + "12345,1.5\n" * 1_000_000 + 'abc,"2, or 3"\n')
    table = read_table(path)
    assert table.schema.types == [pa.string(), pa.string()]
    assert table.slice(999_999).to_pydict() == {"a": ["12345", "abc"], "b": ["1.5", "2, or 3"]}


def test_parts_of_a_folder_may_have_their_columns_in_another_order(tmp_path):
    write(tmp_path, "a,b\n1,1\n", "part1.csv")
    write(tmp_path, "b,a\n2.5,x\n", "part2.csv")
    assert read_table(tmp_path).to_pydict() == {"a": ["1", "x"], "b": ["1", "2.5"]}


@pytest.mark.parametrize("text", ["a,b\r\n1,2\n3,4\r\n", "a,b\n1,2\r\n3,4\r", 'a,b\r\n1,"2"\n3,4\n'])
def test_line_ends_of_several_kinds(tmp_path, text):
    assert values_of(tmp_path, text) == {"a": ["1", "3"], "b": ["2", "4"]}


@pytest.mark.parametrize(("end", "inner"), [("\r\n", "\n"), ("\n", "\r\n"), ("\n", "\r")])
def test_other_line_ends_inside_quotes_stay(tmp_path, end, inner):
    text = f'a,b{end}1,"x{inner}y"{end}2,z{end}'
    assert values_of(tmp_path, text) == {"a": ["1", "2"], "b": [f"x{inner}y", "z"]}


def test_names_that_differ_in_case_are_different_columns(tmp_path):
    assert values_of(tmp_path, "a,A,c0\n1,2,3\n") == {"a": ["1"], "A": ["2"], "c0": ["3"]}


def test_a_path_that_a_database_would_expand(tmp_path):
    folder = tmp_path / "year=2024 [1]*"
    folder.mkdir()
    assert read_table(write(folder, ROWS, "t?.csv")).to_pydict() == VALUES


def test_text_behind_a_closing_quote_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"row 2 of .* text behind a closing quote"):
        values_of(tmp_path, 'a,b\n1,2\n3,"x"y\n')


def test_nothing_is_left_of_a_temporary_copy(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    path = write(tmp_path, gzip.compress(ROWS.encode()))
    batches = open_batches(path)
    assert len(list((tmp_path / "copies").iterdir())) == 1
    assert pa.Table.from_batches(batches).to_pydict() == VALUES
    del batches
    gc.collect()
    assert list((tmp_path / "copies").iterdir()) == []


# Parquet, Arrow and folders


def ipc_file(table, path):
    with pyarrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def ipc_stream(table, path):
    with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


WRITERS = {
    "parquet": pyarrow.parquet.write_table,
    "arrow file": ipc_file,
    "arrow stream": ipc_stream,
    "feather": pyarrow.feather.write_feather,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_binary_files_are_told_by_content(tmp_path, kind):
    WRITERS[kind](TABLE, tmp_path / "data.bin")
    assert read_table(tmp_path / "data.bin").equals(TABLE)
    assert read_table(str(tmp_path / "data.bin")).equals(TABLE)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_folder_is_read_in_the_order_of_names(tmp_path, kind):
    for name, start in (("b", 1), ("a", 0), ("c", 2)):
        WRITERS[kind](TABLE.slice(start, 1), tmp_path / name)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".hidden").touch()
    assert read_table(tmp_path).equals(TABLE.combine_chunks())


def test_parts_with_types_that_go_together(tmp_path):
    pyarrow.parquet.write_table(pa.table({"a": pa.array([1], pa.int32())}), tmp_path / "1")
    pyarrow.parquet.write_table(pa.table({"a": pa.array([2.5], pa.float64())}), tmp_path / "2")
    assert read_table(tmp_path).to_pydict() == {"a": [1.0, 2.5]}


def test_parts_with_types_that_do_not(tmp_path):
    pyarrow.parquet.write_table(pa.table({"a": [1]}), tmp_path / "1")
    pyarrow.parquet.write_table(pa.table({"a": ["x"]}), tmp_path / "2")
    with pytest.raises(ValueError, match=r"column 'a' is int64 in 1, but string in 2"):
        read_table(tmp_path)


# Refusals


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"  \n\n", r"no content but white space"),
        ("a,b\n", r"column names but no rows"),
        ("a,b", r"column names but no rows"),
        ("1,2\n3,4\n", r"has no header: its first line is '1,2'"),
        ("a,b\n1,2\n3\n", r"row 2 of .* has 1 field, but its header names 2"),
        ("a,b\n1,2\n3,4\n5,6,7\n", r"row 3 of .* has 3 fields, but its header names 2"),
        ('a,b\n1,"x\n2,y\n', r"ends inside a quoted field"),
        ("a,b,a\n1,2,3\n", r"has the column name 'a' more than once"),
        ("a,b,a,b\n1,2,3,4\n", r"has the column names 'a', 'b' more than once"),
        (b"\x00\x01\x02\x03" * 20, r"is a binary file of an unknown format"),
        (b"\x89PNG\r\n\x1a\n", r"is an image; CSV, Parquet, Arrow and SQLite files can be read"),
        (b"<!doctype html><p>not found</p>", r"is an HTML page"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", r"is an old Excel workbook"),
        (b"PAR1PAR1", r"is a Parquet file that is damaged or cut short"),
        (b"ARROW1\x00\x00", r"is an Arrow file that is damaged or cut short"),
        (gzip.compress(ROWS.encode() * 1000, mtime=0)[:40], r"compressed \(gzip\) and damaged or cut short"),
        (lzma.compress(ROWS.encode() * 1000)[:60], r"compressed \(xz\) and damaged or cut short"),
        (b"PK\x03\x04 no archive", r"damaged zip archive"),
        ('{"a": 1}\n{"a": 2}\n', r"is JSON; CSV, Parquet, Arrow and SQLite files can be read"),
        ('[{"a": 1}]', r"is JSON"),
        ("a,b\n1," + "z" * 10_000_000 + "\n", r"has a row of more than 4 MB"),
    ],
)
def test_what_is_no_table_is_refused_with_the_reason(tmp_path, content, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        read_table(write(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_truncated_files(tmp_path):
    for kind, writer in WRITERS.items():
        path = tmp_path / "whole"
        writer(pa.table({"a": list(range(50_000))}), path)
        content = path.read_bytes()
        if kind != "arrow stream":  # a stream may end after any batch
            with pytest.raises(ValueError, match="damaged or cut short") as caught:
                read_table(write(tmp_path, content[: len(content) // 2], "cut"))
            assert "\n" not in str(caught.value)


def test_a_damaged_page_inside_a_parquet_file(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"a": [float(i) for i in range(50_000)]})
    pyarrow.parquet.write_table(table, path, use_dictionary=False, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    content[1000] ^= 0xA5
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="damaged or cut short"):
        read_table(path)
    with pytest.raises(ValueError, match="damaged or cut short"):
        list(open_batches(path))


def test_an_open_quote_in_the_last_row_is_found_whatever_other_quotes_there_are(tmp_path):
    for content in ('a,b\n1,2\n3,"x', 'a,b\n1,6" pipe\n3,"x\n', 'a,b\n1,"y"\n3,"x ""\n'):
        with pytest.raises(ValueError, match=r"row 2 of .* ends inside a quoted field"):
            read_table(write(tmp_path, content))


def test_a_huge_open_quote_is_found(tmp_path):
    with pytest.raises(ValueError, match=r"ends inside a quoted field"):
        read_table(write(tmp_path, b'a,b\n1,"x\n' + b"2,y\n" * 2_000_000))


def test_compressed_parquet_and_archives_of_several_files(tmp_path):
    pyarrow.parquet.write_table(TABLE, tmp_path / "t.parquet")
    packed = write(tmp_path, gzip.compress((tmp_path / "t.parquet").read_bytes()), "t.parquet.gz")
    with pytest.raises(ValueError, match="compressed Parquet or Arrow file; unpack it first"):
        read_table(packed)
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", ROWS)
        archive.writestr("b.csv", ROWS)
    with pytest.raises(ValueError, match="an archive of 2 files"):
        read_table(tmp_path / "two.zip")
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "")
        archive.writestr("xl/workbook.xml", "")
    with pytest.raises(ValueError, match="is an Excel workbook"):
        read_table(tmp_path / "book.xlsx")


def test_duplicate_names_in_binary_files(tmp_path):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([1])], names=["a", "a"])
    for kind in ("arrow file", "arrow stream"):
        WRITERS[kind](table, tmp_path / "t")
        with pytest.raises(ValueError, match="has the column name 'a' more than once"):
            read_table(tmp_path / "t")
    with pytest.raises(ValueError, match="the table has the column name 'a' more than once"):
        read_table(table)


def test_missing_paths_get_a_suggestion(tmp_path):
    write(tmp_path, ROWS, "payments.csv")
    with pytest.raises(FileNotFoundError, match=r"did you mean .*payments\.csv\?"):
        read_table(tmp_path / "payment.csv")
    with pytest.raises(FileNotFoundError, match=r"did you mean .*payments\.csv\?"):
        read_table(tmp_path / "payments")
    with pytest.raises(FileNotFoundError, match=r"its folder .* does not exist"):
        read_table(tmp_path / "nowhere" / "t.csv")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*dangling$"):
        read_table(tmp_path / "dangling")
    with pytest.raises(ValueError, match="the path of the table is empty"):
        read_table("")
    with pytest.raises(FileNotFoundError, match=r"an address, not a path"):
        read_table("https://example.org/t.csv")


def test_folders_that_are_no_table(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="has no data files"):
        read_table(empty)
    differing = tmp_path / "differing"
    differing.mkdir()
    write(differing, "a,b\n1,2\n", "1.csv")
    write(differing, "a,c\n1,2\n", "2.csv")
    with pytest.raises(ValueError, match=r"differ in their columns: 2\.csv lacks 'b', compared with 1\.csv"):
        read_table(differing)
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    write(mixed, ROWS, "1.csv")
    pyarrow.parquet.write_table(TABLE, mixed / "2.parquet")
    with pytest.raises(ValueError, match=r"1\.csv is text, but 2\.parquet is Parquet"):
        read_table(mixed)
    hive = tmp_path / "hive"
    (hive / "year=2024").mkdir(parents=True)
    with pytest.raises(
        ValueError, match="partitioned by folders such as 'year=2024', which is not supported"
    ):
        read_table(hive)
    nested = tmp_path / "nested"
    (nested / "inner").mkdir(parents=True)
    with pytest.raises(ValueError, match="has the folder 'inner' in it"):
        read_table(nested)


def test_a_part_without_rows_is_no_obstacle(tmp_path):
    write(tmp_path, "a,b\n", "1.csv")
    write(tmp_path, "a,b\n1,x\n", "2.csv")
    assert read_table(tmp_path).to_pydict() == {"a": ["1"], "b": ["x"]}
    assert pa.Table.from_batches(open_batches(tmp_path)).to_pydict() == {"a": ["1"], "b": ["x"]}


@pytest.mark.parametrize("library", ["pyarrow", "duckdb"])
def test_a_missing_library_is_named(tmp_path, library):
    path = write(tmp_path, ROWS)
    code = f"import sys; sys.modules[{library!r}] = None\n"
    code += f"from raresight.tables import read_table; read_table({str(path)!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    message = run.stderr.splitlines()[-1]
    assert library in message
    assert "pip install 'raresight[tables]'" in message
