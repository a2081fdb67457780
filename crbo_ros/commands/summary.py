"""What came of an experiment: the best policy, what it is worth, where it lies, how to see it and how to use it.

    crbo summary EXPERIMENT

`crbo run` and the launch files end with this. It writes report.html and report.png, and for tuned parameters tuned.yaml
(a ROS parameter file) and tuned.diff (against the values at the start).
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crbo_ros.commands.arguments import add_experiment
from crbo_ros.commands.deployment import write_parameters
from crbo_ros.errors import CrboError, InvalidInput

if TYPE_CHECKING:
    from crbo_ros.bringup.plan import Plan


@dataclass(frozen=True)
class About:
    """What the store does not know: how to make the task once more."""

    task: str
    plant: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    hardware: bool = True

    @staticmethod
    def of(plan: Plan) -> About:
        own = plan.specs[0].configured()
        options, seed = own.get("task_options", {}), int(own.get("seed", 1))
        return About(plan.task, plan.problem.plant, options, seed, plan.problem.hardware)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    parser.add_argument("--evaluate", type=int, default=0, help="rollouts of the best policy (simulations; default: 0)")
    parser.add_argument("--no-report", action="store_true", help="do not draw report.html and report.png")
    parser.add_argument("--about", default="{}", metavar="JSON", help="task_options and the like, as the run had them")


def run(args: argparse.Namespace) -> int:
    from crbo_ros.view.record import find_store, open_store

    path = find_store(args.experiment, args.experiments_dir)
    with open_store(path) as store:
        facts = store.experiment()
    if facts is None:
        raise InvalidInput(f"{path}: holds no experiment yet")
    problem = dict(part.split("=", 1) for part in facts["problem"].split(" ") if "=" in part)
    known = {"task": facts["task"], "plant": problem.get("plant", ""), "seed": facts["seed"]}
    about = About(**{**known, "hardware": problem.get("hardware") != "no", **json.loads(args.about)})
    return conclude(path.parent, about, evaluate=args.evaluate, report=not args.no_report)


def conclude(folder: Path, about: About, *, evaluate: int = 0, report: bool = True) -> int:
    """Print the summary, and write what goes with it."""
    from crbo_ros.view.record import FILE, read_run

    run = read_run(folder / FILE)
    if not len(run.returns) or run.best is None or run.experiment is None:
        raise InvalidInput(f"{folder}: no episode was completed")
    best, y, theta_0 = run.best, run.returns, run.experiment["theta_0"]
    print(f"\nepisodes   {len(y)}, average return {y.mean():.4f}, start {y[0]:.4f}")
    expected = f"expected {best.mean:.4f}, " if math.isfinite(best.mean) else ""
    print(f"best       proposal {best.id}, {expected}seen {best.observed:.4f}")
    if evaluate > 0 and about.task != "custom" and not about.hardware:
        try:
            print(f"evaluated  {_evaluated(about, best.theta, evaluate)}")
        except CrboError as error:
            print(f"not evaluated: {error}")
    print(f"policy     {folder / 'best.json'}")
    for line in tuned(folder, about, theta_0, best.theta):
        print(line)
    if report:
        try:
            from crbo_ros.report import write_report
        except ImportError as error:
            print(f"no report: {error}")
        else:
            options = {"plant": about.plant, **about.options}
            html, picture = write_report(folder / FILE, folder, options=options)
            print(f"report     {html}\n           {picture}")
    print(f"look       crbo inspect {folder.name}; crbo export {folder.name} --csv")
    if about.task == "tuning":
        print(
            "deploy     start your node with --params-file tuned.yaml; or first let the old and the new values run in"
        )
        print(f"           turns until it is certain which is better: crbo accept {folder.name}")
    elif about.task != "custom":
        print(f"deploy     crbo accept {folder.name} (old and new in turns, until it is certain which is better), or")
        print(f"           crbo rollout {about.task} --theta {folder / 'best.json'}")
    return 0


def tuned(folder: Path, about: About, old: Any, new: Any) -> list[str]:
    """Lines about the parameters that were tuned, and tuned.yaml and tuned.diff; nothing for other tasks."""
    if about.task != "tuning" or not Path(about.options.get("config", "")).is_file():
        return []
    from crbo_ros.plants.ros.config import read_config
    from crbo_ros.view.parameters import changes

    config = read_config(about.options["config"])
    file, diff = write_parameters(folder, config, old, new)
    lines = [f"           {line}" for line in changes([p.label for p in config.parameters], old, new)]
    return [*lines, f"parameters {file}\n           {diff}"]


def _evaluated(about: About, theta: Any, count: int) -> str:
    import numpy as np

    from crbo_ros.registry import make_task

    with make_task(about.task, about.plant or None, **about.options) as task:
        seeds = [[about.seed, 0xE7A1, i] for i in range(count)]
        found = [task.rollout(theta, np.random.default_rng(seed)) for seed in seeds]
        start = [task.rollout(task.theta_0, np.random.default_rng(seed)) for seed in seeds]
    final = np.array([outcome.value for outcome in found if outcome.counts])
    first = np.array([outcome.value for outcome in start if outcome.counts])
    if not (len(final) and len(first)):
        raise CrboError("no rollout was completed")
    return f"{final.mean():.4f} +- {final.std():.4f} over {len(final)} rollouts; theta_0 {first.mean():.4f}"
