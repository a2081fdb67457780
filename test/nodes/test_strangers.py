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
    from crbo_ros.ros import qos, security

    def set_drop(value: float) -> Any:
        parameter = Parameter(name="j_min_drop")
        parameter.value = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=value)
        return peer.call(SetParameters, "safety_monitor/set_parameters", parameters=[parameter]).results[0]

    graph = toy_graph(episodes=500, toy={"seconds": 0.3}, monitor={"j_min_drop": 2.0})
    beats = peer.listen(SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT)
    with graph:
        wait_until(lambda: graph.ledger.lines("end"), 40, "an episode")
        wait_until(lambda: set(security.NODES) <= set(peer.node.get_node_names()), 60, "all nodes")
        for role in security.NODES:  # the table from which SROS2's policies are made is the graph's own
            node = peer.node
            published = {name for name, _ in node.get_publisher_names_and_types_by_node(role, "/")}
            assert published == set(security.names(security.TOPICS, role, "", 1, source=True))
            subscribed = {name for name, _ in node.get_subscriber_names_and_types_by_node(role, "/")}
            assert subscribed <= set(security.names(security.TOPICS, role, "", 1, source=False))
            offered = {name for name, _ in node.get_service_names_and_types_by_node(role, "/")}
            assert offered == set(security.names(security.SERVICES, role, "", 1, source=True))
            asked = {name for name, _ in node.get_client_names_and_types_by_node(role, "/")}
            assert asked <= set(security.names(security.SERVICES, role, "", 1, source=False))
        assert "proof" in set_drop(1e9).reason
        assert set_drop(1.5).successful, "tightening is free to all"
        assert "proof" in set_drop(2.0).reason
        assert peer.command(graph, "set", j_min_drop=1.8).accepted
        wait_until(lambda: any("j_min_drop is 1.8" in line for line in graph.said), 30, "the log's line")
        wait_until(lambda: beats, 30, "a heartbeat")
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
