"""Single faults on the real graph, each of which once broke a promise (many at random: crbo bench faults)."""

import contextlib
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ros_helpers import Peer, finished, open_store, wait_until

VALID_FOR = 5.0  # s, of an approval


def query(path: Path, sql: str) -> list[Any]:
    """Rows of a store that a node has open; none where there is none yet."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)) as connection:
            return connection.execute(sql).fetchall()
    except sqlite3.OperationalError:
        return []


def executions(graph: Any, runner: str = "episode_runner") -> list[str]:
    """How each execution ended, in the order in which they were begun."""
    return [end for (end,) in query(graph.folder / f"{runner}.sqlite", "SELECT end FROM executions ORDER BY rowid")]


def approvals(graph: Any) -> list[Any]:
    return query(graph.folder / "monitor.sqlite", "SELECT verdict_id, stamp FROM approvals ORDER BY stamp")


def nothing_refused_or_expired(graph: Any) -> bool:
    ends = {end for (end,) in query(graph.folder / "experiment.sqlite", "SELECT DISTINCT end FROM proposals")}
    states = {state for (state,) in query(graph.folder / "episode_runner.sqlite", "SELECT DISTINCT state FROM results")}
    return ends <= {"completed", "pending"} and states <= {"done", "pending"}


@contextlib.contextmanager
def frozen(process: Any) -> Iterator[None]:
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


@pytest.mark.slow
def test_a_monitor_that_comes_and_goes_makes_a_policy_start_three_times_then_a_person_looks(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    graph = toy_graph(episodes=1, toy={"seconds": 4.0}, runner={"heartbeat_timeout": 0.5})

    def comes_and_goes() -> bool:
        with frozen(graph.processes["safety_monitor"]):
            time.sleep(0.8)
        time.sleep(1.6)
        return any("was begun 3 times and broken off each time" in line for line in graph.said)

    with graph:
        wait_until(lambda: graph.ledger.lines("start"), 30, "the first start")
        wait_until(comes_and_goes, 60, "the runner's word")
        comes_and_goes()
        assert len(graph.ledger.lines("start")) == 3
        assert executions(graph) == ["interrupted"] * 3
        assert open_store(graph).episodes() == []
        assert peer.command(graph, "clear", "episode_runner").accepted
        wait_until(lambda: finished(graph), 30, "the end")
    assert executions(graph)[-1] == "ended"
    assert [e.outcome for e in open_store(graph).episodes()] == ["completed"]


def test_the_clients_result_is_on_disk_when_done_returns(
    toy_graph: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crbo_ros.client import Client

    monkeypatch.setenv("CRBO_KEY", "secret")
    with toy_graph(only=("optimizer", "safety_monitor")), Client("mine", folder=tmp_path) as client:
        for trial in client:
            trial.done(0.9)
            break
        assert len(query(tmp_path / "mine.sqlite", "SELECT * FROM results")) == 1


@pytest.mark.slow
def test_the_client_does_not_begin_under_an_approval_that_is_too_old(
    toy_graph: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crbo_ros.client import Client

    monkeypatch.setenv("CRBO_KEY", "secret")
    with toy_graph(only=("optimizer", "safety_monitor")), Client("mine", folder=tmp_path) as client:
        trials = iter(client)
        first = next(trials)
        time.sleep(VALID_FOR + 0.2)
        assert not first.may_go_on()
        assert first.stop_reason().startswith("valid_for")
        first.stopped()
        again = next(trials)
        assert again.id == first.id
        assert again.may_go_on()
        again.done(0.9)
        assert query(tmp_path / "mine.sqlite", "SELECT end FROM executions") == [("interrupted",), ("ended",)]


@pytest.mark.slow
def test_what_a_plant_raises_unexpectedly_is_a_fault_and_after_clear_the_same_proposal_runs(
    toy_graph: Callable[..., Any], tmp_path: Path, peer: Peer
) -> None:

    broken = tmp_path / "broken"
    broken.touch()
    graph = toy_graph(episodes=1, toy={"broken": str(broken)})
    with graph:
        wait_until(lambda: any("FAULT: KeyError: 'a wire" in line for line in graph.said), 30, "the fault")
        time.sleep(1.0)
        assert graph.processes["episode_runner"].code is None
        assert executions(graph) == ["broken"]
        assert graph.ledger.lines()[-1]["event"] == "safe"
        assert open_store(graph).episodes() == []
        broken.unlink()
        assert peer.command(graph, "clear", "episode_runner").accepted
        wait_until(lambda: finished(graph), 30, "the end")
    assert executions(graph) == ["broken", "ended"]
    assert [(e.proposal_id, e.outcome) for e in open_store(graph).episodes()] == [(0, "completed")]
    assert len({line["hash"] for line in graph.ledger.lines("start")}) == 1


@pytest.mark.slow
def test_after_a_slow_reset_the_approval_is_young_when_the_policy_acts(toy_graph: Callable[..., Any]) -> None:
    graph = toy_graph(episodes=1, toy={"reset": VALID_FOR + 1.0})
    with graph:
        wait_until(lambda: finished(graph), 150, "the end")
    (start,), (act,), ((_, approved),) = graph.ledger.lines("start"), graph.ledger.lines("act"), approvals(graph)
    assert act["time"] - start["time"] > VALID_FOR
    assert 0.0 < act["time"] - approved < VALID_FOR


@pytest.mark.slow
def test_a_run_that_is_finished_while_held_ends_the_runner_and_nothing_begins_after_rearm(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from std_srvs.srv import Trigger

    graph = toy_graph(episodes=5, toy={"seconds": 20.0})
    with graph:
        wait_until(lambda: graph.ledger.lines("start"), 30, "a rollout")
        assert peer.call(Trigger, "stop").success
        wait_until(lambda: graph.ledger.lines()[-1]["event"] == "safe", 60, "the stop")
        starts = len(graph.ledger.lines("start"))
        assert peer.call(Trigger, "finish").success
        wait_until(lambda: any("done: " in line for line in graph.said), 60, "the runner's word")
        wait_until(lambda: graph.processes["episode_runner"].code == 0, 60, "the runner's end")
        assert peer.command(graph, "rearm").accepted
        time.sleep(1.5)
        assert len(graph.ledger.lines("start")) == starts


@pytest.mark.slow
def test_a_runner_that_was_frozen_between_its_question_and_the_start_asks_again(toy_graph: Callable[..., Any]) -> None:
    graph = toy_graph(episodes=1)
    spool = graph.folder / "episode_runner.sqlite"
    with graph:
        runner = graph.processes["episode_runner"]
        wait_until(lambda: query(spool, "SELECT * FROM request"), 30, "the runner's request")
        with contextlib.closing(sqlite3.connect(spool, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # what is approved cannot be written down yet
            wait_until(lambda: approvals(graph), 30, "the approval")
            with frozen(runner):
                connection.execute("ROLLBACK")
                time.sleep(VALID_FOR + 1.0)
        wait_until(lambda: finished(graph), 30, "the end")
    (start,) = graph.ledger.lines("start")
    words = ("valid_for", "no heartbeat", "gave no answer", "only just now")  # by when exactly it froze
    assert any(word in line for line in graph.said for word in words), graph.said
    assert len(approvals(graph)) > 1
    assert 0.0 < start["time"] - approvals(graph)[-1][1] < VALID_FOR
    assert executions(graph) in (["interrupted", "ended"], ["ended"])  # (a machine that stalls: it had not begun)


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """clocks.step("machine", seconds): one clock for all processes that are started now."""
    from crbo_ros.bench.clocks import Clocks

    clocks = Clocks(tmp_path / "clocks")
    if reason := clocks.build():
        pytest.skip(reason)
    for name, value in clocks.environment("machine").items():
        monkeypatch.setenv(name, value)
    return clocks


def test_a_monitor_to_whom_nobody_speaks_goes_on_beating_when_its_clock_is_stepped(
    toy_graph: Callable[..., Any], clocks: Any, peer: Any
) -> None:
    from crbo_ros.msg import SafetyHeartbeat
    from crbo_ros.ros import qos

    beats = peer.listen(SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT)
    with toy_graph(only=("safety_monitor",)):
        wait_until(lambda: len(beats) > 5, 20, "heartbeats")
        for seconds in (-3600, 86400):
            clocks.step("machine", seconds)
            time.sleep(0.2)
            heard = len(beats)
            wait_until(lambda heard=heard: len(beats) > heard + 5, 20, "the next heartbeats")


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [-3600, 86400])
def test_a_step_of_the_systems_clock_stops_nothing_and_nothing_is_refused(
    toy_graph: Callable[..., Any], clocks: Any, seconds: int
) -> None:
    graph = toy_graph(episodes=12, toy={"seconds": 0.3}, runner={"heartbeat_timeout": 5.0})
    with graph:
        wait_until(lambda: len(graph.ledger.lines("end")) == 3, 30, "some episodes")
        clocks.step("machine", seconds)
        wait_until(lambda: finished(graph), 150, "the end")
    assert abs(graph.ledger.lines("end")[-1]["time"] - time.time() - seconds) < 100.0, "the clock was not stepped"
    assert len(open_store(graph).episodes()) == 12
    assert nothing_refused_or_expired(graph)
    assert executions(graph) == ["ended"] * 12


@pytest.mark.slow
def test_an_episode_that_takes_longer_than_its_task_says_is_refused_nowhere(
    toy_graph: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_LEASE", "2.0")
    graph = toy_graph(episodes=2, toy={"seconds": 5.0, "says": 0.5})
    with graph:
        wait_until(lambda: finished(graph), 150, "the end")
    assert [e.proposal_id for e in open_store(graph).episodes()] == [0, 1]
    assert nothing_refused_or_expired(graph)


@pytest.mark.slow
def test_in_simulated_time_that_stands_still_the_run_completes(toy_graph: Callable[..., Any]) -> None:
    simulated = {"use_sim_time": True}  # and nobody publishes /clock
    graph = toy_graph(episodes=4, toy={"seconds": 0.2}, optimizer=simulated, monitor=simulated, runner=simulated)
    with graph:
        wait_until(lambda: finished(graph), 40, "the end")
    assert len(open_store(graph).episodes()) == 4


@pytest.mark.slow
def test_the_operator_is_asked_with_the_threshold_and_the_limits_that_are_effective(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from crbo_ros.msg import RunnerStatus
    from crbo_ros.ros import qos

    drop = {"j_min_drop": 0.2}
    graph = toy_graph(episodes=1, toy={"real": True}, monitor=drop, optimizer=drop)
    heard = peer.listen(RunnerStatus, "runner_status", qos.LATCHED)
    with graph:
        wait_until(lambda: heard and "20 % of |J0| below J0; risk 0.05. " in heard[-1].message, 40.0, "the question")
        assert "moves the real plant toy" in heard[-1].message
        assert "Limits: up to 1 V. " in heard[-1].message
        assert not graph.ledger.lines("start")
        assert peer.command(graph, "clear", "episode_runner").accepted
        wait_until(lambda: finished(graph), 40.0, "the end")
    assert graph.ledger.lines("end")
