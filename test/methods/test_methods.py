"""What every method promises: theta_0 first, proposals in the box, the same run from the same seed, no hanging on
refusals."""

import math
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.space import Space
from crbo_ros.core.trial import TrialStatus
from crbo_ros.errors import InvalidInput
from crbo_ros.registry import make_method, names

QUICK = ["bo", "cma_es", "turbo", "local_bo", "gibo", "hci_gibo", "min_ucb", "la_min_ucb", "les", "safe_opt"]
QUICK += ["los_gp_ucb", "sobol", "random_search"]
ALL = [*QUICK, pytest.param("logei", marks=pytest.mark.slow)]
SPACE = Space([-1.0, -2.0, 0.0], [1.0, 2.0, 4.0])
THETA_0 = np.array([0.3, 0.5, 1.5])
OPTIMUM = np.array([0.1, 0.2, 2.0])


def bowl(theta: Any) -> float:
    """Best at OPTIMUM with value 1; the unit box's units."""
    return 1.0 - 4.0 * float(np.sum((SPACE.to_unit(theta) - SPACE.to_unit(OPTIMUM)) ** 2))


def drive(method: Any, episodes: int) -> Any:
    for _ in range(episodes):
        proposal = method.ask()
        method.tell(proposal.id, bowl(proposal.theta))
    return np.array([trial.proposal.theta for trial in method.trials])


def test_all_methods_of_the_comparison_are_registered() -> None:
    assert {"crbo", "logei", "linear_bo", "safe_cma", *QUICK} <= set(names("methods"))


@pytest.mark.parametrize("name", ALL)
def test_theta_0_is_the_first_proposal_and_all_lie_in_the_box(name: Any) -> None:
    method = make_method(name, SPACE, THETA_0, seed=3)
    thetas = drive(method, 12)
    assert method.trials[0].proposal.kind == "start"
    np.testing.assert_array_equal(thetas[0], THETA_0)
    assert [trial.proposal.id for trial in method.trials] == list(range(12))
    assert np.all(thetas >= SPACE.lower)
    assert np.all(thetas <= SPACE.upper)
    assert len(np.unique(thetas, axis=0)) > 6


@pytest.mark.parametrize("name", ALL)
def test_the_return_improves_on_a_smooth_bowl(name: Any) -> None:
    method = make_method(name, SPACE, THETA_0, seed=0)
    drive(method, 20)
    best = method.best()
    assert bowl(best.theta) > bowl(THETA_0)
    assert best.observed == bowl(method.trials[best.id].proposal.theta)


@pytest.mark.parametrize("name", ALL)
def test_same_seed_same_run_and_another_seed_another(name: Any) -> None:
    first = drive(make_method(name, SPACE, THETA_0, seed=5), 10)
    np.random.seed(1)  # noqa: NPY002  (the global generator must not matter)
    np.testing.assert_array_equal(first, drive(make_method(name, SPACE, THETA_0, seed=5), 10))
    assert not np.array_equal(first, drive(make_method(name, SPACE, THETA_0, seed=6), 10))


@pytest.mark.parametrize("name", ALL)
def test_a_restored_method_makes_the_same_next_proposal(name: Any) -> None:
    method = make_method(name, SPACE, THETA_0, seed=2)
    drive(method, 6)
    method.veto(method.ask().id, "too bold")
    copy = make_method(name, SPACE, THETA_0, seed=2)
    copy.restore(method.state())
    np.testing.assert_array_equal(copy.ask().theta, method.ask().theta)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("end", ["veto", "fail", "expire"])
def test_refusals_neither_stop_the_method_nor_enter_its_data(name: Any, end: str) -> None:
    method = make_method(name, SPACE, THETA_0, seed=4)
    getattr(method, end)(method.ask().id, "no")  # even theta_0
    again = method.ask()
    np.testing.assert_array_equal(again.theta, THETA_0)
    method.tell(again.id, bowl(again.theta))
    for _ in range(12):
        getattr(method, end)(method.ask().id, "no")
    drive(method, 4)
    assert method.n == 5
    assert len(method.data()[1]) == 5
    assert method.best() is not None


@pytest.mark.parametrize("name", ALL)
def test_several_proposals_can_be_out_at_once_and_return_in_any_order(name: Any) -> None:
    method = make_method(name, SPACE, THETA_0, seed=1)
    out = [method.ask() for _ in range(9)]
    for proposal in reversed(out):
        method.tell(proposal.id, bowl(proposal.theta))
    drive(method, 3)
    assert method.n == 12
    assert all(trial.end is TrialStatus.COMPLETED for trial in method.trials)


@pytest.mark.parametrize("name", ["bo", "turbo", "gibo"])
def test_a_method_turns_away_from_what_was_refused(name: str) -> None:
    method = make_method(name, SPACE, THETA_0, seed=0)
    drive(method, 8)
    refused = []
    for _ in range(3):
        proposal = method.ask()
        refused.append(SPACE.to_unit(proposal.theta))
        method.veto(proposal.id)
    assert min(np.linalg.norm(a - b) for i, a in enumerate(refused) for b in refused[:i]) > 1e-4


@pytest.mark.parametrize(
    ("name", "settings", "word"),
    [
        ("cma_es", {"sigma_0": -1.0}, "sigma_0"),
        ("turbo", {"length": 0.0}, "length"),
        ("turbo", {"draw": "other"}, "draw"),
        ("bo", {"beta": math.nan}, "beta"),
        ("bo", {"centering": "median"}, "centering"),
        ("local_bo", {"epsilon": 0.0}, "epsilon"),
        ("gibo", {"alpha": 0.2}, "alpha"),
        ("safe_opt", {"beta": "wide"}, "beta"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(name: str, settings: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidInput, match=word):
        make_method(name, SPACE, THETA_0, **settings)
