"""A task as the loop's rig: what its thread asks before every action. No ROS."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from ros_helpers import wait_until

from crbo_ros.core.space import Space
from crbo_ros.core.trial import theta_hash
from crbo_ros.nodes.rig import TaskRig
from crbo_ros.plants.qube.simulation import QubeSim
from crbo_ros.plants.realtime import Paced
from crbo_ros.protocol.gate import HELD, LOST, QUIT, Gate, Permit
from crbo_ros.protocol.ports import Progress, Safe, Stage
from crbo_ros.protocol.records import APPROVED, Offer, Verdict
from crbo_ros.tasks.base import BROKEN, COMPLETED, STOPPED, Outcome, Task

THETA = np.array([0.5])
PATIENT = 20.0  # s, for machines that stall
ENDLESS = 20_000  # steps: until it is stopped


class Movable(Task):
    """Moves towards its start for a while, waits there, then takes 20 steps (or as many as it is told)."""

    name, plants, gamma = "movable", ("none",), 0.5
    space, theta_0 = Space([0.0], [1.0]), THETA

    def __init__(self, holds: bool, steps: int = 20) -> None:
        self.holds_start, self.steps, self.failure = holds, steps, ""
        self.events: list[Any] = []
        self.plant_name = "none"

    def rollout(self, theta: Any, rng: Any, *, record: bool = False, watch: Any = None) -> Outcome:
        self.events, self.drawn = [], rng.random()
        for step in range(-5, self.steps):
            if step == 0 and self.failure == "raises":
                raise RuntimeError("a loose cable")
            if reason := watch(float(step), THETA, THETA):
                return Outcome(float("nan"), STOPPED, reason, max(step, 0))
            self.events.append(step)
            time.sleep(0.005)
        return Outcome(0.7, COMPLETED, "", 20, statistics={"lateness_max_ms": 3.0, "deadline_misses": 2.0})

    def stop(self) -> Safe | None:
        if self.failure == "stop raises":
            raise RuntimeError("no answer from the card")
        return None if self.failure == "silent" else Safe(True, "0 V")


class Setting:
    """A rig with a gate that somebody keeps open."""

    def __init__(self, task: Task) -> None:
        self.gate, self.alive, self.armed, self.over = Gate(PATIENT), True, True, threading.Event()
        self.rig = TaskRig(task, self.gate, 1, lambda: None, clock=time.monotonic)
        self.verdict = Verdict(APPROVED, "e", 0, theta_hash(THETA), "/r", "", "m", valid_for=PATIENT)
        self.gate.beat(time.monotonic() - 1.0, "m", True)
        self.gate.beat(time.monotonic(), "m", True)
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        while not self.over.wait(0.03):
            if self.alive:
                self.gate.beat(time.monotonic(), "m", self.armed, "" if self.armed else "smoke")

    def prepare(self, id: int = 0, kind: str = "start") -> None:
        self.rig.prepare(Offer("x", "e", "", id, THETA, theta_hash(THETA), kind))

    def begin(self, age: float = 0.0) -> None:
        self.rig.begin(Permit(self.gate, self.verdict, time.monotonic() - age))

    def until(self, *stages: Stage) -> Stage:
        wait_until(lambda: self.rig.look().stage in stages, 60.0, f"one of {stages}")
        return self.rig.look().stage


@pytest.fixture
def make() -> Iterator[Callable[[Task], Setting]]:
    made: list[Setting] = []

    def setting(task: Task) -> Setting:
        made.append(Setting(task))
        return made[-1]

    yield setting
    for one in made:
        one.over.set()
        one.rig.close(1.0)


def test_a_task_that_holds_its_start_moves_there_and_waits_for_its_approval(make: Any) -> None:
    task = Movable(holds=True)
    setting = make(task)
    setting.prepare()
    assert setting.until(Stage.PREPARED) is Stage.PREPARED
    time.sleep(0.1)
    assert task.events == [-5, -4, -3, -2, -1]
    setting.begin()
    assert setting.until(Stage.ENDED) is Stage.ENDED
    ran = setting.rig.look().ran
    assert (ran.outcome, ran.value, ran.deadline_misses, ran.max_lateness) == (COMPLETED, 0.7, 2, 0.003)
    assert setting.rig.safe().confirmed


def test_any_other_task_does_not_even_reset_before_it_is_approved(make: Any) -> None:
    task = Movable(holds=False)
    setting = make(task)
    setting.prepare()
    assert setting.until(Stage.PREPARED) is Stage.PREPARED
    time.sleep(0.05)
    assert task.events == []
    setting.begin()
    assert setting.until(Stage.ENDED) is Stage.ENDED
    assert len(task.events) == 25


@pytest.mark.parametrize(("hardware", "kinds", "alike"), [(False, ("old", "new"), True), (True, ("old", "new"), False),
                                                          (False, ("acquisition", "acquisition"), False)])  # fmt: skip
def test_old_and_new_policy_start_from_the_same_state_where_that_is_simulated(
    make: Any, hardware: bool, kinds: tuple[str, str], alike: bool
) -> None:
    task = Movable(holds=False)
    task.hardware = hardware
    setting, drawn = make(task), []
    for id, kind in zip((6, 7), kinds, strict=True):
        setting.prepare(id, kind)
        setting.until(Stage.PREPARED)
        setting.begin()
        setting.until(Stage.ENDED)
        drawn.append(task.drawn)
    assert (drawn[0] == drawn[1]) is alike


@pytest.mark.parametrize("holds", [True, False])
def test_an_approval_that_is_too_old_when_the_plant_would_act_moves_nothing(make: Any, holds: bool) -> None:
    task = Movable(holds)
    setting = make(task)
    setting.prepare()
    setting.until(Stage.PREPARED)
    setting.begin(age=PATIENT + 0.1)
    assert setting.until(Stage.ENDED) is Stage.ENDED
    assert (setting.rig.look().ran.outcome, setting.rig.look().ran.stopped_by) == (STOPPED, LOST)
    assert max(task.events, default=-1) < 0


@pytest.mark.parametrize(("how", "kind"), [("dead", LOST), ("held", HELD), ("quit", QUIT)])
def test_who_stopped_a_running_policy_is_told(make: Any, how: str, kind: str) -> None:
    task = Movable(holds=True, steps=ENDLESS)
    setting = make(task)
    setting.prepare()
    setting.until(Stage.PREPARED)
    setting.begin()
    wait_until(lambda: max(task.events) >= 0, what="the first action")
    if how == "dead":
        setting.alive = False
        setting.gate.beat(time.monotonic(), "another", True)
    elif how == "held":
        setting.armed = False
    else:
        setting.rig.stop(QUIT, "told to end")
    assert setting.until(Stage.ENDED) is Stage.ENDED
    ran = setting.rig.look().ran
    assert (ran.outcome, ran.stopped_by) == (STOPPED, kind)


@pytest.mark.parametrize("how", ["held", "another monitor", "quit"])
def test_a_stop_costs_at_most_one_control_period(make: Any, how: str) -> None:
    """Whenever it comes: at most the action that had been permitted when it was heard is still taken."""
    task = Movable(holds=False, steps=ENDLESS)
    setting = make(task)
    setting.alive = False  # the test beats
    for repeat, wait in enumerate(np.random.default_rng(1).uniform(0.0, 0.05, 12)):
        setting.rig.gate = setting.gate = Gate(PATIENT)
        setting.gate.beat(time.monotonic() - 1.0, "m", True)
        setting.gate.beat(time.monotonic(), "m", True)
        task.events = []
        setting.prepare(repeat)
        setting.begin()
        wait_until(lambda: task.events, what="the first action")
        time.sleep(wait)
        if how == "held":
            setting.gate.beat(time.monotonic(), "m", False, "smoke")
        elif how == "another monitor":
            setting.gate.beat(time.monotonic(), "another", True)
        else:
            setting.rig.stop(QUIT, "told to end")
        taken = len(task.events)
        assert setting.until(Stage.ENDED) is Stage.ENDED
        assert setting.rig.look().ran.outcome == STOPPED
        assert len(task.events) - taken <= 1


def test_an_unexpected_error_is_the_plants_not_the_policys(make: Any) -> None:
    task = Movable(holds=True)
    task.failure = "raises"
    setting = make(task)
    setting.prepare()
    assert setting.until(Stage.BROKEN, Stage.ENDED) is Stage.BROKEN
    assert "a loose cable" in setting.rig.look().reason


def test_a_stop_that_fails_is_not_safe(make: Any) -> None:
    task = Movable(holds=False)
    task.failure = "stop raises"
    setting = make(task)
    setting.prepare()
    setting.begin()
    setting.until(Stage.ENDED)
    safe = setting.rig.safe()
    assert (safe.confirmed, "no answer from the card" in safe.reason) == (False, True)


def test_hardware_that_does_not_say_what_its_stop_measured_is_not_safe(make: Any) -> None:
    task = Movable(holds=False)
    task.failure = "silent"
    setting = make(task)
    setting.prepare()
    setting.begin()
    setting.until(Stage.ENDED)
    assert setting.rig.safe() == Safe(False, "task movable does not say what its stop measured")


def test_a_plant_that_broke_is_not_the_policys_end(make: Any) -> None:
    task = Movable(holds=False)
    task.rollout = lambda *_, **__: Outcome(float("nan"), BROKEN, "no joint states")  # type: ignore[method-assign]
    setting = make(task)
    setting.prepare()
    setting.begin()
    assert setting.until(Stage.ENDED, Stage.BROKEN) is Stage.BROKEN
    assert setting.rig.look() == Progress(Stage.BROKEN, None, "no joint states")


class Hosted:
    """A plant whose stop may be called from any thread."""

    hosted = is_hardware = True

    def __init__(self) -> None:
        self.stopped_by: list[str] = []

    def cut(self) -> None:
        self.stopped_by.append("cut")

    def stop(self) -> Safe:
        self.stopped_by.append(threading.current_thread().name)
        return Safe(True, "0 V")


def test_a_policy_that_hangs_does_not_keep_a_hosted_plant_from_being_made_safe(make: Any) -> None:
    task, started, released = Movable(holds=False), threading.Event(), threading.Event()

    def hang(*_: Any, **__: Any) -> Outcome:
        started.set()
        released.wait(60.0)
        return Outcome(float("nan"), STOPPED)

    task.plant = Hosted()
    task.stop = lambda: task.plant.stop()  # type: ignore[method-assign]
    task.rollout = hang  # type: ignore[method-assign]
    setting = make(task)
    setting.prepare()
    setting.begin()
    assert started.wait(30.0)
    setting.rig.stop(HELD, "stop was called")
    deadline = time.monotonic() + 30.0
    while not setting.rig.safe().confirmed and time.monotonic() < deadline:
        time.sleep(0.01)
    assert setting.rig.safe() == Safe(True, "0 V")
    assert task.plant.stopped_by[:2] == ["cut", "rig-stop"]
    assert setting.rig.look().stage is Stage.RUNNING, "the policy's thread has not come back, and that is said"
    released.set()


def test_a_paced_simulation_that_waits_for_its_approval_is_not_late() -> None:
    asked = [0]

    def ready() -> bool:
        asked[0] += 1
        return asked[0] > 20

    plant = Paced(QubeSim())
    plant.reset_ready = ready
    with plant:
        plant.reset(np.random.default_rng(0))
        plant.step(np.zeros(1))
        plant.reset(np.random.default_rng(0))
        assert plant.pacer.steps == 0
    assert asked[0] >= 21
