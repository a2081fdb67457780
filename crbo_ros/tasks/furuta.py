"""The Furuta pendulum of the paper: follow a sine with the arm while the pendulum stays up (Qube Servo 2).

Policy: a 2 x 64 tanh network, imitated from an LQR in the nominal simulation (training/furuta.py); theta is its last
layer (65 numbers), domain theta_0 +- 0.7. Reward r_t = (1 - |arm - reference| / 90 deg) / T over 20 s at 250 Hz; the
episode ends early when the pendulum tips over, the arm leaves its range, or something turns too fast; what was earned
until then counts. The paper's alpha is the arm; in gym-brt alpha is the pendulum. Here they are called by name.

Figures on `stand_in`. theta_0: 0.642, standard deviation between start states 0.004 (1,000 episodes, none fell).
Room: CMA-ES (sigma_0 0.05, 2,500 episodes, 2 runs) ended at policies that average 0.922 (its final mean) and 0.920 (its
best episode's) over 50 fresh starts, the better of the two kinds chosen on those starts;
there the standard deviation is 0.005 to 0.03, and what one episode promised (0.93) may average 0.89 only. On `nominal`
theta_0 earns 0.684.
"""

from __future__ import annotations

import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros import compiled
from crbo_ros.core.problem import Problem, digest
from crbo_ros.core.space import Space
from crbo_ros.plants.base import Plant
from crbo_ros.plants.qube.hardware import QubeHardware
from crbo_ros.plants.qube.model import PARAMETERS, plausible
from crbo_ros.plants.qube.simulation import QubeSim
from crbo_ros.policies.agent import Agent
from crbo_ros.policies.nn import NNPolicy
from crbo_ros.registry import load
from crbo_ros.tasks.base import (
    COMPLETED,
    ENSEMBLE,
    FAILED,
    NAN,
    STOPPED,
    TERMINATED,
    Outcome,
    Task,
    Trajectory,
    Watch,
    plain,
)
from crbo_ros.tasks.episode import run_episode
from crbo_ros.tasks.signals import read_signals

Array = NDArray[np.float64]
COLUMNS = ("arm", "pendulum", "arm_rate", "pendulum_rate", "voltage")  # rad, rad, rad/s, rad/s, V
PLAUSIBLE = 4  # plants of the ensemble
VOLTAGE = 3.0  # V, the most that a policy may ask for


def _read_policy(weights: str | Path | None) -> tuple[NNPolicy, bytes]:
    """The policy (the package's own by default), and its file's content."""
    path = Path(weights or Furuta.own_files()["weights"])
    return NNPolicy.load(path), path.read_bytes()


class Furuta(Task):
    """`plant`: "stand_in" (default), "nominal", "gym_brt_sim", "qube_hardware" (gym-brt) or "qube_pal" (Quanser's SDK).

    On the simulated Qubes an episode is one compiled call (some 15 ms). `stepped` takes it one control period at a
    time instead, with the same result bit for bit; `realtime` does so at the pace of the wall clock. Both call `watch`
    before every action, so that a stop takes effect within one period. `plant_options` go to the plant. `signals` are
    limits of safety signals by column: {"voltage": 2.5, "arm": [1.2, 1.5]}, the second one a hard limit. `weights` is a
    policy file of your own (policies/nn.py).
    """

    name = "furuta"
    columns = COLUMNS
    plants = ("stand_in", "nominal", "gym_brt_sim", "qube_hardware", "qube_pal")
    gamma = 0.5
    gammas = (0.3, 0.5, 0.7)
    j_min_drop = 0.1
    exploration = {"cma_es": (0.01, 0.05, 0.1)}  # the paper settles on 0.05; with 0.1 the pendulum often fell
    episodes = 100
    SECONDS = 20.0  # of one episode

    def __init__(
        self,
        plant: str | None = None,
        *,
        realtime: bool = False,
        stepped: bool = False,
        plant_options: dict[str, Any] | None = None,
        signals: dict[str, Any] | None = None,
        weights: str | Path | None = None,
    ) -> None:
        super().__init__(plant, self.problem(plant, plant_options=plant_options, weights=weights))
        self.signals = read_signals(signals, self.columns)
        self.settings = compiled.FurutaSettings()
        self.policy, _ = _read_policy(weights)
        self.plant = self._make_plant(realtime, plant_options or {})
        self.compiled = isinstance(self.plant, QubeSim) and not stepped
        self.holds_start = not self.compiled

    @classmethod
    def problem(
        cls,
        plant: str | None = None,
        *,
        realtime: bool = False,
        stepped: bool = False,
        plant_options: dict[str, Any] | None = None,
        signals: dict[str, Any] | None = None,
        weights: str | Path | None = None,
    ) -> Problem:
        """The facts, from the policy's file alone; on hardware an episode includes bringing the pendulum up."""
        name = cls.plant_of(plant)
        policy, content = _read_policy(weights)
        theta_0 = policy.get_weights()
        kind = QubeHardware if name in ("qube_hardware", "qube_pal") else QubeSim
        if name not in cls.plants:
            kind = load("plants", f"furuta.{name}")
        options = plain(plant_options or {})
        reset = float(options.get("reset_timeout", kind.reset_timeout)) if kind.is_hardware else 0.0
        return Problem(
            cls.name,
            name,
            Space(theta_0 - 0.7, theta_0 + 0.7),
            theta_0,
            gamma=cls.gamma,
            episodes=cls.episodes,
            episode_seconds=cls.SECONDS + reset,
            hardware=kind.is_hardware,
            options=options,
            policy=digest(content),
            j_min_drop=cls.j_min_drop,
        )

    @classmethod
    def own_files(cls) -> dict[str, Path]:
        return {"weights": Path(str(files("crbo_ros") / "data" / "furuta.npz"))}

    @classmethod
    def simulators(cls, plant: str, **options: Any) -> list[Task]:
        """Also the ensemble: plausible plants around the data sheet's (plants/qube/model.py)."""
        if plant != ENSEMBLE:
            return super().simulators(plant, **options)
        rng, weights = np.random.default_rng(0), options.get("weights")
        return [cls("nominal", plant_options={"changes": plausible(rng)}, weights=weights) for _ in range(PLAUSIBLE)]

    def _make_plant(self, realtime: bool, options: dict[str, Any]) -> Plant:
        plant: Plant
        if self.plant_name in PARAMETERS:
            plant = QubeSim(self.plant_name, **options)
        elif self.plant_name == "gym_brt_sim":
            from crbo_ros.plants.qube.gym_brt import GymBrtSim

            plant = GymBrtSim(**options)
        elif self.plant_name not in self.plants:
            plant = load("plants", f"furuta.{self.plant_name}")(**options)
        else:
            return QubeHardware("gym_brt" if self.plant_name == "qube_hardware" else "pal", **options)
        if realtime:
            from crbo_ros.plants.realtime import Paced

            plant = Paced(plant)
        return plant

    def reference(self, step: int) -> float:
        """The arm's reference at a step, rad."""
        return compiled.furuta_reference(step, self.plant.rate, self.settings.amplitude, self.settings.frequency)

    def rollout(
        self, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
    ) -> Outcome:
        """One episode with the last layer theta (65,); the initial state comes from rng."""
        self.policy.set_weights(self.space.check(theta))
        if self.compiled:
            return self._compiled(rng, record, watch)
        self._judge(0, np.zeros(4), self._act(0, np.zeros(4)))  # whatever must be compiled is, before anything moves
        outcome = run_episode(
            self.plant,
            self._act,
            self._judge,
            steps=int(self.settings.steps),
            rng=rng,
            columns=COLUMNS,
            record=record,
            watch=watch,
        )
        if outcome.trajectory is not None:
            self._add_reference(outcome.trajectory)
        return outcome

    def exported(self, theta: ArrayLike) -> Agent:
        """The network with its voltage limits; the reference is its fifth input."""
        self.policy.set_weights(self.space.check(theta))
        w1, b1, w2, b2, w3, b3 = self.policy.layers()
        units = dict(zip(COLUMNS, ("rad", "rad", "rad/s", "rad/s", "V"), strict=True))
        names = [f"{name} [{unit}]" for name, unit in units.items()]
        meta = {"rate": self.plant.rate, "observations": [*names[:4], "arm reference [rad]"], "actions": names[4:]}
        return Agent(
            [(w1, b1), (w2, b2), (w3, b3)], output="clip", low=[-VOLTAGE], high=[VOLTAGE], meta=meta,
            input_offset=self.policy.input_offset, input_scale=self.policy.input_scale,
        )  # fmt: skip

    def _act(self, step: int, observation: Array) -> Array:
        voltage = self.policy(np.append(observation, self.reference(step)))
        return np.clip(voltage, -VOLTAGE, VOLTAGE)

    def _judge(self, step: int, observation: Array, action: Array) -> tuple[float, str | None]:
        reward = compiled.furuta_reward(
            observation[0], self.reference(step + 1), self.settings.reward_scale, self.settings.steps
        )
        return reward, self._reason(compiled.furuta_end(observation, self.settings), observation)

    def _reason(self, end: int, observation: Array) -> str | None:
        arm, pendulum, arm_rate, pendulum_rate = observation
        if end == compiled.FELL:
            return f"the pendulum tipped over ({math.degrees(pendulum):+.1f} deg)"
        if end == compiled.ARM_LIMIT:
            return f"the arm left its range ({math.degrees(arm):+.1f} deg)"
        if end == compiled.TOO_FAST:
            return f"too fast (arm {arm_rate:+.1f}, pendulum {pendulum_rate:+.1f} rad/s)"
        return None

    def _compiled(self, rng: np.random.Generator, record: bool, watch: Watch | None) -> Outcome:
        """The whole episode in one call; `watch` is asked once before and once after."""
        plant, s = self.plant, self.settings
        observation = plant.reset(rng)
        if watch is not None and (reason := watch(0.0, observation, np.zeros(1))):
            return Outcome(NAN, STOPPED, reason)
        log = np.empty((int(s.steps) if record else 0, 5))
        policy = self.policy
        value, steps, end = compiled.furuta_episode(
            plant.state, plant.memory, observation, plant.parameters, s,
            policy.input_offset, policy.input_scale, *policy.layers(), log,
        )  # fmt: skip
        plant.stop()
        time = steps / plant.rate
        trajectory = self._trajectory(log[:steps]) if record else None
        if watch is not None and (reason := watch(time, observation, np.zeros(1))):
            return Outcome(NAN, STOPPED, reason, steps, time, {}, trajectory)
        if end == compiled.BAD_VOLTAGE:
            reason = f"the policy's action at step {steps} is not finite"
            return Outcome(NAN, FAILED, reason, steps, time, {}, trajectory)
        if end == compiled.BAD_SENSOR:
            reason = f"the plant's observation at step {steps - 1} is not finite: {observation}"
            return Outcome(NAN, FAILED, reason, steps, time, {}, trajectory)
        reason = self._reason(end, observation)
        return Outcome(value, TERMINATED if reason else COMPLETED, reason or "", steps, time, {}, trajectory)

    def _trajectory(self, log: Array) -> Trajectory:
        time = np.arange(1, len(log) + 1) / self.plant.rate
        trajectory = Trajectory(time, {name: log[:, i].copy() for i, name in enumerate(COLUMNS)})
        self._add_reference(trajectory)
        return trajectory

    def _add_reference(self, trajectory: Trajectory) -> None:
        steps = range(1, len(trajectory.time) + 1)
        trajectory.columns["reference"] = np.array([self.reference(step) for step in steps])

    def plot(self, trajectories: dict[str, Trajectory], path: Path) -> None:
        """Arm against reference, pendulum and voltage over time."""
        from crbo_ros.tasks.furuta_plot import plot

        plot(trajectories, path)
