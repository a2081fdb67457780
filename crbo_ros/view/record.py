"""An experiment's store as a value: every proposal with its verdict and its end, and the figures drawn from them.

Reading never changes the experiment, and works while an optimizer is writing to it.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.space import Space
from crbo_ros.core.trial import Best, Proposal, TrialStatus
from crbo_ros.errors import StoreError
from crbo_ros.protocol.records import VETOED, Episode
from crbo_ros.protocol.store import ExperimentStore, load_state

Array = NDArray[np.float64]

FILE = "experiment.sqlite"
HOME = "experiments"  # where names are looked up, below the current folder


def find_store(experiment: str | Path) -> Path:
    """The store behind a folder, a file, or a name below ./experiments; StoreError lists what there is."""
    given = Path(experiment)
    for candidate in (given, Path(HOME) / given):
        if candidate.is_file():
            return candidate
        if (candidate / FILE).is_file():
            return candidate / FILE
    known = sorted(path.parent.name for path in Path(HOME).glob(f"*/{FILE}"))
    there = f"./{HOME} has: {', '.join(known)}" if known else f"there are none in ./{HOME} either"
    raise StoreError(f"{experiment}: neither a folder with {FILE}, nor such a file, nor the name of one; {there}")


@contextmanager
def open_store(path: Path) -> Iterator[ExperimentStore]:
    """The store for reading. SQLite needs to write beside a WAL database even then: a read-only one is copied."""
    with tempfile.TemporaryDirectory() as scratch:
        if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            for part in (path, path.with_name(path.name + "-wal")):
                if part.exists():
                    shutil.copyfile(part, Path(scratch) / part.name)
            path = Path(scratch) / path.name
        store = ExperimentStore(path)
        try:
            yield store
        finally:
            store.close()


@dataclass(frozen=True)
class Entry:
    """One proposal and what became of it."""

    proposal: Proposal
    runner: str
    created: float
    end: TrialStatus
    end_reason: str
    report: dict[str, Any]  # the method's figures when it was made
    episode: Episode | None = None
    verdicts: tuple[dict[str, Any], ...] = ()

    @property
    def id(self) -> int:
        return self.proposal.id

    @property
    def outcome(self) -> str:
        """completed | terminated | vetoed | stopped | failed | expired | pending."""
        return self.episode.outcome if self.episode else self.end.value

    @property
    def value(self) -> float:
        return self.episode.value if self.episode and self.episode.counts else math.nan

    @property
    def verdict(self) -> dict[str, Any] | None:
        """The decision it ran (or did not run) under, or the newest one."""
        if self.episode:
            for verdict in self.verdicts:
                if verdict["verdict_id"] == self.episode.verdict_id:
                    return verdict
        return self.verdicts[-1] if self.verdicts else None

    @property
    def bound(self) -> float:
        """The safety monitor's lower bound on the return; the optimizer's own where the monitor gave none."""
        if self.episode and math.isfinite(self.episode.predicted_worst_case):
            return self.episode.predicted_worst_case
        if self.verdict and self.verdict["worst_case"] is not None:
            return float(self.verdict["worst_case"])
        return self.proposal.worst_case

    @property
    def reason(self) -> str:
        return self.end_reason or (self.episode.reason if self.episode else "")


@dataclass(frozen=True)
class Record:
    """A whole experiment. `experiment` is None in a store that nothing was written to yet."""

    path: Path
    experiment: dict[str, Any] | None
    entries: list[Entry] = field(default_factory=list)
    order: list[int] = field(default_factory=list)  # proposal ids in the order in which their ends were taken in
    finished: str = ""
    best: Best | None = None
    best_source: str = ""  # "posterior mean" or "best observed"

    @property
    def counted(self) -> list[Entry]:
        """The entries with a return, in the order in which these came."""
        by_id = {entry.id: entry for entry in self.entries}
        return [by_id[id] for id in self.order if math.isfinite(by_id[id].value)]

    @property
    def returns(self) -> Array:
        return np.array([entry.value for entry in self.counted], dtype=np.float64)

    @property
    def vetoes(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.outcome == VETOED]

    @property
    def name(self) -> str:
        return str(self.experiment["name"]) if self.experiment else self.path.parent.name

    @property
    def space(self) -> Space | None:
        row = self.experiment
        return Space(row["lower"], row["upper"], log=row["log_scale"]) if row else None

    def count(self, outcome: str) -> int:
        return sum(entry.outcome == outcome for entry in self.entries)

    def coverage(self) -> tuple[Array, Array]:
        """(proposal ids, share of the bounds up to there that held), for returns that had a finite bound."""
        bounded = [entry for entry in self.counted if math.isfinite(entry.bound)]
        held = np.array([entry.value >= entry.bound for entry in bounded], dtype=np.float64)
        return np.array([e.id for e in bounded], float), np.cumsum(held) / np.arange(1, len(held) + 1)

    def figure(self, key: str) -> tuple[Array, Array]:
        """(proposal ids, values) of one of the method's figures, where it is a finite number."""
        found = [
            (entry.id, float(value))
            for entry in self.entries
            if isinstance(value := entry.report.get(key), (int, float)) and math.isfinite(value)
        ]
        pairs = np.array(found, dtype=np.float64).reshape(len(found), 2)
        return pairs[:, 0], pairs[:, 1]


def read_record(path: Path) -> Record:
    """Everything in a store. The recommended policy is the method's own, or else the best observed one."""
    with open_store(path) as store:
        row = store.experiment()
        if row is None:
            return Record(path, None)
        episodes = store.episodes()
        by_proposal = {episode.proposal_id: episode for episode in episodes}
        verdicts: dict[int, list[dict[str, Any]]] = {}
        for verdict in store.verdicts():
            verdicts.setdefault(verdict["proposal_id"], []).append(verdict)
        entries = [
            Entry(
                p.proposal, p.runner, p.created, p.end, p.end_reason, p.report,
                by_proposal.get(p.proposal.id), tuple(verdicts.get(p.proposal.id, ())),
            )
            for p in store.proposals()
        ]  # fmt: skip
        best, source = _best(store, row, entries)
        order = [episode.proposal_id for episode in episodes]
        return Record(path, row, entries, order, store.flag("finished"), best, source)


def _best(store: ExperimentStore, row: dict[str, Any], entries: list[Entry]) -> tuple[Best | None, str]:
    counted = [entry for entry in entries if math.isfinite(entry.value)]
    if not counted:
        return None, ""
    try:
        best = _replayed(store, row).best()
        if best is not None:
            return best, "posterior mean" if math.isfinite(best.sigma) else "best observed"
    except Exception:  # a method of another package, or settings of another version: the record itself still stands
        pass
    top = max(counted, key=lambda entry: entry.value)
    return Best(top.id, top.proposal.theta, math.nan, math.nan, top.value), "best observed"


def _replayed(store: ExperimentStore, row: dict[str, Any]) -> Any:
    """The method as it stood when the store was last written."""
    from crbo_ros.registry import make_method

    space = Space(row["lower"], row["upper"], log=row["log_scale"])
    method = make_method(row["method"], space, row["theta_0"], seed=row["seed"], **row["config"])
    blob, events = store.resume_point()
    if blob is not None:
        method.restore(load_state(blob))
    for _, verb, arguments in events:
        if verb == "configure":
            method.configure(**arguments[0])
        else:
            getattr(method, verb)(*arguments)
    return method
