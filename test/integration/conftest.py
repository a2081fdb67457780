"""A ROS domain for each test, processes that end with it, and the parameters of a running node."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
_count = itertools.count()


@pytest.fixture(scope="module")
def domain() -> Iterator[int]:
    """A ROS domain of this module's own, set in the environment of this process and of what it starts."""
    pytest.importorskip("rclpy")
    patch = pytest.MonkeyPatch()
    patch.setenv("ROS_DOMAIN_ID", str(20 + (7 * os.getpid() + next(_count)) % 80))
    patch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    patch.setenv("FASTDDS_BUILTIN_TRANSPORTS", "UDPv4")  # killed processes would leave shared memory behind
    yield int(os.environ["ROS_DOMAIN_ID"])
    patch.undo()


class Running:
    """A process of ours with its output in a file."""

    def __init__(self, command: Any, log: Any) -> None:
        self.log = log
        with open(log, "w") as out:
            self.popen = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    @property
    def output(self) -> str:
        return Path(self.log).read_text()

    def wait_for(self, text: str, timeout: float = 90.0) -> None:
        assert until(lambda: text in self.output or self.popen.poll() is not None, timeout), self.output
        assert text in self.output, self.output

    def end(self, number: Any = signal.SIGINT, timeout: float = 60.0) -> Any:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            return self.popen.wait()


def until(condition: Callable[[], Any], timeout: float, pause: float = 0.05) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(pause)
    return False


@pytest.fixture(scope="module")
def start(domain: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """start("examples/pid_plant.py", ...): a Python script as a process that ends with the module's tests."""
    running = []

    def begin(*command: Any, interpreter: bool = True) -> Any:
        log = tmp_path_factory.mktemp("log") / "output.txt"
        words = [sys.executable, *map(str, command)] if interpreter else list(map(str, command))
        running.append(Running(words, log))
        return running[-1]

    yield begin
    for process in reversed(running):
        process.end()


@pytest.fixture(scope="module")
def values(domain: int) -> Iterator[Callable[..., Any]]:
    """values(node, names): what a node's parameters are now."""
    from crbo_ros.plants.ros.parameters import read
    from crbo_ros.ros.link import RosLink

    link = RosLink("look")
    link.open()
    yield lambda node, names: [value for _, value in read(link, {node: list(names)})[node].values()]
    link.close()
