"""What one more episode is expected to gain, and the rule that ends a stalled run by it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crbo_ros.core import CRBO, Space
from crbo_ros.core.outlook import LATELY, Outlook, promise
from crbo_ros.errors import Exhausted, InvalidInput


@pytest.mark.parametrize(("mean", "sigma", "best"), [(1.0, 0.5, 1.2), (0.0, 2.0, -1.0), (-1.0, 1.0, 0.0)])
def test_it_is_the_mean_of_the_positive_part(mean: float, sigma: float, best: float) -> None:
    draws = mean + sigma * np.random.default_rng(1).standard_normal(400_000)
    assert promise(mean, sigma, best) == pytest.approx(np.mean(np.maximum(draws - best, 0.0)), rel=0.05)


def test_what_is_certain_and_what_is_not_known() -> None:
    assert promise(2.0, 0.0, 1.5) == 0.5
    assert promise(1.0, 0.0, 1.5) == 0.0
    assert math.isnan(Outlook().expect(math.nan, 1.0, 0.0))


def test_promises_are_held_against_what_came_of_them() -> None:
    kept, broken = Outlook(), Outlook()
    for n in range(LATELY + 5):
        honest, idle = kept.expect(n + 1.0, 0.0, float(n)), broken.expect(1.0, 0.0, 0.0)
    assert honest == 1.0  # each promised 1, and each time the best rose by 1
    assert idle == 0.0  # the same promise, and nothing came
    assert len(kept.made) == LATELY


def play(episodes: int, **options: Any) -> CRBO:
    """On a bowl, where the run settles."""
    rng, method = np.random.default_rng(2), CRBO(Space([-1.0] * 2, [1.0] * 2), [0.4, -0.3], seed=2, **options)
    for _ in range(episodes):
        proposal = method.ask()
        method.tell(proposal.id, 1e-3 * float(rng.standard_normal()) - float(np.sum(proposal.theta**2)))
    return method


def test_a_run_that_settles_expects_less_and_less() -> None:
    early, late = play(8).report()["expected_gain"], play(40).report()["expected_gain"]
    assert 0.0 < late < 0.05 * early


def test_it_carries_on_after_a_restart() -> None:
    method, twin = play(20), play(0)
    twin.restore(method.state())
    assert method.ask() is not None
    assert twin.ask() is not None
    assert method.report()["expected_gain"] == twin.report()["expected_gain"]


def test_least_gain_ends_a_stalled_run_and_only_that() -> None:
    with pytest.raises(Exhausted, match=r"least_gain 0\.01"):
        play(60, least_gain=0.01)
    method = play(12, least_gain=0.01)  # by then it was still improving
    assert method.n == 12
    with pytest.raises(InvalidInput, match="least_gain"):
        play(1, least_gain=-1.0)
