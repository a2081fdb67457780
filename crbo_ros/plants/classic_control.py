"""Whole episodes of three gymnasium environments, compiled: the same arithmetic, some hundred times faster.

`episode(env_id, seed, agent)` gives what stepping the unmodified environment with the greedy policy gives, from the
same seed: start states come from gymnasium's generator (PCG64 of the seed), observations and actions are rounded to
float32 where gymnasium does it, and the operations come in its order. What may differ is the last bit of sin, cos
and tanh between NumPy and the C library, so the tests ask for equality to 1e-9, not of every bit.

MountainCar keeps its state in float32. What NumPy does there with a Python float depends on its version (NEP 50: since
2.0 the Python float is rounded to float32 first), and `SINGLE` follows the NumPy that is installed.

The network is here once more (and in crbo_ros/compiled.py): numba's cache on disk would not notice a change in another
file. Without numba the same functions run as plain Python.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.compiled import jit
from crbo_ros.errors import InvalidInput
from crbo_ros.policies.agent import Agent

Array = NDArray[np.float64]
Network = tuple[Array, Array, Array, Array, Array, Array, Array, Array, float]
SINGLE = int(np.__version__.split(".")[0]) >= 2


@dataclass(frozen=True)
class Steps:
    """T steps: observations (T + 1, k), the first one from reset; actions (T, 1); whether the environment ended it."""

    observations: NDArray[np.float32]
    actions: Array
    terminated: bool


@jit
def _forward(
    observation: NDArray[np.float32], network: Network, z: Array, first: Array, second: Array, out: Array
) -> None:
    """The network's output, into `out`; weights are (n_in, n_out). z, first and second are scratch."""
    w1, b1, w2, b2, w3, b3, offset, scale, clip = network
    for i in range(z.size):
        z[i] = min(max((observation[i] - offset[i]) * scale[i], -clip), clip)
    first[:] = b1
    for i in range(z.size):
        for j in range(first.size):
            first[j] += w1[i, j] * z[i]
    for j in range(first.size):
        first[j] = math.tanh(first[j])
    second[:] = b2
    for i in range(first.size):
        for j in range(second.size):
            second[j] += w2[i, j] * first[i]
    for j in range(second.size):
        second[j] = math.tanh(second[j])
    out[:] = b3
    for i in range(second.size):
        for j in range(out.size):
            out[j] += w3[i, j] * second[i]


@jit
def _single(value: float, single: bool) -> float:
    """value rounded to float32, where this NumPy would do so. (An argument: compiled code is kept on disk.)"""
    return np.float64(np.float32(value)) if single else value


@jit
def _pendulum(
    start: Array, network: Network, z: Array, first: Array, second: Array, out: Array,
    observations: NDArray[np.float32], actions: Array, single: bool,
) -> tuple[int, bool]:  # fmt: skip
    th, thdot = start[0], start[1]
    n = actions.shape[0]
    for t in range(n + 1):
        observations[t, 0] = math.cos(th)
        observations[t, 1] = math.sin(th)
        observations[t, 2] = thdot
        if t == n:
            break
        _forward(observations[t], network, z, first, second, out)
        u = min(max(np.float64(np.float32(out[0])), -2.0), 2.0)
        actions[t, 0] = u
        thdot = thdot + (15.0 * math.sin(th) + _single(3.0 * u, single)) * 0.05
        thdot = min(max(thdot, -8.0), 8.0)
        th = th + thdot * 0.05
    return n, False


@jit
def _cartpole(
    start: Array, network: Network, z: Array, first: Array, second: Array, out: Array,
    observations: NDArray[np.float32], actions: Array, single: bool,
) -> tuple[int, bool]:  # fmt: skip
    x, x_dot, theta, theta_dot = start[0], start[1], start[2], start[3]
    masspole, total_mass, length, tau = 0.1, 0.1 + 1.0, 0.5, 0.02
    polemass_length = masspole * length
    limit = 12 * 2 * math.pi / 360
    n = actions.shape[0]
    for t in range(n + 1):
        observations[t, 0] = x
        observations[t, 1] = x_dot
        observations[t, 2] = theta
        observations[t, 3] = theta_dot
        if x < -2.4 or x > 2.4 or theta < -limit or theta > limit:
            return t, True
        if t == n:
            break
        _forward(observations[t], network, z, first, second, out)
        action = 1.0 if out[1] > out[0] else 0.0
        actions[t, 0] = action
        force = 10.0 if action == 1.0 else -10.0
        costheta, sintheta = math.cos(theta), math.sin(theta)
        temp = (force + polemass_length * (theta_dot * theta_dot) * sintheta) / total_mass
        thetaacc = (9.8 * sintheta - costheta * temp) / (
            length * (4.0 / 3.0 - masspole * (costheta * costheta) / total_mass)
        )
        xacc = temp - polemass_length * thetaacc * costheta / total_mass
        x = x + tau * x_dot
        x_dot = x_dot + tau * xacc
        theta = theta + tau * theta_dot
        theta_dot = theta_dot + tau * thetaacc
    return n, False


@jit
def _mountaincar(
    start: Array, network: Network, z: Array, first: Array, second: Array, out: Array,
    observations: NDArray[np.float32], actions: Array, single: bool,
) -> tuple[int, bool]:  # fmt: skip
    position, velocity = start[0], 0.0
    top, right, left, goal = _single(0.07, single), _single(0.6, single), _single(-1.2, single), _single(0.45, single)
    n = actions.shape[0]
    for t in range(n + 1):
        observations[t, 0] = position
        observations[t, 1] = velocity
        if t > 0 and position >= goal and velocity >= 0.0:
            return t, True
        if t == n:
            break
        _forward(observations[t], network, z, first, second, out)
        force = min(max(np.float64(np.float32(out[0])), -1.0), 1.0)
        actions[t, 0] = force
        slope = 3.0 * position if t == 0 else _single(3.0 * position, single)  # the start state is float64
        gravity = _single(0.0025 * math.cos(slope), single)
        push = _single(_single(force * _single(0.0015, single), single) - gravity, single)
        velocity = velocity + push if t == 0 else _single(velocity + push, single)
        velocity = min(max(velocity, -top), top)
        position = position + velocity if t == 0 else _single(position + velocity, single)
        position = min(max(position, left), right)
        if position == left and velocity < 0.0:
            velocity = 0.0
        position, velocity = np.float64(np.float32(position)), np.float64(np.float32(velocity))
    return n, False


@dataclass(frozen=True)
class _Kernel:
    run: Any
    steps: int  # the time limit of gymnasium's registration
    n_observation: int


KERNELS = {
    "Pendulum-v1": _Kernel(_pendulum, 200, 3),
    "CartPole-v1": _Kernel(_cartpole, 500, 4),
    "MountainCarContinuous-v0": _Kernel(_mountaincar, 999, 2),
}


def start_state(env_id: str, seed: int) -> Array:
    """The state after env.reset(seed=seed), from gymnasium's generator, in its order of draws."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    if env_id == "Pendulum-v1":
        return rng.uniform(low=[-np.pi, -1.0], high=[np.pi, 1.0])
    if env_id == "CartPole-v1":
        return rng.uniform(low=-0.05, high=0.05, size=(4,))
    return np.array([rng.uniform(low=-0.6, high=-0.4), 0.0])


def episode(env_id: str, seed: int, agent: Agent) -> Steps:
    """One episode from `seed` to the environment's end or its time limit, with an agent of two tanh layers."""
    kernel = KERNELS[env_id]
    wanted = (3, "tanh", kernel.n_observation)
    if (len(agent.layers), agent.activation, agent.n_in) != wanted or agent.output == "squash":
        raise InvalidInput(f"weights: the compiled {env_id} takes {kernel.n_observation} inputs and two tanh layers")
    arrays = [array for layer in agent.layers for array in layer]
    network = (*(np.ascontiguousarray(a) for a in (*arrays, agent.input_offset, agent.input_scale)), agent.input_clip)
    observations = np.zeros((kernel.steps + 1, kernel.n_observation), dtype=np.float32)
    actions = np.zeros((kernel.steps, 1))
    scratch = [np.zeros(n) for n in (agent.n_in, len(arrays[1]), len(arrays[3]), agent.n_out)]
    n, terminated = kernel.run(start_state(env_id, seed), network, *scratch, observations, actions, SINGLE)
    return Steps(observations[: n + 1], actions[:n], bool(terminated))
