"""A shell with the environment set: ROS, the built interfaces, the virtual environment. `ros2` works if installed."""

from __future__ import annotations

import argparse
import os


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a command to run instead of an interactive shell")


def run(args: argparse.Namespace) -> int:
    if args.command:
        os.execvp(args.command[0], args.command)
    print("crbo: a shell with the environment set; leave it with exit")
    shell = os.environ.get("SHELL") or "/bin/sh"
    os.execvp(shell, [shell])
    return 1
