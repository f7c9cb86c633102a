"""The pages of results say what the result files say, and these what the journals say."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from deep_journals import tables
from reproduction import reproduce
from reproduction.docs import PAGES, run, updated
from reproduction.training_records import read_records

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
SUMMARY = ROOT / "docs" / "results.md"
HEAD = "method,rho,mean,difference,low,high\n"
VERDICTS = {name: f"{name}-cifar10-verdicts.md" for name in ("table2", "table4", "deer-horse")}


def answer(command, results=RESULTS):
    text = updated(f"<!--= {command} -->old<!--/-->", results)
    return text.removeprefix(f"<!--= {command} -->").removesuffix("<!--/-->")


def test_there_are_pages():
    names = {page.name for page in PAGES}
    assert names == {"results.md", "images.md", "deer_among_horses.md", "several_classes.md", "card_fraud.md"}
    summary = SUMMARY.read_text(encoding="utf-8")
    assert all(f"](results/{page.name})" in summary for page in PAGES if page != SUMMARY)
    linked = " ".join(page.read_text(encoding="utf-8") for page in PAGES)
    for page in RESULTS.glob("*-cifar10*.md"):
        assert page.name in linked


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_the_result_files_say(page):
    text = page.read_text(encoding="utf-8")
    assert updated(text, RESULTS) == text, "run python -m reproduction docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_result_is_typed(page):
    """Intervals, percentages and tables of numbers stand between markers alone."""
    typed = re.sub(r"<!--= .*?<!--/-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.search(r"\[[-+]?\d[\d.]*, [-+]?\d[\d.]*\]|\d\.\d+ %(?! interval)|\| [-+]?\d", typed)


def test_markers_are_filled_in(tmp_path):
    (tmp_path / "a.csv").write_text(f"{HEAD}CE,0.1,0.5,,,\nTBL,0.1,0.52,0.02,0.01,0.03\n")
    (tmp_path / "a.md").write_text(
        "#### One\n\n| task | method | AUC |\n|---|---|---|\n"
        "| a | CE | 50.0 |\n|  | TBL | 52.0 (**+2.0** [+1.0, +3.0]) |\n"
    )
    assert answer("mean a.csv method=CE", tmp_path) == "50.0"
    assert answer("difference a.csv method=TBL rho=0.1", tmp_path) == "+2.0 [+1.0, +3.0]"
    assert answer("cell a.md One AUC task=a method=CE", tmp_path) == "50.0"
    table = answer("table a.md One", tmp_path)
    assert table.startswith("\n\n| task | method | AUC |")
    assert table.endswith("(**+2.0** [+1.0, +3.0]) |\n\n")
    page = f"x <!--= mean a.csv method=CE --><!--/--> y\n\n<!--= table a.md One -->{table}<!--/-->\n"
    filled = updated(page, tmp_path)
    assert filled == page.replace("--><!--/--> y", "-->50.0<!--/--> y")
    assert updated(filled, tmp_path) == filled


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("median a.csv", "unknown command 'median'"),
        ("mean absent.csv", "No such file"),
        ("mean a.csv method=VS", "no row has method=VS"),
        ("mean a.csv rho=0.1", "2 rows have rho=0.1"),
        ("mean a.csv epoch=1", "no column 'epoch'"),
        ("table a.md Two", "no title 'Two'"),
        ("count some a.csv", "count better, worse or all"),
    ],
)
def test_a_marker_without_an_answer_is_an_error(tmp_path, command, words):
    (tmp_path / "a.csv").write_text(f"{HEAD}CE,0.1,0.5,0,0,0\nTBL,0.1,0.52,0,0,0\n")
    (tmp_path / "a.md").write_text("#### One\n")
    with pytest.raises(ValueError, match=f"the marker '{re.escape(command)}' has no answer.*{words}"):
        answer(command, tmp_path)


def test_counted_differences_are_beyond_chance_and_large_enough(tmp_path):
    rows = ("0.002,0.001,0.003", "0.0005,0.0001,0.0009", "0.002,-0.001,0.005", "-0.002,-0.003,-0.001")
    (tmp_path / "a.csv").write_text(
        "metric,difference,low,high\n" + "".join(f"roc_auc,{row}\n" for row in rows)
    )
    counts = [answer(f"count {which} a.csv metric=roc_auc", tmp_path) for which in ("all", "better", "worse")]
    assert counts == ["4", "1", "1"]


def test_the_command_changes_nothing_that_is_up_to_date(tmp_path):
    assert run(RESULTS) == []


@pytest.mark.parametrize(
    ("file", "rivals", "methods", "where", "expected"),
    [
        ("table2", "the best rival", "TBL|TBL+LA", ["measure=AUC", "settings=chosen*"], (36, 5, 6)),
        ("table2", "the best rival", "TBL|TBL+LA", ["measure=Accuracy after the link"], (60, 7, 13)),
        ("table2", "the best rival", "TBL", ["measure=Accuracy by argmax"], (30, 0, 29)),
        (
            "deer-horse",
            "the best rival",
            "TBL|TBL+LA",
            ["measure=Accuracy of the minority after*"],
            (60, 0, 25),
        ),
        ("deer-horse", "the best rival", "TBL", ["measure=Brier score of sigmoid(z)"], (30, 0, 30)),
        ("deer-horse", "CE+LA", "TBL+LA", ["measure=Brier score of sigmoid(z)"], (30, 2, 9)),
        ("deer-horse", "the best rival", "TBL|TBL+LA", ["measure=Brier score after the link"], (60, 1, 25)),
    ],
)
def test_comparisons_are_counted(file, rivals, methods, where, expected):
    """Better and worse of all, as the tables in short show them by signs."""
    conditions = " ".join(f'"{one}"' for one in where)
    found = [
        answer(f'signs {which} {VERDICTS[file]} "{rivals}" "{methods}" {conditions}')
        for which in ("all", "better", "worse")
    ]
    assert tuple(map(int, found)) == expected


def test_every_c_is_compared_with_none():
    where = "ablation-c-cifar10.csv epochs=250 metric=roc_auc when=test C=0.15|0.3|0.5|0.75|1.0|1.25|1.5"
    assert [answer(f"count {which} {where}") for which in ("all", "better", "worse")] == ["28", "0", "8"]


def test_the_overview_is_of_the_journals(tmp_path):
    shutil.copytree(RESULTS / "deep", tmp_path / "deep")
    (page,) = reproduce("overview", tmp_path)
    assert page.read_bytes() == (RESULTS / page.name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table2", "table4", "minority", "brier", "ablation-c"])
def test_the_committed_tables_are_of_the_journals(name, tmp_path):
    shutil.copytree(RESULTS / "deep", tmp_path / "deep")
    for path in tables(name, tmp_path):
        assert path.read_bytes() == (RESULTS / path.name).read_bytes()


@pytest.mark.slow
def test_the_committed_tables_of_fraud_are_of_the_journal(tmp_path):
    shutil.copytree(RESULTS / "deep", tmp_path / "deep")
    for path in RESULTS.glob("fraud*"):
        shutil.copy(path, tmp_path)
    written = reproduce(
        "fraud", tmp_path, families=["linear", "xgboost", "lightgbm", "deep"], results_only=True
    )
    for path in written:
        if path.suffix not in (".svg", ".png"):
            assert path.read_bytes() == (RESULTS / path.name).read_bytes()


@pytest.mark.parametrize(
    "journal", sorted((ROOT / "results" / "deep").glob("*-cifar10.jsonl.xz")), ids=lambda path: path.name
)
def test_every_committed_net_says_how_it_was_trained(journal):
    records = read_records(journal)
    assert len(records) > 300
    for record in records.values():
        trial, recipe, curve = record["trial"], record["recipe"], record["curve"]
        assert all(record[name] for name in ("loss", "class_counts", "device", "versions", "date", "stack"))
        assert (recipe["epochs"], recipe["momentum"], recipe["batch"]) == (trial["epochs"], 0.9, 128)
        assert (record["precision"], record["clip"]) == ("bf16", 5.0)
        # A search is judged after its last epoch.
        judged = [trial["epochs"]] if trial["role"] == "search" else list(range(1, trial["epochs"] + 1))
        assert curve["epoch"] == judged
        assert all(len(values) == len(judged) for values in curve.values())
