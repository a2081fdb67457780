"""A task's facts are read without making or connecting anything, and say what makes two experiments the same one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.problem import Problem, differences
from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput, UnknownName
from crbo_ros.policies.agent import Agent
from crbo_ros.registry import make_task, task_problem
from crbo_ros.tasks.base import COMPLETED, Outcome, Task

EXAMPLES = Path(__file__).parents[2] / "examples"
MADE = """
import sys
import crbo_ros.plants.base as base
made = []
plain = base.Connection.__new__
base.Connection.__new__ = lambda cls, *args, **options: made.append(cls.__name__) or plain(cls)
from crbo_ros.registry import task_problem
for name, plant, options in {asked!r}:
    task_problem(name, plant, **options)
print(made, sorted(set(sys.modules) & {{"pybullet", "rclpy", "gymnasium"}}))
"""
CUSTOM: dict[str, Any] = {"lower": [0, 0], "upper": [1, 2], "theta_0": [0.5, 0.5]}


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    layers = [(rng.normal(size=(6, 8)), rng.normal(size=8)), (0.1 * rng.normal(size=(8, 3)), np.zeros(3))]
    Agent(layers, output="greedy").save(tmp_path / "own.npz")
    return tmp_path / "own.npz"


def test_no_plant_is_made_and_no_simulator_or_ros_is_loaded() -> None:
    asked: list[Any] = [("furuta", plant, {}) for plant in ("stand_in", "qube_hardware", "qube_pal")]
    asked += [(name, None, {}) for name in ("basketball", "pendulum", "cartpole", "mountaincar")]
    asked += [("tuning", None, {"config": str(EXAMPLES / "pid.yaml")})]
    asked += [("arm", None, {"config": str(EXAMPLES / "arm.yaml")}), ("custom", None, CUSTOM)]
    ran = subprocess.run(
        [sys.executable, "-c", MADE.format(asked=asked)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "[] []\n", ran.stdout + ran.stderr


def test_an_environment_of_ones_own_is_looked_up_and_not_made(agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    monkeypatch.setattr(gymnasium, "make", lambda *_, **__: pytest.fail("an environment was made"))
    problem = task_problem("gym", env="Acrobot-v1", weights=str(agent))
    assert problem.episode_seconds == pytest.approx(500 / 15)
    short = task_problem("gym", env="Acrobot-v1", weights=str(agent), env_options={"max_episode_steps": 150})
    assert short.episode_seconds == pytest.approx(10.0)
    assert not problem.hardware
    with pytest.raises(InvalidInput, match="gymnasium cannot make 'Nothing-v0'"):
        task_problem("gym", env="Nothing-v0", weights=str(agent))


@pytest.mark.parametrize("name", ["furuta", "basketball", "pendulum", "cartpole", "mountaincar"])
def test_a_task_takes_its_facts_from_its_problem(name: str) -> None:
    problem, task = task_problem(name), make_task(name)
    np.testing.assert_array_equal(task.theta_0, problem.theta_0)
    np.testing.assert_array_equal(task.space.upper, problem.space.upper)
    for fact in ("gamma", "episodes", "episode_seconds", "hardware"):
        assert getattr(task, fact) == getattr(problem, fact)
    assert problem.policy


@pytest.mark.parametrize(
    ("task", "plant", "hardware"),
    [("furuta", "stand_in", False), ("furuta", "gym_brt_sim", False), ("furuta", "qube_hardware", True),
     ("furuta", "qube_pal", True), ("tuning", "ros_parameters", True), ("arm", "joint_trajectory", True),
     ("basketball", "pybullet", False), ("pendulum", "compiled", False)],
)  # fmt: skip
def test_what_can_hurt_somebody_says_so(task: str, plant: str, hardware: bool) -> None:
    file = {"tuning": "pid.yaml", "arm": "arm.yaml"}.get(task)
    problem = task_problem(task, plant, **({"config": EXAMPLES / file} if file else {}))
    assert (problem.plant, problem.hardware) == (plant, hardware)


def test_an_episode_is_as_long_as_it_may_take() -> None:
    assert task_problem("furuta").episode_seconds == 20.0
    assert task_problem("furuta", "qube_hardware").episode_seconds == 80.0  # up to 60 s to bring the pendulum up
    patient = task_problem("furuta", "qube_pal", plant_options={"reset_timeout": 90.0})
    assert patient.episode_seconds == 110.0
    fixed = task_problem("tuning", config=EXAMPLES / "pid_fixed_time.yaml")
    config = make_task("tuning", config=EXAMPLES / "pid_fixed_time.yaml").config
    assert fixed.episode_seconds > config.episode.delay + config.episode.seconds + config.episode.timeout
    arm = make_task("arm", config=EXAMPLES / "arm.yaml")
    limits = arm.plant.limits
    slowest = float(np.max((limits.upper - limits.lower) / (0.5 * limits.velocity)))  # rad, rad/s
    assert arm.episode_seconds > slowest + arm.dmp.duration


def changed(a: Problem, b: Problem) -> list[str]:
    return [words.split(":")[0] for words in differences(a.key, b.key)]


def test_the_identity_names_what_differs_and_only_that(tmp_path: Path, agent: Path) -> None:
    furuta = task_problem("furuta")
    assert changed(furuta, task_problem("furuta", realtime=True, stepped=True)) == []
    assert changed(furuta, task_problem("furuta", "nominal")) == ["plant"]
    assert changed(furuta, task_problem("furuta", "qube_pal")) == ["plant", "hardware"]
    assert changed(furuta, task_problem("furuta", plant_options={"noise": 0.1})) == ["options"]
    ball = task_problem("basketball")
    assert changed(ball, task_problem("basketball", gui=True)) == []
    assert changed(ball, task_problem("basketball", hoop=[1.0, 0.5, 0.6])) == ["options"]
    copy = tmp_path / "copy.npz"
    copy.write_bytes(agent.read_bytes())
    first = task_problem("gym", env="Acrobot-v1", weights=agent)
    assert changed(first, task_problem("gym", env="Acrobot-v1", weights=copy)) == []  # content, not path
    hidden = Agent.load(agent)
    hidden.layers[0][1][0] += 0.1  # theta_0 stays
    hidden.save(copy)
    assert changed(first, task_problem("gym", env="Acrobot-v1", weights=copy)) == ["policy"]


def test_a_changed_return_in_a_file_is_another_problem(tmp_path: Path) -> None:
    text = (EXAMPLES / "pid.yaml").read_text()
    original = task_problem("tuning", config=EXAMPLES / "pid.yaml")
    same, other = tmp_path / "same.yaml", tmp_path / "other.yaml"
    same.write_text("# moved, with a comment\n" + text)
    assert changed(original, task_problem("tuning", config=same)) == []
    other.write_text(re.sub(r"(?m)^  field: .*$", "  field: another", text))
    assert changed(original, task_problem("tuning", config=other)) == ["return"]


def test_an_unknown_option_or_plant_is_refused_by_name() -> None:
    for read in (make_task, task_problem):
        with pytest.raises(InvalidInput, match=r"task 'furuta' has no option 'relatime'; did you mean 'realtime'\?"):
            read("furuta", relatime=True)
        with pytest.raises(InvalidInput, match="task 'pendulum' has no option 'xyz'; it has weights, gamma"):
            read("pendulum", xyz=True)
        with pytest.raises(UnknownName, match="has no plant 'moon'"):
            read("furuta", "moon")


def test_custom_is_a_domain_without_a_runner_of_ours() -> None:
    problem = task_problem("custom", **CUSTOM)
    assert (problem.task, problem.plant, problem.space.dim) == ("custom", "own", 2)
    assert problem.hardware, "nobody here can know what it moves"
    assert not task_problem("custom", **CUSTOM, hardware=False).hardware
    with pytest.raises(InvalidInput, match="hardware: 'no' is not bool"):
        task_problem("custom", **CUSTOM, hardware="no")
    with pytest.raises(InvalidInput, match="needs the option upper"):
        task_problem("custom", lower=[0.0])
    with pytest.raises(InvalidInput, match="theta_0"):
        task_problem("custom", **{**CUSTOM, "theta_0": [3.0, 0.5]})
    with pytest.raises(InvalidInput, match="bring your own runner"):
        make_task("custom", **CUSTOM)


class Simple(Task):
    """As somebody writes who has read half a page: no problem of its own."""

    name = "simple"
    plants = ("simulation",)
    episode_seconds = 4.0
    incidental = ("log",)

    def __init__(self, plant: str | None = None, *, distance: float = 1.0, log: str = "") -> None:
        super().__init__(plant)
        self.space = Space([0.0], [distance])
        self.theta_0 = np.array([0.5])

    def rollout(self, theta: Any, rng: np.random.Generator, **_: Any) -> Outcome:
        return Outcome(1.0, COMPLETED)


def test_a_task_that_only_sets_attributes_has_a_problem_too() -> None:
    problem = Simple.problem(distance=2.0, log="here")
    assert (problem.task, problem.plant, problem.gamma, problem.episodes) == ("simple", "simulation", 0.5, 100)
    assert problem.episode_seconds == 4.0
    assert problem.hardware  # for all we know
    assert problem.options == {"distance": 2.0}
    assert json.dumps(problem.identity)
