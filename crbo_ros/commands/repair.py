"""`./crbo repair EXPERIMENT`: bring back what can be had of damaged stores from the others, and say what cannot.

    ./crbo inspect furuta --verify             # what is whole
    ./crbo repair furuta
    ./crbo repair furuta --bag furuta.mcap     # results that no store has any more, from a recording of the topics

Nothing may run meanwhile. A damaged file is kept beside the new one (experiment.sqlite.damaged-1); a whole one is not
touched. What comes from a bag (./crbo export --mcap, or ros2 bag record -s mcap) is taken only for proposals whose
theta is the same bit for bit, and the monitor marks it as unverified. A store of a former version is taken over. A
monitor whose store was repaired is held until rearm.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crbo_ros.commands.arguments import add_experiment
from crbo_ros.errors import InvalidInput
from crbo_ros.protocol.records import Episode, from_fields
from crbo_ros.view.record import find_folder, stored_method


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    parser.add_argument(
        "--bag", type=Path, action="append", default=[], help="an MCAP file with episode_return messages"
    )


def recorded(bag: Path) -> list[Episode]:
    """The results in a recording, whatever their topic's name."""
    from crbo_ros.bag import read_bag

    log, _ = read_bag(bag, kind="crbo_ros/msg/EpisodeReturn")
    found = [from_fields(message, Episode) for messages in log.values() for _, message in messages]
    if not found:
        raise InvalidInput(f"{bag}: holds no message of the type crbo_ros/msg/EpisodeReturn")
    return found


def run(args: argparse.Namespace) -> int:
    from crbo_ros.protocol.repair import repair

    folder: Path = find_folder(args.experiment, args.experiments_dir)
    told, whole = repair(folder, stored_method, [episode for bag in args.bag for episode in recorded(bag)])
    print("\n".join(told))
    print("all stores are whole" if whole else "not everything is whole; ./crbo inspect --verify says what")
    return 0 if whole else 1
