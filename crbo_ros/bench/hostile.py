"""Hostile messages by the million, against optimizer, monitor and runner's loop as they come out of ROS's messages.

Whatever a stranger on the domain could publish or call: wrong ids, other experiments, NaN and infinities, thetas of any
size, unknown codes, forged verdicts (without the key), repeated and shuffled. What must hold: no exception, the data
set and the monitor's memory unchanged, no approval used, a bounded memory, and little work for each message.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.flips import PROBLEM, Stores
from crbo_ros.protocol.gate import Gate, Permit
from crbo_ros.protocol.proofs import Challenges
from crbo_ros.protocol.records import APPROVED, OUTCOMES, VERDICTS, Episode, Verdict

KEY = "of the graph"
NUMBERS = [0.0, 1.0, -1.0, math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324, 2.0**63]
TEXTS = ["", "x", "e" * 1024, "\x1b[2J", "'; DROP TABLE episodes; --", "../../x", "\0", "ä\u202e", "runner", "=1+1"]


@dataclass
class Outcome:
    """What a flood did."""

    count: int = 0
    broken: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # s for each message, CPU time of this thread
    answers: Counter[str] = field(default_factory=Counter)


class Stranger:
    """Makes messages, most of them nearly right."""

    def __init__(self, stores: Stores, seed: int) -> None:
        self.stores, self.rng = stores, np.random.default_rng(seed)
        self.offer = stores.server.propose("runner", "in hand").offer
        assert self.offer is not None
        self.challenges = Challenges(KEY)

    def pick(self, *others: Any) -> Any:
        return others[int(self.rng.integers(len(others)))]

    def text(self, right: str) -> str:
        return right if self.rng.random() < 0.7 else str(self.pick(*TEXTS))

    def theta(self) -> np.ndarray:
        assert self.offer is not None
        kind = self.rng.random()
        if kind < 0.4:
            return self.offer.theta
        if kind < 0.7:
            return self.offer.theta + self.pick(1e-9, 1.0, math.nan, math.inf)
        return np.full(int(self.pick(0, 1, 2, 4, 1024)), self.pick(*NUMBERS))

    def episode(self) -> Episode:
        """Never quite right: a wrong return for the proposal in hand, or one that it cannot be."""
        assert self.offer is not None
        right = Episode(
            self.text(f"forged {self.rng.integers(1000)}"), self.text(self.stores.server.uid), self.offer.id, "runner",
            self.theta(), str(self.pick(*OUTCOMES, "code 77")), float(self.pick(*NUMBERS)), self.text("why"),
            self.text("v"), float(self.pick(*NUMBERS)), problem=self.text(PROBLEM.key),
        )  # fmt: skip
        wrong: list[dict[str, Any]] = [
            {"experiment_uid": "another"}, {"theta": self.offer.theta + 1e-6}, {"episode_uid": ""},
            {"proposal_id": int(self.pick(-1, 10**6, 2**32 - 1))}, {"outcome": "code 9"},
            {"value": float(self.pick(math.nan, math.inf, -math.inf)), "outcome": "completed"},
        ]  # fmt: skip
        return replace(right, **self.pick(*wrong))

    def verdict(self) -> Verdict:
        assert self.offer is not None
        return Verdict(
            str(self.pick(*VERDICTS, "code 9")), self.text(self.offer.experiment_uid), self.offer.id,
            self.text(self.offer.theta_hash), self.text("runner"), self.text(""), self.text(self.stores.monitor.uid),
            self.text("v"), valid_for=float(self.pick(*NUMBERS)), nonce=self.text("nonce"), proof=self.text("0" * 64),
        )  # fmt: skip

    # -- what it sends ------------------------------------------------------------------------------

    def acknowledge(self) -> str:
        return self.stores.server.acknowledge(self.episode())[0]

    def publish_return(self) -> str:
        from crbo_ros.errors import InvalidInput

        try:
            return str(self.stores.monitor.add_return(replace(self.episode(), experiment_uid="another")))
        except InvalidInput:
            return "refused"

    def publish_verdict(self) -> str:
        self.stores.server.add_verdict(replace(self.verdict(), experiment_uid="another"))
        return "ignored"

    def propose(self) -> str:
        return self.stores.server.propose(self.text(""), self.text(""), "another").status

    def renew(self) -> str:
        return str(self.stores.server.renew(int(self.pick(-1, 7, 10**6)), self.text("x")))

    def review(self) -> str:
        return str(self.stores.monitor.review(int(self.pick(0, 7, 10**6)), self.text("x"), True, self.text("")))

    def judge(self) -> str:
        """A forged answer to the runner's question."""
        assert self.offer is not None
        gate = Gate(0.5)
        for now in (0.0, 0.2):
            gate.beat(now, self.stores.monitor.uid, True)
        permit = Permit(gate, self.verdict(), 0.0)
        if not permit.mismatch(self.offer, "runner", "nonce", KEY) and permit.refusal(0.3) is None:
            return APPROVED
        return "refused"

    def operate(self) -> str:
        return self.challenges.check(self.text("c"), self.text("p"), "rearm", "", "x") or APPROVED


def flood(count: int, seed: int, say: Callable[[str], None] = lambda line: None) -> Outcome:
    """`count` messages; what came of them."""
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as scratch, Stores(Path(scratch) / "e") as stores:
        for _ in range(3):
            stores.episode()
        stranger = Stranger(stores, seed)
        sends = [stranger.acknowledge, stranger.publish_return, stranger.publish_verdict, stranger.propose,
                 stranger.renew, stranger.review, stranger.judge, stranger.operate]  # fmt: skip
        before = _state(stores)
        for i in range(count):
            send = sends[i % len(sends)]
            begun = time.thread_time()
            try:
                answer = send()
            except Exception as error:
                answer = f"{type(error).__name__}: {error}"
                outcome.broken.append(f"{send.__name__}: {answer}")
            outcome.times.append(time.thread_time() - begun)
            outcome.answers[f"{send.__name__} {answer[:40]}"] += 1
            if answer in (APPROVED, "accepted"):
                outcome.broken.append(f"{send.__name__}: {answer}")
            outcome.count += 1
        if (after := _state(stores)) != before:
            outcome.broken.append(f"changed: {before} -> {after}")
        say(f"{count} messages, p99 {1e3 * float(np.quantile(outcome.times, 0.99)):.3f} ms")
    return outcome


def _state(stores: Stores) -> tuple[Any, ...]:
    server, monitor = stores.server, stores.monitor
    return (
        len(server.store.episodes()), server.method.n, list(server.pending), len(server.store.verdicts()), monitor.n,
        monitor.approved, monitor.threshold, monitor.stopped, len(monitor._early), monitor.waiting,
    )  # fmt: skip
