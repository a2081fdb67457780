"""The graph, defined once: which nodes, with which parameters. The launch files and `crbo run` both start this.

Plain data without ROS. Parameters come from config/<task>.yaml; arguments override them.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crbo_ros import checks
from crbo_ros.errors import InvalidInput
from crbo_ros.home import home, namespace_of
from crbo_ros.registry import load, names
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
    Argument("episodes", "episode budget (default, 0: the task's own; -1: no limit)", (OPTIMIZER, MONITOR), int),
    Argument("seed", "seed of method and rollouts", (OPTIMIZER, RUNNER), int),
    Argument("gamma", "confidence parameter, (0, 1]; 0: the task's own", (OPTIMIZER,), float),
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
    Argument("settings", "further settings of the method, as JSON", (OPTIMIZER,), dict),
    Argument("task_options", "further options of the task, as JSON", ALL, dict),
    Argument("experiment", "name of the experiment (default: TASK-PLANT-METHOD-sSEED)", ALL),
    Argument("experiments_dir", "where experiments are kept (default: CRBO_HOME, or crbo_ros in ROS_HOME)", ALL),
    Argument(
        "attach",
        "earlier episodes: a CSV file, a bag (.mcap), or an experiment (of another plant: for the mean alone)",
        (OPTIMIZER,),
    ),
    Argument("use_sim_time", "stamps come from /clock (true, false)", ALL, bool),
)
# Short names for task_options.
TASK_OPTIONS = (
    Argument("env", "gymnasium environment (task gym)"),
    Argument("weights", "policy file (task gym)"),
    Argument("config", "YAML file (tasks tuning and arm)"),
    Argument("realtime", "a simulated plant in real time (true, false; task furuta)", type=bool),
)
# Short names for settings.
SETTINGS = (Argument("guide", "a simulated plant that suggests first steps (furuta: nominal, ensemble); crbo alone"),)
# Arguments about the graph itself.
RUNNERS = Argument("runners", "number of episode runners (default: 1; task custom: 0, bring your own)", type=int)
NAMESPACE = Argument("namespace", "ROS namespace of all nodes (default: the experiment's name)")
REMAP = Argument(
    "remap", "names that are called otherwise in your stack: joint_states:=/arm/joint_states,stop:=/e_stop"
)
CONFIG = Argument("params_file", "parameter file (default: the package's config/TASK.yaml)")
LEVELS = ("debug", "info", "warn", "error", "fatal")
LOG_LEVEL = Argument("log_level", "debug, info, warn, error", default="info")
EVERY = (*ARGUMENTS, *TASK_OPTIONS, *SETTINGS, RUNNERS, NAMESPACE, REMAP, CONFIG, LOG_LEVEL)
REMAPPING = re.compile(r"[~/\w]+:=[~/\w]+")


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
    load("tasks", task)  # or UnknownName
    places = config_places()
    for place, name in [(place, name) for name in (task, "default") for place in places]:
        if (place / f"{name}.yaml").is_file():
            return place / f"{name}.yaml"
    raise InvalidInput(
        f"no config/{task}.yaml in {' or '.join(map(str, places))}: this needs crbo_ros as a ROS package, and "
        "pip installs the library alone. Build it in a workspace (colcon build), or use the crbo of a clone"
    )


def config_places() -> list[Path]:
    """Where parameter files lie: in the sources, and in every workspace that is sourced."""
    prefixes = filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep))
    return [Path(__file__).parents[2] / "config", *(Path(p) / "share" / "crbo_ros" / "config" for p in prefixes)]


def with_task_options(arguments: dict[str, str]) -> dict[str, str]:
    """The arguments with env, weights, config (files: by their full path) and realtime moved into task_options, and
    guide into settings."""
    options = _given(TASK_OPTIONS, arguments)
    options |= {
        name: str(checks.path(options[name], name).resolve()) for name in ("weights", "config") if name in options
    }
    short = {argument.name for argument in (*TASK_OPTIONS, *SETTINGS)}
    rest = {name: text for name, text in arguments.items() if name not in short}
    for group, given in (("task_options", options), ("settings", _given(SETTINGS, arguments))):
        if given:
            argument = next(argument for argument in ARGUMENTS if argument.name == group)
            rest[group] = json.dumps({**parse(argument, arguments.get(group) or "{}"), **given})
    return rest


def _given(short: tuple[Argument, ...], arguments: dict[str, str]) -> dict[str, Any]:
    return {a.name: parse(a, arguments[a.name]) for a in sorted(short, key=str) if arguments.get(a.name)}


def graph(task: str, arguments: dict[str, str]) -> list[NodeSpec]:
    """The nodes for a task, from arguments as text (empty or missing: the config file's value)."""
    arguments = with_task_options(arguments)
    file = checks.path(arguments[CONFIG.name], CONFIG.name) if arguments.get(CONFIG.name) else config_file(task)
    if not file.is_file():
        raise InvalidInput(f"params_file: {file} does not exist")
    if (earlier := arguments.get("attach")) and checks.path(earlier, "attach").exists():
        arguments["attach"] = str(checks.path(earlier, "attach").resolve())
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


def remappings(text: str) -> list[tuple[str, str]]:
    """`a:=b,c:=d` as pairs, or InvalidInput."""
    words = [word for word in re.split(r"[,\s]+", text) if word]
    for word in words:
        if not REMAPPING.fullmatch(word):
            raise InvalidInput(f"remap: {word!r} is not of the form joint_states:=/arm/joint_states")
    return [(old, new) for old, _, new in (word.partition(":=") for word in words)]


# -- what the arguments are when nobody gives them ------------------------------------------------------


def choices(argument: Argument, task: str) -> list[str]:
    """The values that an argument may have for a task; none: any, or the task's own affair."""
    if argument in (*TASK_OPTIONS, *SETTINGS):
        return []
    if argument.type is bool:
        return ["true", "false"]
    if argument is LOG_LEVEL:
        return ["debug", "info", "warn", "error"]
    if argument.name == "method":
        return names("methods")
    if argument.name == "plant" and task != "gym":  # (env:=pendulum is another task, with plants of its own)
        others = [name.split(".", 1)[1] for name in names("plants") if name.startswith(f"{task}.")]
        return [*load("tasks", task).plants, *others]
    return []


def in_force(task: str, params_file: str = "") -> dict[str, str]:
    """The value of each argument that holds while nobody gives another one, as text."""
    specs = graph(task, {CONFIG.name: params_file})
    nodes = {spec.executable: spec.configured() for spec in [*specs, NodeSpec(RUNNER, RUNNER, specs[0].params_file)]}
    kind = load("tasks", task)
    found: dict[str, Any] = {}
    for argument in ARGUMENTS:
        values = [nodes[node].get(argument.name) for node in argument.nodes]
        defaults = [p.default for p in NODES[argument.nodes[0]] if p.name == argument.name]
        found[argument.name] = next((v for v in values if v is not None), defaults[0] if defaults else False)
    own = nodes[OPTIMIZER]
    found |= {"experiment": own["experiment"], "experiments_dir": home(found["experiments_dir"])}
    found |= {"plant": found["plant"] or kind.plants[0], "gamma": found["gamma"] or kind.gamma}
    found |= {"episodes": found["episodes"] or kind.episodes}
    if found["j_min_drop"] < 0.0:  # the task's own, if it has one
        found["j_min_drop"] = kind.j_min_drop if kind.j_min_drop == kind.j_min_drop else math.inf
    for option in TASK_OPTIONS:
        found[option.name] = own.get("task_options", {}).get(option.name, False if option.type is bool else "")
    for setting in SETTINGS:
        found[setting.name] = own.get("settings", {}).get(setting.name, "")
    found |= {RUNNERS.name: len(specs) - 2, NAMESPACE.name: namespace_of(own["experiment"]), REMAP.name: ""}
    found |= {CONFIG.name: specs[0].params_file, LOG_LEVEL.name: LOG_LEVEL.default}
    return {name: _text(value) for name, value in found.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else str(value)
