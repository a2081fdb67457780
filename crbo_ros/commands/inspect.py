"""`./crbo inspect EXPERIMENT`: an experiment in the terminal.

./crbo inspect furuta                      # summary and the last episodes
./crbo inspect furuta --last 0             # all episodes
./crbo inspect furuta --json               # for programs: everything, one JSON object
./crbo inspect furuta --best best.json     # write the recommended policy, for ./crbo rollout --theta
"""

from __future__ import annotations

import argparse
import json
import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crbo_ros.report import Record

FIGURES = ("gamma_effective", "r0", "lengthscale", "signal_variance", "noise_variance", "lipschitz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("experiment", help="a folder with experiment.sqlite, that file, or a name below ./experiments")
    parser.add_argument("--last", type=int, default=15, metavar="N", help="episodes to show; 0 for all (default: 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--best", type=Path, metavar="FILE", help="write the recommended policy as JSON")


def run(args: argparse.Namespace) -> int:
    from crbo_ros.errors import InvalidInput
    from crbo_ros.report import find_store, read_record

    record = read_record(find_store(args.experiment))
    if args.json:
        print(json.dumps(as_json(record)))
    else:
        print("\n".join([*summary(record), *episodes(record, args.last)]))
    if args.best:
        if record.best is None:
            raise InvalidInput(f"--best: {record.name} has no return yet, so nothing is recommended")
        args.best.write_text(json.dumps({"proposal": record.best.id, "theta": record.best.theta.tolist()}))
        if not args.json:
            print(f"best policy: {args.best}")
    return 0


def summary(record: Record) -> list[str]:
    """The run in some ten lines."""
    row = record.experiment
    if row is None:
        return [f"{record.path}: holds no experiment yet"]
    begun = datetime.fromtimestamp(row["created"]).isoformat(" ", "seconds")
    y, coverage = record.returns, record.coverage()[1]
    counts = [f"{record.count(o)} {o}" for o in COUNTED if record.count(o)]
    lines = [
        f"{row['name']}: {row['method']} on {row['task']}, {row['dim']} parameters, seed {row['seed']}, begun {begun}",
        f"  store       {record.path} (crbo_ros {row['package_version']}, uid {row['uid']})",
        f"  proposals   {len(record.entries)}: {', '.join(counts) or 'none'}",
    ]
    if len(y):
        lines.append(f"  returns     theta_0 {y[0]:.5g}, best {y.max():.5g}, average {y.mean():.5g}, last {y[-1]:.5g}")
    if record.best:
        expected = f", expected {_n(record.best.mean)} ± {_n(record.best.sigma)}" if record.best.sigma >= 0 else ""
        lines.append(f"  recommended proposal {record.best.id} by {record.best_source}{expected}")
    if len(coverage):
        lines.append(f"  bound       held for {100 * coverage[-1]:.1f} % of {len(coverage)} episodes")
    if record.entries:
        report = record.entries[-1].report
        known = [f"{key} {report[key]:.4g}" for key in FIGURES if isinstance(report.get(key), (int, float))]
        lines += [f"  figures     {', '.join(known)}"] if known else []
    if record.finished:
        lines.append(f"  finished    {record.finished}")
    return lines


COUNTED = ("completed", "terminated", "vetoed", "stopped", "failed", "expired", "pending")


def episodes(record: Record, last: int) -> list[str]:
    """A table of the last proposals (all of them for 0)."""
    shown = record.entries[-last:] if last > 0 else record.entries
    if not shown:
        return []
    lines = ["", f"{'id':>5} {'kind':12}{'outcome':11}{'return':>10}{'bound':>10}{'expected':>10}{'gamma':>7}  remark"]
    for entry in shown:
        figures = (
            f"{_n(entry.value):>10}{_n(entry.bound):>10}{_n(entry.proposal.mean):>10}{_n(entry.proposal.gamma):>7}"
        )
        remark = entry.reason or entry.proposal.reason
        lines.append(f"{entry.id:>5} {entry.proposal.kind:12}{entry.outcome:11}{figures}  {remark}".rstrip())
    return lines


def as_json(record: Record) -> dict[str, Any]:
    """Everything that is shown and the thetas, as JSON values (null for figures that are not known)."""
    best = record.best
    coverage = record.coverage()[1]
    row = record.experiment or {}
    return {
        "experiment": {k: _plain(v) for k, v in row.items()},
        "finished": record.finished,
        "best": best and {"proposal": best.id, "theta": best.theta.tolist(), "mean": _plain(best.mean),
                          "sigma": _plain(best.sigma), "observed": best.observed, "by": record.best_source},
        "coverage": float(coverage[-1]) if len(coverage) else None,
        "proposals": [
            {"id": e.id, "kind": e.proposal.kind, "outcome": e.outcome, "value": _plain(e.value),
             "bound": _plain(e.bound), "mean": _plain(e.proposal.mean), "sigma": _plain(e.proposal.sigma),
             "gamma": _plain(e.proposal.gamma), "reason": e.reason, "theta": e.proposal.theta.tolist()}
            for e in record.entries
        ],
    }  # fmt: skip


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _n(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "-"
