"""Returns of another plant: what a good source gains, and that a mirrored one does no harm.

Problems: 5-D functions of the core's benchmark, whose source is the same function with a slope added, in other units;
and furuta's stand-in, whose source is the data sheet's Qube. A source is a run of CRBO there. Mirrored: the same
returns, of policies on the other side of theta_0. Same seed and noise with and without a source; the contract is on for
furuta. Finished seeds are kept in OUT/runs, and a bench that was stopped goes on there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.guide import paired
from crbo_ros.bench.problems import synthetic_function
from crbo_ros.bench.sweep import machine, write_atomically
from crbo_ros.bench.tables import markdown
from crbo_ros.core.crbo import CRBO
from crbo_ros.registry import make_task

SEED = 7300  # developed on 6100 to 6199
Observe = Callable[[Any, np.random.Generator], float]
Data = tuple[Any, Any]  # policies (m, d), returns (m,)
PROBLEMS = ("synthetic-5d", "furuta")


def play(
    space: Any, theta_0: Any, observe: Observe, seed: int, episodes: int, source: Data | None, **terms: Any
) -> Any:
    """A run; the method at its end."""
    method = CRBO(space, theta_0, seed=seed, budget=episodes, **terms)
    if source is not None:
        method.inform(*source)
    for number in range(episodes):
        proposal = method.ask()
        method.tell(proposal.id, observe(proposal.theta, np.random.default_rng([seed, number])))
    return method


def measure(problem: str, seed: int, episodes: int) -> dict[str, Any]:
    """The average return without a source, with a good and with a mirrored one, and the last rho of each."""
    robot: Observe
    other: Observe
    terms: dict[str, Any] = {}
    if problem == "furuta":
        task, nominal = make_task("furuta"), make_task("furuta", "nominal")
        space, theta_0, terms = task.space, task.theta_0, {"j_min_drop": task.j_min_drop, "gamma": task.gamma}

        def robot(theta: Any, rng: np.random.Generator) -> float:
            return float(task.rollout(theta, rng).value)

        def other(theta: Any, rng: np.random.Generator) -> float:
            return float(nominal.rollout(theta, rng).value)

    else:
        function = synthetic_function(5, seed)
        space, theta_0 = function.space, function.theta_0
        slope = 0.3 * np.random.default_rng([seed, 7]).standard_normal(5)

        def robot(theta: Any, rng: np.random.Generator) -> float:
            return float(function.observe(theta, rng))

        def other(theta: Any, rng: np.random.Generator) -> float:
            return 5.0 + 2.0 * (robot(theta, rng) + float(slope @ (theta - theta_0)))

    earlier = play(space, theta_0, other, seed + 10_000, episodes, None, **terms)
    X, y = space.from_unit(earlier.data()[0]), earlier.data()[1]
    mirrored = np.clip(2.0 * theta_0 - X, space.lower, space.upper)
    found: dict[str, Any] = {}
    for name, source in (("plain", None), ("good", (X, y)), ("mirrored", (mirrored, y))):
        method = play(space, theta_0, robot, seed, episodes, source, **terms)
        values = method.data()[1]
        start, fallen = float(values[0]), method.contract.account.violations if terms else 0
        found[name] = {
            "average": float(np.mean(values)), "falls": fallen, "start": start,
            "rho": method.metrics.get("second_source", 0.0),
        }  # fmt: skip
    return {"problem": problem, "seed": seed, "episodes": episodes, "load": os.getloadavg()[0], **found}


def table(records: list[dict[str, Any]]) -> list[list[str]]:
    rows = [["problem", "source", "runs", "average, plain", "with it - plain", "falls, plain", "with it", "median rho"]]
    for problem in PROBLEMS:
        own = [record for record in records if record["problem"] == problem]
        for name in ("good", "mirrored") if own else ():
            change = paired([r[name]["average"] - r["plain"]["average"] for r in own])
            falls = [str(sum(r[side]["falls"] for r in own)) for side in ("plain", name)]
            rho, plain = (float(np.median([r[name]["rho"] for r in own])), [r["plain"]["average"] for r in own])
            rows.append([problem, name, str(len(own)), f"{np.mean(plain):.4f}", change, *falls, f"{rho:.2f}"])
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no further run after this time")
    parser.add_argument("--out", type=Path, default=Path("results") / "second_source", help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="2 repeats")


def run(args: argparse.Namespace) -> int:
    (args.out / "runs").mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60.0 * args.minutes
    for seed in range(args.seed, args.seed + (2 if args.quick else args.repeats)):
        for problem in PROBLEMS:
            file = args.out / "runs" / f"{problem}.{seed}.json"
            if not file.exists() and time.monotonic() < end:
                record = measure(problem, seed, args.episodes)
                write_atomically(file, json.dumps(record))
                parts = ", ".join(f"{name} {record[name]['average']:.4f}" for name in ("plain", "good", "mirrored"))
                print(f"{file.name}: {parts}", flush=True)
    records = [json.loads(file.read_text()) for file in sorted((args.out / "runs").glob("*.json"))]
    seeds, loads, facts = [r["seed"] for r in records], [r["load"] for r in records], machine()
    text = f"""# Returns of another plant

{args.episodes} episodes a run; mean paired difference of the average return and its standard error.

{markdown(table(records))}

Command: `crbo {" ".join(sys.argv[1:])}`. Seeds {min(seeds)} to {max(seeds)}; {facts["processor"]},
{facts["cores"]} cores, load average while running {min(loads):.1f} to {max(loads):.1f}; {facts["date"]} UTC.
"""
    write_atomically(args.out / "summary.md", text)
    print(text)
    return 0
