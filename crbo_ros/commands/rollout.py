"""`./crbo rollout TASK|EXPERIMENT`: run one policy once, say how it went, and draw it.

    ./crbo rollout furuta --plant stand_in --plot out.png
    ./crbo rollout furuta --theta best.json --seed 3 --plot out.png
    ./crbo rollout path/to/furuta-stand_in-crbo-s1     # its best policy, on its plant, from its own record

The policy is theta_0 (of an experiment: its best one), or a file: .npy (a vector), or .json (a list, or an object with
a list called "theta"). With a theta the plot shows theta_0's episode from the same seed as well, except on hardware.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros import checks
from crbo_ros.commands.arguments import add_home
from crbo_ros.errors import InvalidInput, StoreError, UnknownName
from crbo_ros.numbers import number
from crbo_ros.protocol import best_file
from crbo_ros.registry import did_you_mean, make_task, names, task_problem
from crbo_ros.view.record import find_store, read_run, remake

PICTURES = (".png", ".pdf", ".svg", ".jpg", ".jpeg", ".webp")


def read_theta(path: Path, task: str = "") -> NDArray[np.float64]:
    """A parameter vector from .npy or .json; InvalidInput names the file. `task`: whose it must be, if it says."""
    if path.suffix == ".json":
        content = checks.read_json(path)
        if isinstance(content, dict):
            content = best_file.read(path)
            if "theta" not in content:
                raise InvalidInput(f'{path}: the object has no entry "theta"')
            if task and content.get("task", task) != task:
                raise InvalidInput(f"{path}: is a policy of task {content['task']!r}, not of {task!r}")
            content = content["theta"]
    else:
        content = checks.load_arrays(path).get("")
    try:
        theta = np.array(content, dtype=np.float64)
        if theta.ndim != 1 or not np.all(np.isfinite(theta)):
            raise ValueError("theta must be a list of finite numbers")
        return theta
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{path} holds no policy: {error}") from None


def parse_options(pairs: list[str]) -> dict[str, Any]:
    """["realtime=true", "n=3"] -> {"realtime": True, "n": 3}: values are JSON, or else text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise InvalidInput(f"--option {pair!r}: expected NAME=VALUE")
        if key in options:
            raise InvalidInput(f"--option {key}: is given twice")
        try:
            options[key] = checks.parse_json(text, f"--option {key}")
        except InvalidInput:
            options[key] = text
        checks.finite({key: options[key]}, "--option")
    return options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help="a task, or an experiment: its name or its folder")
    add_home(parser)
    parser.add_argument("--plant", help="the task's first plant by default")
    parser.add_argument("--theta", type=Path, help="the policy: .npy or .json (default: theta_0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="draw the episode into this picture")
    parser.add_argument("--video", type=Path, help="film the episode (run again) into this .gif, where the task can")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the task")


def run(args: argparse.Namespace) -> int:
    checks.number(args.seed, "--seed", 0, 2**31 - 1)
    for option in ("plot", "video"):
        if getattr(args, option):
            path = checks.writable(getattr(args, option), f"--{option}")
            checks.choice(path.suffix.lower(), PICTURES if option == "plot" else (".gif",), f"--{option}: {path.name}")
    options, label, theta = parse_options(args.option), "theta_0", None
    if args.task in names("tasks"):
        task, problem = make_task(args.task, args.plant, **options), task_problem(args.task, args.plant, **options)
        hardware = problem.hardware
    else:
        record = read_run(find_task_or_store(args.task, args.experiments_dir))
        if record.best is None:
            raise InvalidInput(f"{record.name}: has no return yet, so there is no best policy")
        task, hardware = remake(record, args.plant or "", **options), record.hardware
        theta, label = record.best.theta, f"proposal {record.best.id}"
    if args.theta:
        theta, label = read_theta(args.theta, task.name), args.theta.stem
    if args.video and not hasattr(task, "video"):
        raise InvalidInput(f"--video: task {task.name!r} cannot be filmed")
    with task:
        return _rollout(task, theta, label, args, compare=not hardware)


def find_task_or_store(name: str, experiments_dir: str) -> Path:
    """The store of an experiment, or UnknownName if neither a task nor an experiment has this name."""
    try:
        return find_store(name, experiments_dir)
    except StoreError as error:
        near = did_you_mean(name, names("tasks")) or f"; there are: {', '.join(names('tasks'))}"
        raise UnknownName(f"no task is called {name!r}{near}; and no experiment is ({error})") from None


def _rollout(
    task: Any, theta: NDArray[np.float64] | None, label: str, args: argparse.Namespace, *, compare: bool
) -> int:
    record = args.plot is not None
    chosen = task.theta_0 if theta is None else theta
    outcome = task.rollout(chosen, np.random.default_rng(args.seed), record=record)
    print(f"{task.name} on {task.plant_name}, {label}, seed {args.seed}: {outcome.end}", end="")
    print(f" ({outcome.reason})" if outcome.reason else "", end="")
    print(f", return {number(outcome.value)}, {outcome.steps} steps, {outcome.duration:.2f} s")
    for name, value in outcome.statistics.items():
        print(f"  {name}: {value:.3f}")
    if args.plot and outcome.trajectory is not None:
        trajectories = {f"{label} ({outcome.value:.3f})": outcome.trajectory}
        if theta is not None and compare:
            start = task.rollout(task.theta_0, np.random.default_rng(args.seed), record=True)
            trajectories = {f"theta_0 ({start.value:.3f})": start.trajectory, **trajectories}
        task.plot(trajectories, args.plot)
        print(f"plot: {args.plot}")
    if args.video:
        task.video(chosen, np.random.default_rng(args.seed), args.video)
        print(f"video: {args.video}")
    return 0 if outcome.counts else 1
