"""What the runner's loop (protocol/runner.py) needs of the world: somebody to ask, and something that moves.

Requests return at once; answers come back to the loop as events, each with the nonce of its question. So the same loop
runs over ROS, over the server objects of one process, and over a random schedule in simulated time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from crbo_ros.core.safe import Safe as Safe
from crbo_ros.core.trial import NAN
from crbo_ros.protocol.gate import Permit
from crbo_ros.protocol.records import Episode, Offer

OPTIMIZER, MONITOR = "the optimizer", "the safety monitor"

# Answers to a request for a proposal, with the numbers of srv/ProposePolicy, and to a result (srv/AcknowledgeEpisode).
OK, WAIT, DONE, REFUSED = "ok", "wait", "done", "refused"
ANSWERS = {OK: 0, WAIT: 1, DONE: 2, REFUSED: 3}
ACCEPTED, DUPLICATE, RETRY = "accepted", "duplicate", "retry"
RECEIPTS = {ACCEPTED: 0, DUPLICATE: 1, REFUSED: 2, RETRY: 3}


@dataclass(frozen=True)
class Answer:
    """What a runner that asked for a proposal is told. DONE: the offer is the recommended policy, if there is one."""

    status: str
    reason: str = ""
    retry_after: float = 0.0  # s, for WAIT
    offer: Offer | None = None
    experiment: str = ""  # whose optimizer it is
    problem: str = ""
    alarm: bool = False  # a person should know


@dataclass(frozen=True)
class Receipt:
    """What became of a result that was handed in."""

    status: str
    reason: str = ""


class Link(Protocol):
    """The way to optimizer and monitor. Every request may be repeated."""

    def obstacle(self, whom: str) -> str:
        """Why nobody (or more than one) can be asked now; empty when all is well."""

    def propose(self, nonce: str, request_id: str) -> None: ...

    def check(self, nonce: str, offer: Offer, recent: Sequence[Episode]) -> None: ...

    def report(self, episode: Episode) -> None:
        """Publish a result and hand it in; idempotent by its uid, which is also the nonce of the answer."""

    def renew(self, offer: Offer) -> None:
        """The proposal is in hand: its lease begins anew."""


class Stage(Enum):
    """Where a rig is."""

    IDLE = "idle"  # safe; nothing in hand
    PREPARING = "preparing"  # on its way to the start set, under its own safe controller
    PREPARED = "prepared"  # in the start set, and holds itself there
    RUNNING = "running"  # the policy acts
    ENDED = "ended"  # see outcome
    BROKEN = "broken"  # the plant failed, by no fault of the policy


@dataclass(frozen=True)
class Ran:
    """What an execution gave. Fields as in Episode."""

    outcome: str
    value: float = NAN
    reason: str = ""
    steps: int = 0
    duration: float = 0.0
    deadline_misses: int = 0
    median_lateness: float = 0.0
    p99_lateness: float = 0.0
    max_lateness: float = 0.0
    violation: str = ""
    signal_names: Sequence[str] = ()
    signal_values: Sequence[float] = ()
    signal_limits: Sequence[float] = ()
    stopped_by: str = ""  # gate.HELD, gate.LOST or gate.QUIT where somebody stopped it


@dataclass(frozen=True)
class Progress:
    """A look at the rig."""

    stage: Stage
    ran: Ran | None = None  # with ENDED
    reason: str = ""  # with BROKEN


class Rig(Protocol):
    """What moves, with a deadline of its own: it goes safe without us. No call blocks."""

    def prepare(self, offer: Offer) -> None:
        """Bring the plant into its start set and hold it there."""

    def begin(self, permit: Permit) -> None:
        """Let the policy act, as long as the permit has no obstacle. Only after PREPARED."""

    def look(self) -> Progress: ...

    def stop(self, kind: str, reason: str) -> None:
        """At once, from any state. Kind: gate.HELD, gate.LOST or gate.QUIT. Tries once more if it is not safe."""

    def safe(self) -> Safe:
        """Whether the plant is safe, as far as anybody has measured; UNCONFIRMED while it moves."""

    def rest(self, theta: np.ndarray) -> None:
        """The run is over: keep this policy, where that means something."""


class State(Enum):
    """Where the loop is."""

    HAND_IN = "hand in"  # results wait for the optimizer's acknowledgement
    ASK = "ask"  # for a proposal
    PREPARE = "prepare"  # a proposal is in hand; the gate must be open
    READY = "get ready"  # the plant is on its way to its start set
    JUDGE = "judge"  # it is there; the monitor is asked
    BEGIN = "begin"  # approved and on disk; next the policy acts
    RUN = "run"
    MAKE_SAFE = "make safe"
    KEEP = "keep"  # a result that the disk has not taken yet
    HELD = "held"  # for the operator
    FAULT = "fault"  # for the operator
    DONE = "done"  # nothing left to propose
    ENDED = "ended"  # told to quit, and everything is safe


class Command(Enum):
    """What an operator, a signal or a parent may say."""

    STOP = "stop"  # stop the plant; the proposal is tried again when the gate is open
    QUIT = "quit"  # stop the plant and end
    CLEAR = "clear"  # a person has looked: leave HELD or FAULT
    GIVE_BACK = "give_back"  # leave HELD or FAULT without that proposal


class Memory(Protocol):
    """What the loop needs of a Spool."""

    def request_id(self) -> str: ...
    def new_request(self) -> str: ...
    def begin(self, episode_uid: str, request_id: str, offer: Offer, verdict_id: str) -> None: ...
    def interrupt(self, episode_uid: str, reason: str, broken: bool = False) -> None: ...
    def breaks(self, request_id: str) -> int: ...
    def latch(self, fault: str) -> None: ...
    def fault(self) -> str: ...
    def recover(self) -> int: ...
    def interruptions(self, request_id: str) -> int: ...
    def forgive(self, request_id: str) -> None: ...
    def add(self, episode: Episode) -> str: ...
    def pending(self) -> list[Episode]: ...
    def settle(self, episode_uid: str, state: str, answer: str = "") -> None: ...


@dataclass(frozen=True)
class Limits:
    """How long, how often. All times in s."""

    answer: float = 20.0  # until a question is asked again
    repeats: int = 2  # of a proposal whose execution was broken off
    breaks: int = 3  # of the plant under one proposal, before that is set aside
    failures: int = 10  # in a row, before a person must look
    patience: float = 2.0  # that a prepared plant waits for a verdict; then it is made safe meanwhile
    recheck: float = 1.0  # between two looks at whether the run is over, while nothing may move
    renew: float = 0.5  # between two renewals of a lease
    look: float = 0.05  # between two looks at a plant that is under way (it is also looked at when it says something)
    retry: float = 1.0  # after a disk or an optimizer that could not take a result
    farewell: float = 5.0  # for a result that the disk does not take while told to quit
    safe: float = 10.0  # for a plant to come to a stop before that is a fault


UNKNOWN, SAFE, MOVING = "unknown", "safe", "moving"  # a plant, for people
PLANTS = {UNKNOWN: 0, SAFE: 1, MOVING: 2}  # the numbers of msg/RunnerStatus


@dataclass
class Status:
    """For people and for msg/RunnerStatus."""

    state: State = State.HAND_IN
    message: str = ""
    proposal_id: int = -1
    experiment_uid: str = ""
    verdict_id: str = ""
    episodes: int = 0
    interrupted: int = 0
    unreported: int = 0
    plant: str = UNKNOWN
    plant_reason: str = ""  # what was measured, or why it is not known
    holds: int = 0  # the monitor's last hold that the loop has looked at
    held: bool = False  # the monitor was told to stop everything
