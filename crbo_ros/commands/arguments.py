"""Arguments that several commands have."""

from __future__ import annotations

import argparse


def add_experiment(parser: argparse.ArgumentParser) -> None:
    """EXPERIMENT and --experiments-dir, as every command that looks at an experiment has them."""
    parser.add_argument("experiment", help="the name of an experiment, its folder, or its experiment.sqlite")
    add_home(parser)


def add_home(parser: argparse.ArgumentParser) -> None:
    help_ = "where experiments are kept (default: CRBO_HOME, or crbo_ros in ROS_HOME, ~/.ros)"
    parser.add_argument("--experiments-dir", default="", metavar="FOLDER", help=help_)
