"""Is the new policy better than the old one? A test that may be looked at after every rollout: testing by betting.

Before each rollout a fair coin decides which of the two runs. Afterwards the return x is seen, and a gambler bets on
what the coin had said: his capital is multiplied by 1 + g where it was "new" and by 1 - g where it was "old", with
|g| < 1 made from x and from the past alone. If both policies have the same distribution of returns, then whatever it
is, however it drifts, and whenever one looks, he wins nothing on average, and by Ville's inequality his capital ever
reaches 1 / level with at most that probability (Shafer 2021; Podkopaev and Ramdas 2023, for two samples).

"Better" is what usually comes, not the mean: a policy that is a little better nine times out of ten and falls the tenth
time wins although its mean is the same (`crbo bench accept` shows how often). Falls are the contract's affair, and the
safety signals'.

g is tanh of half the log-likelihood ratio of x under two Student t predictions (one for each policy, one common
scale) and never has the wrong sign, so that a shift of the returns alone can make him win. "Not better by more than
X" and "worse" are the same bet the other way round, with X taken off the returns of the new policy.

Where both policies can be started from the same state, the coin decides which of a pair runs first, and the bet is on
the sign of their difference, given its size: what the start state adds to both is gone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LARGEST_BET = 0.98  # a bet of everything could be lost for good
SHRINK = 0.2  # pseudo-observations by which both predictions are drawn to their common mean
DEGREES = 2.0  # degrees of freedom of the scale before anything is known
SCALE = 0.35  # and its square, as a share of the variance of all returns together

BETTER, NOT_BETTER, WORSE, UNDECIDED = "better", "not better", "worse", ""


@dataclass(frozen=True)
class Earlier:
    """What is known of the two policies before the first rollout; it decides how well one bets, not what one proves."""

    old: float  # expected return
    new: float
    sd: float  # of a single return
    weight: float = 1.0  # how many rollouts of each this is worth


class Bet:
    """One gambler: against "the new policy gains no more than `shift`" (`sign` +1), or "at least `shift`" (-1)."""

    def __init__(self, shift: float = 0.0, sign: int = 1, level: float = 0.05, earlier: Earlier | None = None) -> None:
        self.shift, self.sign, self.goal = shift, sign, math.log(1.0 / level)
        self.log_capital, self.highest = 0.0, 0.0
        self._pairs = (0.0, 0.0, 0.0)  # how many, and the sums of their differences and of the squares
        w = earlier.weight if earlier else 0.0
        means = (earlier.old, earlier.new - shift) if earlier else (0.0, 0.0)
        self._n, self._sum = [w, w], [w * means[0], w * means[1]]
        self._square = [w * m * m for m in means]
        self._degrees, self._scatter = (4.0, 4.0 * earlier.sd**2) if earlier else (0.0, 0.0)

    @property
    def won(self) -> bool:
        """Whether the capital has ever reached 1 / level."""
        return self.highest >= self.goal - 1e-12

    def add(self, new: bool, value: float) -> None:
        """The coin's side and the return."""
        x = value - self.shift if new else value
        g = self._stake(x)
        if not self.won:  # more than the goal is worth nothing
            need = math.expm1(self.goal - self.log_capital)
            g = max(-need, min(need, g))
        self.log_capital += math.log1p(g if new else -g)
        self.highest = max(self.highest, self.log_capital)
        self._n[new] += 1.0
        self._sum[new] += x
        self._square[new] += x * x

    def add_pair(self, old: float, new: float) -> None:
        """The returns of both policies from the same start state."""
        x = new - old - self.shift
        n, total, square = self._pairs
        g = 0.0
        if n > 0.0 and self.sign * total > 0.0 and x != 0.0:
            centre = total / (n + SHRINK)
            variance = (DEGREES * SCALE * square / n + max(0.0, square - total * total / n)) / (DEGREES + n - 1.0)
            g = min(LARGEST_BET, math.tanh(abs(centre * x) / max(variance, 1e-300)))
        if not self.won:
            g = min(g, math.expm1(self.goal - self.log_capital))
        self.log_capital += math.log1p(g if self.sign * x > 0.0 else -g)
        self.highest = max(self.highest, self.log_capital)
        self._pairs = (n + 1.0, total + x, square + x * x)

    def _stake(self, x: float) -> float:
        total = sum(self._n)
        if total < 2.0:
            return 0.0
        mean = sum(self._sum) / total
        spread = max(0.0, sum(self._square) / total - mean * mean)
        centres = [(s + SHRINK * mean) / (n + SHRINK) for s, n in zip(self._sum, self._n, strict=True)]
        if self.sign * (centres[1] - centres[0]) <= 0.0:
            return 0.0
        inner = [q - s * s / n for q, s, n in zip(self._square, self._sum, self._n, strict=True) if n > 0.0]
        degrees = (self._degrees or DEGREES) + sum(max(0.0, n - 1.0) for n in self._n)
        scatter = (self._scatter if self._degrees else DEGREES * SCALE * spread) + max(0.0, sum(inner))
        variance = scatter / degrees
        if variance <= 0.0:
            variance = 1e-12 * max(1.0, mean * mean)
        ratio = 0.0
        for side, centre, n in ((-1.0, centres[0], self._n[0]), (1.0, centres[1], self._n[1])):
            scale = variance * (1.0 + 1.0 / (n + SHRINK))
            z = (x - centre) ** 2 / scale
            ratio += side * (-0.5 * (degrees + 1.0) * math.log1p(z / degrees) - 0.5 * math.log(scale))
        g = math.tanh(0.5 * ratio)
        if (x - 0.5 * (centres[0] + centres[1])) * self.sign * g <= 0.0:
            return 0.0
        return max(-LARGEST_BET, min(LARGEST_BET, g))


class SequentialTest:
    """Three gamblers over the same rollouts. Each is wrong with probability `level` at most."""

    def __init__(self, level: float = 0.05, margin: float = 0.0, earlier: Earlier | None = None) -> None:
        self.level, self.margin, self.earlier = level, margin, earlier
        self.rollouts: list[tuple[bool, float]] = []  # (new, return)
        self.pairs: list[tuple[float, float]] = []  # (old, new) of those that were paired
        self.better = Bet(0.0, 1, level, earlier)
        self.not_better = Bet(margin, -1, level, earlier)
        self.worse = Bet(0.0, -1, level, earlier)

    def add(self, new: bool, value: float) -> None:
        self.rollouts.append((bool(new), float(value)))
        for bet in (self.better, self.not_better, self.worse):
            bet.add(bool(new), float(value))

    def add_pair(self, old: float, new: float) -> None:
        """The returns of both from the same start state."""
        self.rollouts += [(False, float(old)), (True, float(new))]
        self.pairs.append((float(old), float(new)))
        for bet in (self.better, self.not_better, self.worse):
            bet.add_pair(float(old), float(new))

    @property
    def verdict(self) -> str:
        """better, not better (by more than the margin), worse, or nothing yet: not before both have run."""
        if not (self.values(True) and self.values(False)):
            return UNDECIDED
        if self.better.won:
            return BETTER
        if self.worse.won:
            return WORSE
        return NOT_BETTER if self.not_better.won else UNDECIDED

    def values(self, new: bool) -> list[float]:
        return [value for which, value in self.rollouts if which == new]

    def interval(self, steps: int = 40) -> tuple[float, float]:
        """Bounds on what the new policy gains, each certain at the level however often one looks."""
        old, new = self.values(False), self.values(True)
        if not old or not new:
            return -math.inf, math.inf
        gain = math.fsum(new) / len(new) - math.fsum(old) / len(old)
        reach = max(max(old + new) - min(old + new), abs(gain), 1e-12)
        shifts = [gain + reach * (k / steps) for k in range(-steps, steps + 1)]
        low = [m for m in shifts if m <= gain and self._rejects(m, 1)]
        high = [m for m in shifts if m >= gain and self._rejects(m, -1)]
        return max(low, default=-math.inf), min(high, default=math.inf)

    def _rejects(self, shift: float, sign: int) -> bool:
        bet = Bet(shift, sign, self.level, self.earlier)
        for pair in self.pairs:
            bet.add_pair(*pair)
        if self.pairs:
            return bet.won
        for new, value in self.rollouts:
            bet.add(new, value)
            if bet.won:
                return True
        return False
