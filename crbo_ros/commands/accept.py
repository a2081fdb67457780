"""Old policy against new one, in random order, until it is certain which is better; then the better one is deployed.

    ./crbo accept EXPERIMENT                     # theta_0 against the experiment's best policy
    ./crbo accept EXPERIMENT --margin 0.1 --level 0.01 --by "A. Person"

Both run under the same gate and monitor as the experiment. The test (core/sequential_test.py) may be looked at after
every rollout; each of its answers is wrong with probability LEVEL at most. It ends as soon as "better", "not better by
more than MARGIN" or "worse" is certain. Only "better" deploys the new policy: tuned parameters are then set, and in
tuned.yaml; else the old ones are. The record is accept.json beside the experiment. After a crash, or Ctrl-C, the same
command carries on. Exit code 0: accepted, 3: not accepted. `./crbo rollback EXPERIMENT` takes it back.
"""

from __future__ import annotations

import argparse
import json
import math
import secrets
from pathlib import Path
from typing import Any

from crbo_ros import checks
from crbo_ros.bringup.plan import make_plan
from crbo_ros.commands.arguments import add_experiment
from crbo_ros.commands.deployment import deploy, deployed, sealed, sign_off, write_parameters
from crbo_ros.commands.rollout import read_theta
from crbo_ros.commands.run import announce, run_graph
from crbo_ros.core.trial import NEW, OLD
from crbo_ros.errors import InvalidInput, as_called
from crbo_ros.numbers import number
from crbo_ros.protocol.manifest import recorded_options, recorded_plan
from crbo_ros.view.parameters import changes, write_text
from crbo_ros.view.record import FILE, find_store, open_store, read_run, replayed

NOT_ACCEPTED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_experiment(parser)
    old = "the policy to compare with: start (theta_0), deployed, or a .json or .npy file (default: what is deployed)"
    parser.add_argument("--old", default="", help=old)
    parser.add_argument("--new", type=Path, help="the new policy: .json or .npy (default: the experiment's best)")
    parser.add_argument("--level", type=float, default=0.05, help="how often a wrong answer is acceptable (0.05)")
    margin = "a gain that would not be worth it (default: half of what the experiment promises)"
    parser.add_argument("--margin", type=float, help=margin)
    parser.add_argument("--rollouts", type=int, default=100, help="at most so many in all (default: 100)")
    parser.add_argument("--by", default="", help="who signs (default: the user)")


def run(args: argparse.Namespace) -> int:
    checks.signature(args.by, "--by")
    folder = find_store(args.experiment, args.experiments_dir).parent
    task, arguments = recorded_plan(folder)
    name, settings, seed = _open_trial(folder) or _new_trial(folder, args)
    arguments |= {
        "experiment": name, "experiments_dir": str(folder.parent), "method": "acceptance", "attach": str(folder),
        "settings": json.dumps(settings), "episodes": str(args.rollouts), "seed": str(seed),
    }  # fmt: skip
    arguments.pop("namespace", None)
    plan = make_plan(task, arguments)
    gain = settings.get("margin", 0.0)
    print(
        f"accept: {folder.name}: old against new, certain at {settings['level']:g}; a gain below {number(gain)} is none"
    )
    announce(plan)
    if code := run_graph(plan):
        return code
    return conclude(folder, plan.folder, settings, recorded_options(folder), args.by)


def _trials(folder: Path) -> list[Path]:
    return sorted(folder.parent.glob(f"{folder.name}-accept-*/{FILE}"), key=lambda path: path.stat().st_mtime)


def _open_trial(folder: Path) -> tuple[str, dict[str, Any], int] | None:
    """An acceptance of this experiment that has not come to its end: it is carried on with."""
    for path in reversed(_trials(folder)):
        with open_store(path) as store:
            facts = store.experiment()
        if facts is not None and not (path.parent / "accept.json").exists():
            print(f"accept: carries on with {path.parent.name}")
            return path.parent.name, facts["config"], facts["seed"]
    return None


def _new_trial(folder: Path, args: argparse.Namespace) -> tuple[str, dict[str, Any], int]:
    run = read_run(folder / FILE)
    if run.best is None or run.experiment is None:
        raise InvalidInput(f"{folder.name}: has no return yet, so there is nothing to accept")
    theta_0, history = run.experiment["theta_0"], deployed(folder)
    new = read_theta(args.new) if args.new else run.best.theta
    if args.old in ("", "deployed") and history:
        old = history[-1]["theta"]
    elif args.old == "deployed":
        raise InvalidInput(f"--old: nothing of {folder.name} has been deployed yet")
    else:
        old = theta_0 if args.old in ("", "start") else read_theta(Path(args.old))
    if [float(v) for v in old] == [float(v) for v in new]:
        raise InvalidInput(f"{folder.name}: its best policy is the old one itself, so there is nothing to accept")
    start = [e.value for e in (row.episode for row in run.counted) if e is not None and list(e.theta) == list(theta_0)]
    expected = run.best.mean if math.isfinite(run.best.mean) else run.best.observed
    promised = max(0.0, expected - (start[0] if start else expected))
    margin = 0.5 * promised if args.margin is None else args.margin
    settings: dict[str, Any] = {
        "new": [float(v) for v in new], "old": [float(v) for v in old], "level": args.level, "margin": float(margin),
    }  # fmt: skip
    if "hardware=no" in run.experiment["problem"].split():
        settings["paired"] = True  # a simulation starts where it is told to
        return f"{folder.name}-accept-{len(_trials(folder)) + 1}", settings, 1 + secrets.randbelow(2**31 - 2)
    noise = next((row.metrics.get("noise_variance") for row in reversed(run.rows) if row.metrics), None)
    if not args.new and not history and start and isinstance(noise, float) and noise > 0.0:
        weight = min(4.0, max(1.0, noise / run.best.sigma**2)) if run.best.sigma > 0.0 else 1.0
        settings["earlier"] = [float(start[0]), float(expected), math.sqrt(noise), float(weight)]
    return f"{folder.name}-accept-{len(_trials(folder)) + 1}", settings, 1 + secrets.randbelow(2**31 - 2)


def conclude(folder: Path, trial: Path, settings: dict[str, Any], options: dict[str, Any], by: str) -> int:
    """The record, what is deployed from now on, and what to tell."""
    with open_store(trial / FILE) as store:
        facts = store.experiment()
        assert facts is not None
        method = replayed(store, facts)
        rollouts = [
            {"proposal": e.proposal_id, "policy": method.trials[e.proposal_id].proposal.kind, "outcome": e.outcome,
             "value": e.value if math.isfinite(e.value) else None}
            for e in store.episodes() if method.trials[e.proposal_id].proposal.kind in (OLD, NEW)
        ]  # fmt: skip
    test, accepted = method.test, method.test.verdict == "better"
    low, high = test.interval()
    verdict = method.conclusion() or f"undecided after {len(test.rollouts)} rollouts"
    bounds = [bound if math.isfinite(bound) else None for bound in (low, high)]
    record = {
        "experiment": folder.name, "acceptance": trial.name, "uid": facts["uid"], "problem": facts["problem"],
        "verdict": test.verdict or "undecided", "sentence": verdict, "accepted": accepted, "gain": bounds,
        "settings": settings, "seed": facts["seed"], "rollouts": rollouts, "signed_off": sign_off(by),
    }  # fmt: skip
    text = json.dumps(sealed(record), indent=1)
    print(f"\naccept     {verdict}")
    for new, label in ((False, "old"), (True, "new")):
        values = test.values(new)
        average = math.fsum(values) / len(values) if values else math.nan
        print(f"{label:10} {number(average)} over {len(values)} rollouts")
    print(f"gain       from {number(low)} to {number(high)}, each end certain at level {test.level:g}")
    if accepted:
        deploy(folder, NEW, method.new, acceptance=trial.name, verdict=verdict, signed_off=record["signed_off"])
    config_file = Path(str(options.get("config", "")))
    if facts["task"] == "tuning" and config_file.is_file():
        from crbo_ros.plants.ros.config import read_config

        config = read_config(config_file)
        print("\n".join(f"           {line}" for line in changes(
            [p.label for p in config.parameters], method.old, method.new if accepted else method.old)))  # fmt: skip
        if accepted:
            file, diff = write_parameters(folder, config, method.old, method.new)
            print(f"parameters {file}\n           {diff}")
    for place in (folder, trial):  # last: until it is there, the same command carries on
        write_text(place / "accept.json", text)
    print(f"record     {folder / 'accept.json'}")
    print(f"           {'the new' if accepted else 'the old'} policy is deployed" +
          (as_called(f"; ./crbo rollback {folder.name} takes it back") if accepted else ""))  # fmt: skip
    return 0 if accepted else NOT_ACCEPTED
