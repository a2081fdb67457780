"""The worst-case bound: how often it held, how tight it was, and how often policies fell or did badly without one.

Read from the runs that the other benchmarks left (results/*/runs): every CRBO proposal carries its worst case, ours
and the paper's, and each is compared with the return that came. Coverage early in a run (the first 15 proposals) is
given apart: that is where estimates from few returns go wrong. Where there are no runs yet, CRBO is run on the
synthetic functions and the Furuta pendulum.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.problems import main_setting
from crbo_ros.bench.sweep import SEED, Run, sweep, write_atomically
from crbo_ros.bench.tables import load, load_main, markdown, number, quartiles, runs_table

EARLY = 15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of the other benchmarks' results")
    parser.add_argument("--repeats", type=int, default=5, help="runs per problem where there are none yet")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results") / "bound", help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="2 runs where there are none yet")


def find_records(args: argparse.Namespace) -> list[dict[str, Any]]:
    folders = sorted(path.parent for path in args.results.glob("*/runs"))
    records = [record for folder in folders for record in load_main(folder)]
    if any(record["run"]["method"] == "crbo" for record in records):
        return records
    runs = []
    for repeat in range(2 if args.quick else args.repeats):
        for problem, episodes in (("synthetic-2d", 50), ("synthetic-5d", 100), ("furuta", 100)):
            for method in ("crbo", "crbo-paper"):
                label, settings = main_setting(problem, method)
                runs.append(Run(problem, method, label, args.seed + repeat, episodes, settings))
    return load(sweep(runs, args.out, jobs=args.jobs))


def bound_row(problem: str, method: str, records: list[dict[str, Any]]) -> list[str]:
    """Coverage of both bounds (all, early) and the slack (return - bound) in units of the run's spread of returns."""
    row = [problem, method, str(len(records))]
    slacks = []
    for key in ("worst_case", "worst_case_paper"):
        held, early, slack = [], [], []
        for record in records:
            values = [r["return"] for r in record["rows"] if r["return"] is not None]
            spread = max(float(np.std(values)), 1e-12)
            for r in record["rows"]:
                if r[key] is None or r["return"] is None:
                    continue
                held.append(r["return"] >= r[key])
                slack.append((r["return"] - r[key]) / spread)
                if r["episode"] <= EARLY:
                    early.append(held[-1])
        row += [f"{100 * np.mean(held):.1f} %", f"{100 * np.mean(early):.1f} %"] if held else ["-", "-"]
        slacks.append(number(float(np.median(slack)), 1) if slack else "-")
    return row + slacks


def run(args: argparse.Namespace) -> int:
    records = find_records(args)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["run"]["problem"], record["run"]["method"]), []).append(record)
    bounds = [
        ["task", "method", "runs", "held", f"first {EARLY}", "paper's held", f"first {EARLY}", "slack", "paper's slack"]
    ]
    caution = [["task", "method", "runs", "episodes below J0 - 10 %", "ended early", "refused", "worst return"]]
    for (problem, method), group in sorted(groups.items()):
        if method.startswith("crbo"):
            bounds.append(bound_row(problem, method, group))
        table = runs_table(group)
        worst = [min(r["return"] for r in record["rows"] if r["return"] is not None) for record in group]
        columns = [quartiles(table[c], 1) for c in ("below", "terminated", "refused")]
        caution.append([problem, method, str(len(group)), *columns, quartiles(worst)])
    text = f"""# The worst-case bound and caution

Share of proposals whose return was at least the bound (ours: an upper confidence bound on the Lipschitz constant and
the true distance; the paper's: largest gradient of the mean, r0), and the median distance from bound to return in
standard deviations of the run's returns.

{markdown(bounds)}

Median [quartiles] over runs; J0 is the first policy's mean return.

{markdown(caution)}
"""
    write_atomically(args.out / "summary.md", text)
    write_atomically(args.out / "bound.json", json.dumps({"bound": bounds, "caution": caution}, indent=1))
    print(text)
    return 0
