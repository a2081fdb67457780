"""What every method promises: theta_0 first, proposals in the box, the same run from the same seed, no hanging on
refusals."""

import math
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.method import MAX_REFUSED
from crbo_ros.errors import Exhausted, InvalidInput
from crbo_ros.registry import make_method, names
from crbo_ros.testing import SPACE, THETA_0, bowl, check_method, drive

QUICK = ["bo", "cma_es", "turbo", "local_bo", "gibo", "hci_gibo", "min_ucb", "la_min_ucb", "les", "safe_opt"]
QUICK += ["los_gp_ucb", "sobol", "random_search"]
ALL = [*QUICK, pytest.param("logei", marks=pytest.mark.slow)]


def test_all_methods_of_the_comparison_are_registered() -> None:
    assert {"crbo", "logei", "linear_bo", "safe_cma", *QUICK} <= set(names("methods"))


@pytest.mark.parametrize("name", ALL)
def test_it_keeps_what_every_method_promises(name: Any) -> None:
    check_method(lambda space, theta_0, seed: make_method(name, space, theta_0, seed=seed))


@pytest.mark.parametrize("name", ALL)
def test_the_return_improves_on_a_smooth_bowl(name: Any) -> None:
    method = make_method(name, SPACE, THETA_0, seed=0)
    drive(method, 20)
    best = method.best()
    assert bowl(best.theta) > bowl(THETA_0)
    assert best.observed == bowl(method.trials[best.id].proposal.theta)


@pytest.mark.parametrize("name", ["cma_es", "random_search", "sobol"])
def test_a_method_of_which_nothing_may_run_ends_and_says_so(name: str) -> None:
    method = make_method(name, SPACE, THETA_0, seed=0)
    drive(method, 3)
    for _ in range(MAX_REFUSED):
        method.veto(method.ask().id, "the account is empty")
    with pytest.raises(Exhausted, match=rf"100 proposals in a row .* the account is empty; {name} finds nothing"):
        method.ask()
    again = make_method(name, SPACE, THETA_0, seed=0)
    again.restore(method.state())
    with pytest.raises(Exhausted):
        again.ask()


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
