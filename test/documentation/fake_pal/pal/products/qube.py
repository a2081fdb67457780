"""`pal` for a process that somebody else starts: the simulated card of test/plants/fake_qube.py."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[4] / "plants"))

from fake_qube import FakeCard, install_pal

install_pal(pytest.MonkeyPatch(), FakeCard())
