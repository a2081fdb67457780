"""A movement of an arm behind ros2_control, improved by trial: a DMP to its joint_trajectory_controller.

    ./crbo run arm --config examples/arm.yaml --episodes 30

theta is the primitive's forcing weights and goals (policies/dmp.py), theta_0 a demonstration (`crbo demo`) or a
straight movement. The return comes from your own nodes, as in the tuning task. The file's form: docs/INTEGRATION.md.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.problem import Problem, digest
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput, PlantError, PolicyFailed
from crbo_ros.plants.ros.config import (
    ReturnConfig,
    SafetySignal,
    read_gamma,
    read_return,
    read_safety,
)
from crbo_ros.plants.ros.episode import FAREWELL, RosReturn
from crbo_ros.plants.ros.joint_trajectory import ACCEPTANCE, JointTrajectoryArm, Tolerance, move_seconds
from crbo_ros.plants.ros.safety_signals import SafetyListener
from crbo_ros.plants.trajectory import ArmLimits, minimum_jerk, slowed, to_rest
from crbo_ros.policies.dmp import DMP
from crbo_ros.policies.exported import Movement
from crbo_ros.ros.link import Stopped
from crbo_ros.tasks.base import BROKEN, COMPLETED, FAILED, NAN, STOPPED, Outcome, Task, Trajectory, Watch, plain
from crbo_ros.tasks.signals import signals_of
from crbo_ros.yaml_section import Section, read_yaml

RATE = 100.0  # Hz, of the planned trajectory
LONGEST = 600.0  # s of a movement
RETURN_TIMEOUT = 5.0  # s for the return's answer


@dataclass(frozen=True)
class ArmFile:
    """What the YAML file says."""

    limits: ArmLimits
    dmp: DMP
    forcing: float  # range of forcing weights
    goal: float  # range of goals, rad
    return_seconds: float  # s of the way back to the start pose, at least
    stretch: float
    gamma: float
    returns: ReturnConfig
    controller: dict[str, Any]  # of JointTrajectoryArm
    safety: tuple[SafetySignal, ...] = ()
    robot: str = ""  # its serial number or name, for the record


class Arm(Task):
    """`config`: the YAML file.

    A trajectory that is too fast is slowed down by up to `stretch`; one that violates the limits all the same is
    refused before anything is sent.
    """

    name = "arm"
    plants = ("joint_trajectory",)
    j_min_drop = 0.5
    episodes = 50
    holds_start = True

    def __init__(self, plant: str | None = None, *, config: str | Path | None = None) -> None:
        file = read_file(config)
        super().__init__(plant, self._facts(plant, file))
        self.dmp, self.return_seconds, self.stretch = file.dmp, file.return_seconds, file.stretch
        self.plant = JointTrajectoryArm(
            file.limits, **file.controller, log=lambda text: print(f"arm: {text}", flush=True)
        )
        self.plant.serial = file.robot
        self.returns = RosReturn(self.plant.link, file.returns)
        self.safety = SafetyListener(self.plant.link, file.safety)
        self.signals, names = signals_of(file.safety)
        self.columns = (*self.plant.joint_names, *names)
        self._subscribed = False

    @classmethod
    def problem(cls, plant: str | None = None, *, config: str | Path | None = None) -> Problem:
        """The facts, from the file alone."""
        return cls._facts(plant, read_file(config))

    @classmethod
    def _facts(cls, plant: str | None, file: ArmFile) -> Problem:
        dmp, limits, joints = file.dmp, file.limits, file.limits.joints
        theta_0 = dmp.get_weights()
        half = np.full(dmp.n_weights, file.forcing)
        half[-len(joints) :] = file.goal
        names = [f"{joint} forcing {i}" for joint in joints for i in range(1, dmp.n_bases + 1)]
        names += [f"{joint} goal" for joint in joints]
        back = move_seconds(limits, limits.upper - limits.lower, file.return_seconds)  # from anywhere to the start
        answers = 2.0 * (ACCEPTANCE + file.controller["tolerance"].settle) + file.returns.longest(RETURN_TIMEOUT)
        return Problem(
            cls.name,
            cls.plant_of(plant),
            Space(theta_0 - half, theta_0 + half, names=names),
            theta_0,
            gamma=file.gamma,
            episodes=cls.episodes,
            episode_seconds=back + file.stretch * dmp.duration + answers + FAREWELL,
            hardware=True,  # for all we know
            j_min_drop=cls.j_min_drop,
            options={
                "joints": list(joints),
                "topic": file.controller["topic"],
                "stretch": file.stretch,
                **({"robot": file.robot} if file.robot else {}),
            },
            policy=digest(dmp.fixed()),
            returns=digest(plain(asdict(file.returns))),
        )

    def connect(self) -> None:
        super().connect()
        if not self._subscribed:
            self.returns.connect()
            self.safety.connect()
            self._subscribed = True

    def close(self) -> None:
        self._subscribed = False
        super().close()

    def exported(self, theta: ArrayLike) -> Movement:
        """The movement as it is sent, slowed down where the limits ask for it."""
        planned = slowed(to_rest(self.dmp.rollout(self.space.check(theta))), self.plant.limits, self.stretch)
        return Movement(tuple(self.plant.limits.joints), planned)

    def rollout(
        self, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
    ) -> Outcome:
        """Go to the start pose, run the movement, ask for the return. `rng` is not used: the arm has its own."""
        theta = self.space.check(theta)
        trajectory = slowed(to_rest(self.dmp.rollout(theta)), self.plant.limits, self.stretch)
        began = time.monotonic()
        if violation := self.plant.limits.violation(trajectory):
            return Outcome(NAN, FAILED, f"refused: {violation}")

        def ask(seconds: float) -> None:
            if watch is not None and (reason := watch(seconds, self.plant.position(), self.safety.largest())):
                raise Stopped(reason)

        def poll() -> None:
            ask(time.monotonic() - began)
            self.safety.check()

        def without(end: str, why: Exception) -> Outcome:
            heard = self.safety.heard(complete=False)
            return Outcome(NAN, end, str(why), 0, time.monotonic() - began, signals=heard)

        self.safety.reset()
        try:
            self.connect()
            self.plant.move_to(trajectory.position[0], self.return_seconds, lambda: ask(-1.0))
            ask(0.0)  # at the start pose: the movement's own approval
            began = time.monotonic()
            self.returns.begin()
            self.safety.begin()
            times, path = self.plant.execute(trajectory, poll)
            value = self.returns.end(None, RETURN_TIMEOUT, poll)
            heard = self.safety.heard()
        except Stopped as reason:
            return without(STOPPED, reason)
        except PolicyFailed as error:
            return without(FAILED, error)
        except PlantError as error:
            return without(BROKEN, error)
        finally:
            self.safety.end()
            self.returns.abandon()
            self.plant.stop()
        columns = {name: path[:, j] for j, name in enumerate(self.plant.joint_names)} if record else {}
        seen = Trajectory(times, columns) if record else None
        return Outcome(value, COMPLETED, "", len(times), float(times[-1]), {}, seen, heard)


def read_file(config: str | Path | None) -> ArmFile:
    """The configuration, or InvalidInput with file, line and field."""
    if config is None:
        raise InvalidInput("task arm needs a YAML file: --config FILE (see examples/arm.yaml)")
    root = read_yaml(config)
    limits, controller = read_limits(root), read_controller(root)
    dmp, forcing, goal = read_policy(root.required("policy"), limits, Path(config).parent)
    file = ArmFile(
        limits,
        dmp,
        forcing,
        goal,
        root.seconds("return_seconds", 2.0),
        root.number("stretch", 1.0, minimum=1.0, maximum=100.0),
        read_gamma(root),
        read_return(root.required("return"), False),
        controller,
        read_safety(root, controller["states"], limits.joints),
        root.text("robot", ""),
    )
    root.close()
    return file


def read_limits(root: Section) -> ArmLimits:
    joints = root.texts("joints")
    section, n = root.required("limits"), len(joints)
    lower, upper, velocity = (section.numbers(name, length=n) for name in ("lower", "upper", "velocity"))
    acceleration, effort = (section.numbers(name, None, length=n) for name in ("acceleration", "effort"))
    try:
        return ArmLimits(tuple(joints), lower, upper, velocity, acceleration, effort)  # type: ignore[arg-type]
    except InvalidInput as error:
        raise section.error(str(error)) from None


def read_policy(section: Section, limits: ArmLimits, folder: Path) -> tuple[DMP, float, float]:
    """(primitive, range of forcing weights, range of goals in rad)."""
    forcing = section.number("forcing_range", 100.0, positive=True)
    goal = section.number("goal_range", 0.2, positive=True)
    n = len(limits.joints)
    if section.has("demonstration"):
        try:
            dmp, _ = DMP.load(folder / section.text("demonstration"), rate=RATE)
        except InvalidInput as error:
            raise section.error(str(error), "demonstration") from None
        if dmp.n_joints != n:
            raise section.error(f"has {dmp.n_joints} joints, `joints` names {n}", "demonstration")
    else:
        start, end = section.numbers("start", length=n), section.numbers("goal", length=n)
        seconds = section.number("duration", positive=True, maximum=LONGEST)
        line = minimum_jerk(start, end, seconds, RATE)
        bases = int(section.number("bases", 10.0, minimum=2.0, maximum=1000.0))
        dmp = DMP(start, n_bases=bases, duration=seconds, rate=RATE)
        dmp.fit(line.time, line.position)
    if violation := limits.violation(to_rest(dmp.rollout())):
        raise section.error(f"the movement to start from is beyond the limits: {violation}")
    return dmp, forcing, goal


def read_controller(root: Section) -> dict[str, Any]:
    """Topics, tolerance and rate of the arm behind ros2_control."""
    controller, tolerance = root.required("controller"), root.section("tolerance")
    default = Tolerance()
    if tolerance is not None:
        default = Tolerance(
            **{
                name: tolerance.number(name, getattr(default, name), positive=True)
                for name in ("path", "goal", "lag", "settle")
            }
        )
    return {
        "topic": controller.absolute_name("topic"),
        "states": controller.absolute_name("states", "/joint_states"),
        "action": controller.absolute_name("action", ""),
        "manager": controller.absolute_name("manager", ""),
        "tolerance": default,
        "rate": controller.number("rate", 50.0, positive=True, maximum=10_000.0),
    }
