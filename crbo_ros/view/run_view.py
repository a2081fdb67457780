"""RunView: one run, as everybody looks at it. Fed from a store (record.py) or from topics (live.py). No ROS, no Qt.

Values may be recorded in whatever order they arrive, and twice: history that is latched comes again after a restart.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.space import Space
from crbo_ros.core.trial import NAN, Best, TrialStatus
from crbo_ros.protocol.records import RETURNED, VETOED, WAITING, Episode, Offer, Verdict
from crbo_ros.protocol.store import stored_space
from crbo_ros.view.colors import OUTCOME_COLORS
from crbo_ros.view.contract import ContractRecord
from crbo_ros.view.journal import JournalEntry
from crbo_ros.view.values import OptimizerState

Array = NDArray[np.float64]
Curve = tuple[Array, Array]  # proposal ids, heights
OVER = ("finished", "exhausted")  # states of an optimizer that has nothing more to propose
ENDINGS = tuple(OUTCOME_COLORS)  # in the order in which they are counted for people


@dataclass
class Row:
    """One proposal and what is known of it."""

    id: int
    proposal: Offer | None = None
    verdicts: list[Verdict] = field(default_factory=list)  # by their time
    episode: Episode | None = None
    status: TrialStatus = TrialStatus.PENDING  # from a store; topics do not tell that a proposal has expired
    status_reason: str = ""
    runner: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)  # of the method when it made the proposal; from a store

    @property
    def outcome(self) -> str:
        """One of ENDINGS."""
        return self.episode.outcome if self.episode else self.status.value

    @property
    def open(self) -> bool:
        """Whether it may still run: nothing was heard of it, or it was given back by no fault of its own."""
        return self.outcome in (TrialStatus.PENDING.value, RETURNED)

    @property
    def kind(self) -> str:
        return self.proposal.kind if self.proposal else ""

    @property
    def value(self) -> float:
        """The return, where it counts."""
        return self.episode.value if self.episode and self.episode.counts else NAN

    @property
    def verdict(self) -> Verdict | None:
        """The decision it ran (or did not run) under, or else the newest one."""
        newest = self.verdicts[-1] if self.verdicts else None
        if self.open or self.episode is None or newest is None:
            return newest
        return next((v for v in self.verdicts if v.verdict_id == self.episode.verdict_id), newest)

    @property
    def bound(self) -> float:
        """The safety monitor's lower bound on the return; the optimizer's own where the monitor gave none."""
        if self.episode and math.isfinite(self.episode.predicted_worst_case):
            return self.episode.predicted_worst_case
        if (verdict := self.verdict) and math.isfinite(verdict.worst_case):
            return verdict.worst_case
        return self.proposal.worst_case if self.proposal else NAN

    @property
    def reason(self) -> str:
        """Why it ended so."""
        return self.status_reason or (self.episode.reason if self.episode else "")

    @property
    def remark(self) -> str:
        """What there is to say of it: why it ended so, what it waits for, or why it was proposed."""
        if self.reason:
            return self.reason
        if self.verdicts and not self.episode:
            return self.verdicts[-1].reason
        return self.proposal.reason if self.proposal else ""


@dataclass(frozen=True)
class Series:
    """What the plots draw, over proposal ids."""

    points: dict[str, Curve]  # by outcome: returns; for vetoes the bounds that spoke against them
    bounds: tuple[Array, Array, Array]  # ids, bounds, returns
    best: Curve
    average: Curve
    gamma: Curve
    coverage: Curve  # share of the bounds that held so far
    threshold: Curve


# What the curves need of each row: kept up to date row by row, so that one more episode costs no look at the others.
NUMBERS = ("id", "value", "bound", "gamma", "threshold")
COLUMNS = np.dtype([*((name, "f8") for name in NUMBERS), ("outcome", "i1")])


class RunView:
    """See the module's docstring. Used from one thread."""

    def __init__(self, path: Path = Path(), experiment: dict[str, Any] | None = None) -> None:
        self.path = path  # of the store
        self.experiment = experiment  # the store's row of facts; None from topics, or where nothing was stored yet
        self.manifest: dict[str, Any] = {}  # of the record; empty from topics, or where nobody kept one
        self.rows: list[Row] = []  # by id; the same list for ever
        self.order: list[int] = []  # proposal ids in the order in which their ends were recorded
        self.state: OptimizerState | None = None  # at a glance; from topics the optimizer's own, else of the rows
        self.names: list[str] = []  # of the parameters; none: they have none
        self.finished = ""  # why the run is over
        self.best: Best | None = None
        self.best_source = ""  # "posterior mean" or "best observed"
        self.contract: ContractRecord | None = None  # recomputed from the records; from a store
        self.journal: list[JournalEntry] = []  # what happened around the episodes; from a record
        self.changes: list[int] = []  # proposal ids, one for every change that can be seen
        self._by_id: dict[int, Row] = {}
        self._open: dict[int, Row] = {}  # those that may still run, and what a store calls expired
        self._episodes: set[str] = set()
        self._columns = np.empty(64, COLUMNS)

    # -- in -----------------------------------------------------------------------------------------

    def record(self, value: Offer | Verdict | Episode | OptimizerState) -> None:
        """Whatever is already known, or older than what is known, changes nothing."""
        if isinstance(value, OptimizerState):
            self.state, self.names = value, list(value.names)
            self.finished = value.message if value.state in OVER else ""
            return
        if isinstance(value, Offer):
            row = self.row(value.id)
            if row.proposal:  # fixed once it was published
                return
            row.proposal = value
        elif isinstance(value, Verdict):
            row = self.row(value.proposal_id)
            if not _record_verdict(row.verdicts, value):
                return
        else:
            row = self.row(value.proposal_id)
            if value.episode_uid in self._episodes or (row.episode and row.episode.counts):
                return
            self._episodes.add(value.episode_uid)
            if row.episode:  # it was given back, and ran later
                self.order.remove(row.id)
            row.episode = value
            if not row.open:
                self._open.pop(row.id, None)
            self.order.append(row.id)
        self._show(row)

    def row(self, id: int) -> Row:
        """The row of a proposal, made when it is first heard of."""
        if id not in self._by_id:
            row = self._by_id[id] = self._open[id] = Row(id)
            at, count = bisect.bisect(self.rows, id, key=lambda row: row.id), len(self.rows)
            if count == len(self._columns):
                self._columns = np.concatenate([self._columns, np.empty(count, COLUMNS)])
            self._columns[at + 1 : count + 1] = self._columns[at:count]
            self.rows.insert(at, row)
            self._show(row)
        return self._by_id[id]

    def find(self, id: int) -> Row | None:
        return self._by_id.get(id)

    def _show(self, row: Row) -> None:
        at = bisect.bisect_left(self.rows, row.id, key=lambda row: row.id)
        gamma = row.proposal.gamma if row.proposal else NAN
        threshold = row.verdict.threshold if row.verdict else NAN
        outcome = ENDINGS.index(row.outcome) if row.outcome in ENDINGS else -1
        self._columns[at] = (row.id, row.value, row.bound, gamma, threshold, outcome)
        self.changes.append(row.id)

    # -- out ----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        if self.experiment or not self.state:
            return str(self.experiment["name"]) if self.experiment else self.path.parent.name
        return self.state.experiment

    @property
    def over(self) -> bool:
        """Whether the optimizer has nothing more to propose."""
        return self.state is not None and self.state.state in OVER

    @property
    def identity(self) -> dict[str, str]:
        """Of the problem: plant, hardware, policy, ..."""
        key = self.experiment["problem"] if self.experiment else ""
        return dict(part.split("=", 1) for part in key.split(" ") if "=" in part)

    @property
    def plant(self) -> str:
        return self.identity.get("plant", "")

    @property
    def robot(self) -> str:
        """The robots that moved, by their serial numbers or names; "" where they have none."""
        moved = [str(entry["robot"]).rpartition(" on ")[0] for entry in self.manifest.get("robots", [])]
        return ", ".join(dict.fromkeys(filter(None, moved)))

    @property
    def hardware(self) -> bool:
        """Whether it can hurt somebody; unknown: it can."""
        return self.identity.get("hardware") != "no"

    @property
    def space(self) -> Space | None:
        row = self.experiment
        return stored_space(row) if row else None

    @property
    def counted(self) -> list[Row]:
        """The rows with a return."""
        return [row for row in self.rows if math.isfinite(row.value)]

    @property
    def returns(self) -> Array:
        values = self._columns["value"][: len(self.rows)]
        return values[np.isfinite(values)]

    @property
    def last_return(self) -> float:
        """The one that was recorded last."""
        return next((row.value for id in reversed(self.order) if math.isfinite((row := self._by_id[id]).value)), NAN)

    def pending(self) -> list[Row]:
        """The rows that may still run."""
        return [self._open[id] for id in sorted(self._open) if self._open[id].open]

    @property
    def vetoes(self) -> list[Row]:
        return [row for row in self.rows if row.outcome == VETOED]

    def counts(self) -> dict[str, int]:
        """How many proposals ended in each way; those that occur."""
        outcomes = [row.outcome for row in self.rows]
        return {outcome: outcomes.count(outcome) for outcome in ENDINGS if outcome in outcomes}

    def metric(self, key: str) -> Curve:
        """One of the method's metrics over the proposals, where it is a finite number."""
        candidates = [(row.id, row.metrics.get(key)) for row in self.rows]
        found = [(id, float(v)) for id, v in candidates if isinstance(v, (int, float)) and math.isfinite(v)]
        pairs = np.array(found, dtype=np.float64).reshape(len(found), 2)
        return pairs[:, 0], pairs[:, 1]

    def series(self) -> Series:
        """The curves."""
        rows = self._columns[: len(self.rows)].copy()
        heights = np.where(rows["outcome"] == ENDINGS.index(VETOED), rows["bound"], rows["value"])
        points = {}
        for code, outcome in enumerate(ENDINGS):
            shown = rows["outcome"] == code
            points[outcome] = (rows["id"][shown], heights[shown])
        counted = rows[np.isfinite(rows["value"])]
        bounded = counted[np.isfinite(counted["bound"])]
        held = bounded["value"] >= bounded["bound"]
        return Series(
            points,
            (bounded["id"], bounded["bound"], bounded["value"]),
            (counted["id"], np.maximum.accumulate(counted["value"])),
            (counted["id"], _running_mean(counted["value"])),
            _known(rows, "gamma"),
            (bounded["id"], _running_mean(held)),
            _known(rows, "threshold"),
        )


def _record_verdict(verdicts: list[Verdict], verdict: Verdict) -> bool:
    """Add a verdict in the order of time; whether that can be seen. A waiting proposal is asked about all the time."""
    if any(known.verdict_id == verdict.verdict_id for known in verdicts):
        return False
    newest = verdicts[-1] if verdicts else None
    if newest and verdict.status == WAITING and newest.stamp > verdict.stamp:
        return False
    if newest and newest.status == WAITING and newest.stamp <= verdict.stamp:
        verdicts[-1] = verdict
        return (newest.status, newest.reason) != (verdict.status, verdict.reason)
    bisect.insort(verdicts, verdict, key=lambda verdict: verdict.stamp)
    return True


def _running_mean(values: NDArray[Any]) -> Array:
    return np.cumsum(values, dtype=np.float64) / np.arange(1.0, len(values) + 1.0)


def _known(rows: NDArray[Any], column: str) -> Curve:
    known = rows[np.isfinite(rows[column])]
    return known["id"], known[column]
