"""The Furuta task: the compiled and the stepped episode, ends, refusals, and the starting point's metrics."""

import math
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crbo_ros.errors import InvalidInput, UnknownName
from crbo_ros.registry import make_task
from crbo_ros.tasks.furuta import Furuta


@pytest.fixture(scope="module")
def task() -> Iterator[Any]:
    with Furuta("stand_in") as furuta:
        yield furuta


def rollout(task: Any, theta: Any = None, seed: int = 0, **options: Any) -> Any:
    return task.rollout(task.theta_0 if theta is None else theta, np.random.default_rng(seed), **options)


def far(task: Any, seed: int) -> Any:
    """A policy in a corner of the domain's inside: most of them fall."""
    return task.theta_0 + np.random.default_rng(seed).uniform(-0.6, 0.6, 65)


def test_it_is_the_papers_setting(task: Any) -> None:
    assert task.dim == 65
    assert task.gamma == 0.5
    np.testing.assert_allclose(task.space.upper - task.theta_0, 0.7)
    np.testing.assert_allclose(task.theta_0 - task.space.lower, 0.7)
    assert (task.episode_seconds, task.settings.steps, task.plant.rate) == (20.0, 5000, 250.0)
    assert 0.05 in task.exploration["cma_es"]


def test_theta_0_keeps_the_pendulum_up_and_follows_badly(task: Any) -> None:
    outcomes = [rollout(task, seed=seed, record=True) for seed in range(100, 120)]
    assert {outcome.end for outcome in outcomes} == {"completed"}
    values = np.array([outcome.value for outcome in outcomes])
    assert 0.62 < np.mean(values) < 0.66
    assert max(np.max(np.abs(o.trajectory.columns["pendulum"])) for o in outcomes) < math.radians(5.0)


def test_the_return_is_the_papers_sum_over_the_recorded_trajectory(task: Any) -> None:
    for theta in (task.theta_0, far(task, 1)):
        outcome = rollout(task, theta, record=True)
        columns = outcome.trajectory.columns
        t = outcome.trajectory.time
        np.testing.assert_allclose(columns["reference"], np.radians(60.0) * np.sin(t), atol=1e-12)
        error = np.abs(columns["arm"] - columns["reference"])
        assert outcome.value == pytest.approx(np.sum(1.0 - error / np.radians(90.0)) / 5000.0, abs=1e-12)
        assert len(t) == outcome.steps == round(outcome.duration * 250.0)


@pytest.mark.parametrize("plant", ["stand_in", "nominal"])
def test_the_compiled_episode_and_the_stepped_one_agree_bit_for_bit(plant: str) -> None:
    compiled, stepped = Furuta(plant), Furuta(plant, stepped=True)
    assert compiled.compiled
    assert not stepped.compiled
    for theta in (compiled.theta_0, far(compiled, 3), far(compiled, 7)):
        a, b = (rollout(task, theta, seed=4, record=True) for task in (compiled, stepped))
        assert (a.value, a.end, a.reason, a.steps, a.duration) == (b.value, b.end, b.reason, b.steps, b.duration)
        for name in a.trajectory.columns:
            np.testing.assert_array_equal(a.trajectory.columns[name], b.trajectory.columns[name])


def test_the_same_seed_gives_the_same_return_and_recording_changes_nothing(task: Any) -> None:
    assert rollout(task, seed=7).value == rollout(task, seed=7).value == rollout(task, seed=7, record=True).value
    assert rollout(task, seed=7).value != rollout(task, seed=8).value


def test_a_fall_ends_the_episode_and_what_was_earned_counts(task: Any) -> None:
    falls = [o for o in (rollout(task, far(task, seed)) for seed in range(20)) if o.end == "terminated"]
    assert len(falls) > 5
    for outcome in falls:
        assert outcome.counts
        assert outcome.steps < 5000
        assert math.isfinite(outcome.value)
        assert outcome.reason.startswith(("the pendulum tipped", "the arm left", "too fast"))
        assert outcome.value <= outcome.steps / 5000.0


@pytest.mark.parametrize("bad", [np.zeros(64), np.full(65, np.nan), np.full(65, np.inf), "x", None])
def test_a_bad_theta_is_refused_before_anything_moves(task: Any, bad: Any) -> None:
    state = task.plant.state.copy()
    with pytest.raises(InvalidInput, match="theta"):
        task.rollout(bad, np.random.default_rng(0))
    np.testing.assert_array_equal(task.plant.state, state)


def test_a_theta_outside_the_domain_is_refused(task: Any) -> None:
    with pytest.raises(InvalidInput, match=r"theta\[64\].*outside"):
        rollout(task, task.theta_0 + 0.71 * np.eye(65)[64])


@pytest.mark.parametrize("stepped", [False, True])
def test_voltages_beyond_the_limit_are_clipped(stepped: bool) -> None:
    task = Furuta("nominal", stepped=stepped)
    outcome = rollout(task, task.theta_0 - 0.69 * np.sign(task.theta_0), record=True)  # the wrong way
    voltage = outcome.trajectory.columns["voltage"]
    assert np.max(np.abs(voltage)) == 3.0


@pytest.mark.parametrize("stepped", [False, True])
def test_a_voltage_that_is_not_finite_fails_the_episode_in_zero_volts(stepped: bool) -> None:
    task = Furuta("nominal", stepped=stepped)
    task.policy.w1[0, 0] = np.nan  # cannot come from a checked theta; a damaged policy
    outcome = rollout(task)
    assert (outcome.end, outcome.steps) == ("failed", 0)
    assert "not finite" in outcome.reason
    assert math.isnan(outcome.value)
    assert task.plant.voltage == 0.0


def test_the_watch_stops_a_stepped_episode_within_one_period() -> None:
    task = Furuta("stand_in", stepped=True)
    seen = []

    def watch(now: Any, observation: Any, action: Any) -> str | None:
        seen.append(now)
        assert observation.shape == (4,)
        assert action.shape == (1,)
        return "enough" if now >= 0.1 else None

    outcome = rollout(task, watch=watch)
    assert (outcome.end, outcome.reason, outcome.steps) == ("stopped", "enough", 25)
    assert math.isnan(outcome.value)
    assert not outcome.counts
    np.testing.assert_allclose(seen, np.arange(26) / 250.0)
    assert task.plant.voltage == 0.0


def test_the_watch_is_asked_before_and_after_a_compiled_episode(task: Any) -> None:
    seen = []
    assert rollout(task, watch=lambda now, o, a: seen.append(now)).end == "completed"
    assert seen == [0.0, 20.0]
    assert rollout(task, watch=lambda now, o, a: "no").end == "stopped"
    assert rollout(task, watch=lambda now, o, a: "late" if now else None).reason == "late"


def test_realtime_takes_the_time_it_takes() -> None:
    task = Furuta("stand_in", realtime=True)
    begun = time.monotonic()
    outcome = rollout(task, watch=lambda now, o, a: "enough" if now >= 0.2 else None)
    assert outcome.end == "stopped"
    assert time.monotonic() - begun > 0.19
    assert "deadline_misses" in outcome.statistics


def test_unknown_plants_are_refused_with_the_list() -> None:
    with pytest.raises(UnknownName, match="stand_in, nominal"):
        make_task("furuta", plant="moon")


def test_an_episode_is_at_least_600_times_faster_than_real_time(task: Any) -> None:
    rollout(task)  # compiled
    best = math.inf
    for seed in range(8):
        begun = time.process_time()
        rollout(task, seed=seed)
        best = min(best, time.process_time() - begun)
    assert best < 20.0 / 600.0


@pytest.mark.slow
def test_without_numba_the_results_are_the_same_bit_for_bit(task: Any) -> None:
    """A fresh process in which numba cannot be imported runs the first second as plain Python."""
    script = (
        "import sys; sys.modules['numba'] = None\n"
        "import numpy as np\n"
        "from crbo_ros.tasks.furuta import Furuta\n"
        "task = Furuta('stand_in')\n"
        "task.settings = task.settings._replace(steps=250.0)\n"
        "print(task.rollout(task.theta_0, np.random.default_rng(5)).value.hex())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    short = Furuta("stand_in")
    short.settings = short.settings._replace(steps=250.0)
    assert done.stdout.strip() == rollout(short, seed=5).value.hex()
