"""Whether a run has stopped improving, and how much further it may then look.

The returns, in the order in which they came, are cut into blocks of BLOCK. A block *falls* against the one before if
its mean is lower by more than a standard error, *rises* if its median is higher by more than one, and is *flat*
otherwise. A flat block is a stall; a fall ends it, and the next one needs twice as many flat blocks, so that a run that
stands on its optimum is left in peace. A rare disaster moves a mean, which ends a stall, and not a median, whose rise
it would hide.

What a stall changes: where the model takes the returns for noise as much as for signal (more than NOISY), the paper's
region closes around every policy and the search crawls along a ledge. The region then keeps the radius that it would
have without noise (`region.noise_proof`), no more: each step is one that gamma allows where returns are exact. Anywhere
else a stall is shown and changes nothing. Vetoes and failures end it too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from crbo_ros.core.kernels import Array
from crbo_ros.core.region import noise_proof

BLOCK = 8  # episodes
NOISY = 0.5  # sigma_eps^2 / sigma_f^2


@dataclass(frozen=True)
class Stall:
    """What the returns so far say."""

    stalled: bool = False
    flat: int = 0  # episodes since the last block that rose or fell

    def wider(self, gamma: float, noise_ratio: float) -> float:
        """gamma, or what a stall makes of it; noise_ratio = sigma_eps^2 / sigma_f^2."""
        return noise_proof(gamma, min(noise_ratio, 1.0)) if self.stalled and noise_ratio > NOISY else gamma


def stall(y: Array) -> Stall:
    """The state after returns y (n,), in the order in which they came, in whatever units."""
    stalled, needed, flat, root = False, 1, 0, math.sqrt(BLOCK)
    for start in range(BLOCK, len(y) - BLOCK + 1, BLOCK):
        before, now = y[start - BLOCK : start], y[start : start + BLOCK]
        error = math.hypot(float(np.std(before)), float(np.std(now))) / root
        if float(np.mean(now)) < float(np.mean(before)) - error:
            needed *= 2 if stalled else 1
            stalled, flat = False, 0
        elif float(np.median(now)) > float(np.median(before)) + math.hypot(_spread(before), _spread(now)) / root:
            flat = 0
        else:
            flat += 1
            stalled = stalled or flat >= needed
    return Stall(stalled, BLOCK * flat)


def _spread(y: Array) -> float:
    """The standard deviation of y (n,) by the median absolute deviation, which a disaster does not move."""
    return 1.4826 * float(np.median(np.abs(y - np.median(y))))
