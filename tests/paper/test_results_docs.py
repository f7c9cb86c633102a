"""The results pages show what the committed result files say."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from raresight.paper import reproduce
from raresight.paper.deep.digest import DIGEST_TITLE

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "results").glob("*-cifar10.md") if "overview" not in page.name)
SUMMARY = ROOT / "docs" / "results.md"
DETAILS = sorted((ROOT / "docs" / "results").glob("*.md"))
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


def signs_in_short(name):
    page = ROOT / "results" / f"{name}-cifar10-verdicts.md"
    text = page.read_text(encoding="utf-8")
    return text.split("#### In short, against the best rival")[1].split("####")[0].strip()


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
    assert len(parts) == 10
    for part in parts:
        assert part.split("\n\n", 1)[1].strip() in summary


def signs(names, measure, method, *, settings="", epochs=""):
    """The signs against the best rival in all cells and epochs, of the columns with these words."""
    found = []
    for name in names:
        rows = [line.strip("| ").split(" | ") for line in signs_in_short(name).splitlines() if "|" in line]
        titles = rows[0]
        for row in rows[2:]:
            cells = dict(zip(titles, [cell.strip() for cell in row]))
            for title in titles[2:]:
                if row[0] == measure and settings in title and title.startswith(epochs):
                    of_method = re.search(rf"(?<![+\w]){re.escape(method)} `([^`]*)`", cells.get(title, ""))
                    found += of_method[1].split() if of_method else []
    return [sign for sign in found if sign != "."]


def test_the_counts_in_words_are_those_of_the_signs():
    both, images = ("TBL", "TBL+LA"), ("table2", "deer-horse")
    counts = {}

    def counted(measure, methods=both, names=images, **columns):
        found = [sign for method in methods for sign in signs(names, measure, method, **columns)]
        return len(found), found.count("+"), found.count("-")

    counts["auc"] = counted("AUC", settings="chosen")
    counts["argmax"] = {method: counted("Accuracy by argmax", (method,)) for method in both}
    counts["linked"] = counted("Accuracy after the link")
    short = counted("Accuracy after the link", names=("table2",), settings="paper", epochs="14")
    counts["minority"] = counted("Accuracy of the minority after the link", names=("deer-horse",))
    counts["brier"] = counted("Brier score after the link", names=("deer-horse",))
    summary = " ".join(SUMMARY.read_text(encoding="utf-8").split())
    all_of, better, worse = counts["auc"]
    assert better == 0
    assert (
        f"better than the best rival in none of {all_of} comparisons and worse in {worse} (after" in summary
    )
    all_of, better, worse = counted("AUC", settings="chosen", epochs="250")
    assert better == 0
    assert f"of deer among horses alone, in none of {all_of} and worse in {worse})" in summary
    all_of, better, worse = counts["argmax"]["TBL+LA"]
    assert f"TBL+LA is better than the best rival in {better} of {all_of} comparisons" in summary
    assert f"and worse in {worse}, TBL worse in {counts['argmax']['TBL'][2]}." in summary
    assert f"the two are better in {short[1]} of {short[0]} short trainings" in summary
    others = [whole - part for whole, part in zip(counts["linked"], short, strict=True)]
    assert others[1] == short[2] == 0
    assert f"of {others[0]} other comparisons none is better and {others[2]} are worse" in summary
    all_of, better, worse = counts["minority"]
    assert better == 0
    assert f"better than the best rival in none of {all_of} comparisons and worse in {worse}." in summary
    all_of, better, worse = counts["brier"]
    assert f"TBL+LA are better than the best rival in {better} of {all_of} and worse in {worse}." in summary
