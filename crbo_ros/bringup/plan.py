"""A run before it begins: what will be started, and everything that can be known to be wrong about it.

`ros2 launch` and `crbo run` both begin with this, so that a mistake is told once, before any process is started.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from crbo_ros.bringup.graph import LOG_LEVEL, NAMESPACE, REMAP, RUNNER, NodeSpec, check, graph, remappings
from crbo_ros.core.problem import Problem
from crbo_ros.errors import InvalidInput
from crbo_ros.home import home, namespace_of
from crbo_ros.protocol import manifest
from crbo_ros.protocol.database import claim
from crbo_ros.protocol.earlier import earlier_episodes
from crbo_ros.registry import load, make_method, make_task, task_problem
from crbo_ros.tasks.guide import check_guide


@dataclass(frozen=True)
class Plan:
    """One graph, checked."""

    task: str
    specs: list[NodeSpec]
    problem: Problem
    folder: Path  # of the experiment
    namespace: str
    remap: list[tuple[str, str]]
    log_level: str
    arguments: dict[str, str]  # those that were given

    @property
    def own(self) -> dict[str, object]:
        """The optimizer's parameters."""
        return self.specs[0].configured()


def make_plan(task: str, arguments: dict[str, str]) -> Plan:
    """What the arguments mean; CrboError names what is wrong with them, or what is not installed."""
    folder = str(home(arguments.get("experiments_dir", "")))
    if arguments.get("experiments_dir"):
        arguments = {**arguments, "experiments_dir": folder}
    if Path(folder).exists() and not Path(folder).is_dir():
        raise InvalidInput(f"experiments_dir: {folder} is a file, not a folder")
    specs = graph(task, arguments)
    own = specs[0].configured()
    problem = task_problem(task, own.get("plant") or None, **own.get("task_options", {}))
    experiment = str(own["experiment"])
    namespace = (arguments.get(NAMESPACE.name) or namespace_of(experiment)).strip("/")
    for spec in specs:
        check(spec, namespace)
    _check_method(own, problem)
    if guide := own.get("settings", {}).get("guide"):
        check_guide(problem, str(guide), own.get("task_options", {}))
    if any(spec.executable == RUNNER for spec in specs):
        make_task(task, problem.plant, **own.get("task_options", {})).check()
    place = home(str(own.get("experiments_dir") or "")) / experiment
    if own.get("attach") and not (place / "experiment.sqlite").exists():
        earlier_episodes(str(own["attach"]), problem, str(own.get("experiments_dir") or ""))
    with contextlib.suppress(OSError):  # an experiment that runs already is told here, without disturbing it
        os.close(claim(place / "experiment.sqlite"))
    return Plan(
        task, specs, problem, place, namespace, remappings(arguments.get(REMAP.name, "")),
        arguments.get(LOG_LEVEL.name) or LOG_LEVEL.default, {k: v for k, v in arguments.items() if v},
    )  # fmt: skip


def save_plan(plan: Plan) -> None:
    """The record's manifest and copies of the inputs, in the experiment's folder."""
    file, options = plan.specs[0].params_file, plan.specs[0].configured().get("task_options", {})
    try:
        manifest.begin(plan.folder, plan.task, plan.problem.plant, options, plan.arguments, file)
    except OSError as error:
        raise InvalidInput(
            f"experiments_dir: nothing can be written in {plan.folder} ({error.strerror}); choose another folder"
        ) from None


def _check_method(own: dict[str, object], problem: Problem) -> None:
    method, settings = str(own.get("method", "crbo")), own.get("settings", {})
    assert isinstance(settings, dict)
    load("methods", method)
    try:
        make_method(method, problem.space, problem.theta_0, seed=1, **settings)
    except TypeError as error:
        raise InvalidInput(f"parameter settings: {error}") from None
