"""What the page says of the search, of its repetition, of a budget without alerts, and of single things."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from raresight.automl.evaluation import SearchSummary
from raresight.automl.wording import headline, no_alert_note, repeat_note, search_note, search_summary
from raresight.report.fit_measures import curve_of
from raresight.report.fit_page import write_fit_page
from raresight.report.fit_page.html import short_percent
from report.fit_page_browser import Opened
from report.fit_page_sample import held_out_of, model_of, of_outcome


def words(content, tmp_path, section=""):
    """The text of the page, or of one section, without its tags."""
    text = write_fit_page(content, tmp_path / "page.html").read_text(encoding="utf-8")
    body = text[text.index("<main>") : text.index("</main>")]
    if section:
        body = re.search(f'<section id="{section}".*?</section>', body, re.DOTALL)[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", body)).replace("\u00a0", " ")


def test_caption_of_the_leaderboard_explains_its_two_columns(content, tmp_path):
    """Both are of the rows of all folds together, and the difference is to cross entropy with defaults."""
    page = write_fit_page(content, tmp_path / "page.html").read_text(encoding="utf-8")
    section = page[page.index('id="candidates"') : page.index('id="leaders"')]
    (caption,) = re.findall(r'<p class="caption">(.*?)</p>', section, re.DOTALL)
    assert short_percent(content.outcome.options.max_fpr) in caption
    for word in ("out-of-fold", "all folds together", "difference", "with defaults", "by chance", "held-out"):
        assert word in " ".join(caption.split())


@pytest.mark.parametrize(
    ("search", "counted"),
    [
        (SearchSummary(11, 1, 100, 20.0, "interrupted"), "12 of 100 candidates."),
        (SearchSummary(1, 0, None, 2.0, "interrupted"), "1 candidate."),
    ],
)
def test_search_cut_short_is_said_in_the_answer_and_at_the_candidates(content, tmp_path, search, counted):
    note = search_note(search)
    assert note.endswith(counted)
    cut = of_outcome(content, search=search)
    for section in ("answer", "candidates"):
        assert note in words(cut, tmp_path, section)


@pytest.mark.parametrize(
    "whole", [SearchSummary(49, 1, 50, 38.2, "trials"), SearchSummary(49, 1, None, 38.2, "budget")]
)
def test_whole_search_is_summed_up_at_the_candidates_alone(content, tmp_path, whole):
    assert search_note(whole) == ""
    shown = words(of_outcome(content, search=whole), tmp_path)
    assert shown.count(search_summary(whole)) == 1
    assert shown.index(search_summary(whole)) < shown.index("Difference to cross entropy (points)")


def test_repetition_is_promised_only_where_it_holds(content, tmp_path):
    exact = repeat_note(content.outcome.search)
    assert exact in words(content, tmp_path, "reproduce")
    search = SearchSummary(50, 3, None, 60.0, "budget", reproducible=False)
    shown = words(of_outcome(content, search=search), tmp_path, "reproduce")
    assert exact not in shown
    assert "--trials 53" in shown


def roles(content, tmp_path):
    """The places of the leaderboard that have a badge, with its kind."""
    page = write_fit_page(content, tmp_path / "page.html").read_text(encoding="utf-8")
    board = page[page.index('id="leaders"') :]
    board = board[: board.index("</table>")].split("<tr")[2:]
    badges = [re.findall(r'class="badge (\w+)"', row) for row in board]
    return {place: tuple(found) for place, found in enumerate(badges) if found}


def test_every_member_of_a_blend_is_marked_and_so_is_the_baseline(content, tmp_path):
    board = content.outcome.leaderboard
    assert roles(content, tmp_path) == {0: ("winner",), 20: ("baseline",)}
    chosen = [board[place].candidate for place in (0, 3, 40)]
    blended = of_outcome(content, model=model_of("fraud", *chosen))
    assert roles(blended, tmp_path) == {0: ("winner",), 3: ("winner",), 20: ("baseline",), 40: ("winner",)}
    assert "blend of 3 models" in words(blended, tmp_path, "answer")
    # Cross entropy with defaults may be the model itself.
    plain = of_outcome(content, model=model_of("fraud", board[20].candidate))
    assert roles(plain, tmp_path) == {20: ("winner",)}


def test_one_positive_is_one_positive(content, tmp_path):
    outcome = content.outcome
    evaluation = replace(outcome.evaluation, positives=1)
    single = of_outcome(
        replace(content, importance=tuple((f"V{i}", 1 / 21) for i in range(21))),
        held_out=replace(outcome.held_out, evaluation=evaluation),
        profile=replace(outcome.profile, positives=1),
    )
    shown = words(single, tmp_path)
    assert "held-out rows with 1 positive." in shown
    assert shown.count("with 1 positive") == 3
    assert not re.search(r"\b1 positives", shown)
    assert "1 further feature is not shown here." in shown


@pytest.fixture(scope="module")
def silent(content):
    """The highest score is a negative's, so that the budget leaves no alert."""
    y, log_odds = np.repeat([0, 1], [100, 1]), np.append(np.arange(100.0), 50.5)
    changed = of_outcome(content, held_out=held_out_of(y, log_odds))
    return replace(changed, curve=curve_of(y, log_odds), band=())


def test_budget_without_an_alert_is_said_plainly(silent, tmp_path):
    note = no_alert_note(silent.outcome.held_out)
    assert headline(silent.outcome) == note
    for section in ("answer", "explorer"):
        shown = words(silent, tmp_path, section)
        assert shown.replace(" %", "%").count(note) == 1
        assert not re.search(r"\bnan\b", shown, re.IGNORECASE)


def test_explorer_says_that_no_alert_is_raised(browser, silent, tmp_path):
    opened = Opened(browser, write_fit_page(silent, tmp_path / "silent.html"))
    assert opened.text("out-precision-note") == "no alert is raised"
    by_budget = opened.text("no-alert")
    assert "budget" in by_budget
    assert opened.text("out-caught") == "0 of 1 held-out positive"
    opened.fill("budget", "60 %")
    assert opened.text("no-alert") == ""
    assert opened.text("out-precision-note").endswith("is true")
    opened.fill("capacity", "0")
    assert "capacity" in opened.text("no-alert")
    assert opened.text("no-alert") != by_budget
    assert "NaN" not in opened.page.locator("body").inner_text()
    assert opened.complaints == []
    opened.context.close()


def test_both_reliabilities_are_seen_where_they_fall_together(page):
    before, after = page.page.evaluate(
        "document.getElementById('chart-reliability').data"
        ".filter(t => ['sigmoid of the score', 'calibrated'].includes(t.name))"
        ".map(t => ({size: t.marker.size, symbols: t.marker.symbol, colour: t.marker.color}))"
    )
    assert before["size"] >= after["size"] + 5
    assert all(symbol.endswith("-open") for symbol in before["symbols"])
    assert "circle" in after["symbols"]
    assert before["colour"] != after["colour"]
