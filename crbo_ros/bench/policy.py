"""The policy-search comparison on one or more tasks: shared by `bench basketball`, `gym` and `furuta`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crbo_ros.bench import figures
from crbo_ros.bench.problems import main_setting, study_settings, task_facts
from crbo_ros.bench.sweep import Run, add_sweep_arguments, sweep
from crbo_ros.bench.tables import load, write_results

METHODS = (
    *("crbo", "cma_es", "gibo", "min_ucb", "random_search", "turbo", "hci_gibo", "la_min_ucb", "les", "safe_cma"),
    *("sobol", "crbo-paper", "local_bo", "bo", "logei", "linear_bo"),
)
QUICK = ("crbo", "cma_es", "turbo", "gibo")
COLUMNS_OF_A_FIGURE = 7
COLUMNS = {
    "average": "average observed return",
    "final": "J(theta*)",
    "start": "J(theta_0)",
    "below": "episodes below J0 - 10 %",
    "terminated": "ended early",
    "refused": "refused",
    "cpu_per_proposal": "CPU s per proposal",
}
NOTES = (
    "Each method starts from the same theta_0 with the same noise; J by 10 rollouts. An episode without a return "
    "(refused by the plant's limits) counts towards the budget, not towards the average."
)


def add_arguments_for(parser: argparse.ArgumentParser, name: str, repeats: int) -> None:
    add_sweep_arguments(parser, name, repeats)
    parser.add_argument("--methods", default=None, help=f"comma-separated (default {','.join(METHODS)})")
    parser.add_argument("--episodes", type=int, default=None, help="episodes a run (default: the task's)")
    parser.add_argument("--study", action="store_true", help="also the exploration-parameter study of the appendix")
    parser.set_defaults(default_repeats=repeats)


def plan(problems: tuple[str, ...], args: argparse.Namespace) -> tuple[list[Run], list[Run]]:
    """(the comparison, the study), repeat by repeat."""
    repeats = args.repeats if args.repeats is not None else 2 if args.quick else args.default_repeats
    methods = args.methods.split(",") if args.methods else list(QUICK if args.quick else METHODS)
    main, study = [], []
    for repeat in range(repeats):
        for method in methods:
            for problem in problems:
                episodes = args.episodes or (50 if args.quick else task_facts(problem)["episodes"])
                name, settings = main_setting(problem, method)
                main.append(Run(problem, method, name, args.seed + repeat, episodes, settings))
                if args.study and repeat < max(1, repeats // 2):  # half the repeats: three times the settings
                    for name, settings in study_settings(problem, method):
                        study.append(Run(problem, method, name, args.seed + repeat, min(episodes, 110), settings))
    return main, study


def run_for(name: str, problems: tuple[str, ...], args: argparse.Namespace) -> int:
    """Sweep, tables, figures."""
    folder: Path = args.out
    main, study = plan(problems, args)
    options: dict[str, Any] = {"jobs": args.jobs, "backend": args.backend, "minutes": args.minutes}
    records = load(sweep(main, folder, **options))
    episodes, runs = write_results(folder, records, f"{name}: policy search", COLUMNS, NOTES)
    present = [problem for problem in problems if len(runs) and problem in set(runs["problem"])]
    if 0 < len(present) <= COLUMNS_OF_A_FIGURE:
        figures.save(figures.policy_figure(episodes, runs, present), folder / name)
    if study:
        records = load(sweep(study, folder, **options))
        title = f"{name}: exploration parameters"
        episodes, runs = write_results(folder / "study", records, title, COLUMNS, NOTES)
        for problem in dict.fromkeys(runs["problem"]) if len(runs) else ():
            figures.save(figures.study_figure(episodes, problem), folder / "study" / problem)
    print(f"\n{folder}: summary.md, runs.csv, episodes.csv, figures")
    return 0
