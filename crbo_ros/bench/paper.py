"""All of the paper's experiments, one after the other, and docs/RESULTS.md from them. `--quick` takes some minutes."""

from __future__ import annotations

import argparse
import math
import os
import time
from importlib import import_module

from crbo_ros.bench.sweep import SEED

STAGES = ("region", "time", "synthetic", "basketball", "furuta", "gym", "furuta_trajectories", "ablation", "bound")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=None, help="of the sweeps (default: each one's own)")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--backend", default="loky")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no further run after this time")
    parser.add_argument("--study", action="store_true", help="also the exploration-parameter study")
    parser.add_argument("--only", default=",".join(STAGES), help="comma-separated stages")
    parser.add_argument("--quick", action="store_true", help="a few minutes' version of each")


def run(args: argparse.Namespace) -> int:
    deadline = time.time() + 60.0 * args.minutes
    for stage in args.only.split(","):
        module = import_module(f"crbo_ros.bench.{stage.replace('-', '_')}")
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        options = parser.parse_args([])
        shared = {"repeats": args.repeats, "jobs": args.jobs, "backend": args.backend, "quick": args.quick}
        for name, value in {**shared, "study": args.study}.items():
            if hasattr(options, name) and value is not None:
                setattr(options, name, value)
        if hasattr(options, "seed") and stage not in ("time", "ablation"):  # which have their own
            options.seed = args.seed
        if hasattr(options, "minutes"):
            options.minutes = max(0.0, (deadline - time.time()) / 60.0)
        if args.quick:  # apart from the full results
            options.out = options.out.parent.parent / "results-quick" / options.out.name
            if stage == "furuta_trajectories":
                options.runs = options.out.parent / "furuta"
            if stage == "bound":
                options.results = options.out.parent
        print(f"\n== {stage} ==", flush=True)
        module.run(options)
    return 0
