"""An acceptance that is killed carries on with the rollouts that it has, and is taken back by one command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from crbo_ros.view.record import read_run

NAME, EPISODES = "killed", 8


def start(home: Path, *words: Any) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("ROS_HOME", "CRBO_KEY")}
    environment |= {"CRBO_HOME": str(home), "ROS_LOG_DIR": str(home / "log")}
    line = [sys.executable, "-m", "crbo_ros.cli", *map(str, words)]
    with (home / "said").open("a") as said:
        return subprocess.Popen(line, env=environment, stdout=said, stderr=said, text=True, start_new_session=True)


def crbo(home: Path, *words: Any) -> int:
    with start(home, *words) as process:
        return process.wait(90)


def rollouts(trial: Path) -> list[int]:
    """The executed proposals of the acceptance, in order."""
    store = trial / "experiment.sqlite"
    if not store.exists():
        return []
    try:
        counted = [row.episode.proposal_id for row in read_run(store).counted if row.episode is not None]
        return counted[EPISODES:]  # those of the experiment are attached
    except Exception:  # it is being made
        return []


@pytest.mark.slow
@pytest.mark.ros
@pytest.mark.timeout(300)
def test_an_acceptance_that_is_killed_goes_on_where_it_was_and_is_taken_back(tmp_path: Path) -> None:
    assert (
        crbo(tmp_path, "run", "furuta", "--episodes", EPISODES, "--seed", 3, "--experiment", NAME, "--evaluate", 0) == 0
    )
    trial = tmp_path / f"{NAME}-accept-1"
    process = start(tmp_path, "accept", NAME, "--margin", 0.0, "--rollouts", 60, "--level", 1e-6)
    try:
        deadline = time.monotonic() + 60.0
        while len(rollouts(trial)) < 4 and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = rollouts(trial)
    assert len(before) >= 2, (tmp_path / "said").read_text()[-2000:]
    if not (trial / "accept.json").exists():  # (it may have come to its end in the same moment)
        time.sleep(1.0)  # its nodes see that their launcher is gone
        assert crbo(tmp_path, "accept", NAME) in (0, 3), (tmp_path / "said").read_text()[-2000:]
        assert "carries on" in (tmp_path / "said").read_text()
    after = rollouts(trial)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after), "an executed rollout was counted twice"
    assert len(json.loads((trial / "accept.json").read_text())["rollouts"]) == len(after)
    assert [path.name for path in tmp_path.glob(f"{NAME}-accept-*")] == [trial.name]
    assert crbo(tmp_path, "rollback", NAME) == 0, (tmp_path / "said").read_text()[-2000:]
