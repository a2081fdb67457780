"""`./crbo operator COMMAND`: an operator's command that loosens something, with the proof that it needs.

    ./crbo operator rearm furuta-stand_in-crbo-s1              # after a stop
    ./crbo operator set EXPERIMENT j_min_drop=0.4              # a threshold of the monitor's
    ./crbo operator approve EXPERIMENT proposal_id=3           # with require_operator
    ./crbo operator clear EXPERIMENT --runner episode_runner   # a runner that is held, or at fault
    ./crbo operator give_back EXPERIMENT

EXPERIMENT is a name below ./experiments or ~/.ros/crbo_ros. The key is read from operator.key in its folder (or from
CRBO_KEY), so only its user can do this. Whatever makes things stricter (stop, pause, finish) needs no proof.
"""

from __future__ import annotations

import argparse
import os

from crbo_ros import checks
from crbo_ros.commands.rollout import parse_options
from crbo_ros.errors import CrboError, InvalidInput
from crbo_ros.protocol.proofs import APPROVE, CLEAR, GIVE_BACK, REARM, SET, find_key

TIMEOUT = 10.0  # s


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", choices=[REARM, SET, APPROVE, CLEAR, GIVE_BACK])
    parser.add_argument("experiment")
    parser.add_argument("arguments", nargs="*", metavar="NAME=VALUE")
    parser.add_argument("--namespace", default="", help="ROS namespace (default: as `crbo run` makes it)")
    parser.add_argument("--runner", default="episode_runner", help="for clear and give_back")


def run(args: argparse.Namespace) -> int:
    from crbo_ros.ros.link import RosLink
    from crbo_ros.ros.operator import command

    name = checks.name(args.experiment, "experiment")
    key = find_key(name)
    namespace = checks.namespace(args.namespace) or "".join(c if c.isalnum() else "_" for c in name)
    arguments = parse_options(args.arguments)
    if args.command == SET and not arguments:
        raise InvalidInput("set: expected NAME=VALUE, e.g. j_min_drop=0.4")
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    of_runner = args.command in (CLEAR, GIVE_BACK)
    service = "/".join(["", namespace.strip("/"), *([checks.namespace(args.runner)] if of_runner else []), "operator"])
    with RosLink("crbo_operator") as link:
        answer = command(link, key, service, args.command, arguments, TIMEOUT)
    if not answer.accepted:
        hint = "" if key else f" (no operator.key was found for {name}, and CRBO_KEY is not set)"
        raise CrboError(f"{answer.reason}{hint}")
    print(answer.reason or "done")
    return 0
