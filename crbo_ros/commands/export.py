"""`./crbo export EXPERIMENT --csv|--mcap|--layouts|--policy KIND`: an experiment or its best policy for other programs.

    ./crbo export furuta --csv                 # proposals.csv and verdicts.csv beside the experiment
    ./crbo export furuta --policy npz --output policy.npz    # or yaml, csv, onnx, torchscript: docs/DEPLOY.md
    ./crbo export furuta --mcap --output x.mcap   # opens in Foxglove, PlotJuggler, `ros2 bag info|play`
    ./crbo export furuta --layouts             # layouts for PlotJuggler and Foxglove, for the running graph's namespace

The MCAP file holds the messages of the topics proposal, safety_verdict, episode_return and optimizer_state with their
definitions, at the time at which they were first published. metadata.yaml beside it makes its folder a bag.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crbo_ros.checks import cell, whole, writable
from crbo_ros.commands.arguments import add_experiment
from crbo_ros.errors import InvalidInput, MissingDependency

if TYPE_CHECKING:
    from crbo_ros.view.run_view import RunView

POLICIES = ("npz", "yaml", "onnx", "torchscript", "csv")
SUFFIXES = {"torchscript": "pt"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--csv", action="store_true", help="tables: proposals.csv and verdicts.csv")
    kind.add_argument("--mcap", action="store_true", help="a recording of the topics")
    kind.add_argument("--layouts", action="store_true", help="layouts for PlotJuggler and Foxglove, to watch it run")
    kind.add_argument("--policy", choices=POLICIES, help="the best policy, as a file of this kind")
    parser.add_argument("--output", type=Path, help="folder (--csv, --layouts) or file; default: beside the experiment")
    spaces = "ROS namespace of the topics (default: none in an MCAP file, in layouts the one that it runs in)"
    parser.add_argument("--namespace", default="", help=spaces)


def run(args: argparse.Namespace) -> int:
    from crbo_ros.view.record import find_store, read_run

    run = read_run(find_store(args.experiment, args.experiments_dir))
    if args.policy:
        written = [export_policy(run, args.policy, args.output)]
    elif args.layouts:
        written = write_layouts(run, args.output or run.path.parent, args.namespace)
    elif args.csv:
        written = write_csv(run, args.output or run.path.parent)
    else:
        written = [write_mcap(run, args.output or run.path.parent / f"{run.name}.mcap", args.namespace)]
    for path in written:
        print(path)
    return 0


def export_policy(run: RunView, kind: str, output: Path | None) -> Path:
    """The best policy, made by the task as the record describes it."""
    from crbo_ros.commands.export_policy import write_policy
    from crbo_ros.view.record import remake

    if run.best is None or run.experiment is None:
        raise InvalidInput(f"{run.name}: has no return yet, so there is no best policy")
    path = writable(output or run.path.parent / f"policy.{SUFFIXES.get(kind, kind)}", "--output")
    about = {"experiment": run.name, "task": run.experiment["task"], "plant": run.plant, "proposal": run.best.id}
    return write_policy(remake(run).exported(run.best.theta), kind, path, about)


def write_layouts(run: RunView, folder: Path, namespace: str = "") -> list[Path]:
    """For the namespace in which the experiment runs, unless another one is given."""
    from crbo_ros.home import namespace_of
    from crbo_ros.view.layouts import layouts

    folder.mkdir(parents=True, exist_ok=True)
    known = run.manifest.get("arguments", {}).get("namespace", "")
    found = {folder / name: text for name, text in layouts(namespace or known or namespace_of(run.name)).items()}
    for path, text in found.items():
        path.write_text(text)
    return list(found)


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
    counts = dict.fromkeys(RECORDED, 0)
    with whole(path) as part, open(part, "wb") as file, Writer(file) as writer:
        schemas = {kind: writer.register_msgdef(f"crbo_ros/msg/{kind}", text) for kind, text in definitions.items()}
        for topic, kind, seconds, fields in messages(run):
            time = int(seconds * 1e9)
            writer.write_message(prefix + topic, schemas[kind], fields, time, time, sequence=counts[topic])
            counts[topic] += 1
        if run.experiment:
            about = {key: str(run.experiment[key]) for key in ("name", "uid", "task", "method", "seed", "config")}
            writer.add_metadata("crbo_ros experiment", about)
    _write_bag_metadata(path, prefix, counts)
    return path


def _write_bag_metadata(path: Path, prefix: str, counts: dict[str, int]) -> None:
    """metadata.yaml beside it: the folder is a bag for `ros2 bag info|play`. Times and counts are the file's own."""
    import yaml
    from mcap.reader import make_reader

    class Written(yaml.SafeDumper):  # type: ignore[misc]
        """Without anchors, as ros2 bag itself writes it."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    from crbo_ros.view.values import TOPICS

    with open(path, "rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    assert summary.statistics is not None
    found = summary.statistics
    begun = {"nanoseconds_since_epoch": found.message_start_time}
    lasts = {"nanoseconds": found.message_end_time - found.message_start_time}
    topics = [
        {
            "topic_metadata": {
                "name": prefix + topic, "type": f"crbo_ros/msg/{TOPICS[topic][0]}", "serialization_format": "cdr",
                "offered_qos_profiles": [], "type_description_hash": "",
            },
            "message_count": count,
        }
        for topic, count in counts.items()
    ]  # fmt: skip
    whole = {"starting_time": begun, "duration": lasts, "message_count": found.message_count}
    bag = {
        "version": 9, "storage_identifier": "mcap", **whole, "topics_with_message_count": topics,
        "compression_format": "", "compression_mode": "", "relative_file_paths": [path.name],
        "files": [{"path": path.name, **whole}], "custom_data": None, "ros_distro": os.environ.get("ROS_DISTRO", ""),
    }  # fmt: skip
    text = yaml.dump({"rosbag2_bagfile_information": bag}, Dumper=Written, sort_keys=False)
    path.with_name("metadata.yaml").write_text(text)
