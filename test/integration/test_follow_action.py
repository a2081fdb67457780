"""The same arm by FollowJointTrajectory. Needs control_msgs, which comes with ros2_control; skipped without it."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("control_msgs")

from crbo_ros.errors import PlantError
from crbo_ros.plants.ros.joint_trajectory import JointTrajectoryArm
from crbo_ros.plants.ros.parameters import write
from crbo_ros.plants.trajectory import ArmLimits, minimum_jerk
from crbo_ros.ros.link import RosLink, Stopped

pytestmark = [pytest.mark.ros, pytest.mark.slow]
LIMITS = ArmLimits(("shoulder", "elbow"), *np.array([[-1.0, -0.5], [2.5, 3.0], [8.0, 8.0]]))
ACTION = "/joint_trajectory_controller/follow_joint_trajectory"


@pytest.fixture(scope="module")
def node(start: Callable[..., Any]) -> Any:
    return start(Path(__file__).parent / "follow_node.py")


def test_a_goal_is_followed_to_its_end_cancelled_on_stop_and_its_failure_told(node: Any) -> None:
    with JointTrajectoryArm(LIMITS, action=ACTION) as arm:
        arm.move_to([0.0, 0.6], 0.3)
        _, path = arm.execute(minimum_jerk(arm.position(), [0.8, 1.0], 0.7))
        np.testing.assert_allclose(path[-1], [0.8, 1.0], atol=0.05)
        began = time.monotonic()

        def poll() -> None:
            if time.monotonic() - began > 0.6:
                raise Stopped("enough")

        with pytest.raises(Stopped):
            arm.execute(minimum_jerk(arm.position(), [2.0, 2.0], 3.0), poll)
        time.sleep(0.4)
        before = arm.position()
        time.sleep(0.4)
        np.testing.assert_allclose(arm.position(), before, atol=5e-3)
        link = RosLink("test")
        link.open()
        try:
            write(link, {"/simulated_arm": {"stuck": 1}}, {("/simulated_arm", "stuck"): 2})
        finally:
            link.close()
        with pytest.raises(PlantError, match="the controller gave up: path tolerance violated: elbow"):
            arm.execute(minimum_jerk(arm.position(), [0.5, 2.0], 4.0))
