"""Limits, braking and the straight movement of an arm behind ros2_control. No ROS."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.errors import InvalidInput
from crbo_ros.plants.trajectory import ArmLimits, minimum_jerk, slowed, to_rest
from crbo_ros.policies.dmp import DMP, JointTrajectory
from crbo_ros.registry import make_task

LIMITS = ArmLimits(("a", "b"), *np.array([[-1.0, 0.0], [1.0, 2.0], [2.0, 3.0], [20.0, 20.0]]))


def still(position: Any, n: int = 5) -> JointTrajectory:
    q = np.tile(np.asarray(position, float), (n, 1))
    return JointTrajectory(np.arange(n) / 10.0, q, 0.0 * q, 0.0 * q)


def test_a_straight_movement_starts_and_ends_at_rest_and_its_derivatives_agree() -> None:
    line = minimum_jerk([0.0, 1.0], [0.5, -1.0], 2.0, rate=500.0)
    np.testing.assert_allclose(line.position[[0, -1]], [[0.0, 1.0], [0.5, -1.0]])
    np.testing.assert_allclose(line.velocity[[0, -1]], 0.0, atol=1e-12)
    np.testing.assert_allclose(line.acceleration[[0, -1]], 0.0, atol=1e-9)
    np.testing.assert_allclose(np.gradient(line.position, line.time, axis=0)[5:-5], line.velocity[5:-5], atol=1e-3)
    np.testing.assert_allclose(np.gradient(line.velocity, line.time, axis=0)[5:-5], line.acceleration[5:-5], atol=2e-2)


@pytest.mark.parametrize(
    ("position", "words"),
    [
        ([1.01, 1.0], "position of joint a at 0.000 s would be 1.010, beyond its limit of 1.000 rad"),
        ([0.0, -0.01], "position of joint b at 0.000 s would be -0.010, beyond its limit of 0.000 rad"),
        ([np.nan, 1.0], "position of joint a"),
    ],
)
def test_a_position_beyond_a_limit_is_named_with_joint_moment_and_limit(position: list[Any], words: str) -> None:
    assert LIMITS.violation(still(position)).startswith(words)


def test_limits_themselves_are_allowed() -> None:
    assert LIMITS.violation(still([1.0, 2.0])) == ""
    assert LIMITS.violation(still([-1.0, 0.0])) == ""


def test_velocity_and_acceleration_are_checked() -> None:
    fast = minimum_jerk([0.0, 0.0], [0.0, 1.9], 0.8)
    assert "velocity of joint b" in LIMITS.violation(fast)
    hasty = minimum_jerk([0.0, 0.0], [0.9, 0.0], 0.45)
    wide = ArmLimits(("a", "b"), *np.array([[-9, -9], [9, 9], [9, 9], [20.0, 20.0]]))
    assert "acceleration of joint a" in wide.violation(hasty)
    assert ArmLimits(("a", "b"), *np.array([[-9, -9], [9, 9], [9, 9]])).violation(hasty) == ""


def test_a_movement_that_ends_moving_is_braked_to_rest() -> None:
    dmp = DMP([0.0, 0.0], n_bases=5, duration=1.0, rate=100.0)
    theta = np.concatenate([np.full(10, 800.0), [0.5, -0.5]])
    moving = dmp.rollout(theta)
    assert np.max(np.abs(moving.velocity[-1])) > 0.01
    rested = to_rest(moving)
    np.testing.assert_allclose(rested.velocity[-1], 0.0, atol=1e-12)
    assert np.all(np.diff(rested.time) > 0.0)
    slope = np.gradient(rested.position, rested.time, axis=0)
    np.testing.assert_allclose(slope[-15:-1], rested.velocity[-15:-1], atol=2e-2)
    line = minimum_jerk([0.0], [1.0], 1.0)
    assert to_rest(line) is line


def test_a_movement_that_is_too_fast_is_slowed_down_to_the_limit_but_no_more_than_allowed() -> None:
    hasty = minimum_jerk([0.0, 0.0], [0.9, 0.0], 0.3)
    assert "velocity" in LIMITS.violation(hasty)
    slow = slowed(hasty, LIMITS, 3.0)
    assert LIMITS.violation(slow) == ""
    np.testing.assert_array_equal(slow.position, hasty.position)
    np.testing.assert_allclose(np.gradient(slow.position, slow.time, axis=0)[3:-3], slow.velocity[3:-3], atol=0.03)
    assert max(np.max(np.abs(slow.velocity) / LIMITS.velocity), np.max(np.abs(slow.acceleration)) / 20.0) > 0.999
    assert slowed(hasty, LIMITS, 1.1) is hasty
    calm = minimum_jerk([0.0, 0.0], [0.1, 0.0], 3.0)
    assert slowed(calm, LIMITS, 3.0) is calm


@pytest.mark.parametrize(
    "limits",
    [((), [], [], []), (("a", "a"), [0, 0], [1, 1], [1, 1]), (("a",), [1], [0], [1]), (("a",), [0, 0], [1], [1])],
)
def test_limits_that_make_no_sense_are_refused(limits: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInput):
        ArmLimits(*limits)


def test_the_arms_file_is_checked_with_line_and_field(tmp_path: Path) -> None:
    from pathlib import Path

    text = (Path(__file__).parents[2] / "examples" / "arm.yaml").read_text()
    (tmp_path / "arm.yaml").write_text(text)
    task = make_task("arm", config=tmp_path / "arm.yaml")
    assert task.dim == 12
    assert not task.plant.limits.violation(task.dmp.rollout())
    for old, new, words in [
        ("velocity: [4.0, 4.0]", "velocity: [8.0]", r"line 1\d: limits.velocity: expected 2 numbers, got 1"),
        ("goal: [1.0, 1.2]", "goal: [9.0, 1.2]", r"line \d+: policy: the movement to start from is beyond the limits"),
        ("path: 0.3", "paths: 0.3", r"line \d+: tolerance.paths: there is no such field"),
        ("duration: 1.0", "demonstration: nothing.npz", r"line \d+: policy.demonstration: "),
    ]:
        assert old in text
        (tmp_path / "arm.yaml").write_text(text.replace(old, new))
        with pytest.raises(InvalidInput, match=words):
            make_task("arm", config=tmp_path / "arm.yaml")
