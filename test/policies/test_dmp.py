from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from crbo_ros.errors import InvalidInput
from crbo_ros.policies.dmp import DMP, Dynamics, basis

FILTERED = Dynamics(alpha_g=4.0, phase_end=0.1, amplitude=0.25)


def random_dmp(seed: int = 0, joints: int = 7, duration: float = 1.3, **options: Any) -> DMP:
    rng = np.random.default_rng(seed)
    dmp = DMP(rng.uniform(-1, 1, joints), duration=duration, **options)
    dmp.set_weights(np.concatenate([rng.uniform(-200, 200, joints * dmp.n_bases), rng.uniform(-1, 1, joints)]))
    return dmp


def smooth_demonstration(joints: int = 7, duration: float = 2.0, samples: int = 300) -> tuple[Any, ...]:
    t = np.linspace(0.0, duration, samples)
    s = t / duration
    blend = 10 * s**3 - 15 * s**4 + 6 * s**5  # at rest at both ends
    shape = np.linspace(-1.0, 1.0, joints)
    return t, blend[:, None] * shape + 0.3 * (np.sin(np.pi * s) ** 3)[:, None] * shape[::-1] + 0.2


@pytest.mark.parametrize(("duration", "dynamics"), [(0.5, Dynamics()), (2.7, FILTERED)])
def test_rollout_equals_direct_integration_of_the_ode(duration: float, dynamics: Any) -> None:
    dmp = random_dmp(3, duration=duration, dynamics=dynamics)

    def ode(t: Any, state: Any) -> Any:
        y, v, g, x = state[:7], state[7:14], state[14:21], state[21]
        if dynamics.alpha_g == np.inf:
            g = dmp.goal
        phase = np.log(x) / np.log(dynamics.phase_end)  # the bases are functions of x
        force = dmp.weights @ basis([phase], 15, dynamics)[0]
        a = (25.0 * (6.25 * (g - y) - duration * v) + force) / duration**2
        dg = min(dynamics.alpha_g, 1e3) * (dmp.goal - g) / duration
        return np.concatenate([v, a, dg, [np.log(dynamics.phase_end) * x / duration]])

    state_0 = np.concatenate([dmp.start, np.zeros(7), dmp.start, [1.0]])
    exact = solve_ivp(ode, (0, duration), state_0, t_eval=dmp.time[dmp.time <= duration], rtol=1e-10, atol=1e-10).y.T
    ours = dmp.rollout()
    n = len(exact)
    assert n >= round(duration * 240)
    np.testing.assert_allclose(ours.position[:n], exact[:, :7], atol=1e-7)
    np.testing.assert_allclose(ours.velocity[:n], exact[:, 7:14], atol=1e-6)
    accelerations = [ode(t, row)[7:14] for t, row in zip(ours.time[:n], exact, strict=True)]
    np.testing.assert_allclose(ours.acceleration[:n], accelerations, atol=1e-4)


def test_rollout_agrees_with_movement_primitives() -> None:
    library = pytest.importorskip("movement_primitives.dmp")
    dmp = random_dmp(4, duration=1.0)
    theirs = library.DMP(n_dims=7, execution_time=1.0, dt=1e-3, n_weights_per_dim=15, int_dt=1e-4)
    theirs.configure(start_y=dmp.start, goal_y=dmp.goal)
    theirs.set_weights(dmp.weights.ravel())
    t, y = theirs.open_loop()
    ours = dmp.rollout()
    reference = np.stack([np.interp(ours.time, t, column) for column in y.T], axis=1)
    # theirs evaluates the phase one step late: an error of the order of dt times the velocity
    assert np.abs(ours.position - reference).max() < 2e-3 * np.abs(ours.velocity).max()


def test_rollout_is_linear_in_theta() -> None:
    a, b = random_dmp(5), random_dmp(6)
    b.start = a.start
    middle = a.rollout(0.5 * (a.get_weights() + b.get_weights()))
    np.testing.assert_allclose(middle.position, 0.5 * (a.rollout().position + b.rollout().position), atol=1e-12)


def test_fit_reproduces_a_demonstration() -> None:
    t, y = smooth_demonstration()
    dmp = DMP(np.zeros(7), duration=2.0)
    error = dmp.fit(t, y)
    reproduced = dmp.rollout()
    assert error < 2e-3
    assert np.abs(np.stack([np.interp(t, dmp.time, c) for c in reproduced.position.T], axis=1) - y).max() < 5e-3
    np.testing.assert_array_equal(dmp.start, y[0])
    np.testing.assert_array_equal(dmp.goal, y[-1])


def test_fit_of_a_noisy_recording_stays_close_to_the_movement() -> None:
    t, y = smooth_demonstration()
    noisy = y + np.random.default_rng(0).normal(0.0, 2e-3, y.shape)  # differentiated twice, this would be 100 rad/s^2
    dmp = DMP(np.zeros(7), duration=2.0)
    dmp.fit(t, noisy)
    ours = np.stack([np.interp(t, dmp.time, c) for c in dmp.rollout().position.T], axis=1)
    assert np.abs(ours - y).max() < 0.02


def test_weights_of_the_samples_decide_where_the_fit_is_close() -> None:
    t = np.linspace(0.0, 1.0, 200)
    y = np.abs(np.sin(9.0 * t))[:, None] * np.ones(7)  # kinks that 15 bases cannot follow
    window = (t > 0.3) & (t < 0.4)  # around a kink: the moment of release, say
    errors = []
    for weight in (None, np.where(window, 1.0, 1e-4)):
        dmp = DMP(np.zeros(7), duration=1.0)
        dmp.fit(t, y, weight=weight)
        ours = np.interp(t, dmp.time, dmp.rollout().position[:, 0])
        errors.append(np.sqrt(np.mean((ours - y[:, 0])[window] ** 2)))
    assert errors[1] < 0.6 * errors[0], errors


def test_twice_the_duration_is_the_same_path_at_half_the_speed() -> None:
    dmp = random_dmp(7, duration=1.0)
    fast = dmp.rollout()
    dmp.duration = 2.0
    slow = dmp.rollout()
    np.testing.assert_allclose(slow.position[::2], fast.position, atol=1e-8)
    np.testing.assert_allclose(slow.velocity[::2], fast.velocity / 2.0, atol=1e-7)
    np.testing.assert_allclose(slow.acceleration[::2], fast.acceleration / 4.0, atol=1e-5)


def test_the_goal_filter_removes_the_jump_of_the_acceleration_and_reaches_the_goal() -> None:
    for dynamics, jump in ((Dynamics(), 156.25), (FILTERED, 0.0)):
        dmp = DMP(np.zeros(1), duration=3.0, dynamics=dynamics)
        dmp.set_weights(np.append(np.zeros(15), 1.0))
        trajectory = dmp.rollout()
        assert trajectory.acceleration[0, 0] * 9.0 == pytest.approx(jump)
        assert trajectory.position[-1, 0] == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("wrong", [{"alpha_y": 0.0}, {"phase_end": 1.5}, {"amplitude": np.nan}, {"beta_y": np.inf}])
def test_senseless_constants_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Dynamics(**wrong)


def test_theta_has_112_entries_and_round_trips() -> None:
    dmp = random_dmp(8)
    theta = dmp.get_weights()
    assert theta.shape == (112,) == (dmp.n_weights,)
    other = DMP(dmp.start, duration=1.3)
    other.set_weights(theta)
    np.testing.assert_array_equal(other.get_weights(), theta)
    np.testing.assert_array_equal(other.rollout().position, dmp.rollout(theta).position)


def test_a_joint_whose_goal_is_its_start_still_obeys_its_weights() -> None:
    dmp = DMP(np.zeros(1), duration=1.0)
    dmp.set_weights(np.concatenate([np.full(15, 50.0), [0.0]]))
    assert np.abs(dmp.rollout().position).max() > 0.05


def test_a_saved_primitive_comes_back_bit_for_bit(tmp_path: Path) -> None:
    dmp = random_dmp(10, dynamics=FILTERED)
    dmp.save(tmp_path / "throw", release=0.9)
    loaded, extra = DMP.load(tmp_path / "throw")
    assert extra == {"release": 0.9}
    np.testing.assert_array_equal(loaded.rollout().velocity, dmp.rollout().velocity)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04broken"])
def test_a_file_that_is_no_demonstration_is_named_in_the_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"bad\.npz"):
        DMP.load(path)
    with pytest.raises(InvalidInput, match="absent"):
        DMP.load(tmp_path / "absent.npz")


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(InvalidInput, match="not a demonstration"):
        DMP.load(tmp_path / "other.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, y: (t[::-1], y), "does not come after"),
        (lambda t, y: (t, y[:, :6]), "expected shape"),
        (lambda t, y: (t[:10], y[:10]), "too few"),
        (lambda t, y: (t, np.where((t == t[3])[:, None], np.nan, y)), r"position\[3, 0\]"),
    ],
)
def test_a_bad_demonstration_is_refused_and_changes_nothing(change: Callable[..., Any], message: str) -> None:
    dmp = random_dmp(11)
    before = dmp.get_weights()
    with pytest.raises(InvalidInput, match=message):
        dmp.fit(*change(*smooth_demonstration()))
    np.testing.assert_array_equal(dmp.get_weights(), before)


def test_nan_in_theta_is_refused_by_its_index() -> None:
    dmp = random_dmp(12)
    theta = dmp.get_weights()
    theta[17] = np.nan
    with pytest.raises(InvalidInput, match=r"theta\[17\]"):
        dmp.rollout(theta)


@pytest.mark.parametrize("duration", [0.0, -1.0, np.nan, np.inf])
def test_a_senseless_duration_is_refused(duration: float) -> None:
    with pytest.raises(InvalidInput, match="duration"):
        DMP(np.zeros(7), duration=duration)
