"""The paper's comparison on adapted reinforcement-learning agents: Pendulum (65 parameters), CartPole (130),
MountainCar (65)."""

from __future__ import annotations

import argparse

from crbo_ros.bench.policy import add_arguments_for, run_for

TASKS = ("pendulum", "cartpole", "mountaincar")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments_for(parser, "gym", 20)
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma-separated")


def run(args: argparse.Namespace) -> int:
    return run_for("gym", tuple(args.tasks.split(",")), args)
