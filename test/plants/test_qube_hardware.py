"""The hardware plant against fake drivers with the real signatures: start-up, faults, and 0 V on every way out."""

import math
import sys
from typing import Any

import numpy as np
import pytest
from fake_qube import FakeCard, InProcessHost, install_gym_brt, install_pal

from crbo_ros.compiled import wrap
from crbo_ros.errors import InvalidInput, MissingDependency, PlantError, PolicyFailed, UnknownName
from crbo_ros.plants.qube.hardware import QubeHardware
from crbo_ros.registry import make_task

RNG = np.random.default_rng(0)


def patient(card: Any) -> dict[str, Any]:
    """Options: fake time, and no process (test_host.py has those)."""
    InProcessHost.clock = card.clock
    return {"clock": card.clock, "make_host": InProcessHost}


def connect(monkeypatch: pytest.MonkeyPatch, driver: Any, card: Any = None, **options: Any) -> tuple[Any, ...]:
    """A plant on a fake card, and the card."""
    card = card or FakeCard()
    {"gym_brt": install_gym_brt, "pal": install_pal}[driver](monkeypatch, card)
    options = {**patient(card), **options}
    return QubeHardware(driver, **options), card


def drive(plant: Any, voltage: float, steps: int) -> None:
    for _ in range(steps):
        plant.step(np.array([voltage]))


@pytest.mark.parametrize("driver", ["gym_brt", "pal"])
def test_the_pendulum_is_swung_up_and_held_in_the_start_set_before_an_episode(
    monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    plant, card = connect(monkeypatch, driver)
    with plant:
        observation = plant.reset(RNG)
        assert np.all(np.abs(observation) < [math.radians(8.0), math.radians(3.0), 0.5, 0.5])
        truth = [card.plant.state[0], wrap(card.plant.state[1])]
        np.testing.assert_allclose(observation[:2], truth, atol=0.02)  # signs and units are ours
    assert card.voltages[-1] == 0.0
    assert card.closed
    assert max(map(abs, card.voltages)) <= 13.0


@pytest.mark.parametrize("driver", ["gym_brt", "pal"])
def test_the_operator_may_lift_the_pendulum_instead(monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    plant, card = connect(monkeypatch, driver, start="lift")
    card.lift_at = card.clock.now + 10.0
    with plant:
        assert abs(plant.reset(RNG)[1]) < math.radians(3.0)
        assert card.clock.now > 110.0


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["gym_brt", "pal"])
def test_a_whole_episode_runs_and_reports_its_timing(monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    card = FakeCard()
    {"gym_brt": install_gym_brt, "pal": install_pal}[driver](monkeypatch, card)
    options = patient(card)
    name = {"gym_brt": "qube_hardware", "pal": "qube_pal"}[driver]
    with make_task("furuta", plant=name, plant_options=options) as task:
        outcome = task.rollout(task.theta_0, RNG, record=True)
    assert (outcome.end, outcome.steps) == ("completed", 5000)
    assert 0.6 < outcome.value < 0.69
    assert outcome.statistics["deadline_misses"] == 0.0
    assert {"lateness_median_ms", "lateness_p99_ms", "lateness_max_ms"} <= set(outcome.statistics)
    assert np.max(np.abs(outcome.trajectory.columns["voltage"])) <= 3.0
    assert card.voltages[-1] == 0.0


def test_the_person_who_consents_is_told_the_voltages_and_when_they_end() -> None:
    words = QubeHardware("pal", max_voltage=4.0).limits_in_words()
    assert words == "up to 4 V, 13 V in the swing-up; 0 V after 12 ms without a command"


def test_voltages_are_clipped_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    plant, card = connect(monkeypatch, "gym_brt")
    with plant:
        plant.step(np.array([100.0]))
        assert card.voltages[-1] == 3.0


def test_a_voltage_that_is_not_finite_is_refused_and_zero_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    plant, card = connect(monkeypatch, "pal")
    with plant:
        plant.step(np.array([1.0]))
        with pytest.raises(PolicyFailed, match="finite"):
            plant.step(np.array([math.nan]))
        assert card.voltages[-1] == 0.0


def test_a_driver_that_raises_in_mid_episode_fails_the_episode_with_zero_volts(monkeypatch: pytest.MonkeyPatch) -> None:
    card = FakeCard()
    install_gym_brt(monkeypatch, card)
    options = patient(card)
    with make_task("furuta", plant="qube_hardware", plant_options=options) as task:

        def unplug(time: Any, observation: Any, action: Any) -> None:
            card.fail_at = len(card.voltages) if time == 1.0 else None

        outcome = task.rollout(task.theta_0, RNG, watch=unplug)
        assert (outcome.end, outcome.steps) == ("broken", 250)
        assert "unplugged" in outcome.reason
        assert math.isnan(outcome.value)
        assert card.voltages[-1] == 0.0
    assert card.closed


def test_a_reset_that_does_not_reach_the_start_set_times_out_in_zero_volts(monkeypatch: pytest.MonkeyPatch) -> None:
    plant, card = connect(monkeypatch, "pal", start="lift", reset_timeout=5.0)  # and nobody lifts
    with plant:
        with pytest.raises(PlantError, match=r"not ready within 5 s \(last phase: lift\)"):
            plant.reset(RNG)
        assert card.voltages[-1] == 0.0


def test_a_stop_during_the_start_up_takes_effect_within_one_period(monkeypatch: pytest.MonkeyPatch) -> None:
    card = FakeCard()
    install_gym_brt(monkeypatch, card)
    options = patient(card)
    seen, given = [], []

    def watch(time: Any, observation: Any, action: Any) -> str | None:
        seen.append(time)
        given.append(len(card.voltages))
        return "operator" if len(seen) == 100 else None

    with make_task("furuta", plant="qube_hardware", plant_options=options) as task:
        outcome = task.rollout(task.theta_0, RNG, watch=watch)
        assert (outcome.end, outcome.reason, outcome.steps) == ("stopped", "operator", 0)
        assert card.voltages[-1] == 0.0
        assert max(map(abs, card.voltages[given[-1] :])) == 0.0
    assert set(seen) == {-1.0}


def test_wrong_signs_are_found_before_the_swing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    plant, card = connect(monkeypatch, "pal")
    card.arm_sign = 1.0
    with plant:
        with pytest.raises(PlantError, match="direction check"):
            plant.reset(RNG)
        assert card.voltages[-1] == 0.0
        assert max(map(abs, card.voltages)) <= 3.0


def test_frozen_encoders_end_the_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    plant, card = connect(monkeypatch, "gym_brt")
    with plant:
        plant.step(np.zeros(1))
        card.frozen = True
        with pytest.raises(PlantError, match="nothing moved"):
            drive(plant, 2.0, 200)
        assert card.voltages[-1] == 0.0


@pytest.mark.parametrize("driver", ["gym_brt", "pal"])
def test_too_many_deadline_misses_end_the_episode(monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    card = FakeCard()
    {"gym_brt": install_gym_brt, "pal": install_pal}[driver](monkeypatch, card)
    plant = QubeHardware(driver, **patient(card))
    with plant:
        plant.step(np.zeros(1))
        card.slow = 0.003 if driver == "gym_brt" else 0.007
        with pytest.raises(PlantError, match="control steps were late"):
            drive(plant, 0.0, 100)
        assert plant.statistics()["deadline_misses"] > 25
        assert card.voltages[-1] == 0.0


def test_an_error_inside_the_with_block_ends_in_zero_volts(monkeypatch: pytest.MonkeyPatch) -> None:
    plant, card = connect(monkeypatch, "gym_brt")
    with pytest.raises(ZeroDivisionError):  # noqa: PT012
        with plant:
            plant.step(np.array([2.0]))
            1 / 0
    assert card.voltages[-1] == 0.0
    assert card.closed


@pytest.mark.parametrize("driver", ["gym_brt", "pal"])
def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, driver: str) -> None:
    for name in ("gym_brt", "gym_brt.quanser", "pal", "pal.products", "pal.products.qube"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of it fails
    with pytest.raises(MissingDependency, match="gym-brt" if driver == "gym_brt" else "Quanser's Python packages"):
        QubeHardware(driver).connect()


def test_a_card_that_pal_could_not_open_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    card = FakeCard()
    install_pal(monkeypatch, card, valid=False)
    with pytest.raises(PlantError, match="plugged in"):
        QubeHardware("pal", **patient(card)).connect()


def test_unknown_drivers_and_start_modes_are_refused() -> None:
    with pytest.raises(UnknownName, match="gym_brt, pal"):
        QubeHardware("usb")
    with pytest.raises(InvalidInput, match="swing_up, lift"):
        QubeHardware(start="throw")


def test_gym_brts_simulator_is_seeded_by_our_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    install_gym_brt(monkeypatch, FakeCard())
    with make_task("furuta", plant="gym_brt_sim") as task:
        first, second = (task.rollout(task.theta_0, np.random.default_rng(3)) for _ in range(2))
    assert first == second
    assert first.counts
