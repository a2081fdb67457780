"""`./crbo report EXPERIMENT`: an experiment as one self-contained HTML file and a picture.

    ./crbo report furuta                       # writes report.html and report.png beside the experiment
    ./crbo report path/to/experiment.sqlite --folder out --option mass=0.02

A run that is still going on can be reported on as well. theta_0 and the best policy are simulated once more for a
picture; hardware is never moved.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from crbo_ros.commands.arguments import add_experiment
from crbo_ros.commands.rollout import parse_options
from crbo_ros.report import write_report
from crbo_ros.view.record import find_store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    parser.add_argument("--folder", type=Path, help="where to write (default: beside the experiment)")
    parser.add_argument("--no-trajectories", action="store_true", help="do not simulate theta_0 and the best policy")
    parser.add_argument("--plant", help="simulate them on this plant of the task")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="an option of the task")


def run(args: argparse.Namespace) -> int:
    options = parse_options(args.option) | ({"plant": args.plant} if args.plant else {})
    store = find_store(args.experiment, args.experiments_dir)
    for path in write_report(store, args.folder, trajectories=not args.no_trajectories, options=options):
        print(path)
    return 0
