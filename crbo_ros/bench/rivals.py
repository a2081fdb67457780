"""Each rival's best setting, on seeds that no comparison reports: what `main_setting` enters the comparison with.

Every value of problems.GRID on some problems of each group (the five tasks, outside, hard), ranked by the average
observed return; the value with the best mean rank over a group's problems is the one for problems.CHOSEN.
CRBO has no such choice: its preset and the tasks' gammas were made on other seeds still.
"""

from __future__ import annotations

import argparse

from crbo_ros.bench.problems import CHOSEN, GRID, group_of, task_facts
from crbo_ros.bench.sweep import Run, add_sweep_arguments, sweep, write_atomically
from crbo_ros.bench.tables import load, markdown, runs_table

SEED = 6900
PROBLEMS = (
    *("pendulum", "cartpole", "furuta", "basketball"),
    *("outside-cartpole", "outside-swimmer", "outside-lander", "outside-hopper"),
    *("hard-bowl-10", "hard-bowl-50", "hard-noisy", "hard-valley"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sweep_arguments(parser, "rivals", 3)
    parser.add_argument("--methods", default=",".join(GRID), help="comma-separated")
    parser.set_defaults(seed=SEED)


def plan(args: argparse.Namespace) -> list[Run]:
    return [
        Run(problem, method, f"{name} {value:g}", args.seed + repeat, task_facts(problem)["episodes"], {name: value})
        for repeat in range(args.repeats or (1 if args.quick else 3))
        for method in args.methods.split(",")
        for name, values in (GRID[method],)
        for value in values
        for problem in PROBLEMS[:: 4 if args.quick else 1]
        if not task_facts(problem)["exploration"].get(method)  # the paper's own choice
    ]


def run(args: argparse.Namespace) -> int:
    options = {"jobs": args.jobs, "backend": args.backend, "minutes": args.minutes}
    table = runs_table(load(sweep(plan(args), args.out, **options)))
    table["group"] = table["problem"].map(group_of)
    medians = table.groupby(["group", "method", "problem", "setting"])["average"].median()
    ranks = medians.groupby(level=["group", "method", "problem"]).rank(ascending=False)
    means = ranks.groupby(level=["group", "method", "setting"]).mean()
    rows = [["group", "method", "mean rank of each setting (1 is best)", "best", "in use"]]
    for (group, method), own in means.groupby(level=["group", "method"]):
        shown = ", ".join(f"{key[2]}: {rank:.2f}" for key, rank in own.items())
        value = CHOSEN[method].get(group)
        in_use = "the paper's, by task" if value is None else f"{GRID[method][0]} {value:g}"
        rows.append([group, method, shown, own.idxmin()[2], in_use])
    seeds = sorted(set(table["seed"]))
    text = f"{len(table)} runs, seeds {seeds[0]} to {seeds[-1]}.\n\n{markdown(rows)}"
    write_atomically(args.out / "summary.md", f"# The rivals' settings\n\n{text}\n")
    print(text)
    return 0
