"""The tuning task on real nodes in other processes: values set, episodes run, returns collected, values put back."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from crbo_ros.errors import PlantError
from crbo_ros.registry import make_task
from crbo_ros.tasks.signals import watched_rollout

pytestmark = pytest.mark.ros
EXAMPLES = Path(__file__).parents[2] / "examples"
PID = ("kp", "ki", "kd", "filter")
START = [2.0, 0.3, 0.3, 0.1]
TRIAL = [5.0, 1.0, 1.0, 0.05]
RNG = np.random.default_rng(0)

WORKER = """\
parameters:
  - {node: /worker, name: gain, lower: 0.0, upper: 10.0, start: 3.0}
  - {node: /worker, name: count, lower: 1, upper: 9, start: 5}
episode:
  start: {action: /worker/work, type: test_msgs/action/Fibonacci, goal: {order: 2}}
  stop: {service: /worker/stop}
  timeout: 10
return: {answer: true, field: "sequence[0]"}
rest: start
"""


def until(condition: Callable[[], Any], timeout: float, pause: float = 0.05) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


@pytest.fixture(scope="module")
def pid(start: Callable[..., Any]) -> Any:
    return start(EXAMPLES / "pid_plant.py", "--ros-args", "-p", "continuous:=true")


@pytest.fixture(scope="module")
def worker(start: Callable[..., Any]) -> Any:
    pytest.importorskip("test_msgs")
    return start(Path(__file__).parent / "action_node.py")


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Any]:
    def write(text: str, **changes: Any) -> Any:
        for old, new in changes.values():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "tuning.yaml").write_text(text)
        return tmp_path / "tuning.yaml"

    return write


def test_an_episode_runs_with_the_values_and_the_best_ones_are_left(pid: Any, values: Callable[..., Any]) -> None:
    with make_task("tuning", config=EXAMPLES / "pid.yaml") as task:
        first = task.rollout(task.theta_0, RNG)
        assert first.end == "completed"
        assert -3.3 < first.value < -2.9  # what the simulation gives for the start values
        better = task.rollout(TRIAL, RNG)
        assert better.value > first.value + 0.5
        np.testing.assert_allclose(values("/pid_plant", PID), TRIAL)  # the best so far
        worse = task.rollout([0.2, 0.02, 0.02, 0.1], RNG)
        assert worse.value < first.value
        np.testing.assert_allclose(values("/pid_plant", PID), TRIAL)
        task.apply_best([4.0, 1.0, 0.9, 0.05])
    np.testing.assert_allclose(values("/pid_plant", PID), [4.0, 1.0, 0.9, 0.05])


@pytest.mark.slow
def test_a_stop_ends_the_episode_and_puts_the_start_values_back(pid: Any, values: Callable[..., Any]) -> None:
    seen = []

    def watch(seconds: float, observation: Any, action: Any) -> str | None:
        if seconds > 0.8:
            seen.append(values("/pid_plant", PID[:3]))
            return "told to"
        return None

    with make_task("tuning", config=EXAMPLES / "pid_fixed_time.yaml") as task:
        outcome = task.rollout(TRIAL[:3], RNG, watch=watch)
        assert (outcome.end, outcome.reason) == ("stopped", "told to")
        assert np.isnan(outcome.value)
        np.testing.assert_allclose(values("/pid_plant", PID[:3]), START[:3])
        whole = task.rollout(TRIAL[:3], RNG)
        assert whole.end == "completed"
        assert 1.1 < whole.duration < 20.0
        assert -1.5 < whole.value < -0.01
    np.testing.assert_allclose(seen[0], TRIAL[:3])


@pytest.mark.slow
def test_a_topic_beyond_its_safety_limit_is_a_violation_and_beyond_the_hard_one_ends_the_episode(
    pid: Any, values: Callable[..., Any], config: Callable[..., Any]
) -> None:
    text = (EXAMPLES / "pid_fixed_time.yaml").read_text()
    signal = "\nsafety: [{name: cost, topic: /pid_plant/momentary_cost, type: std_msgs/msg/Float64, field: data, "
    with make_task("tuning", config=config(f"{text}{signal}limit: 1e-6}}]\n")) as task:
        soft = watched_rollout(task, TRIAL[:3], RNG)
    assert (soft.end, soft.signals["cost"] > 0.01) == ("completed", True)
    assert "is beyond its limit 1e-06" in soft.violation
    np.testing.assert_allclose(values("/pid_plant", PID[:3]), START[:3])  # what broke a limit is nothing to rest on
    with make_task("tuning", config=config(f"{text}{signal}limit: 1e-6, hard: 1e-5}}]\n")) as task:
        hard = watched_rollout(task, TRIAL[:3], RNG)
    assert (hard.end, "is beyond its hard limit 1e-05" in hard.violation) == ("failed", True)
    np.testing.assert_allclose(values("/pid_plant", PID[:3]), START[:3])


@pytest.mark.slow
def test_an_action_gives_the_return_and_integers_are_rounded(
    worker: Any, values: Callable[..., Any], config: Callable[..., Any]
) -> None:
    with make_task("tuning", config=config(WORKER)) as task:
        outcome = task.rollout([4.5, 6.6], RNG)
        assert (outcome.end, outcome.value) == ("completed", 450.0)
        assert values("/worker", ["gain", "count"]) == [3.0, 5.0]  # rest: start
        assert task.rollout([4.5, 6.6], RNG).counts
    with make_task("tuning", config=config(WORKER, field=("sequence[0]", "sequence[1]"))) as task:
        assert task.rollout([4.5, 6.6], RNG).value == 7.0


@pytest.mark.slow
def test_a_stopped_goal_is_cancelled_and_the_stop_service_called(
    worker: Any, values: Callable[..., Any], config: Callable[..., Any], service: Callable[..., Any]
) -> None:
    before = [int(service("/worker/cancelled")), int(service("/worker/stops"))]
    with make_task("tuning", config=config(WORKER, order=("order: 2", "order: 50"))) as task:
        outcome = task.rollout([4.5, 6], RNG, watch=lambda t, *_: "enough" if t > 0.5 else None)
    assert outcome.end == "stopped"
    assert values("/worker", ["gain", "count"]) == [3.0, 5.0]
    after = [int(service("/worker/cancelled")), int(service("/worker/stops"))]
    assert after == [before[0] + 1, before[1] + 1]


@pytest.mark.slow
def test_a_goal_may_run_for_a_fixed_time(worker: Any, config: Callable[..., Any]) -> None:
    text = config(WORKER, order=("order: 2", "order: 50"), fixed=("  timeout", "  seconds: 0.3\n  timeout"),
                  answer=('{answer: true, field: "sequence[0]"}',
                          "{service: /worker/stops, type: std_srvs/srv/Trigger, field: message}"))  # fmt: skip
    with make_task("tuning", config=text) as task:
        outcome = task.rollout([4.5, 6], RNG)
    assert outcome.end == "completed"
    assert 0.25 < outcome.duration < 20.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theta", "changes", "reason"),
    [
        ([9.0, 5], {}, r"/worker refused gain = 9: gain is above what the motor takes"),
        ([4.0, 3], {"name": ("name: count", "name: clamped")}, r"took clamped = 3 but holds 2"),
        ([4.0, 5], {"order": ("order: 2", "order: 0")}, r"ended with status 6"),
        ([4.0, 5], {"field": ("sequence[0]", "sequence[7]")}, r"'sequence\[7\]'.* has no 7"),
    ],
)
def test_what_goes_wrong_is_a_failed_episode_with_the_values_put_back(
    worker: Any,
    values: Callable[..., Any],
    config: Callable[..., Any],
    theta: list[Any],
    changes: dict[str, Any],
    reason: str,
) -> None:
    upper = {"upper": ("upper: 9", "upper: 9"), "start": ("start: 5", "start: 1" if "name" in changes else "start: 5")}
    with make_task("tuning", config=config(WORKER, **changes, **upper)) as task:
        outcome = task.rollout(theta, RNG)
    assert outcome.end == "failed"
    assert re.search(reason, outcome.reason), outcome.reason
    assert values("/worker", ["gain", "count", "clamped"]) == [3.0, 5.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("name: count", "name: cuont", "node /worker has no parameter 'cuont'"),
        ("name: count", "name: label", "'label' of /worker is not a number"),
        ("order: 2", "ordre: 2", "goal: ordre: .* has no such field; it has: order"),
        ("order: 2", "order: two", "goal: order: 'two' is not a int32"),
        ("test_msgs/action", "nowhere_msgs/action", "the type nowhere_msgs/action/Fibonacci is not known"),
    ],
)
def test_what_does_not_fit_the_node_is_said_when_it_connects(
    worker: Any, config: Callable[..., Any], old: str, new: str, reason: str
) -> None:
    task = make_task("tuning", config=config(WORKER, change=(old, new)))
    with pytest.raises(PlantError, match=reason):
        task.connect()


def test_a_killed_runner_leaves_the_start_values(
    pid: Any, start: Callable[..., Any], values: Callable[..., Any], tmp_path: Path
) -> None:
    code = (
        "import numpy as np; from crbo_ros.registry import make_task\n"
        f"task = make_task('tuning', config={str(EXAMPLES / 'pid_fixed_time.yaml')!r}); task.connect()\n"
        "task.config.episode.__dict__['seconds'] = 100.0\n"
        f"print('moving', flush=True); task.rollout({TRIAL[:3]}, np.random.default_rng(0))"
    )
    runner = start("-c", code)
    runner.wait_for("moving")
    assert until(lambda: values("/pid_plant", PID[:3]) == TRIAL[:3], 60.0)
    runner.end(signal.SIGKILL)
    assert until(lambda: values("/pid_plant", PID[:3]) == START[:3], 60.0), runner.output
    assert until(lambda: "start values are set again" in runner.output, 60.0)


@pytest.mark.slow
def test_a_node_that_dies_is_a_failed_episode_and_one_that_comes_back_gets_its_values(
    start: Callable[..., Any], values: Callable[..., Any]
) -> None:
    remapped = (EXAMPLES / "pid_plant.py", "--ros-args", "-r", "__node:=other_plant")
    first = start(*remapped)
    config = Path(first.log).parent / "other.yaml"
    text = (EXAMPLES / "pid_fixed_time.yaml").read_text().replace("/pid_plant", "/other_plant")
    config.write_text(text.replace("/momentary_cost", "/cost").replace("  seconds", "  timeout: 4.0\n  seconds"))
    with make_task("tuning", config=config) as task:
        killed: list[Any] = []

        def watch(seconds: float, *_: Any) -> None:
            if seconds > 0.6 and not killed:
                killed.append(first.end())

        outcome = task.rollout(TRIAL[:3], RNG, watch=watch)
        assert outcome.end == "broken", "no fault of the policy"
        assert killed
        second = start(*remapped)
        assert until(lambda: task.rollout(TRIAL[:3], RNG).reason.startswith("no message on /other_plant/cost"), 60.0)
        assert values("/other_plant", PID[:3]) == START[:3]
        second.end()


def crbo_run(start: Any, tmp_path: Path, *options: Any) -> Any:
    words = ["run", "tuning", "--config", EXAMPLES / "pid.yaml", "--experiments-dir", tmp_path, "--no-report"]
    words += ["--yes-move", "--j-min-drop", "inf"]
    return start("-m", "crbo_ros.cli", *words, *options)


@pytest.mark.slow
def test_the_whole_graph_tunes_the_example_and_the_node_keeps_the_best_values(
    pid: Any, start: Callable[..., Any], values: Callable[..., Any], tmp_path: Path
) -> None:
    run = crbo_run(start, tmp_path, "--episodes", "25", "--seed", "11")
    assert run.popen.wait(120) == 0, run.output
    best = json.loads((tmp_path / "tuning-ros_parameters-crbo-s11" / "best.json").read_text())
    np.testing.assert_allclose(values("/pid_plant", PID), best["theta"])
    assert best["mean"] > -2.3  # 30 % of the way from -3.1 to the optimum of -0.3


@pytest.mark.slow
def test_a_runner_of_the_graph_killed_half_way_leaves_the_start_values(
    pid: Any, start: Callable[..., Any], values: Callable[..., Any], tmp_path: Path
) -> None:
    before = values("/pid_plant", PID)
    run = crbo_run(start, tmp_path, "--episodes", "0", "--seed", "12")
    assert until(lambda: values("/pid_plant", PID) not in (START, before), 60.0, pause=0.3), run.output
    assert until(lambda: runner_pid(run.popen.pid) is not None, 60.0)
    runner = runner_pid(run.popen.pid)
    assert runner is not None
    os.kill(runner, signal.SIGKILL)
    assert run.popen.wait(60) != 0
    assert until(lambda: values("/pid_plant", PID) == START, 60.0), run.output


def runner_pid(parent: Any) -> int | None:
    """The episode runner among a process's children."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if b"episode_runner" in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    return None


@pytest.fixture(scope="module")
def service(domain: int) -> Iterator[Callable[..., Any]]:
    """service(name): a Trigger's message."""
    from std_srvs.srv import Trigger

    from crbo_ros.ros.link import RosLink

    link = RosLink("trigger")
    link.open()
    yield lambda name: link.ask("std_srvs/srv/Trigger", name, Trigger.Request(), 6.0).message
    link.close()
