"""`./crbo export EXPERIMENT --csv|--mcap`: an experiment for other programs.

    ./crbo export furuta --csv                 # proposals.csv and verdicts.csv beside the experiment
    ./crbo export furuta --mcap --output x.mcap   # opens in Foxglove, PlotJuggler, `ros2 bag info|play`

The MCAP file holds the messages of the topics proposal, safety_verdict, episode_return and optimizer_state with their
definitions, at the time at which they were first published.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crbo_ros.checks import cell
from crbo_ros.commands.arguments import add_experiment
from crbo_ros.errors import MissingDependency

if TYPE_CHECKING:
    from crbo_ros.view.run_view import RunView


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--csv", action="store_true", help="tables: proposals.csv and verdicts.csv")
    kind.add_argument("--mcap", action="store_true", help="a recording of the topics")
    parser.add_argument("--output", type=Path, help="folder (--csv) or file (--mcap); default: beside the experiment")
    parser.add_argument("--namespace", default="", help="ROS namespace of the topics in the MCAP file")


def run(args: argparse.Namespace) -> int:
    from crbo_ros.view.record import find_store, read_run

    run = read_run(find_store(args.experiment, args.experiments_dir))
    if args.csv:
        written = write_csv(run, args.output or run.path.parent)
    else:
        written = [write_mcap(run, args.output or run.path.parent / f"{run.name}.mcap", args.namespace)]
    for path in written:
        print(path)
    return 0


def write_csv(run: RunView, folder: Path) -> list[Path]:
    """proposals.csv (one row for each, with theta in columns) and verdicts.csv. Unknown numbers are empty cells."""
    folder.mkdir(parents=True, exist_ok=True)
    dim = run.experiment["dim"] if run.experiment else 0
    columns = "id kind outcome value bound worst_case worst_case_paper mean sigma gamma".split()
    columns += "runner created stamp steps duration deadline_misses".split()
    columns += "median_lateness p99_lateness max_lateness episode_uid verdict_id reason".split()
    rows: list[list[Any]] = []
    for row in run.rows:
        p, e = row.proposal, row.episode
        assert p is not None
        cells = [row.id, row.kind, row.outcome, row.value, row.bound, p.worst_case, p.worst_case_paper, p.mean]
        cells += [p.sigma, p.gamma, row.runner, p.stamp]
        if e is not None:
            cells += [e.stamp, e.steps, e.duration, e.deadline_misses, e.median_lateness, e.p99_lateness]
            cells += [e.max_lateness, e.episode_uid, e.verdict_id]
        else:
            cells += [""] * 9
        rows.append([*cells, row.reason, *p.theta.tolist()])
    proposals, verdicts = folder / "proposals.csv", folder / "verdicts.csv"
    _write(proposals, [*columns, *(f"theta[{i}]" for i in range(dim))], rows)
    keys = "proposal_id status worst_case threshold nearest_id distance lipschitz lipschitz_source".split()
    keys += "runner stamp verdict_id monitor_uid reason".split()
    _write(verdicts, keys, [[getattr(verdict, key) for key in keys] for row in run.rows for verdict in row.verdicts])
    return [proposals, verdicts]


def _write(path: Path, columns: list[str], rows: list[list[Any]]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:  # floats as their shortest exact text
            writer.writerow(["" if isinstance(v, float) and not math.isfinite(v) else cell(v) for v in row])


def write_mcap(run: RunView, path: Path, namespace: str = "") -> Path:
    """The topics' messages as CDR, with their definitions."""
    try:
        from mcap_ros2.writer import Writer
    except ImportError:
        raise MissingDependency("--mcap needs two packages: pip install mcap mcap-ros2-support") from None
    from crbo_ros.report.messages import RECORDED, definition, messages
    from crbo_ros.view.values import TOPICS

    definitions = {kind: definition(kind) for kind in (TOPICS[topic][0] for topic in RECORDED)}
    prefix = f"/{namespace.strip('/')}/" if namespace.strip("/") else "/"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    counts = dict.fromkeys(RECORDED, 0)
    with open(part, "wb") as file, Writer(file) as writer:
        schemas = {kind: writer.register_msgdef(f"crbo_ros/msg/{kind}", text) for kind, text in definitions.items()}
        for topic, kind, seconds, fields in messages(run):
            time = int(seconds * 1e9)
            writer.write_message(prefix + topic, schemas[kind], fields, time, time, sequence=counts[topic])
            counts[topic] += 1
        if run.experiment:
            about = {key: str(run.experiment[key]) for key in ("name", "uid", "task", "method", "seed", "config")}
            writer.add_metadata("crbo_ros experiment", about)
    part.replace(path)
    return path
