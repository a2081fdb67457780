"""The site is built without a network and a warning, its links lead somewhere, and it fits a phone and a desk."""

from __future__ import annotations

import re
import shutil
from argparse import Namespace
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from blocks import ROOT
from browser import Browser

from crbo_ros.commands import docs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / "docs" / "conf.py").exists(), reason="only in a clone"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    assert docs.run(Namespace(output=str(folder))) == 0
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    profile = tmp_path_factory.mktemp("profile")
    found = Browser(profile)
    yield found
    found.close()
    shutil.rmtree(profile, ignore_errors=True)


def test_every_link_and_picture_of_the_site_is_there_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {page: page.read_text() for page in site.glob("**/*.html")}
    assert len(pages) > 25
    anchors = {page: {*map(unquote, re.findall(r'\bid="([^"]+)"', text))} for page, text in pages.items()}
    for page, text in pages.items():
        for kind, link in re.findall(r'<(\w+)\b[^>]*?\b(?:src|href)="([^"]*)"', text):
            if re.match(r"\w+:", link):
                assert kind == "a" or link.startswith("data:"), f"{page.name}: loads {link}"
                continue
            file, _, anchor = unquote(unescape(link)).partition("#")
            target = (page.parent / file.partition("?")[0]).resolve() if file else page
            assert target.exists(), f"{page.name}: {link} leads nowhere"
            assert not anchor or target not in anchors or anchor in anchors[target], f"{page.name}: no place {link}"


@pytest.mark.parametrize("width", [400, 1400])
def test_no_page_of_the_site_runs_over_the_edge_or_asks_for_anything_elsewhere(
    site: Path, browser: Browser, width: int
) -> None:
    for page in sorted(site.glob("**/*.html")):
        browser.show(page, width)
        asked = [e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"]
        assert not [url for url in asked if not url.startswith(("data:", "file:"))], page.name
        assert browser.evaluate("document.documentElement.scrollWidth") <= width, page.name
        broken = "[...document.images].filter(i => !i.alt || !i.naturalWidth).length"
        assert browser.evaluate(broken) == 0, f"{page.name}: every picture has a label, and could be drawn"
