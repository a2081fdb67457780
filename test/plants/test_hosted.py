"""The host as a dead man's handle: it acts when its parent's loop falls silent. Its job here is to write a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.safe import Safe
from crbo_ros.errors import PlantError, PlantFailed
from crbo_ros.plants.base import ResetStopped
from crbo_ros.plants.hosted import PlantHost
from crbo_ros.plants.hosted_plant import HostedPlant
from crbo_ros.plants.journal import Journal
from crbo_ros.plants.lock import lock_path

PARENT = """
import time
from crbo_ros.plants.hosted import PlantHost
host = PlantHost({target!r}, "host_job:Write", {{"path": {path!r}}}, patience=2.0)
host.wait_ready()
host.arm()
print("on guard", host.pid, flush=True)
while True:
    host.beat()
    time.sleep(0.02)
"""


def until(condition: Callable[[], Any], timeout: float = 30.0) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "host_job.py").write_text(
        "import time\n"
        "from pathlib import Path\n"
        "from crbo_ros.core.safe import Safe\n"
        "class Write:\n"
        "    def __init__(self, *, path, say):\n        self.path = Path(path)\n"
        "    def command(self, values):\n        pass\n"
        "    def make_safe(self, last):\n        self.path.write_text('acted')\n        return Safe(True, 'acted')\n"
        "    def close(self):\n        pass\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    monkeypatch.setenv("PYTHONPATH", path)
    name = f"test {tmp_path}"
    yield name
    lock_path(name).unlink(missing_ok=True)


def make(target: str, tmp_path: Path, patience: float = 2.0) -> PlantHost:
    host = PlantHost(target, "host_job:Write", {"path": str(tmp_path / "file")}, patience=patience)
    host.wait_ready()
    return host


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_it_acts_when_its_parent_is_killed_or_frozen(target: str, tmp_path: Path, number: Any) -> None:
    code = PARENT.format(target=target, path=str(tmp_path / "file"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        words = process.stdout.readline().split()
        for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(int(words[2]), ignored)  # only the parent's silence counts
        assert not (tmp_path / "file").exists()
        process.send_signal(number)
        assert until((tmp_path / "file").exists)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_loop_that_falls_silent_learns_that_the_host_has_acted(target: str, tmp_path: Path) -> None:
    host = make(target, tmp_path, patience=0.3)
    time.sleep(0.5)
    assert not (tmp_path / "file").exists(), "not armed: nothing was changed that could be put right"
    host.arm()
    assert until((tmp_path / "file").exists)
    with pytest.raises(PlantFailed, match="no fresh command for 300 ms"):  # noqa: PT012
        for _ in range(100):
            time.sleep(0.1)
            host.beat()
    assert host.stop() == Safe(True, "acted")
    host.dismiss()


def test_one_that_is_dismissed_or_disarmed_does_nothing(target: str, tmp_path: Path) -> None:
    host = make(target, tmp_path, patience=0.3)
    host.arm()
    host.disarm(Safe(True, "we did it ourselves"))
    time.sleep(0.6)
    host.dismiss()
    assert not host.alive
    assert not (tmp_path / "file").exists()
    with pytest.raises(PlantFailed, match="is not there"):
        host.arm()


@pytest.mark.slow
def test_a_host_that_is_killed_is_missed_at_the_next_beat(target: str, tmp_path: Path) -> None:
    host = make(target, tmp_path)
    host.arm()
    os.kill(host.pid, signal.SIGKILL)
    with pytest.raises(PlantFailed, match="the plant host is gone"):  # noqa: PT012
        for _ in range(100):
            time.sleep(0.1)
            host.beat()
    assert not host.stop().confirmed


@pytest.mark.slow
def test_one_target_has_one_host_at_a_time(target: str, tmp_path: Path) -> None:
    code = PARENT.format(target=target, path=str(tmp_path / "first"))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("on guard")
    with pytest.raises(PlantError, match=f"process {process.pid} on this machine is at work on the same target"):
        make(target, tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()
    make(target, tmp_path).dismiss()  # waits for the first to end
    assert (tmp_path / "first").exists()


def test_a_journal_outlives_everything_until_it_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRBO_STATE", str(tmp_path))
    assert Journal("/robot").read() is None
    Journal("/robot").write({"/robot": {"kp": 2.0}})
    assert Journal("/robot").read() == {"/robot": {"kp": 2.0}}
    assert Journal("/another").read() is None
    Journal("/robot").path.write_text("{")
    with pytest.raises(PlantFailed, match="cannot be read"):
        Journal("/robot").read()
    Journal("/robot").clear()
    Journal("/robot").clear()
    monkeypatch.setenv("CRBO_STATE", "/proc/nowhere")
    with pytest.raises(PlantFailed, match="nothing is changed"):
        Journal("/robot").write({})


# -- any plant, by one line ----------------------------------------------------------------------------


ROBOT = """
import time
import numpy as np
from pathlib import Path
from crbo_ros.core.safe import Safe
from crbo_ros.plants.base import Plant, ResetStopped
class Robot(Plant):
    rate, is_hardware, joint_names = 50.0, True, ("hip",)
    def __init__(self, path):
        self.path, self.x = Path(path), 0.0
    def connect(self):
        self.write("connected")
    def write(self, word):
        with self.path.open("a") as file:
            file.write(word + "\\n")
    def reset(self, rng):
        self.write("resets")
        self.x = 0.0
        while not self.reset_ready():
            if reason := self.reset_watch(np.zeros(1), np.zeros(1)):
                raise ResetStopped(reason)
            time.sleep(0.01)
        return np.array([self.x])
    def step(self, action):
        time.sleep(0.02)
        self.x += float(action[0])
        return np.array([self.x])
    def stop(self):
        self.write("stopped")
        return Safe(True, f"x = {self.x:g}")
"""


def test_a_third_partys_plant_is_hosted_by_one_line(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "robot.py").write_text(ROBOT)
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = [0]

    def ready() -> bool:
        asked[0] += 1
        return asked[0] > 20

    def words() -> list[str]:
        return (tmp_path / "log").read_text().split()

    def patient(*arguments: Any, **options: Any) -> PlantHost:
        return PlantHost(*arguments, **{**options, "patience": 2.0, "limits": {}})

    plant = HostedPlant("robot:Robot", {"path": str(tmp_path / "log")}, target=target, silence=20.0, make_host=patient)
    with plant:
        plant.reset_ready, plant.reset_watch = ready, lambda *_: None
        assert plant.reset(np.random.default_rng(0)).tolist() == [0.0]
        assert asked[0] > 20
        assert plant.step(np.array([1.5])).tolist() == [1.5]
        assert plant.stop() == Safe(True, "x = 1.5")
        plant.reset_ready, plant.reset_watch = lambda: False, lambda *_: "operator" if words()[-1] == "resets" else None
        with pytest.raises(ResetStopped, match="operator"):
            plant.reset(np.random.default_rng(0))
        assert words()[-1] == "stopped"
        plant.reset_ready, plant.reset_watch = None, None
        plant.reset(np.random.default_rng(0))
        plant.step(np.array([1.0]))
        count = words().count("stopped")
        assert until(lambda: words().count("stopped") > count), "nobody commands it any more: its host stops it"
        with pytest.raises(PlantFailed, match="no fresh command"):
            plant.step(np.array([1.0]))
