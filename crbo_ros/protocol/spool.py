"""The runner's memory: the request in hand and the results that the optimizer has not acknowledged yet.

Written to disk (SQLite, synchronous FULL) before anything is published, so that a runner that is killed carries on with
the same request and hands in what it had measured.
"""

from __future__ import annotations

from pathlib import Path

from crbo_ros.protocol.database import Database
from crbo_ros.protocol.records import Episode, new_uid

SCHEMA = """
CREATE TABLE request (only INTEGER PRIMARY KEY CHECK (only = 1), request_id TEXT NOT NULL);
CREATE TABLE results (
    number INTEGER PRIMARY KEY AUTOINCREMENT, episode_uid TEXT UNIQUE NOT NULL, experiment_uid TEXT NOT NULL,
    episode TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending', answer TEXT NOT NULL DEFAULT '');
"""


class Spool:
    """A result is pending (to be handed in), done (acknowledged) or refused (kept aside for a person)."""

    def __init__(self, path: Path) -> None:
        self.database = Database(path, SCHEMA, 1, owner=True)

    def request_id(self) -> str:
        """The id of the wish in hand; a new one if the last has been dealt with. On disk before it is used."""
        rows = self.database.query("SELECT request_id FROM request")
        return str(rows[0][0]) if rows else self.new_request()

    def new_request(self) -> str:
        request_id = new_uid()
        with self.database.transaction():
            self.database.execute("INSERT OR REPLACE INTO request VALUES (1, ?)", request_id)
        return request_id

    def add(self, episode: Episode) -> None:
        """Keep a result; in the same transaction the wish that led to it is fulfilled and the next one made."""
        with self.database.transaction():
            self.database.insert(
                "results",
                episode_uid=episode.episode_uid,
                experiment_uid=episode.experiment_uid,
                episode=episode.to_json(),
            )
            self.database.execute("INSERT OR REPLACE INTO request VALUES (1, ?)", new_uid())

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
