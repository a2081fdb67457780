"""Does `crbo check-runner` find what is wrong with a runner? Faults planted in copies of examples/own_runner.py."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from crbo_ros.errors import InvalidInput
from crbo_ros.ros.conformance import SECONDS, check

RETRIES = """    while call(AcknowledgeEpisode, episode=end).status == AcknowledgeEpisode.Response.RETRY:
        sleep(1.0)
"""
FAULTS = {
    "moves although it was vetoed": (
        "if fresh and v.status == v.APPROVED and not",
        "if fresh and v.status in (v.APPROVED, v.VETOED) and not",
    ),
    "takes another's verdict for its own": (
        "mine = told == (p.experiment_uid, p.id, p.theta_hash, me, nonce)",
        "mine = told[:4] == (p.experiment_uid, p.id, p.theta_hash, me)",
    ),
    "uses an approval that is too old": (
        "fresh = mine and now() - asked[CheckRollout] < v.valid_for and now() - asked[ProposePolicy] < p.lease",
        "fresh = mine",
    ),
    "does not hear a stop": ("    if alive and not beat.armed:\n", "    if False:\n"),
    "goes on without a monitor": ('return "" if sure else "the monitor is gone"', 'return ""'),
    "takes a new request_id for what it holds": (
        "request_id = uuid4().hex if answer.status == answer.REFUSED else request_id",
        "request_id = uuid4().hex",
    ),
    "hands a result in once and forgets it": (RETRIES, "    call(AcknowledgeEpisode, episode=end)\n"),
    "hands a result in under a new name": (RETRIES, RETRIES + "        end.episode_uid = uuid4().hex\n"),
    "does not renew its lease": (
        "    for _ in range(30):\n",
        "    statuses.publish(status)\n    for _ in range(30):\n",
    ),
}
ONLY_ONCE = ("        statuses.publish(status)  # renews the lease\n", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--faults", type=int, nargs="+", default=list(range(len(FAULTS))), help="by number; default: all"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS)


def run(args: argparse.Namespace) -> int:
    example = Path(os.environ.get("CRBO_ROOT", Path(__file__).parents[2])) / "examples" / "own_runner.py"
    if not example.is_file():
        raise InvalidInput(f"{example}: is not there; run this in a clone")
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in args.faults:
            name = list(FAULTS)[number]
            file = Path(folder) / f"runner_{number}.py"
            file.write_text(planted(example.read_text(), name))
            wrong, _ = check([sys.executable, str(file)], f"/planted_{os.getpid()}_{number}", args.seconds)
            missed += not wrong
            print(f"{'found ' if wrong else 'MISSED'} {name}: {wrong[0] if wrong else ''}", flush=True)
    print(f"{len(args.faults) - missed} of {len(args.faults)} planted faults found")
    return 1 if missed else 0


def planted(text: str, name: str) -> str:
    """The runner with one fault in it."""
    changes = [FAULTS[name], ONLY_ONCE] if "lease" in name else [FAULTS[name]]
    for old, new in changes:
        if old not in text:
            raise InvalidInput(f"the example has changed: there is no place for the fault {name!r}")
        text = text.replace(old, new, 1)
    return text
