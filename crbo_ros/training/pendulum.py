"""`./crbo train pendulum`: the agent that the pendulum task starts from; the defaults make data/pendulum.npz.

A selected agent: it balances, as all of them do after 120,000 steps, and the angle at which it comes to rest differs
from update to update by a degree or so, which the original reward hardly sees. Of seeds 2 to 4, looked at every 61,440
steps, this one is nearest to the return that the paper's agent starts from under the new reward.
"""

from __future__ import annotations

import argparse

from crbo_ros.training import ppo

RECIPE = ppo.TrainingRecipe(
    task="pendulum",
    env="Pendulum-v1",
    steps=600_000,
    stop=491_520,
    seed=4,
    n_envs=8,
    decay=True,
    settings={
        "n_steps": 256,
        "batch_size": 256,
        "n_epochs": 10,
        "gamma": 0.95,
        "gae_lambda": 0.95,
        "learning_rate": 1e-3,
        "clip_range": 0.2,
        "ent_coef": 0.0,
    },
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ppo.add_arguments(parser, RECIPE)


def run(args: argparse.Namespace) -> int:
    return ppo.run(args, RECIPE)
