"""Names -> tasks, methods and plants: the built-in ones and those of other packages (entry points).

A third-party package registers its own with, in its setup.py,

    entry_points={"crbo_ros.tasks": ["my_task = my_package.my_task:MyTask"],
                  "crbo_ros.methods": ["my_method = my_package.my_method:MyMethod"],
                  "crbo_ros.plants": ["furuta.my_qube = my_package.my_qube:MyQube"]}   # TASK.PLANT
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from crbo_ros import checks
from crbo_ros.errors import CrboError, InvalidInput, UnknownName

if TYPE_CHECKING:
    from crbo_ros.core.problem import Problem

TASKS = {
    "furuta": "crbo_ros.tasks.furuta:Furuta",
    "basketball": "crbo_ros.tasks.basketball:Basketball",
    "pendulum": "crbo_ros.tasks.gym:Pendulum",
    "cartpole": "crbo_ros.tasks.gym:CartPole",
    "mountaincar": "crbo_ros.tasks.gym:MountainCar",
    "gym": "crbo_ros.tasks.gym:GymTask",
    "tuning": "crbo_ros.tasks.tuning:Tuning",
    "arm": "crbo_ros.tasks.arm:Arm",
    "custom": "crbo_ros.tasks.custom:Custom",  # no runner of ours
}
METHODS = {
    "crbo": "crbo_ros.core.crbo:CRBO",
    "bo": "crbo_ros.methods.bo:BO",
    "cma_es": "crbo_ros.methods.cma_es:CmaEs",
    "turbo": "crbo_ros.methods.turbo:Turbo",
    "local_bo": "crbo_ros.methods.local_bo:LocalBO",
    "logei": "crbo_ros.methods.logei:LogEI",
    "gibo": "crbo_ros.methods.gibo:GIBO",
    "hci_gibo": "crbo_ros.methods.hci_gibo:HciGIBO",
    "min_ucb": "crbo_ros.methods.min_ucb:MinUCB",
    "la_min_ucb": "crbo_ros.methods.min_ucb:LookAheadMinUCB",
    "les": "crbo_ros.methods.les:LES",
    "linear_bo": "crbo_ros.methods.linear_bo:LinearBO",
    "safe_cma": "crbo_ros.methods.safe_cma:SafeCmaEs",
    "safe_opt": "crbo_ros.methods.safe_opt:SafeOpt",
    "los_gp_ucb": "crbo_ros.methods.los_gp_ucb:LosGpUcb",
    "sobol": "crbo_ros.methods.sobol:Sobol",
    "random_search": "crbo_ros.methods.random_search:RandomSearch",
}
RANGES = {"gamma": (0.0, 1.0), "width": (0.0, 1e6)}  # of options that tasks share
PLANTS: dict[str, str] = {}  # further plants of a task, as TASK.PLANT; a task makes its own ones itself
UNLISTED = {  # not to choose by name
    "acceptance": "crbo_ros.methods.acceptance:Acceptance",  # old against new: crbo accept does
    "guided": "crbo_ros.methods.guided:Guided",  # crbo with the setting guide
}
BUILT_IN = {"tasks": TASKS, "methods": METHODS, "plants": PLANTS}


def names(kind: str) -> list[str]:
    """All registered names of a kind ("tasks", "methods" or "plants")."""
    return sorted(set(BUILT_IN[kind]) | {point.name for point in entry_points(group=f"crbo_ros.{kind}")})


def load(kind: str, name: str) -> Any:
    """The class registered under a name; UnknownName lists what there is."""
    if target := BUILT_IN[kind].get(name) or UNLISTED.get(name):
        module, attribute = target.split(":")
        return getattr(import_module(module), attribute)
    for point in entry_points(group=f"crbo_ros.{kind}", name=name):
        return point.load()
    raise UnknownName(f"no {kind[:-1]} is called {name!r}; there are: {', '.join(names(kind))}")


def make_task(name: str, plant: str | None = None, **options: Any) -> Any:
    """A task by name, on the plant of that name (the task's first one by default)."""
    task = load("tasks", name)
    _check_options(name, task, options)
    with _explained(f"task {name!r} cannot be made with these options"):
        return task(plant, **options)


def task_problem(name: str, plant: str | None = None, **options: Any) -> Problem:
    """A task's facts, without making a plant or connecting anything."""
    task = load("tasks", name)
    _check_options(name, task, options)
    with _explained(f"task {name!r} cannot be read with these options"):
        found: Problem = task.problem(plant, **options)
        return found


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """What a task, a plant or a method raises about its options, as a sentence."""
    try:
        yield
    except CrboError:
        raise
    except (
        TypeError,
        ValueError,
        KeyError,
        IndexError,
        AttributeError,
        ArithmeticError,
        OSError,
        MemoryError,
    ) as error:
        raise InvalidInput(f"{what} ({type(error).__name__}: {' '.join(str(error).split())[:300]})") from error


def _check_options(name: str, task: Any, options: dict[str, Any]) -> None:
    """InvalidInput for an option that the task does not have."""
    taken = inspect.signature(task.__init__).parameters.values()
    known = [p.name for p in taken if p.kind is p.KEYWORD_ONLY]
    if any(p.kind is p.VAR_KEYWORD for p in taken):
        return
    known += [p.name for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in ("self", "plant")]
    for option in options:
        if option not in known:
            there = f"it has {', '.join(known)}" if known else "it has none"
            raise InvalidInput(f"task {name!r} has no option {option!r}{did_you_mean(option, known) or f'; {there}'}")
    for parameter in taken:
        if parameter.name in options:
            _check_option(parameter, options[parameter.name])


def _check_option(parameter: inspect.Parameter, value: Any) -> None:
    """That an option is of the kind that the task declares, and its numbers are finite."""
    kinds = [kind.strip().partition("[")[0] for kind in str(parameter.annotation).split(" | ")]
    what = f"option {parameter.name}"
    checks.finite(value if not isinstance(value, tuple) else list(value), what)
    plain: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "str": str, "dict": dict, "list": list}
    if not all(kind in (*plain, "None", "Path") for kind in kinds) or (value is None and "None" in kinds):
        return
    wanted = [plain[kind] for kind in kinds if kind in plain]
    fits = any(isinstance(value, kind) and ("bool" in kinds or not isinstance(value, bool)) for kind in wanted)
    if not fits and not isinstance(value, os.PathLike):
        raise InvalidInput(f"{what}: {value!r:.60} is not {' or '.join(k for k in kinds if k not in ('None', 'Path'))}")
    if value == "":
        raise InvalidInput(f"{what}: must not be empty")
    if parameter.name in RANGES:
        checks.number(value, what, *RANGES[parameter.name], above=True)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """ "; did you mean ...?" with the nearest known word, or ""."""
    near = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def make_method(name: str, space: Any, theta_0: Any, *, seed: int = 0, **settings: Any) -> Any:
    """A method by name; settings are the method's own (gamma, sigma_0, ...)."""
    checks.finite(settings, "settings")
    if name == "crbo" and settings.get("guide"):
        name = "guided"
    with _explained(f"parameter settings: method {name!r} cannot be made with them"):
        return load("methods", name)(space, theta_0, seed=seed, **settings)
