"""Rows that know when they are damaged: a checksum for each row, and a chain of checksums over all transactions.

Every transaction adds one entry to the table `chain`: which rows it changed, with the checksum of each (over its
canonical bytes, none for a row that was removed), and a digest of that together with the digest before it. Replaying
the chain says what every row must be; so a changed, missing or added row shows, wherever it lies, and so does a chain
that was cut in the middle. A missing tail shows to whoever has seen a later head (length and newest digest).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

SCHEMA = """
CREATE TABLE chain (number INTEGER PRIMARY KEY, changes TEXT NOT NULL, digest TEXT NOT NULL);
CREATE TABLE heads (store TEXT PRIMARY KEY, count INTEGER NOT NULL, digest TEXT NOT NULL);
"""
Rows = dict[tuple[str, int], str]  # (table, rowid) -> checksum


@dataclass(frozen=True)
class Head:
    """How far a store has been written. Fields as in msg/Head."""

    store: str  # unique id of the file
    count: int
    digest: str


class Entry(NamedTuple):
    """One transaction: [table, rowid, checksum or ""] for each row that it changed; the first one names the store."""

    number: int
    changes: str
    digest: str


def statements(schema: str) -> Iterator[str]:
    return (statement.strip() for statement in schema.split(";") if statement.strip())


def expected(schema: str) -> list[tuple[Any, ...]]:
    """What sqlite_master says of a file with this schema, apart from where things lie."""
    with sqlite3.connect(":memory:") as memory:
        for statement in statements(schema):
            memory.execute(statement)
        return declared(memory)


def declared(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()


def tables(connection: sqlite3.Connection) -> list[str]:
    """The tables whose rows are covered."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    return [name for (name,) in names if name != "chain"]


def checksum(table: str, row: Iterable[Any]) -> str:
    """Of a row's canonical bytes: for each value its type, its length and its bytes; the rowid comes first."""
    digest = hashlib.sha256(table.encode())
    for value in row:
        if isinstance(value, float):
            kind, content = b"f", struct.pack("<d", value)
        elif isinstance(value, bytes):
            kind, content = b"b", value
        else:
            kind, content = type(value).__name__.encode(), str(value).encode()
        digest.update(kind + struct.pack("<q", len(content)) + content)
    return digest.hexdigest()[:32]


def link(before: str, number: int, changes: str) -> str:
    """The digest of an entry."""
    return hashlib.sha256(f"{before}\n{number}\n{changes}".encode()).hexdigest()


def read_row(connection: sqlite3.Connection, table: str, rowid: int) -> str:
    """The checksum of a row as it stands, or "" when there is none."""
    row = connection.execute(f"SELECT rowid, * FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
    return checksum(table, row) if row else ""


def entries(connection: sqlite3.Connection) -> Iterator[Entry]:
    return (Entry(*row) for row in connection.execute("SELECT number, changes, digest FROM chain ORDER BY number"))


def replay(chain: Iterable[Entry]) -> tuple[Rows, str, str]:
    """What every row must be, the store's id, and what is wrong with the chain itself ("" when it is whole).

    It ends at the first entry that does not follow from those before it.
    """
    rows: Rows = {}
    before, store = "", ""
    for number, entry in enumerate(chain):
        if entry.number != number or link(before, number, entry.changes) != entry.digest:
            return rows, store, f"entry {number} of the chain does not follow from those before it"
        changes = json.loads(entry.changes)
        if number == 0:
            store = changes.pop(0)
        for table, rowid, digest in changes:
            if digest:
                rows[table, rowid] = digest
            else:
                rows.pop((table, rowid), None)
        before = entry.digest
    return rows, store, "" if store else "the chain is missing"


def damages(connection: sqlite3.Connection, schema: str) -> list[str]:
    """What is not as it was written, in words; empty when the file is whole. May raise sqlite3.Error."""
    if declared(connection) != expected(schema + SCHEMA):
        return ["the tables are not declared as they were made"]
    found = [str(line) for (line,) in connection.execute("PRAGMA integrity_check(3)") if line != "ok"]
    rows, _, broken = replay(entries(connection))
    if broken:
        return [*found, broken]
    for table in tables(connection):
        for row in connection.execute(f"SELECT rowid, * FROM {table}"):
            known = rows.pop((table, row[0]), None)
            if known is None:
                found.append(f"table {table}: row {row[0]} was never written")
            elif known != checksum(table, row):
                found.append(f"table {table}: row {row[0]} is not as it was written")
    return found + [f"table {table}: row {rowid} is missing" for table, rowid in rows]


def head(connection: sqlite3.Connection) -> Head:
    """Of a whole file."""
    number, digest = connection.execute("SELECT number, digest FROM chain ORDER BY number DESC LIMIT 1").fetchone()
    (changes,) = connection.execute("SELECT changes FROM chain WHERE number = 0").fetchone()
    return Head(json.loads(changes)[0], number + 1, digest)


def seen(connection: sqlite3.Connection) -> list[Head]:
    """The heads of other stores that this one has seen."""
    return [Head(*row) for row in connection.execute("SELECT store, count, digest FROM heads ORDER BY rowid")]


def lost(connection: sqlite3.Connection, own: Head, told: Head, by: str) -> str:
    """What is missing here, when somebody has seen `told` of this store; "" when it is all there."""
    if told.store != own.store:
        return ""
    row = connection.execute("SELECT digest FROM chain WHERE number = ?", (told.count - 1,)).fetchone()
    if row is None:
        return f"its newest {told.count - own.count} of {told.count} transactions are gone ({by} has seen them)"
    return "" if row[0] == told.digest else f"its history is not the one that {by} has seen"


def append(
    connection: sqlite3.Connection, changed: Mapping[tuple[str, int], Any] | Iterable[tuple[str, int]], new: str = ""
) -> None:
    """An entry for the rows that this transaction has changed. `new`: the id of a store that begins with it."""
    last = connection.execute("SELECT number, digest FROM chain ORDER BY number DESC LIMIT 1").fetchone() or (-1, "")
    content: list[Any] = [[table, rowid, read_row(connection, table, rowid)] for table, rowid in sorted(changed)]
    changes, number = json.dumps([new, *content] if new else content), last[0] + 1
    connection.execute("INSERT INTO chain VALUES (?, ?, ?)", (number, changes, link(last[1], number, changes)))
