"""Any gymnasium environment as a plant: unmodified, made by gymnasium.make, stepped one period at a time.

Observations are flat float vectors (a discrete observation is one-hot, as stable-baselines3 does it); an action is a
float vector, of which a discrete action space takes the first entry, rounded. After a step `reward`, `terminated` and
`truncated` say what the environment said. The three environments of the paper also run as one compiled call an
episode: plants/classic_control.py.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros import checks
from crbo_ros.errors import InvalidInput, MissingDependency, PlantError
from crbo_ros.plants.base import Plant

Array = NDArray[np.float64]
UNLIMITED = 10_000  # steps of an episode where the environment has no limit of its own
# Hz, from the integration step; MountainCar's time has no unit, so its frame rate
RATES = {"Pendulum-v1": 20.0, "CartPole-v1": 50.0, "MountainCarContinuous-v0": 30.0}


def episode_seed(rng: np.random.Generator) -> int:
    """The seed that env.reset gets: one draw, the same one on the stepped and on the compiled path."""
    return int(rng.integers(2**31))


def longest_episode(env_id: str, **options: Any) -> float:
    """s of an episode that runs to its limit, as gymnasium's registry says; no environment is made."""
    try:
        import gymnasium
        from gymnasium.envs.registration import load_env_creator
    except ImportError as error:
        raise MissingDependency(f"env {env_id!r} needs gymnasium ({error}): pip install gymnasium") from None
    try:
        module, colon, name = env_id.rpartition(":")
        if colon:
            import_module(module)
        spec = gymnasium.spec(name)
        made_by = load_env_creator(spec.entry_point) if isinstance(spec.entry_point, str) else spec.entry_point
    except (gymnasium.error.Error, ImportError) as error:
        raise InvalidInput(f"env: gymnasium cannot make {env_id!r}: {error}") from None
    steps = options.get("max_episode_steps") or spec.max_episode_steps or UNLIMITED
    frames = getattr(made_by, "metadata", {}).get("render_fps")
    return float(steps / RATES.get(name, float(frames or 30.0)))


class GymnasiumPlant(Plant):
    """`env_id` and `options` go to gymnasium.make. The environment exists from connect to close.

    `physics` are other values of the environment's own numbers: {"m": 1.2, "l": 1.1} of Pendulum-v1.
    """

    def __init__(self, env_id: str, *, physics: dict[str, float] | None = None, **options: Any) -> None:
        self.env_id, self.options, self.physics = env_id, options, physics or {}
        self.env: Any = None
        self.rate = RATES.get(env_id, 30.0)
        self.steps = UNLIMITED
        self.reward, self.terminated, self.truncated = 0.0, False, False

    def connect(self) -> None:
        if self.env is not None:
            return
        try:
            import gymnasium
        except ImportError as error:
            raise MissingDependency(f"env {self.env_id!r} needs gymnasium ({error}): pip install gymnasium") from None
        try:
            env = gymnasium.make(self.env_id, **self.options)
        except gymnasium.error.DependencyNotInstalled as error:
            raise MissingDependency(f"environment {self.env_id!r}: {error}") from None
        except (gymnasium.error.Error, ModuleNotFoundError, TypeError) as error:
            raise InvalidInput(f"env: gymnasium cannot make {self.env_id!r}: {error}") from None
        try:
            self._change(env.unwrapped)
            self._flatten, self.n_observation = _observations(env.observation_space)
            self._convert, self.n_action = _actions(env.action_space)
        except InvalidInput:
            env.close()
            raise
        self.env = env
        limit = env.spec.max_episode_steps if env.spec is not None else None
        self.steps = int(limit or UNLIMITED)
        self.rate = RATES.get(self.env_id, float(env.metadata.get("render_fps") or 30.0))

    def _change(self, env: Any) -> None:
        for name, value in self.physics.items():
            own = [key for key, number in vars(env).items() if type(number) in (int, float) and key[0] != "_"]
            if name not in own:
                raise InvalidInput(f"physics: {self.env_id} has no number {name!r}; it has {', '.join(own)}")
            setattr(env, name, checks.number(value, f"physics: {name}"))

    def reset(self, rng: np.random.Generator) -> Array:
        self.connect()
        observation, _ = self._guard("reset", lambda: self.env.reset(seed=episode_seed(rng)))
        self.reward, self.terminated, self.truncated = 0.0, False, False
        return self._flatten(observation)

    def step(self, action: Array) -> Array:
        if self.env is None:
            raise PlantError(f"environment {self.env_id!r} is not connected; reset it first")
        given = self._convert(action)
        observation, reward, terminated, truncated, _ = self._guard("step", lambda: self.env.step(given))
        self.reward, self.terminated, self.truncated = float(reward), bool(terminated), bool(truncated)
        return self._flatten(observation)

    def _guard(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:  # an environment is somebody else's code and may raise anything
            raise PlantError(f"env {self.env_id!r} failed in {what}: {type(error).__name__}: {error}") from error

    def stop(self) -> None:
        """A simulation stands still between steps."""

    def close(self) -> None:
        if self.env is not None:
            env, self.env = self.env, None
            env.close()


def _observations(space: Any) -> tuple[Callable[[Any], Array], int]:
    """(environment's observation -> vector, its length)."""
    from gymnasium import spaces

    if isinstance(space, spaces.Box):
        return lambda observation: np.asarray(observation, dtype=np.float64).ravel(), int(np.prod(space.shape))
    if isinstance(space, spaces.Discrete):
        eye = np.eye(int(space.n))
        return lambda observation: eye[int(observation) - int(space.start)], int(space.n)
    raise InvalidInput(f"env: observations of kind {type(space).__name__} are not supported; use Box or Discrete")


def _actions(space: Any) -> tuple[Callable[[Array], Any], int]:
    """(action vector -> what the environment takes, number of outputs that the policy needs)."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return lambda action: round(float(action[0])) + int(space.start), int(space.n)
    if isinstance(space, spaces.Box):
        low, high = space.low.ravel(), space.high.ravel()
        return (
            lambda action: np.clip(np.asarray(action, dtype=space.dtype), low, high).reshape(space.shape),
            int(np.prod(space.shape)),
        )
    raise InvalidInput(f"env: actions of kind {type(space).__name__} are not supported; use Box or Discrete")
