"""The hard suite: what breaks optimizers, one thing at a time, each with a known optimum ("hard-outliers").

On [-1, 1]^d, J(theta_0) = -1 and J* = 0 (hard-units: other units), so that a return is a share of the way. The place of
the optimum and the rotation are drawn from the seed; noise of 0.02 unless said.

    bowl-2 ... bowl-200   a quadratic bowl in 2, 10, 50 and 200 dimensions
    noisy                 10-D bowl, noise 0.3: a third of the way
    uneven                10-D bowl, noise 0.02 at the optimum and 0.3 where theta_0 is
    heavy                 10-D bowl, noise of a Student t with 2 degrees of freedom, scale 0.05
    outliers              5-D bowl, 5 % of the returns 5 lower
    plateau               5-D bowl in 12 steps
    conditioned           10-D bowl, curvatures from 1 to 1e4, rotated
    valley                6-D Rosenbrock's valley, rotated
    misleading            4-D, theta_0's gradient leads to a peak of 0.6; the one of 1 lies to the other side
    units                 5-D bowl, returns 1e6 + 1e3 J
    failures              6-D bowl; beyond nine tenths of the way to its optimum episodes fail without a return
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.bench.problems import BenchProblem, Rollout
from crbo_ros.core.space import Space

Array = NDArray[np.float64]
Noise = Callable[[np.random.Generator, float], float]  # (rng, J) -> what is added
DISTANCE = 0.6  # from theta_0 to the optimum


def gaussian(sigma: float) -> Noise:
    return lambda rng, value: sigma * float(rng.standard_normal())


LITTLE = gaussian(0.02)


@dataclass(frozen=True)
class Hard:
    """J (d,) -> float with its noise, J* = `top`; `fails` says where an episode ends without a return."""

    dim: int
    theta_0: Array
    value: Callable[[Array], float]
    noise: Noise = LITTLE
    top: float = 0.0
    fails: Callable[[Array], bool] = lambda theta: False


def rotation(dim: int, rng: np.random.Generator) -> Array:
    Q, R = np.linalg.qr(rng.standard_normal((dim, dim)))
    return np.asarray(Q * np.sign(np.diag(R)), dtype=float)


def sphere(dim: int, rng: np.random.Generator, length: float) -> Array:
    direction = rng.standard_normal(dim)
    return np.asarray(length * direction / np.linalg.norm(direction), dtype=float)


def bowl(dim: int, rng: np.random.Generator, curvatures: Array | None = None, **options: Any) -> Hard:
    """-(theta - optimum)^T A (theta - optimum), -1 at theta_0 = 0."""
    optimum, Q = sphere(dim, rng, DISTANCE), rotation(dim, rng)
    A = Q @ np.diag(np.ones(dim) if curvatures is None else curvatures) @ Q.T
    scale = 1.0 / float(optimum @ A @ optimum)
    return Hard(dim, np.zeros(dim), lambda t: -scale * float((t - optimum) @ A @ (t - optimum)), **options)


def plateau(rng: np.random.Generator) -> Hard:
    smooth = bowl(5, rng)
    return Hard(5, smooth.theta_0, lambda t: float(np.round(12.0 * smooth.value(t)) / 12.0))


def valley(rng: np.random.Generator) -> Hard:
    """Rosenbrock's function of z = 1.5 (Q theta + 0.2), scaled to -1 at theta_0, which is z = 0."""
    dim = 6
    Q = rotation(dim, rng)

    def rosenbrock(z: Array) -> float:
        return float(np.sum(100.0 * (z[1:] - z[:-1] ** 2) ** 2 + (1.0 - z[:-1]) ** 2))

    scale = 1.0 / rosenbrock(np.zeros(dim))
    start = Q.T @ np.full(dim, -0.2)
    return Hard(dim, start, lambda t: -scale * rosenbrock(1.5 * (Q @ t + 0.2)))


def misleading(rng: np.random.Generator) -> Hard:
    dim = 4
    direction = sphere(dim, rng, 1.0)
    near, far = 0.35 * direction, -0.75 * direction

    def peaks(t: Array) -> float:
        a, b = (float(np.sum((t - c) ** 2)) for c in (near, far))
        return max(0.6 * math.exp(-a / 0.18), math.exp(-b / 0.18))

    low = peaks(np.zeros(dim))
    return Hard(dim, np.zeros(dim), lambda t: (peaks(t) - 1.0) / (1.0 - low))


def failures(rng: np.random.Generator) -> Hard:
    """A round bowl; beyond nine tenths of the way to its optimum every episode fails."""
    optimum = sphere(6, rng, DISTANCE)
    square = float(optimum @ optimum)

    def value(t: Array) -> float:
        return -float(np.sum((t - optimum) ** 2)) / square

    return Hard(6, np.zeros(6), value, top=value(0.9 * optimum), fails=lambda t: float(t @ optimum) > 0.9 * square)


def student(rng: np.random.Generator, value: float) -> float:
    return 0.05 * float(rng.standard_t(2.0))


def with_outliers(rng: np.random.Generator, value: float) -> float:
    return 0.02 * float(rng.standard_normal()) - (5.0 if rng.random() < 0.05 else 0.0)


def uneven(rng: np.random.Generator, value: float) -> float:
    return (0.02 + 0.28 * min(1.0, abs(value))) * float(rng.standard_normal())


def units(rng: np.random.Generator) -> Hard:
    smooth = bowl(5, rng)
    return Hard(5, smooth.theta_0, lambda t: 1e6 + 1e3 * smooth.value(t), gaussian(20.0), top=1e6)


MAKERS: dict[str, Callable[[np.random.Generator], Hard]] = {
    "hard-bowl-2": lambda rng: bowl(2, rng),
    "hard-bowl-10": lambda rng: bowl(10, rng),
    "hard-bowl-50": lambda rng: bowl(50, rng),
    "hard-bowl-200": lambda rng: bowl(200, rng),
    "hard-noisy": lambda rng: bowl(10, rng, noise=gaussian(0.3)),
    "hard-uneven": lambda rng: bowl(10, rng, noise=uneven),
    "hard-heavy": lambda rng: bowl(10, rng, noise=student),
    "hard-outliers": lambda rng: bowl(5, rng, noise=with_outliers),
    "hard-plateau": plateau,
    "hard-conditioned": lambda rng: bowl(10, rng, np.logspace(0.0, 4.0, 10)),
    "hard-valley": valley,
    "hard-misleading": misleading,
    "hard-units": units,
    "hard-failures": failures,
}


def make_hard(name: str, seed: int) -> BenchProblem:
    """The problem of that name; place and rotation are number `seed`."""
    hard = MAKERS[name](np.random.default_rng([sum(name.encode()), seed]))

    def rollout(theta: Array, rng: np.random.Generator) -> Rollout:
        if hard.fails(theta):
            return Rollout(float("nan"), "failed", "beyond the edge")
        value = hard.value(theta)
        return Rollout(value + hard.noise(rng, value), "completed")

    def regret(theta: Array) -> float:
        return float("inf") if hard.fails(theta) else max(0.0, hard.top - hard.value(theta))

    return BenchProblem(name, Space(-np.ones(hard.dim), np.ones(hard.dim)), hard.theta_0, rollout, regret)
