"""What reaches the monitor, as plain values: the parts of the messages that it shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

NAN = math.nan


@dataclass(frozen=True)
class State:
    """The optimizer, from msg/OptimizerState."""

    experiment: str
    experiment_uid: str
    task: str
    method: str
    state: str  # running | paused | finished | exhausted | error
    message: str = ""
    completed: int = 0
    budget: int = 0
    pending: int = 0
    best_id: int = -1
    best_mean: float = NAN
    average_return: float = NAN
    gamma_effective: float = NAN
    coverage: float = NAN


@dataclass(frozen=True)
class Proposed:
    """A proposal, from msg/Proposal (theta itself is not shown, its hash is handed back with a review)."""

    experiment_uid: str
    id: int
    theta_hash: str
    kind: str
    reason: str = ""
    mean: float = NAN
    sigma: float = NAN
    worst_case: float = NAN
    gamma: float = NAN


@dataclass(frozen=True)
class Heartbeat:
    monitor_uid: str
    experiment_uid: str
    armed: bool
    reason: str = ""
    coverage: float = NAN


@dataclass(frozen=True)
class Status:
    """A runner, from msg/RunnerStatus."""

    runner: str
    state: str  # idle | waiting | running | held | done | error
    message: str = ""
    proposal_id: int = -1
    episode_time: float = 0.0


@dataclass(frozen=True)
class Presence:
    """Who publishes in the namespace at this moment, and which namespaces there are."""

    namespace: str
    optimizer: bool = False
    monitor: bool = False
    runner: bool = False
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """What a service said to one of the buttons."""

    button: str
    success: bool
    message: str
    proposal_id: int = -1
