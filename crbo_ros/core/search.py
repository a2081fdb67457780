"""One proposal: sample the region, take the best, polish it, check it again.

argmax of the acquisition over C_n (paper, Eq. 3). Hit-and-run chains start at the data points inside the region; the
best sample and the best data point are polished by SQP with the region as constraint; what leaves is inside region
and box, or it is the best sample instead. Any failure inside falls back to something valid and says so in `reason`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core import acquisition as acq
from crbo_ros.core.feasibility import Allowed, everything
from crbo_ros.core.hit_and_run import hit_and_run
from crbo_ros.core.kernels import Array
from crbo_ros.core.region import ConfidenceRegion
from crbo_ros.core.sqp import Evaluation, maximise

TOLERANCE = 1e-6
SIDEWAYS = math.radians(25.0)  # how far a step is turned into an unexplored direction


@dataclass(frozen=True)
class Search:
    """How hard to look."""

    acquisition: str | Callable[[Array, Array], Array] = "ucb"
    beta: float = 2.0
    samples: int = 1024
    chains: int = 256
    starts: int = 2
    max_evaluations: int = 60
    tolerance: float = 1e-6


@dataclass(frozen=True)
class Candidate:
    """A point of the region (d,), how it was found ("acquisition", "sample", "fallback"), and the region's samples."""

    x: Array
    kind: str
    reason: str
    samples: Array


def chain_starts(region: ConfidenceRegion, count: int, rng: np.random.Generator) -> Array:
    """Data points inside the region, each as often as the others (the rest drawn at random), shape (count, d)."""
    inside = np.flatnonzero(region.data_inside)
    rows = np.resize(rng.permutation(inside), count)
    return region.surrogate.X[rows]


def _polish_problem(region: ConfidenceRegion, function: acq.Acquisition) -> Callable[[Array], Evaluation]:
    limit = region.threshold**2 * region.sf2
    unit = 1.0 / region.sf2  # slack in units of the signal variance

    def problem(x: Array) -> Evaluation:
        mean, variance, d_mean, d_variance = region.surrogate.posterior_gradient(x)
        sigma = math.sqrt(max(variance, 1e-300))
        value, by_mean, by_sigma = function(np.array([mean]), np.array([sigma]))
        gradient = by_mean[0] * d_mean + (by_sigma[0] / (2.0 * max(sigma, 1e-9))) * d_variance
        return float(value[0]), gradient, (limit - variance) * unit, -unit * d_variance

    return problem


Permitted = Callable[[Array], NDArray[np.bool_]]  # points (m, d) -> which of them may run, (m,) bool


def propose(
    region: ConfidenceRegion,
    search: Search,
    rng: np.random.Generator,
    permitted: Permitted | None = None,
    allowed: Allowed = everything,
) -> Candidate:
    """The acquisition's maximiser over what is allowed of the region, as far as sampling and one polish per start find
    it.

    Where some points are not permitted, those that are come first; where none is, whoever permits must be asked again.
    """
    surrogate = region.surrogate
    starts = chain_starts(region, search.chains, rng)
    steps = max(1, math.ceil(search.samples / search.chains))
    if region.threshold >= 1.0:  # the whole box (standard BO): no walk needed
        samples = rng.random((steps * search.chains, region.dim))
    else:
        # a line through a region of many dimensions is mostly outside: draws over its whole length would be wasted
        samples = hit_and_run(region, starts, steps, rng, tries=4 if region.dim <= 10 else 1)
    samples = samples[allowed(samples)]
    candidates = np.vstack([samples, surrogate.X[region.data_inside]])
    if not len(samples):
        reason = "too close to what has failed all around; the best evaluated policy again"
        return Candidate(region.best_inside(), "fallback", reason, candidates)
    mean, variance = surrogate.posterior(candidates)
    sigma = np.sqrt(variance)
    best = float(np.max(region.data_mean))
    function = acq.make(
        search.acquisition, beta=search.beta, best=best, sf=math.sqrt(region.sf2), mean=mean, sigma=sigma, rng=rng
    )
    if search.acquisition == "thompson":
        return Candidate(_thompson(region, candidates, mean, rng), "sample", "", samples)
    values = function(mean, sigma)[0]
    values = np.where(np.isfinite(values), values, -np.inf)
    if permitted is not None and (may := permitted(candidates)).any():
        values = np.where(may, values, -np.inf)
    m = len(samples)
    # strictly inside to start with: a sample may sit a rounding error outside
    order = np.argsort(-values[:m], kind="stable")
    x, kind, reason = candidates[int(order[0])], "sample", ""
    ranked = [int(order[0]), m + int(np.argmax(values[m:])), *(int(i) for i in order[1 : search.starts - 1])]
    problem = _polish_problem(region, function)
    radius = 0.25 * float(np.exp(np.mean(np.log(surrogate.lengthscales))))
    best_value = float(values[int(order[0])])
    margin = 1e-9 * region.threshold**2
    for i in ranked[: search.starts]:
        try:
            result = maximise(
                problem,
                candidates[i],
                radius=radius,
                margin=margin,
                max_evaluations=search.max_evaluations,
                tolerance=search.tolerance,
            )
        except (FloatingPointError, np.linalg.LinAlgError, ValueError) as error:
            reason = f"polish failed ({error}); best sample instead"
            continue
        inside = region.contains(result.x[None], TOLERANCE)[0] and allowed(result.x[None])[0]
        if result.value > best_value and inside and (permitted is None or permitted(result.x[None])[0]):
            x, kind, best_value = result.x, "acquisition", result.value
    if not region.contains(x[None], TOLERANCE)[0]:
        x, kind = region.best_inside(), "fallback"
        reason = "no sample inside the region; the best evaluated policy again"
    return Candidate(x, kind, reason, samples)


def sideways(
    region: ConfidenceRegion, candidate: Candidate, rng: np.random.Generator, allowed: Allowed = everything
) -> Candidate:
    """The same step from the nearest evaluated policy, turned by SIDEWAYS into a direction that no data point has.

    On the region's edge sigma_n is constant, so that UCB follows the posterior mean alone, and the mean's gradient lies
    in the span of the data: of the other d - n directions nothing is ever learnt. A step that is turned a little still
    has 90 % of its length along the gradient, and its return tells the slope along one more direction.
    """
    X = region.surrogate.X
    i = int(np.argmin(np.sum((X - candidate.x) ** 2, axis=1)))
    step = candidate.x - X[i]
    length = float(np.linalg.norm(step))
    if len(X) >= region.dim or not length > 1e-9:
        return candidate
    known = np.linalg.qr(np.vstack([np.delete(X - X[i], i, axis=0), step]).T)[0]
    new = rng.standard_normal(size=(region.dim,))
    new -= known @ (known.T @ new)
    turned = math.cos(SIDEWAYS) * step + math.sin(SIDEWAYS) * length * new / float(np.linalg.norm(new))
    for factor in 0.93 ** np.arange(12):  # the turned step's end lies a little outside: shorten it
        x = np.clip(X[i] + factor * turned, 0.0, 1.0)
        if region.contains(x[None])[0] and allowed(x[None])[0]:
            return replace(candidate, x=x, reason="a part of the step goes in a new direction")
    return candidate


def _thompson(region: ConfidenceRegion, candidates: Array, mean: Array, rng: np.random.Generator) -> Array:
    """The maximiser of one joint posterior draw over at most 512 candidates."""
    rows = np.sort(rng.permutation(len(candidates))[:512])
    covariance = region.surrogate.covariance(candidates[rows])
    values, vectors = np.linalg.eigh(covariance)
    draw = mean[rows] + vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(len(rows)))
    winner: Array = candidates[rows[int(np.argmax(draw))]]
    return winner
