"""`./crbo inspect EXPERIMENT`: an experiment in the terminal.

./crbo inspect furuta                      # summary and the last episodes
./crbo inspect furuta --last 0             # all episodes
./crbo inspect furuta --contract           # the contract, recomputed from the records
./crbo inspect furuta --journal            # who started, changed and told what; interruptions and faults
./crbo inspect furuta --json               # for programs: everything, one JSON object
./crbo inspect furuta --best best.json     # write the recommended policy, for ./crbo rollout --theta
./crbo inspect furuta --verify             # are all its files as they were written? exit code 1 if not
"""

from __future__ import annotations

import argparse
import json
import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crbo_ros.commands.arguments import add_experiment
from crbo_ros.numbers import number, percent
from crbo_ros.view.answers import bounds_text
from crbo_ros.view.contract import contract_words
from crbo_ros.view.parameters import changes

if TYPE_CHECKING:
    from crbo_ros.view.run_view import RunView

METRICS = ("gamma_effective", "r0", "lengthscale", "signal_variance", "noise_variance", "lipschitz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    parser.add_argument("--last", type=int, default=15, metavar="N", help="episodes to show; 0 for all (default: 15)")
    parser.add_argument("--contract", action="store_true", help="the contract alone; exit code 1 if it was broken")
    parser.add_argument("--journal", action="store_true", help="what happened around the episodes, and who did it")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--best", type=Path, metavar="FILE", help="write the recommended policy as JSON")
    parser.add_argument(
        "--verify", action="store_true", help="say which files are whole, and what is damaged in others"
    )


def run(args: argparse.Namespace) -> int:
    from crbo_ros.checks import printable, writable
    from crbo_ros.errors import InvalidInput
    from crbo_ros.protocol.best_file import write
    from crbo_ros.view.record import find_folder, find_store, read_run

    if args.verify:
        return verify(find_folder(args.experiment, args.experiments_dir))
    run = read_run(find_store(args.experiment, args.experiments_dir))
    if args.contract:
        words = contract_words(run.contract)
        print("\n".join(f"{what:12}{text}" for what, text in words))
        return int(any(text.startswith("BROKEN") for _, text in words))
    if args.journal:
        print(printable("\n".join(f"{e.when}  {e.who}: {e.what}" for e in run.journal) or "nothing is recorded"))
        return 0
    if args.json:
        print(json.dumps(as_json(run)))
    else:
        print(printable("\n".join([*summary(run), *episodes(run, args.last)])))
    if args.best:
        if run.best is None:
            raise InvalidInput(f"--best: {run.name} has no return yet, so nothing is recommended")
        facts = run.experiment or {}
        fields = {"experiment": run.name, "task": facts.get("task", ""), "id": run.best.id, "proposal": run.best.id}
        write(writable(args.best, "--best"), {**fields, "theta": run.best.theta.tolist()})
        if not args.json:
            print(f"best policy: {args.best}")
    return 0


def verify(folder: Path) -> int:
    """Every store's rows against their checksums, and the stores against each other."""
    from crbo_ros.protocol.best_file import complaint
    from crbo_ros.protocol.manifest import FILE, complaints
    from crbo_ros.protocol.salvage import verify

    found = verify(folder)
    print("\n".join(map(str, found)))
    best = folder / "best.json"
    wrong = complaint(best) if best.exists() else ""
    if best.exists():
        print(f"best.json: {f'DAMAGED ({wrong})' if wrong else 'whole'}")
    inputs = complaints(folder) if (folder / FILE).is_file() else []
    print("\n".join([f"DAMAGED: {text}" for text in inputs] or ["manifest.json and inputs: whole"]))
    return 1 if wrong or inputs or any(finding.wrong for finding in found) else 0


def summary(run: RunView) -> list[str]:
    """The run in some ten lines."""
    facts = run.experiment
    if facts is None:
        return [f"{run.path}: holds no experiment yet"]
    begun = datetime.fromtimestamp(facts["created"]).isoformat(" ", "seconds")
    y, coverage = run.returns, run.series().coverage[1]
    counts = ", ".join(f"{n} {outcome}" for outcome, n in run.counts().items())
    lines = [
        f"{facts['name']}: {facts['method']} on {facts['task']}, {facts['dim']} parameters, seed {facts['seed']}, "
        f"begun {begun}",
        f"  store       {run.path} (crbo_ros {facts['package_version']}, uid {facts['uid']})",
        f"  proposals   {len(run.rows)}: {counts or 'none'}",
    ]
    if len(y):
        start, best, average, last = map(number, (y[0], y.max(), y.mean(), run.last_return))
        lines.append(f"  returns     theta_0 {start}, best {best}, average {average}, last {last}")
    if run.best:
        expected = f", expected {number(run.best.mean)} ± {number(run.best.sigma)}" if run.best.sigma >= 0 else ""
        low, high = map(number, run.best.interval)
        sure = f" (95 %: {low} to {high}), better than theta_0: {percent(run.best.p_better)}"
        known = expected + (sure if math.isfinite(run.best.p_better) else "")
        lines.append(f"  recommended proposal {run.best.id} by {run.best_source}{known}")
    if run.contract is not None and run.contract.contract.active:
        account = run.contract.contract.account
        lines.append(
            f"  contract    {account.violations} violations in {account.n} rollouts, {account.novel_violations} by new "
            f"policies of {account.limit} allowed; the account holds {number(account.balance)}"
        )
    if run.best and 0 < len(run.names) <= 20:
        named = changes(run.names, facts["theta_0"], run.best.theta)
        lines += [f"  {'parameters' if not i else '':11} {line}" for i, line in enumerate(named)]
    if len(coverage):
        lines.append(f"  bound       held for {percent(coverage[-1])} of {len(coverage)} episodes")
    if run.rows:
        metrics = run.rows[-1].metrics
        shown = [f"{key} {number(metrics[key])}" for key in METRICS if isinstance(metrics.get(key), (int, float))]
        lines += [f"  metrics     {', '.join(shown)}"] if shown else []
    lines.append(f"  on bounds   {bounds_text(run)}")
    if run.finished:
        lines.append(f"  finished    {run.finished}")
    return lines


def episodes(run: RunView, last: int) -> list[str]:
    """A table of the last proposals (all of them for 0)."""
    shown = run.rows[-last:] if last > 0 else run.rows
    if not shown:
        return []
    lines = ["", f"{'id':>5} {'kind':12}{'outcome':11}{'return':>10}{'bound':>10}{'expected':>10}{'gamma':>7}  remark"]
    for row in shown:
        mean, gamma = (row.proposal.mean, row.proposal.gamma) if row.proposal else (None, None)
        numbers = f"{number(row.value):>10}{number(row.bound):>10}{number(mean):>10}{number(gamma):>7}"
        lines.append(f"{row.id:>5} {row.kind:12}{row.outcome:11}{numbers}  {row.remark}".rstrip())
    return lines


def as_json(run: RunView) -> dict[str, Any]:
    """Everything that is shown and the thetas, as JSON values (null for numbers that are not known)."""
    best, coverage = run.best, run.series().coverage[1]
    return {
        "experiment": {k: _plain(v) for k, v in (run.experiment or {}).items()},
        "finished": run.finished,
        "journal": [{"stamp": _plain(e.stamp), "who": e.who, "what": e.what} for e in run.journal],
        "best": best and {"proposal": best.id, "theta": best.theta.tolist(), "mean": _plain(best.mean),
                          "sigma": _plain(best.sigma), "p_better": _plain(best.p_better),
                          "observed": best.observed, "by": run.best_source},
        "coverage": float(coverage[-1]) if len(coverage) else None,
        "proposals": [
            {"id": row.id, "kind": row.kind, "outcome": row.outcome, "value": _plain(row.value),
             "bound": _plain(row.bound), "reason": row.reason,
             **{name: _plain(getattr(row.proposal, name)) for name in ("mean", "sigma", "gamma", "theta")}}
            for row in run.rows
        ],
    }  # fmt: skip


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return None if isinstance(value, float) and not math.isfinite(value) else value
