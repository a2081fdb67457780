"""The report in a real browser: no request, no console error, nothing over the edge, at 400 and at 1,400 px."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser

from crbo_ros.report import write_report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


SCALES = """[...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width)
  .filter(scale => scale > 0)"""
POINTED = """(() => {
  const spot = [...document.querySelectorAll("circle")].filter(c => c.getBoundingClientRect().width)[4];
  spot.scrollIntoView({block: "center"});
  const box = spot.getBoundingClientRect();
  const found = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
  return found.querySelector("title") ? found.querySelector("title").textContent : found.tagName;
})()"""


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    found = Browser(tmp_path / "profile")
    yield found
    found.close()


@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_asked_for_nothing_complains_and_nothing_runs_over_the_edge(
    make_store: Any, browser: Browser, width: int
) -> None:
    html, _ = write_report(make_store(episodes=9, vetoes=(4,), failures=(6,)), trajectories=False)
    browser.show(html, width)
    asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [html.as_uri()]
    said = [e for e in browser.events if e["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
    assert said == []
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    without = "[...document.images].filter(i => !i.alt || !i.naturalWidth).length"
    assert browser.evaluate(without) == 0, "every picture has a label, and could be drawn"
    scales = browser.evaluate(SCALES)
    assert len(scales) == 4, "every panel is there once"
    assert min(scales) >= 1.25, "the smallest letters (8 pt) are at least 10 px high"
    assert browser.evaluate(POINTED).startswith("proposal 4"), "a pointer on the veto sees it"
