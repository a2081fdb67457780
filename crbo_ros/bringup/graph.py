"""The graph, defined once: which nodes, with which parameters. The launch files and `crbo run` both start this.

Plain data without ROS. Parameters come from config/<task>.yaml; arguments that are given override them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crbo_ros.errors import InvalidInput
from crbo_ros.registry import names

OPTIMIZER, MONITOR, RUNNER = "optimizer", "safety_monitor", "episode_runner"
ALL = (OPTIMIZER, MONITOR, RUNNER)


@dataclass(frozen=True)
class Argument:
    """A launch argument / command-line option, and the parameter it sets on which nodes. Empty: the config's value."""

    name: str
    description: str
    nodes: tuple[str, ...] = ()
    type: type = str
    default: str = ""


ARGUMENTS = (
    Argument("plant", "the task's plant (furuta: stand_in, nominal, gym_brt_sim, qube_hardware, qube_pal)", ALL),
    Argument("method", "crbo, cma_es, turbo, ...", (OPTIMIZER,)),
    Argument("episodes", "episode budget", (OPTIMIZER,), int),
    Argument("seed", "seed of method and rollouts", (OPTIMIZER, RUNNER), int),
    Argument("gamma", "confidence parameter, (0, 1]", (OPTIMIZER,), float),
    Argument("j_min", "no rollout whose worst case is below this return", (OPTIMIZER, MONITOR), float),
    Argument("j_min_drop", "the same relative to the start: J0 - j_min_drop |J0|", (MONITOR,), float),
    Argument("lipschitz", "known Lipschitz constant (return per unit-box distance)", (MONITOR,), float),
    Argument("require_operator", "every proposal waits for an operator (true, false)", (MONITOR,), bool),
    Argument("realtime", "simulated plants in real time (true, false)", (RUNNER,), bool),
    Argument("publish_trajectory", "publish each episode's trajectory (true, false)", (RUNNER,), bool),
    Argument("settings", "further settings of the method, as JSON", (OPTIMIZER,)),
    Argument("task_options", "further options of the task, as JSON", ALL),
    Argument("experiment", "name of the experiment (default: TASK-METHOD-sSEED)", ALL),
    Argument("experiments_dir", "where experiments are kept", ALL),
    Argument("resume", "carry on with an experiment that exists (true, false)", (OPTIMIZER,), bool),
)
# Short words for task_options.
TASK_OPTIONS = (
    Argument("env", "gymnasium environment (task gym)"),
    Argument("weights", "policy file (task gym)"),
    Argument("config", "YAML file (tasks tuning and arm)"),
)
# Arguments about the graph itself.
RUNNERS = Argument("runners", "number of episode runners (default: 1; task custom: 0, bring your own)", type=int)
NAMESPACE = Argument("namespace", "ROS namespace of all nodes")
CONFIG = Argument("params_file", "parameter file (default: the package's config/TASK.yaml)")
LOG_LEVEL = Argument("log_level", "debug, info, warn, error", default="info")


@dataclass(frozen=True)
class NodeSpec:
    """One process: the executable lib/crbo_ros/<executable> is the module crbo_ros.nodes.<executable>."""

    executable: str
    name: str
    params_file: Path
    parameters: dict[str, Any] = field(default_factory=dict)

    def configured(self) -> dict[str, Any]:
        """The parameters that the node will have: those of the file for all nodes and for this one, then its own."""
        import yaml

        file = yaml.safe_load(self.params_file.read_text()) or {}
        entries = [file.get(key, {}).get("ros__parameters", {}) for key in ("/**", f"/**/{self.name}", f"/{self.name}")]
        return {**entries[0], **entries[1], **entries[2], **self.parameters}


def parse(argument: Argument, text: str) -> Any:
    """An argument's text as its type, or InvalidInput that names it."""
    try:
        if argument.type is bool:
            return {"true": True, "false": False}[text.lower()]
        return argument.type(text)
    except (ValueError, KeyError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}.get(argument.type, "text")
        raise InvalidInput(f"{argument.name}: {text!r} is not {wanted}") from None


def config_file(task: str) -> Path:
    """config/<task>.yaml, or default.yaml for a task that has none, of the sources or of the installed package."""
    places = [Path(__file__).parents[2] / "config"]
    for prefix in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
        places.append(Path(prefix) / "share" / "crbo_ros" / "config")
    known = [*names("tasks"), "custom"]
    if task not in known:
        raise InvalidInput(f"no task is called {task!r}; there are: {', '.join(known)}")
    for place, name in [(place, name) for name in (task, "default") for place in places]:
        if (place / f"{name}.yaml").is_file():
            return place / f"{name}.yaml"
    raise InvalidInput(f"no config/{task}.yaml in {' or '.join(map(str, places))}")


def with_task_options(given: dict[str, str]) -> dict[str, str]:
    """The arguments with env, weights and config (files: by their full path) moved into task_options."""
    words = {argument.name for argument in TASK_OPTIONS}
    found = {name: given[name] for name in sorted(words) if given.get(name)}
    found |= {name: str(Path(found[name]).expanduser().resolve()) for name in ("weights", "config") if name in found}
    rest = {name: text for name, text in given.items() if name not in words}
    if found:
        try:
            options = json.loads(given.get("task_options") or "{}")
        except ValueError as error:
            raise InvalidInput(f"task_options: not JSON ({error})") from None
        rest["task_options"] = json.dumps({**options, **found})
    return rest


def graph(task: str, given: dict[str, str]) -> list[NodeSpec]:
    """The nodes for a task, from arguments as text (empty or missing: the config file's value)."""
    given = with_task_options(given)
    file = Path(given[CONFIG.name]).expanduser() if given.get(CONFIG.name) else config_file(task)
    if not file.is_file():
        raise InvalidInput(f"params_file: {file} does not exist")
    values: dict[str, dict[str, Any]] = {node: {"task": task} for node in ALL}
    for argument in ARGUMENTS:
        if text := given.get(argument.name, ""):
            for node in argument.nodes:
                values[node][argument.name] = parse(argument, text)
    if not given.get("experiment"):
        method, seed = given.get("method") or "crbo", given.get("seed") or "1"
        for node in ALL:
            values[node]["experiment"] = f"{task}-{method}-s{seed}"
    runners = parse(RUNNERS, given.get(RUNNERS.name) or ("0" if task == "custom" else "1"))
    if not 0 <= runners <= 64:
        raise InvalidInput(f"runners: {runners} is not from 0 to 64")
    ours = ["episode_runner"] if runners == 1 else [f"episode_runner_{i}" for i in range(runners)]
    nodes = [(OPTIMIZER, OPTIMIZER), (MONITOR, MONITOR), *((RUNNER, name) for name in ours)]
    return [NodeSpec(executable, name, file, values[executable]) for executable, name in nodes]
