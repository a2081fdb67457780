"""One SQLite file for each experiment: what was proposed, decided and seen, written before it is acknowledged.

WAL journal and synchronous=FULL: a committed row survives a killed process and a power cut. The method's state is what
it was at the newest proposal (its trials from the tables, the rest, of bounded size, in one row), plus the events since
then in order; replaying these gives the state bit for bit.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.method import TrialRecord
from crbo_ros.core.problem import Problem
from crbo_ros.core.snapshot import trials
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal, TrialStatus
from crbo_ros.protocol.database import Database, from_blob, nan, null, to_blob
from crbo_ros.protocol.records import Episode, Experiment, Verdict

VERBS = {  # event -> how it leaves a trial
    "tell": TrialStatus.COMPLETED,
    "veto": TrialStatus.VETOED,
    "fail": TrialStatus.FAILED,
    "expire": TrialStatus.EXPIRED,
}
SCHEMA_VERSION = 4
SCHEMA = """
CREATE TABLE experiment (
    uid TEXT PRIMARY KEY, name TEXT NOT NULL, task TEXT NOT NULL, problem TEXT NOT NULL, method TEXT NOT NULL,
    seed INTEGER NOT NULL, dim INTEGER NOT NULL, lower BLOB NOT NULL, upper BLOB NOT NULL, log_scale BLOB NOT NULL,
    theta_0 BLOB NOT NULL, config TEXT NOT NULL, package_version TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE proposals (
    id INTEGER PRIMARY KEY, runner TEXT NOT NULL, request_id TEXT NOT NULL, theta BLOB NOT NULL, kind TEXT NOT NULL,
    reason TEXT NOT NULL, mean REAL, sigma REAL, worst_case REAL, worst_case_paper REAL, gamma REAL,
    created REAL NOT NULL, report TEXT NOT NULL, end TEXT NOT NULL DEFAULT 'pending',
    end_reason TEXT NOT NULL DEFAULT '', ended REAL, events INTEGER NOT NULL, UNIQUE (runner, request_id));
CREATE TABLE episodes (
    episode_uid TEXT PRIMARY KEY, proposal_id INTEGER NOT NULL REFERENCES proposals (id), runner TEXT NOT NULL,
    outcome TEXT NOT NULL, value REAL, reason TEXT NOT NULL, verdict_id TEXT NOT NULL, predicted_worst_case REAL,
    steps INTEGER NOT NULL, duration REAL NOT NULL, deadline_misses INTEGER NOT NULL,
    median_lateness REAL NOT NULL DEFAULT 0.0, p99_lateness REAL NOT NULL DEFAULT 0.0, max_lateness REAL NOT NULL,
    stamp REAL NOT NULL, problem TEXT NOT NULL, violation TEXT NOT NULL DEFAULT '',
    signals TEXT NOT NULL DEFAULT '[[], [], []]');
CREATE INDEX episodes_of_proposals ON episodes (proposal_id);
CREATE TABLE verdicts (
    verdict_id TEXT PRIMARY KEY, proposal_id INTEGER NOT NULL REFERENCES proposals (id), status TEXT NOT NULL,
    runner TEXT NOT NULL, monitor_uid TEXT NOT NULL, stamp REAL NOT NULL, worst_case REAL, threshold REAL,
    nearest_id INTEGER, distance REAL, lipschitz REAL, lipschitz_source TEXT NOT NULL, reason TEXT NOT NULL,
    rule TEXT NOT NULL, account REAL, gate REAL, lipschitz_shown REAL);
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, verb TEXT NOT NULL, arguments TEXT NOT NULL,
    aside TEXT NOT NULL DEFAULT '');
CREATE TABLE snapshot (only INTEGER PRIMARY KEY CHECK (only = 1), sequence INTEGER NOT NULL, state BLOB NOT NULL);
CREATE TABLE flags (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


@dataclass(frozen=True)
class ProposalRow:
    """A stored proposal, with who asked for it and how it ended."""

    proposal: Proposal
    runner: str
    request_id: str
    created: float
    end: TrialStatus
    end_reason: str
    report: dict[str, Any]


class Event(NamedTuple):
    """One call of the method, to be repeated when it is restored."""

    sequence: int
    verb: str
    arguments: list[Any]


def _proposal_row(row: tuple[Any, ...]) -> ProposalRow:
    id, theta, kind, mean, sigma, worst, paper, gamma, reason, runner, request_id, created, end, why, report = row
    proposal = Proposal(
        id, from_blob(theta), kind, nan(mean), nan(sigma), nan(worst), nan(paper), nan(gamma), reason
    )  # fmt: skip
    return ProposalRow(proposal, runner, request_id, created, TrialStatus(end), why, json.loads(report))


def scale_blob(space: Space) -> bytes:
    """A byte for each dimension: 1 where its scale is logarithmic, 2 where it holds whole numbers, 3 where both."""
    return (space.log + 2 * space.integer).astype("u1").tobytes()


def scales(blob: bytes) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(integer, log) of scale_blob."""
    codes = np.frombuffer(blob, "u1")
    return codes & 2 != 0, codes & 1 != 0


def stored_space(facts: Mapping[str, Any]) -> Space:
    """The space of an experiment's own row, without what only proposals need (names, and which is below which)."""
    return Space(facts["lower"], facts["upper"], log=facts["log_scale"], integer=facts["integer"])


class ExperimentStore:
    """The optimizer's memory. Not a place for decisions: optimizer.py makes those."""

    def __init__(self, path: Path, owner: bool = False) -> None:
        self.database = Database(path, SCHEMA, SCHEMA_VERSION, owner)

    # -- the experiment ---------------------------------------------------------------------------

    def create(self, experiment: Experiment, problem: Problem, *, version: str, now: float) -> None:
        space = problem.space
        with self.database.transaction():
            if space.named:
                self.database.execute("INSERT OR REPLACE INTO flags VALUES (?, ?)", "names", json.dumps(space.names))
            self.database.insert(
                "experiment", uid=experiment.uid, name=experiment.name, task=problem.task, problem=experiment.problem,
                method=experiment.method, seed=experiment.seed, dim=space.dim, lower=to_blob(space.lower),
                upper=to_blob(space.upper), log_scale=scale_blob(space),
                theta_0=to_blob(problem.theta_0), config=json.dumps(dict(experiment.settings)),
                package_version=version, created=now,
            )  # fmt: skip

    def identity(self) -> Experiment | None:
        """Which experiment this is, or None in a new file."""
        row = self.experiment()
        if row is None:
            return None
        return Experiment(*(row[name] for name in ("uid", "name", "problem", "method", "config", "seed")))

    def experiment(self) -> dict[str, Any] | None:
        """The experiment's own row (bounds and theta_0 as vectors, config as a dict), or None in a new file."""
        columns = (
            "uid name task problem method seed dim lower upper log_scale theta_0 config package_version created".split()
        )
        rows = self.database.query(f"SELECT {', '.join(columns)} FROM experiment")
        if not rows:
            return None
        found = dict(zip(columns, rows[0], strict=True))
        for column in ("lower", "upper", "theta_0"):
            found[column] = from_blob(found[column])
        found["integer"], found["log_scale"] = scales(found["log_scale"])
        found["config"] = json.loads(found["config"])
        return found

    # -- proposals --------------------------------------------------------------------------------

    def add_proposal(
        self, proposal: Proposal, *, runner: str, request_id: str, now: float, report: dict[str, Any],
        state: bytes,
    ) -> None:  # fmt: skip
        """The proposal, and the head of the method's state just after it made it, in one transaction."""
        with self.database.transaction():
            self._add_proposal(proposal, runner, request_id, now, report, state)

    def attach(self, episodes: list[tuple[Proposal, Episode]], *, now: float, state: bytes) -> None:
        """Earlier episodes, all of them or none, and the method's state that knows them."""
        with self.database.transaction():
            for proposal, episode in episodes:
                self._add_proposal(proposal, episode.runner, episode.episode_uid, now, {}, state)
                self.database.execute(
                    "UPDATE proposals SET end = ?, end_reason = ?, ended = ? WHERE id = ?",
                    TrialStatus.COMPLETED.value, episode.reason, now, proposal.id,
                )  # fmt: skip
                self._insert(episode)

    def _add_proposal(
        self, proposal: Proposal, runner: str, request_id: str, now: float, report: dict[str, Any], state: bytes
    ) -> None:
        sequence = self.database.query("SELECT coalesce(max(sequence), 0) FROM events")[0][0]
        self.database.insert(
            "proposals", id=proposal.id, runner=runner, request_id=request_id, theta=to_blob(proposal.theta),
            kind=proposal.kind, reason=proposal.reason, mean=null(proposal.mean), sigma=null(proposal.sigma),
            worst_case=null(proposal.worst_case), worst_case_paper=null(proposal.worst_case_paper),
            gamma=null(proposal.gamma), created=now, report=json.dumps(report), events=sequence,
        )  # fmt: skip
        self.database.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?)", sequence, state)

    def proposals(self, where: str = "", *arguments: Any) -> list[ProposalRow]:
        rows = self.database.query(
            "SELECT id, theta, kind, mean, sigma, worst_case, worst_case_paper, gamma, reason, runner, request_id, "
            f"created, end, end_reason, report FROM proposals {where} ORDER BY id", *arguments,
        )  # fmt: skip
        return [_proposal_row(row) for row in rows]

    def find_request(self, runner: str, request_id: str) -> ProposalRow | None:
        rows = self.proposals("WHERE runner = ? AND request_id = ?", runner, request_id)
        return rows[0] if rows else None

    def proposal(self, id: int) -> ProposalRow | None:
        rows = self.proposals("WHERE id = ?", id)
        return rows[0] if rows else None

    def end_proposal(
        self, id: int, end: TrialStatus, reason: str, event: tuple[str, list[Any]], now: float,
        episode: Episode | None = None,
    ) -> None:  # fmt: skip
        """The end of a proposal, its episode if it had one, and the event for the method, in one transaction."""
        with self.database.transaction():
            self.database.execute(
                "UPDATE proposals SET end = ?, end_reason = ?, ended = ? WHERE id = ?", end.value, reason, now, id
            )
            if episode is not None:
                self._insert(episode)
            self.database.insert("events", verb=event[0], arguments=json.dumps(event[1]))

    def add_episode(self, episode: Episode) -> None:
        """An episode that changes nothing any more, for the record."""
        with self.database.transaction():
            self._insert(episode)

    def _insert(self, episode: Episode) -> None:
        self.database.insert(
            "episodes", episode_uid=episode.episode_uid, proposal_id=episode.proposal_id, runner=episode.runner,
            outcome=episode.outcome, value=null(episode.value), reason=episode.reason, verdict_id=episode.verdict_id,
            predicted_worst_case=null(episode.predicted_worst_case), steps=episode.steps, duration=episode.duration,
            deadline_misses=episode.deadline_misses, median_lateness=episode.median_lateness,
            p99_lateness=episode.p99_lateness, max_lateness=episode.max_lateness, stamp=episode.stamp,
            problem=episode.problem, violation=episode.violation,
            signals=json.dumps([[*episode.signal_names], [*episode.signal_values], [*episode.signal_limits]]),
        )  # fmt: skip

    def add_event(self, verb: str, arguments: list[Any]) -> None:
        with self.database.transaction():
            self.database.insert("events", verb=verb, arguments=json.dumps(arguments))

    def set_aside(self, sequence: int, why: str, expired: int | None) -> None:
        """Leave an event out from now on; the proposal that it would have ended counts as expired for the method."""
        with self.database.transaction():
            self.database.execute("UPDATE events SET aside = ? WHERE sequence = ?", why, sequence)
            if expired is not None:
                self.database.insert("events", verb="expire", arguments=json.dumps([expired, f"set aside: {why}"]))

    def resume_point(self) -> tuple[dict[str, Any] | None, list[Event]]:
        """The method's state at its newest proposal, and the events after it, to be replayed in order."""
        rows = self.database.query("SELECT sequence, state FROM snapshot")
        sequence, state = (rows[0][0], load_state(rows[0][1])) if rows else (0, None)
        if state is not None and "log" not in state and "thetas" not in state:  # its head: the trials are in the tables
            state |= self._trials(sequence)
        return state, self._events("sequence > ?", sequence)

    def _events(self, where: str, sequence: int) -> list[Event]:
        rows = self.database.query(
            f"SELECT sequence, verb, arguments FROM events WHERE {where} AND aside = '' ORDER BY sequence", sequence
        )
        return [Event(number, verb, json.loads(arguments)) for number, verb, arguments in rows]

    def _trials(self, sequence: int) -> dict[str, Any]:
        """The method's trials as they were after event number `sequence`."""
        records, completed = [TrialRecord(row.proposal) for row in self.proposals()], []
        for _, verb, arguments in self._events("sequence <= ?", sequence):
            if verb == "configure":
                continue
            trial = records[arguments[0]]
            if verb == "mark":
                trial.violation = arguments[1]
                continue
            trial.end = VERBS[verb]
            trial.value, trial.reason = (arguments[1], "") if verb == "tell" else (math.nan, arguments[1])
            trial.violation = arguments[2] if len(arguments) > 2 else ""
            if verb == "tell":
                completed.append(arguments[0])
        return trials(records, completed, len(records[0].proposal.theta))

    # -- episodes and verdicts --------------------------------------------------------------------

    def episodes(self) -> list[Episode]:
        """The episode that each proposal ended with (the last, where it was given back first), in their order."""
        uid = (self.experiment() or {}).get("uid", "")
        rows = self.database.query(
            "SELECT e.episode_uid, e.proposal_id, e.runner, p.theta, e.outcome, e.value, e.reason, e.verdict_id, "
            "e.predicted_worst_case, e.steps, e.duration, e.deadline_misses, e.median_lateness, e.p99_lateness, "
            "e.max_lateness, e.stamp, e.problem, e.violation, e.signals "
            "FROM episodes e JOIN proposals p ON p.id = e.proposal_id WHERE e.rowid = "
            "(SELECT max(rowid) FROM episodes WHERE proposal_id = e.proposal_id) ORDER BY e.rowid"
        )
        return [
            Episode(a, uid, b, c, from_blob(d), e, nan(f), g, h, nan(i), *rest, *map(tuple, json.loads(signals)))
            for a, b, c, d, e, f, g, h, i, *rest, signals in rows
        ]

    def find_episode(self, episode_uid: str) -> tuple[int, str, float] | None:
        """(proposal id, outcome, value) of a known episode."""
        rows = self.database.query(
            "SELECT proposal_id, outcome, value FROM episodes WHERE episode_uid = ?", episode_uid
        )
        return (rows[0][0], rows[0][1], nan(rows[0][2])) if rows else None

    def has_episode(self, proposal_id: int) -> bool:
        return bool(self.database.query("SELECT 1 FROM episodes WHERE proposal_id = ?", proposal_id))

    def add_verdict(self, verdict: Verdict, most: int) -> None:
        """For the record; no more than `most` of one proposal."""
        known = self.database.query("SELECT count(*) FROM verdicts WHERE proposal_id = ?", verdict.proposal_id)
        if known[0][0] >= most:
            return
        with self.database.transaction():
            self.database.execute(
                "INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                verdict.verdict_id, verdict.proposal_id, verdict.status, verdict.runner, verdict.monitor_uid,
                verdict.stamp, null(verdict.worst_case), null(verdict.threshold), verdict.nearest_id,
                null(verdict.distance), null(verdict.lipschitz), verdict.lipschitz_source, verdict.reason, verdict.rule,
                null(verdict.account), null(verdict.gate), null(verdict.lipschitz_shown),
            )  # fmt: skip

    def verdicts(self) -> list[dict[str, Any]]:
        columns = (
            "verdict_id proposal_id status runner monitor_uid stamp worst_case threshold nearest_id distance "
            "lipschitz lipschitz_source reason rule account gate lipschitz_shown"
        ).split()
        rows = self.database.query(f"SELECT {', '.join(columns)} FROM verdicts ORDER BY rowid")
        return [dict(zip(columns, row, strict=True)) for row in rows]

    # -- flags ------------------------------------------------------------------------------------

    def set_flag(self, name: str, value: str) -> None:
        with self.database.transaction():
            self.database.execute("INSERT OR REPLACE INTO flags VALUES (?, ?)", name, value)

    def flag(self, name: str) -> str:
        rows = self.database.query("SELECT value FROM flags WHERE name = ?", name)
        return str(rows[0][0]) if rows else ""

    def names(self) -> list[str]:
        """The parameters' names, in theta's order; empty: they have none."""
        return list(json.loads(self.flag("names") or "[]"))

    def close(self) -> None:
        self.database.close()


def dump_state(state: dict[str, Any]) -> bytes:
    """A state (JSON values and arrays, no pickles) as bytes."""
    arrays = {k: v for k, v in state.items() if isinstance(v, np.ndarray)}
    plain = {k: v for k, v in state.items() if k not in arrays}
    buffer = io.BytesIO()
    arrays["__json__"] = np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8)
    np.savez(buffer, **arrays)  # type: ignore[arg-type]  # NumPy's stub takes the names for its options
    return buffer.getvalue()


def load_state(blob: bytes) -> dict[str, Any]:
    """The inverse of dump_state."""
    with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
        state = json.loads(archive["__json__"].tobytes().decode())
        state.update({k: archive[k] for k in archive.files if k != "__json__"})
    return dict(state)
