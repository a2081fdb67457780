"""Switches and whole numbers: a cautious step can reach the other side, and what was tried is where it landed."""

from __future__ import annotations

import numpy as np
import pytest

from crbo_ros.core import CRBO, Space


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_switch_that_helps_is_found_by_cautious_steps(seed: int) -> None:
    space = Space([0.1, 0.0, 1.0], [100.0, 1.0, 20.0], log=[True, False, False], integer=[False, True, True])
    optimizer = CRBO(space, theta_0=[2.0, 0.0, 4.0], gamma=0.6, seed=seed)
    for _ in range(30):
        proposal = optimizer.ask()
        gain, on, window = proposal.theta
        assert on in (0.0, 1.0)
        assert window == round(window)
        optimizer.tell(proposal.id, -(np.log(gain / 20.0) ** 2) - 0.02 * (window - 9.0) ** 2 + 0.5 * on)
    best = optimizer.best()
    assert best is not None
    assert best.theta[1] == 1.0


def test_a_switch_is_where_it_lands() -> None:
    space = Space([0.0, -1.0], [1.0, 1.0], integer=[True, False])
    assert np.allclose(space.to_unit([[0.0, 0.0], [1.0, 0.0]])[:, 0], [0.375, 0.625])
    for x, on in ((0.0, 0.0), (0.49, 0.0), (0.51, 1.0), (1.0, 1.0)):
        assert space.from_unit([x, 0.5])[0] == on
