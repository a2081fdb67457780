"""Other people's benchmarks of policy search, as problems of the comparison ("outside-swimmer").

    cartpole     CartPole-v1, 4 weights, push right where w . o > 0            GIBO's benchmark (Mueller et al. 2021)
    swimmer      Swimmer-v5, 8 x 2 weights, action = clip(W o)                 the same
    hopper       Hopper-v5, 11 x 3 weights and 3 biases, normalised state      the same
    halfcheetah  HalfCheetah-v5, 17 x 6 weights, normalised state              ARS' benchmark (Mania et al. 2018)
    walker2d     Walker2d-v5, 17 x 6 weights, normalised state                 the same
    lander       LunarLander-v3, the 12 numbers of its hand-made controller    TuRBO's benchmark (Eriksson et al. 2019)
    rover        60 numbers: 30 way-points of a path among obstacles           Wang et al. 2018

All begin at theta_0 = 0 (lander: a quarter of the hand-made numbers; rover: the straight line). Where the authors
normalise the state by what was seen so far, it is normalised here by mean and deviation of 20 episodes of random
actions, so that a policy's return does not depend on its predecessors. The rover's obstacles are drawn from a fixed
seed (the published ones are a data file): formula and numbers are the paper's, the map is not.

One evaluation is one episode from a random start (lander: the mean of 5 landings).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline

from crbo_ros.bench.problems import BenchProblem, Rollout
from crbo_ros.core.space import Space
from crbo_ros.errors import MissingDependency

Array = NDArray[np.float64]
EPISODES = {"outside-swimmer": 200, "outside-hopper": 200}
CHECKPOINTS = (20, 50, 75, 100, 200)  # where the authors' own numbers stand
LANDINGS = 5
HAND_MADE = np.array([0.5, 1.0, 0.4, 0.55, 0.5, 1.0, 0.5, 0.5, 0.0, 0.5, 0.05, 0.05])  # of LunarLander's own controller


# What GIBO's authors keep of their own runs (10 a task, mean +- standard deviation of the current policy after so many
# episodes) and the average observed return over the first 100 and 200: who -> (J after, average over).
PUBLISHED: dict[str, dict[str, tuple[dict[int, str], dict[int, str]]]] = {
    "outside-cartpole": {
        "GIBO, published": ({20: "327 +- 149", 50: "468 +- 69", 75: "500"}, {100: "354"}),
        "ARS, published": ({20: "262 +- 138", 50: "466 +- 100", 100: "470 +- 91"}, {100: "297"}),
    },
    "outside-swimmer": {
        "GIBO, published": ({100: "108 +- 85", 200: "300 +- 94"}, {100: "20", 200: "35"}),
        "ARS, published": ({100: "71 +- 74", 200: "144 +- 121"}, {100: "55", 200: "148"}),
    },
    "outside-hopper": {
        "GIBO, published": ({200: "266 +- 127"}, {}),
        "ARS, published": ({200: "268"}, {}),
    },
}


def make_env(name: str) -> Any:
    """The environment without its wrappers (its time limit is kept by `episode`)."""
    try:
        import gymnasium

        return gymnasium.make(name).unwrapped
    except Exception as error:  # gymnasium has errors of its own for each dependency that is not there
        raise MissingDependency(
            f"{name}: {error}; pip install mujoco imageio 'gymnasium[box2d]' (requirements/outside.txt)"
        ) from None


def episode(env: Any, act: Callable[[Array], Any], seed: int, steps: int) -> float:
    """The return of one episode of at most `steps` steps."""
    observation, _ = env.reset(seed=seed)
    total = 0.0
    for _ in range(steps):
        observation, reward, ended, *_ = env.step(act(observation))
        total += float(reward)
        if ended:
            break
    return total


@lru_cache(maxsize=8)
def normalisation(name: str, episodes: int = 20) -> tuple[Array, Array]:
    """(mean, deviation) of the states that random actions see."""
    env, rng, seen = make_env(name), np.random.default_rng(0), []
    for number in range(episodes):
        observation, _ = env.reset(seed=number)
        for _ in range(1000):
            seen.append(observation)
            observation, _, ended, *_ = env.step(rng.uniform(env.action_space.low, env.action_space.high))
            if ended:
                break
    return np.mean(seen, axis=0), np.maximum(np.std(seen, axis=0), 1e-3)


class Linear:
    """action = clip(W s + b), theta = W^T row by row, then b where there is one."""

    def __init__(self, name: str, *, normalised: bool = False, bias: bool = False) -> None:
        self.env = make_env(name)
        inputs, outputs = self.env.observation_space.shape[0], self.env.action_space.shape[0]
        self.shape, self.dim = (inputs, outputs), (inputs + bias) * outputs
        self.mean: Array = np.zeros(inputs)
        self.deviation: Array = np.ones(inputs)
        if normalised:
            self.mean, self.deviation = normalisation(name)

    def __call__(self, theta: Array, rng: np.random.Generator) -> float:
        count = math.prod(self.shape)
        W, b = theta[:count].reshape(self.shape).T, theta[count:] if len(theta) > count else 0.0

        def act(observation: Array) -> Array:
            action: Array = np.clip(W @ ((observation - self.mean) / self.deviation) + b, -1.0, 1.0)
            return action

        return episode(self.env, act, int(rng.integers(2**31)), 1000)


def cartpole(env: Any, theta: Array, rng: np.random.Generator) -> float:
    return episode(env, lambda o: int(theta @ o > 0.0), int(rng.integers(2**31)), 500)


def land(env: Any, w: Array, rng: np.random.Generator) -> float:
    """The mean return of some landings by LunarLander's own heuristic with the numbers w (12,)."""

    def act(s: Array) -> int:
        angle_target = float(np.clip(w[0] * s[0] + w[1] * s[2], -w[2], w[2]))
        angle = w[4] * (angle_target - s[4]) - w[5] * s[5]
        hover = w[6] * (w[3] * abs(s[0]) - s[1]) - w[7] * s[3]
        if s[6] or s[7]:  # a leg has contact
            angle, hover = w[8], -w[9] * s[3]
        if hover > abs(angle) and hover > w[10]:
            return 2
        return 3 if angle < -w[11] else 1 if angle > w[11] else 0

    return float(np.mean([episode(env, act, int(seed), 1000) for seed in rng.integers(2**31, size=LANDINGS)]))


class Rover:
    """f = 5 - 10 (|p(0) - start|_1 + |p(1) - goal|_1) - integral of c(p) along the path, c = 0.05, and 20 more in an
    obstacle; p is the cubic B-spline of 30 control points (Wang, Gehring, Kohli, Jegelka 2018)."""

    start, goal = np.array([0.05, 0.05]), np.array([0.95, 0.95])
    count = 30

    def __init__(self, obstacles: int = 15, side: float = 0.1) -> None:
        rng = np.random.default_rng(60)
        centres: list[Array] = []
        while len(centres) < obstacles:
            centre = rng.uniform(0.1, 0.9, 2)
            if min(np.abs(centre - self.start).max(), np.abs(centre - self.goal).max()) > side:
                centres.append(centre)
        self.centres, self.side = np.array(centres), side
        inner = np.linspace(0.0, 1.0, self.count - 2)
        self.knots = np.concatenate([[0.0] * 3, inner, [1.0] * 3])

    @property
    def straight(self) -> Array:
        return np.linspace(self.start, self.goal, self.count).ravel()

    def __call__(self, theta: Array) -> float:
        path = BSpline(self.knots, theta.reshape(self.count, 2), 3)(np.linspace(0.0, 1.0, 1000))
        inside = np.any(np.abs(path[:, None] - self.centres).max(axis=2) <= self.side / 2.0, axis=1)
        cost = 0.05 + 20.0 * inside
        lengths = np.linalg.norm(np.diff(path, axis=0), axis=1)
        along = float(np.sum(lengths * 0.5 * (cost[1:] + cost[:-1])))
        ends = float(np.abs(path[0] - self.start).sum() + np.abs(path[-1] - self.goal).sum())
        return 5.0 - 10.0 * ends - along


def _linear(env: str, **options: Any) -> Callable[[], tuple[Space, Array, Any, Any]]:
    def make() -> tuple[Space, Array, Any, Any]:
        policy = Linear(env, **options)
        return Space(-np.ones(policy.dim), np.ones(policy.dim)), np.zeros(policy.dim), policy, policy.env

    return make


def _cartpole() -> tuple[Space, Array, Any, Any]:
    env = make_env("CartPole-v1")
    return Space(-np.ones(4), np.ones(4)), np.zeros(4), lambda theta, rng: cartpole(env, theta, rng), env


def _lander() -> tuple[Space, Array, Any, Any]:
    env = make_env("LunarLander-v3")
    return Space(np.zeros(12), 2.0 * np.ones(12)), 0.25 * HAND_MADE, lambda theta, rng: land(env, theta, rng), env


def _rover() -> tuple[Space, Array, Any, Any]:
    rover = Rover()
    return Space(np.zeros(60), np.ones(60)), rover.straight, lambda theta, rng: rover(theta), None


MAKERS: dict[str, Callable[[], tuple[Space, Array, Any, Any]]] = {
    "outside-cartpole": _cartpole,
    "outside-swimmer": _linear("Swimmer-v5"),
    "outside-hopper": _linear("Hopper-v5", normalised=True, bias=True),
    "outside-halfcheetah": _linear("HalfCheetah-v5", normalised=True),
    "outside-walker2d": _linear("Walker2d-v5", normalised=True),
    "outside-lander": _lander,
    "outside-rover": _rover,
}


@contextmanager
def open_outside(name: str) -> Iterator[BenchProblem]:
    space, theta_0, function, env = MAKERS[name]()

    def rollout(theta: Array, rng: np.random.Generator) -> Rollout:
        return Rollout(function(np.asarray(theta, dtype=float), rng), "completed")

    try:
        checkpoints = CHECKPOINTS if name in PUBLISHED else ()
        yield BenchProblem(name, space, theta_0, rollout, checkpoints=checkpoints)
    finally:
        if env is not None:
            env.close()
