"""Every step of a node's way out is tried whatever became of the others, and none of it takes for ever."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from ros_helpers import finished, wait_until

from crbo_ros.nodes import LEFT_BADLY, STUCK


def test_a_plant_whose_stop_raises_and_stays_so_is_closed_and_the_exit_code_tells(
    toy_graph: Callable[..., Any],
) -> None:
    graph = toy_graph(episodes=2, toy={"seconds": 60.0, "stop_raises": True})
    with graph:
        wait_until(lambda: graph.ledger.lines("start"), 30, "the rollout")
        os.kill(graph.processes["episode_runner"].pid, signal.SIGINT)
        wait_until(lambda: finished(graph), 60, "the exit")
        assert graph.processes["episode_runner"].code == LEFT_BADLY
        assert [line["event"] for line in graph.ledger.lines()][-1] == "closed"
        graph.end()
    assert any("on the way out, this failed: halt" in line for line in graph.said)
    assert any("the toy's brake is broken" in line for line in graph.said)


TOGETHER = """
import ctypes, time
from crbo_ros.nodes.way_out import WayOut, leave_now
def fail(): raise SystemExit("no")
def hang(): ctypes.PyDLL(None).sleep(60)  # with the interpreter's lock held
way_out = WayOut(0.3)
for what, action in {}:
    way_out.step(what, action)
    print(what, flush=True)
    if what == "close":
        way_out.secured()
if not way_out.over():
    leave_now(3)
leave_now(0)
"""


def leave(steps: str) -> subprocess.CompletedProcess[str]:
    code = TOGETHER.format(steps)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)


def test_each_step_is_tried_and_a_failure_is_named() -> None:
    done = leave("[('halt', fail), ('close', fail), ('tidy', print)]")
    assert done.stdout.split() == ["halt", "close", "tidy"]
    assert done.returncode == LEFT_BADLY
    assert "this failed: halt" in done.stderr
    assert "this failed: close" in done.stderr


def test_what_hangs_after_the_plant_is_safe_and_the_stores_are_closed_is_cut_short_with_all_stacks() -> None:
    done = leave("[('halt', print), ('close', print), ('hang', hang)]")
    assert done.returncode == STUCK
    assert "Timeout" in done.stderr
    assert "in hang" in done.stderr


def test_nothing_is_cut_short_before_the_plant_is_safe() -> None:
    done = leave("[('halt', lambda: time.sleep(1.5)), ('close', print), ('tidy', print)]")
    assert done.stdout.split() == ["halt", "close", "tidy"]
    assert done.returncode == 0
    assert "Timeout" in done.stderr


@pytest.mark.slow
def test_told_to_end_all_runners_stop_at_once_though_one_is_frozen_and_none_begins_again(
    toy_graph: Callable[..., Any],
) -> None:
    graph = toy_graph(episodes=200, runners=4, toy={"seconds": 20.0})
    with graph:
        wait_until(lambda: len({line["pid"] for line in graph.ledger.lines("start")}) == 4, 60, "four rollouts")
        frozen = graph.processes["episode_runner_0"].pid
        os.kill(frozen, signal.SIGSTOP)
        told = time.time()
        codes = graph.end()
    others = {graph.processes[f"episode_runner_{i}"].pid for i in (1, 2, 3)}
    last = {line["pid"]: line["time"] - told for line in graph.ledger.lines("stopped")}
    assert set(last) == others
    assert max(last.values()) < 5.0, "they waited for the frozen one, which is given 10 s"
    assert not [line for line in graph.ledger.lines("start") if line["time"] > told]
    assert {name: code for name, code in codes.items() if code} == {"episode_runner_0": -signal.SIGKILL}
