"""What the safety monitor judges by: the returns that it knows, the contract they add up to, its own model of them.

In memory. The monitor (protocol/monitor.py) keeps the records, says by which terms, and holds the lock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from crbo_ros.core.bound import Beliefs, believe, signal_bound
from crbo_ros.core.contract import Contract, Executed, Terms
from crbo_ros.core.gaussian_process import COARSE, GaussianProcess
from crbo_ros.core.hyperparameters import default_hyperparameters
from crbo_ros.core.kernels import kernel
from crbo_ros.core.space import Vector
from crbo_ros.protocol.monitor_store import KnownReturn
from crbo_ros.protocol.records import ContractState

NO_START = "waits for theta_0's return:"
REPORTED = "reported: "  # how a violation begins that a person told of


class Evidence:
    """The executed rollouts, oldest first, and what follows from them."""

    def __init__(self, start_x: Vector, terms: Terms) -> None:
        self.contract = Contract(terms, start_x)
        self.episodes: list[KnownReturn] = []  # the contract's rollouts
        self.values: dict[str, float] = {}  # episode_uid -> value
        self.unverified: set[str] = set()  # those of them that the optimizer told, not a runner
        self.signals: dict[str, tuple[float, float]] = {}  # name -> worst case for the last proposal, limit
        self._process = GaussianProcess(
            kernel("matern52"), len(start_x), default_hyperparameters(len(start_x)), tolerance=COARSE
        )
        self._beliefs: Beliefs | None = None  # None: data came since
        self._believed: tuple[float, float] = (-math.inf, math.nan)  # threshold and J0 for which they were made

    def add(self, known: KnownReturn) -> None:
        self.values[known.episode_uid] = known.value
        if known.unverified:
            self.unverified.add(known.episode_uid)
        self.episodes.append(known)
        worst_case = math.nan if known.worst_case is None else known.worst_case
        self.contract.add(Executed(known.x, known.value, known.violation, worst_case))
        self._beliefs = None

    def report(self, row: int, violation: str) -> None:
        """A person says that this rollout was a violation."""
        self.episodes[row] = self.episodes[row]._replace(violation=violation)
        self.contract.report(row, violation)

    @property
    def returns(self) -> list[KnownReturn]:
        """The rollouts that gave one."""
        return [episode for episode in self.episodes if math.isfinite(episode.value)]

    def beliefs(self) -> Beliefs:
        """The model's, fitted to the newest returns."""
        contract = self.contract
        key = (contract.threshold, contract.J0)
        if self._beliefs is None or (self._believed != key and contract.active):
            known = self.returns
            X = np.array([episode.x for episode in known]).reshape(len(known), len(contract.x0))
            y = contract.clipped(np.array([episode.value for episode in known]))
            self._beliefs, self._believed = believe(self._process, X, y), key
        return self._beliefs

    def look_at_signals(self, x: Vector) -> None:
        """The worst case of each safety signal at x, for information: the account counts what came of them."""
        for name in {name: None for episode in self.episodes for name in episode.signals}:
            known = [episode for episode in self.episodes if name in episode.signals]
            X, values = np.array([e.x for e in known]), np.array([e.signals[name][0] for e in known])
            limit = known[-1].signals[name][1]
            self.signals[name] = (signal_bound(x, X, values, limit), limit)

    def id_of(self, row: int) -> int:
        """The proposal of a row of the beliefs."""
        return self.returns[row].proposal_id

    def state(self, experiment_uid: str, monitor_uid: str, pending: int, stamp: float) -> ContractState:
        """The contract at a glance; `pending`: novel rollouts under way."""
        contract, account = self.contract, self.contract.account
        known = self.returns
        y = [episode.value for episode in known]
        slacks = [e.value - e.worst_case for e in self.episodes if e.worst_case is not None]
        state, reason = "kept", ""
        if contract.waits_for_start:
            state, reason = "waits", f"{NO_START} the threshold is {contract.terms.threshold_in_words}"
        elif not contract.active:
            state, reason = "none", "no threshold is configured"
        elif impossible := contract.impossible:
            state, reason = "refused", impossible
        elif not account.permits(pending):
            state, reason = "empty", contract.empty_reason(pending)
        beliefs = self.beliefs()
        rows = np.flatnonzero((contract.proven(beliefs) == beliefs.X).all(axis=1))
        proven, mean = (known[rows[-1]].proposal_id, float(beliefs.mean[rows[-1]])) if len(rows) else (-1, math.nan)
        finite = [slack for slack in slacks if math.isfinite(slack)]
        return ContractState(
            experiment_uid, monitor_uid, state, reason, contract.terms.risk, contract.terms.budget, contract.threshold,
            contract.J0, contract.J0_spread, len(contract.start_values), account.n, account.violations, account.novel,
            account.novel_violations, account.limit, pending,
            account.balance - pending if contract.active else math.nan, account.loan, account.rate, proven, mean,
            contract.lipschitz, contract.lipschitz_shown, contract.coverage.coverage,
            float(np.median(finite) / max(float(np.std(y)), 1e-300)) if finite else math.nan,
            signal_names=tuple(self.signals), signal_bounds=tuple(bound for bound, _ in self.signals.values()),
            signal_limits=tuple(limit for _, limit in self.signals.values()),
            reported=tuple(e.proposal_id for e in self.episodes if e.violation.startswith(REPORTED)),
            stamp=stamp,
        )  # fmt: skip

    def hint(self, recent: Sequence[bool], pending: int) -> str:
        """What the operator of a run that creeps should know; `recent`: whether the last proposals were vetoed."""
        if not self.returns or not self.contract.active:
            return ""
        contract, beliefs = self.contract, self.beliefs()
        lowest = min(self.returns, key=lambda episode: episode.value)
        best = float(np.max(beliefs.mean))
        room = (best - contract.threshold) / max(contract.lipschitz, 1e-300)
        limit = f"with L = {contract.lipschitz:.3g} nothing further than {room:.2g} from the best policy can pass"
        if not contract.account.permits(pending):
            limit = contract.empty_reason(pending)
        elif best <= contract.threshold:
            limit = "nothing can pass, for the best policy's expected return is below the threshold"
        return (
            f"{sum(recent)} of the last {len(recent)} proposals were vetoed (the lowest return, "
            f"{lowest.value:.4g}, was proposal {lowest.proposal_id}'s): {limit}. If you know better, lower j_min "
            "or allow more risk; finish ends the run with the best policy so far"
        )
