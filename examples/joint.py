#!/usr/bin/env python3
"""A simulated joint behind ros2_control's joint_trajectory_controller: its topics, message types and parameter names.

    ./crbo shell python examples/joint.py                               # in one terminal
    ./crbo run tuning --config examples/joint.yaml --episodes 40 --yes-move --j-min-drop inf
    ./crbo shell python examples/joint.py --bag old.mcap --gains 8 0.5 0.2 0   # one movement as a recording; no node

Node /joint_trajectory_controller with gains.joint1.{p, i, d, ff_velocity_scale}. A JointTrajectory on
~/joint_trajectory is followed at once, faster than real time; ~/controller_state says how, with simulated stamps.
Where ros2_control is installed the state is control_msgs's, else a copy of its fields. Plain rclpy, none of crbo_ros's
Python.
"""

import argparse
import math
import random
from typing import Any

DT = 0.01  # s, control period
INERTIA, VISCOUS, COULOMB, GRAVITY = 0.05, 0.4, 0.3, 1.5  # kg m², Nm s, Nm, Nm
TORQUE = 6.0  # Nm, limit
DELAY = 2  # control periods
GAINS = {"p": 8.0, "i": 0.5, "d": 0.2, "ff_velocity_scale": 0.0}
JOINT = "joint1"
TOPIC, TYPE = "/joint_trajectory_controller/controller_state", "crbo_ros/msg/JointTrajectoryControllerState"
SCHEMA = """\
std_msgs/Header header
string[] joint_names
trajectory_msgs/JointTrajectoryPoint reference
trajectory_msgs/JointTrajectoryPoint feedback
trajectory_msgs/JointTrajectoryPoint error
trajectory_msgs/JointTrajectoryPoint output
================
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
================
MSG: trajectory_msgs/JointTrajectoryPoint
float64[] positions
float64[] velocities
float64[] accelerations
float64[] effort
builtin_interfaces/Duration time_from_start
"""


def simulate(gains: Any, points: Any, seed: int = 0, seconds: float = 2.0) -> Any:
    """Rows (t, reference, measured, torque): cubic through `points` (time, position) from rest, then held."""
    p, i, d, ff = gains
    rng = random.Random(seed)
    q, v, integral, last, delayed, rows = 0.0, 0.0, 0.0, None, [0.0] * DELAY, []
    for k in range(round(seconds / DT)):
        t = k * DT
        wanted, rate = reference(t, points)
        measured = q + rng.gauss(0.0, 5e-4)
        error = wanted - measured
        change = 0.0 if last is None else (measured - last) / DT
        last = measured
        command = p * error + i * integral + d * (rate - change) + ff * rate
        torque = max(-TORQUE, min(TORQUE, command))
        if command == torque:  # no wind-up at the limit
            integral += error * DT
        rows.append((t, wanted, measured, torque))
        delayed.append(torque)
        force = delayed.pop(0)
        for _ in range(10):
            friction = VISCOUS * v + COULOMB * math.tanh(v / 0.01)
            v += DT / 10 * (force - friction - GRAVITY * math.sin(q)) / INERTIA
            q += DT / 10 * v
    return rows


def reference(t: float, points: Any) -> Any:
    """Position and velocity of a cubic from rest to rest between each two points."""
    before = (0.0, 0.0)
    for time, position in points:
        if t < time:
            s, height, span = (t - before[0]) / (time - before[0]), position - before[1], time - before[0]
            return before[1] + height * s * s * (3 - 2 * s), height * 6 * s * (1 - s) / span
        before = (time, position)
    return before[1], 0.0


def record(path: str, gains: Any) -> None:
    """The movement of examples/joint.yaml as `ros2 bag record -s mcap` would have recorded the controller's state."""
    from mcap_ros2.writer import Writer

    def point(**values: float) -> Any:
        return {name: [value] for name, value in values.items()}

    with open(path, "wb") as file, Writer(file) as writer:
        schema = writer.register_msgdef(TYPE, SCHEMA)
        for t, wanted, measured, torque in simulate(gains, [(0.8, 1.0)]):
            stamp = round((1.0 + t) * 1e9)
            state = {
                "header": {"stamp": {"sec": stamp // 10**9, "nanosec": stamp % 10**9}, "frame_id": ""},
                "joint_names": [JOINT],
                "reference": point(positions=wanted),
                "feedback": point(positions=measured),
                "error": point(positions=wanted - measured),
                "output": point(effort=torque),
            }
            writer.write_message(TOPIC, schema, state, stamp, stamp)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bag", default="", help="write one movement into this .mcap file, and end")
    parser.add_argument("--gains", type=float, nargs=4, default=list(GAINS.values()), metavar=("P", "I", "D", "FF"))
    args, _ = parser.parse_known_args()
    if args.bag:
        record(args.bag, args.gains)
    else:
        serve()


def serve() -> None:
    import rclpy
    from rclpy.executors import ExternalShutdownException
    from rclpy.node import Node
    from trajectory_msgs.msg import JointTrajectory, JointTrajectoryPoint

    try:
        from control_msgs.msg import JointTrajectoryControllerState as State
    except ImportError:
        from crbo_ros.msg import JointTrajectoryControllerState as State

    class Controller(Node):
        def __init__(self) -> None:
            super().__init__("joint_trajectory_controller")
            for name, value in GAINS.items():
                self.declare_parameter(f"gains.{JOINT}.{name}", value)
            self.declare_parameter("seed", 0)
            self.runs, self.clock_s = 0, 1.0  # the simulation's own time
            self.states = self.create_publisher(State, "~/controller_state", 1000)
            self.create_subscription(JointTrajectory, "~/joint_trajectory", self.follow, 1)
            self.create_timer(0.5, lambda: None)

        def follow(self, message: Any) -> None:
            self.runs += 1
            gains = [self.get_parameter(f"gains.{JOINT}.{name}").value for name in GAINS]
            times = [p.time_from_start.sec + 1e-9 * p.time_from_start.nanosec for p in message.points]
            points = list(zip(times, [p.positions[0] for p in message.points], strict=True))
            for t, wanted, measured, torque in simulate(gains, points, self.get_parameter("seed").value + self.runs):
                state = State(joint_names=[JOINT])
                state.header.stamp.sec, part = divmod(round((self.clock_s + t) * 1e9), 10**9)
                state.header.stamp.nanosec = part
                state.reference = JointTrajectoryPoint(positions=[wanted])
                state.feedback = JointTrajectoryPoint(positions=[measured])
                state.error = JointTrajectoryPoint(positions=[wanted - measured])
                state.output = JointTrajectoryPoint(effort=[torque])
                self.states.publish(state)
            self.clock_s += 10.0

    rclpy.init()
    node = Controller()
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
