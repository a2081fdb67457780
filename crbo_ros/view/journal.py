"""What happened around a run's episodes, from its record: starts, robots, thresholds, people's words, faults.

The manifest knows who started it and what was changed; the safety monitor's and the runners' stores what people told
them, what was broken off and why.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crbo_ros.errors import StoreError
from crbo_ros.numbers import UNKNOWN
from crbo_ros.protocol.monitor_store import MonitorStore
from crbo_ros.protocol.spool import BROKEN, INTERRUPTED, Spool

MONITOR, EXPERIMENT = "monitor.sqlite", "experiment.sqlite"


@dataclass(frozen=True)
class JournalEntry:
    """Something that happened, who did it and when (seconds since the epoch; NaN: nobody wrote that down)."""

    stamp: float
    who: str
    what: str

    @property
    def when(self) -> str:
        known = self.stamp == self.stamp
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.stamp)) if known else UNKNOWN


def read_journal(folder: Path, manifest: Mapping[str, Any], approved: Mapping[str, float]) -> list[JournalEntry]:
    """In the order of time. `approved`: when each verdict was given, by its id."""
    found = [*_of_manifest(manifest), *_of_monitor(folder / MONITOR)]
    for path in sorted(folder.glob("*.sqlite")):
        if path.name not in (MONITOR, EXPERIMENT):
            found += _of_runner(path, approved)
    return sorted(found, key=lambda entry: entry.stamp if entry.stamp == entry.stamp else 0.0)


def _of_manifest(fields: Mapping[str, Any]) -> Iterator[JournalEntry]:
    for start in fields.get("starts", []):
        software = {name: text[:12] if name == "commit" else text for name, text in start["software"].items()}
        names = ("crbo_ros", "commit", "python", "numpy", "ros", "platform")
        yield JournalEntry(
            _seconds(start["at"]),
            start["by"],
            "started: " + ", ".join(f"{n} {software[n]}" for n in names if n in software),
        )
    for entry in fields.get("robots", []):
        yield JournalEntry(_seconds(entry["at"]), entry["runner"], f"runs on {entry['robot']}")
    for entry in fields.get("thresholds", []):
        values = ", ".join(f"{name} {value}" for name, value in entry["values"].items())
        yield JournalEntry(_seconds(entry["at"]), entry["by"], f"from now on: {values}")
    for entry in fields.get("commands", []):
        yield JournalEntry(_seconds(entry["at"]), entry["by"], entry["command"])


def _of_monitor(path: Path) -> Iterator[JournalEntry]:
    if not path.is_file():
        return
    try:
        store = MonitorStore(path, owner=False)
    except StoreError as error:
        yield JournalEntry(float("nan"), path.name, f"cannot be read: {error}")
        return
    try:
        for stamp, who, command, arguments in store.commands():
            yield JournalEntry(stamp, who, f"{command} {arguments}".strip().removesuffix(" {}"))
    finally:
        store.close()


def _of_runner(path: Path, approved: Mapping[str, float]) -> Iterator[JournalEntry]:
    runner = "/" + path.stem.replace(".", "/")
    try:
        spool = Spool(path, owner=False)
    except StoreError as error:
        yield JournalEntry(float("nan"), runner, f"its record cannot be read: {error}")
        return
    try:
        for stamp, who, command, arguments in spool.commands():
            yield JournalEntry(stamp, who, f"{runner}: {command} {arguments}".strip().removesuffix(" {}"))
        for id, verdict_id, end, reason in spool.broken_off():
            word = {INTERRUPTED: "broken off", BROKEN: "broken off, the plant failed"}[end]
            yield JournalEntry(approved.get(verdict_id, float("nan")), runner, f"proposal {id} was {word}: {reason}")
    finally:
        spool.close()


def _seconds(stamp: str) -> float:
    return float(calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")))
