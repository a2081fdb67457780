"""Experiments to look at: really proposed, judged and ended, on a toy space or a task's own."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.crbo import CRBO
from crbo_ros.core.problem import Problem
from crbo_ros.core.space import Space
from crbo_ros.core.trial import theta_hash
from crbo_ros.protocol.optimizer import OptimizerServer
from crbo_ros.protocol.records import APPROVED, REFUSED, Episode, Verdict
from crbo_ros.registry import make_task

VETO = "worst case -7 is below the threshold 0.1 (0.2 from proposal 0, L = 40, prior)"


def hill(theta: Any) -> float:
    """A smooth return in (0, 1], 1 at (0.5, 0.5)."""
    return float(np.exp(-2.0 * np.sum((np.asarray(theta) - 0.5) ** 2)))


def judge(experiment: Any, proposal: Any, status: Any, reason: str = "within bounds") -> Any:
    worst = proposal.worst_case
    verdict = Verdict(
        status, experiment.uid, proposal.id, theta_hash(proposal.theta), "runner", reason, "monitor", stamp=1e9,
        worst_case=worst, threshold=0.1, nearest_id=0, distance=0.2, lipschitz=3.0, lipschitz_source="prior",
    )  # fmt: skip
    experiment.add_verdict(verdict)
    return verdict.verdict_id


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Any]:
    """make_store(episodes=8, vetoes=(3,), failures=(5,), terminated=(), task="toy") -> path of the store."""

    def make(
        episodes: int = 8,
        vetoes: Any = (),
        failures: Any = (),
        terminated: Any = (),
        pending: int = 0,
        task: str = "toy",
        name: str = "experiment",
    ) -> Any:
        real = None if task == "toy" else make_task(task)
        space = real.space if real else Space([-1.0, -1.0], [1.0, 1.0])
        theta_0 = real.theta_0 if real else np.array([0.2, 0.3])
        path = tmp_path / name / "experiment.sqlite"
        experiment = OptimizerServer.open(
            path, name=name, problem=Problem(task, real.plant_name if real else "toy", space, theta_0),
            method="crbo", seed=3,
            make=lambda settings: CRBO(space, theta_0, seed=3, **settings), settings={"gamma": 0.4},
        )  # fmt: skip
        for i in range(episodes + pending):
            proposal = experiment.propose("runner", f"request {i}").offer
            assert proposal is not None
            if i >= episodes:
                continue
            outcome = "vetoed" if i in vetoes else "failed" if i in failures else "completed"
            outcome = "terminated" if i in terminated else outcome
            verdict_id = judge(experiment, proposal, REFUSED if i in vetoes else APPROVED, VETO)
            if real:
                value = real.rollout(proposal.theta, np.random.default_rng(i)).value
            else:
                value = hill(proposal.theta)
            episode = Episode(
                f"episode {i}", experiment.uid, proposal.id, "runner", proposal.theta, outcome,
                value if outcome in ("completed", "terminated") else math.nan,
                VETO if i in vetoes else "motor too hot" if i in failures else "", verdict_id, proposal.worst_case,
                steps=100, duration=2.0, stamp=1e9 + i,
            )  # fmt: skip
            assert experiment.acknowledge(episode)[0] == "accepted"
        experiment.close()
        return path

    return make
