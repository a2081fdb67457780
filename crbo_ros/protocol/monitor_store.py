"""The safety monitor's memory: one SQLite file with what it has seen, approved and been told. Decides nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crbo_ros.core.space import Vector
from crbo_ros.protocol.database import Database, from_blob, nan, null, to_blob
from crbo_ros.protocol.records import Episode, Verdict

SCHEMA_VERSION = 4
SCHEMA = """
CREATE TABLE returns (
    episode_uid TEXT PRIMARY KEY, experiment_uid TEXT NOT NULL, proposal_id INTEGER NOT NULL, x BLOB NOT NULL,
    value REAL, verdict_id TEXT NOT NULL, unverified INTEGER NOT NULL, violation TEXT NOT NULL DEFAULT '',
    signals TEXT NOT NULL DEFAULT '{}');
CREATE TABLE pending (runner TEXT PRIMARY KEY, proposal_id INTEGER NOT NULL);
CREATE TABLE approvals (
    verdict_id TEXT PRIMARY KEY, proposal_id INTEGER NOT NULL, theta_hash TEXT NOT NULL, runner TEXT NOT NULL,
    stamp REAL NOT NULL, worst_case REAL);
CREATE TABLE reviews (
    experiment_uid TEXT NOT NULL, theta_hash TEXT NOT NULL, approved INTEGER NOT NULL, comment TEXT NOT NULL,
    PRIMARY KEY (experiment_uid, theta_hash));
CREATE TABLE settings_log (stamp REAL NOT NULL, who TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL);
CREATE TABLE commands (stamp REAL NOT NULL, who TEXT NOT NULL, command TEXT NOT NULL, arguments TEXT NOT NULL);
CREATE TABLE flags (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


class KnownReturn(NamedTuple):
    """An executed episode in the monitor's memory, with the bound under which it was approved (None: unknown)."""

    episode_uid: str
    proposal_id: int
    x: Vector  # in the unit box
    value: float  # NaN if it gave no return
    worst_case: float | None
    unverified: bool  # from the optimizer's store, not from the runner
    violation: str  # why it is a violation whatever the return was; empty if it is none
    signals: Mapping[str, Sequence[float]]  # name -> (largest value, limit)


class Change(NamedTuple):
    """A setting that somebody changed at run time."""

    stamp: float
    who: str
    name: str
    value: Any


class MonitorStore:
    """Written before it is acted upon."""

    def __init__(self, path: Path, owner: bool = True) -> None:
        self.database = Database(path, SCHEMA, SCHEMA_VERSION, owner)

    def returns(self) -> list[KnownReturn]:
        """In the order in which they were recorded."""
        rows = self.database.query(
            "SELECT r.episode_uid, r.proposal_id, r.x, r.value, a.worst_case, r.unverified, r.violation, "
            "r.signals FROM returns r "
            "LEFT JOIN approvals a ON a.verdict_id = r.verdict_id ORDER BY r.rowid"
        )
        return [
            KnownReturn(a, b, from_blob(x), nan(c), d, bool(e), f, json.loads(g)) for a, b, x, c, d, e, f, g in rows
        ]

    def add_return(self, episode: Episode, x: Vector, unverified: bool) -> KnownReturn:
        """It is no longer under way, in the same transaction."""
        rows = self.database.query("SELECT worst_case FROM approvals WHERE verdict_id = ?", episode.verdict_id)
        pairs = zip(episode.signal_values, episode.signal_limits, strict=True)
        signals = dict(zip(episode.signal_names, map(list, pairs), strict=True))
        with self.database.transaction():
            self.database.insert(
                "returns", episode_uid=episode.episode_uid, experiment_uid=episode.experiment_uid,
                proposal_id=episode.proposal_id, x=to_blob(x), value=null(episode.value), verdict_id=episode.verdict_id,
                unverified=int(unverified), violation=episode.breach, signals=json.dumps(signals),
            )  # fmt: skip
            self.database.execute("DELETE FROM pending WHERE proposal_id = ?", episode.proposal_id)
        worst_case = rows[0][0] if rows else None
        return KnownReturn(
            episode.episode_uid, episode.proposal_id, x, episode.value, worst_case, unverified, episode.breach, signals
        )

    def report(self, episode_uid: str, violation: str) -> None:
        """A person says that this episode was a violation."""
        with self.database.transaction():
            self.database.execute("UPDATE returns SET violation = ? WHERE episode_uid = ?", violation, episode_uid)

    def pending(self) -> dict[str, int]:
        """Novel rollouts that were approved and of which nothing has been heard: runner -> proposal id."""
        return dict(self.database.query("SELECT runner, proposal_id FROM pending"))

    def end_pending(self, runner: str) -> None:
        with self.database.transaction():
            self.database.execute("DELETE FROM pending WHERE runner = ?", runner)

    def verify(self, episode_uid: str) -> None:
        """The runner itself has told of this return now."""
        with self.database.transaction():
            self.database.execute("UPDATE returns SET unverified = 0 WHERE episode_uid = ?", episode_uid)

    def add_approval(self, verdict: Verdict, novel: bool) -> None:
        """With a novel policy's charge, in one transaction."""
        with self.database.transaction():
            if novel:
                self.database.execute(
                    "INSERT OR REPLACE INTO pending VALUES (?, ?)", verdict.runner, verdict.proposal_id
                )
            self.database.insert(
                "approvals", verdict_id=verdict.verdict_id, proposal_id=verdict.proposal_id,
                theta_hash=verdict.theta_hash, runner=verdict.runner, stamp=verdict.stamp,
                worst_case=null(verdict.worst_case),
            )  # fmt: skip

    def review(self, experiment_uid: str, theta_hash: str) -> tuple[bool, str] | None:
        """The operator's decision on a policy (approved, comment), if there is one."""
        rows = self.database.query(
            "SELECT approved, comment FROM reviews WHERE experiment_uid = ? AND theta_hash = ?",
            experiment_uid,
            theta_hash,
        )
        return (bool(rows[0][0]), str(rows[0][1])) if rows else None

    def add_review(self, experiment_uid: str, theta_hash: str, approve: bool, comment: str) -> None:
        with self.database.transaction():
            self.database.execute(
                "INSERT OR REPLACE INTO reviews VALUES (?, ?, ?, ?)", experiment_uid, theta_hash, int(approve), comment
            )

    def log_settings(self, changes: dict[str, Any], who: str, now: float) -> None:
        with self.database.transaction():
            for name, value in changes.items():
                self.database.insert("settings_log", stamp=now, who=who, name=name, value=json.dumps(value))

    def settings_log(self) -> list[Change]:
        """Every change, oldest first."""
        rows = self.database.query("SELECT stamp, who, name, value FROM settings_log ORDER BY rowid")
        return [Change(stamp, who, name, json.loads(value)) for stamp, who, name, value in rows]

    def log_command(self, command: str, arguments: str, who: str, now: float) -> None:
        """What somebody told it; a command that loosens something before it is done."""
        with self.database.transaction():
            self.database.insert("commands", stamp=now, who=who, command=command, arguments=arguments)

    def commands(self) -> list[tuple[float, str, str, str]]:
        """(stamp, who, command, arguments) of what people told it, oldest first."""
        return list(self.database.query("SELECT stamp, who, command, arguments FROM commands ORDER BY rowid"))

    def flag(self, name: str) -> str:
        rows = self.database.query("SELECT value FROM flags WHERE name = ?", name)
        return str(rows[0][0]) if rows else ""

    def set_flag(self, name: str, value: str) -> None:
        with self.database.transaction():
            self.database.execute("INSERT OR REPLACE INTO flags VALUES (?, ?)", name, value)

    def close(self) -> None:
        self.database.close()
