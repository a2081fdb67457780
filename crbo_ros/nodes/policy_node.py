"""policy_node: runs an exported network on topics, at its own rate. No optimizer, no gate: what was found, in use.

    ros2 run crbo_ros policy_node --ros-args -p policy:=furuta.npz -r observation:=/qube/state -r action:=/qube/volts

`observation` and `action` are std_msgs/Float64MultiArray, in the order of the file's names (the node says them at its
start). The watchdog: observations that stopped coming (3 periods) give the safe output until fresh ones come; an
observation or an action that is not finite, or of another length, gives the safe output and a fault, which only
`~/clear` (std_srvs/Trigger) ends. The safe output is 0, or the nearest value within the policy's own limits, which
always hold.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger

from crbo_ros.errors import InvalidInput
from crbo_ros.nodes import base
from crbo_ros.policies.agent import Agent
from crbo_ros.ros import qos
from crbo_ros.ros.parameters import Parameter

STALE = 3.0  # control periods without an observation
Array = NDArray[np.float64]


class Guarded:
    """A network behind a watchdog. Without ROS: time is an argument."""

    def __init__(self, agent: Agent, period: float) -> None:
        self.agent, self.patience, self.fault = agent, STALE * period, ""
        width = 1 if agent.output == "greedy" else agent.n_out
        self.safe: Array = np.clip(np.zeros(width), agent.low, agent.high) if len(agent.low) else np.zeros(width)
        self._seen, self._at = np.zeros(agent.n_in), -math.inf

    def observe(self, values: Any, now: float) -> None:
        """The newest observation."""
        seen = np.array(values, dtype=np.float64)
        if seen.shape != (self.agent.n_in,):
            self.fault = self.fault or f"an observation has {seen.size} entries, the policy takes {self.agent.n_in}"
        elif not np.all(np.isfinite(seen)):
            self.fault = self.fault or f"an observation is not finite: {seen.tolist()}"
        else:
            self._seen, self._at = seen, now

    def act(self, now: float) -> tuple[Array, str]:
        """(action, why it is the safe one or "")."""
        if self.fault:
            return self.safe, f"fault: {self.fault}"
        if now - self._at > self.patience:
            return self.safe, "no fresh observation"
        action = self.agent(self._seen)
        if not np.all(np.isfinite(action)):
            self.fault = f"the policy's action is not finite for {self._seen.tolist()}"
            return self.safe, f"fault: {self.fault}"
        return action, ""

    def clear(self) -> str:
        """End the fault; the next action waits for a fresh observation. What it was."""
        fault, self.fault, self._at = self.fault, "", -math.inf
        return fault


class PolicyNode(base.ManagedNode):
    """Translates between messages and Guarded."""

    PARAMETERS = (
        Parameter("policy", "", "the policy's file, from crbo export EXPERIMENT --policy npz"),
        Parameter("autostart", True, "configure and activate by itself; false: wait for lifecycle transitions"),
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("policy_node")
        self._steady, self._told = clock, ""
        self.guarded: Guarded | None = None
        self._timer: Any = None
        self._action = self.create_publisher(Float64MultiArray, "action", qos.COMMAND)
        self.create_subscription(Float64MultiArray, "observation", self._on_observation, qos.HEARTBEAT)
        self.create_service(Trigger, "~/clear", self._clear)

    def open(self) -> None:
        if not self.value("policy"):
            raise InvalidInput("parameter policy: must name a file (./crbo export EXPERIMENT --policy npz)")
        agent = Agent.load(Path(self.value("policy")))
        rate = agent.meta.get("rate")
        if not isinstance(rate, (int, float)) or not 0.0 < rate <= 10_000.0:
            raise InvalidInput(f"{self.value('policy')}: does not say at which rate the policy runs (meta: rate, Hz)")
        agent(np.zeros(agent.n_in))  # whatever is slow the first time
        self.guarded = Guarded(agent, 1.0 / rate)
        names = {name: ", ".join(agent.meta.get(name, [])) or "?" for name in ("observations", "actions")}
        self.get_logger().info(f"{rate:g} Hz: ({names['observations']}) -> ({names['actions']})")
        self._timer = self.steady_timer(1.0 / rate, self._step)

    def halt(self) -> None:
        """The last word is the safe output."""
        if self.guarded is not None:
            self._action.publish(Float64MultiArray(data=self.guarded.safe.tolist()))

    def close(self) -> None:
        if self._timer is not None:
            self.destroy_timer(self._timer)
        self._timer = self.guarded = None

    def diagnose(self) -> tuple[bytes, str, dict[str, Any]]:
        fault = self.guarded.fault if self.guarded is not None else ""
        return (base.ERROR, fault, {}) if fault else (base.OK if not self._told else base.WARN, self._told, {})

    def _on_observation(self, message: Float64MultiArray) -> None:
        if self.guarded is not None:
            self.guarded.observe(message.data, self._steady())

    def _step(self) -> None:
        if self.guarded is None or not self.active:
            return
        action, why = self.guarded.act(self._steady())
        self._action.publish(Float64MultiArray(data=action.tolist()))
        if why != self._told:
            self._told = why
            if why.startswith("fault"):
                self.get_logger().error(why)
            elif why:
                self.get_logger().warning(why)
            else:
                self.get_logger().info("runs")

    def _clear(self, request: Any, response: Any) -> Any:
        fault = self.guarded.clear() if self.guarded is not None else ""
        response.success, response.message = bool(fault), f"cleared: {fault}" if fault else "there was no fault"
        return response


def main() -> int:
    return base.run_node(PolicyNode)
