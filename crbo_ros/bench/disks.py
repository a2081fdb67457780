"""Disks that are full for a while, at any step of an episode: whatever was measured is there afterwards, once.

Each round runs a few episodes over real stores, of which one at a time may not grow; the runner and the servers do what
they do then (say so, and try again). Afterwards all is compared with the same run undisturbed.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.flips import PROBLEM, SPACE, Stores
from crbo_ros.errors import StoreError
from crbo_ros.protocol.database import Database
from crbo_ros.protocol.ports import ACCEPTED, DUPLICATE, OK
from crbo_ros.protocol.records import COMPLETED, Episode, new_uid


class FullDisk:
    """A connection of which no transaction comes to its end, as when the disk is full at that moment."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, sql: str, *arguments: Any) -> Any:
        if sql == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")
        return self._connection.execute(sql, *arguments)


@contextlib.contextmanager
def full(database: Database) -> Iterator[None]:
    connection = database._connection
    database._connection = FullDisk(connection)  # type: ignore[assignment]
    try:
        yield
    finally:
        database._connection = connection


def until_it_works(step: Callable[[], Any], database: Database, disturbed: bool) -> tuple[Any, int]:
    """Do a step, at first on a full disk; (what it gave, how often that was refused)."""
    refused = 0
    if disturbed:
        with full(database):
            try:
                found = step()
                if found is not None:
                    return found, 0
                refused += 1
            except StoreError:
                refused += 1
    while (found := step()) is None:
        refused += 1
    return found, refused


def episodes(folder: Path, count: int, rng: np.random.Generator | None) -> tuple[list[Any], int]:
    """[(id, theta, value)] of a run, and how often a disk refused something."""
    refused = 0
    with Stores(folder) as run:
        stores = [run.server.store.database, run.monitor.database, run.spool.database]

        def do(step: Callable[[], Any]) -> Any:
            nonlocal refused
            disk = stores[int(rng.integers(3))] if rng is not None else stores[0]
            found, times = until_it_works(step, disk, rng is not None and rng.random() < 0.6)
            refused += times
            return found

        for _ in range(count):
            request = do(run.spool.request_id)

            def propose(request: str = request) -> Any:
                answer = run.server.propose("runner", request)
                return answer.offer if answer.status == OK else None

            offer = do(propose)
            verdict = do(partial(run.check, offer))
            uid = new_uid()
            do(partial(_done, run.spool.begin, uid, request, offer, verdict.verdict_id))
            value = 1.0 - 0.1 * float(np.sum((SPACE.to_unit(offer.theta) - 0.4) ** 2))
            episode = Episode(uid, offer.experiment_uid, offer.id, "runner", offer.theta, COMPLETED, value,
                              verdict_id=verdict.verdict_id, problem=PROBLEM.key)  # fmt: skip
            do(partial(run.spool.add, episode))
            do(partial(_done, run.monitor.add_return, episode))
            do(partial(_acknowledged, run, episode))
            do(partial(_done, run.spool.settle, uid, "done"))
        found: list[Any] = [(e.proposal_id, e.theta.tolist(), e.value) for e in run.server.store.episodes()]
        if run.monitor.n != count or len(run.spool.pending()):
            found.append(("monitor or spool", run.monitor.n, len(run.spool.pending())))
    return found, refused


def _done(step: Callable[..., object], *arguments: Any) -> bool:
    step(*arguments)
    return True


def _acknowledged(run: Stores, episode: Episode) -> bool | None:
    """None: to be handed in again."""
    return run.server.acknowledge(episode)[0] in (ACCEPTED, DUPLICATE) or None


def rounds(count: int, seed: int) -> tuple[int, list[str]]:
    """(how often a full disk refused something, what was not as undisturbed) over so many rounds."""
    refused, wrong = 0, list[str]()
    with tempfile.TemporaryDirectory() as scratch:
        wanted, _ = episodes(Path(scratch) / "reference", 4, None)
        for i in range(count):
            try:
                found, times = episodes(Path(scratch) / f"r{i}", 4, np.random.default_rng([seed, i]))
            except Exception as error:
                wrong.append(f"round {i}: {type(error).__name__}: {error}")
                continue
            refused += times
            if found != wanted:
                wrong.append(f"round {i}: {len(found)} episodes, not as undisturbed")
    return refused, wrong
