"""The two worked stacks: what tuning gains in 40 episodes, against what brute force finds.

The simulations of examples/joint.py and examples/nav_robot.py with the parameters, the limits and the return of their
YAML files, in this process: the same numbers as over ROS, where `crbo run tuning` moves them (test/integration). The
share of the way is (J_best - J_start) / (J_optimum - J_start), each J the mean over the same noise seeds; a lucky
return counts for nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.bench.tuning import load
from crbo_ros.core import CRBO
from crbo_ros.errors import InvalidInput
from crbo_ros.plants.ros.config import TuningConfig, read_config
from crbo_ros.returns.definition import Log

Array = NDArray[np.float64]
STACKS = {"joint": "joint.py", "nav": "nav_robot.py"}
NOISE = range(1000, 1004)  # seeds of the simulation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stacks", nargs="+", default=list(STACKS), choices=list(STACKS))
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--search", type=int, default=600, help="simulations of the brute-force search")
    parser.add_argument("--output", type=Path, default=Path("bench/stacks.json"))


def run(args: argparse.Namespace) -> int:
    examples = Path(os.environ.get("CRBO_ROOT", Path(__file__).parents[2])) / "examples"
    found, good = {}, True
    for name in args.stacks:
        config, episode = stack(examples, name)
        start = np.array([p.start for p in config.parameters])
        j_start = value(episode, start)
        optimum, j_optimum = brute_force(config, episode, args.search)
        print(f"{name}: start {j_start:.3f}, brute force {j_optimum:.3f} at {np.round(optimum, 3)}")
        rows = []
        for seed in args.seeds:
            row = tune(config, episode, seed, args.episodes)
            row["share"] = (value(episode, row["theta"]) - j_start) / (j_optimum - j_start)
            rows.append(row)
            print(f"  seed {seed}: {row['share']:.0%} of the way, {row['failed']} episodes failed", flush=True)
        good = good and all(row["share"] > 0.5 for row in rows)
        found[name] = {"start": j_start, "optimum": j_optimum, "theta": optimum.tolist(), "runs": rows}
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(json.dumps({**found, "load": os.getloadavg()}, indent=1, default=float))
    print(f"more than half of the way in every run: {'yes' if good else 'NO'}; written: {args.output}")
    return 0 if good else 1


def stack(examples: Path, name: str) -> tuple[TuningConfig, Callable[[Array, int], float]]:
    """Its configuration, and its return as a function of theta and a noise seed (NaN: the episode failed)."""
    if not (examples / STACKS[name]).is_file():
        raise InvalidInput(f"{examples}: the examples are not there; run this in a clone")
    plant, config = load(examples / STACKS[name]), read_config(examples / f"{name}.yaml")
    definition = config.returns.definition
    assert definition is not None

    def episode(theta: Array, seed: int) -> float:
        log = joint_log(plant, theta, seed) if name == "joint" else nav_log(plant, theta, seed)
        if log is None:
            return math.nan
        scored = definition.score(log)
        return math.nan if scored.violations else scored.value

    return config, episode


def joint_log(plant: Any, theta: Array, seed: int) -> Log:
    def state(wanted: float, measured: float, torque: float) -> SimpleNamespace:
        point = SimpleNamespace
        return point(reference=point(positions=[wanted]), feedback=point(positions=[measured]),
                     output=point(effort=[torque]))  # fmt: skip

    rows = plant.simulate(theta.tolist(), [(0.8, 1.0)], seed)
    return {"/joint_trajectory_controller/controller_state": [(t, state(*rest)) for t, *rest in rows]}


def nav_log(plant: Any, theta: Array, seed: int) -> Log | None:
    point = SimpleNamespace
    rows, arrived = plant.simulate(theta.tolist(), seed)
    if not arrived:
        return None

    def at(x: float, y: float) -> SimpleNamespace:
        return point(pose=point(position=point(x=x, y=y)))

    def moving(w: float) -> SimpleNamespace:
        return point(twist=point(angular=point(z=w)))

    return {
        "/odom": [(t, point(pose=at(x, y), twist=moving(w))) for t, x, y, _, _, w in rows],
        "/plan": [(0.0, point(poses=[at(x, y) for x, y in plant.course()]))],
        "/scan": [(t, point(ranges=plant.clearance(x, y))) for t, x, y, *_ in rows],
    }


def value(episode: Callable[[Array, int], float], theta: Any) -> float:
    """The mean return; minus infinity where an episode fails."""
    values = [episode(np.asarray(theta, dtype=float), seed) for seed in NOISE]
    return float(np.mean(values)) if np.all(np.isfinite(values)) else -math.inf


def brute_force(config: TuningConfig, episode: Callable[[Array, int], float], count: int) -> tuple[Array, float]:
    """Random search over the whole domain, then ever closer around the best."""
    rng, space = np.random.default_rng(0), config.space
    best, top = np.array([p.start for p in config.parameters]), -math.inf
    for k in range(count):
        if k < count // 2:
            x = rng.random(space.dim)
        else:
            x = space.to_unit(best) + rng.normal(size=space.dim) * 0.2 * 0.02 ** (2.0 * k / count - 1.0)
        theta = space.from_unit(np.clip(x, 0.0, 1.0))
        first = episode(theta, NOISE[0])
        if not math.isfinite(first) or first < top - 1.0 * abs(top):
            continue
        if (found := value(episode, theta)) > top:
            best, top = theta, found
    return best, top


def tune(config: TuningConfig, episode: Callable[[Array, int], float], seed: int, episodes: int) -> dict[str, Any]:
    """CRBO as the graph would run it."""
    method = CRBO(config.space, [p.start for p in config.parameters], gamma=config.gamma, seed=seed)
    failed = 0
    while method.n < episodes and failed < episodes:
        proposal = method.ask()
        result = episode(proposal.theta, 100_000 * seed + proposal.id)
        if math.isfinite(result):
            method.tell(proposal.id, result)
        else:
            failed += 1
            method.fail(proposal.id, "the episode failed")
    best = method.best()
    assert best is not None
    return {"seed": seed, "theta": best.theta.tolist(), "failed": failed, "mean": best.mean}
