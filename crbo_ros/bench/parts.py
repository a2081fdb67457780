"""CPU time of the small parts that have to keep up, each against the time it has: a step of the network policy (4 ms),
a movement of the DMP (1 ms), a refresh of the window with 1,000 episodes (20 ms).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.sweep import machine
from crbo_ros.errors import MissingDependency
from crbo_ros.registry import make_task

ROUNDS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--episodes", type=int, default=1000, help="episodes in the window (default 1000)")
    parser.add_argument("--out", type=Path, default=Path("results/parts.json"), help="JSON file (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    about = machine()
    print("load", about["load"], f"  median of {ROUNDS} rounds [fastest, slowest], CPU ms each")
    rows: list[dict[str, Any]] = []
    for name, allowed, measure in (
        ("a step of the network policy", 4.0, network_step),
        ("a movement of the DMP", 1.0, dmp_movement),
        (f"a refresh of the window, {args.episodes} episodes", 20.0, lambda: monitor_refresh(args.episodes)),
    ):
        try:
            times = 1e3 * np.array(measure())
        except MissingDependency as error:
            print(f"{name:45} skipped: {error}")
            rows.append({"part": name, "skipped": str(error)})
            continue
        middle, low, high = float(np.median(times)), float(times.min()), float(times.max())
        print(f"{name:45} {middle:8.3f} [{low:.3f}, {high:.3f}]  {100 * middle / allowed:5.1f} % of its {allowed:g} ms")
        rows.append({"part": name, "allowed_ms": allowed, "cpu_ms": times.tolist()})
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
    print(f"written: {args.out}")
    return 0


def timed(job: Callable[[], Any], calls: int) -> list[float]:
    """CPU seconds of a call, in each round; the first call (compilation) is left out."""
    job()
    seconds = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in range(calls):
            job()
        seconds.append((time.process_time() - begun) / calls)
    return seconds


def network_step() -> list[float]:
    """The Furuta policy, as the driver's loop calls it."""
    policy = make_task("furuta").policy
    observation = np.ones(len(policy.input_offset))
    return timed(lambda: policy(observation), 100)


def dmp_movement() -> list[float]:
    """The basketball throw's desired movement."""
    task = make_task("basketball")
    return timed(lambda: task.dmp.rollout(task.theta_0), 10)


class _Values:
    """What the window needs of a client: values from a list."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def poll(self) -> list[Any]:
        values, self.values = self.values, []
        return values


def monitor_refresh(episodes: int) -> list[float]:
    """One more episode: recorded, and painted (offscreen)."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from crbo_ros.protocol.records import Episode, Offer
    from crbo_ros.rqt.qt import QtWidgets
    from crbo_ros.rqt.widget import MonitorWidget
    from crbo_ros.view.values import OptimizerState, Publishers

    application = QtWidgets.QApplication.instance() or QtWidgets.QApplication(["crbo"])
    client, rng = _Values(), np.random.default_rng(0)
    window = MonitorWidget(client)
    window.shutdown()  # refreshed here, not by its timer
    window.resize(1200, 760)
    window.show()

    def add(count: int) -> None:
        known = len(window.view.run.rows)
        for id in range(known, known + count):
            bound, value = rng.uniform(0.0, 0.4), rng.uniform(0.4, 0.8)
            client.values += [
                Offer("furuta", "e", "", id, np.zeros(2), f"hash {id}", "acquisition", worst_case=bound, gamma=0.4),
                Episode(f"episode {id}", "e", id, "r", np.zeros(2), "completed", value, "", "", bound),
            ]
        window.refresh()
        application.processEvents()

    client.values += [
        Publishers("", True, True, True, ("",)),
        OptimizerState("furuta", "e", "furuta", "crbo", "running"),
    ]
    add(episodes)
    seconds = timed(lambda: add(1), 1)
    window.close()
    return seconds
