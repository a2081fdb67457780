"""Train a gymnasium agent with PPO (Schulman et al., 2017; stable-baselines3) and export it to `.npz`.

The paper starts from the agents of the RL zoo. Ours are trained here, by `./crbo train pendulum|cartpole|mountaincar`,
on the environments' *original* rewards; CRBO then adapts the last layer to a new reward. stable-baselines3 and torch
are needed for this step only: the product holds plain arrays. A run is a function of the recipe, the seed and the
library versions (one thread, no GPU); other versions of torch may round differently and give another agent.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.errors import InvalidInput, MissingDependency
from crbo_ros.policies.agent import Agent


@dataclass(frozen=True)
class TrainingRecipe:
    """All that determines an agent. `settings` are the arguments of stable_baselines3.PPO."""

    task: str  # name of the task it is for: its agent is data/TASK.npz
    env: str  # gymnasium id
    steps: int  # environment steps of training; the learning rate's decay spans all of them
    seed: int
    n_envs: int = 1
    normalize: bool = False  # running mean and variance of the observations (VecNormalize), needed at inference too
    decay: bool = False  # learning rate falls linearly to 0
    stop: int | None = None  # training ends early, after this many steps
    settings: dict[str, Any] = field(default_factory=dict)


def require_sb3() -> Any:
    """stable_baselines3, on one torch thread; MissingDependency says what to install."""
    try:
        import stable_baselines3
        import torch
    except ImportError as error:
        raise MissingDependency(f"training needs stable-baselines3 ({error}): pip install stable-baselines3") from None
    torch.set_num_threads(1)
    return stable_baselines3


def train(recipe: TrainingRecipe, *callbacks: Any) -> tuple[Any, Any]:
    """(model, its vector environment), after the first update at or beyond `stop`. Callbacks are SB3's."""
    sb3 = require_sb3()
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    class StopEarly(BaseCallback):
        def _on_rollout_start(self) -> None:  # right after the update on the last rollout
            self.go_on = recipe.stop is None or self.num_timesteps < recipe.stop

        def _on_step(self) -> bool:
            return self.go_on

    env = make_vec_env(recipe.env, n_envs=recipe.n_envs, seed=recipe.seed)
    settings = dict(recipe.settings)
    if recipe.normalize:
        env = VecNormalize(env, gamma=settings.get("gamma", 0.99))
    if recipe.decay:
        rate = float(settings["learning_rate"])
        settings["learning_rate"] = lambda remaining: rate * remaining
    model = sb3.PPO("MlpPolicy", env, seed=recipe.seed, device="cpu", **settings)
    model.learn(recipe.steps, callback=[StopEarly(), *callbacks])
    return model, env


def export(model: Any, env: Any, recipe: TrainingRecipe) -> Agent:
    """The agent as it acts at inference: network, normaliser, action bounds, and where it came from."""
    import torch
    from stable_baselines3 import __version__
    from stable_baselines3.common.vec_env import VecNormalize

    from crbo_ros.plants.gymnasium import GymnasiumPlant
    from crbo_ros.training.sb3 import agent_from_state

    meta = {
        "env": recipe.env,
        "algorithm": "PPO",
        "seed": recipe.seed,
        "steps": recipe.stop or recipe.steps,
        "versions": {"stable-baselines3": __version__, "torch": torch.__version__},
    }
    tensors = {k: v for k, v in model.policy.state_dict().items() if k.endswith((".weight", ".bias"))}
    with GymnasiumPlant(recipe.env) as plant:
        normalizer = env if isinstance(env, VecNormalize) else None
        return agent_from_state(tensors, plant, normalizer=normalizer, meta=meta)


def add_arguments(parser: argparse.ArgumentParser, recipe: TrainingRecipe) -> None:
    """The options that every `./crbo train` of an agent has; their defaults make the agent in data/."""
    parser.description = f"Train the {recipe.task} agent with PPO on {recipe.env} and its original reward."
    parser.add_argument("--seed", type=int, default=recipe.seed, help=f"default {recipe.seed}")
    parser.add_argument("--steps", type=int, default=recipe.steps, help=f"of the environment, default {recipe.steps}")
    parser.add_argument("--stop", type=int, default=recipe.stop, help=f"end early, default {recipe.stop}")
    parser.add_argument("--out", type=Path, default=Path(f"{recipe.task}.npz"), help=f"default {recipe.task}.npz here")
    parser.add_argument("--episodes", type=int, default=100, help="episodes that measure J(theta_0), default 100")


def run(args: argparse.Namespace, recipe: TrainingRecipe) -> int:
    """Train, export, and say what the agent earns under the task's new reward."""
    from crbo_ros.registry import load

    if args.steps < 1:
        raise InvalidInput(f"steps: {args.steps} is not a positive number")
    recipe = replace(recipe, seed=args.seed, steps=args.steps, stop=args.stop)
    began = time.process_time()
    model, env = train(recipe)
    agent = export(model, env, recipe)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    agent.save(args.out)
    trained = f"{recipe.stop or recipe.steps} steps of {recipe.env}, seed {recipe.seed}"
    print(f"{trained}, {time.process_time() - began:.0f} s of CPU")
    task = load("tasks", recipe.task)(weights=args.out)
    values = start_returns(task, args.episodes)
    spread = f"sd {values.std():.2g}, {len(values)} episodes"
    print(f"wrote {args.out}; J(theta_0) = {values.mean():.4g} under the new reward ({spread})")
    return 0


def start_returns(task: Any, episodes: int) -> np.ndarray:
    """Returns (episodes,) of theta_0 from a fixed set of start states."""
    rng = np.random.default_rng(0)
    return np.array([task.rollout(task.theta_0, rng).value for _ in range(episodes)])
