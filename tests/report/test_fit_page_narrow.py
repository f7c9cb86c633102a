"""Tables of the page at the width of a desk and of a phone: nothing of weight is hidden."""

from __future__ import annotations

import pytest

from report.fit_page_browser import Opened
from report.fit_page_sample import LONG_LOSS

BOX = """id => {
    const table = document.getElementById(id), box = table.parentElement;
    const right = box.getBoundingClientRect().right + 0.5, left = box.getBoundingClientRect().left - 0.5;
    const cut = [...table.querySelectorAll("tbody td, tbody td *")].filter(e => e.getClientRects().length > 0)
        .filter(e => e.getBoundingClientRect().right > right || e.getBoundingClientRect().left < left);
    return { width: table.scrollWidth, room: box.clientWidth, cut: cut.map(e => e.outerHTML) };
}"""


@pytest.fixture(scope="module", params=[1280, pytest.param(600, marks=pytest.mark.slow), 390, 320])
def narrow(request, browser, report):
    """The page at a width; tests only look at it."""
    opened = Opened(browser, report, viewport={"width": request.param, "height": 844})
    yield opened
    assert opened.complaints == []
    opened.context.close()


@pytest.mark.parametrize("table", ["information-table", "leaders"])
def test_table_shows_all_its_columns(narrow, table):
    assert LONG_LOSS in narrow.page.locator(f"#{table} code").all_text_contents()
    found = narrow.page.evaluate(BOX, table)
    assert found["width"] <= found["room"]
    assert found["cut"] == []


def test_columns_show_examples_and_notes(narrow):
    found = narrow.page.evaluate(BOX, "column-table")
    assert found["width"] <= found["room"]
    assert found["cut"] == []
    row = narrow.page.locator("#column-table tbody tr").nth(3).inner_text()
    assert "-1.3598" in row
    assert "dates read as DD.MM.YYYY" in row


def test_numbers_of_the_information_are_seen_at_any_width(narrow):
    numbers = narrow.page.locator("#information-table tbody tr").last.locator("td.n")
    assert numbers.count() == 3
    for i in range(3):
        assert numbers.nth(i).is_visible()
        box = numbers.nth(i).bounding_box()
        assert box["width"] > 20


def test_candidate_is_a_card_on_a_phone(browser, report):
    opened = Opened(browser, report, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    cells = opened.page.locator("#leaders tbody tr").first.locator("td")
    boxes = {name: cells.nth(i).bounding_box() for i, name in enumerate(("rank", "model", "loss", "auc"))}
    difference = cells.nth(5).bounding_box()
    assert boxes["loss"]["y"] < boxes["auc"]["y"] < difference["y"] < boxes["model"]["y"]
    assert opened.page.locator("#leaders .parameters").first.is_visible()
    label = "e => getComputedStyle(e, '::before').content"
    assert cells.nth(3).evaluate(label) == '"Partial AUC"'
    assert cells.nth(5).evaluate(label) == '"Difference to cross entropy (points)"'
    # The headings still sort.
    seconds = opened.page.locator("#leaders thead th:nth-child(7)")
    seconds.locator("button").tap()
    assert seconds.get_attribute("aria-sort") == "ascending"
    assert (
        opened.page.locator("#leaders tbody tr").first.locator("td").nth(6).get_attribute("data-value")
        == "0.0"
    )
    assert opened.complaints == []
    opened.context.close()
