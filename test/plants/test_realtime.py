"""Pacing, deadline metrics and calls that cannot hang."""

import threading
import time

import numpy as np
import pytest
from fake_qube import FakeClock

from crbo_ros.errors import PlantError
from crbo_ros.plants.qube.simulation import QubeSim
from crbo_ros.plants.realtime import DriverThread, Paced, Pacer


def test_a_late_step_does_not_shift_the_deadlines_after_it() -> None:
    clock = FakeClock()
    pacer = Pacer(100.0, clock=clock, sleep=clock.sleep)
    for k in range(1, 11):
        if k == 4:
            clock.now += 0.013  # 3 ms after its deadline
        pacer.wait()
    assert clock.now == pytest.approx(100.0 + 0.1, abs=1e-9)
    assert pacer.statistics()["deadline_misses"] == 0.0
    assert pacer.statistics()["lateness_max_ms"] == pytest.approx(3.0, abs=1e-6)


def test_after_a_long_gap_the_grid_starts_anew() -> None:
    clock = FakeClock()
    pacer = Pacer(100.0, clock=clock, sleep=clock.sleep)
    clock.now += 0.5
    pacer.wait()
    resumed = clock.now
    pacer.wait()
    assert clock.now == pytest.approx(resumed + 0.01)
    assert pacer.statistics()["deadline_misses"] == 1.0


def test_a_gap_beyond_the_limit_is_an_error() -> None:
    clock = FakeClock()
    pacer = Pacer(100.0, max_gap=0.1, clock=clock, sleep=clock.sleep)
    clock.now += 0.2
    with pytest.raises(PlantError, match="190 ms late"):
        pacer.wait()


def test_misses_are_forgiven_after_a_second() -> None:
    clock = FakeClock()
    pacer = Pacer(100.0, max_misses=3, clock=clock, sleep=clock.sleep)
    for _ in range(20):
        clock.now += 0.018
        pacer.wait()
        for _ in range(50):
            pacer.wait()
    assert pacer.misses == 20


def test_a_paced_simulation_keeps_to_the_wall_clock() -> None:
    plant = Paced(QubeSim("nominal"))
    with plant:
        plant.reset(np.random.default_rng(0))
        plant.step(np.zeros(1))  # compiled
        begun = time.monotonic()
        for _ in range(50):
            plant.step(np.zeros(1))
        assert 0.19 < time.monotonic() - begun < 3.0  # never faster; a busy machine may be slower
    assert "jitter_ms" in plant.statistics()


def test_a_call_that_hangs_is_given_up_on_and_the_worker_refuses_more() -> None:
    worker, never = DriverThread("test"), threading.Event()
    assert worker.call(lambda: 5, 1.0, "five") == 5
    with pytest.raises(PlantError, match=r"opening: no answer from the driver within 0\.02 s"):
        worker.call(lambda: never.wait(5.0), 0.02, "opening")
    with pytest.raises(PlantError, match="stuck"):
        worker.call(lambda: 5, 1.0, "five")
    never.set()


def test_an_error_in_the_worker_reaches_the_caller_with_its_cause() -> None:
    worker = DriverThread("test")
    with pytest.raises(PlantError, match="reading: ZeroDivisionError") as caught:
        worker.call(lambda: 1 / 0, 1.0, "reading")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    worker.end()
