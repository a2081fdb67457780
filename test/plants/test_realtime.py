"""Pacing, and what ends a loop that cannot keep its pace."""

import time

import numpy as np
import pytest
from fake_qube import FakeClock

from crbo_ros.errors import PlantFailed
from crbo_ros.plants.qube.simulation import QubeSim
from crbo_ros.plants.realtime import Paced, Pacer


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


def test_a_gap_of_more_than_three_periods_is_an_error() -> None:
    clock = FakeClock()
    pacer = Pacer(250.0, max_gap=3.0, clock=clock, sleep=clock.sleep)
    clock.now += 0.015
    pacer.wait()
    clock.now += 0.017
    with pytest.raises(PlantFailed, match=r"13 ms late once \(limit: 3 periods of 4 ms\)"):
        pacer.wait()


@pytest.mark.parametrize("milliseconds", [5, 6, 8, 11, 16, 20, 41, 60, 95])
def test_a_loop_that_is_too_slow_is_found_however_slow_it_is(milliseconds: int) -> None:
    clock = FakeClock()
    pacer = Pacer(250.0, late_share=0.1, max_gap=3.0, max_stretch=1.05, clock=clock, sleep=clock.sleep)
    with pytest.raises(PlantFailed):  # noqa: PT012
        for _ in range(60):
            clock.now += 1e-3 * milliseconds
            pacer.wait()


def test_a_few_late_steps_are_forgiven() -> None:
    clock = FakeClock()
    pacer = Pacer(250.0, late_share=0.1, max_gap=3.0, max_stretch=1.05, clock=clock, sleep=clock.sleep)
    for _ in range(50):
        clock.now += 0.007
        for _ in range(20):
            pacer.wait()
    assert pacer.misses == 50


def test_an_episode_that_takes_longer_than_its_plant_is_found() -> None:
    clock = FakeClock()
    pacer = Pacer(250.0, max_stretch=1.05, clock=clock, sleep=clock.sleep)
    with pytest.raises(PlantFailed, match=r"s of the plant's time took .* \(limit: 1.05 times\)"):  # noqa: PT012
        for _ in range(1000):
            clock.now += 0.0082  # the grid begins anew each time: no step is far behind its own deadline
            pacer.wait()


def test_statistics_tell_the_median_the_tail_and_the_worst() -> None:
    clock = FakeClock()
    pacer = Pacer(100.0, clock=clock, sleep=clock.sleep)
    for k in range(200):
        clock.now += 0.0145 if k % 50 == 20 else 0.0
        pacer.wait()
    found = pacer.statistics()
    assert found["lateness_median_ms"] == pytest.approx(0.0, abs=0.1)
    assert 4.0 < found["lateness_p99_ms"] < 4.6
    assert found["lateness_max_ms"] == pytest.approx(4.5, abs=0.1)


def test_a_paced_simulation_keeps_to_the_wall_clock() -> None:
    plant = Paced(QubeSim("nominal"))
    with plant:
        plant.reset(np.random.default_rng(0))
        plant.step(np.zeros(1))  # compiled
        begun = time.monotonic()
        for _ in range(50):
            plant.step(np.zeros(1))
        assert 0.19 < time.monotonic() - begun < 3.0  # never faster; a busy machine may be slower
    assert "lateness_p99_ms" in plant.statistics()
