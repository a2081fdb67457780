"""The values that travel between an optimizer and whoever runs its policies."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST = 1e100  # size of a return that is still believed
NAN = float("nan")
OLD, NEW = "old", "new"  # kinds of an acceptance's proposals, of which 2 k and 2 k + 1 are a pair


class TrialStatus(str, Enum):
    """How a proposal ended. Every proposal has exactly one of these states at any time."""

    PENDING = "pending"  # handed out, nothing heard yet
    COMPLETED = "completed"  # an episode ran and its return is in the data set
    VETOED = "vetoed"  # the safety monitor or the operator refused it; it never ran
    FAILED = "failed"  # it ran or was about to, and gave no usable return
    EXPIRED = "expired"  # nobody reported back in time


@dataclass(frozen=True)
class Proposal:
    """One policy to try. theta is in the policy's own units, shape (d,)."""

    id: int  # 0, 1, 2, ... within an experiment
    theta: NDArray[np.float64]
    kind: str  # "start" (theta_0), "initial" (sphere), "guided", "acquisition", "sample", "fallback", "repeat"
    mean: float = NAN  # predicted return (latent), in the return's units
    sigma: float = NAN  # its standard deviation
    worst_case: float = NAN  # lower bound on the return, with the upper confidence bound on L
    worst_case_paper: float = NAN  # the paper's estimate of the same
    gamma: float = NAN  # effective confidence parameter
    reason: str = ""  # why this kind, when something unusual happened


@dataclass(frozen=True)
class Best:
    """The policy to recommend: best posterior mean among the evaluated ones, not the luckiest return."""

    id: int
    theta: NDArray[np.float64]
    mean: float  # what the surrogate expects of it
    sigma: float
    observed: float  # the return that was seen
    p_better: float = NAN  # probability that it beats theta_0, by the surrogate; NaN where there is none

    @property
    def interval(self) -> tuple[float, float]:
        """Its expected return with 95 % probability, by the surrogate."""
        return self.mean - 1.96 * self.sigma, self.mean + 1.96 * self.sigma


def theta_hash(theta: ArrayLike) -> str:
    """SHA-256 of the little-endian float64 bytes: the fingerprint a verdict must match."""
    return hashlib.sha256(np.ascontiguousarray(theta, dtype="<f8").tobytes()).hexdigest()
