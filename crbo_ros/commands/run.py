"""Improve a policy: start optimizer, safety monitor and episode runner(s) as ROS nodes and run the episodes.

    ./crbo run furuta --episodes 100 --seed 1
    ./crbo run basketball --runners 2
    ./crbo run path/to/furuta-stand_in-crbo-s1   # an experiment, wherever its folder lies now: from its own record

An experiment that exists is carried on with. Ctrl-C stops the plant first, then everything; start again to go on.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import sys
import threading
import time
from typing import Any

from crbo_ros import checks
from crbo_ros.bringup.graph import EVERY, with_task_options
from crbo_ros.bringup.plan import Plan, make_plan, save_plan
from crbo_ros.commands.rollout import find_task_or_store
from crbo_ros.commands.summary import conclude
from crbo_ros.core.contract import Terms
from crbo_ros.core.problem import Problem
from crbo_ros.errors import as_called
from crbo_ros.nodes import STUCK
from crbo_ros.protocol.manifest import recorded_plan
from crbo_ros.registry import names
from crbo_ros.ros.parameters import threshold_drop
from crbo_ros.signals import Signals

FAREWELL = 5.0  # s after the end in which runners that are not ours still get their answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", help="furuta, basketball, pendulum, cartpole, gym, tuning, ...; or an experiment")
    for argument in EVERY:
        option = "--" + argument.name.replace("_", "-")
        alone: Any = {"nargs": "?", "const": "true"} if argument.type is bool else {}  # --yes-move is --yes-move true
        parser.add_argument(option, dest=argument.name, default=argument.default, help=argument.description, **alone)
    parser.add_argument("--evaluate", type=int, default=10, help="rollouts of the best policy at the end (simulations)")
    parser.add_argument("--no-report", action="store_true", help="do not draw report.html and report.png")


def run(args: argparse.Namespace) -> int:
    # A mistake in the options or in a file of theirs is told here, once, before anything is started.
    evaluate = checks.evaluations(args.evaluate)
    given = with_task_options({a.name: text for a in EVERY if (text := str(getattr(args, a.name)))})
    task, known = recorded(args.task, given.get("experiments_dir", ""))
    plan = make_plan(task, {**known, **given})
    announce(plan)
    save_plan(plan)
    code = run_graph(plan)
    return code or conclude(plan.folder, evaluate=evaluate, report=not args.no_report)


def recorded(task: str, experiments_dir: str = "") -> tuple[str, dict[str, str]]:
    """(task, arguments): of an experiment that is to be carried on with, or the task itself and none."""
    if task in names("tasks"):
        return task, {}
    folder = find_task_or_store(task, experiments_dir).parent.resolve()
    return recorded_plan(folder)


def announce(plan: Plan) -> None:
    """Before hardware moves."""
    if plan.problem.hardware:
        _consent(plan.problem, {spec.executable: spec.configured() for spec in plan.specs})


def _consent(problem: Problem, configured: dict[str, dict[str, Any]]) -> None:
    """Before anything is started: what will move, and within which limits. InvalidInput where a limit is missing."""
    monitor = configured.get("safety_monitor", {})
    j_min = float(monitor.get("j_min", -math.inf))
    drop = threshold_drop(float(monitor.get("j_min_drop", -1.0)), j_min, problem.j_min_drop, True)
    threshold = Terms(j_min=j_min, j_min_drop=drop).threshold_in_words
    print(f"hardware   task {problem.task}, plant {problem.plant}: THIS MOVES SOMETHING REAL. A hand at the switch.")
    print(f"threshold  {threshold or 'none, as you said'}; options {dict(problem.options)}")
    if not configured.get("episode_runner", {}).get("yes_move"):
        gui = as_called("./crbo gui")
        print(f"consent    waits for yours: Clear in {gui}, or the runner's clear service; or begin with --yes-move")


def run_graph(plan: Plan) -> int:
    """Start the plan's graph and stay until it has ended; the exit code."""
    from crbo_ros.bringup.processes import Graph
    from crbo_ros.view.watcher import Watcher

    screen = Screen()
    signals = Signals()
    screen.say(f"experiment {plan.folder.name} in {plan.folder}, namespace /{plan.namespace}")
    options: dict[str, Any] = {"namespace": plan.namespace, "log_level": plan.log_level, "remap": plan.remap}
    with Graph(plan.specs, **options, say=screen.say) as processes:
        with Watcher(plan.namespace) as watcher:
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


class Screen:
    """Log lines above, one live status line below (where the output is a terminal)."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty()
        self._lock = threading.Lock()
        self._status, self._printed, self._last = "", 0.0, ""  # when and what was printed, where it is not live

    def say(self, line: str) -> None:
        with self._lock:
            if self._live:
                sys.stdout.write("\r\033[K")
            print(checks.printable(line), flush=True)  # (nodes repeat what others sent)
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
                self._printed, self._last = time.monotonic(), line
                print(line, flush=True)

    def close(self) -> None:
        with self._lock:
            if self._live:
                print()
            elif self._status != self._last:
                print(self._status, flush=True)
