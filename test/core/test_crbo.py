"""The optimizer's promises: determinism, valid proposals, end states, state as a value."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crbo_ros.bench.time import feed
from crbo_ros.core import CRBO, Space, TrialStatus
from crbo_ros.core.crbo import MAX_VETOES
from crbo_ros.core.initial_design import directions, on_sphere
from crbo_ros.core.region import ConfidenceRegion, r0
from crbo_ros.core.search import SIDEWAYS
from crbo_ros.core.settings import Recipe, Settings
from crbo_ros.core.trial import Best
from crbo_ros.errors import Exhausted, InvalidInput
from crbo_ros.protocol.store import dump_state, load_state


def bowl(theta: Any) -> float:
    return -float(np.sum((theta - 0.2) ** 2))


def make(dim: int = 3, seed: int = 1, **options: Any) -> CRBO:
    return CRBO(Space(np.full(dim, -2.0), np.full(dim, 2.0)), np.full(dim, 0.6), seed=seed, **options)


def run(optimizer: Any, episodes: int, function: Any = bowl) -> Any:
    for _ in range(episodes):
        proposal = optimizer.ask()
        optimizer.tell(proposal.id, function(proposal.theta))
    return optimizer


def best(optimizer: CRBO) -> Best:
    found = optimizer.best()
    assert found is not None
    return found


def thetas(optimizer: Any) -> Any:
    return np.array([trial.proposal.theta for trial in optimizer.trials])


def test_core_imports_neither_ros_nor_torch() -> None:
    code = (
        "import sys; import crbo_ros.core; "
        "print([m for m in ('rclpy', 'torch', 'gpytorch', 'matplotlib', 'numba') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_a_bowl_is_optimised(preset: str) -> None:
    optimizer = run(make(preset=preset), 35)
    assert bowl(best(optimizer).theta) > (-1e-3 if preset == "default" else -0.05)
    assert bowl(optimizer.theta_0) == pytest.approx(-0.48)


def test_first_proposal_is_theta_0_then_the_sphere() -> None:
    """theta_0 comes twice: what differs between its returns is noise and nothing else."""
    optimizer = run(make(dim=10), 6)
    kinds = [trial.proposal.kind for trial in optimizer.trials]
    assert kinds == ["start", "start", "initial", "initial", "initial", "acquisition"]
    for trial in optimizer.trials[:2]:
        np.testing.assert_array_equal(trial.proposal.theta, optimizer.theta_0)
    X, _ = optimizer.data()
    radius = r0(optimizer.kernel, optimizer.hyper.start[0], optimizer.gamma)
    np.testing.assert_allclose(np.linalg.norm(X[2:5] - X[0], axis=1), radius)


def test_same_seed_same_run_and_another_seed_another() -> None:
    a, b, c = (run(make(seed=s), 8) for s in (1, 1, 2))
    np.testing.assert_array_equal(thetas(a), thetas(b))
    assert not np.array_equal(thetas(a), thetas(c))


@pytest.mark.parametrize("before", [0, 1, 3, 12])
def test_restored_state_carries_on_bit_for_bit(before: int) -> None:
    original = run(make(), before)
    asked = original.ask()  # one is under way
    restored = make()
    restored.restore(load_state(dump_state(original.state())))
    assert restored.pending == [asked.id]
    for optimizer in (original, restored):
        optimizer.tell(asked.id, bowl(asked.theta))
        optimizer.configure(gamma=0.4)
        optimizer.veto(optimizer.ask().id, "too far")
        run(optimizer, 4)
    np.testing.assert_array_equal(thetas(original), thetas(restored))
    assert json.dumps(original.report()) == json.dumps(restored.report())
    assert best(original).mean == best(restored).mean


def test_state_is_a_value_that_later_calls_leave_alone() -> None:
    optimizer = run(make(), 4)
    state = optimizer.state()
    before = dump_state(state)
    run(optimizer, 2)
    assert dump_state(state) == before


def test_state_of_another_experiment_is_refused() -> None:
    state = run(make(), 2).state()
    with pytest.raises(InvalidInput, match="dim"):
        make(dim=4).restore(state)
    with pytest.raises(InvalidInput, match="seed"):
        make(seed=2).restore(state)


@pytest.mark.parametrize("before", [0, 2, 10])
def test_asking_again_before_telling_gives_something_else(before: int) -> None:
    optimizer = run(make(), before)
    points = np.array([optimizer.space.to_unit(optimizer.ask().theta) for _ in range(4)])
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2) + 10.0 * np.eye(4)
    assert gaps.min() > 1e-4
    assert len(optimizer.pending) == 4


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(
        st.floats(), st.integers(), st.text(max_size=3), st.none(), st.booleans(), st.lists(st.floats(), max_size=2)
    )
)
def test_tell_accepts_or_refuses_any_value_and_never_corrupts(value: Any) -> None:
    optimizer = run(make(dim=1, recipe=Recipe(samples=64)), 2)
    proposal = optimizer.ask()
    before = dump_state(optimizer.state())
    try:
        optimizer.tell(proposal.id, value)
    except InvalidInput:
        assert dump_state(optimizer.state()) == before
        optimizer.tell(proposal.id, 0.0)
    else:
        assert optimizer.trials[proposal.id].value == float(value)
    following = optimizer.ask()
    assert np.all(np.isfinite(following.theta))
    assert np.all(np.abs(following.theta) <= 2.0)
    assert np.isfinite(best(optimizer).observed)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(min_value=-1e100, max_value=1e100), min_size=1, max_size=8))
def test_any_finite_returns_give_proposals_inside_the_box(values: Any) -> None:
    optimizer = make(dim=2, recipe=Recipe(samples=64))
    for value in values:
        optimizer.tell(optimizer.ask().id, value)
    proposal = optimizer.ask()
    optimizer.space.check(proposal.theta)
    assert optimizer.best() is not None


@pytest.mark.parametrize("id", [-1, 3, 99, "0", None, True, 1.0])
def test_unknown_or_ended_ids_are_refused_by_name(id: Any) -> None:
    optimizer = run(make(), 3)
    with pytest.raises(InvalidInput, match="id"):
        optimizer.tell(id, 1.0)
    with pytest.raises(InvalidInput, match="already ended"):
        optimizer.tell(0, 1.0)


@pytest.mark.parametrize(
    "function", [lambda t: 5.0, lambda t: 1e50 * bowl(t), lambda t: 1e-50 * bowl(t), lambda t: 1e9 + bowl(t)]
)
def test_constant_huge_tiny_and_offset_returns_are_handled(function: Callable[..., Any]) -> None:
    optimizer = run(make(), 10, function)
    optimizer.space.check(optimizer.ask().theta)
    assert math.isfinite(optimizer.report()["lipschitz"])


def test_scaling_the_returns_scales_nothing_else() -> None:
    a, b = run(make(), 10), run(make(), 10, lambda t: 1024.0 * bowl(t))
    np.testing.assert_allclose(thetas(a), thetas(b), atol=1e-6)


def test_a_veto_brings_the_next_proposal_closer_and_episodes_recover_it() -> None:
    optimizer = run(make(), 10)
    X, _ = optimizer.data()
    distances = []
    for _ in range(4):
        proposal = optimizer.ask()
        distances.append(np.linalg.norm(X - optimizer.space.to_unit(proposal.theta), axis=1).min())
        optimizer.veto(proposal.id, "worst case")
    assert all(b <= 0.701 * a for a, b in pairwise(distances))
    tight = optimizer.gamma_effective
    assert tight < 0.3 * optimizer.gamma
    run(optimizer, 3)
    assert tight < optimizer.gamma_effective < optimizer.gamma
    run(optimizer, 15)
    assert optimizer.gamma_effective == optimizer.gamma
    assert [trial.end for trial in optimizer.trials].count(TrialStatus.VETOED) == 4


def test_endless_vetoes_end_in_exhausted_and_configure_starts_anew() -> None:
    optimizer = run(make(), 5)
    for _ in range(MAX_VETOES):
        optimizer.veto(optimizer.ask().id)
    with pytest.raises(Exhausted, match="20 proposals"):
        optimizer.ask()
    optimizer.configure(gamma=0.3)
    assert optimizer.ask().gamma == pytest.approx(0.3, abs=0.01)  # and a little for the noise


def test_a_vetoed_start_is_proposed_again_and_failed_ones_do_not_count() -> None:
    optimizer = make()
    optimizer.veto(optimizer.ask().id)
    assert optimizer.ask().kind == "start"
    optimizer.fail(1, "cable")
    optimizer.expire(optimizer.ask().id)
    run(optimizer, 2)
    assert optimizer.n == 2


def test_gamma_schedule_grows_gamma() -> None:
    optimizer = run(make(gamma=0.3, gamma_schedule=0.1), 6)
    gammas = [trial.proposal.gamma for trial in optimizer.trials]
    assert all(b > a for a, b in pairwise(gammas))
    assert gammas[-1] < 1.0


@pytest.mark.parametrize(
    "acquisition", ["ucb", "ei", "log_ei", "pi", "mes", "thompson", lambda mean, sigma: mean + sigma]
)
def test_every_acquisition_improves_within_the_region(acquisition: Any) -> None:
    optimizer = run(make(acquisition=acquisition), 20)
    assert max(trial.value for trial in optimizer.trials) > -0.2


@pytest.mark.parametrize("options", [{"kernel": "se"}, {"kernel": "matern32"}, {"gamma": 1.0}, {"n_init": 6}])
def test_variants_run(options: dict[str, Any]) -> None:
    optimizer = run(make(**options), 12)
    optimizer.space.check(optimizer.ask().theta)


@pytest.mark.slow
def test_gpytorch_surrogate_runs_and_resembles_the_closed_form() -> None:
    few = Recipe(samples=128)
    a, b = (run(make(dim=2, recipe=few, surrogate=s), 5) for s in ("closed_form", "gpytorch"))
    np.testing.assert_allclose(thetas(a)[:3], thetas(b)[:3], atol=1e-3)
    restored = make(dim=2, recipe=few, surrogate="gpytorch")
    restored.restore(b.state())
    np.testing.assert_array_equal(restored.ask().theta, b.ask().theta)


@pytest.mark.parametrize("dim", [1, 2, 65, 500])
def test_proposals_are_inside_region_and_box(dim: int) -> None:
    rng = np.random.default_rng(dim)
    optimizer = make(dim=dim)
    for _ in range(2 + optimizer.n_init):
        proposal = optimizer.ask()
        if proposal.kind != "start":
            region = ConfidenceRegion(optimizer.surrogate, proposal.gamma)
            x = optimizer.space.to_unit(proposal.theta)
            if proposal.kind != "initial":
                assert region.contains(x[None], 1e-6)[0]
            assert np.all((x >= 0.0) & (x <= 1.0))
        optimizer.tell(proposal.id, bowl(proposal.theta) / dim + 0.01 * rng.standard_normal())


@pytest.mark.parametrize(
    ("options", "field"),
    [({"gamma": 0.0}, "gamma"), ({"gamma": 1.5}, "gamma"), ({"kernel": "x"}, "kernel"), ({"preset": "x"}, "preset"),
     ({"acquisition": "x"}, "acquisition"), ({"centering": "max"}, "unknown centering"), ({"unknown": 1}, "unknown"),
     ({"beta": -1.0}, "beta"), ({"j_min": math.nan}, "j_min"), ({"gamma_schedule": -0.1}, "gamma_schedule"),
     ({"hyperparameters": (0.1, 1.0)}, "hyperparameters"), ({"hyperparameters": (0.1, 0.0, 1.0)}, "hyperparameters"),
     ({"surrogate": "x"}, "surrogate"), ({"surrogate": 3}, "surrogate"), ({"recipe": {"sideways": False}}, "recipe")],
)  # fmt: skip
def test_wrong_settings_are_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput, match=field):
        make(**options)


def test_sphere_points_keep_radius_and_box_at_a_corner() -> None:
    rng = np.random.default_rng(0)
    centre = np.zeros(20)
    points = np.array([on_sphere(centre, u, 0.3) for u in directions(50, 20, rng, False)])
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 0.3)
    assert np.all(points >= 0.0)
    assert np.mean(points == 0.0) < 1e-3


def test_orthogonal_directions_are_orthogonal() -> None:
    u = directions(5, 8, np.random.default_rng(0), True)
    np.testing.assert_allclose(u @ u.T, np.eye(5), atol=1e-12)


def test_a_plant_that_refuses_half_of_the_domain_does_not_make_the_run_spin_on_refusals() -> None:
    optimizer = CRBO(Space([0.0] * 3, [1.0] * 3), [0.3] * 3, seed=1, gamma=0.6)
    refused = 0
    for _ in range(60):
        proposal = optimizer.ask()
        if proposal.theta[0] > 0.45:
            optimizer.fail(proposal.id, "beyond a limit")
            refused += 1
        else:
            optimizer.tell(proposal.id, -float(np.sum((proposal.theta - 0.7) ** 2)))
    assert refused < 30
    assert best(optimizer).observed > -0.25  # -0.48 at the start, -0.06 at the edge of what is not refused


def test_twenty_failures_in_a_row_end_the_run_with_the_reason() -> None:
    optimizer = CRBO(Space([0.0] * 3, [1.0] * 3), [0.3] * 3, seed=1)
    for _ in range(20):
        optimizer.fail(optimizer.ask().id, "broken")
    with pytest.raises(Exhausted, match="20 proposals in a row were vetoed or failed"):
        optimizer.ask()


def test_early_steps_in_many_dimensions_learn_a_new_direction_each() -> None:
    """Each one leaves the span of the earlier policies by at least most of sin(25 degrees) of its length; the last
    ones, when there are data enough, need not."""
    optimizer = run(make(40), 16)
    kinds = [trial.proposal.kind for trial in optimizer.trials]
    assert kinds[:5] == ["start", "start", "initial", "initial", "initial"]
    assert set(kinds[5:]) <= {"acquisition", "sample"}
    X = optimizer.data()[0]
    for n in range(4, 14):
        nearest = int(np.argmin(np.sum((X[:n] - X[n]) ** 2, axis=1)))
        step = X[n] - X[nearest]
        known = np.linalg.qr((X[:n] - X[nearest]).T)[0]
        outside = step - known @ (known.T @ step)
        assert np.linalg.norm(outside) > 0.9 * math.sin(SIDEWAYS) * np.linalg.norm(step)


def test_few_dimensions_and_the_papers_preset_have_no_sideways_steps() -> None:
    low, paper = run(make(5), 8), run(make(40, preset="paper"), 10)
    assert not any("direction" in trial.proposal.reason for trial in [*low.trials, *paper.trials])
    assert paper.n_init == 7  # ceil(sqrt 40)


def test_asking_for_the_best_policy_does_not_change_what_is_proposed() -> None:
    quiet, asked = make(12), make(12)
    for _ in range(12):
        theta = quiet.ask().theta
        proposal = asked.ask()
        assert np.array_equal(proposal.theta, theta)
        asked.best()
        quiet.tell(proposal.id, bowl(theta))
        asked.tell(proposal.id, bowl(theta))
        asked.best()


def test_the_best_policy_is_chosen_on_a_copy_of_the_model() -> None:
    optimizer = run(make(), 8)
    X, before = optimizer.surrogate.X, optimizer.report()
    optimizer.best()
    assert optimizer.surrogate.X is X
    assert optimizer.report() == before


def test_the_sphere_is_around_theta_0_even_if_another_return_came_first() -> None:
    optimizer = make(dim=10)
    start, first = optimizer.ask(), optimizer.ask()
    optimizer.tell(first.id, bowl(first.theta))
    optimizer.tell(start.id, bowl(start.theta))
    x, x0 = (optimizer.space.to_unit(theta) for theta in (optimizer.ask().theta, optimizer.theta_0))
    assert np.linalg.norm(x - x0) == pytest.approx(r0(optimizer.kernel, optimizer.hyper.start[0], optimizer.gamma))


def test_there_are_at_most_twelve_settings() -> None:
    assert len(fields(Settings)) <= 12


def test_given_hyperparameters_stay_as_they_are_in_the_return_s_own_units() -> None:
    report = run(make(hyperparameters=[0.2, 3.0, 0.01]), 12).report()  # a list, as from JSON
    measured = [report[name] for name in ("lengthscale", "signal_variance", "noise_variance")]
    assert measured == pytest.approx([0.2, 3.0, 0.01])


@pytest.mark.parametrize("seed", [3, 4])  # with one start per fit, seed 3 ends with a hundredth of the true noise
def test_noise_is_found_even_if_the_first_fits_saw_none(seed: int) -> None:
    rng, optimizer = np.random.default_rng(seed), make(2, seed=seed)
    run(optimizer, 41, lambda theta: bowl(theta) + 0.3 * rng.standard_normal())
    assert 0.03 < optimizer.report()["noise_variance"] < 0.3  # truly 0.09


def test_a_policy_tried_once_is_not_recommended_over_a_proven_one_with_nearly_the_same_return() -> None:
    """A prior mean at the best return, as in the prediction, would believe the lone one."""
    optimizer = make(1, hyperparameters=(0.1, 0.25, 0.125))
    lone, proven, poor = [1.6], [-0.8], [0.4]
    feed(optimizer, np.array([lone, *[proven] * 8, *[poor] * 8]), np.array([1.05, *[1.0] * 8, *[0.0] * 8]))
    assert best(optimizer).theta == pytest.approx(proven)
    assert best(optimizer).mean < 1.0
