"""Failures without a return say where not to go, and nothing about the return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crbo_ros.core import CRBO, Space, TrialStatus
from crbo_ros.core.feasibility import allowed_by
from crbo_ros.core.kernels import kernel

MATERN = kernel("matern52")
LENGTH = np.array([0.2])


def cliff(seed: int, episodes: int = 40) -> tuple[CRBO, Any]:
    """Returns rise towards a cliff at theta_1 = 0.4; beyond it an episode fails."""
    method = CRBO(Space([-1.0] * 3, [1.0] * 3), [0.0] * 3, seed=seed)
    for _ in range(episodes):
        proposal = method.ask()
        if proposal.theta[0] > 0.4:
            method.fail(proposal.id, "it fell")
        else:
            method.tell(proposal.id, float(proposal.theta[0] - np.sum(proposal.theta[1:] ** 2)))
    ends = [trial.end for trial in method.trials]
    return method, np.array([end is TrialStatus.FAILED for end in ends])


def test_a_failed_policy_is_avoided_and_completed_ones_around_it_win_the_place_back() -> None:
    completed, failed = np.array([[0.3, 0.5]]), np.array([[0.5, 0.5]])
    allowed = allowed_by(completed, failed, MATERN, LENGTH)
    assert allowed(np.array([[0.3, 0.5], [0.28, 0.5], [0.05, 0.95]])).all()
    assert not allowed(np.array([[0.5, 0.5], [0.45, 0.5], [0.55, 0.55]])).any()
    around = np.array([[0.5 + dx, 0.5 + dy] for dx in (-0.05, 0.05) for dy in (-0.05, 0.05)])
    assert allowed_by(np.vstack([completed, around]), failed, MATERN, LENGTH)(np.array([[0.55, 0.55]]))[0]
    assert allowed_by(completed, np.zeros((0, 2)), MATERN, LENGTH)(np.zeros((3, 2))).all()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_below_a_cliff_climbs_to_it_and_seldom_falls(seed: int) -> None:
    method, failed = cliff(seed)
    best = method.best()
    assert best is not None
    assert best.theta[0] > 0.3
    assert failed.mean() <= 0.2


def test_a_failure_is_no_return_in_the_model() -> None:
    method, failed = cliff(3, 20)
    assert failed.any()
    method.ask()
    assert len(method.surrogate.y) == method.n
    assert method.surrogate.y.min() == method.outputs.to(method.data()[1]).min()
