"""An arm behind ros2_control: trajectories to a joint_trajectory_controller, its joint states followed, held on stop.

with JointTrajectoryArm(limits) as arm:
    arm.move_to(start, 2.0)                       # within the limits, or nothing moves
    path = arm.execute(dmp.rollout(theta), poll)  # PlantError when it leaves its path; Stopped when poll raises

Sent as trajectory_msgs/JointTrajectory to the controller's topic, or as a FollowJointTrajectory goal where `action` is
given (needs control_msgs). Limits are checked on the whole trajectory before anything is sent, and on what is measured
while it moves (position, velocity, effort where given; the acceleration by the path). On every way out that is not the
trajectory's own end the arm holds where it is, which is looked at: `stop` is CONFIRMED by the joints' velocities and
the goal's terminal status. A host (plants/host.py) does the same when this process is killed, frozen or hangs. Every
check is written so that a NaN fails it, and a state that is not finite is no state.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core.safe import Safe
from crbo_ros.errors import CrboError, MissingDependency, PlantError, PlantFailed, PolicyFailed
from crbo_ros.plants.base import Connection
from crbo_ros.plants.hosted import PlantHost
from crbo_ros.plants.ros.goal import CANCEL, ActionGoal
from crbo_ros.plants.trajectory import ArmLimits, beyond, minimum_jerk, to_rest
from crbo_ros.policies.dmp import JointTrajectory
from crbo_ros.ros.link import DISCOVERY, POLL, Poll, RosLink, interface, no_poll

Array = NDArray[np.float64]
ACTION = "control_msgs/action/FollowJointTrajectory"
ACCEPTANCE = 5.0  # s for the controller to accept a trajectory
STALE = 0.5  # s after which a joint state is too old to trust
SILENCE = 0.4  # s without a beat of this process's loop; then the host holds the arm
STILL, LOOK = 0.02, 0.1  # rad/s that count as standing still, and the s for which that is looked at
SETTLED = 1.0  # s for the joints to come to rest
OVER = 1.25  # times the velocity limit that a measurement may show


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
        manager: str = "",
        tolerance: Tolerance | None = None,
        rate: float = 50.0,
        log: Callable[[str], None] = print,
    ) -> None:
        self.limits, self.topic, self.states, self.action, self.manager = limits, topic, states, action, manager
        self.tolerance, self.rate, self.log = tolerance or Tolerance(), rate, log
        self.joint_names = limits.joints
        self.link = RosLink("crbo_arm")
        self._lock = threading.Lock()
        self._state: tuple[float, Array] | None = None  # (when it came, positions), the newest finite one
        self._recent: deque[tuple[float, Array]] = deque(maxlen=200)
        self._velocity: Array | None = None  # as measured, where it is told
        self._effort: Array | None = None
        self._host: PlantHost | None = None
        self._goal: ActionGoal | None = None
        self._publisher: Any = None
        self._moving, self._safe = False, Safe(False, "nobody has looked")

    # -- connection -------------------------------------------------------------------------------

    def connect(self) -> None:
        """Find the controller and the joint states; PlantError says what is missing."""
        if self._host is not None:
            if self._host.alive:
                return
            self.close()
        self._check_dependencies()
        self.link.open()
        arguments = {"topic": self.topic, "states": self.states, "joints": list(self.joint_names),
                     "action": self.action, "manager": self.manager}  # fmt: skip
        job = "crbo_ros.plants.ros.joint_trajectory:HoldArm"
        host = PlantHost(self.topic, job, arguments, patience=SILENCE, log=self.log)
        try:
            self._listen()
            if not self.link.wait(lambda: self._fresh() is not None, DISCOVERY):
                raise PlantError(f"no joint state with {', '.join(self.joint_names)} on {self.states}")
            self._find_controller()
            host.wait_ready()
        except BaseException:
            host.dismiss()
            self._release()
            raise
        self._host = host

    def _check_dependencies(self) -> None:
        """Before a host is started and the controller is waited for."""
        if not self.action:
            return
        try:
            import control_msgs.action  # noqa: F401
        except ImportError:
            raise MissingDependency(
                f"action {self.action}: needs control_msgs (apt install ros-$ROS_DISTRO-control-msgs), or use the topic"
            ) from None

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
        self._goal = ActionGoal(self.link, ACTION, self.action)
        self._goal.connect()

    def _on_state(self, message: Any) -> None:
        position = self._values(message, message.position)
        if position is None or not np.all(np.isfinite(position)):
            return  # what is not finite is no state: it grows stale
        velocity, effort = (self._values(message, values) for values in (message.velocity, message.effort))
        with self._lock:
            self._state = (time.monotonic(), position)
            self._recent.append(self._state)
            self._velocity, self._effort = velocity, effort

    def _values(self, message: Any, values: Any) -> Array | None:
        found = dict(zip(message.name, values, strict=False))
        if not all(name in found for name in self.joint_names):
            return None
        return np.array([found[name] for name in self.joint_names], dtype=np.float64)

    def _fresh(self, age: float = STALE) -> Array | None:
        with self._lock:
            if self._state is None or not time.monotonic() - self._state[0] <= age:
                return None
            return self._state[1]

    def position(self) -> Array:
        """Where the arm is, rad; PlantError if the last joint state is too old."""
        found = self._fresh()
        if found is None:
            raise PlantError(f"no joint state on {self.states} for more than {STALE:g} s")
        return found

    def close(self) -> None:
        host, self._host = self._host, None
        if host is not None and self._moving:  # nobody has seen it stop: the host goes on trying
            host.abandon()
        elif host is not None:
            host.dismiss()
        self._release()

    def _release(self) -> None:
        self._goal = None
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
            raise PolicyFailed(f"refused: {violation}")
        off = np.abs(self.position() - trajectory.position[0])
        if not np.max(off) <= self.tolerance.path:
            j = int(np.argmax(off))
            raise PlantError(f"refused: joint {self.joint_names[j]} is {off[j]:.3f} rad from the trajectory's start")
        poll()

        def look() -> None:
            if self._host is not None:
                self._host.beat()
            poll()

        if self._host is not None:
            self._host.arm()
        self._moving = True
        try:
            result = self._send(trajectory, look)
            path = self._follow(trajectory, look, result)
        except BaseException:
            self.stop()
            raise
        self._moving, self._safe = False, Safe(False, "nobody has looked since it arrived")  # `stop` does
        if self._host is not None:
            self._host.disarm(self._safe)
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

    def _send(self, trajectory: JointTrajectory, poll: Poll) -> Any:
        """The future of the action's result; None where there is no action."""
        stride = max(1, round(1.0 / (self.rate * (trajectory.time[1] - trajectory.time[0]))))
        rows = np.unique(np.append(np.arange(stride, len(trajectory.time), stride), len(trajectory.time) - 1))
        velocity = trajectory.velocity[rows].copy()
        velocity[-1] = 0.0
        message = self._message(trajectory.time[rows], trajectory.position[rows], velocity)
        if self._goal is None:
            self._publisher.publish(message)
            return None
        goal = interface(ACTION).Goal(trajectory=message)
        return self._goal.send(goal, ACCEPTANCE, poll)

    def _follow(self, trajectory: JointTrajectory, poll: Poll, result: Any) -> tuple[Array, Array]:
        tolerance, began = self.tolerance, time.monotonic()
        times, rows = [], []
        while True:
            now = time.monotonic() - began
            poll()
            here = self.position()
            times.append(now)
            rows.append(here)
            self._check_path(trajectory, now, here)
            self._check_measured(here)
            if result is not None and result.done():
                code, text = result.result().result.error_code, result.result().result.error_string
                if code != 0:
                    raise PlantError(f"the controller gave up: {text or f'error code {code}'}")
            if now >= trajectory.time[-1]:
                off = np.abs(here - trajectory.position[-1])
                if np.max(off) <= tolerance.goal and (result is None or result.done()):
                    if self._goal is not None:
                        self._goal.ended()
                    return np.array(times), np.array(rows)
                if not now <= trajectory.time[-1] + tolerance.settle:
                    j = int(np.argmax(off))
                    raise PlantError(
                        f"joint {self.joint_names[j]} is {off[j]:.3f} rad from its goal {tolerance.settle:g} s after "
                        f"the trajectory's end (tolerance {tolerance.goal:g})"
                    )
            time.sleep(POLL)

    def _check_measured(self, here: Array) -> None:
        """Limits on what is measured: position with the path's tolerance, velocity and effort where they are told."""
        limits, names = self.limits, self.joint_names
        middle, half = (limits.upper + limits.lower) / 2.0, (limits.upper - limits.lower) / 2.0
        wrong = beyond(here - middle, half + self.tolerance.path, names, "distance from its range's middle", "rad")
        with self._lock:
            velocity, effort = self._velocity, self._effort
        if not wrong and velocity is not None:
            wrong = beyond(velocity, OVER * limits.velocity, names, "velocity", "rad/s")
        if not wrong and limits.effort is not None:
            if effort is None:
                raise PlantError(f"no effort on {self.states}, and limits.effort is given")
            wrong = beyond(effort, limits.effort, names, "effort", "Nm")
        if wrong:
            raise PlantError(wrong)

    def _check_path(self, trajectory: JointTrajectory, now: float, here: Array) -> None:
        """Against where it should be now, or was to be up to `lag` ago."""
        window = np.clip(np.arange(now - self.tolerance.lag, now + 1e-9, POLL), 0.0, trajectory.time[-1])
        window = np.append(window, min(now, trajectory.time[-1]))
        planned = np.stack([np.interp(window, trajectory.time, q) for q in trajectory.position.T], axis=1)
        off = np.abs(planned - here)
        nearest = int(np.argmin(off.max(axis=1)))
        if not off[nearest].max() <= self.tolerance.path:
            j = int(np.argmax(off[nearest]))
            raise PlantError(
                f"joint {self.joint_names[j]} is {off[nearest, j]:.3f} rad from its path at {now:.2f} s "
                f"(tolerance {self.tolerance.path:g})"
            )

    def limits_in_words(self) -> str:
        return self.limits.in_words()

    def stop(self) -> Safe:
        """Hold first, then cancel, then look; controller_manager as the last resort. What was seen."""
        if self.link.node is None:
            return Safe(True, "not connected")
        if not self._moving:
            return self._safe if self._safe.confirmed else self._look_at_rest()
        seen, problems = [], []
        for what in (self.hold, self._cancel):
            try:
                seen.append(what() or "")
            except CrboError as error:
                problems.append(str(error))
        self._safe = self._look_at_rest()
        if (not self._safe.confirmed or problems) and self.manager:
            try:
                seen.append(self._deactivate())
                problems = []
                self._safe = self._look_at_rest()
            except CrboError as error:
                problems.append(str(error))
        self._moving = bool(problems) or not self._safe.confirmed
        text = "; ".join(filter(None, [self._safe.reason, *seen, *problems]))
        self._safe = Safe(not self._moving, text)
        if self._moving:
            self.log(f"the arm is not known to stand: {text}")
        elif self._host is not None:
            self._host.disarm(self._safe)
        return self._safe

    def _quiet_beat(self) -> None:
        """While it is being stopped anyway, a host that has acted already is no reason to stop doing so."""
        try:
            if self._host is not None:
                self._host.beat()
        except PlantFailed as error:
            self.log(str(error))

    def _cancel(self) -> str:
        return "" if self._goal is None else self._goal.cancel(CANCEL, self._quiet_beat)

    def _deactivate(self) -> str:
        """The last resort: the controller is switched off, and the hardware holds or brakes as it is built to."""
        controller = self.topic.rsplit("/", 2)[-2]
        kind = "controller_manager_msgs/srv/SwitchController"
        request = interface(kind).Request(deactivate_controllers=[controller], strictness=1)
        answer = self.link.call(
            kind, f"{self.manager}/switch_controller", request, 2.0, self._quiet_beat, discovery=1.0
        )
        if not answer.ok:
            raise PlantFailed(f"{self.manager} did not deactivate {controller}")
        return f"{controller} was deactivated"

    def _speed(self) -> float:
        """rad/s of the fastest joint over the last `LOOK` s, by its positions and by what it tells; NaN: not known."""
        with self._lock:
            recent, velocity = [*self._recent], self._velocity
        now = time.monotonic()
        window = [(when, q) for when, q in recent if now - when <= 2.0 * LOOK]
        if len(window) < 3 or not window[-1][0] - window[0][0] >= 0.5 * LOOK or now - window[-1][0] > LOOK:
            return float("nan")
        speed = float(np.max(np.ptp(np.stack([q for _, q in window]), axis=0))) / (window[-1][0] - window[0][0])
        return speed if velocity is None else max(speed, float(np.max(np.abs(velocity))))

    def _look_at_rest(self) -> Safe:
        """Whether the joints stand, by what is measured; waits for that if it has just been told to."""
        deadline = time.monotonic() + SETTLED
        while not (speed := self._speed()) <= STILL and time.monotonic() < deadline:
            self._quiet_beat()
            time.sleep(POLL)
        if speed <= STILL:
            return Safe(True, f"the fastest joint moves at {speed:.4f} rad/s")
        if not np.isfinite(speed):
            return Safe(False, f"no fresh, finite joint states on {self.states}")
        return Safe(False, f"the fastest joint still moves at {speed:.3f} rad/s {SETTLED:g} s after the hold")

    def hold(self) -> None:
        """Stay where you are: a trajectory of one point, the newest position that is known.

        One that is old (this process hung, or no states come) would be a way back: a newer one is waited for for a
        moment, and if none comes the way is made slow.
        """
        fresh = self.link.wait(lambda: self._fresh(LOOK) is not None, LOOK, self._quiet_beat)
        with self._lock:
            if self._state is None:
                raise PlantFailed(f"no joint state on {self.states}: nowhere to hold")
            here = self._state[1]
        self._publisher.publish(self._message(np.array([0.1 if fresh else 1.0]), here[None], np.zeros((1, len(here)))))


class HoldArm:
    """The host's job: hold the arm where it is, end its goals, look that it stands."""

    def __init__(
        self, *, topic: str, states: str, joints: list[str], action: str, manager: str, say: Callable[[str], None]
    ) -> None:
        n = len(joints)
        wide = ArmLimits(tuple(joints), np.full(n, -1e3), np.full(n, 1e3), np.full(n, 1e3))
        self.arm = JointTrajectoryArm(wide, topic=topic, states=states, manager=manager, log=say)
        self.arm.link.open()
        self.arm._listen()
        self.say, self._cancels = say, None
        if action:
            self._cancels = self.arm.link.client("action_msgs/srv/CancelGoal", f"{action}/_action/cancel_goal")
        self._wait_until_able(action)

    def _wait_until_able(self, action: str) -> None:
        """Ready is who could hold the arm now: discovery may take a second or two, which would be too late then."""
        arm, cancels = self.arm, self._cancels

        def able() -> bool:
            heard = arm._fresh() is not None and arm._publisher.get_subscription_count() > 0
            return heard and (cancels is None or bool(cancels.service_is_ready()))

        if not arm.link.wait(able, DISCOVERY) and not action:
            raise PlantError(
                f"the arm's host cannot hold it: no fresh state on {arm.states}, or nobody listens to {arm.topic}"
            )

    def command(self, values: Any) -> None:
        """A beat: nothing to do."""

    def make_safe(self, last: bool) -> Safe:
        arm = self.arm
        if self._cancels is not None:  # all goals: whose they are does not matter now
            self._cancels.call_async(interface("action_msgs/srv/CancelGoal").Request())
        arm.link.wait(lambda: arm._publisher.get_subscription_count() > 0, 2.0)
        arm._moving = True
        safe = arm.stop()
        if safe.confirmed:
            self.say("the arm holds")
        time.sleep(0.2 if last else 0.0)  # let it go out before the link closes
        return safe

    def close(self) -> None:
        self.arm._release()
