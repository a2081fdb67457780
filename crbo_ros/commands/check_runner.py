"""Run a runner of your own, in any language, against the protocol, and say what it does wrong.

    ./crbo check-runner python examples/own_runner.py
    ./crbo check-runner ros2 run my_package my_runner

It is started with `--ros-args -r __ns:=/crbo_check` and gets a dozen proposals of one parameter from an optimizer and a
monitor that drop, double, delay, veto and stop. Nothing else may listen there: it must not be connected to a robot. It
must end when it is told DONE. Exit code 0: it keeps the protocol (docs/PROTOCOL.md, docs/INTEGRATION.md section 4).
"""

from __future__ import annotations

import argparse
import os
import shutil

from crbo_ros.errors import InvalidInput


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=120.0, help="give up after so many (default: 120)")
    parser.add_argument("runner", nargs=argparse.REMAINDER, help="the command that starts it")


def run(args: argparse.Namespace) -> int:
    words = args.runner[1:] if args.runner[:1] == ["--"] else args.runner
    if not words:
        raise InvalidInput("which runner? crbo check-runner COMMAND [ARGUMENTS]")
    if shutil.which(words[0]) is None:
        raise InvalidInput(f"{words[0]} is no program that can be started")
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    from crbo_ros.ros.conformance import CASES, check

    wrong, output = check(words, f"/crbo_check_{os.getpid()}", args.seconds)
    print("\n".join(output.splitlines()[-5:]))
    for line in wrong:
        print(f"WRONG  {line}")
    print(f"{len(CASES)} cases: {f'{len(wrong)} mistakes' if wrong else 'it keeps the protocol'}")
    return 1 if wrong else 0
