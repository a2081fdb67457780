"""CPU time of the small parts that have to keep up, each against the time it has: a step of the network policy (4 ms),
a movement of the DMP (1 ms), one more episode in a run's view and its curves (RunView) and in the whole window, with
1,000 episodes (20 ms) and with 10,000 (50 ms). And 250 Hz on a fake Qube with its
driver in a host (plants/host.py), against the same driver on a thread of the runner's process: late steps, and the CPU
of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.broken import BrokenQube
from crbo_ros.bench.sweep import machine
from crbo_ros.errors import MissingDependency
from crbo_ros.plants.hosted import PlantHost
from crbo_ros.plants.qube.hardware import QubeHardware
from crbo_ros.plants.realtime import LOOP, Pacer, priority
from crbo_ros.registry import make_task

ROUNDS = 20
RUNS = (1_000, 10_000)  # episodes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--episodes", type=int, nargs="+", default=RUNS, help="in the views (default 1000 10000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each 250 Hz loop (default 20)")
    parser.add_argument("--out", type=Path, default=Path("results/parts.json"), help="JSON file (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    about = machine()
    print("load", about["load"], f"  median of {ROUNDS} rounds [fastest, slowest], CPU ms each")
    rows: list[dict[str, Any]] = []
    parts: list[tuple[str, float, Callable[[], list[float]]]] = [
        ("a step of the network policy", 4.0, network_step),
        ("a movement of the DMP", 1.0, dmp_movement),
        *((f"RunView and its curves, {n} episodes", allowed(n), partial(view_update, n)) for n in args.episodes),
        *((f"a refresh of the window, {n} episodes", allowed(n), partial(monitor_refresh, n)) for n in args.episodes),
    ]
    for name, most, measure in parts:
        try:
            times = 1e3 * np.array(measure())
        except MissingDependency as error:
            print(f"{name:45} skipped: {error}")
            rows.append({"part": name, "skipped": str(error)})
            continue
        middle, low, high = float(np.median(times)), float(times.min()), float(times.max())
        print(f"{name:45} {middle:8.3f} [{low:.3f}, {high:.3f}]  {100 * middle / most:5.1f} % of its {most:g} ms")
        rows.append({"part": name, "allowed_ms": most, "cpu_ms": times.tolist()})
    rows += control_loops(args.seconds)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
    print(f"written: {args.out}")
    return 0


def allowed(episodes: int) -> float:
    """CPU ms for one more episode."""
    return 20.0 if episodes <= RUNS[0] else 50.0


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


def _episode(id: int, rng: np.random.Generator) -> list[Any]:
    """A proposal and what came of it."""
    from crbo_ros.protocol.records import Episode, Offer

    bound, value = rng.uniform(0.0, 0.4), rng.uniform(0.4, 0.8)
    return [
        Offer("furuta", "e", "", id, np.zeros(2), f"hash {id}", "acquisition", worst_case=bound, gamma=0.4),
        Episode(f"episode {id}", "e", id, "r", np.zeros(2), "completed", value, "", "", bound),
    ]


def view_update(episodes: int) -> list[float]:
    """One more episode: recorded, and all curves made."""
    from crbo_ros.view.run_view import RunView

    run, rng = RunView(), np.random.default_rng(0)

    def add(count: int) -> None:
        for id in range(len(run.rows), len(run.rows) + count):
            for value in _episode(id, rng):
                run.record(value)
        run.series()

    add(episodes)
    return timed(lambda: add(1), 1)


def monitor_refresh(episodes: int) -> list[float]:
    """One more episode: recorded, and painted (offscreen)."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
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
            client.values += _episode(id, rng)
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


# -- 250 Hz, with a host and without -------------------------------------------------------------------


def control_loops(seconds: float) -> list[dict[str, Any]]:
    """The network policy on a fake Qube: the driver on a thread of this process, and in a host."""
    task = make_task("furuta")
    steps = int(250 * seconds)
    rows: list[dict[str, Any]] = []

    def act(observation: Any) -> float:
        return float(np.clip(task.policy(np.append(observation, 0.0)), -3.0, 3.0)[0])

    for name, loop in (("a thread", on_a_thread), ("a host", in_a_host)):
        with tempfile.TemporaryDirectory() as folder:
            statistics, cpu = loop(act, steps, folder)
        rows.append({"part": f"250 Hz in {name}", "steps": steps, "cpu_ms_a_step": cpu, **statistics})
        late = f"{statistics['deadline_misses']:.0f} of {steps} late"
        tail = ", ".join(f"{statistics[f'lateness_{n}_ms']:.2f}" for n in ("median", "p99", "max"))
        print(f"250 Hz, driver in {name:9} {late} (median, p99, worst {tail} ms), CPU {cpu:.3f} ms a step")
    print(f"CPU with a host: {rows[1]['cpu_ms_a_step'] / rows[0]['cpu_ms_a_step']:.2f} times")
    return rows


def on_a_thread(act: Callable[[Any], float], steps: int, folder: str) -> tuple[dict[str, float], float]:
    """Every call of the driver handed to a thread and waited for, so that it could be given up on: as it was."""
    driver, pacer = BrokenQube(f"{folder}/card", after=10**9), Pacer(250.0)
    driver.open(250.0, 3.0)
    jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def serve() -> None:
        while (voltage := jobs.get()) is not None:
            answers.put(driver.exchange(voltage))

    threading.Thread(target=serve, daemon=True).start()
    observation = driver.exchange(0.0)
    act(observation)
    priority(LOOP)
    pacer.start()
    began = time.process_time()
    for _ in range(steps):
        pacer.wait()
        jobs.put(act(observation))
        observation = answers.get(timeout=1.0)
    cpu = time.process_time() - began
    priority(0)
    jobs.put(None)
    return pacer.statistics(), 1e3 * cpu / steps


def in_a_host(act: Callable[[Any], float], steps: int, folder: str) -> tuple[dict[str, float], float]:
    def patient(*arguments: Any, **options: Any) -> PlantHost:  # late steps are counted here, not stopped
        return PlantHost(*arguments, **{**options, "patience": 1.0, "limits": {}})

    card: dict[str, Any] = {"record": f"{folder}/card", "board": folder, "after": 10**9}
    with QubeHardware("crbo_ros.bench.broken:BrokenQube", make_host=patient, silence=1.0, **card) as plant:
        observation = np.zeros(4)
        act(observation)
        plant._hurry(True)
        plant._host.arm()
        began, theirs = time.process_time(), cpu_of(plant._host.pid)
        for _ in range(steps):
            observation = plant.step(np.array([act(observation)]))
        cpu = time.process_time() - began + cpu_of(plant._host.pid) - theirs
        plant.stop()
        return plant.statistics(), 1e3 * cpu / steps


def cpu_of(pid: int) -> float:
    """CPU seconds of another process so far."""
    fields = Path(f"/proc/{pid}/schedstat").read_text().split()
    return 1e-9 * int(fields[0])
