"""Discrete dynamic movement primitives: theta <-> a joint trajectory that starts at rest and ends at a goal.

Notation (Ijspeert et al., "Dynamical Movement Primitives", Neural Computation 25, 2013), for each joint:

    tau^2 y'' = alpha_y (beta_y (g - y) - tau y') + f(x)          transformation system
    tau g'    = alpha_g (G - g),  g(0) = y(0)                      goal filter (none: g = G)
    tau x'    = -alpha_x x,  x(0) = 1,  x(tau) = phase_end         canonical system (the phase)
    f(x)      = a x sum_i psi_i(x) w_i / sum_i psi_i(x)            forcing term
    psi_i(x)  = exp(-h_i (x - c_i)^2)                              bases, evenly spaced in time

y position, G goal attractor, w_i forcing weights, tau the movement's duration. The amplitude a is a constant and not
the textbook's (G - y(0)): with that factor a joint whose goal is its start could not move, whatever its weights.

Why not a library: movement-primitives (BSD-3), pydmps and pyrdmp integrate the equations step by step in 30 to 90 ms
for 7 joints and 240 steps, more than the whole simulated throw. The system is linear in (w, G, y(0)), so its responses
to unit inputs, computed once, turn a roll-out into one matrix product. The bases and the phase are those of
movement-primitives, against which the tests check this file.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import asdict, astuple, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros import checks
from crbo_ros.core.space import as_vector
from crbo_ros.errors import InvalidInput

Array = NDArray[np.float64]

FORMAT = "crbo_ros dmp 1"
OVERLAP = 0.8  # value of a basis at its neighbour's centre
MAX_STEP = 1.0 / 2000.0  # of the integration of the responses, in units of tau


@dataclass(frozen=True)
class Dynamics:
    """The constants of the equations above. The defaults are the textbook's (and movement-primitives')."""

    alpha_y: float = 25.0
    beta_y: float = 6.25  # alpha_y / 4: critically damped
    alpha_g: float = math.inf  # inf: no goal filter
    phase_end: float = 0.01  # alpha_x = -log(phase_end)
    amplitude: float = 1.0  # a

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (value > 0.0 and (math.isfinite(value) or name == "alpha_g")):
                raise InvalidInput(f"{name} = {value}: must be positive and finite")
        if self.phase_end >= 1.0:
            raise InvalidInput(f"phase_end = {self.phase_end}: must be below 1")


@dataclass(frozen=True)
class JointTrajectory:
    """time (T,) in s; position, velocity, acceleration (T, joints) in rad, rad/s, rad/s^2."""

    time: Array
    position: Array
    velocity: Array
    acceleration: Array


class DMP:
    """One primitive per joint. theta = [w of joint 1, w of joint 2, ..., G of all joints]: n_joints (n_bases + 1)."""

    def __init__(
        self,
        start: ArrayLike,
        *,
        n_bases: int = 15,
        duration: float = 1.0,
        rate: float = 240.0,
        dynamics: Dynamics = Dynamics(),  # noqa: B008  (frozen)
    ) -> None:
        self.start = as_vector(start, "start")
        self.n_joints = len(self.start)
        if n_bases < 2:
            raise InvalidInput(f"n_bases = {n_bases}: at least 2 are needed")
        if not (rate > 0.0 and math.isfinite(rate)):
            raise InvalidInput(f"rate = {rate}: must be positive")
        self.n_bases, self.rate = int(n_bases), float(rate)
        self.dynamics = dynamics
        self.weights = np.zeros((self.n_joints, self.n_bases))
        self.goal = self.start.copy()
        self.duration = duration

    # -- theta ------------------------------------------------------------------------------------

    @property
    def n_weights(self) -> int:
        return self.n_joints * (self.n_bases + 1)

    def get_weights(self) -> Array:
        """theta, shape (n_weights,): forcing weights joint by joint, then the goals in rad."""
        return np.concatenate([self.weights.ravel(), self.goal])

    def set_weights(self, theta: ArrayLike) -> None:
        self.weights, self.goal = self.split(theta)

    def split(self, theta: ArrayLike) -> tuple[Array, Array]:
        """theta -> (weights (n_joints, n_bases), goal (n_joints,))."""
        theta = as_vector(theta, "theta", self.n_weights)
        n = self.n_joints * self.n_bases
        return theta[:n].reshape(self.n_joints, self.n_bases), theta[n:].copy()

    # -- time -------------------------------------------------------------------------------------

    @property
    def duration(self) -> float:
        """tau in s. Setting it stretches the same path in time: velocities scale by 1 / tau."""
        return self._duration

    @duration.setter
    def duration(self, value: float) -> None:
        if not (math.isfinite(value) and value * self.rate >= 2.0):
            raise InvalidInput(f"duration = {value} s: must be finite and at least two control periods")
        self._duration = float(value)
        n = round(self._duration * self.rate)
        self.time = np.arange(n + 1) / self.rate
        self._phi = responses(n, 1.0 / (self.rate * self._duration), self.n_bases, self.dynamics)

    # -- roll-out and fit -------------------------------------------------------------------------

    def rollout(self, theta: ArrayLike | None = None) -> JointTrajectory:
        """The trajectory of theta (or of the weights that were set), sampled at `rate`, shapes (T, n_joints)."""
        weights, goal = (self.weights, self.goal) if theta is None else self.split(theta)
        inputs = np.concatenate([weights.T, goal[None], self.start[None]])  # (n_bases + 2, n_joints)
        # one product of two matrices: a stack of three would not reach BLAS
        flat = self._phi.reshape(-1, self.n_bases + 2) @ inputs
        position, velocity, acceleration = flat.reshape(3, -1, self.n_joints)
        return JointTrajectory(self.time, position, velocity / self.duration, acceleration / self.duration**2)

    def fit(
        self, time: ArrayLike, position: ArrayLike, *, weight: ArrayLike | None = None, ridge: float = 1e-6
    ) -> float:
        """Set start, goal and weights from time (M,) and position (M, n_joints). Returns the RMS error in rad.

        Ridge regression, weighted by `weight` (M,), of the *positions* on the primitive's responses. The textbook
        regresses the forcing term, which needs the demonstration's second derivative; that of a recorded arm is
        mostly noise.
        """
        time, position = self._check_demonstration(time, position)
        root = np.ones(len(time)) if weight is None else np.sqrt(as_vector(weight, "weight", len(time)))
        if not np.all(np.isfinite(root)) or not root.any():
            raise InvalidInput("weight: must be nonnegative, with at least one positive entry")
        s = (time - time[0]) / (time[-1] - time[0]) * self.duration
        grid = np.stack([np.interp(s, self.time, column) for column in self._phi[0].T], axis=1)  # (M, n_bases + 2)
        start, goal = position[0], position[-1]
        target = position - np.outer(grid[:, -2], goal) - np.outer(grid[:, -1], start)
        design = grid[:, :-2] * root[:, None]
        scale = np.maximum(np.linalg.norm(design, axis=0), 1e-300)  # late bases act through a small phase: fair to each
        normal = (design / scale).T @ (design / scale) + ridge * np.eye(self.n_bases)
        solution = np.linalg.solve(normal, (design / scale).T @ (target * root[:, None])) / scale[:, None]
        self.start, self.goal, self.weights = start.copy(), goal.copy(), np.ascontiguousarray(solution.T)
        return float(np.sqrt(np.mean((grid[:, :-2] @ solution - target) ** 2)))

    # -- files ------------------------------------------------------------------------------------

    def fixed(self) -> Array:
        """What makes the movement besides theta: start pose, duration, dynamics."""
        return np.array([*self.start, self.duration, *astuple(self.dynamics)])

    def save(self, path: str | Path, **extra: float) -> None:
        """Write the primitive and further numbers (the release time, ...) as an .npz without pickles."""
        numbers: dict[str, Any] = {**asdict(self.dynamics), **extra}
        with open(path, "wb") as file:  # given a name, np.savez would append .npz on its own
            np.savez(
                file, format=np.array(FORMAT), start=self.start, weights=self.weights, goal=self.goal,
                duration=self.duration, **numbers,
            )  # fmt: skip

    @classmethod
    def load(cls, path: str | Path, *, rate: float = 240.0) -> tuple[DMP, dict[str, float]]:
        """(primitive, further numbers) of a file that `save` wrote."""
        try:
            data = checks.load_arrays(Path(path))
            if str(data.pop("format")) != FORMAT:
                raise ValueError("another format")
            weights, goal = data.pop("weights"), data.pop("goal")
            dmp = cls(
                data.pop("start"),
                n_bases=weights.shape[1],
                rate=rate,
                duration=float(data.pop("duration")),
                dynamics=Dynamics(**{field.name: float(data.pop(field.name)) for field in fields(Dynamics)}),
            )
            dmp.set_weights(np.concatenate([weights.ravel(), goal]))
            return dmp, {name: float(value) for name, value in data.items()}
        except InvalidInput as error:
            raise InvalidInput(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
        except OSError as error:
            raise InvalidInput(f"{path}: cannot be read ({error})") from None
        except (KeyError, ValueError, IndexError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidInput(f"{path}: not a demonstration that `crbo demo record` wrote ({error})") from None

    def _check_demonstration(self, time: ArrayLike, position: ArrayLike) -> tuple[Array, Array]:
        time = as_vector(time, "time")
        position = np.array(position, dtype=np.float64)
        if position.shape != (len(time), self.n_joints):
            raise InvalidInput(f"position: expected shape {(len(time), self.n_joints)}, got {position.shape}")
        if len(time) < self.n_bases:
            raise InvalidInput(f"time: {len(time)} samples are too few to fit {self.n_bases} bases per joint")
        if not np.all(np.isfinite(position)):
            i, j = np.argwhere(~np.isfinite(position))[0]
            raise InvalidInput(f"position[{i}, {j}] is {position[i, j]}; every entry must be finite")
        bad = np.flatnonzero(np.diff(time) <= 0.0)
        if bad.size:
            raise InvalidInput(f"time[{bad[0] + 1}] = {time[bad[0] + 1]} does not come after time[{bad[0]}]")
        return time, position


def basis(s: ArrayLike, n_bases: int, dynamics: Dynamics) -> Array:
    """a x(s) psi_i(x) / sum psi at normalised times s = t / tau (M,): shape (M, n_bases)."""
    alpha_x = -math.log(dynamics.phase_end)
    x = np.exp(-alpha_x * np.asarray(s, dtype=np.float64))[:, None]
    centres = np.exp(-alpha_x * np.linspace(0.0, 1.0, n_bases))
    widths = -math.log(OVERLAP) / np.diff(centres) ** 2
    widths = np.append(widths, widths[-1])
    psi = np.exp(-widths * (x - centres) ** 2)
    return dynamics.amplitude * x * psi / psi.sum(axis=1, keepdims=True)


@lru_cache(maxsize=16)
def responses(n: int, ds: float, n_bases: int, dynamics: Dynamics) -> Array:
    """(y, y', y'') in units of tau at s = 0, ds, ..., n ds for unit inputs w_1..w_m, G, y(0): shape (3, n + 1, m + 2).

    Runge-Kutta 4 with steps of at most MAX_STEP; the error is below 1e-9 of the response (see the tests).
    """
    sub = max(1, math.ceil(ds / MAX_STEP))
    h = ds / sub
    s = np.arange(2 * n * sub + 1) * (h / 2.0)  # the ends and middles of all steps
    force = np.zeros((len(s), n_bases + 2))
    force[:, :n_bases] = basis(s, n_bases, dynamics)
    alpha_y, beta_y = dynamics.alpha_y, dynamics.beta_y
    remaining = np.exp(-dynamics.alpha_g * s) if math.isfinite(dynamics.alpha_g) else np.zeros(len(s))
    force[:, n_bases] = alpha_y * beta_y * (1.0 - remaining)  # g = G (1 - remaining) + y(0) remaining
    force[:, n_bases + 1] = alpha_y * beta_y * remaining

    y, v = np.zeros(n_bases + 2), np.zeros(n_bases + 2)
    y[-1] = 1.0

    def acceleration(y: Array, v: Array, f: Array) -> Array:
        return f - alpha_y * (beta_y * y + v)

    out = np.empty((3, n + 1, n_bases + 2))
    out[:, 0] = y, v, acceleration(y, v, force[0])
    for k in range(n * sub):
        f0, f1, f2 = force[2 * k : 2 * k + 3]
        a0 = acceleration(y, v, f0)
        v1 = v + h / 2.0 * a0
        a1 = acceleration(y + h / 2.0 * v, v1, f1)
        v2 = v + h / 2.0 * a1
        a2 = acceleration(y + h / 2.0 * v1, v2, f1)
        v3 = v + h * a2
        a3 = acceleration(y + h * v2, v3, f2)
        y = y + h / 6.0 * (v + 2.0 * v1 + 2.0 * v2 + v3)
        v = v + h / 6.0 * (a0 + 2.0 * a1 + 2.0 * a2 + a3)
        if (k + 1) % sub == 0:
            out[:, (k + 1) // sub] = y, v, acceleration(y, v, f2)
    out.flags.writeable = False
    return out
