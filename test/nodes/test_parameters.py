"""A parameter that nobody has is refused by name, wherever it was written; real nodes in real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

THRESHOLD = "\n  ros__parameters:\n    j_min_drop: 0.2\n"


def node(name: str, folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "crbo_ros.nodes", name, "--ros-args", "-p", "task:=toy"]
    command += ["-p", f"experiments_dir:={folder}", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def refused(process: subprocess.Popen[str]) -> str:
    """What it said before it ended with exit code 1; fails if it goes on."""
    try:
        said, _ = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail("it went on")
    assert process.returncode == 1, said
    assert "Traceback" not in said
    return said


def accepted(process: subprocess.Popen[str], words: str) -> str:
    """What it said until it was told to end, once it had said these words."""
    said: list[str] = []
    assert process.stdout is not None
    try:
        for line in process.stdout:
            said.append(line)
            if words in line:
                break
        process.send_signal(signal.SIGINT)
        said.append(process.communicate(timeout=90)[0])
    finally:
        process.kill()
    assert process.returncode == 0, "".join(said)
    assert any(words in line for line in said), "".join(said)
    return "".join(said)


def test_a_misspelt_parameter_or_option_is_refused_by_name(domain: int, tmp_path: Path) -> None:
    monitor = node("safety_monitor", tmp_path, "-p", "j_min_dropp:=0.2")
    optimizer = node("optimizer", tmp_path, "-p", "task_options.ledgerr:=x")
    words = "parameter j_min_dropp of /safety_monitor does not exist; did you mean 'j_min_drop'?"
    assert words in refused(monitor)
    assert "task 'toy' has no option 'ledgerr'; did you mean 'ledger'?" in refused(optimizer)
    assert not list(tmp_path.iterdir()), "something was begun"


def test_a_section_for_nobody_is_refused_by_every_node(domain: int, tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("/safety_monitor:" + THRESHOLD)
    words = ["--params-file", str(file), "-r", "__ns:=/lab"]
    processes = [node(name, tmp_path / "experiments", *words) for name in ("safety_monitor", "episode_runner")]
    for said in [refused(process) for process in processes]:
        assert "limits.yaml: the section /safety_monitor is for no node of this graph" in said
        assert "write /**/safety_monitor" in said


def test_a_threshold_that_is_for_the_monitor_is_effective_and_said(domain: int, tmp_path: Path) -> None:
    file = tmp_path / "limits.yaml"
    file.write_text("/*/safety_monitor:" + THRESHOLD + "/lab/optimizer:\n  ros__parameters:\n    method: cma_es\n")
    words = ["--params-file", str(file), "-r", "__ns:=/lab"]
    monitor = node("safety_monitor", tmp_path, *words)
    optimizer = node("optimizer", tmp_path, *words)
    accepted(monitor, "threshold: 20 % of |J0| below J0")
    accepted(optimizer, "cma_es, 3 parameters")


def test_a_monitor_without_a_threshold_says_so(domain: int, tmp_path: Path) -> None:
    assert "[WARN]" in accepted(node("safety_monitor", tmp_path), "no threshold is effective")


def test_options_and_settings_are_nested_parameters_of_any_type(domain: int, tmp_path: Path, peer: Any) -> None:
    from rcl_interfaces.msg import Parameter, ParameterValue
    from rcl_interfaces.srv import ListParameters, SetParametersAtomically

    file = tmp_path / "custom.yaml"
    file.write_text(
        "/**:\n  ros__parameters:\n    task: custom\n    task_options:\n      lower: [0, 0]\n"
        "      upper: [1.0, 2.0]\n      theta_0: [0.5, 0.5]\n      hardware: false\n"
        "/**/optimizer:\n  ros__parameters:\n    settings: {gamma: 0.3}\n    episodes: -1\n"
    )
    command = ["--ros-args", "--params-file", str(file), "-p", f"experiments_dir:={tmp_path}"]
    optimizer = subprocess.Popen([sys.executable, "-m", "crbo_ros.nodes", "optimizer", *command])
    try:
        names = peer.call(ListParameters, "optimizer/list_parameters").result.names
        assert {"task_options.lower", "settings.gamma"} <= set(names)
        change = Parameter(name="settings.gamma", value=ParameterValue(type=3, double_value=0.4))
        answer = peer.call(SetParametersAtomically, "optimizer/set_parameters_atomically", parameters=[change])
        assert not answer.result.successful
        deadline = time.monotonic() + 60.0
        while not list(tmp_path.glob("*/experiment.sqlite")) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert list(tmp_path.glob("*/experiment.sqlite"))
    finally:
        optimizer.send_signal(signal.SIGINT)
        assert optimizer.wait(90) == 0


@pytest.mark.slow
def test_a_node_ends_with_the_parent_that_the_environment_names_and_otherwise_never(
    domain: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell starts the node and ends; the node gets another parent."""
    words = [sys.executable, "-m", "crbo_ros.nodes", "safety_monitor", "--ros-args", "-p", "task:=toy"]
    words += ["-p", f"experiments_dir:={tmp_path}"]
    pids = []
    for number, parent in enumerate(("$$", "")):
        script = f"CRBO_PARENT={parent} {' '.join(words)} -p experiment:=e{number} >/dev/null & echo $!; sleep 8"
        shell = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        pids.append(int(shell.stdout.split()[0]))
    try:
        deadline = time.monotonic() + 60.0
        while Path(f"/proc/{pids[0]}").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not Path(f"/proc/{pids[0]}").exists(), "it outlived its parent"
        assert Path(f"/proc/{pids[1]}").exists()
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
