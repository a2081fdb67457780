"""The contract: how often a rollout may fall below J_min, who may run under that, and the worst case that is shown.

Three rules decide on a policy x, in this order; optimizer and monitor apply the same ones, each to its own data.

1. *Proven*: theta_0, and every policy that ran and never fell, may run again. theta_p is the one of them with the best
   mu - 2 sigma.
2. *Account* (core.account): a novel policy may run only while the account can pay for its fall.
3. *Bound* (core.bound): not where max_i [mu_i - L |x - x_i|] < J_min, with L calibrated by what came.

J0 is the mean of theta_0's returns before any other policy's; J_min = max(j_min, J0 - j_min_drop |J0|). A violation is
a return below J_min, an episode without a return by the policy's fault, a safety signal beyond its limit, or what a
person reported. Everything here is a function of the terms and the records, in their order: whoever has the records
can recompute it. All distances are in the unit box.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.account import RiskAccount
from crbo_ros.core.bound import Beliefs, Calibrated, Coverage, cones
from crbo_ros.core.kernels import Array

RISK = 0.05
START_ROLLOUTS = 3
AGREE = 0.02  # of J0 - J_min: two start rollouts as close as that make a third one pointless
GATE_START = 1.0 / 3.0  # the gate's L begins with this times (J0 - J_min) / (length of the first step),
SHOWN_START = 4.0  # and that of the shown worst case with this times as much
SHOWN_RATE, SHOWN_STEP = 0.04, 1.5  # misses of the shown worst case that its L aims at, and how fast it learns
EMPTY = "the account is empty"  # how the reason of a refusal begins that only further rollouts can end
STEPS = (0.8, 0.6, 0.45, 0.3, 0.2, 0.1)  # shares of the way from theta_p to a refused policy that are tried

# the rules by name: which of them spoke
START, PROVEN, NO_THRESHOLD, THETA_0_FALLS, ACCOUNT, BOUND = (
    "theta_0", "proven", "no threshold", "theta_0 falls", "account", "bound",
)  # fmt: skip


@dataclass(frozen=True)
class Terms:
    """What is agreed. Without a finite threshold there is no contract, and everything is permitted."""

    risk: float = RISK
    j_min: float = -math.inf
    j_min_drop: float = math.inf  # relative to the start: J0 - j_min_drop |J0|
    budget: int = 0  # N; 0: none
    start_rollouts: int = START_ROLLOUTS
    lipschitz: float | None = None  # the user's own L, return per unit of the unit box: a floor

    @property
    def threshold_in_words(self) -> str:
        """The rule of J_min, for people; empty if there is none."""
        rules = [f"{self.j_min:g}"] if self.j_min > -math.inf else []
        rules += [f"{100 * self.j_min_drop:g} % of |J0| below J0"] if self.j_min_drop < math.inf else []
        return ", or, if that is higher, ".join(rules)


class Executed(NamedTuple):
    """An executed episode."""

    x: Array  # (d,) in the unit box
    value: float  # the return; NaN if there is none
    violation: str = ""  # why it is a violation whatever the return was; empty if it is none
    worst_case: float = math.nan  # the one that was shown before it ran

    def violates(self, threshold: float) -> bool:
        """Whether it counts against a contract with this J_min."""
        return bool(self.violation) or self.value < threshold


@dataclass(frozen=True)
class Judgement:
    """Whether a policy may run, by which rule, and what its bound rests on."""

    permitted: bool
    rule: str
    reason: str
    worst_case: float = math.nan  # shown: max_i [mu_i - L' |x - x_i|] - 2 sigma_eps
    gate: float = math.nan  # max_i [mu_i - L |x - x_i|]
    nearest: int = -1  # row of the policy that gives the gate's value
    distance: float = math.nan
    lipschitz: float = math.nan  # L
    lipschitz_shown: float = math.nan  # L'


class Contract:
    """The terms and everything that was executed under them."""

    def __init__(self, terms: Terms, x0: Array) -> None:
        self.terms, self.x0 = terms, x0
        self.rollouts: list[Executed] = []
        self._dirty = True
        self._start: tuple[int, list[float], float] = (0, [], math.nan)  # of so many rollouts: start_values, J0

    # -- records -----------------------------------------------------------------------------------

    def add(self, rollout: Executed) -> None:
        self.rollouts.append(rollout)
        self._dirty = True

    def report(self, index: int, violation: str) -> None:
        """Somebody says of rollout number `index` that it was a violation."""
        self.rollouts[index] = self.rollouts[index]._replace(violation=violation)
        self._dirty = True

    def change(self, terms: Terms) -> None:
        """Other terms: everything is counted anew by them."""
        self.terms, self._dirty = terms, True

    # -- the start ---------------------------------------------------------------------------------

    @property
    def start_values(self) -> list[float]:
        """theta_0's returns before any other policy's; where another one came first, theta_0's first."""
        return self._look_at_start()[1]

    def _look_at_start(self) -> tuple[int, list[float], float]:
        """(number of rollouts that this is of, start_values, J0). No report and no other terms change them."""
        if self._start[0] != len(self.rollouts):
            found: list[float] = []
            for rollout in self.rollouts:
                if not np.array_equal(rollout.x, self.x0):
                    if found:
                        break
                elif math.isfinite(rollout.value):
                    found.append(rollout.value)
            self._start = (len(self.rollouts), found, float(np.mean(found)) if found else math.nan)
        return self._start

    def wants_start(self, under_way: int = 0) -> bool:
        """Whether theta_0 should run (again) before anything else does; `under_way` of its rollouts have not ended."""
        values = self.start_values
        if any(not np.array_equal(rollout.x, self.x0) for rollout in self.rollouts):
            return False
        agree = len(values) == 2 and abs(values[0] - values[1]) <= AGREE * (self.J0 - self.threshold)
        return len(values) + under_way < self.terms.start_rollouts and not (agree and self.active)

    @property
    def J0(self) -> float:
        return self._look_at_start()[2]

    @property
    def J0_spread(self) -> float:
        values = self.start_values
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan

    @property
    def threshold(self) -> float:
        """J_min."""
        J0 = self.J0
        relative = J0 - self.terms.j_min_drop * abs(J0)
        return max(self.terms.j_min, relative) if math.isfinite(relative) else self.terms.j_min

    @property
    def active(self) -> bool:
        """Whether there is a threshold to keep."""
        return self.threshold > -math.inf

    @property
    def waits_for_start(self) -> bool:
        """Whether the threshold is relative to a start that nobody has seen."""
        return math.isfinite(self.terms.j_min_drop) and math.isnan(self.J0)

    @property
    def impossible(self) -> str:
        """Why nobody could keep this contract, by what theta_0 itself does; empty if nothing speaks against it.

        One of its start rollouts fell, or of all its rollouts on record, whenever they ran, a larger share than `risk`.
        """
        if not self.active:
            return ""
        own, threshold = self._books()._start_rollouts, self.threshold
        begun = min(len(own), self.terms.start_rollouts)
        fallen = [rollout for rollout in own if rollout.violates(threshold)]
        at_start = [rollout for rollout in own[:begun] if rollout.violates(threshold)]
        if not at_start and not len(fallen) > self.terms.risk * len(own):
            return ""
        if at_start:
            which, fallen, counted = "start rollouts", at_start, begun
        else:
            which, counted = f"rollouts on record, which is more than the risk of {self.terms.risk:.3g}", len(own)
        if broken := [rollout.violation for rollout in fallen if rollout.violation]:
            return f"theta_0 itself broke it in {len(fallen)} of its {counted} {which} ({broken[0]})"
        values = [rollout.value for rollout in own if math.isfinite(rollout.value)]
        low, spread = min(values), float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
        margin = 2.0 * spread if spread > 0.0 else 0.1 * abs(low)
        shown = values[:begun] if at_start else sorted(values)[: len(fallen)]
        return (
            f"theta_0 itself fell below J_min = {self.threshold:.4g} in {len(fallen)} of its {counted} {which} "
            f"({', '.join(f'{value:.4g}' for value in shown)}): nobody can keep that threshold. One that could be "
            f"kept: j_min {low - margin:.4g} (crbo advise tells more). Set j_min or j_min_drop, and it goes on"
        )

    @property
    def _own(self) -> float | None:
        """Where nothing may happen the user's own L is the whole of it."""
        return self.terms.lipschitz if self.terms.risk == 0.0 else None

    # -- the books ---------------------------------------------------------------------------------

    def _count(self) -> None:
        """Everything anew from the records."""
        terms, threshold, J0 = self.terms, self.threshold, self.J0
        self._account = RiskAccount(terms.risk, terms.budget)
        self._start_rollouts: list[Executed] = []  # theta_0's, whenever they ran
        self._intact: dict[bytes, bool] = {}  # policies that ran: whether they never fell
        self._gate = Calibrated(terms.risk, terms.lipschitz)
        self._shown = Calibrated(SHOWN_RATE, step=SHOWN_STEP)
        self._coverage, start = Coverage(), self.x0.tobytes()
        drop = J0 - threshold if self.active and threshold < J0 else 0.5 * abs(J0) or 1.0
        for rollout in self.rollouts:
            key = rollout.x.tobytes()
            violated = rollout.violates(threshold)
            if key == start:
                self._start_rollouts.append(rollout)
            novel = key != start and not self._intact.get(key, False)
            self._account.book(violated, novel)
            self._intact[key] = self._intact.get(key, True) and not violated
            if not novel or math.isnan(J0):
                continue
            first = drop / max(float(np.linalg.norm(rollout.x - self.x0)), 1e-12)
            self._shown.begin(SHOWN_START * first)
            self._gate.begin(self._own or GATE_START * first)
            self._gate.learn(violated)
            if math.isfinite(rollout.worst_case) and math.isfinite(rollout.value):
                self._shown.learn(rollout.value < rollout.worst_case)
                self._coverage.add(rollout.worst_case, rollout.value)
        self._drop, self._dirty = drop, False

    def _books(self) -> Contract:
        if self._dirty:
            self._count()
        return self

    @property
    def account(self) -> RiskAccount:
        return self._books()._account

    @property
    def coverage(self) -> Coverage:
        """How often the shown worst cases of novel policies held."""
        return self._books()._coverage

    @property
    def lipschitz(self) -> float:
        """L; NaN before the first step."""
        return self._books()._gate.value

    @property
    def lipschitz_shown(self) -> float:
        """L'; NaN before the first step."""
        return self._books()._shown.value

    def gamma(self, gamma: float) -> float:
        """The gamma in force."""
        return self.account.gamma(gamma) if self.active else gamma

    def is_proven(self, x: Array) -> bool:
        """Whether x ran and never fell."""
        return self._books()._intact.get(x.tobytes(), False)

    def proven(self, beliefs: Beliefs) -> Array:
        """theta_p (d,): the best mu - 2 sigma of those that never fell; theta_0 where all did."""
        intact = self._books()._intact
        rows = [i for i, x in enumerate(beliefs.X) if intact.get(x.tobytes(), False)]
        if not rows:
            return self.x0
        best: Array = beliefs.X[rows[int(np.argmax((beliefs.mean - 2.0 * beliefs.sigma)[rows]))]]
        return best

    def clipped(self, y: Array) -> Array:
        """Returns (n,) clipped below at J_min - (J0 - J_min): how deep a fall was says nothing about elsewhere.

        Where theta_0 itself falls they are what they are: none is raised above the threshold.
        """
        room = self.J0 - self.threshold
        return np.maximum(y, self.threshold - room) if 0.0 < room < math.inf else y

    # -- the rules ---------------------------------------------------------------------------------

    def judge(self, x: Array, beliefs: Beliefs, pending: int = 0) -> Judgement:
        """Whether x (d,) may run while `pending` novel policies are under way."""
        bound = self._bound(x, beliefs)
        if np.array_equal(x, self.x0):
            return replace(bound, rule=START, reason="theta_0: approved because the operator configured it")
        if not self.active:
            return replace(
                bound, rule=NO_THRESHOLD,
                reason="approved: no threshold (j_min) is configured; the bound is for information",
            )  # fmt: skip
        if self.is_proven(x):
            return replace(bound, rule=PROVEN, reason="it ran before and did not fall below the threshold")
        if self.impossible:
            return replace(bound, permitted=False, rule=THETA_0_FALLS, reason=self.impossible)
        account, allowed = self.account, self.threshold
        if not account.permits(pending):
            return replace(bound, permitted=False, rule=ACCOUNT, reason=self.empty_reason(pending))
        if self.terms.risk == 0.0:  # nothing may happen: only what the user's own L rules out
            if self.terms.lipschitz is None:
                reason = f"{EMPTY}: risk 0 permits only what your own Lipschitz constant vouches for, and none is set"
                return replace(bound, permitted=False, rule=ACCOUNT, reason=reason)
            allowed += 2.0 * beliefs.noise
        if not bound.gate >= allowed:  # so that a NaN is refused, too
            reason = (
                f"worst case {bound.gate:.4g} is below the threshold {allowed:.4g} ({bound.distance:.3g} from the "
                f"nearest policy that vouches for it, L = {bound.lipschitz:.3g})"
            )
            return replace(bound, permitted=False, reason=reason)
        return replace(
            bound,
            reason=f"worst case {bound.gate:.4g} is not below the threshold {allowed:.4g}, and the account holds "
            f"{account.balance - pending:.3g}",
        )

    def empty_reason(self, pending: int) -> str:
        """What a refusal by the account says."""
        account = self.account
        under_way = f", {pending} more are counted until they end" if pending else ""
        income = f"it fills by {account.income:.3g} per episode" if account.income > 0.0 else "it does not fill again"
        return (
            f"{EMPTY}: {account.violations} of {account.n} rollouts fell{under_way}; it holds "
            f"{account.balance - pending:.3g} and a novel policy needs {account.rate:.2g}; {income}"
        )

    def _bound(self, x: Array, beliefs: Beliefs) -> Judgement:
        """A permit by the bound's rule, with both worst cases."""
        self._books()
        if not len(beliefs.X) or math.isnan(self.J0):
            return Judgement(True, BOUND, "")
        first = self._drop / max(float(np.linalg.norm(x - self.x0)), 1e-12)  # the first step sets L
        L = self._gate.or_first(self._own or GATE_START * first)
        shown = self._shown.or_first(SHOWN_START * first)
        gate, nearest, distance = cones(x[None], beliefs.X, beliefs.mean, L)
        worst = float(cones(x[None], beliefs.X, beliefs.mean, shown)[0][0]) - 2.0 * beliefs.noise
        return Judgement(
            True, BOUND, "", worst, float(gate[0]), int(nearest[0]), float(distance[0]), L, shown
        )  # fmt: skip

    def feasible(self, points: Array, beliefs: Beliefs) -> NDArray[np.bool_]:
        """Which of points (m, d) the bound permits: what the optimizer seeks within."""
        if not self.active or math.isnan(self.lipschitz) or math.isnan(self.J0):
            return np.ones(len(points), dtype=bool)
        permitted: NDArray[np.bool_] = cones(points, beliefs.X, beliefs.mean, self.lipschitz)[0] >= self.threshold
        return permitted

    def steer(self, x: Array, beliefs: Beliefs, pending: int = 0, novelty: bool = True) -> tuple[Array, str]:
        """(x, "") where x is permitted; else the first permitted one on the way to theta_p, else theta_p, with why."""
        judgement = self.judge(x, beliefs, pending)
        if judgement.permitted and (novelty or judgement.rule in (START, PROVEN)):
            return x, ""
        proven = self.proven(beliefs)
        if judgement.permitted or judgement.rule != BOUND:
            return proven.copy(), f"a proven policy again: {judgement.reason if not judgement.permitted else EMPTY}"
        for share in STEPS:
            closer = proven + share * (x - proven)
            if self.judge(closer, beliefs, pending).permitted:
                return closer, f"steered to {share:g} of the way from a proven policy: {judgement.reason}"
        return proven.copy(), f"a proven policy again: {judgement.reason}"
