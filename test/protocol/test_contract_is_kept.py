"""The promise, against everybody at once: any returns, several runners, restarts, lost memories, a lying optimizer.

A schedule is a list of moves that hypothesis chooses. The referee counts by itself what novel policies did, from the
approvals that the monitor gave; it knows nothing of the monitor's books. That these tests see a breach is tested, too:
broken arithmetic, one fault at a time, must be found.
"""

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from crbo_ros.core import Space
from crbo_ros.core.account import RiskAccount
from crbo_ros.core.bound import Beliefs
from crbo_ros.core.contract import Contract
from crbo_ros.core.problem import Problem
from crbo_ros.core.trial import theta_hash
from crbo_ros.protocol import evidence
from crbo_ros.protocol.monitor import SafetyMonitor
from crbo_ros.protocol.monitor_store import MonitorStore
from crbo_ros.protocol.records import APPROVED, Episode

PROBLEM = Problem("t", "nominal", Space([0.0, 0.0], [1.0, 1.0]), np.array([0.5, 0.5]))
J_MIN, RUNNERS = 0.5, 3
GOOD, BAD = (1.0, 0.5, 9.0), (0.49, -1e9, math.nan)  # NaN: it ended without a return by its own fault

MOVES = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "end", "end", "end", "give back", "restart", "forget", "report"]),
        st.integers(0, RUNNERS - 1),
        st.integers(0, 11),  # which policy, and how it ends
    ),
    max_size=70,
)
TERMS = st.fixed_dictionaries({"risk": st.sampled_from([0.0, 0.02, 0.1, 0.3]), "budget": st.sampled_from([0, 7, 30])})


@dataclass
class Referee:
    """Runs schedules, and counts."""

    folder: Path
    terms: dict[str, Any]
    monitor: SafetyMonitor = field(init=False)
    told: list[Episode] = field(default_factory=list)  # what the optimizer's store holds
    under_way: dict[int, tuple[Episode, bool]] = field(default_factory=dict)  # runner -> rollout, whether it is novel
    intact: dict[bytes, bool] = field(default_factory=dict)
    executed: int = 0
    fallen: int = 0  # of novel policies
    id: int = 0

    def __post_init__(self) -> None:
        self.restart()
        self.ask(0, 0)
        self.end(0, 0)

    def restart(self) -> None:
        own = 1.0 if self.terms["risk"] == 0.0 else None
        self.monitor = SafetyMonitor(
            PROBLEM, self.folder / "monitor.sqlite", j_min=J_MIN, start_rollouts=1, lipschitz=own, **self.terms
        )
        self.monitor.database._connection.execute("PRAGMA synchronous=OFF")  # (the disk is not what is tried here)

    def move(self, what: str, runner: int, number: int) -> None:
        if what == "ask" and runner not in self.under_way:
            self.ask(runner, number)
        elif what == "end" and runner in self.under_way:
            self.end(runner, number)
        elif what == "give back" and runner in self.under_way:
            episode, _ = self.under_way.pop(runner)
            self.monitor.add_return(replace(episode, outcome="returned", value=math.nan))
        elif what in ("restart", "forget"):
            self.monitor.close()
            if what == "forget":
                self.forget()
            self.restart()
            if what == "forget":
                start = PROBLEM.theta_0  # it learns which experiment it guards, then what the optimizer's store holds
                self.monitor.check(experiment_uid="e", proposal_id=0, theta=start, hash=theta_hash(start), runner="x")
                for episode in self.told:
                    self.monitor.add_return(episode, verified=False)
        elif what == "report" and self.told:
            self.report(self.told[number % len(self.told)])

    def forget(self) -> None:
        """What runs is stopped: its monitor's heart no longer beats."""
        (self.folder / "monitor.sqlite").unlink()
        self.under_way.clear()

    def ask(self, runner: int, number: int) -> None:
        """theta_0, something that ran before (whether it fell or not), or something new: all alike to a liar."""
        self.id += 1
        theta = np.array([0.5, 0.5 + 1e-4 * self.id]) if number > 2 else PROBLEM.theta_0
        if number == 2 and self.told:
            theta = self.told[self.id % len(self.told)].theta
        verdict = self.monitor.check(
            experiment_uid="e", proposal_id=self.id, theta=theta, hash=theta_hash(theta), runner=f"r{runner}",
            returns=len([e for e in self.told if e.counts]),
        )  # fmt: skip
        if verdict.status == APPROVED:
            novel = not np.array_equal(theta, PROBLEM.theta_0) and not self.intact.get(theta.tobytes(), False)
            episode = Episode(
                f"u{self.id}", "e", self.id, f"r{runner}", theta, "completed", 1.0, "", verdict.verdict_id
            )
            self.under_way[runner] = (episode, novel)

    def end(self, runner: int, number: int) -> None:
        if runner not in self.under_way:
            return
        episode, novel = self.under_way.pop(runner)
        proven = not novel and number != 11  # now and then what was proven falls
        value = GOOD[number % 3] if proven or number < 2 else BAD[number % 3]
        if np.array_equal(episode.theta, PROBLEM.theta_0):
            value = 1.0
        if math.isnan(value):
            episode = replace(episode, outcome="failed")
        episode = replace(episode, value=value)
        self.monitor.add_return(episode)
        self.told.append(episode)
        self.count(episode, novel, not value >= J_MIN)

    def count(self, episode: Episode, novel: bool, fell: bool) -> None:
        key = episode.theta.tobytes()
        self.executed += 1
        self.fallen += fell and novel
        self.intact[key] = self.intact.get(key, True) and not fell

    def report(self, episode: Episode) -> None:
        """A person has seen something afterwards: it counts from now on, and what ran meanwhile ran."""
        if np.array_equal(episode.theta, PROBLEM.theta_0):
            return
        assert self.monitor.report_violation(episode.proposal_id, "it scraped the table")[0]

    @property
    def allowed(self) -> int:
        """ceil(f(n)), by the promise's own words."""
        risk, budget = float(self.terms["risk"]), int(self.terms["budget"])
        if risk == 0.0:
            return 1
        loan = max(risk * (budget or 100) / 2.0, 1.0)
        left = max(0.0, 1.0 - self.executed / budget) if budget else 1.0
        return math.ceil(risk * self.executed + loan * left)

    def close(self) -> None:
        self.monitor.close()


def play(terms: dict[str, Any], moves: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        referee = Referee(Path(folder), terms)
        for move in moves:
            referee.move(*move)
            novel = sum(novel for _, novel in referee.under_way.values())
            if terms["risk"]:
                assert referee.fallen + novel <= referee.allowed, "even if all that is under way fell"
            else:
                assert referee.fallen <= 1
        referee.close()


@pytest.fixture(autouse=True)
def _no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promise needs no model, and a fit takes longer than everything else here."""
    monkeypatch.setattr(evidence, "believe", lambda _, X, y: Beliefs(X, y, np.zeros(len(y)), 0.0))


@settings(max_examples=25, deadline=None)
@given(TERMS, MOVES)
def test_no_schedule_of_runners_restarts_lost_memories_and_lies_breaks_the_promise(
    terms: dict[str, Any], moves: list[tuple[str, int, int]]
) -> None:
    play(terms, moves)


def _eager(account: RiskAccount, pending: int = 0) -> bool:
    return account.balance - pending >= -1.0


def _alone(account: RiskAccount, pending: int = 0) -> bool:
    return account.balance >= account.rate


def _forgetful(account: RiskAccount, violated: bool, novel: bool) -> None:
    account.n, account.novel = account.n + 1, account.novel + novel  # violations are not booked


def _generous(account: RiskAccount, risk: float, budget: int = 0) -> None:
    original_init(account, risk, budget)
    account.loan *= 2.0


original_init = RiskAccount.__init__
FAULTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "one too many is permitted": (RiskAccount, "permits", _eager),
    "what is under way is not charged": (RiskAccount, "permits", _alone),
    "violations are not booked": (RiskAccount, "book", _forgetful),
    "the loan is twice as large": (RiskAccount, "__init__", _generous),
    "whatever ran is proven": (Contract, "is_proven", lambda self, x: x.tobytes() in self._books()._intact),
    "a restart forgets what is under way": (MonitorStore, "pending", lambda self: {}),
    "a lost memory stays lost": (SafetyMonitor, "add_return", None),  # type: ignore[dict-item]
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_the_referee_sees_broken_arithmetic(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken = FAULTS[name]
    if broken is None:
        original = SafetyMonitor.add_return
        broken = lambda self, episode, *, verified=True: verified and original(self, episode)  # noqa: E731
    monkeypatch.setattr(owner, attribute, broken)

    @settings(max_examples=400, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(TERMS, MOVES)
    def search(terms: dict[str, Any], moves: list[tuple[str, int, int]]) -> None:
        play(terms, moves)

    with pytest.raises(AssertionError):
        search()
