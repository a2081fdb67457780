"""Put back what was there before: the former values of tuned parameters, or the policy that was deployed before.

    ./crbo rollback EXPERIMENT

Tuned parameters are set on their nodes, read back, and written to former.yaml (for --params-file, should a node not be
running). Works at any time, after a crash as well: the former values were written down before the first change.
"""

from __future__ import annotations

import argparse

from crbo_ros.commands.arguments import add_experiment
from crbo_ros.commands.deployment import deploy, deployed, former_values, sign_off
from crbo_ros.errors import InvalidInput, PlantError
from crbo_ros.view.parameters import parameter_text, write_text
from crbo_ros.view.record import FILE, find_store, read_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    parser.add_argument("--by", default="", help="who signs (default: the user)")


def run(args: argparse.Namespace) -> int:
    folder = find_store(args.experiment, args.experiments_dir).parent
    facts = read_run(folder / FILE).experiment
    if facts is None:
        raise InvalidInput(f"{folder.name}: holds no experiment yet")
    history = deployed(folder)
    signed = sign_off(args.by)
    if facts["task"] == "tuning":
        values = former_values(folder)
        if not values:
            raise InvalidInput(
                f"{folder}: no runner has written down the former values (former.json); nothing was tuned"
            )
        file = write_text(folder / "former.yaml", parameter_text(values))
        try:
            for line in put_back(values):
                print(line)
        except PlantError as error:
            raise PlantError(f"{error}. Start your node with --params-file {file}, or call this again") from None
        deploy(folder, "former", [float(value) for _, _, value in values], signed_off=signed)
        print(f"the former values are set (and in {file})")
        return 0
    before = [entry for entry in history[:-1] if entry["theta"] != history[-1]["theta"]] if history else []
    theta = before[-1]["theta"] if before else facts["theta_0"]
    deploy(folder, "former", theta, signed_off=signed)
    what = "the policy that was deployed before" if before else "theta_0, the policy from before the experiment"
    print(f"deployed now: {what} ({folder / 'deployed.json'})")
    return 0


def put_back(values: list[tuple[str, str, object]]) -> list[str]:
    """Set the values on their nodes; what changed, a line each. PlantError if one is not set."""
    from crbo_ros.plants.ros.parameters import BOOL, DOUBLE, INTEGER, read, write
    from crbo_ros.ros.link import RosLink

    wanted: dict[str, dict[str, float]] = {}
    types = {}
    for node, name, value in values:
        wanted.setdefault(node, {})[name] = float(value)  # type: ignore[arg-type]
        types[node, name] = BOOL if isinstance(value, bool) else INTEGER if isinstance(value, int) else DOUBLE
    with RosLink("crbo_rollback") as link:
        now = read(link, {node: list(named) for node, named in wanted.items()})
        write(link, wanted, types)
    lines = []
    for node, named in wanted.items():
        for name, value in named.items():
            found = now[node][name][1]
            change = f"  (was {found:g})" if found != value else "  (as it was)"
            lines.append(f"{node} {name} = {value:g}{change}")
    return lines
