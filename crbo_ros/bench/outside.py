"""Other people's benchmarks of policy search, all methods, with the authors' own numbers beside ours.

CartPole (4 weights), Swimmer (16), Hopper (36), HalfCheetah and Walker2d (102), lunar lander (12), rover (60):
outside_problems.py tells each. Needs `pip install mujoco imageio 'gymnasium[box2d]'`; what is not there is left out.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from crbo_ros.bench.figures import label
from crbo_ros.bench.outside_problems import CHECKPOINTS, MAKERS, PUBLISHED
from crbo_ros.bench.policy import add_arguments_for, run_for
from crbo_ros.bench.sweep import write_atomically
from crbo_ros.bench.tables import load_main, markdown

OVER = (100, 200)  # episodes of which the average observed return is published


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments_for(parser, "outside", 10)
    parser.set_defaults(seed=7000)
    parser.add_argument("--problems", default=",".join(MAKERS), help="comma-separated")


def published(records: list[dict[str, Any]]) -> list[list[str]]:
    """The authors' own numbers, and ours in the same units: mean +- standard deviation over the runs."""
    titles = [f"J after {n}" for n in CHECKPOINTS] + [f"average over {n}" for n in OVER]
    rows = [["problem", "method", "runs", *titles]]
    for problem, theirs in PUBLISHED.items():
        for who, (after, over) in theirs.items():
            cells = [after.get(n, "") for n in CHECKPOINTS] + [over.get(n, "") for n in OVER]
            rows.append([problem, who, "10", *cells])
        mine = [record for record in records if record["run"]["problem"] == problem]
        for method in dict.fromkeys(record["run"]["method"] for record in mine):
            own = [record for record in mine if record["run"]["method"] == method]
            cells = [_spread([np.mean(r["at"][str(n)]) for r in own if str(n) in r.get("at", {})]) for n in CHECKPOINTS]
            cells += [_spread([_average(r, n) for r in own if len(r["rows"]) >= n]) for n in OVER]
            rows.append([problem, label(method), str(len(own)), *cells])
    return rows


def _average(record: dict[str, Any], episodes: int) -> float:
    return float(np.mean([row["return"] for row in record["rows"][:episodes] if row["return"] is not None]))


def _spread(values: list[Any]) -> str:
    return f"{np.mean(values):.0f} +- {np.std(values):.0f}" if values else ""


def run(args: argparse.Namespace) -> int:
    code = run_for("outside", tuple(args.problems.split(",")), args)
    table = markdown(published(load_main(args.out)))
    write_atomically(args.out / "published.md", table + "\n")
    print(table)
    return code
