"""What the processes tell each other, without ROS: verdicts and episodes. docs/PROTOCOL.md says how they are used."""

from __future__ import annotations

import hmac
import json
import math
import uuid
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from dataclasses import fields as dataclass_fields
from typing import Any, TypeVar

import numpy as np

from crbo_ros.core.problem import differences
from crbo_ros.core.space import Vector
from crbo_ros.core.trial import NAN, Proposal, theta_hash

# How an episode ended, with the numbers of msg/EpisodeReturn. The words are tasks.base.Outcome.end's, and two for
# episodes that never ran: the monitor refused the proposal, or the runner gave it back by no fault of its own.
COMPLETED, TERMINATED, STOPPED, FAILED = "completed", "terminated", "stopped", "failed"
VETOED, RETURNED = "vetoed", "returned"
OUTCOMES = {COMPLETED: 1, TERMINATED: 2, STOPPED: 3, FAILED: 4, VETOED: 5, RETURNED: 6}
COUNTING = (COMPLETED, TERMINATED)  # those whose return enters the data set

# Status of a verdict, with the numbers of msg/SafetyVerdict.
WAITING, APPROVED, REFUSED = "waiting", "approved", "vetoed"
VERDICTS = {WAITING: 0, APPROVED: 1, REFUSED: 2}
OPERATOR, HELD, DATA, INPUT = "operator", "held", "data", "input"  # rules besides the contract's
AT_OPERATOR = "waits for the operator"  # how the reason of a verdict begins that only a person can end


CODES = {"outcome": OUTCOMES, "status": VERDICTS}
WORDS = {name: {code: word for word, code in codes.items()} for name, codes in CODES.items()}
Value = TypeVar("Value")


def from_fields(message: Any, kind: type[Value]) -> Value:
    """The value in a message, live or from a bag, whatever it holds: whoever takes it in checks it."""
    values: dict[str, Any] = {}
    for one in dataclass_fields(kind):  # type: ignore[arg-type]
        value = getattr(message, one.name)
        if one.name in WORDS:
            value = WORDS[one.name].get(value, f"code {value}")
        elif hasattr(value, "nanosec"):
            value = float(value.sec + 1e-9 * value.nanosec)
        elif one.name == "theta":
            value = np.array(value, dtype=np.float64)
        elif isinstance(value, (list, array)):
            value = tuple(value)
        values[one.name] = value
    return kind(**values)


def new_uid() -> str:
    """A unique id."""
    return uuid.uuid4().hex


# settings that an operator may change within an experiment; the changes are recorded
CHANGEABLE = ("gamma", "j_min", "j_min_drop", "risk", "budget", "start_rollouts")


@dataclass(frozen=True)
class Experiment:
    """What an experiment is; made once, by the optimizer's store. Equality is identity."""

    uid: str
    name: str
    problem: str  # core.problem.Problem.key
    method: str
    settings: Mapping[str, Any] = field(hash=False)
    seed: int

    def differences(self, other: Experiment) -> list[str]:
        """What makes the other one another experiment, in words, apart from uid and name."""
        found = differences(self.problem, other.problem)
        own = {"method": self.method, "seed": self.seed, **{f"setting {k}": v for k, v in self.settings.items()}}
        its = {"method": other.method, "seed": other.seed, **{f"setting {k}": v for k, v in other.settings.items()}}
        names = [name for name in {**own, **its} if name.removeprefix("setting ") not in CHANGEABLE]
        return found + [
            f"{name}: {own.get(name, '-')}, not {its.get(name, '-')}"
            for name in names
            if own.get(name) != its.get(name)
        ]


@dataclass(frozen=True)
class Offer:
    """A proposal on its way to a runner. Fields as in msg/Proposal."""

    experiment: str
    experiment_uid: str
    problem: str
    id: int
    theta: Vector
    theta_hash: str
    kind: str
    reason: str = ""
    mean: float = NAN
    sigma: float = NAN
    worst_case: float = NAN
    worst_case_paper: float = NAN
    gamma: float = NAN
    returns: int = 0  # how many returns the optimizer knew when it made this
    lease: float = 0.0  # s from the question on
    stamp: float = 0.0

    @staticmethod
    def of(proposal: Proposal, **fields: Any) -> Offer:
        """The proposal with what the message says beside it."""
        own = {name: getattr(proposal, name) for name in (f.name for f in dataclass_fields(proposal))}
        return Offer(**own, theta_hash=theta_hash(proposal.theta), **fields)


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
    median_lateness: float = 0.0
    p99_lateness: float = 0.0
    max_lateness: float = 0.0
    stamp: float = 0.0
    problem: str = ""
    violation: str = ""  # the safety signal that went beyond its limit, in words
    signal_names: Sequence[str] = ()
    signal_values: Sequence[float] = ()
    signal_limits: Sequence[float] = ()

    @property
    def counts(self) -> bool:
        """Whether its return enters the data set."""
        return self.outcome in COUNTING

    @property
    def executed(self) -> bool:
        """Whether the contract counts it: it gave a return, or began and gave none by its own fault."""
        return self.counts or bool(self.breach)

    @property
    def breach(self) -> str:
        """Why it is a violation of the contract whatever its return was, or ""."""
        failed = self.outcome == FAILED and self.verdict_id != ""
        return self.violation or (f"it gave no return: {self.reason or 'failed'}" if failed else "")

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
class ContractState:
    """The contract at a glance. Fields as in msg/SafetyContract."""

    experiment_uid: str
    monitor_uid: str
    state: str  # kept | empty | waits | refused | none
    reason: str
    risk: float
    budget: int
    threshold: float
    start_mean: float
    start_spread: float
    start_rollouts: int
    executed: int
    violations: int
    novel: int
    novel_violations: int
    allowed: int
    pending: int
    account: float
    loan: float
    needed: float
    proven_id: int
    proven_mean: float
    lipschitz: float
    lipschitz_shown: float
    coverage: float
    slack: float
    reported: Sequence[int] = ()
    signal_names: Sequence[str] = ()
    signal_bounds: Sequence[float] = ()
    signal_limits: Sequence[float] = ()
    stamp: float = 0.0

    @property
    def threshold_in_words(self) -> str:
        """For the person who consents."""
        if self.state == "none":
            return "NONE, everything is permitted"
        rule = self.reason if self.state == "waits" else f"{self.threshold:g}"
        return f"{rule}; risk {self.risk:g}"


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
    valid_for: float = 0.0  # s from the question on
    worst_case: float = NAN
    rule: str = ""  # which one spoke: those of core.contract, or OPERATOR, HELD, DATA, INPUT
    account: float = NAN
    gate: float = NAN
    threshold: float = -math.inf
    nearest_id: int = -1
    distance: float = NAN
    lipschitz: float = NAN
    lipschitz_shown: float = NAN
    lipschitz_source: str = ""
    nonce: str = ""
    proof: str = ""

    def signed(self, key: str) -> Verdict:
        """With the proof that it comes from a holder of the key; as it is where there is none."""
        return replace(self, proof=self._mac(key)) if key else self

    def proven(self, key: str) -> bool:
        """Whether it comes from a holder of the key. Without a key nobody can tell, and it is taken at its word."""
        return not key or hmac.compare_digest(self.proof.encode(), self._mac(key).encode())

    def _mac(self, key: str) -> str:
        told = (self.status, self.verdict_id, self.monitor_uid, self.experiment_uid, self.proposal_id, self.theta_hash)
        text = json.dumps([*told, self.runner, self.nonce, self.valid_for])
        return hmac.new(key.encode(), text.encode(), "sha256").hexdigest()
