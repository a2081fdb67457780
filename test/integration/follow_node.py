"""The simulated arm of examples/ with a FollowJointTrajectory action, as joint_trajectory_controller has one."""

import sys
import time
from pathlib import Path
from typing import Any

import rclpy
from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionServer, CancelResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.executors import ExternalShutdownException, MultiThreadedExecutor

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from simulated_arm import SimulatedArm


class Following(SimulatedArm):
    def __init__(self) -> None:
        super().__init__()
        self.server = ActionServer(
            self, FollowJointTrajectory, "/joint_trajectory_controller/follow_joint_trajectory", self.execute,
            callback_group=ReentrantCallbackGroup(), cancel_callback=lambda _: CancelResponse.ACCEPT,
        )  # fmt: skip

    def execute(self, goal: Any) -> Any:
        self.on_trajectory(goal.request.trajectory)
        mine, end = self.received, self.began + self.plan[-1][0] + 0.2
        while self.now() < end:
            if goal.is_cancel_requested:
                goal.canceled()
                return FollowJointTrajectory.Result()
            if self.received != mine or self.get_parameter("stuck").value >= 0:
                goal.abort()
                return FollowJointTrajectory.Result(error_code=-4, error_string="path tolerance violated: elbow")
            time.sleep(0.02)
        goal.succeed()
        return FollowJointTrajectory.Result()


def main() -> None:
    rclpy.init()
    node = Following()
    executor = MultiThreadedExecutor(num_threads=4)
    executor.add_node(node)
    try:
        executor.spin()
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.server.destroy()
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
