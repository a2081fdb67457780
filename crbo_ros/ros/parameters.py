"""Parameters, declared once: name, default, description, range, choices, and whether they may change at run time.

Plain data without ROS, so that the launch files, the command line and the reference in docs/ read the same tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NO_LIMIT = float("-inf")


@dataclass(frozen=True)
class Parameter:
    """One ROS parameter. Its type is that of its default."""

    name: str
    default: Any
    description: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    changeable: bool = False  # at run time

    def complaint(self, value: Any) -> str:
        """Why a value is not acceptable, or ""."""
        if self.choices and value not in self.choices:
            return f"{self.name}: {value!r} is none of {', '.join(self.choices)}"
        for limit, wrong in ((self.minimum, "below"), (self.maximum, "above")):
            if limit is not None and (value < limit if wrong == "below" else value > limit):
                return f"{self.name}: {value} is {wrong} {limit:g}"
        if isinstance(value, float) and value != value:
            return f"{self.name}: is NaN"
        return ""


COMMON = (
    Parameter("experiment", "experiment", "name of the experiment; its folder below experiments_dir"),
    Parameter("experiments_dir", "~/.ros/crbo_ros", "folder that holds a folder for each experiment"),
    Parameter("task", "furuta", "registered task (furuta, basketball, pendulum, ...); 'custom' takes the three below"),
    Parameter("plant", "", "the task's plant; empty: the task's first one"),
    Parameter("task_options", "{}", "further options of the task, as JSON"),
    Parameter("lower", [0.0], "task custom: lower bounds of theta, policy's own units"),
    Parameter("upper", [1.0], "task custom: upper bounds of theta"),
    Parameter("theta_0", [0.5], "task custom: the policy to start from"),
    Parameter("autostart", True, "configure and activate by itself; false: wait for lifecycle transitions"),
    Parameter("exit_with_parent", True, "exit when the process that started this node is gone"),
)

OPTIMIZER = (
    *COMMON,
    Parameter("method", "crbo", "registered method: crbo, cma_es, turbo, ..."),
    Parameter("settings", "{}", 'further settings of the method, as JSON, e.g. {"preset": "paper"}'),
    Parameter("seed", 1, "seed of the method", minimum=0),
    Parameter("episodes", 100, "episode budget; 0: no limit", minimum=0, changeable=True),
    Parameter(
        "gamma", 0.0, "confidence parameter, (0, 1]; 0: the task's own", minimum=0.0, maximum=1.0, changeable=True
    ),
    Parameter(
        "j_min", NO_LIMIT, "keep the worst-case bound of proposals above this return; -inf: off", changeable=True
    ),
    Parameter("expiry", 600.0, "s until a pending proposal is withdrawn", minimum=1.0),
    Parameter("resume", True, "carry on with an experiment that exists; false: refuse it"),
)

MONITOR = (
    *COMMON,
    Parameter("j_min", NO_LIMIT, "veto rollouts whose worst case is below this return; -inf: off", changeable=True),
    Parameter(
        "j_min_drop", float("inf"), "the same relative to the start: J0 - j_min_drop |J0|; inf: off", minimum=0.0,
        changeable=True,
    ),
    Parameter("lipschitz", 0.0, "known Lipschitz constant, return per unit-box distance; 0: estimate it", minimum=0.0),
    Parameter("return_scale", 0.0, "typical spread of returns, for the first bounds; 0: |J0|", minimum=0.0),
    Parameter("require_operator", False, "every proposal waits for review_proposal", changeable=True),
    Parameter("valid_for", 5.0, "s for which an approval may be used", minimum=0.1),
    Parameter("heartbeat_rate", 10.0, "Hz", minimum=1.0, maximum=100.0),
    Parameter("coverage_warning", 0.9, "warn when fewer of the past bounds held than this", minimum=0.0, maximum=1.0),
)  # fmt: skip

RUNNER = (
    *COMMON,
    Parameter("seed", 1, "seed of the rollouts' randomness", minimum=0),
    Parameter("realtime", False, "run simulated plants in real time, step by step", changeable=False),
    Parameter("heartbeat_timeout", 0.5, "s without the monitor's heartbeat after which nothing moves", minimum=0.05),
    Parameter("discovery_time", 1.0, "s after its start in which it only looks who else is there", minimum=0.0),
    Parameter("service_timeout", 20.0, "s to wait for one answer of the optimizer or monitor", minimum=0.1),
    Parameter("state_rate", 20.0, "Hz of joint_states and runner_status during a rollout", minimum=1.0, maximum=100.0),
    Parameter("publish_trajectory", False, "publish the whole trajectory after each episode", changeable=True),
    Parameter("max_failures", 10, "give up after so many failed episodes in a row", minimum=1),
    Parameter("exit_when_done", False, "exit when the optimizer has no more episodes"),
)
