"""A simulator that suggests: what a guide gains on robots that differ from it, and that a wrong one does no harm.

Every run is the graph's own loop in one process (bench.in_process) with the contract in optimizer and monitor, the same
seed and the same start states with and without a guide. Robots: furuta's `stand_in`; random Qubes (plants/qube/model.py
says from which ranges) on which theta_0 stays up; and a cart and pole (gymnasium) of another length and mass than the
agent was trained for. Wrong guides are made of the right one: its path mirrored at theta_0, turned into a random
direction, with the sign of every coordinate drawn, or led on straight until the robot has fallen (cliff); and there is
the path of another robot's simulator. Finished runs are kept in OUT/runs, and a run that was stopped goes on there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.contract import MEMORY
from crbo_ros.bench.in_process import run_in_process
from crbo_ros.bench.sweep import machine, write_atomically
from crbo_ros.bench.tables import markdown
from crbo_ros.core.guide import GuidePath
from crbo_ros.methods.guided import Guided
from crbo_ros.plants.qube.model import plausible
from crbo_ros.protocol.store import ExperimentStore
from crbo_ros.registry import make_task
from crbo_ros.tasks.base import Task
from crbo_ros.tasks.guide import make_guide, path_of

SEED = 7300  # developed on 6100 to 6199
GOAL = {"furuta": 0.85, "cartpole": 0.8}  # return that is to be reached soon
PLAIN, GUIDES, WRONG = "plain", ("nominal", "ensemble"), ("mirrored", "random", "flipped", "cliff", "other robot")
LONGER = {"length": 0.6, "masspole": 0.15, "total_mass": 1.15, "polemass_length": 0.09}  # of cart and pole
OTHER = {"mp": 0.036, "Lp": 0.19, "Jp": 0.036 * 0.19**2 / 12.0, "kt": 0.03, "km": 0.03}  # another robot
FINAL_ROLLOUTS = 10


@dataclass(frozen=True)
class GuideCase:
    """One run."""

    robot: str  # stand_in, random or cartpole
    guide: str
    seed: int

    @property
    def file(self) -> str:
        return f"{self.robot}.{self.guide.replace(' ', '_')}.{self.seed}.json"


def random_plant(seed: int) -> dict[str, float]:
    """Changes that make a Qube on which theta_0 stays up in five episodes."""
    rng = np.random.default_rng([seed, 0x91A])
    while True:
        changes = plausible(rng)
        task = make_task("furuta", "nominal", plant_options={"changes": changes})
        if all(task.rollout(task.theta_0, np.random.default_rng([seed, k])).end == "completed" for k in range(5)):
            return changes


def robot(case: GuideCase) -> Task:
    """The task on the robot."""
    task: Task
    if case.robot == "cartpole":
        task = make_task("cartpole", "gymnasium", physics=LONGER)
    elif case.robot == "random":
        task = make_task("furuta", "nominal", plant_options={"changes": random_plant(case.seed)})
    else:
        task = make_task("furuta", case.robot)
    return task


def honest_path(name: str, task: str, out: Path) -> GuidePath:
    """The path of the task's own simulator, computed once."""
    file = out / "paths" / f"{task}.{name.replace(' ', '_')}.json"
    if not file.exists():
        own = make_task(task)
        problem, begun = own.problem(), time.process_time()
        if name == "other robot":
            path = path_of([make_task(task, "nominal", plant_options={"changes": OTHER})], problem)
        else:
            path = make_guide(problem, "compiled" if task == "cartpole" else name, {})
        facts = {"points": path.points.tolist(), "returns": path.returns.tolist()}
        write_atomically(file, json.dumps({**facts, "cpu": time.process_time() - begun}))
    found = json.loads(file.read_text())
    return GuidePath(found["points"], found["returns"])


def make_path(case: GuideCase, out: Path) -> GuidePath:
    """The guide's path, of whatever kind."""
    task = "cartpole" if case.robot == "cartpole" else "furuta"
    if case.guide in (*GUIDES, "other robot"):
        return honest_path(case.guide, task, out)
    path, rng = honest_path(GUIDES[0], task, out), np.random.default_rng([case.seed, 0x60])
    start, way = path.points[0], path.points - path.points[0]
    if case.guide == "mirrored":
        way = -way
    elif case.guide == "flipped":
        way = way * rng.choice([-1.0, 1.0], len(start))
    elif case.guide == "random":
        direction = rng.standard_normal(len(start))
        way = path.marks[:, None] * direction / np.linalg.norm(direction)
    else:  # straight on, three times as far
        last, rise = way[-1] - way[-2], path.returns[-1] - path.returns[-2]
        more = np.arange(1, 2 * len(way))[:, None]
        way = np.vstack([way, way[-1] + more * last])
        return GuidePath(np.clip(start + way, 0.0, 1.0), np.append(path.returns, path.returns[-1] + more[:, 0] * rise))
    return GuidePath(np.clip(start + way, 0.0, 1.0), path.returns)


def play(case: GuideCase, episodes: int, out: Path) -> dict[str, Any]:
    """Carry a run out; its record."""
    path, load = None if case.guide == PLAIN else make_path(case, out), os.getloadavg()[0]
    with robot(case) as task, tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        terms = {"j_min_drop": task.j_min_drop, "budget": episodes}

        def guided(settings: dict[str, Any]) -> Guided:
            assert path is not None
            return Guided(task.space, task.theta_0, guide=lambda: path, seed=case.seed, **settings)

        run = run_in_process(
            task, Path(folder), episodes=episodes, seed=case.seed, terms=terms,
            settings={"gamma": task.gamma, **terms}, make=guided if path is not None else None,
        )  # fmt: skip
        store = ExperimentStore(Path(folder) / "experiment.sqlite")
        ran, kinds = [e for e in store.episodes() if e.executed], [row.proposal.kind for row in store.proposals()]
        store.close()
        final = []
        for k in range(FINAL_ROLLOUTS if run.best is not None else 0):
            assert run.best is not None
            final.append(task.rollout(run.best.theta, np.random.default_rng([case.seed, k, 0xF1])).value)
    return {
        "case": asdict(case), "episodes": episodes, "values": [e.value for e in ran], "kinds": kinds,
        "falls": run.contract.violations, "final": final, "state": run.state, "seconds": run.seconds, "load": load,
    }  # fmt: skip


# -- the table ----------------------------------------------------------------------------------------------------


def soon(record: dict[str, Any]) -> int:
    """Episodes to the goal; one more than the budget if it was never reached."""
    goal = GOAL.get(record["case"]["robot"], GOAL["furuta"])
    return next((i for i, v in enumerate(record["values"], 1) if v >= goal), record["episodes"] + 1)


def paired(differences: list[float]) -> str:
    """Mean and standard error."""
    error = float(np.std(differences, ddof=1)) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    return f"{np.mean(differences):+.4f} +- {error:.4f}"


def table(records: list[dict[str, Any]]) -> list[list[str]]:
    groups: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for record in records:
        case = record["case"]
        groups.setdefault((case["robot"], case["guide"]), {})[case["seed"]] = record
    header = [
        "robot", "guide", "runs", "episodes to the goal, plain", "guided", "average, guided - plain", "final",
        "falls, plain", "guided", "steps of the walk",
    ]  # fmt: skip
    rows = [header]
    for (where, guide), own in groups.items():
        plain = groups.get((where, PLAIN), {})
        pairs = [(plain[seed], record) for seed, record in own.items() if seed in plain]
        if guide == PLAIN or not pairs:
            continue
        before, after = zip(*pairs, strict=True)
        middle = [f"{np.median([soon(r) for r in side]):g} (most {max(map(soon, side))})" for side in (before, after)]
        change = [paired([float(np.mean(b[key]) - np.mean(a[key])) for a, b in pairs]) for key in ("values", "final")]
        falls = [f"{sum(r['falls'] for r in side)}" for side in (before, after)]
        steps = f"{np.mean([r['kinds'].count('guided') for r in after]):.1f}"
        rows.append([where, guide, str(len(pairs)), *middle, *change, *falls, steps])
    return rows


def write_summary(out: Path) -> str:
    records = [json.loads(path.read_text()) for path in sorted((out / "runs").glob("*.json"))]
    costs = [f"{path.stem}: {json.loads(path.read_text())['cpu']:.0f} s" for path in sorted((out / "paths").glob("*"))]
    seeds, loads, facts = [r["case"]["seed"] for r in records], [r["load"] for r in records], machine()
    text = f"""# A simulator that suggests

{records[0]["episodes"]} episodes a run. Goal: a return of {GOAL["furuta"]} (cartpole: {GOAL["cartpole"]}), median and
most; {records[0]["episodes"] + 1} stands for never. Average and final (10 rollouts of the recommended policy): mean
paired difference and its standard error. Falls: violations of the contract's threshold in all runs together.

{markdown(table(records))}

Simulation (CPU): {"; ".join(costs)}. Command: `crbo {" ".join(sys.argv[1:])}`. {len(records)} runs, seeds {min(seeds)}
to {max(seeds)}; {facts["processor"]}, {facts["cores"]} cores, load average while running {min(loads):.1f} to
{max(loads):.1f}; {facts["date"]} UTC.
"""
    write_atomically(out / "summary.md", text)
    return text


# -- the command --------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--robots", default="stand_in,random,cartpole", help="comma-separated")
    parser.add_argument("--guides", default=",".join((*GUIDES, *WRONG)), help="comma-separated")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no further run after this time")
    parser.add_argument("--out", type=Path, default=Path("results") / "guide", help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="2 repeats, the stand-in and the nominal guide alone")


def cases(args: argparse.Namespace) -> Iterator[GuideCase]:
    """By repeat, so that a bench that was stopped is one with fewer repeats; the dear ensemble last."""
    seeds, names = range(args.seed, args.seed + (2 if args.quick else args.repeats)), args.robots.split(",")
    found = list(_by_repeat(args, seeds, ["stand_in"] if args.quick else names))
    yield from sorted(found, key=lambda case: case.guide == "ensemble")


def _by_repeat(args: argparse.Namespace, seeds: range, names: list[str]) -> Iterator[GuideCase]:
    for seed in seeds:
        for name in names:
            known = {"stand_in": (*GUIDES, *WRONG), "random": GUIDES, "cartpole": (GUIDES[0], "mirrored")}[name]
            chosen = [guide for guide in args.guides.split(",") if guide in known]
            for guide in (PLAIN, *(chosen[:1] if args.quick else chosen)):
                yield GuideCase(name, guide, seed)


def run(args: argparse.Namespace) -> int:
    for folder in ("runs", "paths"):
        (args.out / folder).mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60.0 * args.minutes
    for case in cases(args):
        file = args.out / "runs" / case.file
        if not file.exists() and time.monotonic() < end:
            record = play(case, args.episodes, args.out)
            write_atomically(file, json.dumps(record))
            print(
                f"{case.file}: goal after {soon(record)}, average {np.mean(record['values']):.4f}, "
                f"{record['falls']} falls, {record['seconds']:.0f} s", flush=True,
            )  # fmt: skip
    print(write_summary(args.out))
    return 0
