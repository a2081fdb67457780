"""Which of the default preset's differences from the paper's setting helps on which task: one of them changed at a
time.

Runs on seeds 500 and up, which are for choosing presets; the comparison's seeds are others.
"""

from __future__ import annotations

import argparse
from typing import Any

from crbo_ros.bench.policy import COLUMNS
from crbo_ros.bench.problems import TASKS, task_facts
from crbo_ros.bench.sweep import Run, add_sweep_arguments, sweep
from crbo_ros.bench.tables import load, write_results

VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "noise compensated": {"compensate_noise": True},
    "not restless": {"restless": False},
    "fit around the maximum": {"fit_around_mean": False},
    "not sideways": {"sideways": False},
    "one start of the fit": {"second_start": False},
    "beta 1": {"beta": 1.0},
    "paper": {"preset": "paper"},
    "paper, fit around the mean": {"preset": "paper", "fit_around_mean": True},
}
NOTES = "CRBO's default preset with one thing changed, and the paper's; average observed return decides."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sweep_arguments(parser, "ablation", 4)
    parser.set_defaults(seed=500)
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma-separated")


def plan(args: argparse.Namespace) -> list[Run]:
    repeats = args.repeats if args.repeats is not None else 2 if args.quick else 4
    runs = []
    for repeat in range(repeats):
        for problem in args.tasks.split(","):
            facts = task_facts(problem)
            for label, settings in VARIANTS.items():
                options = {"gamma": facts["gamma"], **settings}
                runs.append(Run(problem, "crbo", label, args.seed + repeat, facts["episodes"], options))
    return runs


def run(args: argparse.Namespace) -> int:
    paths = sweep(plan(args), args.out, jobs=args.jobs, backend=args.backend, minutes=args.minutes)
    columns = {key: COLUMNS[key] for key in ("average", "final", "below", "terminated", "refused")}
    write_results(args.out, load(paths), "Ablation of CRBO's preset", columns, NOTES)
    return 0
