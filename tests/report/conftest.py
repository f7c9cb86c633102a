"""The page of a fit, written once a module and opened in one browser."""

from __future__ import annotations

import pytest

from raresight.report.fit_page import write_fit_page
from report.fit_page_browser import Opened, chromium
from report.fit_page_sample import fit_content, scores


@pytest.fixture(scope="module")
def rows():
    return scores(60_000, 0.005, seed=3)


@pytest.fixture(scope="module")
def content(rows):
    return fit_content(*rows)


@pytest.fixture(scope="module")
def report(content, tmp_path_factory):
    return write_fit_page(content, tmp_path_factory.mktemp("page") / "made" / "report.html")


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def shared(browser, report):
    opened = Opened(browser, report, viewport={"width": 1280, "height": 900})
    yield opened
    assert opened.complaints == []
    opened.context.close()


@pytest.fixture
def page(shared):
    """The shared page with the explorer as it was at the start."""
    for field in ("capacity", "miss-cost", "alert-cost"):
        shared.fill(field, "")
    shared.fill("volume", "100000")
    if shared.page.locator("#reset-prior").is_visible():
        shared.page.click("#reset-prior")
    shared.page.click("#restart")
    return shared
