"""An arm behind ros2_control: trajectories to a joint_trajectory_controller, its joint states followed, held on stop.

with JointTrajectoryArm(limits) as arm:
    arm.move_to(start, 2.0)                       # within the limits, or nothing moves
    path = arm.execute(dmp.rollout(theta), poll)  # PlantError when it leaves its path; Stopped when poll raises

Sent as trajectory_msgs/JointTrajectory to the controller's topic, or as a FollowJointTrajectory goal where `action` is
given (needs control_msgs). Limits are checked on the whole trajectory before anything is sent. On every way out that is
not the trajectory's own end the arm holds where it is; the guardian does that if this process is killed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.errors import CrboError, MissingDependency, PlantError
from crbo_ros.plants.base import Connection
from crbo_ros.plants.trajectory import ArmLimits, minimum_jerk, to_rest
from crbo_ros.plants.watchdog import Watchdog
from crbo_ros.policies.dmp import JointTrajectory
from crbo_ros.ros.link import DISCOVERY, POLL, Poll, RosLink, no_poll

Array = NDArray[np.float64]
ACCEPTANCE = 5.0  # s for the controller to accept a trajectory
STALE = 0.5  # s after which a joint state is too old to trust


@dataclass(frozen=True)
class Tolerance:
    """How far the arm may be from where it should be: rad; `lag`: s by which it may run late."""

    path: float = 0.2
    goal: float = 0.05
    lag: float = 0.3
    settle: float = 2.0  # s after the trajectory's end within which the goal must be reached


def move_seconds(limits: ArmLimits, distance: Array, least: float) -> float:
    """s of a movement over these distances (rad) at half of the limits, at least so many."""
    seconds = max(least, float(np.max(1.875 * distance / (0.5 * limits.velocity))))  # peak: 15/8 of the mean
    if limits.acceleration is not None:
        seconds = max(seconds, float(np.sqrt(np.max(5.78 * distance / (0.5 * limits.acceleration)))))
    return seconds


class JointTrajectoryArm(Connection):
    """See the module's docstring. `rate`: points per second that are sent."""

    is_hardware = True  # for all we know

    def __init__(
        self,
        limits: ArmLimits,
        *,
        topic: str = "/joint_trajectory_controller/joint_trajectory",
        states: str = "/joint_states",
        action: str = "",
        tolerance: Tolerance | None = None,
        rate: float = 50.0,
        log: Callable[[str], None] = print,
    ) -> None:
        self.limits, self.topic, self.states, self.action = limits, topic, states, action
        self.tolerance, self.rate, self.log = tolerance or Tolerance(), rate, log
        self.joint_names = limits.joints
        self.link = RosLink("crbo_arm")
        self._lock = threading.Lock()
        self._state: tuple[float, Array] | None = None  # (when it came, positions)
        self._guardian: Watchdog | None = None
        self._client: Any = None
        self._goal: Any = None
        self._publisher: Any = None
        self._moving = False

    # -- connection -------------------------------------------------------------------------------

    def connect(self) -> None:
        """Find the controller and the joint states; PlantError says what is missing."""
        if self._guardian is not None:
            return
        self.link.open()
        arguments = {"topic": self.topic, "states": self.states, "joints": list(self.joint_names)}
        guardian = Watchdog(self.topic, "crbo_ros.plants.ros.joint_trajectory:HoldArm", arguments)
        try:
            self._listen()
            if not self.link.wait(lambda: self._fresh() is not None, DISCOVERY):
                raise PlantError(f"no joint state with {', '.join(self.joint_names)} on {self.states}")
            self._find_controller()
            guardian.wait_ready()
        except BaseException:
            guardian.dismiss()
            self._release()
            raise
        self._guardian = guardian

    def _listen(self) -> None:
        from rclpy.qos import qos_profile_sensor_data
        from sensor_msgs.msg import JointState
        from trajectory_msgs.msg import JointTrajectory as Message

        self.link.node.create_subscription(JointState, self.states, self._on_state, qos_profile_sensor_data)
        self._publisher = self.link.node.create_publisher(Message, self.topic, 1)

    def _find_controller(self) -> None:
        if not self.action:
            if not self.link.wait(lambda: self._publisher.get_subscription_count() > 0, DISCOVERY):
                raise PlantError(
                    f"no controller listens to {self.topic}; is it active (ros2 control list_controllers)?"
                )
            return
        try:
            from control_msgs.action import FollowJointTrajectory
        except ImportError:
            raise MissingDependency(
                f"action {self.action}: needs control_msgs (apt install ros-$ROS_DISTRO-control-msgs), or use the topic"
            ) from None
        from rclpy.action.client import ActionClient

        self._client = ActionClient(self.link.node, FollowJointTrajectory, self.action)
        if not self.link.wait(self._client.server_is_ready, DISCOVERY):
            raise PlantError(f"nobody offers the action {self.action}; is the controller active?")

    def _on_state(self, message: Any) -> None:
        found = dict(zip(message.name, message.position, strict=False))
        if all(name in found for name in self.joint_names):
            with self._lock:
                self._state = (time.monotonic(), np.array([found[name] for name in self.joint_names]))

    def _fresh(self) -> Array | None:
        with self._lock:
            if self._state is None or time.monotonic() - self._state[0] > STALE:
                return None
            return self._state[1]

    def position(self) -> Array:
        """Where the arm is, rad; PlantError if the last joint state is too old."""
        found = self._fresh()
        if found is None:
            raise PlantError(f"no joint state on {self.states} for more than {STALE:g} s")
        return found

    def close(self) -> None:
        guardian, self._guardian = self._guardian, None
        if guardian is not None:
            guardian.dismiss()
        self._release()

    def _release(self) -> None:
        if self._client is not None:
            self._client.destroy()
            self._client = None
        self.link.close()

    # -- movement ---------------------------------------------------------------------------------

    def move_to(self, goal: ArrayLike, seconds: float, poll: Poll = no_poll) -> None:
        """To rest at a goal from where the arm is, in at least so many s and as slowly as its limits ask for."""
        here, goal = self.position(), np.asarray(goal, float)
        distance = np.abs(goal - here)
        if np.max(distance) < 1e-3:
            return
        self.execute(minimum_jerk(here, goal, move_seconds(self.limits, distance, seconds)), poll)

    def execute(self, trajectory: JointTrajectory, poll: Poll = no_poll) -> tuple[Array, Array]:
        """Send a trajectory and follow it to its end: (time (T,), measured position (T, joints)).

        PlantError (nothing was sent) for one that violates the limits or starts elsewhere than the arm is; PlantError
        (the arm holds) when the arm leaves its path, does not arrive, or its states stop coming.
        """
        trajectory = to_rest(trajectory)
        if violation := self.limits.violation(trajectory):
            raise PlantError(f"refused: {violation}")
        off = np.abs(self.position() - trajectory.position[0])
        if np.max(off) > self.tolerance.path:
            j = int(np.argmax(off))
            raise PlantError(f"refused: joint {self.joint_names[j]} is {off[j]:.3f} rad from the trajectory's start")
        poll()
        self._moving = True
        try:
            self._send(trajectory)
            path = self._follow(trajectory, poll)
        except BaseException:
            self.stop()
            raise
        self._moving = False
        return path

    def _message(self, time_: Array, position: Array, velocity: Array) -> Any:
        from builtin_interfaces.msg import Duration
        from trajectory_msgs.msg import JointTrajectory as Message
        from trajectory_msgs.msg import JointTrajectoryPoint

        message = Message(joint_names=list(self.joint_names))  # a stamp of 0: begin now
        for t, q, v in zip(time_, position, velocity, strict=True):
            whole = int(t)
            stamp = Duration(sec=whole, nanosec=min(int((t - whole) * 1e9), 999_999_999))
            message.points.append(
                JointTrajectoryPoint(positions=q.tolist(), velocities=v.tolist(), time_from_start=stamp)
            )
        return message

    def _send(self, trajectory: JointTrajectory) -> None:
        stride = max(1, round(1.0 / (self.rate * (trajectory.time[1] - trajectory.time[0]))))
        rows = np.unique(np.append(np.arange(stride, len(trajectory.time), stride), len(trajectory.time) - 1))
        velocity = trajectory.velocity[rows].copy()
        velocity[-1] = 0.0
        message = self._message(trajectory.time[rows], trajectory.position[rows], velocity)
        if self._client is None:
            self._publisher.publish(message)
            return
        from control_msgs.action import FollowJointTrajectory

        future = self._client.send_goal_async(FollowJointTrajectory.Goal(trajectory=message))
        handle = self.link.finished(future, ACCEPTANCE, f"the action {self.action}")
        if not handle.accepted:
            raise PlantError(f"the action {self.action} refused the trajectory")
        self._goal = handle

    def _follow(self, trajectory: JointTrajectory, poll: Poll) -> tuple[Array, Array]:
        tolerance, began = self.tolerance, time.monotonic()
        result = self._goal.get_result_async() if self._goal is not None else None
        times, rows = [], []
        while True:
            now = time.monotonic() - began
            poll()
            here = self.position()
            times.append(now)
            rows.append(here)
            self._check_path(trajectory, now, here)
            if result is not None and result.done():
                code, text = result.result().result.error_code, result.result().result.error_string
                if code != 0:
                    raise PlantError(f"the controller gave up: {text or f'error code {code}'}")
            if now >= trajectory.time[-1]:
                off = np.abs(here - trajectory.position[-1])
                if np.max(off) <= tolerance.goal and (result is None or result.done()):
                    self._goal = None
                    return np.array(times), np.array(rows)
                if now > trajectory.time[-1] + tolerance.settle:
                    j = int(np.argmax(off))
                    raise PlantError(
                        f"joint {self.joint_names[j]} is {off[j]:.3f} rad from its goal {tolerance.settle:g} s after "
                        f"the trajectory's end (tolerance {tolerance.goal:g})"
                    )
            time.sleep(POLL)

    def _check_path(self, trajectory: JointTrajectory, now: float, here: Array) -> None:
        """Against where it should be now, or was to be up to `lag` ago."""
        window = np.clip(np.arange(now - self.tolerance.lag, now + 1e-9, POLL), 0.0, trajectory.time[-1])
        window = np.append(window, min(now, trajectory.time[-1]))
        planned = np.stack([np.interp(window, trajectory.time, q) for q in trajectory.position.T], axis=1)
        off = np.abs(planned - here)
        nearest = int(np.argmin(off.max(axis=1)))
        if off[nearest].max() > self.tolerance.path:
            j = int(np.argmax(off[nearest]))
            raise PlantError(
                f"joint {self.joint_names[j]} is {off[nearest, j]:.3f} rad from its path at {now:.2f} s "
                f"(tolerance {self.tolerance.path:g})"
            )

    def stop(self) -> None:
        """Hold, if something moves. Idempotent; says what did not work instead of raising."""
        if not self._moving or self.link.node is None:
            return
        self._moving = False
        goal, self._goal = self._goal, None
        try:
            if goal is not None:
                self.link.finished(goal.cancel_goal_async(), 2.0, "cancelling the goal")
            self.hold()
        except CrboError as error:
            self.log(f"holding the arm: {error}")

    def hold(self) -> None:
        """Stay where you are: a trajectory of one point, the newest position that is known."""
        with self._lock:
            if self._state is None:
                raise PlantError(f"no joint state on {self.states}: nowhere to hold")
            here = self._state[1]
        self._publisher.publish(self._message(np.array([0.1]), here[None], np.zeros((1, len(here)))))


class HoldArm:
    """The guardian's job: hold the arm where it is."""

    def __init__(self, *, topic: str, states: str, joints: list[str], say: Callable[[str], None]) -> None:
        n = len(joints)
        wide = ArmLimits(tuple(joints), np.full(n, -1e3), np.full(n, 1e3), np.full(n, 1e3))
        self.arm, self.say = JointTrajectoryArm(wide, topic=topic, states=states, log=say), say
        self.arm.link.open()
        self.arm._listen()

    def __call__(self) -> None:
        arm = self.arm
        arm.link.wait(lambda: arm._fresh() is not None, 10.0)
        arm._find_controller()
        arm.hold()
        time.sleep(0.5)  # let it go out before the link closes
        self.say("the arm holds")

    def close(self) -> None:
        self.arm._release()
