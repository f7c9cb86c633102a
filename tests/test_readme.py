"""Every Python block of the README and the docs runs, in order, in one namespace a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from raresight.losses import registry

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A loss that a page registers is known on that page alone.
    monkeypatch.setattr(registry, "_KINDS", registry.loss_kinds())
    namespace: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page), 1):
        exec(compile(block, f"{page.name} block {number}", "exec"), namespace)


def test_readme_has_code():
    assert len(blocks(ROOT / "README.md")) >= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
