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
# a rival's exploration parameter, and the values that `bench rivals` tries
GRID: dict[str, tuple[str, tuple[float, ...]]] = {
    "cma_es": ("sigma_0", (0.02, 0.05, 0.1, 0.2)),
    "turbo": ("length", (0.1, 0.2, 0.8)),
    "local_bo": ("sigma_0", (0.025, 0.05, 0.1)),
    "gibo": ("rate", (0.125, 0.25, 0.5)),
    "hci_gibo": ("eta", (0.125, 0.25, 0.5)),
    "min_ucb": ("kappa", (1.0, 3.0)),
    "la_min_ucb": ("kappa", (1.0, 3.0)),
    "random_search": ("sigma_0", (0.01, 0.03, 0.1)),
    "safe_cma": ("sigma_0", (0.02, 0.05, 0.1)),
    "bo": ("beta", (0.5, 2.0)),
}
# The best of them for each group of problems (the method's own default unless another is better by half a rank); where
# the paper names a value for a task, that one (`main_setting`).
CHOSEN: dict[str, dict[str, float]] = {
    "cma_es": {"tasks": 0.05, "outside": 0.05, "hard": 0.02, "synthetic": 0.05},
    "turbo": {"tasks": 0.1, "outside": 0.8, "hard": 0.1, "synthetic": 0.1},
    "local_bo": {"tasks": 0.025, "outside": 0.025, "hard": 0.05, "synthetic": 0.05},
    "gibo": {"tasks": 0.25, "outside": 0.25, "hard": 0.25},
    "hci_gibo": {"tasks": 0.25, "outside": 0.25, "hard": 0.125},
    "min_ucb": {"tasks": 1.0, "outside": 3.0, "hard": 1.0},
    "la_min_ucb": {"tasks": 1.0, "outside": 3.0, "hard": 3.0},
    "random_search": {"tasks": 0.03, "outside": 0.01, "hard": 0.01},
    "safe_cma": {"tasks": 0.05, "outside": 0.05, "hard": 0.05},
    "bo": {"tasks": 0.5, "outside": 2.0, "hard": 0.5},
}
CRBO_MODULES = (
    "crbo gp_method search region hit_and_run sqp gaussian_process initial_design acquisition bound doubt stall".split()
)
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
    checkpoints: tuple[int, ...] = ()  # episodes after which J of the recommended policy is estimated, besides the last


@lru_cache(maxsize=4)
def synthetic_function(dim: int, seed: int) -> Any:
    """Finding the optimum takes seconds: kept for the next method on the same function."""
    from crbo_ros.bench.synthetic_functions import within_model

    return within_model(dim, seed)


@contextmanager
def open_problem(name: str, seed: int) -> Iterator[BenchProblem]:
    """The problem of that name, its plant connected; "synthetic-2d" is function number `seed`, "hard-noisy" too."""
    if name.startswith("synthetic-"):
        function = synthetic_function(int(name.removeprefix("synthetic-").removesuffix("d")), seed)

        def observe(theta: Array, rng: np.random.Generator) -> Rollout:
            return Rollout(function.observe(theta, rng), "completed")

        yield BenchProblem(name, function.space, function.theta_0, observe, function.regret)
        return
    if name.startswith("hard-"):
        from crbo_ros.bench.hard_problems import make_hard

        yield make_hard(name, seed)
        return
    if name.startswith("outside-"):
        from crbo_ros.bench.outside_problems import open_outside

        with open_outside(name) as problem:
            yield problem
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
        dim = int(name.removeprefix("synthetic-").removesuffix("d"))
        return {"gamma": None, "gammas": (), "exploration": {}, "episodes": 100, "dim": dim, "fingerprint": "1"}
    if name.startswith(("hard-", "outside-")):
        from crbo_ros.bench import outside_problems

        with open_problem(name, 0) as problem:
            dim = problem.space.dim
        code = fingerprint_of(Path(__file__).with_name(f"{name.split('-')[0]}_problems.py"))
        episodes = outside_problems.EPISODES.get(name, 100)
        return {"gamma": None, "gammas": (), "exploration": {}, "episodes": episodes, "dim": dim, "fingerprint": code}
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
    values = facts["exploration"].get(method, ())
    value = values[len(values) // 2] if values else CHOSEN.get(method, {}).get(group_of(problem))
    if value is None:
        return "default", {}
    name = GRID[method][0]
    return f"{name} {value:g}", {name: value}


def group_of(problem: str) -> str:
    """What a rival's setting is chosen for: "tasks", "outside", "hard" or "synthetic"."""
    return "tasks" if problem in TASKS else problem.split("-")[0]


def study_settings(problem: str, method: str) -> list[tuple[str, dict[str, Any]]]:
    """The appendix's exploration-parameter study of a method on a task: (label, settings) each."""
    facts = task_facts(problem)
    if method in ("crbo", "crbo-paper"):
        preset = {} if method == "crbo" else {"preset": "paper"}
        word = "" if method == "crbo" else "paper, "
        return [(f"{word}gamma {value:g}", {**preset, "gamma": value}) for value in facts["gammas"]]
    return [
        (f"{GRID[method][0]} {value:g}", {GRID[method][0]: value}) for value in facts["exploration"].get(method, ())
    ]


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
        hyper = make_hyperparameters(resolved.preset, task_facts(problem)["dim"], resolved.hyperparameters)
        text += repr((asdict(resolved), changed_recipe(settings), hyper))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@lru_cache(maxsize=32)
def code_fingerprint(method: str) -> str:
    """Of what the method's own modules do: comments, docstrings and layout do not count."""
    from crbo_ros.registry import load

    folder = Path(__file__).parent.parent
    own = Path(sys.modules[load("methods", method).__module__].__file__ or "")
    return fingerprint_of(own, *(folder / "core" / f"{name}.py" for name in CRBO_MODULES if method == "crbo"))


def fingerprint_of(*paths: Path) -> str:
    """Of what these modules do: comments, docstrings and layout do not count."""
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
