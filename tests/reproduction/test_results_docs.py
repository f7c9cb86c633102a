"""The results pages show what the committed result files say."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import pytest

from reproduction import reproduce
from reproduction.experiments.report import DIGEST_TITLE
from reproduction.journal import read_records

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "results").glob("*-cifar10.md") if "overview" not in page.name)
SUMMARY = ROOT / "docs" / "results.md"
DETAILS = sorted((ROOT / "docs" / "results").glob("*.md"))
NUMBERS = ("none", "one", "two", "three", "four", "five")
DOCS = "\n".join(page.read_text(encoding="utf-8") for page in (SUMMARY, *DETAILS))


def test_there_are_pages():
    names = {page.stem.removesuffix("-cifar10") for page in PAGES}
    assert names >= {"table2", "table4", "minority", "brier", "ablation-c"}
    summary = SUMMARY.read_text(encoding="utf-8")
    assert all(f"](results/{page.name})" in summary for page in DETAILS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_table_in_short_is_the_one_in_the_docs(page):
    text = page.read_text(encoding="utf-8")
    assert f"results/{page.name}" in DOCS
    if DIGEST_TITLE in text:
        table = text.split(DIGEST_TITLE)[1].split("####")[0].strip()
        assert table.count("\n") > 10
        assert table in DOCS


def signs_in_short(name, rivals="the best rival"):
    page = ROOT / "results" / f"{name}-cifar10-verdicts.md"
    text = page.read_text(encoding="utf-8")
    return text.split(f"#### In short, against {rivals}\n")[1].split("####")[0].strip()


@pytest.mark.parametrize("name", ["table2", "deer-horse", "table4"])
def test_the_verdicts_in_short_are_those_in_the_docs(name):
    table = signs_in_short(name)
    assert table.count("\n") > 10
    assert table in DOCS
    assert f"results/{name}-cifar10-verdicts.md" in DOCS


@pytest.mark.parametrize("name", ["fraud.md", "fraud_rivals.md"])
def test_the_fraud_tables_are_those_in_the_docs(name):
    assert (ROOT / "results" / name).read_text(encoding="utf-8").strip() in DOCS


def test_the_overview_is_of_the_journals_and_in_the_docs(tmp_path):
    shutil.copytree(ROOT / "results" / "deep", tmp_path / "deep")
    (page,) = reproduce("overview", tmp_path)
    text = page.read_text(encoding="utf-8")
    assert text == (ROOT / "results" / page.name).read_text(encoding="utf-8")
    summary = SUMMARY.read_text(encoding="utf-8")
    parts = text.strip().split("### ")[1:]
    assert len(parts) == 11
    for part in parts:
        assert part.split("\n\n", 1)[1].strip() in summary


def signs(names, measure, method, *, settings="", epochs="", when=None, rivals="the best rival"):
    """The signs in all cells and epochs, of the rows and columns with these words in their titles."""
    found = []
    for name in names:
        lines = [line for line in signs_in_short(name, rivals).splitlines() if "|" in line]
        rows = [line.strip("| ").split(" | ") for line in lines]
        titles = rows[0]
        for row in rows[2:]:
            cells = dict(zip(titles, [cell.strip() for cell in row]))
            for title in titles[2:]:
                is_wanted = row[0] == measure and (when is None or row[1] in when)
                if is_wanted and settings in title and title.startswith(epochs):
                    of_method = re.search(rf"(?<![+\w]){re.escape(method)} `([^`]*)`", cells.get(title, ""))
                    found += of_method[1].split() if of_method else []
    return [sign for sign in found if sign != "."]


def counted(measure, names, methods=("TBL", "TBL+LA"), **which):
    """How many comparisons there are, in how many it is better, and in how many worse."""
    found = [sign for method in methods for sign in signs(names, measure, method, **which)]
    return len(found), found.count("+"), found.count("-")


def words(path):
    return " ".join(path.read_text(encoding="utf-8").split())


def test_the_counts_of_the_summary_are_those_of_the_signs():
    summary, table2, deer = words(SUMMARY), ("table2",), ("deer-horse",)
    compared, better, worse = counted("AUC", table2, settings="chosen")
    assert (
        f"better than the best rival in {better} of {compared} comparisons and worse in {worse}. [More]"
        in summary
    )
    # Those of TBL at the smallest rho and of TBL+LA at the largest, at full length.
    full = {"settings": "chosen", "epochs": "250"}
    assert better == counted("AUC", table2, **full)[1]
    in_epoch = {"when": ("epoch chosen on validation",), **full}
    assert signs(table2, "AUC", "TBL", **in_epoch) == ["+", "?", "?"]
    assert signs(table2, "AUC", "TBL+LA", **in_epoch) == ["?", "?", "+"]
    compared, better, worse = counted("Accuracy after the link", table2)
    short = counted("Accuracy after the link", table2, settings="paper", epochs="14")
    assert (better - short[1], short[2]) == (0, 0)
    assert f"better than the best rival in {better} of {short[0]} comparisons after 14 epochs" in summary
    assert f"in the other {compared - short[0]} never, and worse in {worse}." in summary
    linked = "Accuracy of the minority after the link"
    compared, better, worse = counted(linked, deer, when=("last epoch", "epoch chosen on validation"))
    assert better == 0
    assert (
        f"better than the best rival in none of {compared} comparisons and worse in {worse}. [More]"
        in summary
    )
    raw = "Brier score of sigmoid(z)"
    compared, better, worse = counted(raw, deer, ("TBL+LA",), rivals="CE+LA")
    assert (
        f"TBL+LA is better in {better} of {compared} comparisons and worse in {worse}, and TBL is" in summary
    )
    assert counted(raw, deer, ("TBL",)) == (compared, 0, compared)
    assert f"TBL is worse than the best rival in all {compared}." in summary


def test_the_counts_of_the_pages_are_those_of_the_signs():
    images, deer = words(ROOT / "docs/results/images.md"), words(ROOT / "docs/results/deer_among_horses.md")
    both, table2, horses = ("table2", "deer-horse"), ("table2",), ("deer-horse",)
    compared, better, worse = counted("AUC", both, settings="chosen")
    assert f"better than the best rival in {NUMBERS[better]} of {compared} comparisons" in images
    parts = [counted("AUC", names, settings="chosen") for names in (table2, horses)]
    told = f"{parts[0][2]} of {parts[0][0]} on Table 2, {parts[1][2]} of {parts[1][0]} of deer among horses"
    assert f"worse in {worse} ({told})" in images
    plain = counted("Accuracy by argmax", both, ("TBL",))
    adjusted = counted("Accuracy by argmax", both, ("TBL+LA",))
    assert f"worse than the best rival in {plain[2]} of {plain[0]} comparisons" in images
    assert f"TBL+LA in {adjusted[2]}, better in {NUMBERS[adjusted[1]]}" in images
    compared, better, worse = counted("Accuracy of the minority after the link", horses)
    assert better == 0
    assert f"better than the best rival in none of {compared} comparisons, worse in {worse}." in deer
    compared, better, worse = counted("Brier score after the link", horses)
    assert better == 1
    assert f"better than the best rival in one of {compared}, worse in {worse}." in deer


def chosen_at_full_length(name, metrics):
    """Rows of the table of numbers, by method, task, rho, metric and epoch."""
    with (ROOT / "results" / f"{name}-cifar10.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["epochs"] == "250" and row["metric"] in metrics]
    return {
        (row["method"], row["task"], row["rho"], row["metric"], row["when"]): row
        for row in rows
        if row["settings"] == "chosen on validation"
    }


def shown(row):
    mean, gap, low, high = (100 * float(row[name]) for name in ("mean", "difference", "low", "high"))
    if row["method"] == "CE+LA":
        return f"{mean:.2f}"
    difference = f"**{gap:+.2f}**" if low > 0 or high < 0 else f"{gap:+.2f}"
    return f"{mean:.2f} ({difference} [{low:+.2f}, {high:+.2f}])"


@pytest.mark.parametrize(
    ("page", "name", "columns", "cells"),
    [
        (
            "images",
            "table2",
            (("roc_auc", "validation"), ("roc_auc", "test"), ("roc_auc", "last")),
            (("halves", "0.01"), ("halves", "0.05"), ("halves", "0.1")),
        ),
        (
            "several_classes",
            "table4",
            (("accuracy_linked", "validation"), ("accuracy_linked", "last"), ("accuracy", "test")),
            (("exponential", "0.01"), ("step", "0.01"), ("exponential", "0.1"), ("step", "0.1")),
        ),
    ],
)
def test_the_tables_of_chosen_rates_at_full_length_are_of_the_numbers(page, name, columns, cells):
    found = chosen_at_full_length(name, {metric for metric, _ in columns})
    methods = dict.fromkeys(method for method, *_ in found)
    assert len(methods) == 9
    assert {(task, rho) for _, task, rho, *_ in found} == set(cells)
    text = (ROOT / f"docs/results/{page}.md").read_text(encoding="utf-8")
    _, text = text.split("## At full length with chosen rates\n")
    for task, rho in cells:
        title = f"| rho {rho} |" if task == "halves" else f"| {task}, rho {rho} |"
        table = text.split(title)[1].split("\n\n")[0]
        for method in methods:
            row = [shown(found[(method, task, rho, *column)]) for column in columns]
            assert f"\n| {' | '.join([method, *row])} |" in table


def test_what_a_larger_rate_gives_is_that_of_the_page():
    """Three times the largest rate: the table, and what is left of TBL's lead, in the docs as on the page."""
    page = (ROOT / "results" / "table2-cifar10.md").read_text(encoding="utf-8")
    _, part = page.split("#### One rate beyond those that were chosen from\n")
    part = part.split("####")[0]
    table = "\n".join(line for line in part.splitlines() if line.startswith("|"))
    assert table.count("\n") == 6
    assert table in (ROOT / "docs/results/images.md").read_text(encoding="utf-8")
    lead = re.search(r"less CE at lr=0.06, ([-+.\d]+) \[([-+.\d]+), ([-+.\d]+)\]", part)
    assert lead is not None
    mean, low, high = map(float, lead.groups())
    assert f"{mean:.1f} [{low:.1f}, {high:+.1f}]" in words(ROOT / "docs/results/images.md")
    assert f"{mean:.1f} [{low:.1f}, {high:.1f}]" in words(SUMMARY)


def test_the_counts_of_c_are_those_of_the_table():
    """The paper's Figure 4: every C above 0 against C = 0, in the epoch best on the test set."""
    with (ROOT / "results" / "ablation-c-cifar10.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["epochs"] == "250" and float(row["C"]) > 0]
    ranked = [row for row in rows if (row["metric"], row["when"]) == ("roc_auc", "test")]
    better = sum(float(row["low"]) > 0 for row in ranked)
    worse = sum(float(row["high"]) < 0 for row in ranked)
    assert (len(ranked), better) == (28, 0)
    pages = [words(page) for page in (SUMMARY, ROOT / "docs/results/deer_among_horses.md")]
    for page in pages:
        assert re.search(rf"[Oo]f {len(ranked)} comparisons \(seven C in four series\)", page)
        assert re.search(f"none ranks better than C = 0 beyond chance and {worse} rank worse", page)

    def difference(metric, when, **which):
        (row,) = [
            row
            for row in rows
            if (row["metric"], row["when"]) == (metric, when)
            and all(
                float(row[name]) == value if name != "method" else row[name] == value
                for name, value in which.items()
            )
        ]
        return tuple(100 * float(row[name]) for name in ("difference_to_C_0", "low", "high"))

    mean, low, high = difference("roc_auc", "test", method="TBL", lr=0.002, C=0.3)
    assert all(f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" in page for page in pages)
    mean, low, high = difference("accuracy_linked", "last", method="TBL", lr=0.002, C=1.5)
    assert f"TBL {mean:+.1f} [{low:.1f}, {high:.1f}] at C = 1.5)" in pages[0]
    assert f"({mean:+.1f} [{low:+.1f}, {high:+.1f}]" in pages[1]


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
