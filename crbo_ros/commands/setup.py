"""Set up what a command needs without running it: setup [COMMAND] [its options that matter, such as --slow].

Without a network: `./crbo setup test --download wheels` on a machine that has one (same Python, same system), carry the
folder over, and there `./crbo setup test --wheels wheels`.
"""

from __future__ import annotations

import argparse
import sys

from crbo_ros.cli import COMMANDS

TAKES_UNKNOWN = True  # options of the command that is set up


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="?", default="run", choices=list(COMMANDS), metavar="COMMAND", help="(run)")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--download", metavar="FOLDER", help="only fetch the wheels into this folder")
    where.add_argument("--wheels", metavar="FOLDER", help="install from this folder alone, without a network")


def run(args: argparse.Namespace) -> int:
    print("crbo: ./crbo of a clone sets up; an installed crbo has nothing to set up", file=sys.stderr)
    return 1
