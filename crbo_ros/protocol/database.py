"""A SQLite file with our settings: what is committed survives a killed process and a power cut.

WAL journal and synchronous=FULL. One process owns a file at a time; others may read meanwhile.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.core.space import Vector
from crbo_ros.errors import StoreError
from crbo_ros.file_lock import HeldError, take_lock

PATIENCE = 5.0  # s to wait for a file that another process has: that one may be about to end


class Database:
    """A SQLite file with our settings; every failure is a StoreError that says what to do, and the file is kept.

    `owner`: one process at a time, which keeps in memory what it has written. Others may read meanwhile.
    """

    def __init__(self, path: Path, schema: str, version: int, owner: bool = False) -> None:
        self.path = path
        self.lock = threading.RLock()
        with ExitStack() as undo:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if owner:
                    undo.callback(os.close, claim(path))
                self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
                undo.callback(self._connection.close)
                self._open(schema, version)
            except (sqlite3.Error, OSError) as error:
                raise StoreError(
                    f"{path}: cannot be used as a database ({error}). The file was kept; "
                    "move it away, free the disk, or choose another experiment"
                ) from error
            self._close = undo.pop_all().close

    def _open(self, schema: str, version: int) -> None:
        execute = self._connection.execute
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            execute(f"PRAGMA {pragma}")
        found = execute("PRAGMA user_version").fetchone()[0]
        empty = not execute("SELECT 1 FROM sqlite_master").fetchone()
        if empty and found == 0:
            with self.transaction():
                for statement in filter(str.strip, schema.split(";")):
                    execute(statement)
                execute(f"PRAGMA user_version={version}")
        elif found != version:
            raise StoreError(
                f"{self.path}: written with schema {found}, this version reads schema {version}. The file was kept; "
                "use the crbo_ros version that wrote it, or choose another experiment"
            )
        verdict = execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, on disk when the block is left."""
        with self.lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise StoreError(f"{self.path}: not written ({error}); is the disk full or read-only?") from error
                raise

    def query(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self.lock:
            try:
                return self._connection.execute(sql, arguments).fetchall()
            except sqlite3.Error as error:
                raise StoreError(f"{self.path}: cannot be read ({error})") from error

    def execute(self, sql: str, *arguments: Any) -> None:
        """One statement inside a transaction."""
        self._connection.execute(sql, arguments)

    def insert(self, table: str, **values: Any) -> None:
        names = ", ".join(values)
        self.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", *values.values())

    def close(self) -> None:
        with self.lock:
            self._close()


def claim(path: Path) -> int:
    """A descriptor: while it is open, no other process may claim this file."""
    try:
        return take_lock(path.with_suffix(".lock"), os.getpid(), PATIENCE)
    except HeldError as held:
        raise StoreError(
            f"{path}: in use by process {held.holder or '?'}: the same experiment runs already. "
            "End that one first, or choose another experiment name"
        ) from None


def to_blob(vector: Vector) -> bytes:
    return np.ascontiguousarray(vector, dtype="<f8").tobytes()


def from_blob(blob: bytes) -> Vector:
    return np.frombuffer(blob, dtype="<f8").astype(np.float64)


def null(value: float) -> float | None:
    return value if math.isfinite(value) else None  # SQLite has no NaN


def nan(value: float | None) -> float:
    return math.nan if value is None else value
