"""What people do to a running graph is in its record, with who did it; once it has ended the record can be shared."""

from __future__ import annotations

import platform
import stat
from typing import Any

import pytest

from crbo_ros.protocol import manifest
from crbo_ros.view.record import read_run

pytestmark = pytest.mark.slow


def test_changes_at_run_time_robots_words_and_faults_are_recorded_and_the_key_goes_with_the_graph(
    toy_graph: Any, peer: Any
) -> None:
    from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
    from rcl_interfaces.srv import SetParameters
    from std_srvs.srv import Trigger

    def change(node: str, name: str, value: float) -> None:
        wanted = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=value)
        answer = peer.call(SetParameters, f"{node}/set_parameters", parameters=[Parameter(name=name, value=wanted)])
        assert answer.results[0].successful, answer.results[0].reason

    graph = toy_graph(episodes=500, toy={"seconds": 0.1})
    key = graph.folder / "operator.key"
    with graph:
        assert graph.wait_for(lambda: len(graph.ledger.lines("end")) >= 3, 60)
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        change("optimizer", "gamma", 0.31)
        change("safety_monitor", "risk", 0.01)
        assert peer.call(Trigger, "pause").success
        assert peer.call(Trigger, "stop").success
    assert not key.exists()

    fields = manifest.read_manifest(graph.folder)
    assert [(entry["runner"], entry["robot"]) for entry in fields["robots"]] == [
        ("/episode_runner", f"host {platform.node()}")
    ]
    changes = [(entry["by"], entry["values"]) for entry in fields["thresholds"]]
    assert ("somebody, by set_parameters of the optimizer", {"gamma": 0.31}) in changes
    assert ("the operator, by set_parameters", {"risk": 0.01}) in changes
    told = [(entry.who, entry.what) for entry in read_run(graph.folder / "experiment.sqlite").journal]
    assert ("somebody, by a service of the optimizer", "pause") in told
    assert ("somebody, by a service", "stop") in told
    assert told.index(("somebody, by a service of the optimizer", "pause")) > 0
