"""The results page shows what the committed result files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from raresight.paper.deep.digest import DIGEST_TITLE

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "results").glob("*-cifar10.md"))


def test_there_are_pages():
    names = {page.stem.removesuffix("-cifar10") for page in PAGES}
    assert names >= {"table2", "table4", "minority", "brier", "ablation-c"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_table_in_short_is_the_one_in_the_docs(page):
    text = page.read_text(encoding="utf-8")
    docs = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"results/{page.name}" in docs
    if DIGEST_TITLE in text:
        table = text.split(DIGEST_TITLE)[1].split("####")[0].strip()
        assert table.count("\n") > 10
        assert table in docs


@pytest.mark.parametrize("name", ["table2", "deer-horse", "table4"])
def test_the_verdicts_in_short_are_those_in_the_docs(name):
    page = ROOT / "results" / f"{name}-cifar10-verdicts.md"
    table = (
        page.read_text(encoding="utf-8").split("#### In short, against the best rival")[1].split("####")[0]
    )
    docs = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert table.count("\n") > 10
    assert table.strip() in docs
    assert f"results/{page.name}" in docs


@pytest.mark.parametrize("name", ["fraud.md", "fraud_rivals.md"])
def test_the_fraud_tables_are_those_in_the_docs(name):
    text = (ROOT / "results" / name).read_text(encoding="utf-8").strip()
    assert text in (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
