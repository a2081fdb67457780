"""Units of the return do not matter: a y + b, a > 0, gives the same proposals, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crbo_ros.core import CRBO, Space
from crbo_ros.core.settings import Recipe
from crbo_ros.core.trial import Best

EPISODES = 18


def play(dim: int, seed: int, a: float, b: float, noise: float, **options: Any) -> tuple[Any, Best]:
    """Thetas of a run whose returns are a y + b, and its recommendation."""
    rng = np.random.default_rng([seed, dim])
    centre = rng.uniform(-0.7, 0.7, dim)
    method = CRBO(Space(-np.ones(dim), np.ones(dim)), np.zeros(dim), seed=seed, recipe=Recipe(samples=128), **options)
    for n in range(EPISODES):
        proposal = method.ask()
        y = -float(np.sum((proposal.theta - centre) ** 2)) + noise * np.random.default_rng([seed, n]).standard_normal()
        if n == 9:
            method.veto(proposal.id)
        elif n == 13:
            method.fail(proposal.id)
        else:
            method.tell(proposal.id, a * y + b)
    best = method.best()
    assert best is not None
    return np.array([trial.proposal.theta for trial in method.trials]), best


@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    dim=st.sampled_from([2, 5, 12]),
    seed=st.integers(0, 10_000),
    exponent=st.floats(-8.0, 8.0),
    offset=st.floats(-1e4, 1e4),
    noise=st.sampled_from([0.0, 0.01, 0.5]),
)
def test_scaled_and_shifted_returns_give_the_same_proposals_bit_for_bit(
    dim: int, seed: int, exponent: float, offset: float, noise: float
) -> None:
    plain, best = play(dim, seed, 1.0, 0.0, noise)
    spread = 0.3  # of these returns, about
    moved, moved_best = play(dim, seed, 10.0**exponent, offset * spread * 10.0**exponent, noise)
    np.testing.assert_array_equal(plain, moved)
    assert best.id == moved_best.id


@pytest.mark.parametrize("offset", [1e7, -1e10])
def test_an_offset_beyond_that_leaves_the_quality_as_it_was(offset: float) -> None:
    centre = np.random.default_rng([5, 3]).uniform(-0.7, 0.7, 3)  # as in play
    start = -float(np.sum(centre**2))
    for b in (0.0, offset):
        gained = -float(np.sum((play(3, 5, 1.0, b, 0.0)[1].theta - centre) ** 2)) - start
        assert gained > -0.8 * start  # four fifths of the way


def test_equal_returns_of_any_size_say_nothing_about_direction() -> None:
    runs = []
    for value in (0.0, 1e-9, -3.0, 1e12):
        method = CRBO(Space([-1.0, -1.0], [1.0, 1.0]), [0.0, 0.0], seed=3)
        for _ in range(8):
            method.tell(method.ask().id, value)
        runs.append(np.array([trial.proposal.theta for trial in method.trials]))
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0], other)
