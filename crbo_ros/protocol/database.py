"""A SQLite file with our settings: what is committed survives a killed process and a power cut, and damage shows.

WAL journal, synchronous=FULL, and the log is moved into the file at the end of each transaction: nothing that was
acknowledged lies in a log, of which SQLite takes the first bad frame for the end. One process owns a file at a time;
others may read meanwhile. Every row is covered by protocol/chain.py, and looked at when the file is opened.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from crbo_ros.core.space import Vector
from crbo_ros.errors import StoreError
from crbo_ros.file_lock import HeldError, take_lock
from crbo_ros.protocol import chain
from crbo_ros.protocol.chain import Head
from crbo_ros.protocol.records import new_uid

BUSY = 10.0  # s to wait for a reader or a writer of another process
PATIENCE = 5.0  # s to wait for a file that another process has: that one may be about to end
LARGEST_FILE = 4 << 30  # bytes
DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError, ValueError, TypeError, KeyError, IndexError, OverflowError)


class Database:
    """A SQLite file with our settings; every failure is a StoreError that says what to do, and the file is kept.

    `owner`: one process at a time, which keeps in memory what it has written; makes the file if there is none. Others
    may only read.
    """

    def __init__(self, path: Path, schema: str, version: int, owner: bool = False) -> None:
        self.path, self._schema = path, schema
        self.lock = threading.RLock()
        self._changed: dict[tuple[str, int], None] = {}  # rows, in this transaction
        self._met: dict[str, Head] = {}  # newest heads of others, to be written with the next transaction
        with ExitStack() as undo:
            try:
                if owner:
                    private_folder(path.parent)
                    undo.callback(os.close, claim(path))
                    if not path.exists():
                        make(path, schema, version)
                self._connection = connect(path, owner)
                undo.callback(self._connection.close)
                self._connection.execute("BEGIN")  # one moment of it, should somebody be writing
                self._check(schema, version)
                self._connection.execute("COMMIT")
                self._head = chain.head(self._connection)
                self._seen = {head.store: head for head in chain.seen(self._connection)}
                if owner:
                    self._watch()
            except (*DAMAGED, OSError) as error:
                raise StoreError(
                    f"{path}: cannot be used as a database ({error}). The file was kept; ./crbo repair {path.parent} "
                    "tries to bring it back, or choose another experiment"
                ) from error
            self._close = undo.pop_all().close

    def _check(self, schema: str, version: int) -> None:
        found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        known = [name for (name,) in self._connection.execute("SELECT name FROM sqlite_master")]
        if not known:
            raise sqlite3.DatabaseError("it is empty")
        if found != version and "chain" not in known:
            raise StoreError(
                f"{self.path}: written with schema {found}, this version reads schema {version}. The file was kept; "
                f"./crbo repair {self.path.parent} takes it over, or use the crbo_ros version that wrote it"
            )
        if found != version:
            raise sqlite3.DatabaseError(f"its schema's number is {found}, not {version}: another version's, or damaged")
        if wrong := chain.damages(self._connection, schema):
            more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            raise StoreError(
                f"{self.path}: damaged ({wrong[0]}{more}). The file was kept and nothing runs on it; ./crbo inspect "
                f"--verify {self.path.parent} says what is whole, ./crbo repair {self.path.parent} brings back what "
                "the other stores know"
            )

    def _watch(self) -> None:
        """Have SQLite tell of every row that this connection changes; the triggers are not in the file."""
        self._connection.execute("PRAGMA recursive_triggers=ON")  # or REPLACE would not tell of what it removes
        self._connection.create_function("changed", 2, lambda table, row: self._changed.setdefault((table, row)))
        for table in chain.tables(self._connection):
            for event, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                self._connection.execute(
                    f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table} "
                    f"BEGIN SELECT changed('{table}', {row}.rowid); END"
                )

    # -- heads: what others know of this store, and this store of others ------------------------------

    @property
    def heads(self) -> list[Head]:
        """This store's own, then those of others that it has seen, newest last; at most 8."""
        others = list((self._seen | self._met).values())
        return [self._head, *others[-7:]]

    def meet(self, heads: Iterable[Head], by: str) -> None:
        """Remember how far others are, with the next transaction. StoreError: they saw more of this than is here."""
        with self.lock:
            for head in heads:
                if why := chain.lost(self._connection, self._head, head, by):
                    raise StoreError(
                        f"{self.path}: {why}. Nothing runs on it; end the run, then ./crbo repair {self.path.parent} "
                        "brings back what the other stores know"
                    )
                known = self._met.get(head.store) or self._seen.get(head.store)
                if head.store != self._head.store and head.store and (known is None or head.count > known.count):
                    self._met[head.store] = head
            while len(self._met) > 64:  # strangers'
                self._met.pop(next(iter(self._met)))

    # -- reading and writing ---------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing, on disk when the block is left."""
        with self.lock:
            try:
                self._changed.clear()
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                for head in self._met.values():
                    self._connection.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?)", astuple(head))
                if self._changed:
                    chain.append(self._connection, self._changed)
                self._connection.execute("COMMIT")
                self._seen |= self._met
                self._met.clear()
                self._head = chain.head(self._connection)
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise StoreError(f"{self.path}: not written ({error}); is the disk full or read-only?") from error
                raise
            self._empty_log()

    def _empty_log(self) -> None:
        """What was committed is safe either way; while somebody reads, the log stays until the next transaction."""
        with contextlib.suppress(sqlite3.Error):
            for pragma in ("busy_timeout=0", "wal_checkpoint(TRUNCATE)", f"busy_timeout={int(1000 * BUSY)}"):
                self._connection.execute(f"PRAGMA {pragma}").fetchall()

    def query(self, sql: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self.lock:
            try:
                return self._connection.execute(sql, arguments).fetchall()
            except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
                raise StoreError(f"{self.path}: cannot be read ({error})") from error

    def execute(self, sql: str, *arguments: Any) -> None:
        """One statement inside a transaction."""
        self._connection.execute(sql, arguments)

    def insert(self, table: str, **values: Any) -> None:
        names = ", ".join(values)
        self.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})", *values.values())

    def close(self) -> None:
        with self.lock:
            if self._met:
                with contextlib.suppress(StoreError), self.transaction():
                    pass
            self._close()


def connect(path: Path, owner: bool) -> sqlite3.Connection:
    """To a file that is there. A reader makes and changes nothing."""
    if not (size := path.stat().st_size):
        raise sqlite3.DatabaseError("it is empty")
    if size > LARGEST_FILE:
        raise OSError(f"larger than {LARGEST_FILE >> 30} GB")
    name = f"file:{quote(str(path.absolute()))}?mode={'rw' if owner else 'ro'}"
    connection = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY)
    if owner:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
    return connection


def make(path: Path, schema: str, version: int) -> None:
    """A new file, in its place only when it is complete: one that is empty or half made is a damaged one."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("BEGIN")
        for statement in chain.statements(schema + chain.SCHEMA):
            connection.execute(statement)
        chain.append(connection, (), new=new_uid())
        connection.execute(f"PRAGMA user_version={version}")
        connection.execute("COMMIT")
    part.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def private_folder(path: Path) -> None:
    """An experiment's folder is its user's alone, unless it was there already and somebody wanted it otherwise."""
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700, exist_ok=True)


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
