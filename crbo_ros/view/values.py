"""What a view records beside Offer, Verdict and Episode, and the topics that all of it comes from.

Fields have the names of the messages' fields, and words stand for their constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crbo_ros.core.trial import NAN
from crbo_ros.protocol.records import OUTCOMES, VERDICTS, ContractState, Episode, Offer, Verdict

# Words with the numbers of msg/OptimizerState and msg/RunnerStatus.
STATES = {"running": 1, "paused": 2, "finished": 3, "exhausted": 4, "error": 5}
PLANT_STATES = {"plant_unknown": 0, "plant_safe": 1, "plant_moving": 2}
RUNNER_STATES = {"idle": 0, "waiting": 1, "running": 2, "held": 3, "done": 4, "error": 5, "preparing": 6}


@dataclass(frozen=True)
class OptimizerState:
    """The optimizer, from msg/OptimizerState."""

    experiment: str
    experiment_uid: str
    task: str
    method: str
    state: str  # one of STATES
    message: str = ""
    dim: int = 0
    names: Sequence[str] = ()  # of the parameters; none: they have none
    completed: int = 0
    budget: int = 0
    pending: int = 0
    vetoed: int = 0
    failed: int = 0
    expired: int = 0
    last_return: float = NAN
    average_return: float = NAN
    best_id: int = -1
    best_mean: float = NAN
    best_observed: float = NAN
    start_return: float = NAN
    gamma: float = NAN
    gamma_effective: float = NAN
    account: float = NAN
    steered: int = 0
    repeated: int = 0
    r0: float = NAN
    lengthscale: float = NAN
    signal_variance: float = NAN
    noise_variance: float = NAN
    lipschitz: float = NAN
    lipschitz_paper: float = NAN
    coverage: float = NAN
    propose_seconds: float = NAN
    stamp: float = 0.0


@dataclass(frozen=True)
class Heartbeat:
    """The safety monitor, from msg/SafetyHeartbeat."""

    monitor_uid: str
    experiment_uid: str
    armed: bool
    reason: str = ""
    coverage: float = NAN


@dataclass(frozen=True)
class RunnerStatus:
    """A runner, from msg/RunnerStatus."""

    runner: str
    state: str  # one of RUNNER_STATES
    message: str = ""
    proposal_id: int = -1
    episode_time: float = 0.0
    interrupted: int = 0
    plant: str = "plant_unknown"  # one of PLANT_STATES
    plant_reason: str = ""
    robot: str = ""  # which one


@dataclass(frozen=True)
class EpisodeTrajectory:
    """An episode step by step, from msg/EpisodeTrajectory. Runners publish it only while somebody looks."""

    experiment_uid: str
    proposal_id: int
    episode_uid: str
    names: Sequence[str]
    time: Sequence[float]
    values: Sequence[float]  # row-major, (steps, names)


@dataclass(frozen=True)
class Publishers:
    """Who publishes in the namespace at this moment, and which namespaces there are."""

    namespace: str
    optimizer: bool = False
    monitor: bool = False
    runner: bool = False
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reply:
    """What a service said to one of the buttons."""

    button: str
    success: bool
    message: str


# topic: (message of crbo_ros, value)
TOPICS: dict[str, tuple[str, type]] = {
    "optimizer_state": ("OptimizerState", OptimizerState),
    "proposal": ("Proposal", Offer),
    "safety_verdict": ("SafetyVerdict", Verdict),
    "safety_heartbeat": ("SafetyHeartbeat", Heartbeat),
    "episode_return": ("EpisodeReturn", Episode),
    "runner_status": ("RunnerStatus", RunnerStatus),
    "safety_contract": ("SafetyContract", ContractState),
}
# The fields of each value that are words, with their numbers.
CODES: dict[type, dict[str, dict[str, int]]] = {
    OptimizerState: {"state": STATES},
    RunnerStatus: {"state": RUNNER_STATES, "plant": PLANT_STATES},
    Verdict: {"status": VERDICTS},
    Episode: {"outcome": OUTCOMES},
}
