"""The graph's loop (protocol/runner.py) in one process, without ROS: the servers' objects, their stores, a spool."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.clock import boottime
from crbo_ros.core.problem import Problem
from crbo_ros.core.trial import Best
from crbo_ros.errors import PlantError
from crbo_ros.protocol.gate import SETTLED, Gate, Permit
from crbo_ros.protocol.monitor import SafetyMonitor
from crbo_ros.protocol.optimizer import OptimizerServer
from crbo_ros.protocol.ports import Progress, Ran, Receipt, Safe, Stage, State
from crbo_ros.protocol.records import STOPPED, ContractState, Episode, Offer
from crbo_ros.protocol.replay import Make
from crbo_ros.protocol.runner import EpisodeLoop
from crbo_ros.protocol.spool import Spool
from crbo_ros.registry import make_method
from crbo_ros.tasks.base import Task
from crbo_ros.tasks.signals import watched_rollout
from crbo_ros.view.record import read_run


@dataclass(frozen=True)
class InProcessRun:
    """What a run gave: (id, theta, value) for each episode, and the wall time of the loop in s."""

    data: list[tuple[int, tuple[float, ...], float]]
    seconds: float
    best: Best | None  # the recommended policy
    contract: ContractState
    state: str  # of the optimizer at the end


class DirectLink:
    """Asks the server objects themselves; their answers are the loop's next events."""

    def __init__(self, server: OptimizerServer, monitor: SafetyMonitor) -> None:
        self.server, self.monitor = server, monitor
        self.events: list[Callable[[EpisodeLoop, float], None]] = []

    def obstacle(self, whom: str) -> str:
        return ""

    def propose(self, nonce: str, request_id: str) -> None:
        answer = self.server.propose("runner", request_id)
        self.events.append(lambda loop, now: loop.proposed(now, nonce, answer))

    def check(self, nonce: str, offer: Offer, recent: Sequence[Episode]) -> None:
        verdict = self.monitor.check(
            experiment_uid=offer.experiment_uid, proposal_id=offer.id, theta=offer.theta, hash=offer.theta_hash,
            runner="runner", nonce=nonce, problem=offer.problem, returns=offer.returns,
        )  # fmt: skip
        self.server.add_verdict(verdict)
        self.events.append(lambda loop, now: loop.judged(now, nonce, verdict))

    def report(self, episode: Episode) -> None:
        self.monitor.add_return(episode)
        receipt = Receipt(*self.server.acknowledge(episode))
        self.events.append(lambda loop, now: loop.acknowledged(now, episode.episode_uid, receipt))

    def renew(self, offer: Offer) -> None:
        """Nobody else could take it."""


class DirectRig:
    """Runs an episode within `begin`: there is nobody else to be kept waiting."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self._progress = Progress(Stage.IDLE)

    def prepare(self, offer: Offer) -> None:
        self._offer, self._progress = offer, Progress(Stage.PREPARED)

    def begin(self, permit: Permit) -> None:
        rng = np.random.default_rng([self.seed, self._offer.id, 0x0E91])
        outcome = watched_rollout(self.task, self._offer.theta, rng)
        ran = Ran(
            outcome.end, outcome.value, outcome.reason, outcome.steps, outcome.duration, violation=outcome.violation,
            signal_names=tuple(outcome.signals), signal_values=tuple(outcome.signals.values()),
            signal_limits=tuple(outcome.limits.values()),
        )  # fmt: skip
        self._progress = Progress(Stage.ENDED, ran)

    def look(self) -> Progress:
        return self._progress

    def stop(self, kind: str, reason: str) -> None:
        self.task.stop()
        self._progress = Progress(Stage.ENDED, Ran(STOPPED, reason=reason, stopped_by=kind))

    def safe(self) -> Safe:
        return Safe(True)

    def rest(self, theta: np.ndarray) -> None:
        """Nothing to keep."""


def read_data_file(path: Path) -> tuple[list[float], list[tuple[int, tuple[float, ...], float]]]:
    """(when each episode ended, (id, theta, value) of each) of an experiment's store."""
    run = read_run(path, replay=False)
    episodes = [episode for id in run.order if (episode := run.row(id).episode) is not None]
    return [e.stamp for e in episodes], [(e.proposal_id, tuple(e.theta.tolist()), e.value) for e in episodes]


def run_in_process(
    task: Task,
    folder: Path,
    *,
    episodes: int,
    seed: int,
    method: str = "crbo",
    settings: dict[str, Any] | None = None,
    terms: dict[str, Any] | None = None,
    make: Make | None = None,
) -> InProcessRun:
    """Propose, check, run, report: every write to disk that the nodes make is made here too.

    `settings` are the method's (default: the task's gamma), `terms` the monitor's contract (default: none), `make` the
    method itself where it is no registered one.
    """
    settings = settings or ({"gamma": task.gamma} if method == "crbo" else {})
    problem = Problem(task.name, task.plant_name, task.space, task.theta_0)
    server = OptimizerServer.open(
        folder / "experiment.sqlite", problem=problem, name=folder.name, method=method,
        make=make or (lambda s: make_method(method, task.space, task.theta_0, seed=seed, **s)), seed=seed,
        settings=settings,
        budget=episodes,
    )  # fmt: skip
    monitor = SafetyMonitor(problem, folder / "monitor.sqlite", **(terms or {}))
    spool, gate = Spool(folder / "runner.sqlite"), Gate(0.5)
    link = DirectLink(server, monitor)
    loop = EpisodeLoop("runner", spool, link, DirectRig(task, seed), gate, exit_when_done=True)
    start = time.perf_counter()
    with task:
        gate.beat(boottime() - 2.0 * SETTLED, monitor.uid, True)
        while loop.state is not State.ENDED:
            now = boottime()
            gate.beat(now, monitor.uid, not monitor.stopped, monitor.stopped)
            loop.step(now)
            if loop.state in (State.HELD, State.FAULT):
                raise PlantError(loop.status.message)
            while link.events:
                link.events.pop(0)(loop, boottime())
    seconds = time.perf_counter() - start
    best, contract, state = server.best(), monitor.summary(), server.state
    for closable in (server, monitor, spool):
        closable.close()
    return InProcessRun(read_data_file(folder / "experiment.sqlite")[1], seconds, best, contract, state)
