"""What is whole in an experiment's folder, and how to bring back what is not from what the other stores know.

A damaged file is kept beside the new one. A row is taken over only if its checksum is the one that the chain says; what
is missing then comes from the other stores: results from the runners' spools, the proposals and the method's state by
asking the method again (same seed, same proposals, and only where theta is the same bit for bit), the monitor's returns
from the spools or, marked as unverified, from the optimizer's store.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.core.method import Method
from crbo_ros.core.space import Space
from crbo_ros.core.trial import theta_hash
from crbo_ros.errors import StoreError
from crbo_ros.protocol import chain, monitor_store, spool, store
from crbo_ros.protocol.chain import Head
from crbo_ros.protocol.database import DAMAGED, claim, connect, from_blob, make, null, to_blob
from crbo_ros.protocol.optimizer import ENDS
from crbo_ros.protocol.records import APPROVED, Episode, new_uid
from crbo_ros.protocol.replay import apply

EXPERIMENT, MONITOR = "experiment.sqlite", "monitor.sqlite"
Row = dict[str, Any]
Rows = dict[str, list[Row]]  # by table, in the order in which they were written
MakeMethod = Callable[[Row], Method]  # from the experiment's own row


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
    rows: Rows = {}
    declared = columns(schema_of(path)[0])
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


# -- what the others know ----------------------------------------------------------------------------------


@dataclass
class Folder:
    """The rows of all stores of a folder as far as they are as they were written, and what was done about the rest."""

    path: Path
    make: MakeMethod
    findings: dict[str, Finding] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    lost: dict[str, list[str]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for finding in verify(self.path):
            name = finding.path.name
            self.findings[name] = finding
            self.rows[name], self.lost[name] = salvage(finding.path, finding.former)

    def damaged(self, name: str) -> bool:
        return name in self.findings and bool(self.findings[name].wrong)

    def say(self, name: str, text: str) -> None:
        self.told.append(f"{name}: {text}")

    @property
    def spools(self) -> list[str]:
        return [name for name in self.rows if name not in (EXPERIMENT, MONITOR)]

    @property
    def experiment(self) -> Row | None:
        rows = self.rows.get(EXPERIMENT, {}).get("experiment", [])
        return rows[0] if rows else None

    def results(self) -> Iterator[Episode]:
        """What the runners say they have measured or decided, in their order."""
        for name in self.spools:
            for row in self.rows[name].get("results", []):
                if self.experiment is None or row["experiment_uid"] == self.experiment["uid"]:
                    yield Episode.from_json(row["episode"])


def repair(folder: Path, method: MakeMethod) -> tuple[list[str], bool]:
    """Bring back what can be had; what was done and what is lost, in words, and whether all is whole now."""
    stores = sorted(folder.glob("*.sqlite"))
    if not stores:
        raise StoreError(f"{folder}: holds no store (*.sqlite); nothing to repair")
    with contextlib.ExitStack() as claims:
        for path in stores:
            claims.callback(os.close, claim(path))
        found = Folder(folder, method)
        for name, mend in ((EXPERIMENT, _experiment), (MONITOR, _monitor), *((n, _spool) for n in found.spools)):
            if not found.damaged(name):
                if name in found.findings:
                    found.say(name, "whole, left as it is")
                continue
            if not mend(found, name):
                continue
            kept = rewrite(folder / name, found.rows[name])
            found.say(
                name, f"written anew ({sum(map(len, found.rows[name].values()))} rows); the old file is {kept.name}"
            )
    left = [finding for finding in verify(folder) if finding.wrong]
    return found.told, not left


def _experiment(folder: Folder, name: str) -> bool:
    rows, experiment = folder.rows[name], folder.experiment
    if experiment is None:
        folder.say(name, "its own row (task, domain, settings) is lost, and nobody else has it: start a new experiment")
        return False
    proposals = {row["id"]: {"events": -1, **row} for row in rows.get("proposals", [])}
    episodes = {row["episode_uid"]: row for row in rows.get("episodes", []) if row["proposal_id"] in proposals}
    events = {row["sequence"]: row for row in rows.get("events", [])}
    told = {e.proposal_id: e for e in folder.results() if e.outcome in ENDS}
    gaps = [place for place in folder.lost[name] if place.split()[0] in ("proposals", "events", "snapshot")]
    gaps += [uid for uid in (e.episode_uid for e in told.values()) if uid not in episodes]
    if gaps and not folder.findings[name].former and not _ask_again(folder, name, experiment, proposals, events, told):
        return False
    for episode in folder.results():
        row = proposals.get(episode.proposal_id)
        if row is None or episode.episode_uid in episodes or not np.array_equal(from_blob(row["theta"]), episode.theta):
            continue
        episodes[episode.episode_uid] = _episode_row(episode)
        end = ENDS[episode.outcome][1].value
        if row["end"] == "pending":
            row.update(end=end, end_reason=episode.reason, ended=episode.stamp)
        folder.say(name, f"the result of proposal {episode.proposal_id} ({episode.outcome}) came from a spool")
    for row in proposals.values():
        if row["end"] == "completed" and not any(e["proposal_id"] == row["id"] for e in episodes.values()):
            folder.say(name, f"LOST: the return of proposal {row['id']}; nobody else has it")
    for place in folder.lost[name]:
        table, _, number, *_ = place.split()
        if table == "proposals" and number.isdigit() and int(number) not in proposals:
            folder.say(name, f"LOST: proposal {number}, which was pending or has no result in any spool")
    verdicts = [row for row in rows.get("verdicts", []) if row["proposal_id"] in proposals]
    if gone := [place for place in folder.lost[name] if place.split()[0] in ("verdicts", "flags", "chain")]:
        folder.say(name, f"LOST: {', '.join(gone)}")
    order = sorted(episodes.values(), key=lambda e: e["stamp"])
    rows.update(proposals=list(proposals.values()), episodes=order, verdicts=verdicts)
    rows["events"] = [events[number] for number in sorted(events)]
    return True


def _ask_again(
    folder: Folder, name: str, experiment: Row, proposals: dict[int, Row], events: dict[int, Row],
    told: dict[int, Episode],
) -> bool:  # fmt: skip
    """Ask the method for its proposals again; fills in those that are missing, the events, and the method's state.

    False: the state is lost, and the experiment cannot go on.
    """
    method = folder.make(_readable(experiment))
    sequence, last = 0, max([*proposals, *told], default=-1)
    state, at = b"", 0
    try:
        for id in range(last + 1):
            if id not in proposals:  # what was known when it was made: all ends before it, and none of later ones
                while (event := events.get(sequence + 1)) and _about(event) < id:
                    sequence = _next(method, events, sequence, told)
                for earlier in range(id):
                    sequence = _end(method, earlier, told, events, sequence)
            while id in proposals and sequence < proposals[id]["events"]:
                sequence = _next(method, events, sequence, told)
            proposal = method.ask()
            known = from_blob(proposals[id]["theta"]) if id in proposals else told[id].theta if id in told else None
            if known is None or not np.array_equal(known, proposal.theta):
                raise StoreError(f"proposal {id} does not come out the same when the method is asked again")
            if id not in proposals:
                proposals[id] = _proposal_row(proposal, told[id], sequence)
                folder.say(name, f"proposal {id} was made again, bit for bit")
            state, at = store.dump_state(method.state()), sequence
        while events and sequence < max(events):
            sequence = _next(method, events, sequence, told)
        for id in sorted(method.pending):
            sequence = _end(method, id, told, events, sequence)
    except Exception as error:  # of a method that is not ours, too
        snapshot = folder.rows[name].get("snapshot")
        kept = "the last one that was saved is kept" if snapshot else "LOST: this experiment cannot go on; export it"
        folder.say(name, f"the method's state could not be made again ({error}); {kept}")
        return bool(snapshot)
    folder.rows[name]["snapshot"] = [{"only": 1, "sequence": at, "state": state}] if state else []
    return True


def _about(event: Row) -> int:
    """The proposal that an event is about; -1 for one that is about none."""
    first = json.loads(event["arguments"])[0]
    return first if isinstance(first, int) else -1


def _next(method: Method, events: dict[int, Row], sequence: int, told: dict[int, Episode]) -> int:
    """Repeat the next event; one that is missing is the end of the oldest pending proposal that has a result."""
    event = events.get(sequence + 1)
    if event is None:
        for id in sorted(method.pending):
            if (after := _end(method, id, told, events, sequence)) > sequence:
                return after
        raise StoreError(f"event {sequence + 1} is lost")
    if not event["aside"]:
        apply(method, event["verb"], json.loads(event["arguments"]))
    return sequence + 1


def _end(method: Method, id: int, told: dict[int, Episode], events: dict[int, Row], sequence: int) -> int:
    """Tell the method how a pending proposal ended, if a runner knows."""
    episode = told.get(id)
    if episode is None or id not in method.pending:
        return sequence
    verb = ENDS[episode.outcome][0]
    arguments = [id, episode.value if episode.counts else episode.reason]
    apply(method, verb, arguments)
    events[sequence + 1] = {"sequence": sequence + 1, "verb": verb, "arguments": json.dumps(arguments), "aside": ""}
    return sequence + 1


def _readable(row: Row) -> Row:
    """As store.ExperimentStore.experiment gives it."""
    vectors = {name: from_blob(row[name]) for name in ("lower", "upper", "theta_0")}
    log = np.frombuffer(row["log_scale"], "u1").astype(bool)
    return {**row, **vectors, "log_scale": log, "config": json.loads(row["config"])}


def _proposal_row(proposal: Any, episode: Episode, sequence: int) -> Row:
    numbers = {name: null(getattr(proposal, name)) for name in "mean sigma worst_case worst_case_paper gamma".split()}
    return {
        "id": proposal.id, "runner": episode.runner, "request_id": f"repaired-{new_uid()}",
        "theta": to_blob(proposal.theta), "kind": proposal.kind, "reason": proposal.reason, **numbers,
        "created": episode.stamp, "report": "{}", "end": "pending", "end_reason": "", "ended": None, "events": sequence,
    }  # fmt: skip


def _episode_row(episode: Episode) -> Row:
    names = (
        "episode_uid proposal_id runner outcome reason verdict_id steps duration deadline_misses max_lateness stamp "
        "problem"
    ).split()
    numbers = {name: null(getattr(episode, name)) for name in ("value", "predicted_worst_case")}
    return {**{name: getattr(episode, name) for name in names}, **numbers}


def _episodes(folder: Folder) -> Iterator[Episode]:
    """The optimizer's episodes, with the thetas of their proposals."""
    rows = folder.rows.get(EXPERIMENT, {})
    thetas = {row["id"]: from_blob(row["theta"]) for row in rows.get("proposals", [])}
    for row in rows.get("episodes", []):
        if folder.experiment is not None and row["proposal_id"] in thetas:
            fields: Row = {name: np.nan if value is None else value for name, value in row.items()}
            signals = json.loads(fields.pop("signals", "[[], [], []]"))
            fields |= dict(zip(("signal_names", "signal_values", "signal_limits"), map(tuple, signals), strict=True))
            yield Episode(experiment_uid=folder.experiment["uid"], theta=thetas[row["proposal_id"]], **fields)


def _monitor(folder: Folder, name: str) -> bool:
    rows, experiment = folder.rows[name], folder.experiment
    if experiment is None:
        folder.say(name, "cannot be brought back without the experiment's own row; delete it: the monitor asks anew")
        return False
    facts = _readable(experiment)
    space = Space(facts["lower"], facts["upper"], log=facts["log_scale"])
    returns = {row["episode_uid"]: row for row in rows.get("returns", [])}
    before, spooled = len(returns), {e.episode_uid for e in folder.results()}
    for episode in [*folder.results(), *_episodes(folder)]:
        if episode.counts and episode.episode_uid not in returns:
            returns[episode.episode_uid] = {
                "episode_uid": episode.episode_uid, "experiment_uid": episode.experiment_uid,
                "proposal_id": episode.proposal_id, "x": to_blob(space.to_unit(episode.theta)), "value": episode.value,
                "verdict_id": episode.verdict_id, "unverified": int(episode.episode_uid not in spooled),
            }  # fmt: skip
    if len(returns) > before:
        folder.say(name, f"{len(returns) - before} returns came from the spools and the optimizer's store")
    approvals = {row["verdict_id"]: row for row in rows.get("approvals", [])}
    thetas = {row["id"]: from_blob(row["theta"]) for row in folder.rows[EXPERIMENT].get("proposals", [])}
    for row in folder.rows[EXPERIMENT].get("verdicts", []):
        if row["status"] == APPROVED and row["verdict_id"] not in approvals and row["proposal_id"] in thetas:
            approvals[row["verdict_id"]] = {**row, "theta_hash": theta_hash(thetas[row["proposal_id"]])}
    flags = {row["name"]: row["value"] for row in rows.get("flags", [])}
    flags = {"experiment_uid": experiment["uid"], "problem": experiment["problem"], **flags}
    if not folder.findings[name].former:
        flags["stopped"] = flags.get("stopped") or "its store was repaired: look at the thresholds, then rearm"
    if gone := [p for p in folder.lost[name] if p.split()[0] not in ("returns", "approvals", "flags", "heads")]:
        folder.say(name, f"LOST: {', '.join(gone)} (operator's decisions and changes of thresholds: look at them)")
    rows.update(returns=sorted(returns.values(), key=lambda r: r["proposal_id"]), approvals=list(approvals.values()))
    rows["flags"] = [{"name": key, "value": value} for key, value in flags.items()]
    return True


def _spool(folder: Folder, name: str) -> bool:
    rows = folder.rows[name]
    results = {row["episode_uid"]: row for row in rows.get("results", [])}
    executions = {row["episode_uid"]: row for row in rows.get("executions", [])}
    before, runner = len(results), name.removesuffix(".sqlite")
    for episode in _episodes(folder):
        if episode.runner.strip("/").replace("/", ".") == runner and episode.episode_uid not in results:
            results[episode.episode_uid] = {
                "episode_uid": episode.episode_uid, "experiment_uid": episode.experiment_uid,
                "episode": episode.to_json(), "state": "done", "answer": "repaired",
            }  # fmt: skip
    if not any(rows.values()) and not results:
        folder.say(name, "nothing of it can be read, and nobody else knows anything of it; delete it to begin anew")
        return False
    if len(results) > before:
        folder.say(name, f"{len(results) - before} results came from the optimizer's store")
    if gone := [place for place in folder.lost[name] if place.split()[0] in ("executions", "request")]:
        folder.say(name, f"LOST: {', '.join(gone)} (what was begun, and how it ended; what it was about to ask for)")
    rows.update(results=[{**row, "number": None} for row in results.values()], executions=list(executions.values()))
    return True
