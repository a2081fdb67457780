"""What a store says of itself: whether it is whole, which rows are as they were written, and a new file from rows.

A row counts as written only if its checksum is the one that the chain says.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crbo_ros.protocol import chain, monitor_store, spool, store
from crbo_ros.protocol.chain import Head
from crbo_ros.protocol.database import DAMAGED, connect, make

EXPERIMENT, MONITOR = "experiment.sqlite", "monitor.sqlite"
Row = dict[str, Any]
Rows = dict[str, list[Row]]  # by table, in the order in which they were written


def schema_of(path: Path) -> tuple[str, int]:
    """The schema that belongs to a file of this name, and its number."""
    module: Any = {EXPERIMENT: store, MONITOR: monitor_store}.get(path.name, spool)
    return module.SCHEMA, module.SCHEMA_VERSION


@dataclass
class Finding:
    """What a look at one store gave."""

    path: Path
    wrong: list[str] = field(default_factory=list)
    head: Head | None = None
    seen: list[Head] = field(default_factory=list)
    former: bool = False  # of a former version: whole as far as anybody can tell, but not readable as it is

    def __str__(self) -> str:
        if self.former:
            return f"{self.path.name}: of a former version ({self.wrong[0]}); ./crbo repair takes it over"
        if self.wrong:
            return "\n".join([f"{self.path.name}: DAMAGED", *(f"  {line}" for line in self.wrong)])
        assert self.head is not None
        return f"{self.path.name}: whole, {self.head.count} transactions, head {self.head.digest[:12]}"


def verify(folder: Path) -> list[Finding]:
    """A look at every store of a folder, and at what they know of each other."""
    found = [look(path) for path in sorted(folder.glob("*.sqlite"))]
    for finding in found:
        for other in found:
            for head in other.seen if finding.head and not finding.wrong else ():
                with contextlib.closing(connect(finding.path, owner=False)) as connection:
                    assert finding.head is not None
                    if why := chain.lost(connection, finding.head, head, other.path.name):
                        finding.wrong.append(why)
    return found


def look(path: Path) -> Finding:
    finding = Finding(path)
    schema, version = schema_of(path)
    try:
        with contextlib.closing(connect(path, owner=False)) as connection:
            connection.execute("BEGIN")
            number = connection.execute("PRAGMA user_version").fetchone()[0]
            finding.former = 0 < number < version and "chain" not in chain.tables(connection) + [
                name for (name,) in connection.execute("SELECT name FROM sqlite_master")
            ]
            if finding.former or number != version:
                finding.wrong.append(f"schema {number}, not {version}")
            else:
                finding.wrong = chain.damages(connection, schema)
            if not finding.wrong:
                finding.head, finding.seen = chain.head(connection), chain.seen(connection)
    except (*DAMAGED, OSError) as error:
        finding.wrong.append(str(error))
    return finding


# -- what a damaged file still says ---------------------------------------------------------------------


def salvage(path: Path, former: bool = False) -> tuple[Rows, list[str]]:
    """The rows that are as they were written, and which are not. All rows of a file of a former version."""
    rows, lost = _salvage(path, schema_of(path)[0], former)
    if not rows and not former:
        with tempfile.TemporaryDirectory() as scratch, contextlib.suppress(OSError):
            rows, lost = _salvage(with_new_listing(path, Path(scratch)), schema_of(path)[0], former)
    return rows, lost


def _salvage(path: Path, schema: str, former: bool) -> tuple[Rows, list[str]]:
    rows: Rows = {}
    declared = columns(schema)
    try:
        with contextlib.closing(connect(path, owner=False)) as connection:
            known = None if former else _written(connection)
            places = [(table, rowid) for table in chain.tables(connection) for rowid in _rowids(connection, table)]
            for table, rowid in sorted(places if known is None else known):
                row = _read(connection, table, rowid)
                if row is not None and (known is None or chain.checksum(table, row.values()) == known[table, rowid]):
                    row.pop("rowid ")
                    names = row if known is None else declared[table]  # (a flipped bit may have renamed a column)
                    rows.setdefault(table, []).append(dict(zip(names, row.values(), strict=True)))
                    if known is not None:
                        known[table, rowid] = ""
            places = [] if known is None else [place for place in places if place not in known]
    except (*DAMAGED, OSError) as error:
        return rows, [f"{table} row *" for table in declared] if not rows else [f"file row * ({error})"]
    gone = [place for place, digest in (known or {}).items() if digest]
    return rows, [f"{table} row {rowid}" for table, rowid in places + gone]


def with_new_listing(path: Path, scratch: Path) -> Path:
    """A copy of a file whose listing of its own tables (sqlite_master) is damaged, with that of a new file.

    In a new file of the same schema the tables begin at the same pages, as they are declared in one order and nothing
    is moved later. Should that be wrong, no row is found: each is held against its checksum.
    """
    make(fresh := scratch / "fresh.sqlite", *schema_of(path))
    new, old = fresh.read_bytes(), bytearray(path.read_bytes())
    size = int.from_bytes(new[16:18], "big")
    for page in _listing(new, 1, size):
        old[(page - 1) * size : page * size] = new[(page - 1) * size : page * size]
    old[28:32] = (len(old) // size).to_bytes(4, "big")  # (the rest of the header is the new file's: no free pages)
    copy = scratch / path.name
    copy.write_bytes(old)
    return copy


def _listing(data: bytes, page: int, size: int) -> Iterator[int]:
    """The pages of the b-tree that begins at this one (https://www.sqlite.org/fileformat2.html#b_tree_pages)."""
    yield page
    start = (page - 1) * size
    head = start + 100 * (page == 1)
    if data[head] == 5:  # an interior page of a table: pointers to cells that begin with a page, and the last page
        for i in range(int.from_bytes(data[head + 3 : head + 5], "big")):
            cell = start + int.from_bytes(data[head + 12 + 2 * i : head + 14 + 2 * i], "big")
            yield from _listing(data, int.from_bytes(data[cell : cell + 4], "big"), size)
        yield from _listing(data, int.from_bytes(data[head + 8 : head + 12], "big"), size)


def columns(schema: str) -> dict[str, list[str]]:
    """The columns of each table, as they must be."""
    with contextlib.closing(sqlite3.connect(":memory:")) as memory:
        for statement in chain.statements(schema + chain.SCHEMA):
            memory.execute(statement)
        found = chain.tables(memory)
        return {table: [row[1] for row in memory.execute(f"PRAGMA table_info({table})")] for table in found}


def _written(connection: sqlite3.Connection) -> chain.Rows:
    """What the rows must be, from every entry of the chain that follows from the one before it."""
    rows: chain.Rows = {}
    before = ""
    for number in _rowids(connection, "chain"):
        entry = _read(connection, "chain", number)
        if entry is None:
            continue
        changes, digest = entry["changes"], entry["digest"]
        if isinstance(changes, str) and chain.link(before, number, changes) == digest:
            for change in json.loads(changes):
                if isinstance(change, list):
                    rows[change[0], change[1]] = change[2]
        before = str(digest)
    return {place: digest for place, digest in rows.items() if digest}


def _rowids(connection: sqlite3.Connection, table: str) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(sqlite3.DatabaseError):
        for (rowid,) in connection.execute(f"SELECT rowid FROM {table} ORDER BY rowid"):
            found.append(rowid)
    return found


def _read(connection: sqlite3.Connection, table: str, rowid: int) -> Row | None:
    try:
        cursor = connection.execute(f'SELECT rowid AS "rowid ", * FROM {table} WHERE rowid = ?', (rowid,))
        row = cursor.fetchone()
        return None if row is None else {c[0]: v for c, v in zip(cursor.description, row, strict=True)}
    except (sqlite3.DatabaseError, UnicodeDecodeError, OverflowError):
        return None


def rewrite(path: Path, rows: Rows) -> Path:
    """A new file with these rows in the place of the old one, which is kept; its new name."""
    schema, version = schema_of(path)
    declared = columns(schema)
    part = path.with_name(path.name + ".repaired")
    part.unlink(missing_ok=True)
    make(part, schema, version)
    with contextlib.closing(sqlite3.connect(part, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        written = []
        for table in chain.tables(connection):
            for row in rows.get(table, []):
                names = [name for name in declared[table] if name in row]
                cursor = connection.execute(
                    f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
                    [row[name] for name in names],
                )
                written.append((table, int(cursor.lastrowid or 0)))
        chain.append(connection, written)
        connection.execute("COMMIT")
    kept = next(p for i in range(1, 10_000) if not (p := path.with_name(f"{path.name}.damaged-{i}")).exists())
    for suffix in ("-wal", "-shm"):
        log = path.with_name(path.name + suffix)
        if log.exists():
            log.replace(kept.with_name(kept.name + suffix))
    path.replace(kept)
    part.replace(path)
    return kept
