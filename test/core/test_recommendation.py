"""The recommendation says how good it is, and whether it beats theta_0."""

from __future__ import annotations

import numpy as np

from crbo_ros.core import CRBO, Space
from crbo_ros.core.trial import Best


def recommend(slope: float, noise: float, seed: int, episodes: int = 20) -> Best:
    """After `episodes` on a slope of so much per unit, with so much noise."""
    method = CRBO(Space([-1.0] * 3, [1.0] * 3), [0.0] * 3, seed=seed)
    rng = np.random.default_rng(seed)
    for _ in range(episodes):
        proposal = method.ask()
        method.tell(proposal.id, slope * float(np.sum(proposal.theta)) + noise * rng.standard_normal())
    best = method.best()
    assert best is not None
    return best


def test_a_clear_gain_is_certain_and_of_pure_noise_nobody_is() -> None:
    assert recommend(1.0, 0.01, 1).p_better > 0.999
    blind = [recommend(0.0, 1.0, seed).p_better for seed in range(6)]
    assert max(blind) < 0.999
    assert np.mean(blind) < 0.95


def test_the_interval_holds_what_is_expected_and_theta_0_does_not_beat_itself() -> None:
    best = recommend(1.0, 0.05, 2)
    assert best.interval[0] < best.mean < best.interval[1]
    assert best.interval[0] < float(np.sum(best.theta)) < best.interval[1]
    method = CRBO(Space([-1.0], [1.0]), [0.2], seed=1)
    method.tell(method.ask().id, 1.0)
    first = method.best()
    assert first is not None
    assert first.p_better == 0.0
