"""What came of an experiment: the best policy, what it is worth, where it lies, how to see it and how to use it.

    ./crbo summary EXPERIMENT

`./crbo run` and the launch files end with this. It writes report.html and report.png, and for tuned parameters
tuned.yaml (a ROS parameter file) and tuned.diff (against the values at the start).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from crbo_ros import checks
from crbo_ros.commands.arguments import add_experiment
from crbo_ros.commands.deployment import write_parameters
from crbo_ros.errors import CrboError, InvalidInput, as_called
from crbo_ros.numbers import number
from crbo_ros.protocol.manifest import FILE, recorded_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    parser.add_argument("--evaluate", type=int, default=0, help="rollouts of the best policy (simulations; default: 0)")
    parser.add_argument("--no-report", action="store_true", help="do not draw report.html and report.png")


def run(args: argparse.Namespace) -> int:
    from crbo_ros.view.record import find_store

    path = find_store(args.experiment, args.experiments_dir)
    return conclude(path.parent, evaluate=checks.evaluations(args.evaluate), report=not args.no_report)


def conclude(folder: Path, *, evaluate: int = 0, report: bool = True) -> int:
    """Print the summary, and write what goes with it."""
    from crbo_ros.view.record import FILE as STORE
    from crbo_ros.view.record import read_run, remake

    run = read_run(folder / STORE)
    if not len(run.returns) or run.best is None or run.experiment is None:
        raise InvalidInput(f"{folder}: no episode was completed")
    best, y, theta_0, task = run.best, run.returns, run.experiment["theta_0"], run.experiment["task"]
    print(f"\nepisodes   {len(y)}, average return {number(y.mean())}, start {number(y[0])}")
    expected = f"expected {number(best.mean)}, " if math.isfinite(best.mean) else ""
    print(f"best       proposal {best.id}, {expected}seen {number(best.observed)}")
    if evaluate > 0 and task != "custom" and not run.hardware:
        try:
            print(f"evaluated  {_evaluated(remake(run), best.theta, evaluate, run.experiment['seed'])}")
        except CrboError as error:
            print(f"not evaluated: {error}")
    print(f"policy     {folder / 'best.json'}")
    for line in tuned(folder, theta_0, best.theta) if task == "tuning" else ():
        print(line)
    if report:
        try:
            from crbo_ros.report import write_report
        except ImportError as error:
            print(f"no report: {error}")
        else:
            html, picture = write_report(folder / STORE, folder)
            print(f"report     {html}\n           {picture}")
    crbo, name = as_called("./crbo"), folder.name
    print(f"look       {crbo} inspect {name}; {crbo} export {name} --csv")
    if task == "tuning":
        print(
            "deploy     start your node with --params-file tuned.yaml; or first let the old and the new values run in"
        )
        print(f"           turns until it is certain which is better: {crbo} accept {name}")
    elif task != "custom":
        print(f"deploy     {crbo} accept {name} (old and new in turns, until it is certain which is better), or")
        print(f"           {crbo} rollout {name}, or {crbo} export {name} --policy npz")
    return 0


def tuned(folder: Path, old: Any, new: Any) -> list[str]:
    """Lines about the parameters that were tuned, and tuned.yaml and tuned.diff; nothing where no record was kept."""
    config_file = recorded_options(folder).get("config") if (folder / FILE).is_file() else None
    if config_file is None:
        return []
    from crbo_ros.plants.ros.config import read_config
    from crbo_ros.view.parameters import changes

    config = read_config(config_file)
    file, diff = write_parameters(folder, config, old, new)
    lines = [f"           {line}" for line in changes([p.label for p in config.parameters], old, new)]
    return [*lines, f"parameters {file}\n           {diff}"]


def _evaluated(task: Any, theta: Any, count: int, seed: int) -> str:
    import numpy as np

    with task:
        seeds = [[seed, 0xE7A1, i] for i in range(count)]
        found = [task.rollout(theta, np.random.default_rng(seed)) for seed in seeds]
        start = [task.rollout(task.theta_0, np.random.default_rng(seed)) for seed in seeds]
    final = np.array([outcome.value for outcome in found if outcome.counts])
    first = np.array([outcome.value for outcome in start if outcome.counts])
    if not (len(final) and len(first)):
        raise CrboError("no rollout was completed")
    return f"{number(final.mean())} +- {number(final.std())} over {len(final)} rollouts; theta_0 {number(first.mean())}"
