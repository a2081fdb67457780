"""The expert and its imitation: deterministic, and the committed weights are what the command makes."""

from pathlib import Path

import numpy as np
import pytest

from crbo_ros.cli import main
from crbo_ros.plants.qube.model import linearise, nominal
from crbo_ros.policies.nn import NNPolicy
from crbo_ros.tasks.furuta import Furuta
from crbo_ros.training.furuta import demonstrate, lqr


def test_the_expert_stabilises_the_nominal_plant() -> None:
    gains = lqr(nominal())
    np.testing.assert_allclose(gains, [1.193, -31.488, 1.218, -2.741], atol=1e-3)
    a, b = linearise(nominal())
    assert np.max(np.linalg.eigvals(a - b @ gains[None, :]).real) < 0.0


def test_there_are_30_seconds_of_demonstrations_and_none_of_them_falls() -> None:
    inputs, labels = demonstrate(np.random.default_rng(1))
    assert inputs.shape == (7500, 5)
    assert labels.shape == (7500,)
    assert np.max(np.abs(labels)) <= 3.0
    assert np.max(np.abs(inputs[:, 1])) < np.radians(20.0)
    again, _ = demonstrate(np.random.default_rng(1))
    np.testing.assert_array_equal(inputs, again)


@pytest.mark.slow
def test_training_is_deterministic_by_its_seed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["train", "furuta", "--seed", "3", "--epochs", "1", "--out", str(tmp_path / f"{name}.npz")]) == 0
    a, b = (NNPolicy.load(tmp_path / f"{name}.npz") for name in ("a", "b"))
    np.testing.assert_array_equal(a.get_weights(), b.get_weights())
    np.testing.assert_array_equal(a.w1, b.w1)


@pytest.mark.slow
def test_the_committed_weights_are_what_the_command_makes(tmp_path: Path) -> None:
    """Up to the last digits, which another processor's arithmetic may change and training may amplify."""
    assert main(["train", "furuta", "--out", str(tmp_path / "furuta.npz")]) == 0
    made, committed = NNPolicy.load(tmp_path / "furuta.npz"), Furuta().policy
    np.testing.assert_allclose(made.get_weights(), committed.get_weights(), atol=0.02)
    for x in np.random.default_rng(0).normal(0.0, [0.5, 0.05, 0.5, 0.5, 0.5], (20, 5)):
        np.testing.assert_allclose(made(x), committed(x), atol=0.1)
