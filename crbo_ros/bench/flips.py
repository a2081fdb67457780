"""Bits flipped in every file of an experiment, one at a time: is it told, is it harmless, or does it pass silently?

    ./crbo bench flips --count 1000 --seed 1

The experiment is a real one (optimizer, monitor and spool in one process), as it lies after a clean end and after a
kill. After each flip everything that reads the file reads it: what `inspect` and `inspect --verify` read, optimizer,
monitor and spool as a run would open them, and best.json. A flip is reported (a sentence and no run), harmless (what
everybody reads is what was written), silent (it is not, and nobody says so) or a traceback. Then `repair` is tried on
what was reported, and what the runs read afterwards is compared again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.core.crbo import CRBO
from crbo_ros.core.problem import Problem
from crbo_ros.core.space import Space
from crbo_ros.errors import CrboError
from crbo_ros.protocol import best_file
from crbo_ros.protocol.monitor import SafetyMonitor
from crbo_ros.protocol.optimizer import OptimizerServer
from crbo_ros.protocol.records import APPROVED, COMPLETED, Episode, Offer, new_uid
from crbo_ros.protocol.repair import repair
from crbo_ros.protocol.salvage import verify
from crbo_ros.protocol.spool import Spool
from crbo_ros.view.record import read_run, stored_method

SPACE = Space([-1.0, -2.0, 0.1], [1.0, 2.0, 10.0], log=[False, False, True])
PROBLEM = Problem("flips", "toy", SPACE, np.array([0.2, -0.3, 1.0]))
REPORTED, HARMLESS, SILENT, TRACEBACK = "reported", "harmless", "silent", "traceback"


def open_server(folder: Path) -> OptimizerServer:
    return OptimizerServer.open(
        folder / "experiment.sqlite", problem=PROBLEM, name="flips", method="crbo", seed=1, settings={"gamma": 0.4},
        make=lambda settings: CRBO(SPACE, PROBLEM.theta_0, seed=1, **settings),
    )  # fmt: skip


class Stores:
    """The three stores of one run, open."""

    def __init__(self, folder: Path) -> None:
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            self.server = open_server(folder)
            undo.callback(self.server.close)
            self.monitor = SafetyMonitor(PROBLEM, folder / "monitor.sqlite", j_min_drop=math.inf)
            undo.callback(self.monitor.close)
            self.spool = Spool(folder / "runner.sqlite")
            undo.callback(self.spool.close)
            self.meet()
            self._undo = undo.pop_all()

    def __enter__(self) -> Stores:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def meet(self) -> None:
        """As when runner and servers ask and answer."""
        spool = self.spool.database
        for other, who in ((self.server.store.database, "the optimizer"), (self.monitor.database, "the monitor")):
            other.meet(spool.heads, "the runner")
            spool.meet(other.heads, who)

    def episode(self) -> None:
        request_id = self.spool.request_id()
        offer = self.server.propose("runner", request_id).offer
        assert offer is not None
        verdict = self.check(offer)
        assert verdict.status == APPROVED, verdict.reason
        self.server.add_verdict(verdict)
        uid = new_uid()
        self.spool.begin(uid, request_id, offer, verdict.verdict_id)
        value = 1.0 - 0.1 * float(np.sum((SPACE.to_unit(offer.theta) - 0.4) ** 2))
        episode = Episode(
            uid, offer.experiment_uid, offer.id, "runner", offer.theta, COMPLETED, value, verdict_id=verdict.verdict_id,
            predicted_worst_case=verdict.worst_case, problem=PROBLEM.key, stamp=float(offer.id),
        )  # fmt: skip
        self.spool.add(episode)
        self.meet()
        self.monitor.add_return(episode)
        self.server.acknowledge(episode)
        self.meet()
        self.spool.settle(uid, "done")

    def check(self, offer: Offer) -> Any:
        return self.monitor.check(
            experiment_uid=offer.experiment_uid, proposal_id=offer.id, theta=offer.theta, hash=offer.theta_hash,
            runner="runner", problem=offer.problem, returns=offer.returns,
        )  # fmt: skip


def make_reference(folder: Path, episodes: int) -> None:
    """folder/ended: after a clean end; folder/killed: as a kill leaves it, with a proposal pending."""
    ended = folder / "ended"
    with Stores(ended) as run:
        for i in range(episodes):
            run.episode()
            if i == 2:
                run.monitor.configure("somebody", j_min=-5.0)
                run.server.configure(j_min=-5.0)
        run.server.propose("runner", run.spool.request_id())
        shutil.copytree(ended, folder / "killed")
        best = run.server.best()
        assert best is not None
        fields = {
            "experiment": "flips",
            "task": "flips",
            "id": best.id,
            "mean": best.mean,
            "theta": best.theta.tolist(),
        }
        best_file.write(ended / "best.json", fields)


def content(folder: Path) -> dict[str, Any]:
    """What a run and its readers know of the experiment, as plain values; CrboError where that is refused."""
    view = read_run(folder / "experiment.sqlite")
    shown = [(row.id, row.kind, row.outcome, row.value, row.reason, str(row.proposal)) for row in view.rows]
    facts = {name: str(value) for name, value in (view.experiment or {}).items()}
    with Stores(folder) as run:
        offer = run.server.propose("reader", "next").offer
        best = run.server.best()
        assert offer is not None
        assert best is not None
        verdict = run.check(replace(offer, theta=PROBLEM.theta_0 + 0.01))
        known: dict[str, Any] = {
            "shown": [facts, str(shown), view.finished, str(view.best), view.best_source],
            "next": [offer.id, offer.theta.tolist(), offer.mean],
            "best": [best.id, best.theta.tolist(), best.mean],
            "episodes": [_plain(e) for e in run.server.store.episodes()],
            "verdicts": run.server.store.verdicts(),
            "returns": [(r.episode_uid, r.proposal_id, r.x.tolist(), r.value) for r in run.monitor.store.returns()],
            "judged": [verdict.worst_case, verdict.threshold],
            "settings": [tuple(change) for change in run.monitor.store.settings_log()],
            "spool": [run.spool.request_id(), *(_plain(e) for e in run.spool.history(run.server.uid))],
        }
    best_json = folder / "best.json"
    known["best.json"] = best_file.read(best_json) if best_json.exists() else None
    return json.loads(json.dumps(known))  # type: ignore[no-any-return]


def _plain(episode: Episode) -> dict[str, Any]:
    fields = {**asdict(episode), "theta": episode.theta.tolist()}
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in fields.items()}


def files(folder: Path) -> list[Path]:
    """Those in which a bit can flip."""
    return sorted(path for path in folder.iterdir() if path.is_file() and path.stat().st_size)


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def cut(path: Path, bit: int) -> None:
    """The rest of the file is gone, as after a copy that was broken off."""
    path.write_bytes(path.read_bytes()[: bit // 8])


def judge(folder: Path, wanted: dict[str, Any]) -> tuple[str, str]:
    """(what became of the damage in a folder, the sentence or the traceback's last line)."""
    try:
        wrong = [str(finding) for finding in verify(folder) if finding.wrong]
        found = content(folder)
    except CrboError as error:
        return REPORTED, str(error)
    except Exception as error:
        return TRACEBACK, f"{type(error).__name__}: {error}"
    if wrong:
        return REPORTED, wrong[0]
    return (HARMLESS, "") if found == wanted else (SILENT, ", ".join(k for k in wanted if found[k] != wanted[k]))


def mend(folder: Path, wanted: dict[str, Any]) -> str:
    """What `repair` makes of it: "all back", "some lost" (said), "not repaired" (said), or what went wrong."""
    try:
        told, whole = repair(folder, stored_method)
        if not whole:
            return "not repaired"
        with contextlib.suppress(CrboError), contextlib.closing(SafetyMonitor(PROBLEM, folder / "monitor.sqlite")) as m:
            m.rearm()
        found = content(folder)
    except CrboError:
        return "not repaired"
    except Exception as error:
        return f"traceback: {type(error).__name__}: {error}"
    if found["episodes"] == wanted["episodes"] and found["next"] == wanted["next"]:
        return "all back"
    return "some lost" if any("LOST" in line or "spool" in line for line in told) else "silent"


def campaign(
    count: int,
    seed: int,
    episodes: int = 8,
    repairs: bool = True,
    damage: Callable[[Path, int], None] = flip,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[tuple[str, str, str, str]]:
    """(file, what became of it, the sentence, what repair made of it) for each of `count` random flips."""
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch)
        make_reference(base, episodes)
        wanted = {}
        for state in ("ended", "killed"):
            shutil.copytree(base / state, base / "look")
            wanted[state] = content(base / "look")
            shutil.rmtree(base / "look")
        for number in range(count):
            state = ("ended", "killed")[number % 2]
            there = files(base / state)
            name = there[number // 2 % len(there)].name
            work = base / "work"
            shutil.copytree(base / state, work)
            bit = int(rng.integers(8 * (work / name).stat().st_size))
            damage(work / name, bit)
            kept = base / "kept"
            shutil.copytree(work, kept)
            fate, why = judge(work, wanted[state])
            mended = mend(kept, wanted[state]) if repairs and fate == REPORTED and name.endswith(".sqlite") else ""
            say(f"{number}: {state}/{name} bit {bit}: {fate} {why.splitlines()[0] if why else ''} {mended}")
            yield f"{state}/{name}", fate, why, mended
            shutil.rmtree(work)
            shutil.rmtree(kept)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--verbose", action="store_true")


def run(args: argparse.Namespace) -> int:
    fates: Counter[tuple[str, str]] = Counter()
    mended: Counter[str] = Counter()
    for name, fate, why, repaired in campaign(
        args.count, args.seed, args.episodes, say=print if args.verbose else lambda line: None
    ):
        fates[name, fate] += 1
        mended[repaired] += bool(repaired)
        if fate in (SILENT, TRACEBACK) or repaired.startswith(("traceback", "silent")):
            print(f"{name}: {fate}: {why} {repaired}")
    for name in sorted({name for name, _ in fates}):
        print(f"{name:32} " + ", ".join(f"{fates[name, f]} {f}" for f in (REPORTED, HARMLESS, SILENT, TRACEBACK)))
    print("repair: " + ", ".join(f"{n} {what}" for what, n in mended.items()))
    bad = sum(n for (_, fate), n in fates.items() if fate in (SILENT, TRACEBACK))
    print(f"{sum(fates.values())} flips, {bad} silent or with a traceback")
    return 1 if bad else 0
