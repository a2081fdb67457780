"""SIGKILL at random: nothing lost, nothing doubled, nothing unapproved (the long version: crbo bench faults)."""

import sqlite3
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ros_helpers import finished, open_store, wait_until

from crbo_ros.core.trial import theta_hash


@pytest.mark.slow
@pytest.mark.parametrize("runners", [1, 2])
def test_killed_at_random_the_run_completes_with_every_episode_once(
    toy_graph: Callable[..., Any], runners: int
) -> None:
    rng = np.random.default_rng(runners)
    graph = toy_graph(episodes=30, runners=runners, toy={"seconds": 0.15})
    killed = set()
    with graph:
        for _ in range(8):
            time.sleep(rng.uniform(0.2, 1.5))
            name = str(rng.choice([spec.name for spec in graph.specs]))
            killed.add(graph.processes[name].pid)
            graph.processes[name].kill()
            graph.start(name)
        wait_until(lambda: finished(graph), 90, "the end of the run")
        codes = graph.end()
    assert set(codes.values()) == {0}
    store = open_store(graph)
    episodes = [e for e in store.episodes() if e.counts]
    assert len(episodes) == len({e.proposal_id for e in episodes}) == 30
    # what ran to its end is what is in the store (a repeat after a kill gives the same return, so sets compare)
    ended = {(line["hash"], line["value"]) for line in graph.ledger.lines("end")}
    assert {(theta_hash(e.theta), e.value) for e in episodes} == ended
    # each start had an approval of the monitor, for that theta, before it
    with sqlite3.connect(graph.folder / "monitor.sqlite") as connection:
        approvals = connection.execute("SELECT theta_hash, stamp FROM approvals").fetchall()
    for line in graph.ledger.lines("start"):
        assert any(hash == line["hash"] and stamp <= line["time"] for hash, stamp in approvals)
    # each runner that was not killed left its plant safe
    for pid in {line["pid"] for line in graph.ledger.lines("start")} - killed:
        assert [line["event"] for line in graph.ledger.lines() if line["pid"] == pid][-1] == "safe"


def test_sigterm_in_mid_rollout_leaves_the_plant_safe_and_exits_with_0(toy_graph: Callable[..., Any]) -> None:
    import os
    import signal

    graph = toy_graph(episodes=2, toy={"seconds": 5.0})
    with graph:
        wait_until(lambda: graph.ledger.lines("start"), 30, "the rollout")
        os.kill(graph.processes["episode_runner"].pid, signal.SIGTERM)
        wait_until(lambda: finished(graph), 5, "the exit")
        assert graph.processes["episode_runner"].code == 0
    assert [line["event"] for line in graph.ledger.lines()][-1] == "safe"
    assert (
        open_store(graph).episodes() == []
    )  # an interrupted rollout has no return; its proposal waits for the next start


def test_a_node_whose_parent_died_while_it_was_loading_leaves_by_itself(
    toy_graph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    graph = toy_graph(only=("episode_runner",))
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 4194303)  # as if started by a process that is no more
        graph.__enter__()
    try:
        wait_until(lambda: finished(graph), 20, "the exit")
        assert graph.processes["episode_runner"].code == 0
        assert any("is gone" in line for line in graph.said)
    finally:
        graph.__exit__(None, None, None)
