"""A browser for the tests of the page, and a page in it that remembers what it did."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager

import pytest

from raresight.automl.evaluation import find_threshold
from raresight.metrics import recall_at_fpr

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
READY = "html[data-charts=ready]"


@contextmanager
def chromium():
    """A headless browser; without one the test is skipped, where CI is set it fails."""
    if not os.environ.get("CI"):
        pytest.importorskip("playwright", reason="playwright is not installed")
        if CHROMIUM is None:
            pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, "chromium must be installed where CI is set"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


class Opened:
    """A page opened from disk, offline, that remembers every complaint and every request."""

    def __init__(self, browser, path, *, before="", ready=READY, **options):
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(offline=True, **options)
        if before:
            self.context.add_init_script(before)
        self.page = self.context.new_page()
        self.page.on("console", lambda m: self.complaints.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("request", lambda r: self.requests.append(r.url))
        self.page.goto(path.as_uri())
        if ready:
            self.page.wait_for_selector(ready, state="attached")

    def text(self, identity):
        return self.page.locator(f"#{identity}").inner_text().replace("\u00a0", " ").replace("\u2212", "-")

    def number(self, identity):
        """The number that an output shows; percentages as shares."""
        shown = self.text(identity).replace(",", "")
        return float(shown[:-2]) / 100 if shown.endswith(" %") else float(shown)

    def state(self):
        return dict(self.page.evaluate("({...document.documentElement.dataset})"))

    def chosen(self):
        """The threshold in full precision."""
        return float(self.state()["threshold"].replace("Infinity", "inf"))

    def slide(self, place):
        self.page.evaluate(
            "v => { const s = document.getElementById('slider'); s.value = v;"
            " s.dispatchEvent(new Event('input', {bubbles: true})); }",
            place,
        )

    def fill(self, identity, text):
        self.page.fill(f"#{identity}", text)

    def marker(self, chart):
        return self.page.evaluate(
            "async id => {"
            " await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));"
            " const trace = document.getElementById(id).data.find(t => t.name === 'operating point');"
            " return [trace.x[0], trace.y[0]]; }",
            chart,
        )

    def visible(self, selector):
        return self.page.locator(selector).evaluate_all(
            "all => all.filter(e => e.getClientRects().length > 0 "
            "&& getComputedStyle(e).visibility !== 'hidden').length"
        )


def agrees(opened, y, log_odds, budget):
    """Everything that the explorer shows at a budget, against raresight.metrics."""
    threshold = find_threshold(y, log_odds, budget).log_odds
    alert = log_odds >= threshold
    assert opened.chosen() == threshold
    assert opened.number("out-recall") == pytest.approx(recall_at_fpr(y, log_odds, budget), rel=5e-3)
    assert opened.number("out-fpr") == pytest.approx(alert[y == 0].mean(), rel=5e-3)
    assert opened.number("out-alerts") == pytest.approx(alert.mean() * 1e5, rel=5e-3)
    if alert.any():
        assert opened.number("out-precision") == pytest.approx(y[alert].mean(), rel=5e-3)
    assert opened.number("out-threshold") == pytest.approx(threshold, abs=6e-5)
    assert opened.text("out-threshold-note").startswith("probability ")
