"""Whoever is on the same domain: they may tighten, may not loosen, and cannot drown what counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from ros_helpers import Peer, wait_until


@pytest.mark.slow
def test_a_stranger_may_tighten_but_not_loosen_and_a_flood_does_not_keep_stop_and_finish_from_being_answered(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
    from rcl_interfaces.srv import SetParameters
    from std_srvs.srv import Trigger

    from crbo_ros.msg import EpisodeReturn, SafetyHeartbeat, SafetyVerdict
    from crbo_ros.ros import qos

    def set_drop(value: float) -> Any:
        parameter = Parameter(name="j_min_drop")
        parameter.value = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=value)
        return peer.call(SetParameters, "safety_monitor/set_parameters", parameters=[parameter]).results[0]

    graph = toy_graph(episodes=500, toy={"seconds": 0.3}, monitor={"j_min_drop": 2.0})
    beats = peer.listen(SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT)
    with graph:
        wait_until(lambda: graph.ledger.lines("end"), 40, "an episode")
        assert "proof" in set_drop(1e9).reason
        assert set_drop(1.5).successful, "tightening is free to all"
        assert "proof" in set_drop(2.0).reason
        assert peer.command(graph, "set", j_min_drop=1.8).accepted
        assert any("'j_min_drop': 1.8" in line or "j_min_drop is 1.8" in line for line in graph.said)
        uid = beats[-1].experiment_uid
        returns = peer.publisher(EpisodeReturn, "episode_return", qos.HISTORY)
        verdicts = peer.publisher(SafetyVerdict, "safety_verdict", qos.HISTORY)
        before = len(graph.said)
        for i in range(3000):
            returns.publish(EpisodeReturn(experiment_uid=uid, episode_uid=f"f{i}", outcome=1, value=float("nan")))
            verdicts.publish(SafetyVerdict(experiment_uid=uid, verdict_id=f"v{i}", proposal_id=0, status=1))
            if i % 100 == 0:
                time.sleep(0.01)
        assert peer.call(Trigger, "stop", 30.0).success
        assert peer.call(Trigger, "finish", 30.0).success
        complaints = [line for line in graph.said[before:] if "not recorded" in line or "by ''" in line]
        assert len(complaints) < 60, "throttled"
        heard = len(beats)
        wait_until(lambda: len(beats) > heard + 5, 30, "heartbeats")
        assert not beats[-1].armed
