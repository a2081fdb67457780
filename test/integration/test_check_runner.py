"""check-runner: the example keeps the protocol, and a planted fault is found and named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("rclpy")
pytestmark = [pytest.mark.ros, pytest.mark.slow]
ROOT = Path(__file__).parents[2]


def test_the_example_keeps_the_protocol_and_a_runner_that_ignores_vetoes_does_not(tmp_path: Path) -> None:
    from crbo_ros.bench.runners import planted
    from crbo_ros.ros.conformance import check

    example = ROOT / "examples" / "own_runner.py"
    wrong, output = check([sys.executable, str(example)], "/kept")
    assert wrong == [], output
    broken = tmp_path / "broken.py"
    broken.write_text(planted(example.read_text(), "moves although it was vetoed"))
    wrong, output = check([sys.executable, str(broken)], "/broken")
    assert any("without a valid approval" in line for line in wrong), (wrong, output)
