"""`./crbo compare EXPERIMENT...`: several runs on one page: a table, a picture and a CSV.

    ./crbo compare furuta-s1 furuta-s2 other-s1 other-s2 --output comparison      # comparison.csv and comparison.png

Runs of one task, method and robot (where it has a name) on different seeds are a group. Groups with the same seeds are
compared seed by seed: the mean difference from the first group with its 95 % interval (Student's t over pairs). Seeds
are the runs' own.
"""

from __future__ import annotations

import argparse
import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.checks import cell, writable
from crbo_ros.commands.arguments import add_home
from crbo_ros.errors import InvalidInput
from crbo_ros.numbers import UNKNOWN, number
from crbo_ros.view.colors import CURVES
from crbo_ros.view.record import find_store, read_run
from crbo_ros.view.run_view import RunView

COLUMNS = ("start", "average", "best observed", "recommended", "vetoes", "violations", "episodes", "robot minutes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiments", nargs="+", metavar="EXPERIMENT", help="names or folders")
    add_home(parser)
    parser.add_argument("--output", type=Path, help="write OUTPUT.csv and OUTPUT.png as well")


def run(args: argparse.Namespace) -> int:
    runs = [read_run(find_store(experiment, args.experiments_dir)) for experiment in args.experiments]
    if empty := [run.name for run in runs if run.experiment is None or not len(run.returns)]:
        raise InvalidInput(f"{', '.join(empty)}: no episode was completed, so there is nothing to compare")
    names = [f"{run.path.parent.name}" for run in runs]
    width = max(map(len, [*names, *groups(runs)]))
    print(f"{'':{width}}  " + "".join(f"{column:>15}" for column in COLUMNS))
    for name, each in zip(names, runs, strict=True):
        print(f"{name:{width}}  " + "".join(f"{number(value):>15}" for value in measures(each).values()))
    for line in paired_lines(runs):
        print(line)
    if args.output:
        table, picture = (args.output.with_name(args.output.name + suffix) for suffix in (".csv", ".png"))
        write_csv(names, runs, writable(table, "--output"))
        draw(runs, writable(picture, "--output"))
        print(f"{table}\n{picture}")
    return 0


def measures(run: RunView) -> dict[str, float]:
    """What is compared, by the names of COLUMNS."""
    y, best = run.returns, run.best
    expected = math.nan if best is None else best.mean if math.isfinite(best.mean) else best.observed
    fallen = run.contract.contract.account.violations if run.contract and run.contract.contract.active else math.nan
    seconds = sum(row.episode.duration for row in run.rows if row.episode)
    values = (y[0], y.mean(), y.max(), expected, len(run.vetoes), fallen, len(y), seconds / 60.0)
    return dict(zip(COLUMNS, map(float, values), strict=True))


def groups(runs: list[RunView]) -> dict[str, dict[int, RunView]]:
    """Runs by what they are and then by seed; the last one where a seed comes twice."""
    found: dict[str, dict[int, RunView]] = {}
    for run in runs:
        facts = run.experiment
        assert facts is not None
        kind = f"{facts['method']} on {facts['task']}, {run.plant}" + (f", {run.robot}" if run.robot else "")
        found.setdefault(kind, {})[facts["seed"]] = run
    return found


@dataclass(frozen=True)
class Paired:
    """The mean difference of two groups over the seeds that both have, with its 95 % interval."""

    pairs: int
    mean: float
    low: float
    high: float

    @staticmethod
    def of(differences: Any) -> Paired:
        d = np.asarray(differences, dtype=np.float64)
        if len(d) < 2:
            return Paired(len(d), float(d.mean()) if len(d) else math.nan, math.nan, math.nan)
        from scipy.stats import t

        half = float(t.ppf(0.975, len(d) - 1)) * float(d.std(ddof=1)) / math.sqrt(len(d))
        return Paired(len(d), float(d.mean()), float(d.mean()) - half, float(d.mean()) + half)

    def __str__(self) -> str:
        text = f"{self.mean:+.4g}, {self.pairs} pair{'s' if self.pairs != 1 else ''}"
        if not math.isfinite(self.low):
            return text
        sure = "it may be none" if self.low <= 0.0 <= self.high else "the interval excludes 0"
        return f"{text} (95 %: {number(self.low)} to {number(self.high)}): {sure}"


def paired_lines(runs: list[RunView]) -> list[str]:
    """Each group against the first, seed by seed."""
    by_kind = groups(runs)
    (first, reference), *others = by_kind.items()
    lines = []
    for name, group in others:
        seeds = sorted(set(reference) & set(group))
        if not seeds:
            lines.append(f"\n{name} against {first}: {UNKNOWN} (no seed in common)")
            continue
        lines.append(f"\n{name} against {first}, seeds {', '.join(map(str, seeds))}:")
        for column in ("average", "recommended"):
            found = Paired.of([measures(group[s])[column] - measures(reference[s])[column] for s in seeds])
            lines.append(f"  {column:12} {found}")
    return lines


def write_csv(names: list[str], runs: list[RunView], path: Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["experiment", "task", "plant", "method", "seed", *COLUMNS])
        for name, run in zip(names, runs, strict=True):
            facts = run.experiment or {}
            about = [name, facts["task"], run.plant, facts["method"], facts["seed"]]
            values = ["" if not math.isfinite(value) else value for value in measures(run).values()]
            writer.writerow([cell(value) for value in [*about, *values]])


def draw(runs: list[RunView], path: Path) -> None:
    """Best so far and running average of every run, one colour for each group."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 4.5), layout="constrained")
    panels = figure.subplots(1, 2)
    for i, (name, group) in enumerate(groups(runs).items()):
        color = CURVES[i % len(CURVES)]
        for j, run in enumerate(group.values()):
            series = run.series()
            for axes, curve in zip(panels, (series.best, series.average), strict=True):
                axes.plot(*curve, color=color, linewidth=1.2, label=name if j == 0 else None)
    for axes, title in zip(panels, ("best so far", "average return"), strict=True):
        axes.set(xlabel="proposal", ylabel=title)
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=110)
