"""The arm's angle against its reference at 0, 40 and 100 episodes of learning, for CRBO and CMA-ES (paper's appendix).

Takes the policies that `bench furuta` kept, and runs what is missing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from crbo_ros.bench import figures
from crbo_ros.bench.problems import main_setting
from crbo_ros.bench.sweep import SEED, Run, sweep
from crbo_ros.bench.tables import load
from crbo_ros.registry import make_task

METHODS = ("crbo", "cma_es")
STAGES = {"0": (":", 0.9), "40": ("-.", 1.0), "100": ("-", 1.4)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=SEED, help="which of the runs")
    parser.add_argument("--runs", type=Path, default=Path("results") / "furuta", help="folder of `bench furuta`")
    parser.add_argument("--out", type=Path, default=Path("results") / "furuta-trajectories", help="folder")
    parser.add_argument("--jobs", type=int, default=1, help="processes for runs that are missing")
    parser.add_argument("--quick", action="store_true", help="same as without: some seconds where the runs exist")


def run(args: argparse.Namespace) -> int:
    runs = [Run("furuta", method, *_setting(method, args.seed)) for method in METHODS]
    records = load(sweep(runs, args.runs, jobs=args.jobs))
    made, axes = figures.figure(1, len(METHODS), width=9.0, height=2.6)
    lines = ["method,episodes,return,rms_error_deg,time"]
    with make_task("furuta") as task:
        for axis, record in zip(axes[:, 0], records, strict=True):
            method = record["run"]["method"]
            policies = {"0": task.theta_0, **{k: np.array(v) for k, v in record["kept"].items()}}
            for stage, (style, width) in STAGES.items():
                if stage not in policies:
                    continue
                outcome = task.rollout(policies[stage], np.random.default_rng([args.seed, 3]), record=True)
                time, columns = outcome.trajectory.time, outcome.trajectory.columns
                arm, reference = np.degrees(columns["arm"]), np.degrees(columns["reference"])
                error = float(np.sqrt(np.mean((arm - reference) ** 2)))
                lines.append(f"{method},{stage},{outcome.value:.5f},{error:.3f},{time[-1]:.2f}")
                colour = "black" if stage == "0" else figures.COLOURS[method]
                axis.plot(time, arm, style, color=colour, linewidth=width, label=f"{stage} episodes")
            seconds = np.arange(0.0, 20.0, 0.02)
            reference = [np.degrees(task.reference(int(t * task.plant.rate))) for t in seconds]
            axis.plot(seconds, reference, color="black", linewidth=0.8, label="reference")
            axis.set_ylabel("arm angle [deg]")
            axis.set_title(figures.label(method))
            axis.legend(fontsize=7, ncol=4, loc="upper right")
    axes[-1, 0].set_xlabel("time [s]")
    figures.save(made, args.out / "furuta-trajectories")
    (args.out / "furuta-trajectories.csv").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0


def _setting(method: str, seed: int) -> tuple[str, int, int, dict[str, object]]:
    label, settings = main_setting("furuta", method)
    return label, seed, 100, settings
