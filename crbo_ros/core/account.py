"""The account of violations: a tolerated risk that is kept because it is counted, not predicted. Arithmetic alone.

Of N rollouts a share `risk` may fall below J_min. With n executed rollouts, V violations among them (by whatever
policy), n_v and V_v those of novel policies, and P novel rollouts that are under way:

    a = max(risk N / 2, 1)                     the loan: the first violations come before the risk has been earned
    f(n) = risk n + a (1 - n/N)+               what may have been spent after n rollouts; without a budget risk n + a
    A = f(n) - V                               the balance
    r = (V_v + 20 risk) / (n_v + 20)           the rate at which novel policies fall, by what was seen of them

A novel policy is permitted while A - P >= r. Then V_v <= ceil(f(n)) at every n, and <= ceil(risk N) at the end, for
every sequence of returns. Proof: r > 0, so that one is permitted only while V + P < f(n); f goes in a straight line
from a to risk N, hence V + P < max(a, risk N), and where a is the larger one a <= 1 and risk N > 0; should the new one
and all that are under way fall, V <= ceil(f(n)). With risk 0 there is no loan: the first violation ends novelty.
"""

from __future__ import annotations

import math

PRIOR = 20  # rollouts that the prior rate of novel policies is worth
LOWEST = 0.3  # share of gamma that is left when the account is empty
CEILING = 0.6  # gamma at most, once something fell: the largest that any of the paper's tasks uses
UNLIMITED = 100  # without a budget the loan is that of so many rollouts


class RiskAccount:
    """Counts. `budget` is N; 0: none."""

    def __init__(self, risk: float, budget: int = 0) -> None:
        self.risk, self.budget = risk, budget
        self.loan = max(risk * (budget or UNLIMITED) / 2.0, 1.0) if risk > 0.0 else 0.0  # a
        self.n = self.violations = 0  # n, V: of all rollouts
        self.novel = self.novel_violations = 0  # n_v, V_v: of novel policies

    def book(self, violated: bool, novel: bool) -> None:
        """One executed rollout."""
        self.n += 1
        self.violations += violated
        self.novel += novel
        self.novel_violations += violated and novel

    @property
    def allowance(self) -> float:
        """f(n)."""
        left = max(0.0, 1.0 - self.n / self.budget) if self.budget else 1.0
        return self.risk * self.n + self.loan * left

    @property
    def balance(self) -> float:
        """A."""
        return self.allowance - self.violations

    @property
    def rate(self) -> float:
        """r."""
        return (self.novel_violations + PRIOR * self.risk) / (self.novel + PRIOR)

    @property
    def limit(self) -> int:
        """How many novel policies may have fallen by now: ceil(f(n))."""
        return math.ceil(self.allowance)

    @property
    def income(self) -> float:
        """By how much the next rollout fills the account, if it does not fall."""
        return self.risk - (self.loan / self.budget if self.n < self.budget else 0.0)

    def gamma(self, gamma: float) -> float:
        """The gamma in force: clip(A / a, 0.3, 1) of it, and after the first violation of at most 0.6."""
        share = min(1.0, max(LOWEST, self.balance / self.loan)) if self.loan else LOWEST
        return share * (min(gamma, CEILING) if self.violations else gamma)

    def permits(self, pending: int = 0) -> bool:
        """Whether one more novel policy may run while `pending` others are under way."""
        return self.balance - pending >= self.rate
