"""SIGKILL to a random node at a random moment, restart, over and over; then look at what is left.

For each seed the data must be, bit for bit, what the same loop gives undisturbed in one process: nothing lost, nothing
doubled. Every episode must have run under an approval that the monitor has on record for exactly that theta. A
simulated plant dies with its runner; that a plant ends safe in all other cases is tested in test/nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.in_process import read_data_file, run_in_process
from crbo_ros.bringup.graph import graph
from crbo_ros.core.trial import theta_hash
from crbo_ros.registry import make_task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="furuta")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=40, help="episodes of each experiment")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runners", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/faults"))


def run(args: argparse.Namespace) -> int:
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ["ROS_DOMAIN_ID"] = str(80 + os.getpid() % 20)
    os.environ["FASTDDS_BUILTIN_TRANSPORTS"] = "UDPv4"  # killed nodes would leave shared memory behind
    rng = np.random.default_rng(args.seed)
    kills, start = 0, time.perf_counter()
    rounds: list[dict[str, Any]] = []
    while kills < args.kills:
        seed = args.seed + len(rounds)
        with tempfile.TemporaryDirectory() as name:
            round_ = one_round(args, Path(name), seed, args.kills - kills, rng)
        kills += round_["kills"]
        rounds.append(round_)
        print(f"seed {seed}: {round_}  (kills so far: {kills}, {time.perf_counter() - start:.0f} s)", flush=True)
    bad = [r for r in rounds if r["problems"]]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "faults.json").write_text(
        json.dumps({"kills": kills, "rounds": rounds, "load": os.getloadavg()}, indent=1)
    )
    print(f"\n{kills} kills in {len(rounds)} experiments of {args.episodes} episodes: {len(bad)} with problems")
    return 1 if bad else 0


def one_round(
    args: argparse.Namespace, folder: Path, seed: int, kills_left: int, rng: np.random.Generator
) -> dict[str, Any]:
    """One experiment under fire. Problems found, in words."""
    from crbo_ros.bringup.processes import Graph

    given = {"experiments_dir": str(folder), "experiment": "there", "seed": str(seed), "episodes": str(args.episodes)}
    specs = graph(args.task, {**given, "runners": str(args.runners), "j_min_drop": "inf"})
    for spec in specs:
        if spec.executable == "episode_runner":
            spec.parameters["exit_when_done"] = True
    killed: dict[str, int] = {}
    said: list[str] = []
    with Graph(specs, namespace="faults", say=said.append) as processes:
        deadline = time.monotonic() + 600.0
        while time.monotonic() < deadline and not done(folder / "there" / "experiment.sqlite", args.episodes):
            time.sleep(rng.uniform(0.1, 2.5))
            if sum(killed.values()) < kills_left:
                name = str(rng.choice([spec.name for spec in specs]))
                processes.processes[name].kill()
                killed[name] = killed.get(name, 0) + 1
                processes.start(name)
        processes.wait_for(lambda: all(p.code is not None for p in processes.of("episode_runner")), 30.0)
        codes = processes.end()
    problems = [f"{name} exited with {code}" for name, code in codes.items() if code]
    problems += [line for line in said if "Traceback" in line]
    problems += judge(args, folder, seed)
    return {"seed": seed, "kills": sum(killed.values()), "killed": killed, "problems": problems}


def done(path: Path, episodes: int) -> bool:
    """Whether the store holds all returns (read beside the optimizer: WAL allows it)."""
    if not path.exists():
        return False
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0) as connection:
        try:
            return connection.execute("SELECT count(*) FROM episodes WHERE value IS NOT NULL").fetchone()[0] >= episodes
        except sqlite3.OperationalError:  # not yet created
            return False


def judge(args: argparse.Namespace, folder: Path, seed: int) -> list[str]:
    """What is wrong with the data that came out, in words."""
    problems = []
    _, data = read_data_file(folder / "there" / "experiment.sqlite")
    if args.runners == 1:  # with several the order of returns is a matter of chance
        reference = run_in_process(make_task(args.task), folder / "here", episodes=args.episodes, seed=seed)
        if data != reference.data:
            same = sum(a == b for a, b in zip(data, reference.data, strict=False))
            problems.append(f"data differ: {len(data)} episodes, {same} of {len(reference.data)} as undisturbed")
    if len({id for id, _, _ in data}) != len(data):
        problems.append("an episode was counted twice")
    with sqlite3.connect(folder / "there" / "monitor.sqlite") as connection:
        approvals = dict(connection.execute("SELECT verdict_id, theta_hash FROM approvals").fetchall())
    with sqlite3.connect(folder / "there" / "experiment.sqlite") as connection:
        rows = connection.execute(
            "SELECT e.verdict_id, p.theta FROM episodes e JOIN proposals p ON p.id = e.proposal_id"
        )
        for verdict_id, theta in rows.fetchall():
            if approvals.get(verdict_id) != theta_hash(np.frombuffer(theta, "<f8")):
                problems.append(f"an episode ran without an approval on record ({verdict_id})")
    return problems
