"""`./crbo import-sb3 model.zip --env ENV_ID --out my.npz`: an agent of your own, ready to be fine-tuned.

Writes the agent (my.npz) and, beside it, the task that it makes (my.yaml, a ROS parameter file):

    ./crbo run gym --params-file my.yaml                       (the same as --env ENV_ID --weights my.npz)
    ros2 launch crbo_ros gym.launch.py env:=ENV_ID weights:=my.npz
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

ENTRY = """# An imported agent on {env}; further parameters: docs/API.md.
/**:
  ros__parameters:
    task: gym
    task_options: {options}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Turn a model saved by stable-baselines3 (PPO, A2C, SAC, TD3, DDPG, DQN) into a task."
    parser.add_argument("model", type=Path, help="the .zip that model.save() wrote")
    parser.add_argument("--env", required=True, help="gymnasium id of its environment, e.g. Pendulum-v1")
    parser.add_argument("--out", type=Path, help="file to write (default: the model's name with .npz)")
    parser.add_argument(
        "--vecnormalize", type=Path, help="VecNormalize's .pkl, if it was used (a pickle: only your own)"
    )
    parser.add_argument("--width", type=float, default=1.0, help="half width of the domain around theta_0 (default 1)")
    parser.add_argument("--episodes", type=int, default=10, help="episodes to try it for (default 10)")


def run(args: argparse.Namespace) -> int:
    from crbo_ros.errors import as_called
    from crbo_ros.plants.gymnasium import GymnasiumPlant
    from crbo_ros.tasks.gym import GymTask
    from crbo_ros.training.sb3 import agent_from_state, read_model, read_normalizer

    out = (args.out or args.model).with_suffix(".npz")
    tensors, settings = read_model(args.model)
    with GymnasiumPlant(args.env) as plant:
        normalizer = read_normalizer(args.vecnormalize, plant) if args.vecnormalize else None
        meta = {"env": args.env, "source": args.model.name}
        agent = agent_from_state(tensors, plant, policy_settings=settings, normalizer=normalizer, meta=meta)
    agent.save(out)
    options = {"env": args.env, "weights": str(out.resolve()), "width": args.width}
    entry = out.with_suffix(".yaml")
    entry.write_text(ENTRY.format(env=args.env, options=json.dumps(options)))
    with GymTask(**options) as task:
        rng = np.random.default_rng(0)
        values = [task.rollout(task.theta_0, rng).value for _ in range(args.episodes)]
    print(f"wrote {out} and {entry}: {task.dim} parameters, {len(agent.layers) - 1} hidden layers")
    if values:
        print(f"J(theta_0) = {np.mean(values):.4g} (sd {np.std(values):.2g}, {len(values)} episodes of {args.env})")
    domain = "" if args.width == 1.0 else f" --task-options '{json.dumps({'width': args.width})}'"
    print(as_called(f"next: ./crbo run gym --env {args.env} --weights {out}{domain}"))
    return 0
