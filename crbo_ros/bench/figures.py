"""Figures of the benchmarks, as PNG and SVG: medians with interquartile ranges, histograms, bars."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

COLOURS = {
    "crbo": "#1f77b4",
    "crbo-paper": "#17becf",
    "crbo-known": "#0b3d66",
    "cma_es": "#ff7f0e",
    "turbo": "#2ca02c",
    "bo": "#d62728",
    "bo-known": "#7f1d1d",
    "local_bo": "#9467bd",
    "logei": "#8c564b",
    "gibo": "#e377c2",
    "min_ucb": "#bcbd22",
    "la_min_ucb": "#dbdb8d",
    "hci_gibo": "#f7b6d2",
    "les": "#98df8a",
    "linear_bo": "#c49c94",
    "safe_cma": "#ffbb78",
    "random_search": "#555555",
    "sobol": "#aaaaaa",
    "safe_opt": "#7f7f7f",
}
LABELS = {
    "crbo": "CRBO",
    "crbo-paper": "CRBO (paper's setting)",
    "crbo-known": "CRBO (known hyperparameters)",
    "cma_es": "CMA-ES",
    "turbo": "TuRBO",
    "bo": "BO (box, UCB)",
    "bo-known": "BO (known hyperparameters)",
    "local_bo": "Local BO",
    "logei": "LogEI (BoTorch)",
    "gibo": "GIBO",
    "min_ucb": "MinUCB",
    "la_min_ucb": "LA-MinUCB",
    "hci_gibo": "HCI-GIBO",
    "les": "LES (32 draws)",
    "linear_bo": "LogEI, linear kernel",
    "safe_cma": "Safe CMA-ES",
    "random_search": "random search",
    "sobol": "Sobol",
    "safe_opt": "SafeOpt",
}


def label(method: str) -> str:
    return LABELS.get(method, method)


def figure(columns: int, rows: int = 1, width: float = 4.0, height: float = 3.0) -> tuple[Any, Any]:
    """(Figure, axes (rows, columns)) without pyplot's global state."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return made, made.subplots(rows, columns, squeeze=False)


def save(made: Any, path: Path) -> list[Path]:
    """PATH.png and PATH.svg."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files = [path.with_suffix(".png"), path.with_suffix(".svg")]
    made.savefig(files[0], dpi=100)
    made.savefig(files[1])
    return files


def curves(axis: Any, episodes: Any, column: str, *, by: str = "method", log: bool = False) -> None:
    """Median (line) and interquartile range (area) of a column over episodes, a line for each value of `by`."""
    for i, (name, group) in enumerate(episodes.groupby(by, sort=False)):
        table = group.pivot_table(index="episode", columns="seed", values=column)
        x = table.index.to_numpy() + 1
        low, middle, high = np.nanpercentile(table.to_numpy(float), [25, 50, 75], axis=1)
        colour = COLOURS.get(str(name), f"C{i}")
        axis.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        axis.plot(x, middle, color=colour, label=f"{label(str(name))} ({table.shape[1]})", linewidth=1.4)
    if log:
        axis.set_yscale("log")
    axis.set_xlabel("episodes")
    axis.grid(alpha=0.25)


def histogram(axis: Any, runs: Any, column: str, bins: int = 24) -> None:
    """Counts of a column's values by method, on common bins."""
    values = runs[column].to_numpy(float)
    values = values[np.isfinite(values)]
    if not len(values):
        return
    spread = max(float(np.ptp(values)), 1e-6)
    edges = np.linspace(values.min() - 0.02 * spread, values.max() + 0.02 * spread, bins + 1)
    for name, group in runs.groupby("method", sort=False):
        axis.hist(group[column].dropna(), bins=edges, color=COLOURS.get(str(name)), alpha=0.45, label=label(str(name)))
    axis.set_ylabel("runs")


def policy_figure(episodes: Any, runs: Any, problems: Iterable[str]) -> Any:
    """As in the paper: the average observed return above, the histogram of J(theta*) below, a column per task."""
    problems = list(problems)
    made, axes = figure(len(problems), 2, height=2.7)
    for column, problem in enumerate(problems):
        top, bottom = axes[0][column], axes[1][column]
        mine = runs[runs["problem"] == problem]
        curves(top, episodes[episodes["problem"] == problem], "average")
        top.axhline(mine["start"].median(), color="black", linestyle="--", linewidth=0.8)
        _crop(top, episodes[episodes["problem"] == problem], "average")
        top.set_title(problem)
        top.set_ylabel("average observed return")
        histogram(bottom, mine, "final")
        bottom.axvline(mine["start"].median(), color="black", linestyle="--", linewidth=0.8)
        bottom.set_xlabel("J(theta*), 10 rollouts")
    handles, labels = axes[0][0].get_legend_handles_labels()
    made.legend(handles, labels, fontsize=7, loc="outside lower center", ncols=4 if len(problems) > 1 else 2)
    return made


def overview_figure(runs: Any) -> Any:
    """A panel per task, a line per method: average observed return (dot) and J(theta*) (diamond), with quartiles."""
    problems = list(dict.fromkeys(runs["problem"]))
    methods = [name for name in COLOURS if name in set(runs["method"])][::-1]  # CRBO on top
    made, axes = figure(len(problems), width=2.6, height=2.9)
    for axis, problem in zip(axes[0], problems, strict=True):
        mine = runs[runs["problem"] == problem]
        for line, method in enumerate(methods):
            group = mine[mine["method"] == method]
            for column, marker, shift in (("average", "o", 0.12), ("final", "D", -0.12)) if len(group) else ():
                low, middle, high = np.nanpercentile(group[column].to_numpy(float), [25, 50, 75])
                colour = COLOURS[method]
                axis.plot([low, high], [line + shift] * 2, color=colour, linewidth=1.2)
                face = colour if column == "average" else "white"
                axis.plot(middle, line + shift, marker, color=colour, markerfacecolor=face, markersize=5)
        axis.axvline(mine["start"].median(), color="black", linestyle="--", linewidth=0.8)
        axis.set_title(problem, fontsize=10)
        axis.set_yticks(range(len(methods)), [label(name) for name in methods] if axis is axes[0][0] else [])
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25)
    made.supxlabel("dot: average observed return    diamond: J(theta*)    dashed: J(theta_0)", fontsize=8)
    return made


def _crop(axis: Any, episodes: Any, column: str) -> None:
    """Methods that search the whole box begin off by far: keep the axis where they all end."""
    last = episodes[episodes["episode"] == episodes["episode"].max()]
    medians = last.groupby("method", sort=False)[column].median()
    start = float(episodes[episodes["episode"] == 0][column].median())
    low, high = min(float(medians.min()), start), max(float(medians.max()), start)
    room = max(high - low, 1e-3 * abs(start))
    axis.set_ylim(low - 0.15 * room, high + 0.15 * room)


def study_figure(episodes: Any, problem: str) -> Any:
    """The appendix's study: a panel per method, a curve per value of its exploration parameter."""
    mine = episodes[episodes["problem"] == problem]
    methods = list(dict.fromkeys(mine["method"]))
    made, axes = figure(len(methods))
    for column, method in enumerate(methods):
        axis = axes[0][column]
        curves(axis, mine[mine["method"] == method], "average", by="setting")
        axis.set_title(f"{problem}: {label(method)}", fontsize=9)
        axis.set_ylabel("average observed return")
        axis.legend(fontsize=7)
    return made
