"""The graph, defined once: which nodes, with which parameters. The launch files and `crbo run` both start this.

Plain data without ROS. Parameters come from config/<task>.yaml; arguments override them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crbo_ros import checks
from crbo_ros.errors import InvalidInput
from crbo_ros.registry import load
from crbo_ros.ros import parameter_files
from crbo_ros.ros.parameters import NODES, as_parameters, flatten, nested

OPTIMIZER, MONITOR, RUNNER = "optimizer", "safety_monitor", "episode_runner"
ALL = (OPTIMIZER, MONITOR, RUNNER)


@dataclass(frozen=True)
class Argument:
    """A launch argument / command-line option, and the parameter it sets on which nodes. Empty: the config's value.

    The type dict stands for JSON text, which becomes nested parameters.
    """

    name: str
    description: str
    nodes: tuple[str, ...] = ()
    type: type = str
    default: str = ""


ARGUMENTS = (
    Argument("plant", "the task's plant (furuta: stand_in, nominal, gym_brt_sim, qube_hardware, qube_pal)", ALL),
    Argument("method", "crbo, cma_es, turbo, ...", (OPTIMIZER,)),
    Argument("episodes", "episode budget (default: the task's own; -1: no limit)", (OPTIMIZER, MONITOR), int),
    Argument("seed", "seed of method and rollouts", (OPTIMIZER, RUNNER), int),
    Argument("gamma", "confidence parameter, (0, 1]", (OPTIMIZER,), float),
    Argument("j_min", "threshold of the return that the contract is about", (OPTIMIZER, MONITOR), float),
    Argument(
        "j_min_drop", "the same relative to the start: J0 - j_min_drop |J0|; inf: none", (OPTIMIZER, MONITOR), float
    ),
    Argument("risk", "share of the rollouts that may fall below it", (OPTIMIZER, MONITOR), float),
    Argument("start_rollouts", "rollouts of theta_0 that J0 is the mean of", (OPTIMIZER, MONITOR), int),
    Argument("yes_move", "hardware may move at once, without a first consent (true, false)", (RUNNER,), bool),
    Argument(
        "lipschitz", "floor for the Lipschitz constant (return per unit-box distance)", (OPTIMIZER, MONITOR), float
    ),
    Argument("require_operator", "every proposal waits for an operator (true, false)", (MONITOR,), bool),
    Argument("publish_trajectory", "publish each episode's trajectory (true, false)", (RUNNER,), bool),
    Argument("settings", "further settings of the method, as JSON", (OPTIMIZER,), dict),
    Argument("task_options", "further options of the task, as JSON", ALL, dict),
    Argument("experiment", "name of the experiment (default: TASK-PLANT-METHOD-sSEED)", ALL),
    Argument("experiments_dir", "where experiments are kept", ALL),
    Argument("resume", "carry on with an experiment that exists (true, false)", (OPTIMIZER,), bool),
)
# Short names for task_options.
TASK_OPTIONS = (
    Argument("env", "gymnasium environment (task gym)"),
    Argument("weights", "policy file (task gym)"),
    Argument("config", "YAML file (tasks tuning and arm)"),
    Argument("realtime", "a simulated plant in real time (true, false; task furuta)", type=bool),
)
# Arguments about the graph itself.
RUNNERS = Argument("runners", "number of episode runners (default: 1; task custom: 0, bring your own)", type=int)
NAMESPACE = Argument("namespace", "ROS namespace of all nodes")
CONFIG = Argument("params_file", "parameter file (default: the package's config/TASK.yaml)")
LEVELS = ("debug", "info", "warn", "error", "fatal")
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
        file = parameter_files.read(self.params_file)
        values: dict[str, Any] = {}
        for key in ("/**", f"/**/{self.name}", f"/{self.name}"):
            values |= flatten((file.get(key) or {}).get("ros__parameters") or {})
        return nested(values | flatten(self.parameters))


def parse(argument: Argument, text: str) -> Any:
    """An argument's text as its type, or InvalidInput that names it."""
    try:
        if argument.type is bool:
            return {"true": True, "false": False}[text.lower()]
        value = checks.parse_json(text, argument.name) if argument.type is dict else argument.type(text[:4096])
        if not isinstance(value, argument.type):
            raise ValueError
    except (ValueError, KeyError) as error:
        if isinstance(error, InvalidInput):
            raise
        wanted = {bool: "true or false", int: "a whole number", float: "a number", dict: "a JSON object"}
        raise InvalidInput(f"{argument.name}: {text!r} is not {wanted.get(argument.type, 'text')}") from None
    if isinstance(value, dict):
        checks.finite(value, argument.name)
        return as_parameters(value, argument.name)
    for node in argument.nodes:  # whatever else its parameter says
        for parameter in NODES[node]:
            if parameter.name == argument.name and (wrong := parameter.complaint(value)):
                raise InvalidInput(wrong)
    return value


def config_file(task: str) -> Path:
    """config/<task>.yaml, or default.yaml for a task that has none, of the sources or of the installed package."""
    places = [Path(__file__).parents[2] / "config"]
    for prefix in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
        places.append(Path(prefix) / "share" / "crbo_ros" / "config")
    load("tasks", task)  # or UnknownName
    for place, name in [(place, name) for name in (task, "default") for place in places]:
        if (place / f"{name}.yaml").is_file():
            return place / f"{name}.yaml"
    raise InvalidInput(f"no config/{task}.yaml in {' or '.join(map(str, places))}")


def with_task_options(arguments: dict[str, str]) -> dict[str, str]:
    """The arguments with env, weights, config (files: by their full path) and realtime moved into task_options."""
    short = {argument.name: argument for argument in TASK_OPTIONS}
    options = {name: parse(short[name], arguments[name]) for name in sorted(short) if arguments.get(name)}
    options |= {
        name: str(Path(options[name]).expanduser().resolve()) for name in ("weights", "config") if name in options
    }
    rest = {name: text for name, text in arguments.items() if name not in short}
    if options:
        task_options = next(argument for argument in ARGUMENTS if argument.name == "task_options")
        rest["task_options"] = json.dumps({**parse(task_options, arguments.get("task_options") or "{}"), **options})
    return rest


def graph(task: str, arguments: dict[str, str]) -> list[NodeSpec]:
    """The nodes for a task, from arguments as text (empty or missing: the config file's value)."""
    arguments = with_task_options(arguments)
    file = Path(arguments[CONFIG.name]).expanduser() if arguments.get(CONFIG.name) else config_file(task)
    if not file.is_file():
        raise InvalidInput(f"params_file: {file} does not exist")
    values: dict[str, dict[str, Any]] = {node: {"task": task} for node in ALL}
    for argument in ARGUMENTS:
        if text := arguments.get(argument.name, ""):
            value = parse(argument, text)
            for node in argument.nodes if value != {} else ():
                values[node][argument.name] = value
    own = NodeSpec(OPTIMIZER, OPTIMIZER, file, values[OPTIMIZER]).configured()
    checks.namespace(arguments.get(NAMESPACE.name, ""))
    checks.choice(arguments.get(LOG_LEVEL.name) or LOG_LEVEL.default, LEVELS, "log_level")
    plant = own.get("plant") or load("tasks", task).plants[0]
    name = own.get("experiment") or f"{task}-{plant}-{own.get('method', 'crbo')}-s{own.get('seed', 1)}"
    for node in ALL:
        values[node]["experiment"] = checks.name(name, "experiment")
    runners = parse(RUNNERS, arguments.get(RUNNERS.name) or ("0" if task == "custom" else "1"))
    if not 0 <= runners <= 64:
        raise InvalidInput(f"runners: {runners} is not from 0 to 64")
    ours = ["episode_runner"] if runners == 1 else [f"episode_runner_{i}" for i in range(runners)]
    nodes = [(OPTIMIZER, OPTIMIZER), (MONITOR, MONITOR), *((RUNNER, name) for name in ours)]
    specs = [NodeSpec(executable, name, file, values[executable]) for executable, name in nodes]
    for spec in specs:
        check(spec)
    load("methods", str(own.get("method", "crbo")))  # or UnknownName
    return specs


def check(spec: NodeSpec, namespace: str = "") -> None:
    """InvalidInput for a parameter that the node does not have or would refuse; with a namespace, for a section too."""
    table, found = NODES[spec.executable], parameter_files.sections(spec.params_file)
    configured = spec.configured()
    names = [name for name in flatten(configured) if not isinstance(configured.get(name), dict)]
    full_name = f"/{namespace.strip('/') or 'namespace'}/{spec.name}"
    if wrong := parameter_files.unknown(full_name, table, names, found):
        raise InvalidInput(f"{spec.params_file.name}: {wrong}")
    if namespace and (wrong := parameter_files.for_nobody(full_name, found)):
        raise InvalidInput(wrong)
    for parameter in table:
        value = configured.get(parameter.name, parameter.default)
        if parameter.default == {}:
            checks.finite(value, parameter.name)
        elif wrong := parameter.complaint(value):
            raise InvalidInput(f"{spec.params_file.name}: {wrong}")
