"""Processes that are told to end, or whose launcher is gone; and many faults at random (crbo bench faults)."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ros_helpers import finished, open_store, wait_until


@pytest.mark.slow
def test_under_random_faults_nothing_is_lost_doubled_unapproved_or_begun_without_a_record(
    domain: int, tmp_path: Path
) -> None:
    words = "bench faults --faults 16 --runners 1,2 --episodes 12 --ctrl-c 1 --out".split()
    command = [sys.executable, "-m", "crbo_ros.cli", *words, str(tmp_path)]
    bench = subprocess.run(command, capture_output=True, text=True, timeout=290)
    assert bench.returncode == 0, bench.stdout + bench.stderr
    assert "16 faults in" in bench.stdout


def test_sigterm_in_mid_rollout_leaves_the_plant_safe_and_exits_with_0(toy_graph: Callable[..., Any]) -> None:
    graph = toy_graph(episodes=2, toy={"seconds": 60.0})
    with graph:
        wait_until(lambda: graph.ledger.lines("start"), 30, "the rollout")
        os.kill(graph.processes["episode_runner"].pid, signal.SIGTERM)
        wait_until(lambda: finished(graph), 60, "the exit")
        assert graph.processes["episode_runner"].code == 0
    assert [line["event"] for line in graph.ledger.lines()][-1] == "safe"
    assert (
        open_store(graph).episodes() == []
    )  # an interrupted rollout has no return; its proposal waits for the next start


def test_a_node_whose_parent_died_while_it_was_loading_leaves_by_itself(
    toy_graph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = toy_graph(only=("episode_runner",))
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 4194303)  # as if started by a process that is no more
        graph.__enter__()
    try:
        wait_until(lambda: finished(graph), 60, "the exit")
        assert graph.processes["episode_runner"].code == 0
        assert any("is gone" in line for line in graph.said)
    finally:
        graph.__exit__(None, None, None)
