"""The network policy: theta in and out, files, and the same numbers as torch."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crbo_ros.errors import InvalidInput
from crbo_ros.policies.nn import NNPolicy

ORACLE = Path(__file__).with_name("recorded_torch.json")
INPUTS = np.random.default_rng(1).normal(size=(20, 5))


def random_policy(seed: int = 0, n_in: int = 5, n_out: int = 1, hidden: int = 64) -> NNPolicy:
    rng = np.random.default_rng(seed)
    sizes: dict[str, Any] = {
        "w1": (n_in, hidden),
        "b1": hidden,
        "w2": (hidden, hidden),
        "b2": hidden,
        "w3": (hidden, n_out),
        "b3": n_out,
    }
    arrays = {name: rng.normal(0.0, 0.3, size) for name, size in sizes.items()}
    return NNPolicy({**arrays, "input_scale": rng.uniform(0.5, 2.0, n_in), "input_offset": rng.normal(size=n_in)})


def torch_says(n_out: int) -> Any:
    """A torch network with the same weights, on 20 inputs."""
    import torch

    policy = random_policy(n_out=n_out)
    layers = [torch.nn.Linear(5, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, n_out)]
    for layer, w, b in zip(layers, policy.layers()[::2], policy.layers()[1::2], strict=True):
        layer.double()
        layer.weight.data, layer.bias.data = torch.tensor(w.T.copy()), torch.tensor(b)
    net = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1], torch.nn.Tanh(), layers[2])
    return net(torch.tensor((INPUTS - policy.input_offset) * policy.input_scale)).detach().numpy()


@pytest.mark.parametrize("n_out", [1, 2])
def test_it_computes_what_torch_computes(n_out: int) -> None:
    policy, recorded = random_policy(n_out=n_out), json.loads(ORACLE.read_text())[str(n_out)]
    np.testing.assert_allclose([np.atleast_1d(policy(x)) for x in INPUTS], recorded, rtol=1e-12, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("n_out", [1, 2])
def test_torch_still_computes_what_is_recorded(n_out: int) -> None:
    np.testing.assert_allclose(torch_says(n_out), json.loads(ORACLE.read_text())[str(n_out)], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("n_out", "n_weights"), [(1, 65), (2, 130)])
def test_theta_is_the_last_layer_row_major_then_the_biases(n_out: int, n_weights: int) -> None:
    policy = random_policy(n_out=n_out)
    theta = policy.get_weights()
    assert theta.shape == (n_weights,)
    np.testing.assert_array_equal(theta[:64], policy.w3[:, 0])
    np.testing.assert_array_equal(theta[-n_out:], policy.b3)
    other = np.arange(n_weights, dtype=float)
    before = policy(np.ones(5))
    policy.set_weights(other)
    np.testing.assert_array_equal(policy.get_weights(), other)
    assert not np.array_equal(policy(np.ones(5)), before)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=65, max_size=65))
def test_any_finite_theta_goes_in_and_comes_out_unchanged(theta: Any) -> None:
    policy = random_policy()
    policy.set_weights(theta)
    np.testing.assert_array_equal(policy.get_weights(), np.array(theta))


@pytest.mark.parametrize("bad", [np.zeros(64), np.zeros((65, 1)), np.full(65, np.nan), np.full(65, np.inf), "no", None])
def test_a_bad_theta_is_refused_and_nothing_changes(bad: Any) -> None:
    policy = random_policy()
    before = policy.get_weights()
    with pytest.raises(InvalidInput, match="theta"):
        policy.set_weights(bad)
    np.testing.assert_array_equal(policy.get_weights(), before)


def test_a_file_brings_back_the_same_policy(tmp_path: Path) -> None:
    policy = random_policy()
    policy.meta = {"seed": 3}
    policy.save(tmp_path / "policy.npz")
    again = NNPolicy.load(tmp_path / "policy.npz")
    np.testing.assert_array_equal(again(np.ones(5)), policy(np.ones(5)))
    assert again.meta == {"seed": 3}


def test_files_that_are_no_policy_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.npz: there is no such file"):
        NNPolicy.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InvalidInput, match=r"text\.npz"):
        NNPolicy.load(tmp_path / "text.npz")
    np.savez(tmp_path / "pickled.npz", w1=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InvalidInput, match=r"pickled\.npz"):
        NNPolicy.load(tmp_path / "pickled.npz")


@pytest.mark.parametrize(("name", "value"), [("w2", np.zeros((64, 63))), ("b1", np.full(64, math.nan))])
def test_layers_that_do_not_fit_or_are_not_finite_are_refused(name: str, value: Any) -> None:
    policy = random_policy()
    arrays = {key: getattr(policy, key) for key in ("w1", "b1", "w2", "b2", "w3", "b3")}
    with pytest.raises(InvalidInput, match=name):
        NNPolicy({**arrays, name: value})


if __name__ == "__main__":  # record anew, where torch is installed
    ORACLE.write_text(json.dumps({n_out: torch_says(n_out).tolist() for n_out in (1, 2)}, indent=0) + "\n")
