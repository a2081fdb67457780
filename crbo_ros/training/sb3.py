"""stable-baselines3 models -> agents of plain arrays (policies/agent.py).

A saved model is a zip with the network's tensors (`policy.pth`) and the settings as text (`data`). Both are read
without executing anything from the file (torch's weights_only, JSON), so a model from the net can do no harm here. The
statistics of VecNormalize exist as a pickle only; SB3 loads those, and a pickle can run code: use your own.

What the networks are called, and what SB3 does with their output when it acts deterministically:
    PPO, A2C   mlp_extractor.policy_net.*, action_net   clip to the bounds, or argmax; tanh with squash_output
    SAC        actor.latent_pi.*, actor.mu              tanh, stretched to the bounds
    TD3, DDPG  actor.mu.*                               tanh, stretched to the bounds
    DQN        q_net.q_net.*                            argmax
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.errors import InvalidInput, MissingDependency
from crbo_ros.plants.gymnasium import GymnasiumPlant
from crbo_ros.policies.agent import ACTIVATIONS, Agent

# (prefixes of the layers in order, activation by default, squashed); the first that fits is taken
KINDS = (
    (("mlp_extractor.shared_net.", "mlp_extractor.policy_net.", "action_net."), "tanh", False),
    (("actor.latent_pi.", "actor.mu."), "relu", True),
    (("actor.mu.",), "relu", True),
    (("q_net.q_net.",), "relu", False),
)
TORCH_NAMES = {"Tanh": "tanh", "ReLU": "relu", "LeakyReLU": "leaky_relu", "ELU": "elu", "SiLU": "silu"}


def agent_from_state(
    tensors: Mapping[str, Any],
    plant: GymnasiumPlant,
    *,
    policy_settings: Mapping[str, Any] | None = None,
    normalizer: Any = None,
    meta: dict[str, Any] | None = None,
) -> Agent:
    """The agent in a policy's state dict, for a connected environment; `normalizer` is its VecNormalize, if any."""
    from gymnasium import spaces

    settings = dict(policy_settings or {})
    layers, activation, squash = _layers({k: np.asarray(v, dtype=np.float64) for k, v in tensors.items()})
    if named := settings.get("activation_fn"):
        activation = _activation(str(named))
    space = plant.env.action_space
    if isinstance(space, spaces.Discrete):
        how: dict[str, Any] = {"output": "greedy"}
    else:
        squash = squash or str(settings.get("squash_output", False)) == "True"
        how = {"output": "squash" if squash else "clip", "low": space.low.ravel(), "high": space.high.ravel()}
    agent = Agent(layers, activation=activation, meta=meta, **how, **_normalization(normalizer))
    if (agent.n_in, agent.n_out) != (plant.n_observation, plant.n_action):
        raise InvalidInput(
            f"model: {agent.n_in} inputs and {agent.n_out} outputs, but {plant.env_id} has {plant.n_observation} "
            f"observations and {plant.n_action} actions; was it trained on another environment?"
        )
    return agent


def _layers(tensors: dict[str, Any]) -> tuple[list[tuple[Any, Any]], str, bool]:
    """([(w, b), ...] as (n_in, n_out), default activation, squashed) of the policy network among all tensors."""
    learned = [k for k in tensors if "features_extractor." in k]
    if learned:
        raise InvalidInput(
            f"model: it has a feature extractor with weights ({learned[0]}); only MlpPolicy is supported"
        )
    for prefixes, activation, squash in KINDS:
        if not any(key.startswith(prefixes[-1]) for key in tensors):
            continue
        names = [name for prefix in prefixes for name in _in_order(tensors, prefix)]
        return [(tensors[f"{n}.weight"].T, tensors[f"{n}.bias"]) for n in names], activation, squash
    raise InvalidInput("model: no policy network of PPO, A2C, SAC, TD3, DDPG or DQN in it")


def _in_order(tensors: dict[str, Any], prefix: str) -> list[str]:
    """Names of the linear layers below a prefix, by their number in the sequence."""
    names = {key.rsplit(".", 1)[0] for key in tensors if key.startswith(prefix) and key.endswith(".weight")}
    return sorted(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name[len(prefix) - 1 :])])


def _activation(text: str) -> str:
    """A torch class as SB3 writes it, "<class 'torch.nn.modules.activation.ReLU'>" -> "relu"."""
    name = text.rstrip("'>").rsplit(".", 1)[-1]
    if name not in TORCH_NAMES:
        raise InvalidInput(f"model: the activation {name!r} is not supported; known are {', '.join(ACTIVATIONS)}")
    return TORCH_NAMES[name]


def _normalization(normalizer: Any) -> dict[str, Any]:
    """VecNormalize's (x - mean) / sqrt(var + epsilon), clipped, as the agent's inputs."""
    if normalizer is None or not getattr(normalizer, "norm_obs", False):
        return {}
    scale = 1.0 / np.sqrt(np.ravel(normalizer.obs_rms.var) + normalizer.epsilon)
    offset = np.ravel(normalizer.obs_rms.mean).copy()
    return {"input_offset": offset, "input_scale": scale, "input_clip": float(normalizer.clip_obs)}


def read_model(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(tensors, policy_kwargs) of a model saved by SB3, without executing anything in it."""
    try:
        import torch
    except ImportError as error:
        raise MissingDependency(f"reading a model needs torch ({error}): pip install stable-baselines3") from None
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read("data"))
            blob = archive.read("policy.pth")
        tensors = torch.load(io.BytesIO(blob), map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise InvalidInput(f"model: {path} does not exist") from None
    except Exception as error:  # torch and zipfile raise many kinds for a file that is not what it should be
        raise InvalidInput(f"model: {path} is no model saved by stable-baselines3 ({error})") from None
    if data.get("use_sde") and any(key.startswith("actor.mu.0.") for key in tensors):
        raise InvalidInput("model: SAC with gSDE clips its mean in a way that is not supported")
    return {k: v.numpy() for k, v in tensors.items() if k.endswith((".weight", ".bias"))}, dict(
        data.get("policy_kwargs") or {}
    )


def read_normalizer(path: Path, plant: GymnasiumPlant) -> Any:
    """VecNormalize's statistics. A pickle: only from a source that you trust."""
    from crbo_ros.training.ppo import require_sb3

    require_sb3()
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    try:
        return VecNormalize.load(str(path), DummyVecEnv([lambda: plant.env]))
    except FileNotFoundError:
        raise InvalidInput(f"vecnormalize: {path} does not exist") from None
