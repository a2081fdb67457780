"""The runner's memory: the request in hand, what was begun, and the results that are not acknowledged yet.

Written to disk (SQLite, synchronous FULL) before anything moves and before anything is published, so that a runner
that is killed carries on with the same request, knows what it had begun, and hands in what it had measured.
"""

from __future__ import annotations

import time
from pathlib import Path

from crbo_ros.protocol.database import Database
from crbo_ros.protocol.records import Episode, Offer, new_uid

SCHEMA = """
CREATE TABLE request (only INTEGER PRIMARY KEY CHECK (only = 1), request_id TEXT NOT NULL);
CREATE TABLE executions (
    episode_uid TEXT PRIMARY KEY, request_id TEXT NOT NULL, experiment_uid TEXT NOT NULL, proposal_id INTEGER NOT NULL,
    verdict_id TEXT UNIQUE NOT NULL, end TEXT NOT NULL DEFAULT 'begun', reason TEXT NOT NULL DEFAULT '',
    forgiven INTEGER NOT NULL DEFAULT 0);
CREATE TABLE fault (only INTEGER PRIMARY KEY CHECK (only = 1), reason TEXT NOT NULL);
CREATE TABLE commands (stamp REAL NOT NULL, who TEXT NOT NULL, command TEXT NOT NULL, arguments TEXT NOT NULL);
CREATE TABLE results (
    number INTEGER PRIMARY KEY, episode_uid TEXT UNIQUE NOT NULL, experiment_uid TEXT NOT NULL,
    episode TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending', answer TEXT NOT NULL DEFAULT '');
"""
SCHEMA_VERSION = 4
BEGUN, INTERRUPTED, BROKEN, ENDED = "begun", "interrupted", "broken", "ended"
RUNNER, FAULT = "the runner", "FAULT:"  # who speaks, and of what, where no person does


class Spool:
    """A result is pending (to be handed in), done (acknowledged) or refused (kept aside for a person).

    An execution is begun, then ended (there is a result of the same uid), interrupted or broken (there never will be
    one; broken: the plant failed under it). A fault of the plant stays on disk until a person clears it.
    """

    def __init__(self, path: Path, owner: bool = True) -> None:
        self.database = Database(path, SCHEMA, SCHEMA_VERSION, owner)

    # -- requests ----------------------------------------------------------------------------------

    def request_id(self) -> str:
        """The id of the request in hand; a new one if the last has been dealt with. On disk before it is used."""
        rows = self.database.query("SELECT request_id FROM request")
        return str(rows[0][0]) if rows else self.new_request()

    def new_request(self) -> str:
        request_id = new_uid()
        with self.database.transaction():
            self.database.execute("INSERT OR REPLACE INTO request VALUES (1, ?)", request_id)
        return request_id

    # -- executions --------------------------------------------------------------------------------

    def begin(self, episode_uid: str, request_id: str, offer: Offer, verdict_id: str) -> None:
        """This is about to move. An approval that was used before is refused by the database itself."""
        with self.database.transaction():
            self.database.insert(
                "executions", episode_uid=episode_uid, request_id=request_id, experiment_uid=offer.experiment_uid,
                proposal_id=offer.id, verdict_id=verdict_id,
            )  # fmt: skip

    def interrupt(self, episode_uid: str, reason: str, broken: bool = False) -> None:
        """What was begun was broken off and gives no result; `broken`: because the plant failed."""
        with self.database.transaction():
            self.database.execute(
                "UPDATE executions SET end = ?, reason = ? WHERE episode_uid = ? AND end = ?",
                BROKEN if broken else INTERRUPTED, reason, episode_uid, BEGUN,
            )  # fmt: skip

    def breaks(self, request_id: str) -> int:
        """How often the plant failed under the proposal of this request, whoever has looked since."""
        rows = self.database.query(
            "SELECT count(*) FROM executions WHERE request_id = ? AND end = ?", request_id, BROKEN
        )
        return int(rows[0][0])

    def latch(self, fault: str) -> None:
        """A fault of the plant; "": a person has cleared it."""
        with self.database.transaction():
            self.database.execute("DELETE FROM fault")
            if fault:
                self.database.insert("fault", only=1, reason=fault)
                self.database.insert("commands", stamp=time.time(), who=RUNNER, command=FAULT, arguments=fault)

    def fault(self) -> str:
        """The fault that nobody has cleared, or ""."""
        rows = self.database.query("SELECT reason FROM fault")
        return str(rows[0][0]) if rows else ""

    def recover(self) -> int:
        """After a start: whatever was begun and has no end was interrupted by the end of its process; how many."""
        with self.database.transaction():
            count = self.database.query("SELECT count(*) FROM executions WHERE end = ?", BEGUN)[0][0]
            self.database.execute(
                "UPDATE executions SET end = ?, reason = 'the runner ended' WHERE end = ?", INTERRUPTED, BEGUN
            )
        return int(count)

    def interruptions(self, request_id: str) -> int:
        """How often the proposal of this request was begun and broken off since a person last looked."""
        rows = self.database.query(
            "SELECT count(*) FROM executions WHERE request_id = ? AND end = ? AND NOT forgiven", request_id, INTERRUPTED
        )
        return int(rows[0][0])

    def forgive(self, request_id: str) -> None:
        """A person has looked: what was broken off before counts no more."""
        with self.database.transaction():
            self.database.execute("UPDATE executions SET forgiven = 1 WHERE request_id = ?", request_id)

    def log_command(self, command: str, arguments: str, who: str, now: float) -> None:
        """What a person told this runner, before it is done."""
        with self.database.transaction():
            self.database.insert("commands", stamp=now, who=who, command=command, arguments=arguments)

    def commands(self) -> list[tuple[float, str, str, str]]:
        """(stamp, who, command, arguments): what people told this runner, and the faults that it had."""
        return list(self.database.query("SELECT stamp, who, command, arguments FROM commands ORDER BY rowid"))

    def broken_off(self) -> list[tuple[int, str, str, str]]:
        """(proposal id, verdict id, end, reason) of what was begun and gave no result."""
        return list(
            self.database.query(
                "SELECT proposal_id, verdict_id, end, reason FROM executions WHERE end IN (?, ?) ORDER BY rowid",
                INTERRUPTED, BROKEN,
            )
        )  # fmt: skip

    # -- results -----------------------------------------------------------------------------------

    def add(self, episode: Episode) -> str:
        """Keep a result; in the same transaction its request is fulfilled and the next one, which is returned, made."""
        request_id = new_uid()
        with self.database.transaction():
            self.database.insert(
                "results",
                episode_uid=episode.episode_uid,
                experiment_uid=episode.experiment_uid,
                episode=episode.to_json(),
            )
            self.database.execute("UPDATE executions SET end = ? WHERE episode_uid = ?", ENDED, episode.episode_uid)
            self.database.execute("INSERT OR REPLACE INTO request VALUES (1, ?)", request_id)
        return request_id

    def pending(self) -> list[Episode]:
        return [
            Episode.from_json(text)
            for (text,) in self.database.query("SELECT episode FROM results WHERE state = 'pending' ORDER BY number")
        ]

    def settle(self, episode_uid: str, state: str, answer: str = "") -> None:
        """Mark a result done or refused."""
        with self.database.transaction():
            self.database.execute(
                "UPDATE results SET state = ?, answer = ? WHERE episode_uid = ?", state, answer, episode_uid
            )

    def history(self, experiment_uid: str, limit: int = 1000) -> list[Episode]:
        """The newest results of an experiment that were not refused, oldest first: for late joiners."""
        rows = self.database.query(
            "SELECT episode FROM results WHERE experiment_uid = ? AND state != 'refused' ORDER BY number DESC LIMIT ?",
            experiment_uid,
            limit,
        )
        return [Episode.from_json(text) for (text,) in reversed(rows)]

    def experiments(self) -> list[str]:
        return [uid for (uid,) in self.database.query("SELECT DISTINCT experiment_uid FROM results")]

    def close(self) -> None:
        self.database.close()
