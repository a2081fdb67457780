"""Parameters, declared once: name, default, description, range, choices, and whether they may change at run time.

Plain data without ROS, so that the launch files, the command line and the reference in docs/ read the same tables. A
default of {} stands for a group: any parameters below that name (task_options.env, settings.beta).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crbo_ros import checks
from crbo_ros.errors import InvalidInput

NO_LIMIT = float("-inf")
GROUP: dict[str, Any] = {}


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
    infinite: bool = False  # may be: it stands for "off"

    def complaint(self, value: Any) -> str:
        """Why a value is not acceptable, or ""."""
        if self.choices and value not in self.choices:
            return f"{self.name}: {value!r} is none of {', '.join(self.choices)}"
        if isinstance(self.default, bool) and not isinstance(value, bool):
            return f"{self.name}: {value!r:.60} is neither true nor false"
        if isinstance(self.default, (int, float)) and not isinstance(self.default, bool):
            if isinstance(value, str):
                return f"{self.name}: {value!r:.60} is a text, not a number"
            low = -math.inf if self.minimum is None else self.minimum
            high = math.inf if self.maximum is None else self.maximum
            try:
                if isinstance(value, bool) or value != self.default:  # an infinite default stands for "off"
                    checks.number(
                        value, self.name, low, high, whole=isinstance(self.default, int), infinite=self.infinite
                    )
            except InvalidInput as error:
                return str(error)
        elif isinstance(self.default, str) and (not isinstance(value, str) or len(value) > 4096):
            return f"{self.name}: is no text of a sensible length"
        return ""


COMMON = (
    Parameter("experiment", "experiment", "name of the experiment; its folder below experiments_dir"),
    Parameter(
        "experiments_dir", "", "folder with a folder for each experiment; empty: CRBO_HOME, or crbo_ros in ROS_HOME"
    ),
    Parameter("task", "furuta", "registered task (furuta, basketball, pendulum, ...; custom: a runner of your own)"),
    Parameter("plant", "", "the task's plant; empty: the task's first one"),
    Parameter("task_options", GROUP, "options of the task, one parameter each (task_options.env, ...)"),
    Parameter("autostart", True, "configure and activate by itself; false: wait for lifecycle transitions"),
)

CONTRACT = (  # the same for optimizer and safety monitor, each of which keeps its own account (docs/SAFETY.md)
    Parameter("j_min", NO_LIMIT, "threshold of the return; -inf: by j_min_drop alone", changeable=True),
    Parameter(
        "j_min_drop", -1.0, "the same relative to the start: J0 - j_min_drop |J0|; -1: the task's own; inf: none",
        minimum=0.0, changeable=True, infinite=True,
    ),
    Parameter(
        "risk", 0.05, "share of the rollouts that may fall below the threshold", minimum=0.0, maximum=1.0,
        changeable=True,
    ),
    Parameter(
        "start_rollouts", 3, "rollouts of theta_0 that J0 is the mean of; 2 that agree are enough", minimum=1,
        maximum=100,
    ),
    Parameter("lipschitz", 0.0, "a floor for L, return per unit-box distance; 0: calibrated alone", minimum=0.0,
              maximum=1e12),
    Parameter(
        "episodes", 0, "episode budget; 0: the task's own; -1: no limit", minimum=-1, maximum=10**6, changeable=True
    ),
)  # fmt: skip

OPTIMIZER = (
    *COMMON,
    *CONTRACT,
    Parameter("method", "crbo", "registered method: crbo, cma_es, turbo, ..."),
    Parameter("settings", GROUP, "settings of the method, one parameter each (settings.beta, ...)"),
    Parameter("seed", 1, "seed of the method", minimum=0, maximum=2**31 - 1),
    Parameter(
        "gamma", 0.0, "confidence parameter, (0, 1]; 0: the task's own", minimum=0.0, maximum=1.0, changeable=True
    ),
    Parameter(
        "attach", "", "earlier episodes: a CSV file, a bag, an experiment (of another plant: for the mean alone)"
    ),
)

MONITOR = (
    *COMMON,
    *CONTRACT,
    Parameter("require_operator", False, "every proposal waits for review_proposal", changeable=True),
)

RUNNER = (
    *COMMON,
    Parameter("seed", 1, "seed of the rollouts' randomness", minimum=0, maximum=2**31 - 1),
    Parameter(
        "heartbeat_timeout",
        0.5,
        "s without the monitor's heartbeat after which nothing moves (comes at 10 Hz)",
        minimum=0.15,
        maximum=10.0,
    ),
    Parameter("yes_move", False, "hardware may move at once; false: after the operator's first clear in this run"),
)

NODES = {"optimizer": OPTIMIZER, "safety_monitor": MONITOR, "episode_runner": RUNNER}


def threshold_drop(value: float, j_min: float, own: float, hardware: bool) -> float:
    """The parameter j_min_drop as the contract takes it; `own` is the task's, NaN if it has none.

    Hardware does not start without a threshold, unless somebody says that there is none.
    """
    if value >= 0.0:
        return value
    if own != own and hardware and not j_min > NO_LIMIT:
        raise InvalidInput(
            "parameter j_min_drop: hardware needs a threshold, and this task has none of its own; set j_min or "
            "j_min_drop (./crbo advise proposes one), or j_min_drop: .inf if there shall be none. (A runner of your "
            "own that moves nothing real: task_options.hardware: false)"
        )
    return float("inf") if own != own else own


def budget(episodes: int, own: int) -> int:
    """The parameter `episodes` as an episode budget, where 0 is no limit; `own` is the task's."""
    return 0 if episodes < 0 else episodes or own


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"a.b": 1, "c": 2} -> {"a": {"b": 1}, "c": 2}; mappings in it are merged, the later one overrides."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        first, dot, rest = name.partition(".")
        if dot or isinstance(value, Mapping):
            below = found.get(first)
            inner = nested({rest: value} if dot else value)
            found[first] = nested({**flatten(below), **flatten(inner)}) if isinstance(below, dict) else inner
        else:
            found[first] = value
    return found


def flatten(values: Mapping[str, Any]) -> dict[str, Any]:
    """{"a": {"b": 1}, "c": 2} -> {"a.b": 1, "c": 2}."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= {f"{name}.{n}": v for n, v in flatten(value).items()} if isinstance(value, Mapping) else {name: value}
    return flat


def as_parameters(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """JSON values as ROS can carry them, None left out; InvalidInput names the one that it cannot."""
    fit: dict[str, Any] = {}
    for key, value in values.items():
        where = f"{name}.{key}"
        if isinstance(value, Mapping):
            fit[key] = as_parameters(value, where)
        elif isinstance(value, list):
            fit[key] = _array(value, where)
        elif value is not None:
            fit[key] = value
    return {key: value for key, value in fit.items() if value != {}}


def _array(values: list[Any], name: str) -> list[Any]:
    kinds = {type(value) for value in values}
    if kinds == {int, float}:
        return [float(value) for value in values]
    if len(kinds) != 1 or not kinds <= {bool, int, float, str}:
        raise InvalidInput(f"{name}: {values} is no list that a ROS parameter can hold (numbers, texts, or true/false)")
    return values
