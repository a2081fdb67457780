"""The worked stacks over ROS, each by one command: tuned, accepted, rolled back; limits end an episode."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytestmark = [pytest.mark.ros, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
RNG = np.random.default_rng(0)


def crbo(start: Any, *words: Any, code: int = 0) -> str:
    process = start("-m", "crbo_ros.cli", *words)
    assert process.popen.wait(150) == code, process.output
    return str(process.output)


def test_a_joint_is_tuned_by_its_controllers_own_topics_accepted_and_rolled_back(start: Any, tmp_path: Path) -> None:
    start(EXAMPLES / "joint.py")
    words = ["run", "tuning", "--config", EXAMPLES / "joint.yaml", "--experiments-dir", tmp_path, "--no-report"]
    words += ["--yes-move", "--j-min-drop", "inf"]
    said = crbo(start, *words, "--experiment", "joint", "--episodes", "16")
    assert "episode 16/16  proposal" in said
    assert "gains.joint1.p" in said
    best = json.loads((tmp_path / "joint" / "best.json").read_text())
    assert best["parameters"]["/joint_trajectory_controller gains.joint1.p"]["old"] == 8.0
    # killed in the middle of it, and carried on with by the same command
    accept = ["accept", "joint", "--experiments-dir", tmp_path, "--margin", "0.0001", "--by", "a test"]
    first = start("-m", "crbo_ros.cli", *accept)
    deadline = time.monotonic() + 90
    while "(new)" not in first.output and "(old)" not in first.output:
        assert time.monotonic() < deadline, first.output
        assert first.popen.poll() is None, first.output
        time.sleep(0.05)
    os.killpg(first.popen.pid, signal.SIGKILL)
    first.popen.wait()
    time.sleep(3.0)  # its nodes notice and leave
    code_and_said = start("-m", "crbo_ros.cli", *accept)
    code = code_and_said.popen.wait(150)
    assert code in (0, 3), code_and_said.output
    record = json.loads((tmp_path / "joint" / "accept.json").read_text())
    assert record["accepted"] == (code == 0)
    assert record["signed_off"]["by"] == "a test"
    assert "gains:" in (tmp_path / "joint" / "tuned.yaml").read_text()
    said = crbo(start, "rollback", "joint", "--experiments-dir", tmp_path)
    assert "/joint_trajectory_controller gains.joint1.p = 8" in said


def test_a_robot_that_follows_its_path_is_tuned_by_nav2s_action_and_topics(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nav_msgs.msg")
    from crbo_ros.plants.ros import parameters
    from crbo_ros.registry import make_task

    monkeypatch.setattr(parameters, "SILENCE", 10.0)  # s; a machine that stalls is not what is tried here
    start(EXAMPLES / "nav_robot.py")
    text = (EXAMPLES / "nav.yaml").read_text()
    with make_task("tuning", config=EXAMPLES / "nav.yaml") as task:
        first = task.rollout(task.theta_0, RNG)
        assert first.end == "completed", first.reason
        better = task.rollout([0.4, 0.9, 0.25, 0.5, 0.6], RNG)
        assert better.end == "completed", better.reason
        assert better.value > first.value + 5.0
    (tmp_path / "nav.yaml").write_text(text.replace("below: 0.05", "below: 5.0"))
    with make_task("tuning", config=tmp_path / "nav.yaml") as task:
        outcome = task.rollout(task.theta_0, RNG)
        assert outcome.end == "failed", outcome.reason
        assert "limit: min of scan is" in outcome.reason
