"""The guardian acts when its parent is killed, and only then. No ROS: its job here is to write a file."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crbo_ros.errors import PlantError
from crbo_ros.plants.watchdog import Watchdog, lock_path

HERE = Path(__file__).parent
PARENT = """
import sys, time
from crbo_ros.plants.watchdog import Watchdog
guardian = Watchdog({target!r}, "guardian_job:Write", {{"path": {path!r}}})
guardian.wait_ready()
print("on guard", guardian.pid, flush=True)
{then}
time.sleep(60)
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "guardian_job.py").write_text(
        "from pathlib import Path\n"
        "class Write:\n"
        "    def __init__(self, *, path, say):\n        self.path = path\n"
        "    def __call__(self):\n        Path(self.path).write_text('acted')\n"
        "    def close(self):\n        pass\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(HERE.parents[1])]))
    name = f"test {tmp_path}"
    yield name
    lock_path(name).unlink(missing_ok=True)


def parent(target: Any, path: Path, then: str = "") -> tuple[Any, ...]:
    code = PARENT.format(target=target, path=str(path), then=then)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    words = process.stdout.readline().split()
    assert words[:2] == ["on", "guard"]
    return process, int(words[2])


def gone(pid: Any, timeout: float = 10.0) -> bool:
    """Whether a process that is not our child ends in time."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_acts_when_its_parent_is_killed(target: str, tmp_path: Path, number: Any) -> None:
    process, guardian = parent(target, tmp_path / "file")
    process.send_signal(number)
    process.wait()
    process.stdout.close()
    assert gone(guardian)
    assert (tmp_path / "file").read_text() == "acted"


def test_it_does_nothing_when_it_is_dismissed(target: str, tmp_path: Path) -> None:
    process, guardian = parent(target, tmp_path / "file", then="guardian.dismiss()")
    assert gone(guardian)
    process.kill()
    process.wait()
    process.stdout.close()
    assert not (tmp_path / "file").exists()


def test_signals_to_the_guardian_itself_do_not_end_it(target: str, tmp_path: Path) -> None:
    process, guardian = parent(target, tmp_path / "file")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guardian, number)
    assert not gone(guardian, 0.3)
    process.kill()
    process.wait()
    process.stdout.close()
    assert gone(guardian)
    assert (tmp_path / "file").exists()


def test_one_target_has_one_guardian_at_a_time(target: str, tmp_path: Path) -> None:
    process, _ = parent(target, tmp_path / "file")
    second = Watchdog(target, "guardian_job:Write", {"path": str(tmp_path / "second")})
    with pytest.raises(PlantError, match=f"process {process.pid} on this machine is at work on the same target"):
        second.wait_ready()
    process.kill()
    process.wait()
    process.stdout.close()
    third = Watchdog(target, "guardian_job:Write", {"path": str(tmp_path / "third")})  # waits for the first to end
    third.wait_ready()
    assert (tmp_path / "file").exists()
    third.dismiss()
    assert not (tmp_path / "second").exists()
    assert not (tmp_path / "third").exists()
