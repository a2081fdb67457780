"""What one more episode is expected to gain.

The model says E[max(J - J_best, 0)] of the policy that it proposes. That is a promise, and on the tasks 2 to 100 times
more than what comes: at the region's edge sigma is gamma sigma_f whether there is still a slope or not. So it is held
against the record: times the share of the last LATELY promises that the best policy's expected return has risen by.
"""

from __future__ import annotations

import math

from scipy.special import ndtr

LATELY = 20  # proposals


def promise(mean: float, sigma: float, best: float) -> float:
    """E[max(J - best, 0)] of a policy whose return J the model expects at mean +- sigma."""
    if not sigma > 0.0:
        return max(mean - best, 0.0)
    z = (mean - best) / sigma
    return sigma * (math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) + z * float(ndtr(z)))


class Outlook:
    """The last promises, each with what was then expected of the best policy."""

    def __init__(self, made: list[tuple[float, float]] | None = None) -> None:
        self.made = list(made or [])

    def expect(self, mean: float, sigma: float, best: float) -> float:
        """What the policy that is proposed now is expected to gain on the best one; NaN where nobody says."""
        if not math.isfinite(mean + sigma + best):
            return math.nan
        said = promise(mean, sigma, best)
        promised = sum(earlier for _, earlier in self.made)
        kept = max(0.0, min(1.0, (best - self.made[0][0]) / promised)) if promised > 0.0 else 1.0
        self.made = [*self.made, (best, said)][-LATELY:]
        return kept * said
