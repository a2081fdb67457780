"""Old against new: certain at the level however often one looks, whatever the returns' distribution, and quick."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from crbo_ros.core.sequential_test import Earlier, SequentialTest

NOISES: dict[str, Callable[[np.random.Generator], float]] = {
    "normal": lambda rng: float(rng.normal()),
    "skewed": lambda rng: float(rng.lognormal()) / 2.16,
    "falls": lambda rng: float(-5.0 * (rng.random() < 0.1) + 0.3 * rng.normal()),
    "heavy": lambda rng: float(rng.standard_cauchy()),
}
FIXED = 24  # rollouts of a t test of two samples that finds 2 standard deviations with power 0.999, level 0.05


def decide(seed: int, gain: float, noise: str, *, known: bool = True, most: int = 120) -> tuple[str, int]:
    """(verdict, rollouts) of one acceptance; `known`: with two earlier returns of each policy, as an experiment has."""
    rng, draw = np.random.default_rng([seed, 21]), NOISES[noise]
    old, new = (np.mean([draw(rng) for _ in range(2)]) for _ in range(2))
    test = SequentialTest(0.05, 1.0, Earlier(float(old), float(new) + gain, 1.0, 2.0) if known else None)
    for n in range(1, most + 1):
        is_new = bool(rng.random() < 0.5)
        test.add(is_new, draw(rng) + gain * is_new)
        if test.verdict:
            return test.verdict, n
    return "undecided", most


@pytest.mark.parametrize("noise", NOISES)
def test_of_200_acceptances_of_equal_policies_at_most_5_percent_say_better(noise: str) -> None:
    verdicts = [decide(seed, 0.0, noise, most=60)[0] for seed in range(200)]
    assert verdicts.count("better") <= 10
    assert verdicts.count("worse") <= 10


def test_two_standard_deviations_are_found_in_half_of_a_fixed_tests_rollouts() -> None:
    found = [decide(seed, 2.0, "normal") for seed in range(1000, 1400)]
    assert sum(verdict == "better" for verdict, _ in found) >= 399  # a power that a t test has with 24 rollouts
    assert np.mean([rollouts for _, rollouts in found]) <= FIXED / 2


def test_a_worse_policy_is_called_worse_and_a_small_gain_not_worth_it() -> None:
    verdicts = [decide(seed, -2.0, "normal")[0] for seed in range(20)]
    assert verdicts.count("worse") + verdicts.count("not better") == 20
    assert [decide(seed, 0.05, "normal", most=200)[0] for seed in range(20)].count("not better") >= 16


def test_the_interval_holds_the_gain_and_narrows() -> None:
    held = 0
    for seed in range(20):
        rng, test = np.random.default_rng(seed), SequentialTest()
        for _ in range(40):
            new = bool(rng.random() < 0.5)
            test.add(new, float(rng.normal()) + 1.0 * new)
        low, high = test.interval()
        held += low <= 1.0 <= high
        assert high - low < 5.0
    assert held >= 17  # each end at 5 %


def test_pairs_from_the_same_start_state_find_what_the_start_states_would_hide() -> None:
    wrong = found = 0
    for seed in range(200):
        for gain in (0.0, 1.0):
            rng, test = np.random.default_rng([seed, 5]), SequentialTest(0.05, 0.5)
            for _ in range(60):
                state = 10.0 * rng.normal()  # of the start, the same for both
                test.add_pair(float(state + rng.normal()), float(state + rng.normal() + gain))
                if test.verdict:
                    break
            wrong += gain == 0.0 and test.verdict == "better"
            found += gain == 1.0 and test.verdict == "better"
    assert wrong <= 10
    assert found >= 180
