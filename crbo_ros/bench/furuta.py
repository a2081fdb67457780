"""The paper's comparison on the Furuta pendulum's stand-in (65 parameters, 100 episodes): all methods, average
observed return and final J(theta*)."""

from __future__ import annotations

import argparse

from crbo_ros.bench.policy import add_arguments_for, run_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments_for(parser, "furuta", 10)


def run(args: argparse.Namespace) -> int:
    return run_for("furuta", ("furuta",), args)
