"""The page of a fit, in a real browser: quiet, small, readable everywhere, safe."""

from __future__ import annotations

import base64
import json
import re
import shlex
from dataclasses import replace

import numpy as np

from raresight.automl.evaluation import find_threshold
from raresight.report.fit_content import Reliability
from raresight.report.fit_measures import curve_of, distribution_of, reliability_of
from raresight.report.fit_page import write_fit_page
from raresight.report.fit_page.page import for_script
from raresight.tables.profile import ColumnProfile, DroppedProfile
from report.fit_page_browser import Opened, agrees
from report.fit_page_sample import FPR, HOSTILE, hostile, of_outcome


def test_opens_without_a_complaint_or_a_request(browser, report):
    opened = Opened(browser, report)
    opened.page.wait_for_timeout(300)
    assert opened.complaints == []
    assert opened.requests == [report.as_uri()]
    # Four charts of the held-out rows and a map for each of the two families.
    assert opened.page.locator(".chart .main-svg .cartesianlayer").count() == 6
    buttons = opened.page.locator(".modebar-btn").evaluate_all("all => all.map(b => b.dataset.title)")
    assert set(buttons) == {"Download plot as a PNG", "Reset axes"}
    assert opened.page.locator(".modebar a[href]").count() == 0
    # The ears are open: the policy of the page refuses a request, and that is a complaint.
    opened.page.evaluate("fetch('https://example.org/').catch(() => {})")
    opened.page.wait_for_timeout(100)
    assert opened.complaints
    opened.context.close()


def test_is_small_enough(content, report):
    assert len(content.curve) > 19_900
    assert len(content.outcome.leaderboard) == 60
    assert report.stat().st_size <= 3_000_000


def luminance(colour):
    channels = np.array([float(v) for v in re.findall(r"[\d.]+", colour)[:3]]) / 255
    linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def luminance_of_hex(colour):
    return luminance(" ".join(str(int(colour[i : i + 2], 16)) for i in (1, 3, 5)))


PAGE_COLOUR = "getComputedStyle(document.body).backgroundColor"
TEXTS = (
    "#answer-head",
    "#answer-head strong",
    ".under",
    ".figures .note",
    ".verdict",
    ".caption",
    "nav a",
    "header p",
    "#cheapest",
    "#restart",
    "#budget",
    "#leaders thead button",
    "#leaders .role .note",
    ".badge.winner",
)


def contrasts(opened):
    """The contrast of some texts with what is behind them."""
    pairs = opened.page.evaluate(
        """all => all.map(selector => {
            const element = document.querySelector(selector);
            let behind = element;
            const see = e => getComputedStyle(e).backgroundColor;
            while (behind.parentElement && /rgba\\(.*, 0\\)/.test(see(behind))) behind = behind.parentElement;
            return [selector, getComputedStyle(element).color, see(behind)];
        })""",
        list(TEXTS),
    )
    found = {}
    for selector, text, behind in pairs:
        bright, dark = sorted((luminance(text), luminance(behind)), reverse=True)
        found[selector] = (bright + 0.05) / (dark + 0.05)
    return found


def test_text_is_readable_on_light(page):
    assert luminance(page.page.evaluate(PAGE_COLOUR)) > 0.8
    assert min(contrasts(page).values()) >= 4.5, contrasts(page)


def test_dark_theme_is_readable_and_the_button_changes_it(browser, report):
    opened = Opened(browser, report, color_scheme="dark")
    assert luminance(opened.page.evaluate(PAGE_COLOUR)) < 0.1
    assert min(contrasts(opened).values()) >= 4.5, contrasts(opened)
    ink = "document.getElementById('chart-roc').layout.font.color"
    assert luminance_of_hex(opened.page.evaluate(ink)) > 0.5
    opened.page.click("#theme")
    assert luminance(opened.page.evaluate(PAGE_COLOUR)) > 0.8
    assert min(contrasts(opened).values()) >= 4.5, contrasts(opened)
    assert luminance_of_hex(opened.page.evaluate(ink)) < 0.1
    opened.page.click("#theme")
    assert luminance(opened.page.evaluate(PAGE_COLOUR)) < 0.1
    assert opened.complaints == []
    opened.context.close()


def test_fits_a_phone(browser, report):
    opened = Opened(browser, report, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390
    wide = opened.page.evaluate(
        "[...document.querySelectorAll('section, .chart, .figures, input, figure, h2, p')]"
        ".filter(e => e.getBoundingClientRect().right > 390.5).map(e => e.id || e.className)"
    )
    assert wide == []
    assert opened.complaints == []
    opened.context.close()


def test_prints_everything_on_white(browser, report):
    opened = Opened(browser, report, color_scheme="dark", viewport={"width": 1280, "height": 900})
    assert opened.visible("#leaders tbody tr") < 60
    opened.fill("budget", "0.5 %")
    shown = opened.text("out-recall")
    opened.page.emulate_media(media="print")
    opened.page.wait_for_timeout(200)
    assert opened.visible("#leaders tbody tr") == 60
    assert opened.visible("#influential-table tbody tr") == 20
    assert opened.visible("#column-table tbody tr") == 30
    assert opened.visible("nav") == opened.visible("#theme") == opened.visible(".more") == 0
    assert opened.text("out-recall") == shown
    assert opened.page.evaluate(PAGE_COLOUR) == "rgb(255, 255, 255)"
    ink = opened.page.evaluate("document.getElementById('chart-roc').layout.font.color")
    assert ink == "#000000"
    opened.page.emulate_media(media="screen")
    pdf = opened.page.pdf(format="A4")
    assert pdf.count(b"/Type /Page\n") >= 4
    assert opened.complaints == []
    opened.context.close()


def test_hostile_names_are_text_and_empty_sections_say_why(browser, content, tmp_path):
    path = write_fit_page(hostile(content), tmp_path / "hostile.html")
    opened = Opened(browser, path)
    opened.page.wait_for_timeout(200)
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("body img").count() == 0
    assert opened.page.title() == f"table: {HOSTILE}"
    for place in ("#leaders code", ".importance th", "#column-table th[scope=row]"):
        assert opened.page.locator(place).first.text_content() == HOSTILE, place
    for place in ("h1", "#answer-head", ".verdict", "#data .pairs"):
        assert HOSTILE in opened.page.locator(place).first.text_content(), place
    assert shlex.quote(HOSTILE) in opened.page.locator("pre code").text_content()
    body = opened.page.locator("body").inner_text()
    assert f"Influence was not computed: {HOSTILE}" in body
    assert "too few for a threshold" in body
    assert opened.complaints == []
    assert opened.requests == [path.as_uri()]
    opened.context.close()


def test_page_with_as_little_as_possible(browser, content, tmp_path):
    y, log_odds = np.array([0, 1, 0]), np.array([0.0, 1.0, 1.0])
    few = reliability_of(y, [0.0, 0.5, 0.5])
    bare = replace(
        content,
        curve=curve_of(y, log_odds),
        band=(),
        reliability=Reliability(few, ()),
        distribution=distribution_of(y, log_odds),
        loss_map=(),
        importance=(),
        information=(),
    )
    profile = replace(bare.outcome.profile, columns=(), dropped=(), warnings=())
    bare = of_outcome(bare, leaderboard=(), influential=(), profile=profile)
    opened = Opened(browser, write_fit_page(bare, tmp_path / "bare.html"))
    # Leaderboard, map of losses, importance, information, influence and columns: each says why it is empty.
    reasons = [text for text in opened.page.locator("p.empty").all_inner_texts() if text]
    assert len(set(reasons)) == len(reasons) == 6
    agrees(opened, y, log_odds, FPR)
    for place in (0, 500, 1000):
        opened.slide(place)
        budget = float(opened.state()["budget"])
        # Whoever allows every false alert gets all rows.
        expected = -np.inf if budget == 1 else find_threshold(y, log_odds, budget).log_odds
        assert opened.chosen() == expected
    assert opened.complaints == []
    opened.context.close()


def test_wide_table_does_not_make_a_big_page(content, tmp_path):
    columns = [
        ColumnProfile(f"column {i} " + "x" * 300, "numeric", missing=0.0, distinct=9, note="y" * 400)
        for i in range(5000)
    ]
    dropped = tuple(DroppedProfile(column.name, "constant") for column in columns)
    profile = replace(content.outcome.profile, columns=tuple(columns), dropped=dropped)
    wide = of_outcome(content, profile=profile)
    path = write_fit_page(wide, tmp_path / "wide.html")
    assert path.stat().st_size <= 3_000_000
    assert "4,700 further columns are not shown here." in path.read_text(encoding="utf-8")


def test_old_browser_still_has_the_answer_the_explorer_and_the_tables(browser, report, rows):
    opened = Opened(
        browser, report, before="delete window.DecompressionStream", ready="html[data-charts=absent]"
    )
    assert "DecompressionStream" in opened.text("no-charts")
    assert opened.visible(".chart") == 0
    opened.fill("budget", "1 %")
    agrees(opened, *rows, 0.01)
    assert opened.visible("#leaders tbody tr") > 5
    assert opened.complaints == []
    opened.context.close()


def test_without_scripts_the_answer_and_the_tables_read(browser, report, content):
    opened = Opened(browser, report, ready=None, java_script_enabled=False)
    body = opened.page.locator("body").inner_text().replace("\u00a0", " ")
    assert body.count(f"{content.outcome.evaluation['recall_at_fpr'].estimate * 100:.1f} %") > 1
    assert "The explorer and the charts need JavaScript." in body
    assert opened.page.locator("#slider").is_visible() is False
    assert opened.page.locator("#leaders tbody tr >> visible=true").count() == 60
    opened.context.close()


def test_leaderboard_sorts_and_opens(page):
    def column(number):
        return page.page.locator(f"#leaders tbody tr td:nth-child({number})").evaluate_all(
            "cells => cells.map(c => c.dataset.value)"
        )

    seconds = page.page.locator("#leaders thead th:nth-child(7)")
    seconds.locator("button").press("Enter")
    assert seconds.get_attribute("aria-sort") == "ascending"
    assert [float(v) for v in column(7)] == sorted(float(v) for v in column(7))
    seconds.locator("button").press("Enter")
    assert [float(v) for v in column(7)] == sorted((float(v) for v in column(7)), reverse=True)
    page.page.locator("#leaders thead th:nth-child(4) button").click()
    scores_first = [v for v in column(4) if v != ""]
    assert column(4)[-5:] == [""] * 5
    assert [float(v) for v in scores_first] == sorted(float(v) for v in scores_first)
    page.page.locator("#leaders thead th:nth-child(1) button").click()
    assert column(1) == [str(i) for i in range(1, 61)]
    # The first twelve, and cross entropy with defaults further down.
    assert page.visible("#leaders tbody tr") == 13
    page.page.click("button[data-more=leaders]")
    assert page.visible("#leaders tbody tr") == 60
    page.page.click("button[data-more=leaders]")
    assert page.visible("#leaders tbody tr") == 13


def test_every_control_can_be_reached_by_the_keyboard_and_has_a_name(page):
    nameless = page.page.evaluate(
        "[...document.querySelectorAll('input, button')]"
        ".filter(e => !(e.labels && e.labels.length) && !e.getAttribute('aria-label'))"
        ".filter(e => !e.textContent.trim())"
        ".map(e => e.outerHTML)"
    )
    assert nameless == []
    assert page.page.locator("main [tabindex]:not([tabindex='0'])").count() == 0
    levels = page.page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert max(np.diff(levels)) <= 1


def test_words_are_plain(page):
    body = page.page.locator("body").inner_text()
    assert "\u2014" not in body
    assert "NaN" not in body
    assert "undefined" not in body
    assert "Infinity" not in body
    captions = page.page.locator("figcaption").all_inner_texts()
    assert len(captions) == 4
    assert all(len(caption) > 40 for caption in captions)


def test_what_the_scripts_read_is_json(content):
    data = json.loads(for_script(content))
    recall = content.outcome.evaluation["recall_at_fpr"]
    own = next(point for point in data["band"] if point["fpr"] == FPR)
    assert (own["recall"], own["low"], own["high"]) == (recall.estimate, recall.low, recall.high)
    assert len(base64.b64decode(data["curve"]["thresholds"])) == 8 * len(content.curve)
