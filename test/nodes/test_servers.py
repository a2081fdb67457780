"""Optimizer and monitor as processes, with the test as their runner: leases, late returns, lost memory, clocks."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from ros_helpers import Peer, open_store, wait_until
from test_bad_input import ask, asked, result

from crbo_ros.core.trial import TrialStatus, theta_hash


def hand_in(peer: Any, proposal: Any, **change: Any) -> Any:
    from crbo_ros.srv import AcknowledgeEpisode

    episode = result(proposal, **{"episode_uid": f"u{proposal.id}", "problem": proposal.problem, **change})
    return peer.call(AcknowledgeEpisode, "acknowledge_episode", episode=episode)


def check(peer: Any, proposal: Any, **fields: Any) -> Any:
    from crbo_ros.srv import CheckRollout

    return peer.call(CheckRollout, "check_rollout", proposal=proposal, runner="r", **fields).verdict


@pytest.mark.slow
def test_a_lease_is_renewed_by_runner_status_and_a_late_return_is_recorded(
    toy_graph: Callable[..., Any], peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crbo_ros.msg import RunnerStatus
    from crbo_ros.ros import qos

    monkeypatch.setenv("TOY_LEASE", "3.0")
    graph = toy_graph(only=("optimizer",))
    status = peer.publisher(RunnerStatus, "runner_status", qos.LATCHED)
    with graph:
        proposal = asked(peer)
        assert proposal.lease == 3.0
        fields = {"runner": "r", "experiment_uid": proposal.experiment_uid, "proposal_id": proposal.id}
        until = time.monotonic() + 6.0
        while time.monotonic() < until:
            status.publish(RunnerStatus(**fields))
            time.sleep(0.1)
        assert open_store(graph).proposal(0).end is TrialStatus.PENDING
        status.publish(RunnerStatus(**{**fields, "proposal_id": -1}))
        wait_until(lambda: open_store(graph).proposal(0).end is TrialStatus.EXPIRED, 60, "the end of the lease")
        assert hand_in(peer, proposal).status == 0
        assert open_store(graph).proposal(0).end is TrialStatus.COMPLETED


@pytest.mark.slow
def test_a_monitor_without_any_memory_fetches_the_returns_from_the_optimizer(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from crbo_ros.msg import SafetyVerdict
    from crbo_ros.srv import GetEpisodes

    graph = toy_graph(only=("optimizer", "safety_monitor"))
    with graph:
        asked(peer, request_id="q0")
        for i in range(3):  # by a runner that is gone, with its spool
            assert hand_in(peer, ask(peer, f"q{i}").proposal).status == 0
        proposal = ask(peer, "next").proposal
        assert proposal.returns == 3
        answer = peer.call(GetEpisodes, "get_episodes", experiment_uid=proposal.experiment_uid, start=1)
        assert (answer.total, [e.proposal_id for e in answer.episodes]) == (3, [1, 2])
        assert answer.episodes[0].problem == proposal.problem
        assert peer.call(GetEpisodes, "get_episodes", experiment_uid="another").total == 0
        wait_until(lambda: "not active" not in check(peer, proposal).reason, 20, "the monitor")
        verdicts: list[Any] = []

        def approved() -> bool:
            verdicts.append(check(peer, proposal))
            return bool(verdicts[-1].status == SafetyVerdict.APPROVED)

        wait_until(approved, 20, "the approval")
        assert "knows 0 of 3 returns" in verdicts[0].reason
        assert "3 of 3 returns unverified" in verdicts[-1].reason


@pytest.mark.slow
def test_a_threshold_that_was_set_at_run_time_survives_the_monitors_death(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from rcl_interfaces.srv import GetParameters, SetParameters
    from rclpy.parameter import Parameter

    def value() -> Any:
        try:
            answer = peer.call(GetParameters, "safety_monitor/get_parameters", timeout=2.0, names=["j_min"])
        except AssertionError:  # a first question may be lost to slow discovery
            return None
        return answer.values[0].double_value

    graph = toy_graph(only=("safety_monitor",), monitor={"j_min": -5.0})
    with graph:
        wait_until(lambda: any("knows 0 returns" in line for line in graph.said), 30, "the monitor")
        wait_until(lambda: value() == -5.0, 60, "an answer")
        new = Parameter("j_min", value=0.25).to_parameter_msg()
        answer = peer.call(SetParameters, "safety_monitor/set_parameters", parameters=[new])
        assert answer.results[0].successful, answer.results[0].reason
        graph.processes["safety_monitor"].kill()
    again = toy_graph(only=("safety_monitor",), monitor={"j_min": -5.0})
    with again:  # what it says it uses: asking it would be a question of how soon the killed one is forgotten
        wait_until(lambda: any("j_min 0.25 (the operator" in line for line in again.said), 30, "the log's line")
        wait_until(lambda: any("threshold: 0.25" in line for line in again.said), 30, "the threshold")


def test_a_verdict_carries_the_questions_nonce_and_a_proof_where_there_is_a_key(
    toy_graph: Callable[..., Any], peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crbo_ros.msg import Proposal

    monkeypatch.setenv("CRBO_KEY", "secret")
    theta = [0.4] * 3
    proposal = Proposal(experiment_uid="e", theta=theta, theta_hash=theta_hash(theta))
    with toy_graph(only=("safety_monitor",)):
        for nonce in ("one", "two"):
            verdict = check(peer, proposal, nonce=nonce)
            assert verdict.nonce == nonce
            assert verdict.proof


def test_simulated_time_that_stands_still_stops_no_timer(toy_graph: Callable[..., Any], peer: Peer) -> None:
    from diagnostic_msgs.msg import DiagnosticArray

    from crbo_ros.msg import OptimizerState, SafetyHeartbeat
    from crbo_ros.ros import qos

    heard = [
        peer.listen(SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT),
        peer.listen(OptimizerState, "optimizer_state", qos.LATCHED),
        peer.listen(DiagnosticArray, "/diagnostics", 10),
    ]
    simulated = {"use_sim_time": True}  # and nobody publishes /clock
    with toy_graph(only=("optimizer", "safety_monitor"), optimizer=simulated, monitor=simulated):
        wait_until(lambda: min(map(len, heard)) >= 3, 40, "three of each")
