"""Improve a policy: start optimizer, safety monitor and episode runner(s) as ROS nodes and run the episodes.

    crbo run furuta --episodes 100 --seed 1
    crbo run basketball --runners 2

An experiment that exists is carried on with. Ctrl-C stops the plant first, then everything; start again to go on.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bringup.graph import (
    ARGUMENTS,
    CONFIG,
    LOG_LEVEL,
    NAMESPACE,
    RUNNERS,
    TASK_OPTIONS,
    NodeSpec,
    check,
    graph,
    with_task_options,
)
from crbo_ros.core.problem import Problem
from crbo_ros.errors import CrboError, InvalidInput
from crbo_ros.nodes import STUCK
from crbo_ros.protocol import best_file
from crbo_ros.protocol.database import claim
from crbo_ros.protocol.store import ExperimentStore
from crbo_ros.registry import make_task, task_problem
from crbo_ros.ros.parameters import threshold_drop
from crbo_ros.signals import Signals

OPTIONS = (*ARGUMENTS, *TASK_OPTIONS, RUNNERS, NAMESPACE, CONFIG, LOG_LEVEL)
FAREWELL = 5.0  # s after the end in which runners that are not ours still get their answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help="furuta, basketball, pendulum, cartpole, mountaincar, gym, tuning, ...")
    for argument in OPTIONS:
        option = "--" + argument.name.replace("_", "-")
        alone: Any = {"nargs": "?", "const": "true"} if argument.type is bool else {}  # --yes-move is --yes-move true
        parser.add_argument(option, dest=argument.name, default=argument.default, help=argument.description, **alone)
    parser.add_argument("--evaluate", type=int, default=10, help="rollouts of the best policy at the end (simulations)")
    parser.add_argument("--no-report", action="store_true", help="do not draw report.html and report.png")


def run(args: argparse.Namespace) -> int:
    arguments = with_task_options({a.name: str(getattr(args, a.name)) for a in OPTIONS})
    arguments["experiments_dir"] = str(Path(arguments["experiments_dir"] or "experiments").resolve())
    specs = graph(args.task, arguments)
    own = specs[0].configured()
    # A mistake in the options or in a file of theirs is told here, once, before anything is started.
    problem = task_problem(args.task, own.get("plant") or None, **own.get("task_options", {}))
    if problem.hardware:
        _consent(problem, {spec.executable: spec.configured() for spec in specs})
    experiment = own["experiment"]
    namespace = arguments["namespace"] or "".join(c if c.isalnum() else "_" for c in experiment)
    for spec in specs:
        check(spec, namespace)
    if not Path(arguments["experiments_dir"]).is_dir() and Path(arguments["experiments_dir"]).exists():
        raise InvalidInput(f"experiments_dir: {arguments['experiments_dir']} is a file, not a folder")
    folder = Path(arguments["experiments_dir"]) / experiment
    with contextlib.suppress(OSError):  # an experiment that runs already is told here, without disturbing it
        os.close(claim(folder / "experiment.sqlite"))
    for spec in specs:
        if spec.executable == "episode_runner":
            spec.parameters["exit_when_done"] = True
    code = _run_graph(specs, namespace, arguments["log_level"], folder)
    return code or _conclude(args, own, problem, folder)


def _consent(problem: Problem, configured: dict[str, dict[str, Any]]) -> None:
    """Before anything is started: what will move, and within which limits. InvalidInput where a limit is missing."""
    monitor = configured.get("safety_monitor", {})
    j_min = float(monitor.get("j_min", -math.inf))
    drop = threshold_drop(float(monitor.get("j_min_drop", -1.0)), j_min, problem.j_min_drop, True)
    limits = [f"j_min {j_min:g}"] * (j_min > -math.inf) + [f"{100 * drop:g} % of |J0| below J0"] * (drop < math.inf)
    print(f"hardware   task {problem.task}, plant {problem.plant}: THIS MOVES SOMETHING REAL. A hand at the switch.")
    print(f"threshold  {' or '.join(limits) or 'none, as you said'}; options {dict(problem.options)}")
    if not configured.get("episode_runner", {}).get("yes_move"):
        print(
            "consent    waits for yours: Clear in ./crbo gui, or the runner's clear service; or begin with --yes-move"
        )


def _run_graph(specs: list[NodeSpec], namespace: str, log_level: str, folder: Path) -> int:
    from crbo_ros.bringup.processes import Graph
    from crbo_ros.view.watcher import Watcher

    screen = Screen()
    signals = Signals()
    screen.say(f"experiment {folder.name} in {folder}, namespace /{namespace}")
    with Graph(specs, namespace=namespace, log_level=log_level, say=screen.say) as processes:
        with Watcher(namespace) as watcher:
            ended: dict[str, int] = {}
            finished = math.inf
            while not signals.wait(0.1):
                screen.status(watcher.line())
                ended = processes.revive()
                runners = processes.of("episode_runner")
                if any(ended.values()) or len(ended) > len([p for p in runners if p.code is not None]):
                    break
                if runners and all(p.code is not None for p in runners):
                    break
                if not runners and watcher.over:
                    finished = min(finished, time.monotonic())
                    if time.monotonic() > finished + FAREWELL:
                        break
            codes = processes.end()  # before anything else: until then things move
            screen.status(watcher.line())
        screen.close()
    if signals.came:
        print("crbo: interrupted; the same command carries on", file=sys.stderr)
        return 130
    # (-SIGINT: our own signal met a node that was on its way out already; STUCK: it said so, and all was done)
    if bad := {name: code for name, code in (codes | ended).items() if code not in (0, -signal.SIGINT, STUCK)}:
        print(f"crbo: ended early: {', '.join(f'{n} (exit code {c})' for n, c in bad.items())}", file=sys.stderr)
        return 1
    return 0


def _conclude(args: argparse.Namespace, own: dict[str, Any], problem: Problem, folder: Path) -> int:
    """The best policy, written and shown, and the report."""
    store = ExperimentStore(folder / "experiment.sqlite")
    episodes = [episode for episode in store.episodes() if episode.counts]
    store.close()
    if not episodes:
        raise InvalidInput(f"{folder}: no episode was completed")
    values = np.array([episode.value for episode in episodes])
    best = best_file.read(folder / "best.json")
    print(f"\nepisodes   {len(values)}, average return {values.mean():.4f}, start {values[0]:.4f}")
    print(f"best       proposal {best['id']}, expected {best['mean']:.4f}, seen {best['observed']:.4f}")
    options = own.get("task_options", {})
    if args.evaluate > 0 and args.task != "custom" and not problem.hardware:
        try:
            task = make_task(args.task, problem.plant, **options)
            _evaluate(task, np.array(best["theta"]), args.evaluate, int(own.get("seed", 1)))
        except CrboError as error:
            print(f"not evaluated: {error}")
    print(f"policy     {folder / 'best.json'}")
    if not args.no_report:
        try:
            from crbo_ros.report import write_report
        except ImportError as error:
            print(f"no report: {error}")
        else:
            options = {"plant": problem.plant, **options}
            html, picture = write_report(folder / "experiment.sqlite", folder, options=options)
            print(f"report     {html}\n           {picture}")
    return 0


def _evaluate(task: Any, theta: np.ndarray, count: int, seed: int) -> None:
    with task:
        found = [task.rollout(theta, np.random.default_rng([seed, 0xE7A1, i])) for i in range(count)]
        start = [task.rollout(task.theta_0, np.random.default_rng([seed, 0xE7A1, i])) for i in range(count)]
    final = np.array([outcome.value for outcome in found if outcome.counts])
    first = np.array([outcome.value for outcome in start if outcome.counts])
    if len(final) and len(first):
        print(
            f"evaluated  {final.mean():.4f} +- {final.std():.4f} over {len(final)} rollouts; theta_0 {first.mean():.4f}"
        )


class Screen:
    """Log lines above, one live status line below (where the output is a terminal)."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._status, self._printed = "", 0.0

    def say(self, line: str) -> None:
        with self._lock:
            if self._live:
                sys.stdout.write("\r\033[K")
            print(line, flush=True)
            if self._live and self._status:
                sys.stdout.write(self._status)
                sys.stdout.flush()

    def status(self, line: str) -> None:
        """Live on a terminal; elsewhere a line every ten seconds."""
        if not line or line == self._status:
            return
        with self._lock:
            self._status = line[: shutil.get_terminal_size().columns - 1] if self._live else line
            if self._live:
                sys.stdout.write(f"\r\033[K{self._status}")
                sys.stdout.flush()
            elif time.monotonic() - self._printed > 10.0:
                self._printed = time.monotonic()
                print(line, flush=True)

    def close(self) -> None:
        with self._lock:
            if self._live:
                print()
            elif self._status:
                print(self._status, flush=True)
