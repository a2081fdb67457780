"""The simulated Qube against facts that do not come from its own code."""

import math
from typing import Any

import numpy as np
import pytest

from crbo_ros.compiled import qube_acceleration, qube_integrate
from crbo_ros.errors import InvalidInput, PlantError, UnknownName
from crbo_ros.plants.qube.model import energy, linearise, nominal, stand_in
from crbo_ros.plants.qube.simulation import QubeSim

SWINGING = np.array([0.3, 2.0, 1.0, -3.0])


def frictionless() -> Any:
    """Nothing that takes energy out or brings it in: motor off, no friction (back-EMF is a brake too)."""
    return nominal()._replace(Dr=0.0, Dp=0.0, kt=0.0, km=0.0)


def simulate(x: Any, p: Any, seconds: float, substeps_per_second: Any, voltage: float = 0.0) -> Any:
    x = np.array(x, dtype=float)
    qube_integrate(x, voltage, p, seconds, int(seconds * substeps_per_second))
    return x


def test_energy_is_conserved_with_friction_and_motor_off() -> None:
    p = frictionless()
    before = energy(SWINGING, p)
    for seconds in (0.5, 1.0, 5.0):
        after = energy(simulate(SWINGING, p, seconds, 2000), p)
        assert after == pytest.approx(before, abs=1e-9 * abs(before) + 1e-12)


def test_energy_is_conserved_with_the_cables_spring() -> None:
    p = frictionless()._replace(cable_stiffness=5e-3, cable_bias=1e-3)
    assert energy(simulate(SWINGING, p, 2.0, 2000), p) == pytest.approx(energy(SWINGING, p), rel=1e-8)


@pytest.mark.parametrize("change", [{"Dr": 2.7e-4}, {"Dp": 5e-5}, {"kt": 0.042, "km": 0.042}, {"arm_coulomb": 1e-3}])
def test_each_kind_of_damping_takes_energy_out(change: dict[str, Any]) -> None:
    p = frictionless()._replace(**change)
    energies = [energy(simulate(SWINGING, p, seconds, 2000), p) for seconds in (0.0, 0.5, 1.0, 2.0)]
    assert np.all(np.diff(energies) < 0.0)


def test_the_linearisation_at_the_upright_has_quansers_published_entries() -> None:
    a, b = linearise(nominal())
    assert a[2, 1] == pytest.approx(149.2751, abs=1e-4)
    assert a[3, 1] == pytest.approx(261.6091, abs=1e-4)
    assert abs(b[2, 0]) == pytest.approx(49.7275, abs=1e-4)
    assert abs(b[3, 0]) == pytest.approx(49.1493, abs=1e-4)


def test_a_positive_voltage_pushes_the_arm_to_negative_angles() -> None:
    assert qube_acceleration(0.0, 0.0, 0.0, 0.0, 1.0, nominal())[0] < 0.0


def test_the_back_emf_brakes() -> None:
    """gym-brt's simulator gives -6.0 rad/s^2 here; the physics is -47.7."""
    p = nominal()
    braked, _ = qube_acceleration(0.0, 0.0, 10.0, 0.0, 0.0, p)
    without, _ = qube_acceleration(0.0, 0.0, 10.0, 0.0, 0.0, p._replace(km=0.0))
    assert braked == pytest.approx(-47.74, abs=0.05)
    assert braked < without < 0.0


@pytest.mark.parametrize("parameters", [nominal(), stand_in()])
def test_hanging_is_stable_and_upright_is_not(parameters: Any) -> None:
    p = parameters._replace(arm_coulomb=0.0, pendulum_coulomb=0.0, cable_bias=0.0)  # the linear part
    hanging = np.linalg.eigvals(linearise(p, math.pi)[0])
    upright = np.linalg.eigvals(linearise(p, 0.0)[0])
    assert np.max(hanging.real) < 1e-6  # the arm's angle itself is free without a cable: one zero
    assert np.sum(upright.real > 1.0) == 1
    x = simulate([0.0, math.pi - 0.5, 0.0, 0.0], p, 30.0, 500)
    assert abs(x[1] - math.pi) < 0.01


def test_the_small_swing_has_the_textbook_period() -> None:
    """With the arm held by a huge inertia: a rod about its end, T = 2 pi sqrt(2 Lp / (3 g))."""
    p = frictionless()._replace(Jr=1e3)
    period = 2.0 * math.pi * math.sqrt(2.0 * p.Lp / (3.0 * p.g))
    x = simulate([0.0, math.pi - 1e-3, 0.0, 0.0], p, period, 20000)
    assert x[1] - math.pi == pytest.approx(-1e-3, rel=1e-4)
    half = simulate([0.0, math.pi - 1e-3, 0.0, 0.0], p, period / 2.0, 20000)
    assert half[1] - math.pi == pytest.approx(1e-3, rel=1e-4)


def test_halving_the_step_converges_with_fourth_order() -> None:
    p = nominal()
    exact = simulate(SWINGING, p, 1.0, 16000)
    errors = [np.linalg.norm(simulate(SWINGING, p, 1.0, n) - exact) for n in (250, 500, 1000)]
    ratios = np.array(errors[:-1]) / errors[1:]
    assert np.all((ratios > 12.0) & (ratios < 20.0))


@pytest.mark.parametrize("parameters", ["nominal", "stand_in"])
def test_the_integrators_error_over_a_balanced_episode_is_far_below_an_encoder_tick(parameters: str) -> None:
    """Two substeps against sixteen, in closed loop, while nothing chaotic happens."""
    ends = []
    for substeps in (2.0, 16.0):
        plant = QubeSim(parameters)
        smooth = {
            "substeps": substeps,
            "encoder_counts": 0.0,
            "filter_bandwidth": 0.0,
            "latency": 0.0,
            "dead_band": 0.0,
        }
        plant.parameters = plant.parameters._replace(**smooth)
        observation = plant.reset_to(np.array([0.2, 0.02, 0.0, 0.0]))
        for _ in range(1000):
            observation = plant.step(np.array([observation @ [-2.0, 35.0, -1.5, 3.0]]))
        ends.append(plant.state.copy())
    np.testing.assert_allclose(ends[0], ends[1], atol=2e-5)


def test_angles_are_whole_encoder_ticks_on_the_stand_in() -> None:
    plant = QubeSim("stand_in")
    observation = plant.reset(np.random.default_rng(0))
    for _ in range(50):
        ticks = observation[:2] * 2048.0 / (2.0 * math.pi)
        np.testing.assert_allclose(ticks, np.round(ticks), atol=1e-9)
        observation = plant.step(np.array([1.0]))


def test_the_velocity_filter_follows_a_ramp_and_starts_at_rest() -> None:
    plant = QubeSim(nominal()._replace(filter_bandwidth=50.0, g=0.0, Dr=0.0, km=0.0, kt=0.0))
    assert plant.reset_to(np.array([0.5, 0.1, 2.0, 0.0]))[2] == pytest.approx(0.0, abs=1e-12)
    for _ in range(100):
        observation = plant.step(np.zeros(1))
    assert observation[2] == pytest.approx(plant.state[2], rel=5e-3)  # it lags 20 ms behind


def test_latency_shows_the_state_from_before_the_voltage() -> None:
    plants = [QubeSim(nominal()._replace(latency=latency)) for latency in (0.0, 1.0)]
    start = np.array([0.1, 0.02, 0.0, 0.0])
    for plant in plants:
        plant.reset_to(start)
    direct = [plants[0].step(np.array([v])) for v in (1.0, -2.0)]
    late = [plants[1].step(np.array([v])) for v in (1.0, -2.0)]
    np.testing.assert_array_equal(late[0], start)
    np.testing.assert_array_equal(late[1], direct[0])


def test_voltages_inside_the_dead_band_do_nothing_and_beyond_the_limit_are_clipped() -> None:
    def move(voltage: float, **changes: Any) -> Any:
        plant = QubeSim(nominal()._replace(**changes))
        plant.reset_to(np.zeros(4))
        plant.step(np.array([voltage]))
        return plant.state.copy()

    np.testing.assert_array_equal(move(0.09, dead_band=0.1), np.zeros(4))
    np.testing.assert_array_equal(move(1.1, dead_band=0.1), move(1.1 - 0.1))
    np.testing.assert_array_equal(move(50.0), move(3.0))
    np.testing.assert_array_equal(move(-50.0), move(-3.0))


def test_the_same_seed_gives_the_same_bits() -> None:
    def run(seed: int) -> Any:
        plant = QubeSim("stand_in")
        observation = plant.reset(np.random.default_rng(seed))
        return np.array([observation := plant.step(observation[1:2] * 30.0) for _ in range(100)])

    np.testing.assert_array_equal(run(5), run(5))
    assert not np.array_equal(run(5), run(6))


def test_misuse_is_refused() -> None:
    with pytest.raises(UnknownName, match="nominal, stand_in"):
        QubeSim("heavy")
    with pytest.raises(PlantError, match="reset"):
        QubeSim().step(np.zeros(1))
    plant = QubeSim()
    plant.reset(np.random.default_rng(0))
    plant.step(np.ones(1))
    with pytest.raises(InvalidInput, match="finite"):
        plant.step(np.array([math.inf]))
    assert plant.voltage == 0.0
