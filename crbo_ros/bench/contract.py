"""The contract: violations against the budget, and what keeping it costs, beside the same seeds without a monitor.

Every run is the graph's own loop in one process (bench.in_process): optimizer, safety monitor, runner and their stores.
"with" has the contract in both optimizer and monitor, "without" in neither; violations of both are counted against the
threshold that theta_0's start rollouts gave "with". A liar (random steps around theta_0 that ignore every verdict) and
functions full of cliffs are there because the promise is made for them, too. Finished runs are kept in OUT/runs, and a
run that was stopped goes on there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.bench.in_process import run_in_process
from crbo_ros.bench.problems import TASKS, synthetic_function
from crbo_ros.bench.sweep import machine, write_atomically
from crbo_ros.bench.tables import markdown, number
from crbo_ros.core.account import RiskAccount
from crbo_ros.core.contract import RISK
from crbo_ros.core.method import Method
from crbo_ros.core.trial import Proposal
from crbo_ros.errors import Exhausted
from crbo_ros.protocol.records import APPROVED
from crbo_ros.registry import make_task
from crbo_ros.tasks.base import Outcome, Task, Watch
from crbo_ros.view.colors import BEST, BOUND, GAMMA, OUTCOME_COLORS
from crbo_ros.view.record import read_run

SEED = 7100  # of repeat 0; the forms were chosen on seeds from 9000 on
HIGH = 0.95  # a careless gamma
CLIFF = 40  # slabs per unit along a random direction, of which one in SHARE falls
SHARE = 12
FINAL_ROLLOUTS = 10
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # the disk is not what is measured here


class FunctionTask(Task):
    """A 5-D function of the paper's kind; with `cliffs` one policy in twelve falls, and nothing tells which."""

    plants = ("own",)
    hardware = False
    j_min_drop = 0.5

    def __init__(self, seed: int, cliffs: bool) -> None:
        self._function = synthetic_function(5, seed)
        self.name, self._cliffs = "cliffs-5d" if cliffs else "synthetic-5d", cliffs
        self._direction = np.random.default_rng([seed, 5]).standard_normal(5)
        self.space, self.theta_0 = self._function.space, self._function.theta_0
        super().__init__()

    def rollout(
        self, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
    ) -> Outcome:
        theta = np.asarray(theta, dtype=np.float64)
        slab = math.floor(CLIFF * float(self._direction @ (theta - self.theta_0)) + 0.5)
        fallen = self._cliffs and slab != 0 and hash((slab, 7)) % SHARE == 0
        return Outcome(self._function.observe(theta, rng) - (10.0 if fallen else 0.0), "completed")


class Liar(Method):
    """Asks for random steps, whatever it is told; every third time for theta_0, so that the account fills."""

    name = "liar"

    def _propose(self, id: int) -> Proposal:
        if id > 1000:
            raise Exhausted("a thousand lies are enough")
        if id % 3 == 0:
            return Proposal(id, self.theta_0.copy(), "start")
        step = 0.05 * self.rng(id).standard_normal(self.space.dim)
        return Proposal(id, self.space.from_unit(np.clip(self.space.to_unit(self.theta_0) + step, 0.0, 1.0)), "sample")


@contextmanager
def open_task(name: str, seed: int) -> Iterator[Task]:
    if name.endswith("-5d"):
        yield FunctionTask(seed, name.startswith("cliffs"))
    else:
        yield make_task(name)


@dataclass(frozen=True)
class ContractCase:
    """One run. `gamma` 0 is the task's own; method "liar" is the one that does not listen."""

    task: str
    gamma: float
    risk: float
    seed: int
    contract: bool
    method: str = "crbo"

    @property
    def file(self) -> str:
        kind = f"r{self.risk:g}" if self.contract else "without"
        return f"{self.task}.{self.method}.g{self.gamma:g}.{kind}.{self.seed}.json"


def play(case: ContractCase, episodes: int) -> dict[str, Any]:
    """Carry a run out; its record."""
    with open_task(case.task, case.seed) as task, tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        settings: dict[str, Any] = {"gamma": case.gamma or task.gamma} if case.method == "crbo" else {}
        terms = {"risk": case.risk, "j_min_drop": task.j_min_drop, "budget": episodes} if case.contract else {}
        path, load = Path(folder), os.getloadavg()[0]
        run = run_in_process(
            task, path, episodes=episodes, seed=case.seed, method=case.method, terms=terms,
            settings={**settings, **terms} if case.method == "crbo" else settings,
            make=(lambda s: Liar(task.space, task.theta_0, seed=case.seed)) if case.method == "liar" else None,
        )  # fmt: skip
        proposals = read_run(path / "experiment.sqlite", replay=False).rows
        final: list[float] = []
        if run.best is not None:
            with task:
                for k in range(FINAL_ROLLOUTS):
                    final.append(task.rollout(run.best.theta, np.random.default_rng([case.seed, k, 0xF1])).value)
    seen: set[bytes] = set()
    rows = []
    for row in proposals:
        assert row.proposal is not None
        episode = row.episode if row.episode and row.episode.executed else None
        shown = next((v.worst_case for v in reversed(row.verdicts) if v.status == APPROVED), None)
        novel = row.proposal.theta.tobytes() not in seen and row.proposal.kind != "start"
        seen.add(row.proposal.theta.tobytes())
        rows.append(
            {
                "kind": row.kind, "end": row.status.value, "novel": novel,
                "value": _plain(episode.value) if episode else None, "shown": _plain(shown),
            }
        )  # fmt: skip
    contract = {
        name: _plain(value) for name, value in vars(run.contract).items() if isinstance(value, (int, float, str))
    }
    return {
        "case": vars(case), "episodes": episodes, "rows": rows, "final": [_plain(v) for v in final], "state": run.state,
        "contract": contract, "seconds": run.seconds, "load": load,
    }  # fmt: skip


def _plain(value: Any) -> Any:
    return None if value is None or (isinstance(value, float) and not math.isfinite(value)) else value


# -- the tables -------------------------------------------------------------------------------------------------


def values_of(record: dict[str, Any]) -> np.ndarray:
    return np.array([row["value"] for row in record["rows"] if row["value"] is not None])


def summary_row(kept: list[dict[str, Any]], free: list[dict[str, Any]]) -> list[str]:
    """Of runs with the contract and, by seed, those without. One whose contract was refused counts as within budget."""
    pairs = {record["case"]["seed"]: record for record in free}
    risk, episodes = kept[0]["case"]["risk"], kept[0]["episodes"]
    budget = math.ceil(risk * episodes)
    fallen = [record["contract"]["violations"] for record in kept]
    novel = [record["contract"]["novel_violations"] for record in kept]
    without, average, final, touched, held, slacks, least = [], [], [], [], [], [], []
    for record in kept:
        rows = record["rows"]
        touched.append(sum(r["kind"] in ("steered", "proven") or r["end"] == "vetoed" for r in rows) / len(rows))
        spread = max(float(np.std(values_of(record))), 1e-300)
        bounds = [r for r in rows if r["novel"] and r["value"] is not None and r["shown"] is not None]
        held += [r["value"] >= r["shown"] for r in bounds]
        slacks += [(r["value"] - r["shown"]) / spread for r in bounds]
        if other := pairs.get(record["case"]["seed"]):
            threshold, J0 = record["contract"]["threshold"], abs(record["contract"]["start_mean"])
            without.append(int(np.sum(values_of(other) < threshold)))
            least.append(max(0.0, 1.0 - risk * len(values_of(other)) / max(without[-1], 1)))
            average.append((np.mean(values_of(record)) - np.mean(values_of(other))) / J0)
            if record["final"] and other["final"]:
                final.append((np.mean(record["final"]) - np.mean(other["final"])) / J0)
    percent = "{:+.1f} %".format
    return [
        str(len(kept)), str(budget), f"{np.mean(fallen):.1f} (most {max(fallen)})", f"{max(novel)}",
        f"{100 * np.mean([v <= budget for v in fallen]):.0f} %",
        f"{np.mean(without):.1f} (most {max(without)})" if without else "-", f"{100 * np.mean(touched):.1f} %",
        f"{100 * np.mean(least):.0f} %" if least else "-",
        percent(100 * float(np.mean(average))) if average else "-",
        percent(100 * float(np.mean(final))) if final else "-",
        f"{100 * np.mean(held):.1f} %" if held else "-", number(float(np.median(slacks)), 2) if slacks else "-",
    ]  # fmt: skip


HEADER = [
    "task", "gamma", "risk", "runs", "budget", "violations", "most of novel policies", "runs within budget", "without",
    "vetoed + steered + repeated", "least", "average", "final", "bound held", "slack",
]  # fmt: skip


def table(records: list[dict[str, Any]]) -> list[list[str]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        case = record["case"]
        groups.setdefault(
            (case["task"], case["method"], case["gamma"], case["risk"] if case["contract"] else None), []
        ).append(record)
    rows = [HEADER]
    for (task, method, gamma, risk), kept in groups.items():
        if risk is not None:
            name = task if method == "crbo" else f"{task}, {method}"
            label = "task's" if gamma == 0.0 else f"{gamma:g}"
            rows.append([name, label, f"{risk:g}", *summary_row(kept, groups.get((task, method, gamma, None), []))])
    return rows


def write_summary(out: Path) -> str:
    records = [json.loads(path.read_text()) for path in sorted((out / "runs").glob("*.json"))]
    facts, loads = machine(), [record["load"] for record in records]
    seeds = [record["case"]["seed"] for record in records]
    text = f"""# The contract

Violations in each run (mean, most), with and without the contract on the same seeds, {records[0]["episodes"]} episodes
each. Average and final (10 rollouts of the recommended policy) are the mean difference to the run without, in shares of
|J0|. Least: if new policies fell as often as without and nothing told which, a share 1 - risk / rate of the rollouts
would have to be repeats (mean over the seeds). Bound held: of the worst cases shown for novel policies; slack: median
of return - worst case in standard deviations of the run's returns. cliffs-5d: one policy in {SHARE} falls and nothing
tells which. liar: random steps that ignore every verdict.

{markdown(table(records))}

Command: `crbo {" ".join(sys.argv[1:])}`. {len(records)} runs, seeds {min(seeds)} to {max(seeds)}; {facts["processor"]},
{facts["cores"]} cores, load average while running {min(loads):.1f} to {max(loads):.1f}; {facts["date"]} UTC.
"""
    write_atomically(out / "summary.md", text)
    draw(records, out / "contract.svg")
    return text


def draw(records: list[dict[str, Any]], path: Path, example: str = "pendulum") -> None:
    """Violations of each task with and without at the careless gamma; and one run of `example`, rollout by rollout."""
    from matplotlib.figure import Figure

    chosen = [r for r in records if r["case"]["gamma"] == HIGH and r["case"]["method"] == "crbo"]
    kept = {
        (r["case"]["task"], r["case"]["seed"]): r for r in chosen if r["case"]["contract"] and r["case"]["risk"] == RISK
    }
    free = {(r["case"]["task"], r["case"]["seed"]): r for r in chosen if not r["case"]["contract"]}
    tasks = list(dict.fromkeys(task for task, _ in kept))
    figure = Figure(figsize=(11.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for offset, runs, color, label in ((-0.2, free, BOUND, "without"), (0.2, kept, BEST, "with the contract")):
        for i, task in enumerate(tasks):
            fallen = [
                int(np.sum(values_of(r) < kept[key]["contract"]["threshold"]))
                for key, r in runs.items()
                if key[0] == task and key in kept
            ]
            left.bar(i + offset, np.mean(fallen or [0]), 0.36, color=color, label=None if i else label)
            left.scatter([i + offset] * len(fallen), fallen, color="#222222", s=8, zorder=3)
    left.axhline(math.ceil(RISK * 100), color=OUTCOME_COLORS["vetoed"], linestyle="--", label="the budget: 5 of 100")
    left.set_yscale("symlog", linthresh=5)
    left.set_xticks(range(len(tasks)), tasks, rotation=30, ha="right")
    left.set(ylabel="violations in 100 rollouts", title=f"gamma {HIGH}, risk 5 %")
    left.legend(fontsize=8)
    keys = [key for key in kept if key[0] == example and key in free]
    if keys:
        draw_run(right, kept[keys[0]], free[keys[0]])
        right.set_title(f"one run of {example}")
    figure.savefig(path)


def draw_run(axes: Any, kept: dict[str, Any], free: dict[str, Any]) -> None:
    """Violations so far with and without, what was allowed, and the balance."""
    threshold, account = kept["contract"]["threshold"], RiskAccount(kept["case"]["risk"], kept["episodes"])
    lines: list[tuple[float, float, float]] = []
    for row in kept["rows"]:
        if row["value"] is not None:
            account.book(row["value"] < threshold, row["novel"])
            lines.append((account.violations, account.allowance, account.balance))
    fallen, allowed, balance = np.array(lines).T
    axes.step(range(1, 1 + len(values_of(free))), np.cumsum(values_of(free) < threshold), color=BOUND, label="without")
    axes.step(range(1, 1 + len(fallen)), fallen, color=BEST, label="with the contract")
    axes.plot(range(1, 1 + len(fallen)), allowed, "--", color=OUTCOME_COLORS["vetoed"], label="allowed so far, f(n)")
    axes.plot(range(1, 1 + len(fallen)), balance, color=GAMMA, linewidth=1.0, label="the account, A")
    axes.set(xlabel="rollout", ylabel="violations so far", ylim=(-1.0, 12.0))
    axes.legend(fontsize=8)


# -- the command ------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", default=",".join((*TASKS, "synthetic-5d", "cliffs-5d")), help="comma-separated")
    parser.add_argument("--risks", default="0.05,0.02,0.1", help="comma-separated")
    parser.add_argument("--gammas", default=f"0,{HIGH}", help="comma-separated; 0: the task's own")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=Path("results") / "contract", help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="2 repeats of 30 episodes, risk 0.05")


def cases(args: argparse.Namespace) -> Iterator[ContractCase]:
    """By repeat, so that a bench that was stopped is one with fewer repeats; the first risk first."""
    risks, gammas = ([float(v) for v in text.split(",")] for text in (args.risks, args.gammas))
    tasks = args.tasks.split(",")
    for risk in [risks[0]] if args.quick else risks:
        for repeat in range(2 if args.quick else args.repeats):
            for gamma in gammas:
                for task in tasks:
                    yield ContractCase(task, gamma, risk, args.seed + repeat, True)
                    yield ContractCase(task, gamma, risks[0], args.seed + repeat, False)
            if "cliffs-5d" in tasks:
                yield ContractCase("cliffs-5d", 0.0, risk, args.seed + repeat, True, "liar")


def run(args: argparse.Namespace) -> int:
    episodes = 30 if args.quick else args.episodes
    (args.out / "runs").mkdir(parents=True, exist_ok=True)
    for case in cases(args):
        path = args.out / "runs" / case.file
        if not path.exists():
            record = play(case, episodes)
            write_atomically(path, json.dumps(record))
            fallen, budget = record["contract"]["violations"], math.ceil(case.risk * episodes)
            print(f"{case.file}: {fallen} violations of {budget}, {record['seconds']:.0f} s", flush=True)
    print(write_summary(args.out))
    return 0
