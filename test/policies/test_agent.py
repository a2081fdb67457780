"""The agent policy: last layer as a vector, three kinds of output, files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.errors import InvalidInput
from crbo_ros.policies.agent import Agent
from crbo_ros.policies.nn import NNPolicy

RNG = np.random.default_rng(0)
LAYERS = [
    (RNG.normal(size=(3, 5)), RNG.normal(size=5)),
    (RNG.normal(size=(5, 4)), RNG.normal(size=4)),
    (RNG.normal(size=(4, 2)), RNG.normal(size=2)),
]
BOUNDS: dict[str, Any] = {"low": [-1.0, -2.0], "high": [1.0, 3.0]}


def test_theta_is_the_weight_matrix_row_major_then_the_biases() -> None:
    agent = Agent(LAYERS, output="greedy")
    w, b = LAYERS[-1]
    np.testing.assert_array_equal(agent.get_weights(), [*w[:, 0], *w[:, 1], *b])
    theta = np.arange(10.0)
    agent.set_weights(theta)
    np.testing.assert_array_equal(agent.get_weights(), theta)
    np.testing.assert_array_equal(agent.layers[-1][0], [[0, 4], [1, 5], [2, 6], [3, 7]])


def test_a_tanh_agent_computes_what_the_network_policy_does() -> None:
    names = {f"{kind}{i}": array for i, layer in enumerate(LAYERS, 1) for kind, array in zip("wb", layer, strict=True)}
    norm: dict[str, Any] = {"input_offset": np.array([0.1, 0.2, 0.3]), "input_scale": np.array([1.0, 2.0, 3.0])}
    x = RNG.normal(size=3)
    np.testing.assert_allclose(
        Agent(LAYERS, output="greedy", **norm).outputs(x), NNPolicy({**names, **norm})(x), rtol=1e-12
    )


def test_greedy_takes_the_largest_output() -> None:
    agent = Agent(LAYERS, output="greedy")
    for x in RNG.normal(size=(10, 3)):
        assert agent(x)[0] == np.argmax(agent.outputs(x))


def test_clip_keeps_to_the_bounds_and_squash_reaches_for_them() -> None:
    clip, squash = Agent(LAYERS, output="clip", **BOUNDS), Agent(LAYERS, output="squash", **BOUNDS)
    low, high = np.array(BOUNDS["low"]), np.array(BOUNDS["high"])
    for agent in (clip, squash):
        agent.set_weights(100.0 * agent.get_weights())
    for x in RNG.normal(size=(10, 3)):
        y = clip.outputs(x)
        np.testing.assert_array_equal(clip(x), np.clip(y.astype(np.float32), low, high))
        np.testing.assert_allclose(squash(x), (low + high) / 2 + np.tanh(y) * (high - low) / 2, atol=1e-6)


def test_inputs_are_clipped_after_normalisation() -> None:
    agent = Agent(LAYERS, output="greedy", input_offset=[1.0, 1.0, 1.0], input_scale=[10.0, 10.0, 10.0], input_clip=2.0)
    np.testing.assert_allclose(agent.outputs([9.0, 9.0, -9.0]), agent.outputs([1.2, 1.2, 0.8]), rtol=1e-12)


def test_an_agent_survives_its_file(tmp_path: Path) -> None:
    agent = Agent(LAYERS, output="clip", activation="elu", input_clip=3.0, meta={"env": "X"}, **BOUNDS)
    agent.save(tmp_path / "a.npz")
    again = Agent.load(tmp_path / "a.npz")
    assert (again.meta, again.activation, again.input_clip) == ({"env": "X"}, "elu", 3.0)
    for x in RNG.normal(size=(5, 3)):
        np.testing.assert_array_equal(again(x), agent(x))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"output": "loud"}, "loud"),
        ({"activation": "step"}, "step"),
        ({"output": "clip"}, "low"),
        ({"output": "squash", "low": [-1, -1], "high": [1, np.inf]}, "finite bounds"),
        ({"input_scale": [1.0]}, "input_scale"),
        ({"layers": [LAYERS[0], LAYERS[2]]}, "w2"),
        ({"layers": [(np.full((3, 2), np.nan), [0.0, 0.0])]}, "layer 1"),
        ({"layers": []}, "0 layers"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    settings = {"layers": LAYERS, "output": "greedy", **change}
    with pytest.raises(InvalidInput, match=field):
        Agent(settings.pop("layers"), **settings)


@pytest.mark.parametrize("theta", [np.zeros(9), np.full(10, np.nan), "theta"])
def test_a_bad_theta_is_refused_and_changes_nothing(theta: Any) -> None:
    agent = Agent(LAYERS, output="greedy")
    before = agent.get_weights()
    with pytest.raises(InvalidInput, match="theta"):
        agent.set_weights(theta)
    np.testing.assert_array_equal(agent.get_weights(), before)
