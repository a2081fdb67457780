"""`./crbo repair EXPERIMENT`: bring back what can be had of damaged stores from the others, and say what cannot.

    ./crbo inspect furuta --verify             # what is whole
    ./crbo repair furuta

Nothing may run meanwhile. A damaged file is kept beside the new one (experiment.sqlite.damaged-1); a whole one is not
touched. A store of a former version is taken over. A monitor whose store was repaired is held until rearm.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crbo_ros.view.record import find_folder, stored_method


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", help="a folder with experiment.sqlite, that file, or a name below ./experiments")


def run(args: argparse.Namespace) -> int:
    from crbo_ros.protocol.repair import repair

    folder: Path = find_folder(args.experiment)
    told, whole = repair(folder, stored_method)
    print("\n".join(told))
    print("all stores are whole" if whole else "not everything is whole; ./crbo inspect --verify says what")
    return 0 if whole else 1
