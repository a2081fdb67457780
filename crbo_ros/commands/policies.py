"""`./crbo policies`: SROS2's policy file for a graph in a namespace, from the table of topics and services.

    ./crbo policies --namespace lab --output policies.xml
    ros2 security create_keystore keys
    for role in optimizer safety_monitor episode_runner operator viewer; do
        ros2 security create_enclave keys /crbo/$role
        ros2 security create_permission keys /crbo/$role policies.xml
    done

With ROS_SECURITY_ENABLE=true, `./crbo run` and the launch files start each node in its enclave; see docs/SECURITY.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crbo_ros import checks
from crbo_ros.ros.security import policies


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", default="", help="ROS namespace of the graph (default: the root)")
    parser.add_argument("--runners", type=int, default=1, help="number of episode runners")
    parser.add_argument("--output", type=Path, help="file to write (default: print it)")


def run(args: argparse.Namespace) -> int:
    runners = int(checks.number(args.runners, "--runners", 1, 64, whole=True))
    text = policies(checks.namespace(args.namespace, "--namespace"), runners)
    if args.output:
        checks.writable(args.output, "--output").write_text(text)
    else:
        print(text, end="")
    return 0
