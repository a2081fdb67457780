"""The graph's loop (optimizer and monitor with their stores, spool, rollout) in one process, without ROS."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crbo_ros.core.problem import Problem
from crbo_ros.core.trial import theta_hash
from crbo_ros.protocol.monitor import SafetyMonitor
from crbo_ros.protocol.optimizer import DONE, OptimizerServer
from crbo_ros.protocol.records import APPROVED, Episode, new_uid
from crbo_ros.protocol.spool import Spool
from crbo_ros.protocol.store import ExperimentStore
from crbo_ros.registry import make_method
from crbo_ros.tasks.base import Task


@dataclass(frozen=True)
class Run:
    """What a run gave: (id, theta, value) for each episode, and the wall time of the loop in s."""

    data: list[tuple[int, tuple[float, ...], float]]
    seconds: float


def read_data_file(path: Path) -> tuple[list[float], list[tuple[int, tuple[float, ...], float]]]:
    """(when each episode ended, (id, theta, value) of each) of an experiment's store."""
    store = ExperimentStore(path)
    episodes = store.episodes()
    store.close()
    return [e.stamp for e in episodes], [(e.proposal_id, tuple(e.theta.tolist()), e.value) for e in episodes]


def run_in_process(task: Task, folder: Path, *, episodes: int, seed: int, method: str = "crbo") -> Run:
    """Propose, check, run, report: every write to disk that the nodes make is made here too."""
    settings = {"gamma": task.gamma} if method == "crbo" else {}
    problem = Problem(task.name, task.plant_name, task.space, task.theta_0)
    experiment = OptimizerServer.open(
        folder / "experiment.sqlite", problem=problem, name=folder.name, method=method,
        make=lambda s: make_method(method, task.space, task.theta_0, seed=seed, **s), seed=seed, settings=settings,
        budget=episodes,
    )  # fmt: skip
    monitor = SafetyMonitor(problem, folder / "monitor.sqlite")
    spool = Spool(folder / "runner.sqlite")
    start = time.perf_counter()
    with task:
        while (answer := experiment.propose("runner", spool.request_id())).status != DONE:
            proposal = answer.proposal
            assert proposal is not None
            hash = theta_hash(proposal.theta)
            verdict = monitor.check(
                experiment_uid=experiment.uid, proposal_id=proposal.id, theta=proposal.theta, hash=hash, runner="runner"
            )
            assert verdict.status == APPROVED, verdict.reason
            experiment.add_verdict(verdict)
            outcome = task.rollout(proposal.theta, np.random.default_rng([seed, proposal.id, 0x0E91]))
            episode = Episode(
                new_uid(), experiment.uid, proposal.id, "runner", proposal.theta, outcome.end, outcome.value,
                outcome.reason, verdict.verdict_id, verdict.worst_case, outcome.steps, outcome.duration,
            )  # fmt: skip
            spool.add(episode)
            monitor.add_return(episode)
            experiment.acknowledge(episode)
            spool.settle(episode.episode_uid, "done")
    seconds = time.perf_counter() - start
    for closable in (experiment, monitor, spool):
        closable.close()
    return Run(read_data_file(folder / "experiment.sqlite")[1], seconds)
