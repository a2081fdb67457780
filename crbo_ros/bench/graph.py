"""What the ROS graph costs: wall time against the same loop in one process, and the time of one service call.

Both write the same stores and give the same data, bit for bit (checked). Machines are noisy: the ratio is what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.in_process import read_data_file, run_in_process
from crbo_ros.bringup.graph import graph
from crbo_ros.registry import make_task
from crbo_ros.ros.link import RosLink


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", default="furuta")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--calls", type=int, default=200, help="service calls to time")
    parser.add_argument("--out", type=Path, default=Path("results/graph"))


def run(args: argparse.Namespace) -> int:
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ["ROS_DOMAIN_ID"] = str(80 + os.getpid() % 20)
    rows: list[tuple[float, float, float, bool]] = []
    with tempfile.TemporaryDirectory() as name:  # so that loading compiled code does not count for one side
        run_in_process(make_task(args.task), Path(name) / "warm-up", episodes=min(10, args.episodes), seed=args.seed)
    for repeat in range(args.repeats):  # alternating, so that a change of load meets both
        with tempfile.TemporaryDirectory() as name:
            here = run_in_process(make_task(args.task), Path(name) / "here", episodes=args.episodes, seed=args.seed)
            seconds, data, median = run_graph(args, Path(name))
        rows.append((here.seconds, seconds, median, data == here.data))
        print(
            f"repeat {repeat}: one process {here.seconds:.2f} s, graph {seconds:.2f} s, "
            f"ratio {seconds / here.seconds:.2f}, service call {1e3 * median:.2f} ms, same data: {data == here.data}",
            flush=True,
        )
    alone, there, calls = (np.array([row[i] for row in rows]) for i in range(3))
    result = {
        "task": args.task, "episodes": args.episodes, "seed": args.seed, "repeats": args.repeats,
        "in_process_s": alone.tolist(), "graph_s": there.tolist(), "ratio_median": float(np.median(there / alone)),
        "service_call_ms": (1e3 * calls).tolist(), "same_data": all(row[3] for row in rows), "load": os.getloadavg(),
    }  # fmt: skip
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "graph.json").write_text(json.dumps(result, indent=1))
    print(
        f"\n{args.task}, {args.episodes} episodes, seed {args.seed}, {args.repeats} repeats, "
        f"load {os.getloadavg()[0]:.1f}; medians: graph / one process {result['ratio_median']:.2f} "
        f"(from {np.min(there / alone):.2f} to {np.max(there / alone):.2f}), "
        f"service call {1e3 * np.median(calls):.2f} ms"
    )
    return 0 if result["same_data"] else 1


def run_graph(args: argparse.Namespace, folder: Path) -> tuple[float, list[Any], float]:
    """(seconds from the first to the last episode, data, median seconds of a service call)."""
    from crbo_ros.bringup.processes import Graph
    from crbo_ros.view.watcher import Watcher

    arguments = {
        "experiments_dir": str(folder),
        "experiment": "there",
        "seed": str(args.seed),
        "episodes": str(args.episodes),
    }
    specs = graph(args.task, {**arguments, "j_min_drop": "inf"})  # as in one process: no threshold
    with Graph(specs, namespace="bench", say=lambda line: None) as processes, Watcher("bench") as watcher:
        done = processes.wait_for(lambda: watcher.state is not None and watcher.state.completed >= args.episodes, 600)
        if not done:
            raise SystemExit("the graph did not finish")
        median = time_calls("bench", args.calls)  # after the run, so that neither disturbs the other
    stamps, data = read_data_file(folder / "there" / "experiment.sqlite")
    return stamps[-1] - stamps[0] + (stamps[-1] - stamps[0]) / (len(stamps) - 1), data, median


def time_calls(namespace: str, count: int) -> float:
    """Median wall time of a call, in s: of a question without a request_id, which the optimizer refuses at once."""
    from crbo_ros.srv import ProposePolicy

    times = []
    with RosLink("caller", namespace) as link:
        for _ in range(count):
            start = time.perf_counter()
            link.call("crbo_ros/srv/ProposePolicy", "propose_policy", ProposePolicy.Request(runner="caller"), 10.0)
            times.append(time.perf_counter() - start)
    return float(np.median(times))
