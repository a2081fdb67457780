#!/usr/bin/env python3
"""A small node that stands for a robot of yours: a PID controller on a second-order plant. Plain rclpy, no crbo_ros.

    ./crbo shell python examples/pid_plant.py

Parameters kp, ki, kd, filter: the controller. `~/run` (std_srvs/Trigger) simulates one step response of 8 s at once,
publishes its cost on `~/cost` (std_msgs/Float64) and answers with it. With `continuous:=true` it also follows a square
wave all the time, `speed` times as fast as real time, and publishes the momentary cost on `~/momentary_cost`.
"""

import math
import random
from typing import Any

import rclpy
from rcl_interfaces.msg import SetParametersResult
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from std_msgs.msg import Float64
from std_srvs.srv import Trigger

DT = 0.01  # s, control period
SECONDS = 8.0  # of one step response
GAINS = ("kp", "ki", "kd", "filter")


class Plant:
    """m x'' + c x' + k x = u with a limited, delayed force; the controller sees x with a little noise."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.x = self.v = self.integral = self.rate = 0.0
        self.last: float | None = None
        self.delayed = [0.0] * 8  # 80 ms

    def step(self, target: float, kp: float, ki: float, kd: float, filter: float) -> float:
        """One control period; returns the momentary cost: the error and a little for the effort."""
        measured = self.x + self.random.gauss(0.0, 5e-4)
        error = target - measured
        change = 0.0 if self.last is None else (self.last - measured) / DT
        self.last = measured
        self.rate += (change - self.rate) * DT / (DT + filter)
        self.integral += error * DT
        wanted = kp * error + ki * self.integral + kd * self.rate
        force = max(-20.0, min(20.0, wanted))
        self.integral -= (wanted - force) / max(ki, 1e-9) * DT if ki else 0.0  # anti-windup
        self.delayed.append(force)
        self.v += DT * (self.delayed.pop(0) - 0.6 * self.v - 2.0 * self.x)
        self.x += DT * self.v
        return abs(target - self.x) + 2e-3 * abs(force - self.delayed[-2])


def step_response(gains: Any, seed: int = 0) -> Any:
    """The cost of one step response from rest: lower is better, 0 impossible; at most 20."""
    plant = Plant(seed)
    cost = sum(DT * min(plant.step(1.0, *gains), 10.0) for _ in range(round(SECONDS / DT)))
    return min(cost, 20.0) if math.isfinite(cost) else 20.0


class PidPlant(Node):
    def __init__(self) -> None:
        super().__init__("pid_plant")
        for name, value in zip(GAINS, (2.0, 0.3, 0.3, 0.1), strict=True):
            self.declare_parameter(name, value)
        self.declare_parameter("seed", 0)
        self.declare_parameter("continuous", False)
        self.declare_parameter("speed", 20.0)
        self.add_on_set_parameters_callback(self.check)
        self.runs = 0
        self.cost = self.create_publisher(Float64, "~/cost", 10)
        self.momentary = self.create_publisher(Float64, "~/momentary_cost", 100)
        self.create_service(Trigger, "~/run", self.run)
        self.plant, self.steps = Plant(self.get_parameter("seed").value), 0
        self.create_timer(0.05, self.tick)

    def check(self, parameters: Any) -> SetParametersResult:
        for p in parameters:
            if p.name in GAINS and not p.value >= 0.0:
                return SetParametersResult(successful=False, reason=f"{p.name} must not be negative")
        return SetParametersResult(successful=True)

    def gains(self) -> list[Any]:
        return [self.get_parameter(name).value for name in GAINS]

    def run(self, request: Any, response: Any) -> Any:
        self.runs += 1
        cost = step_response(self.gains(), self.get_parameter("seed").value + self.runs)
        self.cost.publish(Float64(data=cost))
        response.success, response.message = True, f"{cost:.6f}"
        return response

    def tick(self) -> None:
        """0.05 s of real time: `speed` times as much of the plant's."""
        if not self.get_parameter("continuous").value:
            return
        for _ in range(max(1, round(self.get_parameter("speed").value * 0.05 / DT))):
            self.steps += 1
            target = 1.0 if (self.steps * DT) % 8.0 < 4.0 else 0.0
            cost = self.plant.step(target, *self.gains())
        if not math.isfinite(cost) or abs(self.plant.x) > 1e3:
            self.plant, cost = Plant(self.steps), 10.0
        self.momentary.publish(Float64(data=min(cost, 10.0)))


def main() -> None:
    rclpy.init()
    node = PidPlant()
    try:
        rclpy.spin(node)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
