"""`./crbo bench plants`: CPU time of an episode of theta_0 on every task's simulated plants, against real time.

CPU time, not wall time, so that a busy machine disturbs little; the first episode (compilation, loading) is left out.
The ratio is the plant's seconds in one CPU second: 600 means that a 20 s episode takes 33 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros import registry
from crbo_ros.errors import CrboError

PACKAGES = ("numpy", "numba", "pybullet", "gymnasium")


def measure(name: str, plant: str | None, episodes: int, seed: int) -> dict[str, Any]:
    """One row: metrics, or the reason why this plant was skipped."""
    row: dict[str, Any] = {"task": name, "plant": plant or ""}
    try:
        task = registry.make_task(name, plant)
        row["plant"] = task.plant_name
        if getattr(getattr(task, "plant", None), "is_hardware", False):
            return {**row, "skipped": "hardware runs in real time"}
        with task:
            return {**row, **_episodes(task, episodes, seed)}
    except (CrboError, ImportError, OSError) as error:
        return {**row, "skipped": str(error).split(". (")[0]}


def _episodes(task: Any, episodes: int, seed: int) -> dict[str, Any]:
    task.rollout(task.theta_0, np.random.default_rng(seed))  # warm-up
    times, seconds, values = [], [], []
    for number in range(episodes):
        begun = time.process_time()
        outcome = task.rollout(task.theta_0, np.random.default_rng([seed, number]))
        times.append(1e3 * (time.process_time() - begun))
        seconds.append(outcome.duration)
        values.append(outcome.value)
    return {
        "episodes": episodes,
        "cpu_ms_median": float(np.median(times)),
        "cpu_ms_min": float(np.min(times)),
        "cpu_ms_max": float(np.max(times)),
        "episode_s_mean": float(np.mean(seconds)),
        "times_real_time": float(np.sum(seconds) / (1e-3 * np.sum(times))),
        "return_mean": float(np.mean(values)),
        "return_std": float(np.std(values, ddof=1)) if episodes > 1 else 0.0,
    }


def rows(tasks: list[str], episodes: int, seed: int) -> list[dict[str, Any]]:
    """Every plant of every task; a task that cannot even be made gives one row with the reason."""
    result = []
    for name in tasks:
        try:
            plants = registry.load("tasks", name).plants
        except (CrboError, ImportError) as error:
            result.append({"task": name, "plant": "", "skipped": str(error)})
            continue
        for plant in plants:
            result.append(measure(name, plant, episodes, seed))
            print(line(result[-1]), flush=True)
    return result


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    head = f"{row['task']:12} {row['plant']:14}"
    if "skipped" in row:
        return f"{head} skipped: {row['skipped']}"
    return (
        f"{head} {row['cpu_ms_median']:8.1f} {row['cpu_ms_min']:8.1f} {row['cpu_ms_max']:8.1f} "
        f"{row['episode_s_mean']:8.2f} {row['times_real_time']:9.0f}x "
        f"{row['return_mean']:9.4f} {row['return_std']:8.4f}"
    )


def machine() -> dict[str, Any]:
    """What the metrics were measured on."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "python": platform.python_version(),
        "cpu": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        "versions": versions,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", nargs="+", help="names of tasks (default: all)")
    parser.add_argument("--episodes", type=int, default=20, help="measured episodes for each plant (default: 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, default=Path("results/plants.json"), help="JSON file (default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    about = machine()
    load = ", ".join(f"{value:.1f}" for value in about["load_average"])
    print(f"Python {about['python']}, {about['cpus']} CPUs, load average {load}, seed {args.seed}, {about['versions']}")
    titles = [f"{title:>8}" for title in ("CPU ms", "min", "max", "plant s")]
    print(f"{'task':12} {'plant':14} {' '.join(titles)} {'real time':>10} {'J0':>9} {'sd':>8}")
    table = rows(args.tasks or registry.names("tasks"), args.episodes, args.seed)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"machine": about, "seed": args.seed, "rows": table}, indent=1))
    print(f"written: {args.out}")
    return 0
