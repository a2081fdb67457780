"""What the processes tell each other, without ROS: verdicts and episodes. docs/PROTOCOL.md says how they are used."""

from __future__ import annotations

import json
import math
import uuid
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from crbo_ros.core.space import Vector
from crbo_ros.core.types import NAN

# Outcomes of an episode; the words are those of tasks.base.Outcome.end, plus "vetoed" for one that never ran.
COMPLETED, TERMINATED, STOPPED, FAILED, VETOED = "completed", "terminated", "stopped", "failed", "vetoed"
OUTCOMES = (COMPLETED, TERMINATED, STOPPED, FAILED, VETOED)
COUNTING = (COMPLETED, TERMINATED)  # those whose return enters the data set

# Status of a verdict.
WAITING, APPROVED, REFUSED = "waiting", "approved", "vetoed"
AT_OPERATOR = "waits for the operator"  # how the reason of a verdict begins that only a person can end


def new_uid() -> str:
    """A unique id."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Episode:
    """How one proposal ended. Fields as in msg/EpisodeReturn."""

    episode_uid: str
    experiment_uid: str
    proposal_id: int
    runner: str
    theta: Vector
    outcome: str
    value: float = NAN
    reason: str = ""
    verdict_id: str = ""
    predicted_worst_case: float = NAN
    steps: int = 0
    duration: float = 0.0
    deadline_misses: int = 0
    max_jitter: float = 0.0
    stamp: float = 0.0

    @property
    def counts(self) -> bool:
        """Whether its return enters the data set."""
        return self.outcome in COUNTING

    def to_json(self) -> str:
        """As one line of JSON; theta and value survive bit for bit (Python writes the shortest exact float)."""
        fields = asdict(self)
        fields["theta"] = self.theta.tolist()
        return json.dumps(fields)

    @staticmethod
    def from_json(text: str) -> Episode:
        fields: dict[str, Any] = json.loads(text)
        fields["theta"] = np.array(fields["theta"], dtype=np.float64)
        return Episode(**fields)


@dataclass(frozen=True)
class Verdict:
    """The monitor's answer for one proposal. Fields as in msg/SafetyVerdict."""

    status: str  # waiting | approved | vetoed
    experiment_uid: str
    proposal_id: int
    theta_hash: str
    runner: str
    reason: str
    monitor_uid: str
    verdict_id: str = field(default_factory=new_uid)
    stamp: float = 0.0
    valid_for: float = 0.0  # s from the answer's arrival
    worst_case: float = NAN
    threshold: float = -math.inf
    nearest_id: int = -1
    distance: float = NAN
    lipschitz: float = NAN
    lipschitz_source: str = ""
