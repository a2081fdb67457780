"""A plant that looks, at the moment it is started, at what is on disk, and keeps a ledger; and what the ledger proves.

The runner's process runs it like any other task. It trusts nobody: before its first action it reads the runner's spool
and the monitor's record itself. Its ledger counts on the one clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import struct
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.clock import boottime
from crbo_ros.core.space import Space
from crbo_ros.core.trial import theta_hash
from crbo_ros.protocol.spool import BEGUN, ENDED, INTERRUPTED
from crbo_ros.tasks.base import COMPLETED, STOPPED, Outcome, Task, Watch

RATE = 100.0  # Hz
PROMISES = ("lost", "doubled", "unapproved", "begun without a record")


class Witness(Task):
    """Return 1 - |theta - 0.7|^2 and a little noise. `folder`: the experiment's; `runner`: the name of its files."""

    name = "witness"
    plants = ("witness",)
    hardware = False
    incidental = ("folder", "runner", "seconds")

    def __init__(self, plant: str | None = None, *, folder: str = "", runner: str = "", seconds: float = 0.3) -> None:
        super().__init__(plant)
        self.space, self.theta_0 = Space([0.0] * 3, [1.0] * 3), np.full(3, 0.4)
        self.episode_seconds = self.seconds = seconds
        self.folder, self.runner = Path(folder), runner

    def rollout(
        self, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
    ) -> Outcome:
        theta = self.space.check(theta)
        begun = self._begun() if self.runner else []
        self._write("start", hash=theta_hash(theta), verdicts=begun)
        for step in range(max(1, round(self.seconds * RATE))):
            if watch is not None and (reason := watch(step / RATE, theta, theta)):
                self._write("stopped", verdicts=begun)
                return Outcome(float("nan"), STOPPED, reason, step, step / RATE)
            self._act()
            time.sleep(1.0 / RATE if self.runner else 0.0)
        value = 1.0 - float(np.sum((theta - 0.7) ** 2)) + 0.01 * float(rng.standard_normal())
        self._write("end", verdicts=begun, value=value)
        return Outcome(value, COMPLETED, "", step + 1, self.seconds)

    def _begun(self) -> list[str]:
        """The verdicts of what the spool says has begun, as far as the monitor has them on record."""
        verdicts = query(
            self.folder / f"{self.runner}.sqlite", "SELECT verdict_id FROM executions WHERE end = ?", BEGUN
        )
        return [str(verdict) for (verdict,) in verdicts]

    def _act(self) -> None:
        """When the plant moved last, in a file that outlives any kill."""
        if self.runner:
            (self.folder / f"{self.runner}.moved").write_bytes(struct.pack("=d", boottime()))

    def _write(self, event: str, **more: Any) -> None:
        if self.runner:
            with open(self.folder / f"{self.runner}.ledger", "a") as file:
                file.write(json.dumps({"event": event, "time": boottime(), "pid": os.getpid(), **more}) + "\n")


def register(folder: Path) -> None:
    """Make a folder that, on the Python path, makes the witness a task as that of another package."""
    there = folder / "crbo_witness-0.dist-info"
    there.mkdir(parents=True, exist_ok=True)
    (there / "METADATA").write_text("Metadata-Version: 2.1\nName: crbo_witness\nVersion: 0\n")
    (there / "entry_points.txt").write_text(f"[crbo_ros.tasks]\nwitness = {__name__}:Witness\n")


def query(path: Path, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
    """Read a store beside its owner (WAL allows it); nothing where there is none yet."""
    if not path.exists():
        return []
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10.0)
    try:
        return connection.execute(sql, arguments).fetchall()
    except sqlite3.OperationalError:  # not yet created
        return []
    finally:
        connection.close()


def moved(folder: Path, runner: str) -> float:
    """When a runner's plant moved last; long ago if it never did."""
    path = folder / f"{runner}.moved"
    found = path.read_bytes() if path.exists() else b""
    return float(struct.unpack("=d", found)[0]) if found else -math.inf


def ledger(folder: Path, runner: str) -> list[dict[str, Any]]:
    """What a runner's plant did. A line that its process was killed over is left out."""
    path = folder / f"{runner}.ledger"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


@dataclass
class Account:
    """What became of an experiment: how much happened, and each promise that was broken, in words."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: dict[str, list[str]] = field(default_factory=lambda: {promise: [] for promise in PROMISES})

    @property
    def sentences(self) -> Iterator[str]:
        for promise, found in self.broken.items():
            yield from (f"{promise}: {sentence}" for sentence in found)


def account(folder: Path, runners: dict[str, str]) -> Account:
    """Hold ledgers, spools, the monitor's record and the store against each other. `runners`: file name -> full name.

    For when everything has ended.
    """
    made = Account()
    stored = query(folder / "experiment.sqlite", "SELECT episode_uid, proposal_id, value FROM episodes")
    in_store = Counter(uid for uid, _, _ in stored)
    counted = Counter(proposal for _, proposal, value in stored if value is not None)
    made.counts["episodes"] = sum(counted.values())
    made.broken["doubled"] += [f"proposal {id} counts {n} times" for id, n in counted.items() if n > 1]
    spooled: set[str] = set()
    for file, full in runners.items():
        spooled |= _account_runner(made, folder, file, full, in_store)
    foreign = [uid for uid, _, _ in stored if uid not in spooled]
    made.broken["begun without a record"] += [f"episode {uid} is in the store and in no spool" for uid in foreign]
    return made


def _account_runner(made: Account, folder: Path, file: str, full: str, in_store: Counter[str]) -> set[str]:
    """One runner's spool and ledger; the uids of its results."""
    spool, broken = folder / f"{file}.sqlite", made.broken
    approvals = {
        verdict: (hash, runner)
        for verdict, hash, runner in query(
            folder / "monitor.sqlite", "SELECT verdict_id, theta_hash, runner FROM approvals"
        )
    }
    executions = {
        verdict: (uid, end) for verdict, uid, end in query(spool, "SELECT verdict_id, episode_uid, end FROM executions")
    }
    results = dict(query(spool, "SELECT episode_uid, state FROM results"))
    for uid, state in results.items():
        if state == "refused" or not in_store[uid]:
            broken["lost"].append(f"{full}: result {uid} is {state}, {in_store[uid]} times in the store")
        elif in_store[uid] > 1:
            broken["doubled"].append(f"{full}: result {uid} is {in_store[uid]} times in the store")
    for verdict, (uid, end) in executions.items():
        made.counts[end] += 1
        if end not in (ENDED, INTERRUPTED) or (end == ENDED) != (uid in results):
            broken["lost"].append(f"{full}: the execution under verdict {verdict} is {end}, result: {uid in results}")
    used: Counter[str] = Counter()
    for line in ledger(folder, file):
        verdict = line["verdicts"][0] if len(line["verdicts"]) == 1 else ""
        if line["event"] == "start":
            made.counts["starts"] += 1
            used[verdict] += 1
            if verdict not in executions:
                broken["begun without a record"].append(f"{full}: a start at {line['time']:.3f}, {line['verdicts']}")
            if approvals.get(verdict) != (line["hash"], full) or used[verdict] > 1:
                broken["unapproved"].append(f"{full}: a start under {verdict!r}, used {used[verdict]} times")
        elif line["event"] == "end" and (found := executions.get(verdict)):
            uid, end = found
            if end != INTERRUPTED and not in_store[uid]:
                broken["lost"].append(f"{full}: {line['value']} of execution {uid} ({end}) is not in the store")
    return set(results)
