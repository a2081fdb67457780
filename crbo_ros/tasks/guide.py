"""A task's simulators as a guide: what core/guide.py asks for, made from plants by name.

`--guide nominal` is the path of the task on its simulated plant "nominal", `--guide nominal,other` of both together,
`--guide ensemble` of plausible plants where the task knows such. A simulated episode falls where it has no return, or
one that would break the task's own threshold: J0 - j_min_drop |J0|, J0 that of the same simulator.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from crbo_ros.core.guide import GuidePath, Simulated, gradient_path
from crbo_ros.core.hyperparameters import make_hyperparameters
from crbo_ros.core.problem import Problem
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput
from crbo_ros.registry import load
from crbo_ros.tasks.base import Array, Task

START = 0x601D  # of the start states' seeds


def simulated(task: Task, space: Space) -> Simulated:
    """(x in the unit box, number of a start state) -> (return, whether it fell) of a simulated task."""

    def episode(x: Array, start: int) -> tuple[float, bool]:
        outcome = task.rollout(space.from_unit(np.clip(x, 0.0, 1.0)), np.random.default_rng([START, start]))
        return float(outcome.value), not outcome.counts

    drop = 0.0 if math.isnan(task.j_min_drop) else task.j_min_drop
    own, fell = episode(space.to_unit(task.theta_0), 0)
    threshold = own - drop * abs(own) if drop and not fell else -math.inf

    def judged(x: Array, start: int) -> tuple[float, bool]:
        value, fell = episode(x, start)
        return value, fell or not value >= threshold

    return judged


def make_guide(problem: Problem, guide: str, options: dict[str, Any], preset: str = "default") -> GuidePath:
    """The path of the simulated plants that `guide` names, comma-separated; `options` are the task's own."""
    return path_of(check_guide(problem, guide, options), problem, preset)


def path_of(tasks: list[Task], problem: Problem, preset: str = "default") -> GuidePath:
    """The path of these simulated tasks."""
    space = problem.space
    try:
        for task in tasks:
            task.connect()
        lengthscale = make_hyperparameters(preset, space.dim).start[0]
        return gradient_path([simulated(task, space) for task in tasks], space.to_unit(problem.theta_0), lengthscale)
    finally:
        for task in tasks:
            task.close()


def check_guide(problem: Problem, guide: str, options: dict[str, Any]) -> list[Task]:
    """The simulated tasks; InvalidInput where one moves something real, or has another policy."""
    kind = load("tasks", problem.task)
    tasks: list[Task] = [task for name in guide.split(",") for task in kind.simulators(name.strip(), **options)]
    for task in tasks:
        if task.hardware:
            raise InvalidInput(f"guide: plant {task.plant_name!r} of task {task.name!r} is real; name a simulated one")
        same = np.array_equal(task.theta_0, problem.theta_0) and np.array_equal(task.space.upper, problem.space.upper)
        if not same:
            raise InvalidInput(f"guide: on plant {task.plant_name!r} the task has another policy or domain")
    return tasks
