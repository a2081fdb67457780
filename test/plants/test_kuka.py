import builtins
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crbo_ros.errors import InvalidInput, MissingDependency, PlantError
from crbo_ros.plants import iiwa_limits
from crbo_ros.plants.kuka import BALL_RADIUS, RIM_RADIUS, Kuka
from crbo_ros.policies.dmp import DMP, JointTrajectory

START, HOOP = np.array([0.0, -0.35, 0.0, 0.05, 0.0, -1.6, 0.0]), (1.25, 0.5, 0.6)
RNG = np.random.default_rng(0)


@pytest.fixture
def plant() -> Iterator[Kuka]:
    pytest.importorskip("pybullet")
    with Kuka(START, HOOP) as plant:
        plant.reset(RNG)
        yield plant


def still(n: int = 5, **columns: Any) -> JointTrajectory:
    """A trajectory at rest, with single entries changed: still(velocity=((2, 3), 9.0))."""
    parts = {name: np.zeros((n, 7)) for name in ("position", "velocity", "acceleration")}
    for name, (entry, value) in columns.items():
        parts[name][entry] = value
    return JointTrajectory(np.arange(n) / 240.0, **parts)


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quantity", "limit"),
    [("position", np.deg2rad(120.0)), ("velocity", np.deg2rad(98.0))],
)
def test_a_violation_names_joint_time_value_and_limit(quantity: str, limit: Any) -> None:
    inside: dict[str, Any] = {quantity: ((2, 1), -0.999 * limit)}
    beyond: dict[str, Any] = {quantity: ((2, 1), -1.01 * limit)}
    assert iiwa_limits.check(still(**inside)) is None
    found = iiwa_limits.check(still(**beyond))
    assert found is not None
    assert (found.quantity, found.joint) == (quantity, "A2")
    assert (found.time, found.value, found.limit) == pytest.approx((2 / 240, -1.01 * limit, limit))
    assert "A2 at 0.008 s" in str(found)


def test_a_torque_beyond_the_motor_is_a_violation() -> None:
    torque = np.zeros((5, 7))
    torque[4, 6] = 41.0
    found = iiwa_limits.check(still(), torque)
    assert str(found) == "torque of joint A7 at 0.017 s is 41.0 Nm, beyond the iiwa 7's limit of 40 Nm"


def test_nan_in_a_trajectory_is_a_violation() -> None:
    found = iiwa_limits.check(still(position=((1, 0), np.nan)))
    assert found is not None
    assert found.joint == "A1"


def test_usage_is_the_share_of_each_limit() -> None:
    shares = iiwa_limits.usage(still(velocity=((1, 5), np.deg2rad(-90.0))))
    assert shares["velocity"][5] == pytest.approx(0.5)
    assert shares["velocity"].sum() == pytest.approx(0.5)


# -- plant ----------------------------------------------------------------------------------------


def test_missing_pybullet_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pybullet"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.delitem(sys.modules, "pybullet", raising=False)
    with pytest.raises(MissingDependency, match=r"pip install pybullet.*3\.11"):
        Kuka(START, HOOP).connect()


def test_the_arm_follows_a_trajectory_within_millimetres(plant: Kuka) -> None:
    dmp = DMP(START, duration=1.3)
    dmp.set_weights(np.concatenate([np.zeros(105), START + 0.3]))
    trajectory = dmp.rollout()
    for q, qd in zip(trajectory.position[1:], trajectory.velocity[1:], strict=True):
        observation = plant.step(np.concatenate([q, qd]))
        assert np.abs(observation[:7] - q).max() < 0.02
    np.testing.assert_allclose(observation[:7], q, atol=2e-3)


def test_the_ball_stays_in_the_hand_until_released_and_then_falls_freely(plant: Kuka) -> None:
    hold = np.concatenate([START, np.zeros(7)])
    held = [plant.step(hold)[14:] for _ in range(60)]
    assert plant.holding
    assert np.ptp(held, axis=0).max() < 2e-3
    plant.release()
    assert not plant.holding
    fall = [plant.step(hold)[16] for _ in range(48)]
    assert held[-1][2] - fall[-1] == pytest.approx(0.5 * 9.81 * 0.2**2, abs=0.01)


def test_the_release_time_is_continuous_across_a_step(plant: Kuka) -> None:
    """Released a whole period late equals released one step earlier, up to the integrator's own error."""
    dmp = DMP(START, duration=1.3)
    dmp.set_weights(np.concatenate([np.zeros(105), START + 0.5]))
    trajectory = dmp.rollout()
    actions = np.concatenate([trajectory.position, trajectory.velocity], axis=1)
    ends = []
    for step, late in ((70, 0.0), (71, 0.999 / 240.0), (71, 0.0)):
        plant.reset(RNG)
        for i in range(1, 120):
            observation = plant.step(actions[i])
            if i == step:
                plant.release(late)
        ends.append(observation[14:])
    assert np.linalg.norm(ends[0] - ends[1]) < 0.15 * np.linalg.norm(ends[0] - ends[2])


def drop(plant: Kuka, offset: Any, steps: int = 200) -> tuple[Any, ...]:
    """Let the ball fall from 0.3 m above the hoop's centre + offset; returns its path."""
    plant.release()
    start = np.add(HOOP, [*offset, 0.3]).tolist()
    p = plant._p
    p.resetBasePositionAndOrientation(plant.ball, start, (0, 0, 0, 1), physicsClientId=plant.client)
    p.resetBaseVelocity(plant.ball, (0, 0, 0), (0, 0, 0), physicsClientId=plant.client)
    hold = np.concatenate([START, np.zeros(7)])
    path, contact = [], False
    for _ in range(steps):
        path.append(plant.step(hold)[14:])
        contact = contact or plant.rim_contact()
    return np.array(path), contact


def test_a_ball_over_the_centre_falls_through_without_touching(plant: Kuka) -> None:
    path, contact = drop(plant, (0.0, 0.0))
    assert not contact
    assert path[-1, 2] < HOOP[2] - 0.3
    np.testing.assert_allclose(path[:, :2], np.broadcast_to(HOOP[:2], path[:, :2].shape), atol=1e-6)


@pytest.mark.parametrize("angle", np.arange(8) * np.pi / 4)
def test_a_ball_on_the_rim_bounces_wherever_it_hits(plant: Kuka, angle: Any) -> None:
    path, contact = drop(plant, (RIM_RADIUS * np.cos(angle), RIM_RADIUS * np.sin(angle)))
    assert contact
    first = np.argmax(path[:, 2] < HOOP[2] + BALL_RADIUS + 0.03)
    assert (np.diff(path[first:, 2]) > 0).any()  # it went up again


def test_the_board_is_solid(plant: Kuka) -> None:
    plant.release()
    p = plant._p
    p.resetBasePositionAndOrientation(plant.ball, (HOOP[0], HOOP[1], HOOP[2] + 0.15), (0, 0, 0, 1), plant.client)
    p.resetBaseVelocity(plant.ball, (3.0, 0, 0), (0, 0, 0), plant.client)
    path = np.array([plant.step(np.concatenate([START, np.zeros(7)]))[14:] for _ in range(60)])
    assert path[:, 0].max() < HOOP[0] + RIM_RADIUS + 0.08
    assert path[-1, 0] < path[:, 0].max() - 0.05


def test_torque_of_the_outstretched_arm_is_its_weight(plant: Kuka) -> None:
    """Horizontal arm: A2 carries every link's weight at its centre of mass."""
    out = still(1)
    out.position[0, 1] = np.pi / 2
    p, weight_moment = plant._p, 0.0
    for joint, angle in enumerate(out.position[0]):
        p.resetJointState(plant.arm, joint, angle, physicsClientId=plant.client)
    for link in range(1, 7):
        mass = p.getDynamicsInfo(plant.arm, link, physicsClientId=plant.client)[0]
        weight_moment += mass * 9.81 * p.getLinkState(plant.arm, link, physicsClientId=plant.client)[0][0]
    assert abs(plant.torque(out)[0, 1]) == pytest.approx(weight_moment, rel=1e-3)


def test_stop_holds_the_pose_and_may_be_called_twice(plant: Kuka) -> None:
    moving = np.concatenate([START, np.full(7, 0.5)])
    for i in range(30):
        moving[:7] = START + 0.5 * i / 240.0
        plant.step(moving)
    plant.stop()
    plant.stop()
    before = plant.observe()[:7]
    for _ in range(120):
        plant._p.stepSimulation(physicsClientId=plant.client)
    np.testing.assert_allclose(plant.observe()[:7], before, atol=0.01)


def test_clients_are_closed_on_every_exit() -> None:
    pybullet = pytest.importorskip("pybullet")

    def open_clients() -> list[Any]:
        return [c for c in range(20) if pybullet.isConnected(c)]

    before = open_clients()
    plant = Kuka(START, HOOP)

    def leave_by_an_error() -> None:
        with plant:
            assert len(open_clients()) == len(before) + 1
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        leave_by_an_error()
    assert plant.client == -1
    forgotten = Kuka(START, HOOP)
    forgotten.connect()
    del forgotten
    assert open_clients() == before
    plant.stop()  # after close: nothing happens
    plant.close()
    with pytest.raises(PlantError, match="not connected"):
        plant.observe()


def test_a_failed_build_leaves_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    pybullet = pytest.importorskip("pybullet")
    before = [c for c in range(20) if pybullet.isConnected(c)]
    monkeypatch.setattr(Kuka, "_build", lambda self, data: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Kuka(START, HOOP).connect()
    assert [c for c in range(20) if pybullet.isConnected(c)] == before


def test_two_plants_in_one_process_do_not_disturb_each_other(plant: Kuka) -> None:
    hold = np.concatenate([START, np.zeros(7)])
    alone = [plant.step(hold) for _ in range(20)]
    plant.reset(RNG)
    with Kuka(START, HOOP) as other:
        other.reset(RNG)
        together = []
        for i in range(20):
            together.append(plant.step(hold))
            other.step(hold + 0.1 * i)
    np.testing.assert_array_equal(alone, together)


def test_an_action_that_is_no_vector_of_14_numbers_is_refused(plant: Kuka) -> None:
    with pytest.raises(InvalidInput, match="action"):
        plant.step(np.zeros(7))
    with pytest.raises(InvalidInput, match=r"action\[0\]"):
        plant.step(np.full(14, np.nan))


def test_a_picture_shows_ball_and_rim(plant: Kuka) -> None:
    image = plant.image(160, 120).astype(int)
    assert image.shape == (120, 160, 3)
    red = (image[..., 0] > 100) & (image[..., 1] < 60) & (image[..., 2] < 60)
    assert red.sum() > 10
    u, v = plant.project(plant.observe()[None, 14:], 160, 120)[0]
    r, g, b = image[round(v), round(u)]
    assert r > g > b  # orange where the ball should be


def test_importing_the_plant_does_not_import_pybullet() -> None:
    code = "import sys, crbo_ros.tasks.basketball as b; b.Basketball(); sys.exit('pybullet' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
