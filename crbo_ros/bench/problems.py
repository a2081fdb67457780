"""What the methods are compared on: a space, a start and a return, by name ("furuta", "synthetic-5d"), and each
method's settings there."""

from __future__ import annotations

import ast
import hashlib
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.hyperparameters import make_hyperparameters
from crbo_ros.core.settings import RECIPES, Recipe, make_settings
from crbo_ros.core.space import Space
from crbo_ros.registry import make_method, make_task

Array = NDArray[np.float64]
TASKS = ("basketball", "pendulum", "cartpole", "mountaincar", "furuta")
# the exploration parameter of a method, and its value where the paper names none
EXPLORATION = {"cma_es": ("sigma_0", 0.05), "turbo": ("length", 0.1), "local_bo": ("sigma_0", 0.05)}
CRBO_MODULES = "crbo gp_method search region hit_and_run sqp gaussian_process initial_design acquisition bound".split()
KNOWN = (0.15, 1.0, 1e-6)  # the synthetic functions' own lengthscale (unit box), signal and noise variance


@dataclass(frozen=True)
class Rollout:
    """What one rollout gave."""

    value: float  # NaN unless it counts
    end: str  # completed, terminated, stopped, failed
    reason: str = ""


@dataclass(frozen=True)
class BenchProblem:
    """A task as the methods see it. `regret` (theta -> J* - J(theta)) where the optimum is known."""

    name: str
    space: Space
    theta_0: Array
    rollout: Callable[[Array, np.random.Generator], Rollout]
    regret: Callable[[Array], float] | None = None


@lru_cache(maxsize=4)
def synthetic_function(dim: int, seed: int) -> Any:
    """Finding the optimum takes seconds: kept for the next method on the same function."""
    from crbo_ros.bench.synthetic_functions import within_model

    return within_model(dim, seed)


@contextmanager
def open_problem(name: str, seed: int) -> Iterator[BenchProblem]:
    """The problem of that name, its plant connected; "synthetic-2d" is function number `seed`."""
    if name.startswith("synthetic-"):
        function = synthetic_function(int(name.removeprefix("synthetic-").removesuffix("d")), seed)

        def observe(theta: Array, rng: np.random.Generator) -> Rollout:
            return Rollout(function.observe(theta, rng), "completed")

        yield BenchProblem(name, function.space, function.theta_0, observe, function.regret)
        return
    with make_task(name) as task:

        def rollout(theta: Array, rng: np.random.Generator) -> Rollout:
            outcome = task.rollout(theta, rng)
            return Rollout(float(outcome.value) if outcome.counts else math.nan, outcome.end, outcome.reason)

        yield BenchProblem(name, task.space, task.theta_0, rollout)


@lru_cache(maxsize=32)
def task_facts(name: str) -> dict[str, Any]:
    """A task's own numbers for the comparison, and a fingerprint of its policy and domain."""
    if name.startswith("synthetic-"):
        return {"gamma": None, "gammas": (), "exploration": {}, "episodes": 100, "fingerprint": "1"}
    with make_task(name) as task:  # one return stands for plant and reward: a changed plant changes it
        first = round(float(task.rollout(task.theta_0, np.random.default_rng(0)).value), 6)
    parts = np.concatenate([task.theta_0, task.space.lower, task.space.upper, [first]])
    return {
        "gamma": task.gamma,
        "gammas": tuple(task.gammas),
        "exploration": dict(task.exploration),
        "episodes": task.episodes,
        "dim": task.dim,
        "fingerprint": hashlib.sha256(parts.tobytes()).hexdigest()[:12],
    }


def main_setting(problem: str, method: str) -> tuple[str, dict[str, Any]]:
    """(label, settings) with which a method enters the comparison: the paper's choice for the task where it names one.

    The middle one of a task's study values is the paper's. CRBO has our preset with the task's gamma, as in `crbo run`;
    "crbo-paper" is the paper's own setting of it.
    """
    facts = task_facts(problem)
    if method == "crbo":
        return "default", {"gamma": facts["gamma"]} if facts["gamma"] else {}
    if method == "crbo-paper":
        return "paper", {"preset": "paper", **({"gamma": facts["gamma"]} if facts["gamma"] else {})}
    if method == "crbo-known":  # synthetic functions only: the model's hyperparameters are the function's own
        return "known", {"hyperparameters": KNOWN, "gamma": 0.6}
    if method == "bo-known":  # raw returns: the centring that suits a global UCB best there
        return "known", {"hyperparameters": KNOWN, "centering": "none"}
    if method in EXPLORATION:
        name, default = EXPLORATION[method]
        values = facts["exploration"].get(method, ())
        value = values[len(values) // 2] if values else default
        return f"{name} {value:g}", {name: value}
    return "default", {}


def study_settings(problem: str, method: str) -> list[tuple[str, dict[str, Any]]]:
    """The appendix's exploration-parameter study of a method on a task: (label, settings) each."""
    facts = task_facts(problem)
    if method in ("crbo", "crbo-paper"):
        preset = {} if method == "crbo" else {"preset": "paper"}
        word = "" if method == "crbo" else "paper, "
        return [(f"{word}gamma {value:g}", {**preset, "gamma": value}) for value in facts["gammas"]]
    if method not in EXPLORATION:
        return []
    name, _ = EXPLORATION[method]
    return [(f"{name} {value:g}", {name: value}) for value in facts["exploration"].get(method, ())]


def make_run_method(method: str, space: Space, theta_0: Array, seed: int, settings: dict[str, Any]) -> Any:
    """The method of a run. "recipe" among CRBO's settings is the ablation's: parts of the preset's recipe, changed."""
    if "recipe" in settings:
        settings = {**settings, "recipe": changed_recipe(settings)}
    return make_method(registry_name(method), space, theta_0, seed=seed, **settings)


def changed_recipe(settings: dict[str, Any]) -> Recipe:
    """The preset's recipe with the parts that settings["recipe"] changes."""
    return replace(RECIPES[settings.get("preset", "default")], **settings.get("recipe", {}))


def registry_name(method: str) -> str:
    """crbo-paper -> crbo: what follows the dash is a setting."""
    return method.split("-")[0]


def settings_fingerprint(problem: str, method: str, settings: dict[str, Any]) -> str:
    """Changes with the task (policy, domain, plant), the settings, and the method's own code and presets."""
    # JSON gives tuples back as lists: a record read from its file has to find that file again
    settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    text = repr((task_facts(problem)["fingerprint"], sorted(settings.items()), code_fingerprint(registry_name(method))))
    if registry_name(method) == "crbo":
        resolved = make_settings({name: value for name, value in settings.items() if name != "recipe"})
        dim = int(problem[10:-1]) if problem.startswith("synthetic-") else task_facts(problem)["dim"]
        hyper = make_hyperparameters(resolved.preset, dim, resolved.hyperparameters)
        text += repr((asdict(resolved), changed_recipe(settings), hyper))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@lru_cache(maxsize=32)
def code_fingerprint(method: str) -> str:
    """Of what the method's own modules do: comments, docstrings and layout do not count."""
    from crbo_ros.registry import load

    folder = Path(__file__).parent.parent
    own = Path(sys.modules[load("methods", method).__module__].__file__ or "")
    paths = [own, *(folder / "core" / f"{name}.py" for name in CRBO_MODULES if method == "crbo")]
    digest = hashlib.sha256()
    for path in paths:
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if (
                isinstance(body, list)
                and body
                and isinstance(body[0], ast.Expr)
                and ast.get_docstring(_documented(node))
            ):
                node.body = body[1:]  # type: ignore[attr-defined]
        digest.update(ast.dump(tree).encode())
    return digest.hexdigest()[:12]


def _documented(node: ast.AST) -> Any:
    """The node itself where it may have a docstring, else an empty module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return node if isinstance(node, kinds) else ast.Module([], [])
