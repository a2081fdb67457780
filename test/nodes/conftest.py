"""Real nodes in real processes, each test in a ROS domain of its own, on loopback."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ros_helpers import Ledger, Peer

TOY = Path(__file__).parent / "toy"
PATIENT = {"heartbeat_timeout": 2.0}  # a machine that stalls is not a monitor that died
_domains = itertools.count(os.getpid() % 60)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in Path(item.fspath).parents and "no_ros" not in item.keywords:
            item.add_marker(pytest.mark.ros)


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> int:
    """A domain nobody else in this run uses; loopback only; no shared memory (killed nodes would leave it behind)."""
    pytest.importorskip("rclpy", reason="ROS 2 is not installed")
    pytest.importorskip("crbo_ros.msg", reason="the interfaces are not built; use ./crbo test")
    number = 1 + next(_domains) % 100  # (the ports of domain 102 and above are also handed out by the system)
    monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    monkeypatch.setenv("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(TOY), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(TOY))
    return number


@pytest.fixture
def peer(domain: Any) -> Iterator[Peer]:
    peer = Peer(domain)
    yield peer
    peer.close()


@pytest.fixture
def toy_graph(domain: Any, tmp_path: Path) -> Callable[..., Any]:
    """toy_graph(episodes=5, toy={...}, monitor={...}, ...) -> a Graph that is not entered yet, with a .ledger."""
    from crbo_ros.bringup.graph import NodeSpec
    from crbo_ros.bringup.processes import Graph

    config = tmp_path / "toy.yaml"
    config.write_text("/**:\n  ros__parameters:\n    task: toy\n")

    def make(
        episodes: int = 5,
        runners: int = 1,
        toy: Any = None,
        only: Any = None,
        optimizer: Any = None,
        monitor: Any = None,
        runner: Any = None,
        experiment: str = "toy",
    ) -> Any:
        ledger = tmp_path / f"{experiment}.ledger"
        options = {"ledger": str(ledger), **(toy or {})}
        common = {"experiment": experiment, "experiments_dir": str(tmp_path), "task_options": options}
        names = ["episode_runner"] if runners == 1 else [f"episode_runner_{i}" for i in range(runners)]
        specs = [
            NodeSpec("optimizer", "optimizer", config, {**common, "episodes": episodes, **(optimizer or {})}),
            NodeSpec("safety_monitor", "safety_monitor", config, {**common, **(monitor or {})}),
            *(NodeSpec("episode_runner", n, config, {**common, **PATIENT, **(runner or {})}) for n in names),
        ]
        specs = [spec for spec in specs if only is None or spec.executable in only]
        lines: list[str] = []

        def say(line: str) -> None:
            lines.append(line)
            print(line, file=sys.stderr)

        graph: Any = Graph(specs, say=say)
        graph.said, graph.ledger, graph.folder = lines, Ledger(ledger), tmp_path / experiment
        return graph

    return make
