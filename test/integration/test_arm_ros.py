"""An arm behind the topics of a joint_trajectory_controller, simulated in another process."""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

from crbo_ros.errors import MissingDependency, PlantError
from crbo_ros.plants.ros.joint_trajectory import JointTrajectoryArm, Tolerance
from crbo_ros.plants.ros.parameters import write
from crbo_ros.plants.trajectory import ArmLimits, minimum_jerk
from crbo_ros.registry import make_task
from crbo_ros.ros.link import RosLink, Stopped
from crbo_ros.tasks.signals import watched_rollout

pytestmark = pytest.mark.ros
EXAMPLES = Path(__file__).parents[2] / "examples"
JOINTS = ("shoulder", "elbow")
LIMITS = ArmLimits(JOINTS, *np.array([[-1.0, -0.5], [2.5, 3.0], [8.0, 8.0], [200.0, 200.0]]))
PATIENT = Tolerance(lag=2.0, settle=20.0)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that stalls is not a runner that hangs."""
    monkeypatch.setattr("crbo_ros.plants.ros.joint_trajectory.SILENCE", 5.0)


@pytest.fixture(scope="module")
def node(start: Callable[..., Any]) -> Any:
    return start(EXAMPLES / "simulated_arm.py")


@pytest.fixture(scope="module")
def link(domain: int) -> Iterator[RosLink]:
    link = RosLink("test")
    link.open()
    yield link
    link.close()


def received(link: Any) -> int:
    from std_srvs.srv import Trigger

    return int(link.ask("std_srvs/srv/Trigger", "/arm/received", Trigger.Request(), 6.0).message)


def rests(arm: Any, seconds: float = 0.3) -> bool:
    """Whether the arm comes to stay where it is: the simulated one lags a little, and this machine may stall."""

    def stays() -> bool:
        before = arm.position()
        time.sleep(seconds)
        return bool(np.max(np.abs(arm.position() - before)) < 5e-3)

    return any(stays() for _ in range(10))


def test_a_movement_is_followed_to_its_goal_and_returned_as_measured(node: Any) -> None:
    with JointTrajectoryArm(LIMITS, tolerance=PATIENT) as arm:
        arm.move_to([0.0, 0.6], 0.3)
        plan = minimum_jerk([0.0, 0.6], [0.8, 1.0], 0.7)
        times, path = arm.execute(plan)
        np.testing.assert_allclose(path[-1], [0.8, 1.0], atol=0.05)
        assert times[-1] >= 0.7
        assert len(path) > 4
        assert rests(arm)


@pytest.mark.slow
def test_what_violates_the_limits_or_starts_elsewhere_is_never_sent(node: Any, link: RosLink) -> None:
    with JointTrajectoryArm(LIMITS) as arm:
        arm.move_to([0.0, 0.6], 0.3)
        count = received(link)
        with pytest.raises(PlantError, match="refused: velocity of joint shoulder"):
            arm.execute(minimum_jerk(arm.position(), [2.0, 0.6], 0.1))
        with pytest.raises(PlantError, match="refused: position of joint elbow"):
            arm.execute(minimum_jerk(arm.position(), [0.0, 3.2], 5.0))
        with pytest.raises(PlantError, match=r"refused: joint shoulder is 0\.\d+ rad from the trajectory's start"):
            arm.execute(minimum_jerk([0.7, 0.6], [0.8, 0.6], 1.0))
        assert received(link) == count


@pytest.mark.slow
def test_a_stop_holds_the_arm_where_it_is(node: Any) -> None:
    with JointTrajectoryArm(LIMITS, tolerance=PATIENT) as arm:
        arm.move_to([0.0, 0.6], 0.3)
        began = time.monotonic()

        def poll() -> None:
            if time.monotonic() - began > 0.8:
                raise Stopped("enough")

        with pytest.raises(Stopped):
            arm.execute(minimum_jerk(arm.position(), [2.0, 2.0], 10.0), poll)
        assert rests(arm)
        assert arm.position()[0] < 1.5


@pytest.mark.slow
def test_an_arm_that_leaves_its_path_is_held(node: Any, link: RosLink) -> None:
    types = {("/simulated_arm", "stuck"): 2}
    with JointTrajectoryArm(LIMITS, tolerance=Tolerance(path=0.25, lag=0.5)) as arm:
        arm.move_to([0.0, 0.6], 0.3)
        write(link, {"/simulated_arm": {"stuck": 1}}, types)
        try:
            words = r"joint elbow is 0\.\d+ rad from its path at \d\.\d+ s \(tolerance 0.25\)"
            with pytest.raises(PlantError, match=words):
                arm.execute(minimum_jerk(arm.position(), [0.2, 2.0], 3.0))
            assert rests(arm)
        finally:
            write(link, {"/simulated_arm": {"stuck": -1}}, types)


@pytest.mark.slow
def test_an_arm_that_falls_silent_is_held_where_it_was_seen_last(node: Any, link: RosLink) -> None:
    with JointTrajectoryArm(LIMITS, tolerance=PATIENT) as arm:
        arm.move_to([0.0, 0.6], 0.3)
        silenced: list[Any] = []
        began = time.monotonic()

        def poll() -> None:
            if time.monotonic() - began > 0.5 and not silenced:
                silenced.append(silent(link, True))

        count = received(link)
        try:
            with pytest.raises(PlantError, match=r"no joint state on /joint_states for more than 0\.5 s"):
                arm.execute(minimum_jerk(arm.position(), [2.0, 2.0], 6.0), poll)
        finally:
            silent(link, False)
        assert link.wait(lambda: received(link) == count + 2, 30.0)  # the movement, and the hold
        assert link.wait(lambda: arm._fresh() is not None, 30.0)
        assert rests(arm)
        assert arm.position()[0] < 1.0


def silent(link: Any, value: Any) -> Any:
    from rcl_interfaces.msg import Parameter, ParameterValue
    from rcl_interfaces.srv import SetParameters

    request = SetParameters.Request(
        parameters=[Parameter(name="silent", value=ParameterValue(type=1, bool_value=value))]
    )
    return link.ask("rcl_interfaces/srv/SetParameters", "/simulated_arm/set_parameters", request, 5.0)


@pytest.mark.slow
def test_the_arm_task_runs_an_episode_and_refuses_a_wild_one(node: Any) -> None:
    with make_task("arm", config=EXAMPLES / "arm.yaml") as task:
        first = task.rollout(task.theta_0, np.random.default_rng(0), record=True)
        assert first.end == "completed", first.reason
        assert -0.13 < first.value < -0.09  # 0.114 m, by the arm's kinematics
        assert set(first.trajectory.columns) == set(JOINTS)
        task.stretch = 1.0
        wild = task.rollout(task.space.upper, np.random.default_rng(0))
        assert wild.end == "failed"
        assert wild.reason.startswith("refused: ")
        stopped = task.rollout(task.theta_0, np.random.default_rng(0), watch=lambda t, *_: "no" if t > 0.7 else None)
        assert (stopped.end, stopped.reason) == ("stopped", "no")


@pytest.mark.slow
def test_a_joint_beyond_its_safety_limit_is_a_violation_and_beyond_the_hard_one_the_arm_is_held(
    node: Any, tmp_path: Path
) -> None:
    text, seen = (EXAMPLES / "arm.yaml").read_text(), {}
    for limits in ("limit: 0.5", "limit: 0.5, hard: 0.7"):
        (tmp_path / "arm.yaml").write_text(f"{text}\nsafety:\n  - {{joint: shoulder, of: position, {limits}}}\n")
        with make_task("arm", config=tmp_path / "arm.yaml") as task:
            seen[limits] = watched_rollout(task, task.theta_0, np.random.default_rng(0))
            assert rests(task.plant)
    soft, hard = seen.values()
    assert (soft.end, soft.limits) == ("completed", {"shoulder position": 0.5})
    assert 0.9 < soft.signals["shoulder position"] < 1.2
    assert "is beyond its limit 0.5" in soft.violation
    assert (hard.end, hard.counts) == ("failed", False)
    assert "is beyond its hard limit 0.7" in hard.violation
    assert 0.7 < hard.signals["shoulder position"] < 1.0


@pytest.mark.slow
def test_a_signal_that_the_joint_states_do_not_tell_is_no_silent_permission(node: Any, tmp_path: Path) -> None:
    text = (EXAMPLES / "arm.yaml").read_text()
    (tmp_path / "arm.yaml").write_text(f"{text}\nsafety:\n  - {{joint: elbow, of: effort, limit: 9.0}}\n")
    with make_task("arm", config=tmp_path / "arm.yaml") as task:
        outcome = watched_rollout(task, task.theta_0, np.random.default_rng(0))
    assert outcome.end == "broken"
    assert "elbow effort: nothing on /joint_states during the episode" in outcome.reason


def test_an_action_without_control_msgs_says_what_to_install_before_it_looks_for_anything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "control_msgs", None)  # also where it is installed
    arm = JointTrajectoryArm(LIMITS, action="/joint_trajectory_controller/follow_joint_trajectory")
    with pytest.raises(MissingDependency, match="control_msgs"):
        arm.connect()
    assert arm.link.node is None


@pytest.mark.slow
def test_a_killed_runner_leaves_the_arm_held(node: Any, start: Callable[..., Any]) -> None:
    code = (
        "from crbo_ros.plants.ros.joint_trajectory import *\n"
        f"arm = JointTrajectoryArm(ArmLimits({JOINTS}, [-9, -9], [9, 9], [9, 9])); arm.connect()\n"
        "arm.move_to([0.0, 0.6], 0.5); print('moving', flush=True)\n"
        "arm.execute(minimum_jerk(arm.position(), [3.0, 3.0], 60.0))"
    )
    runner = start("-c", code)
    runner.wait_for("moving", 60.0)
    time.sleep(1.0)
    runner.end(signal.SIGKILL)
    deadline = time.monotonic() + 20.0
    while "the arm holds" not in runner.output and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "the arm holds" in runner.output
    with JointTrajectoryArm(LIMITS) as arm:
        assert rests(arm, 1.0)


@pytest.mark.slow
def test_the_whole_graph_improves_the_movement(node: Any, start: Callable[..., Any], tmp_path: Path) -> None:
    words = ["run", "arm", "--config", EXAMPLES / "arm.yaml", "--episodes", "8", "--seed", "3", "--no-report"]
    words += ["--yes-move", "--j-min-drop", "inf"]
    run = start("-m", "crbo_ros.cli", *words, "--experiments-dir", tmp_path)
    assert run.popen.wait(150) == 0, run.output
    best = json.loads((tmp_path / "arm-joint_trajectory-crbo-s3" / "best.json").read_text())
    assert best["observed"] > -0.1
