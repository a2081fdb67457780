"""Every block of the tutorials and how-tos, and one of the README, is run as it stands, and prints what is told."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from blocks import ROOT, Block, Reader, blocks, shows

FAKE_QUBE = Path(__file__).parent / "fake_pal"  # (the page says so)
HOWTO = ROOT / "docs" / "howto"
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("[0-9]*.md"))
PAGES = {
    **{page.stem: [page] for page in TUTORIALS},
    "howto": [HOWTO / "index.md", *sorted(HOWTO.glob("[!i]*.md"))],  # the index makes what the others look at
    "README": [ROOT / "README.md"],
}
pytestmark = [
    pytest.mark.skipif(not (ROOT / "crbo").exists(), reason="only in a clone"),
    pytest.mark.ros,
]


def to_run(name: str) -> list[Block]:
    """What a reader types, in order. Of the README: what shows it at work, and its block about a robot of one's own."""
    found = [block for page in PAGES[name] for block in blocks(page)]
    return [block for block in found if "# leave it running" in block.text] if name == "README" else found


def read(name: str, folder: Path) -> None:
    environment = {"PYTHONPATH": f"{FAKE_QUBE}:{os.environ.get('PYTHONPATH', '')}"} if "qube" in name else {}
    with Reader(folder, **environment) as reader:
        reader.follow(to_run(name))


@pytest.fixture(scope="module")
def reading(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[None]]]:
    """All pages that are asked for, two at a time: most of it is waiting."""
    calls = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    asked = [str(call.params["name"]) for call in calls if call is not None and "name" in call.params]
    with ThreadPoolExecutor(2) as readers:
        yield {name: readers.submit(read, name, tmp_path_factory.mktemp(name)) for name in asked}


@pytest.mark.slow
@pytest.mark.timeout(900)  # (each waits for those before it)
@pytest.mark.parametrize("name", PAGES)
def test_a_reader_who_types_what_the_page_says_sees_what_it_says(name: str, reading: dict[str, Future[None]]) -> None:
    reading[name].result()


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_is_short_and_every_block_of_it_can_be_run(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= 120
    for block in blocks(page):
        assert block.language in ("bash", "text", "python") or block.file, f"{block} cannot be run"
        if block.language == "python":
            compile(block.text, str(block), "exec")


def test_what_is_printed_is_held_against_the_page_number_for_number_and_word_for_word() -> None:
    printed = "[node]: episode 30/30  return -0.9064  best 9e-05  ETA 0:01\npolicy  /home/me/best.json"
    for line in ("episode 1/30  return 0.6  best 0.6  ETA 0:20", "policy .../best.json", "return 1.5 best ..."):
        assert shows(line, printed)
    for line in ("episode one/30", "policy .../worst.json", "return 1.5  ETA", "episode 30/30  return –"):
        assert not shows(line, printed)
