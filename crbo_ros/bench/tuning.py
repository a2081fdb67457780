"""The tuning example, end to end: examples/pid.yaml on the graph for several seeds, against a brute-force optimum.

For each seed a fresh examples/pid_plant.py and `crbo run tuning` as processes; afterwards the node's own parameters are
read back. The share of the way is (J_best - J_start) / (J_optimum - J_start), each J the mean over the same 20 noise
seeds of the simulation itself, so that a lucky return counts for nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.errors import InvalidInput
from crbo_ros.plants.ros.config import read_config
from crbo_ros.view.record import read_run

NOISE_SEEDS = range(1000, 1020)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--grid", type=int, default=11, help="grid points of each parameter in the brute-force search")
    parser.add_argument("--output", type=Path, default=Path("bench/tuning.json"))


def run(args: argparse.Namespace) -> int:
    examples = Path(os.environ.get("CRBO_ROOT", Path(__file__).parents[2])) / "examples"
    if not (examples / "pid_plant.py").is_file():
        raise InvalidInput(f"{examples}: the examples are not there; run this in a clone")
    plant, config = load(examples / "pid_plant.py"), read_config(examples / "pid.yaml")
    start = np.array([parameter.start for parameter in config.parameters])
    optimum, evaluations = brute_force(plant, config.space, args.grid)
    j_start, j_optimum = value(plant, start), value(plant, optimum)
    print(f"start    {j_start:.4f} at {np.round(start, 3)}")
    print(f"optimum  {j_optimum:.4f} at {np.round(optimum, 3)} ({evaluations} simulations)")
    rows = []
    for seed in args.seeds:
        row = one(examples, seed, args.episodes)
        row["value"] = value(plant, row["theta"])
        row["share"] = (row["value"] - j_start) / (j_optimum - j_start)
        rows.append(row)
        kept = "kept" if row["kept"] else "NOT kept"
        print(
            f"seed {seed}   best {row['value']:.4f}: {row['share']:.0%} of the way; average {row['average']:.3f}, "
            f"{row['worse']} episodes below the start, worst {row['worst']:.3f}; best values {kept} by the node; "
            f"{row['seconds']:.0f} s",
            flush=True,
        )
    passed = sum(row["share"] >= 0.3 and row["kept"] for row in rows)
    print(f"at least 30 % of the way, and kept: {passed} of {len(rows)} seeds")
    result = {
        "episodes": args.episodes, "start": j_start, "optimum": j_optimum, "optimum_theta": optimum.tolist(),
        "simulations": evaluations, "runs": rows, "load": os.getloadavg(), "python": platform.python_version(),
    }  # fmt: skip
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps(result, indent=1))
    print(f"written: {args.output}")
    return 0 if passed >= 0.8 * len(rows) else 1


def load(file: Path) -> Any:
    """The example's module, for its simulation."""
    spec = spec_from_file_location("pid_plant", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def value(plant: Any, theta: Any) -> float:
    return -float(np.mean([plant.step_response(tuple(theta), seed) for seed in NOISE_SEEDS]))


def brute_force(plant: Any, space: Any, points: int) -> tuple[np.ndarray, int]:
    """The best of a full grid, then a pattern search from the best five: (theta, number of simulations)."""

    def cost(x: np.ndarray) -> float:
        return plant.step_response(tuple(space.from_unit(x)), 7)

    grid = [np.array(x) for x in itertools.product(np.linspace(0.0, 1.0, points), repeat=space.dim)]
    costs = [cost(x) for x in grid]
    count = len(grid)
    found = []
    for i in np.argsort(costs)[:5]:
        x, best, step = grid[i], costs[i], 0.5 / points
        while step > 1e-3:
            better = False
            for j, sign in itertools.product(range(space.dim), (-1.0, 1.0)):
                trial = x.copy()
                trial[j] = np.clip(trial[j] + sign * step, 0.0, 1.0)
                count += 1
                if (c := cost(trial)) < best:
                    x, best, better = trial, c, True
            step = step if better else step / 2.0
        found.append((best, x))
    return space.from_unit(min(found, key=lambda pair: pair[0])[1]), count


def one(examples: Path, seed: int, episodes: int) -> dict[str, Any]:
    """One run on a fresh node."""
    from crbo_ros.plants.ros.parameters import read
    from crbo_ros.ros.link import RosLink

    names = [parameter.name for parameter in read_config(examples / "pid.yaml").parameters]
    began = time.monotonic()
    node = subprocess.Popen(
        [sys.executable, str(examples / "pid_plant.py"), "--ros-args", "-p", f"seed:={seed * 1000}"]
    )
    link = RosLink("look")
    link.open()
    try:
        with tempfile.TemporaryDirectory(prefix="crbo-") as folder:
            words = ["run", "tuning", "--config", str(examples / "pid.yaml"), "--episodes", str(episodes)]
            words += ["--yes-move", "--j-min-drop", "inf"]
            words += ["--seed", str(seed), "--experiments-dir", folder, "--no-report"]
            done = subprocess.run(
                [sys.executable, "-m", "crbo_ros.cli", *words], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise InvalidInput(f"seed {seed}: the run failed\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
            best = json.loads((Path(folder) / f"tuning-crbo-s{seed}" / "best.json").read_text())
            returns = read_run(Path(folder) / f"tuning-crbo-s{seed}" / "experiment.sqlite").returns.tolist()
        held = [v for _, v in read(link, {"/pid_plant": names})["/pid_plant"].values()]
    finally:
        link.close()
        node.send_signal(signal.SIGINT)
        node.wait(20.0)
    return {
        "seed": seed, "theta": best["theta"], "expected": best["mean"], "held": held,
        "kept": bool(np.allclose(held, best["theta"])), "average": float(np.mean(returns)),
        "worse": int(np.sum(np.array(returns) < returns[0] - 0.05)), "worst": float(np.min(returns)),
        "returns": returns, "seconds": time.monotonic() - began,
    }  # fmt: skip
