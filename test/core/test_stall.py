"""A run that has stopped improving is noticed, looks further, and takes that back when it costs."""

from __future__ import annotations

import numpy as np
import pytest

from crbo_ros.core import CRBO, Space
from crbo_ros.core.kernels import kernel
from crbo_ros.core.region import noise_proof, r0
from crbo_ros.core.stall import BLOCK, Stall, stall

RNG = np.random.default_rng(1)


def noisy(level: float, blocks: int = 1) -> list[float]:
    """Blocks of returns around a level, whose mean and median are exactly that."""
    block = np.concatenate([np.linspace(-1.0, 1.0, BLOCK)])
    return [float(v) for _ in range(blocks) for v in level + RNG.permutation(block)]


def test_a_rising_run_is_no_stall() -> None:
    y = np.array([v for level in range(6) for v in noisy(2.0 * level)])
    assert stall(y) == Stall(False, 0)
    assert stall(y[: BLOCK - 1]) == Stall()


def test_flat_blocks_are_a_stall_of_so_many_episodes() -> None:
    y = np.array(noisy(0.0) + noisy(3.0, 3))
    assert stall(y) == Stall(True, 2 * BLOCK)


def test_a_fall_takes_it_back_and_the_next_stall_needs_more_patience() -> None:
    y = noisy(0.0, 2) + noisy(-3.0)
    assert not stall(np.array(y)).stalled
    assert not stall(np.array(y + noisy(-3.0))).stalled  # one flat block is not enough any more
    assert stall(np.array(y + noisy(-3.0, 2))).stalled


def test_one_disaster_does_not_hide_a_rise() -> None:
    after = noisy(3.0)
    after[2] = -40.0
    assert not stall(np.array(noisy(0.0) + after)).stalled


@pytest.mark.parametrize("gamma", [0.3, 0.5, 0.9])
@pytest.mark.parametrize("ratio", [0.05, 0.6, 1.0])
def test_noise_proof_gives_one_noisy_return_the_radius_of_one_without_noise(gamma: float, ratio: float) -> None:
    matern = kernel("matern52")
    assert r0(matern, 1.0, noise_proof(gamma, ratio), ratio) == pytest.approx(r0(matern, 1.0, gamma), rel=1e-6)
    assert noise_proof(gamma, 0.0) == gamma
    assert noise_proof(1.0, ratio) == 1.0


def test_only_a_stall_in_noise_widens_and_a_veto_takes_it_back() -> None:
    assert Stall().wider(0.5, 0.8) == 0.5
    assert Stall(True, 8).wider(0.5, 0.1) == 0.5
    assert Stall(True, 8).wider(0.5, 0.8) == noise_proof(0.5, 0.8)
    method = CRBO(Space([-1.0] * 4, [1.0] * 4), [0.0] * 4, seed=3)
    rng = np.random.default_rng(3)
    for _ in range(40):
        proposal = method.ask()
        method.tell(proposal.id, float(rng.standard_normal()))
    said = [trial.proposal for trial in method.trials if "no progress" in trial.proposal.reason]
    assert said
    assert all(proposal.gamma > method.gamma for proposal in said)
    method.veto(method.ask().id)
    assert method.ask().gamma < method.gamma
