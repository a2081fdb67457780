"""Bring your own runner: the example in plain rclpy and crbo_ros.client, against the real optimizer and monitor."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytestmark = pytest.mark.ros
ROOT = Path(__file__).parents[2]
SCHEDULES = json.loads((ROOT / "test" / "protocol" / "recorded_schedules.json").read_text())


@pytest.fixture
def graph(start: Any, tmp_path: Path) -> Any:
    """graph(episodes): `crbo run custom`, which has no runner of ours; namespace /own."""

    def begin(episodes: int, *options: Any) -> Any:
        words = ["run", "custom", "--namespace", "own", "--episodes", episodes, "--experiments-dir", tmp_path]
        return start("-m", "crbo_ros.cli", *words, "--experiment", "own", "--no-report", *options)

    return begin


def test_the_example_has_at_most_90_lines_and_none_of_our_python() -> None:
    text = (ROOT / "examples" / "own_runner.py").read_text()
    assert len(text.splitlines()) <= 90
    imported = re.findall(r"^(?:from|import) (crbo_ros\S*)", text, re.MULTILINE)
    assert sorted(imported) == ["crbo_ros.msg", "crbo_ros.srv"]


@pytest.mark.slow
def test_a_runner_of_ones_own_improves_its_policy(graph: Any, start: Any, tmp_path: Path) -> None:
    run = graph(12)
    own = start(ROOT / "examples" / "own_runner.py", "--ros-args", "-r", "__ns:=/own")
    assert own.popen.wait(150) == 0, own.output
    assert run.popen.wait(150) == 0, run.output
    assert "all 12 episodes are done" in own.output
    best = json.loads((tmp_path / "own" / "best.json").read_text())
    assert best["observed"] > -0.26 + 0.05  # theta_0 gives -0.26
    np.testing.assert_allclose(json.loads(re.findall(r"best: (\[.*?\])", own.output)[0]), best["theta"], atol=6e-4)
    assert "episodes   12" in run.output


@pytest.mark.slow
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: f"seed {schedule['seed']}")
def test_the_example_decides_as_the_loop_does_when_given_the_same_answers(schedule: Any, start: Any) -> None:
    """Vetoed, waiting, too old, foreign, monitor lost before and while it runs, stopped, handed in again."""
    from crbo_ros.ros.scripted_servers import ScriptedServers

    for attempt in range(3):  # on a busy machine a heartbeat may be late
        namespace = f"/replay{schedule['seed']}_{attempt}"
        servers = ScriptedServers(schedule, namespace)
        try:
            own = start(ROOT / "examples" / "own_runner.py", "--ros-args", "-r", f"__ns:={namespace}")
            code = own.popen.wait(150)
        finally:
            servers.close()
        if not servers.disturbed:
            break
    else:
        pytest.skip("this machine is too busy for heartbeats at 10 Hz: the runner rightly broke off, three times")
    assert code == 0, own.output
    assert servers.wrong == []
    assert servers.executions == schedule["executions"]
    assert servers.results == schedule["results"]
    assert not any(servers.verdicts + servers.receipts)
    assert "the schedule is over" in own.output


@pytest.mark.slow
def test_the_client_runs_the_protocol_in_ten_lines(graph: Any, tmp_path: Path) -> None:
    from crbo_ros.client import Client

    run = graph(8)
    seen = []
    with Client("mine", namespace="own", folder=tmp_path) as client:
        for trial in client:
            assert trial.may_go_on()
            seen.append(trial)
            if trial.id == 2:
                trial.failed("the gripper jammed")
            elif trial.id != 4:  # (4: no word counts as failed)
                trial.done(-float(np.sum((trial.theta - 0.7) ** 2)))
    assert [trial.id for trial in seen] == list(range(10))  # 8 completed and 2 failed
    assert seen[0].kind == "start"
    assert client.best is not None
    assert client.why_done == "all 8 episodes are done"
    assert run.popen.wait(150) == 0, run.output
    best = json.loads((tmp_path / "own" / "best.json").read_text())
    np.testing.assert_array_equal(client.best, best["theta"])


@pytest.mark.slow
def test_the_client_sees_a_stop_and_carries_on_after_a_kill_with_the_same_proposal(
    graph: Any, tmp_path: Path, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from std_srvs.srv import Trigger

    from crbo_ros.client import Client
    from crbo_ros.protocol.proofs import find_key
    from crbo_ros.ros.operator import command

    run = graph(4)
    monkeypatch.chdir(tmp_path)
    client = Client("mine", namespace="own", folder=tmp_path)
    first = next(iter(client))
    assert first.id == 0
    answer = client.link.call("std_srvs/srv/Trigger", "/own/stop", Trigger.Request(), 10.0)
    assert answer.success
    assert client.link.wait(lambda: not first.may_go_on(), 30.0)
    assert "stop was called" in first.stop_reason()
    assert command(client.link, find_key("own"), "/own/operator", "rearm", {}, 10.0).accepted
    client.close()  # without a word about the trial, as if killed
    with Client("mine", namespace="own", folder=tmp_path) as client:
        again = []
        for trial in client:
            again.append(trial)
            trial.done(-1.0 - trial.id)
    assert [trial.id for trial in again] == [0, 1, 2, 3]
    np.testing.assert_array_equal(again[0].theta, first.theta)
    assert run.popen.wait(150) == 0, run.output
