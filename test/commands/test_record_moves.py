"""An experiment's folder is the whole record: tarred, unpacked elsewhere, under another HOME, the original gone."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.commands.deployment import intact
from crbo_ros.protocol.proofs import KEY_FILE
from crbo_ros.view.record import read_run

DATE = re.compile(r'<td class="text">made [^<]*</td>')


def crbo(home: Path, *words: Any, codes: tuple[int, ...] = (0,)) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in ("CRBO_HOME", "ROS_HOME", "CRBO_KEY")}
    environment |= {"HOME": str(home), "ROS_LOG_DIR": str(home / "log")}
    line = [sys.executable, "-m", "crbo_ros.cli", *map(str, words)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.ros
@pytest.mark.timeout(600)
def test_an_experiment_is_moved_and_reported_exported_rolled_out_resumed_and_accepted_from_its_folder_alone(
    tmp_path: Path,
) -> None:
    first, second, weights = tmp_path / "first", tmp_path / "second", tmp_path / "mine" / "agent.npz"
    for folder in (first, second, weights.parent):
        folder.mkdir()
    import crbo_ros

    shutil.copy(Path(crbo_ros.__file__).parent / "data" / "pendulum.npz", weights)
    how = ("gym", "--env", "Pendulum-v1", "--weights", weights, "--seed", 2, "--evaluate", 0)
    crbo(first, "run", *how, "--episodes", 8, "--experiment", "moved")
    made = first / ".ros" / "crbo_ros" / "moved"
    report, rollout = (made / "report.html").read_text(), crbo(first, "rollout", "moved", "--seed", 5)
    exported = crbo(first, "export", "moved", "--csv", "--output", tmp_path / "csv-1")
    crbo(first, "export", "moved", "--policy", "npz", "--output", tmp_path / "before.npz")
    assert not (made / KEY_FILE).exists(), "the graph has ended, and its key with it"
    with tarfile.open(tmp_path / "record.tar.gz", "w:gz") as archive:
        archive.add(made, "renamed")
    crbo(first, "run", *how, "--episodes", 12, "--experiment", "moved", "--no-report")  # carries on where it was made
    stayed = read_run(made / "experiment.sqlite")
    shutil.rmtree(first)
    shutil.rmtree(weights.parent)
    with tarfile.open(tmp_path / "record.tar.gz") as archive:
        archive.extractall(second / "papers", filter="data")
    here = second / "papers" / "renamed"
    (here / "report.html").unlink()

    crbo(second, "report", here)
    again = (here / "report.html").read_text()
    assert "Simulated again on gymnasium" in again, "the agent's file came with the record"
    assert DATE.sub("", again) == DATE.sub("", report)
    assert crbo(second, "rollout", here, "--seed", 5) == rollout
    assert crbo(second, "export", here, "--csv", "--output", tmp_path / "csv-2").count(".csv") == exported.count(".csv")
    for name in ("proposals.csv", "verdicts.csv"):
        assert (tmp_path / "csv-1" / name).read_bytes() == (tmp_path / "csv-2" / name).read_bytes()
    crbo(second, "export", here, "--policy", "npz", "--output", tmp_path / "after.npz")
    assert (tmp_path / "after.npz").read_bytes() == (tmp_path / "before.npz").read_bytes()
    assert "whole" in crbo(second, "inspect", here, "--verify")
    said = crbo(second, "inspect", here, "--journal")
    assert f"/moved/episode_runner: runs on host {platform.node()}" in said
    assert "from now on: risk 0.05" in said

    crbo(second, "run", here, "--episodes", 12, "--no-report", "--evaluate", 0)
    resumed = read_run(here / "experiment.sqlite")
    assert len(resumed.returns) == 12
    for ours, theirs in zip(resumed.rows, stayed.rows, strict=True):
        assert np.array_equal(ours.proposal.theta, theirs.proposal.theta)  # type: ignore[union-attr]
        assert (ours.outcome, ours.value) == (theirs.outcome, theirs.value)

    said = crbo(second, "accept", here, "--rollouts", 6, "--level", 1e-6, codes=(0, 3))
    record = json.loads((here / "accept.json").read_text())
    assert f"record     {here / 'accept.json'}" in said
    assert intact(record)
    assert (record["experiment"], record["verdict"], len(record["rollouts"])) == ("renamed", "undecided", 6)
    assert len(list((second / "papers").iterdir())) == 2, "the record, and the acceptance's own beside it"
