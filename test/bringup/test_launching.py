"""`ros2 launch`: the dead come back a few times, the refused do not, and the launch ends with its last runner.

Needs launch and launch_ros, which ROS 2 brings.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("launch.actions", reason="launch is not installed")
pytest.importorskip("launch_ros.actions", reason="launch_ros is not installed")

TOY = Path(__file__).parents[1] / "nodes" / "toy"
LAUNCH = """
import sys
from launch import LaunchDescription, LaunchDescriptionSource, LaunchService
from launch.actions import IncludeLaunchDescription
from crbo_ros.bringup.launching import describe
arguments = [word.split(":=", 1) for word in sys.argv[1:]]
service = LaunchService(noninteractive=True)
included = IncludeLaunchDescription(LaunchDescriptionSource(describe("toy")), launch_arguments=arguments)
service.include_launch_description(LaunchDescription([included]))
sys.exit(service.run())
"""
# Stands for the installed executables: says who it is, and does as the real ones do.
EXECUTABLE = f"""#!{sys.executable}
import os, sys
print("STARTED", sys.argv[0].rsplit("/", 1)[-1], os.getpid(), os.environ.get("CRBO_KEY"), os.environ["CRBO_PARENT"],
      flush=True)
from crbo_ros.nodes.__main__ import start
start(sys.argv[0].rsplit("/", 1)[-1])
"""


class Launched:
    """A launch in a process of its own, and what its nodes said."""

    def __init__(self, folder: Path, **arguments: str) -> None:
        prefix = folder / "prefix"
        (prefix / "lib" / "crbo_ros").mkdir(parents=True)
        (prefix / "share" / "ament_index" / "resource_index" / "packages").mkdir(parents=True)
        (prefix / "share" / "ament_index" / "resource_index" / "packages" / "crbo_ros").touch()
        for name in ("optimizer", "safety_monitor", "episode_runner"):
            executable = prefix / "lib" / "crbo_ros" / name
            executable.write_text(EXECUTABLE)
            executable.chmod(0o755)
        path = [str(TOY), os.environ.get("PYTHONPATH", "")]
        prefixes = [str(prefix), os.environ.get("AMENT_PREFIX_PATH", "")]
        options = json.dumps({"ledger": str(folder / "ledger"), "seconds": 0.3})
        given = {"experiments_dir": str(folder), "task_options": options, **arguments}
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "ROS_LOG_DIR": str(folder / "log")}
        environment |= {"AMENT_PREFIX_PATH": os.pathsep.join(prefixes), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
        environment |= {"ROS_DOMAIN_ID": str(1 + os.getpid() % 100)}
        self.output = folder / "output"
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, *(f"{name}:={value}" for name, value in given.items())],
            stdout=self.output.open("w"), stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip

    def started(self, name: str = "") -> list[list[str]]:
        """(name, pid, key, parent) of each start of a node."""
        found = [line.split("STARTED ")[1].split(" ") for line in self.said().splitlines() if "STARTED" in line]
        return [words for words in found if name in words[0]]

    def said(self) -> str:
        return self.output.read_text()

    def wait_until(self, condition: Any, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(30.0)
            finally:
                self.process.kill()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Any]:
    launched: list[Launched] = []

    def start(**arguments: str) -> Launched:
        launched.append(Launched(tmp_path, **arguments))
        return launched[-1]

    yield start
    for each in launched:
        each.end()


def test_a_killed_monitor_comes_back_and_the_run_ends_the_launch(launch: Any, tmp_path: Path) -> None:
    launched = launch(episodes="8", evaluate="0")
    launched.wait_until(lambda: (tmp_path / "ledger").exists())
    os.kill(int(launched.started("safety_monitor")[0][1]), signal.SIGKILL)
    launched.wait_until(lambda: launched.process.poll() is not None)
    assert len(launched.started("safety_monitor")) == 2
    assert "safety_monitor died (exit code -9); it is started again (1 of 5)" in launched.said()
    assert "all runners have ended" in launched.said()
    assert launched.process.returncode == 0
    said = launched.said()
    assert all(f"episode {n}/8  proposal" in said for n in range(1, 9))
    assert "namespace /toy_" in said  # never the root, where a robot's own names live
    assert said.index("process has finished cleanly") < said.index("episodes   8, average return")
    assert list(tmp_path.glob("*/report.html"))
    ends = [line for line in (tmp_path / "ledger").read_text().splitlines() if '"end"' in line]
    assert len(ends) == 8
    keys = {name: {words[2] for words in launched.started(name)} for name in ("optimizer", "monitor", "runner")}
    assert keys["optimizer"] == {""}
    assert len(keys["monitor"]) == 1
    assert keys["monitor"] == keys["runner"] != {""}
    assert {words[3] for words in launched.started()} == {str(launched.process.pid)}
    assert not list(tmp_path.glob("*/operator.key")), "the key goes with the graph"


def test_a_node_that_is_refused_is_not_started_again_and_ends_the_launch(launch: Any, tmp_path: Path) -> None:
    (tmp_path / "experiment.sqlite").mkdir()  # where its store should be
    launched = launch(experiments_dir=str(tmp_path.parent), experiment=tmp_path.name)
    launched.wait_until(lambda: launched.process.poll() is not None)
    assert len(launched.started("optimizer")) == 1
    assert "optimizer has ended (exit code 1)" in launched.said()
    assert launched.process.returncode == 1


def test_what_is_wrong_with_the_arguments_is_said_once_before_anything_starts(launch: Any) -> None:
    launched = launch(gamma="7.0")
    launched.wait_until(lambda: launched.process.poll() is not None)
    assert launched.process.returncode == 1
    assert launched.started() == []
    assert launched.said().count("gamma: 7.0 is out of range") == 1


def test_a_misspelt_argument_is_refused_although_launch_itself_takes_any(launch: Any) -> None:
    launched = launch(epsiodes="5")
    launched.wait_until(lambda: launched.process.poll() is not None)
    assert (launched.process.returncode, launched.started()) == (1, [])
    assert launched.said().count("there is no argument epsiodes; is episodes meant?") == 1


def test_nothing_is_started_again_once_the_launch_shuts_down(launch: Any, tmp_path: Path) -> None:
    launched = launch(episodes="100")
    launched.wait_until(lambda: (tmp_path / "ledger").exists())
    os.kill(int(launched.started("optimizer")[0][1]), signal.SIGKILL)
    launched.wait_until(lambda: "it is started again" in launched.said())
    launched.end()
    assert len(launched.started("optimizer")) == 1
    assert "SIGKILL" not in launched.said()


def test_arguments_show_the_values_in_force_and_their_choices() -> None:
    from launch import LaunchContext  # type: ignore[attr-defined]

    from crbo_ros.bringup.launching import describe

    declared = {a.name: a for a in describe("furuta").get_launch_arguments()}
    shown = {name: "".join(part.describe() for part in a.default_value) for name, a in declared.items()}
    assert (shown["plant"], shown["method"], shown["episodes"]) == ("'stand_in'", "'crbo'", "'100'")
    assert (shown["j_min_drop"], shown["namespace"]) == ("'0.1'", "'furuta_stand_in_crbo_s1'")
    assert "qube_hardware" in declared["plant"].choices
    assert declared["use_sim_time"].choices == ["true", "false"]
    context = LaunchContext()
    for name in ("params_file", "plant", "gamma"):
        declared[name].execute(context)
    assert context.launch_configurations["plant"] == "stand_in"
    assert context.launch_configurations["gamma"] == ""  # the config's, whichever file that is
    context.launch_configurations["params_file"] = str(Path(__file__).parents[2] / "config" / "furuta.yaml")
    for argument in declared.values():  # with a file of one's own, too
        argument.execute(context)
    assert context.launch_configurations["report"] == "true"
