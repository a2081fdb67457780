"""The paper's comparison on the KUKA's throw (112 parameters, 110 episodes): all methods, average observed return
and final J(theta*)."""

from __future__ import annotations

import argparse

from crbo_ros.bench.policy import add_arguments_for, run_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments_for(parser, "basketball", 20)


def run(args: argparse.Namespace) -> int:
    return run_for("basketball", ("basketball",), args)
