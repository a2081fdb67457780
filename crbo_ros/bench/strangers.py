"""A stranger on the domain floods a running graph over DDS: is it answered, does its memory stay, is its data its own?

    ./crbo bench strangers --count 50000 --seed 1

Forged and broken returns, verdicts and other monitors' heartbeats are published as fast as rclpy publishes them, while
real processes run an experiment. What must hold: heartbeats go on, `stop` and `finish` are answered within 5 s, no
process grows by more than 100 MB, no start is without its approval, and every result in the store is a runner's own.
What is counted is what was published: what a slow reader's queue drops it never sees.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.clocks import Clocks
from crbo_ros.bench.faults import NAMESPACE, WatchedGraph, file_name, specs_for, talk_by_udp
from crbo_ros.bench.hostile import NUMBERS, TEXTS
from crbo_ros.bench.witness import account, ledger, register
from crbo_ros.bringup.graph import RUNNER
from crbo_ros.bringup.processes import Graph
from crbo_ros.errors import PlantError
from crbo_ros.ros import qos
from crbo_ros.ros.link import RosLink

ANSWER = 5.0  # s for stop and finish
GROWTH = 100.0  # MB
BURST = 500  # messages between two short pauses


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=50_000, help="messages to publish")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/strangers"))


def run(args: argparse.Namespace) -> int:
    os.environ["ROS_DOMAIN_ID"] = str(80 + os.getpid() % 20)
    with tempfile.TemporaryDirectory(prefix="crbo-strangers-") as name:
        folder = Path(name)
        talk_by_udp(folder)
        register(folder)
        sys.path.append(name)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [name, os.environ.get("PYTHONPATH", "")]))
        result = flood(folder / "e", args.count, args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "strangers.json").write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))
    return 1 if result["problems"] else 0


def megabytes(graph: Graph) -> dict[str, float]:
    """The memory that each process has in use."""
    found = {}
    for name, process in graph.processes.items():
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        found[name] = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return found


def flood(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """What `count` messages did to a graph with one runner."""
    from std_srvs.srv import Trigger

    from crbo_ros.msg import SafetyHeartbeat

    specs, said = specs_for(folder, 1, 100_000, seed, 0.3), list[str]()
    runner = next(file_name(spec) for spec in specs if spec.executable == RUNNER)
    problems, answers = list[str](), dict[str, float]()
    with WatchedGraph(specs, Clocks(folder), said) as graph, RosLink("stranger", NAMESPACE) as link:
        beats: list[Any] = []
        link.node.create_subscription(SafetyHeartbeat, "safety_heartbeat", beats.append, qos.HEARTBEAT)
        if not graph.wait_for(lambda: len(ledger(folder, runner)) > 3 and bool(beats), 90.0):
            return {"count": 0, "problems": ["the graph did not begin"]}
        before, own = megabytes(graph), beats[-1]
        begun = time.monotonic()
        publish(link, count, own, np.random.default_rng(seed))
        seconds = time.monotonic() - begun
        for word in ("stop", "finish"):
            asked = time.monotonic()
            try:
                link.call("std_srvs/srv/Trigger", f"/{NAMESPACE}/{word}", Trigger.Request(), 30.0, tries=3)
            except PlantError as error:
                problems.append(f"{word}: {error}")
            answers[word] = time.monotonic() - asked
            if answers[word] > ANSWER:
                problems.append(f"{word} was answered after {answers[word]:.1f} s")
        heard = sum(beat.monitor_uid == own.monitor_uid for beat in beats)
        if not graph.wait_for(lambda: sum(b.monitor_uid == own.monitor_uid for b in beats) > heard + 3, 10.0):
            problems.append("the monitor's heartbeat is not heard any more")
        growth = {name: value - before[name] for name, value in megabytes(graph).items()}
        codes = graph.end()
    problems += [f"{name} has grown by {value:.0f} MB" for name, value in growth.items() if value > GROWTH]
    problems += [f"{name} exited with {code}" for name, code in codes.items() if code]
    problems += [line for line in said if "Traceback" in line]
    found = account(folder, {runner: f"/{NAMESPACE}/{runner.removeprefix(NAMESPACE + '.')}"})
    return {
        "count": count, "seconds": seconds, "answers": answers, "growth": growth, "log lines": len(said),
        "counts": {**found.counts, **{name: len(what) for name, what in found.broken.items()}},
        "problems": problems + list(found.sentences),
    }  # fmt: skip


def publish(link: RosLink, count: int, own: Any, rng: np.random.Generator) -> None:
    from crbo_ros.msg import EpisodeReturn, SafetyHeartbeat, SafetyVerdict

    returns = link.node.create_publisher(EpisodeReturn, "episode_return", qos.HISTORY)
    verdicts = link.node.create_publisher(SafetyVerdict, "safety_verdict", qos.HISTORY)
    others = link.node.create_publisher(SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT)
    for i in range(count):
        uid = own.experiment_uid if i % 3 else str(rng.choice(["", "another"]))
        value, text = float(rng.choice(NUMBERS)), str(rng.choice(TEXTS)).replace("\0", "?")[:100]
        if i % 20 == 0:
            others.publish(SafetyHeartbeat(monitor_uid=text or "forged", experiment_uid=uid, armed=bool(i % 40)))
        elif i % 2:
            theta = [value] * int(rng.choice([0, 1, 3, 1024]))
            fields: dict[str, Any] = {
                "proposal_id": int(rng.choice([0, 7, 2**32 - 1])),
                "outcome": int(rng.choice([0, 1, 2, 9])),
            }
            fields |= {"theta": theta, "value": math.nan if fields["outcome"] == 1 else value, "reason": text}
            returns.publish(EpisodeReturn(experiment_uid=uid, episode_uid=f"forged {i}", runner=text, **fields))
        else:
            verdicts.publish(
                SafetyVerdict(experiment_uid=uid, verdict_id=f"v{i}", proposal_id=i % 9, status=1, reason=text,
                              monitor_uid=own.monitor_uid, theta_hash=text, valid_for=value)
            )  # fmt: skip
        if i % BURST == 0:
            time.sleep(0.01)
