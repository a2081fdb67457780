"""Trained agents adapted to a new reward (the paper's "Adapting deep RL agents to new reward signals"), and your own.

theta is the last layer of a PPO agent that was trained on the environment's original reward (training/ppo.py); the
layers below it stay. Episodes start from the environment's own random start states and actions are greedy, so the
noise of a return comes from the start state alone.

The paper's rewards for Pendulum, (1 - |angle| / 2 deg) / T, and CartPole, (1 - |x|) / T, fall without bound far from
the target. Here a step's reward is clipped at 0: the swing-up alone would otherwise cost Pendulum some -10, which
drowns the last two degrees that the reward is about, and the values would lie off the paper's axes (0.3 to 0.9). The
reward of step t is that of the state which the step led to.

`GymTask` is any gymnasium environment with any agent file (`./crbo import-sb3`), under the environment's own reward.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.core.problem import Problem, digest
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput
from crbo_ros.plants.gymnasium import RATES, GymnasiumPlant, episode_seed, longest_episode
from crbo_ros.policies.agent import Agent
from crbo_ros.tasks.base import COMPLETED, NAN, STOPPED, TERMINATED, Outcome, Task, Trajectory, Watch, plain
from crbo_ros.tasks.episode import run_episode
from crbo_ros.tasks.gym_plot import Panel, plot

Array = NDArray[np.float64]


class GymTask(Task):
    """`env`: gymnasium id; `weights`: agent file; `width`: the domain is theta_0 +- width.

    `physics` are other values of the environment's own numbers (mass, length, ...): another robot than the agent knows.
    """

    name = "gym"
    plants: tuple[str, ...] = ("gymnasium",)
    gamma = 0.5
    gammas: tuple[float, ...] = (0.3, 0.5, 0.7)
    exploration = {"cma_es": (0.01, 0.02, 0.05), "turbo": (0.05, 0.1, 0.2)}
    observation_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    panels: tuple[Panel, ...] = ()  # of the plot
    end_reason = "the environment ended the episode"

    def __init__(
        self,
        plant: str | None = None,
        *,
        env: str | None = None,
        weights: str | Path | None = None,
        width: float = 1.0,
        gamma: float | None = None,
        env_options: dict[str, Any] | None = None,
        physics: dict[str, float] | None = None,
    ) -> None:
        super().__init__(plant, self._facts(plant, env, weights, width, gamma, env_options, physics))
        assert env
        assert weights
        self.agent = Agent.load(Path(weights))
        self.plant = GymnasiumPlant(env, physics=physics, **(env_options or {}))
        if self.plant_name == "gymnasium":
            self._match()

    @classmethod
    def problem(
        cls,
        plant: str | None = None,
        *,
        env: str | None = None,
        weights: str | Path | None = None,
        width: float = 1.0,
        gamma: float | None = None,
        env_options: dict[str, Any] | None = None,
        physics: dict[str, float] | None = None,
    ) -> Problem:
        """The facts, from the agent's file and gymnasium's registry; no environment is made."""
        return cls._facts(plant, env, weights, width, gamma, env_options, physics)

    @classmethod
    def _facts(
        cls,
        plant: str | None,
        env: str | None,
        weights: str | Path | None,
        width: float,
        gamma: float | None,
        env_options: dict[str, Any] | None,
        physics: dict[str, float] | None,
    ) -> Problem:
        name = cls.plant_of(plant)
        if physics and name != "gymnasium":
            raise InvalidInput("physics: only the plant gymnasium can be changed")
        if not env or not weights:
            raise InvalidInput(f"task {cls.name!r} needs env (a gymnasium id) and weights (made by ./crbo import-sb3)")
        if not (np.isfinite(width) and width > 0.0):
            raise InvalidInput(f"width: {width} is not a positive number; the domain is theta_0 +- width")
        theta_0 = Agent.load(Path(weights)).get_weights()
        return Problem(
            cls.name,
            name,
            Space(theta_0 - width, theta_0 + width),
            theta_0,
            gamma=cls.gamma if gamma is None else float(gamma),
            episodes=cls.episodes,
            episode_seconds=cls._seconds(env, env_options or {}),
            options=plain({"env": env, "env_options": env_options, "physics": physics or None}),
            policy=digest(Path(weights).read_bytes()),
            j_min_drop=cls.j_min_drop,
        )

    @classmethod
    def _seconds(cls, env: str, options: dict[str, Any]) -> float:
        return longest_episode(env, **options)

    def _match(self) -> None:
        """Make the environment and compare it with the agent; InvalidInput if they do not fit."""
        self.plant.connect()
        for what, needed, has in (
            ("inputs, the environment's observation", self.plant.n_observation, self.agent.n_in),
            ("outputs, the environment's action", self.plant.n_action, self.agent.n_out),
        ):
            if needed != has:
                raise InvalidInput(f"weights: the agent has {has} {what} has {needed} ({self.plant.env_id})")

    # -- reward -----------------------------------------------------------------------------------

    def rewards(self, observations: Array, actions: Array, ended: NDArray[np.bool_]) -> Array:
        """Rewards (n,) of n steps: the states they led to (n, k), actions (n, m), whether the environment ended there.

        Here the environment's own, which only the last step knows; tasks with a new reward override this.
        """
        return np.array([self.plant.reward])

    # -- episodes ---------------------------------------------------------------------------------

    def rollout(
        self, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
    ) -> Outcome:
        """One episode with the last layer theta (d,); the start state comes from one draw of rng."""
        self.agent.set_weights(self.space.check(theta))
        if self.plant_name != "gymnasium":
            return self._compiled(rng, record, watch)
        self.plant.connect()
        rewards: list[float] = []

        def judge(step: int, observation: Array, action: Array) -> tuple[float, str | None]:
            ended = np.array([self.plant.terminated])
            rewards.append(float(self.rewards(observation[None], action[None], ended)[0]))
            if self.plant.terminated:
                return rewards[-1], self.end_reason
            if self.plant.truncated and step + 1 < self.plant.steps:
                return rewards[-1], "the environment cut the episode short"
            return rewards[-1], None

        outcome = run_episode(
            self.plant,
            lambda step, observation: self.agent(observation),
            judge,
            steps=self.plant.steps,
            rng=rng,
            columns=self._columns(),
            record=record,
            watch=watch,
        )
        if outcome.trajectory is not None:
            self._derive(outcome.trajectory, np.array(rewards))
        return outcome

    def _compiled(self, rng: np.random.Generator, record: bool, watch: Watch | None) -> Outcome:
        """The whole episode in one call; `watch` is asked once before and once after."""
        from crbo_ros.plants.classic_control import episode

        nothing = np.zeros(len(self.action_names))
        seed = episode_seed(rng)
        if watch is not None and (reason := watch(0.0, np.zeros(self.agent.n_in), nothing)):
            return Outcome(NAN, STOPPED, reason)
        ran = episode(self.plant.env_id, seed, self.agent)
        states, steps = ran.observations[1:].astype(np.float64), len(ran.actions)
        ended = np.zeros(steps, dtype=bool)
        ended[-1] = ran.terminated
        rewards = self.rewards(states, ran.actions, ended)
        seconds = steps / self.plant.rate
        trajectory = None
        if record:
            rows = np.hstack([states, ran.actions])
            time = np.arange(1, steps + 1) / self.plant.rate
            trajectory = Trajectory(time, {name: rows[:, i].copy() for i, name in enumerate(self._columns())})
            self._derive(trajectory, rewards)
        if watch is not None and (reason := watch(seconds, states[-1], nothing)):
            return Outcome(NAN, STOPPED, reason, steps, seconds, {}, trajectory)
        end, reason = (TERMINATED, self.end_reason) if ran.terminated else (COMPLETED, "")
        return Outcome(float(rewards.sum()), end, reason, steps, seconds, {}, trajectory)

    def exported(self, theta: ArrayLike) -> Agent:
        """The agent, with theta as its last layer."""
        self.agent.set_weights(self.space.check(theta))
        n, rate = self.agent.n_in, getattr(self.plant, "rate", 0.0)
        names = self._columns()
        self.agent.meta |= {"rate": rate, "observations": list(names[:n]), "actions": list(names[n:])}
        return self.agent

    def _columns(self) -> tuple[str, ...]:
        n_action = 1 if self.agent.output == "greedy" else self.agent.n_out
        observations = self.observation_names or tuple(f"observation[{i}]" for i in range(self.agent.n_in))
        return observations + (self.action_names or tuple(f"action[{i}]" for i in range(n_action)))

    def _derive(self, trajectory: Trajectory, rewards: Array) -> None:
        """Columns that follow from the others."""
        trajectory.columns["return"] = np.cumsum(rewards)

    def plot(self, trajectories: dict[str, Trajectory], path: Path) -> None:
        """A panel for each of `panels` (all columns where there are none), all trajectories in each."""
        plot(trajectories, self.panels, path)

    # -- the plant --------------------------------------------------------------------------------

    def connect(self) -> None:
        if self.plant_name == "gymnasium":
            super().connect()


class _Adapted(GymTask):
    """One of the paper's three: our agent, a new reward, and episodes in one compiled call (plant "compiled")."""

    plants = ("compiled", "gymnasium")
    env: str
    width: float  # of the paper's domain: theta_0 +- width
    steps: int

    def __init__(
        self,
        plant: str | None = None,
        *,
        weights: str | Path | None = None,
        gamma: float | None = None,
        physics: dict[str, float] | None = None,
    ) -> None:
        weights = weights or self.own_files()["weights"]
        super().__init__(plant, env=self.env, weights=weights, width=self.width, gamma=gamma, physics=physics)

    @classmethod
    def problem(  # type: ignore[override]  # env, width and env_options are its own
        cls,
        plant: str | None = None,
        *,
        weights: str | Path | None = None,
        gamma: float | None = None,
        physics: dict[str, float] | None = None,
    ) -> Problem:
        """The facts, from the agent's file alone."""
        return cls._facts(plant, cls.env, weights or cls.own_files()["weights"], cls.width, gamma, None, physics)

    @classmethod
    def _seconds(cls, env: str, options: dict[str, Any]) -> float:
        return cls.steps / RATES[env]

    @classmethod
    def own_files(cls) -> dict[str, Path]:
        return {"weights": Path(str(files("crbo_ros") / "data" / f"{cls.name}.npz"))}


class Pendulum(_Adapted):
    """Pendulum-v1, d = 65: hold the pendulum within 2 degrees of upright. r_t = max(0, 1 - |angle| / 2 deg) / 200.

    The agent (training/pendulum.py; a selected one) comes to rest beside the top: J(theta_0) = 0.365, standard
    deviation 0.056 from start to start (500 starts). Reachable: 0.73 and 0.71, sd 0.09, by CMA-ES with 4,000 episodes
    (two seeds); 1 is out of reach, as the swing-up takes its part of the 200 steps. The paper's agent starts at 0.38.
    """

    name = "pendulum"
    env, width, steps = "Pendulum-v1", 0.5, 200
    gamma = 0.3
    gammas = (0.2, 0.3, 0.4, 0.6)
    j_min_drop = 0.5
    exploration = {"cma_es": (0.01, 0.02, 0.05), "turbo": (0.05, 0.1, 0.2)}
    observation_names = ("cos", "sin", "rate")  # -, -, rad/s
    action_names = ("torque",)  # N m
    panels = (
        Panel("angle", "angle [deg]", 180.0 / np.pi),
        Panel("angle", "near the top [deg]", 180.0 / np.pi, limit=4.0),
        Panel("torque", "torque [N m]"),
        Panel("return", "return"),
    )

    def rewards(self, observations: Array, actions: Array, ended: NDArray[np.bool_]) -> Array:
        angle = np.degrees(np.arctan2(observations[:, 1], observations[:, 0]))
        return np.maximum(0.0, 1.0 - np.abs(angle) / 2.0) / self.steps

    def _derive(self, trajectory: Trajectory, rewards: Array) -> None:
        super()._derive(trajectory, rewards)
        trajectory.columns["angle"] = np.arctan2(trajectory.columns["sin"], trajectory.columns["cos"])  # rad, 0 = up


class CartPole(_Adapted):
    """CartPole-v1, d = 130: balance the pole with the cart in the centre. r_t = max(0, 1 - |x| / 1 m) / 500.

    The agent (training/cartpole.py; a selected one, stopped early) lets the cart drift away: J(theta_0) = 0.232,
    standard deviation 0.051 from start to start (500 starts). Reachable: 0.98 and 0.97, sd 0.01, by CMA-ES with 4,000
    episodes (two seeds). The paper's agent starts at 0.21.
    """

    name = "cartpole"
    env, width, steps = "CartPole-v1", 10.0, 500
    gamma = 0.6
    gammas = (0.3, 0.6, 0.8)
    j_min_drop = 0.5
    exploration = {"cma_es": (0.01, 0.02, 0.05), "turbo": (0.05, 0.1, 0.2)}
    observation_names = ("x", "x_rate", "pole", "pole_rate")  # m, m/s, rad, rad/s
    action_names = ("push",)  # 0 left, 1 right
    panels = (Panel("x", "cart [m]"), Panel("pole", "pole [deg]", 180.0 / np.pi), Panel("return", "return"))
    end_reason = "the pole fell or the cart left the track"

    def rewards(self, observations: Array, actions: Array, ended: NDArray[np.bool_]) -> Array:
        return np.maximum(0.0, 1.0 - np.abs(observations[:, 0])) / self.steps


class MountainCar(_Adapted):
    """MountainCarContinuous-v0, d = 65: up the hill with less energy. r_t = -0.5 a_t^2, and +100 at the goal.

    The agent (training/mountaincar.py; a selected one) wastes energy: J(theta_0) = 64.9, standard deviation 5.8 from
    start to start (500 starts). Reachable: 92.2 and 89.7 by CMA-ES with 4,000 episodes (two seeds), where some starts
    then miss the goal (sd 12 and 22): the best policies have just enough swing. A policy that pushes and misses falls
    to some -250. The paper's agent starts at 63.8. Three agents were tried with CRBO; one of them, from later in the
    same training, could not be improved (62.9, then 62.8 and 61.2 after 100 episodes).
    """

    name = "mountaincar"
    env, width, steps = "MountainCarContinuous-v0", 1.0, 999
    gamma = 0.5
    gammas = (0.3, 0.5, 0.7)
    j_min_drop = 0.3
    exploration = {"cma_es": (0.02, 0.05, 0.1), "turbo": (0.1, 0.2, 0.4)}
    episodes = 200
    observation_names = ("position", "velocity")  # the environment's units
    action_names = ("force",)  # -1 .. 1
    panels = (Panel("position", "position"), Panel("force", "force"), Panel("return", "return"))
    end_reason = "the car reached the goal"

    def rewards(self, observations: Array, actions: Array, ended: NDArray[np.bool_]) -> Array:
        return 100.0 * ended - 0.5 * actions[:, 0] ** 2
