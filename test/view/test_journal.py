"""What happened around the episodes can be read from the record: starts, robots, thresholds, people's words, faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crbo_ros.protocol import manifest
from crbo_ros.protocol.monitor_store import MonitorStore
from crbo_ros.protocol.records import Offer
from crbo_ros.protocol.spool import Spool
from crbo_ros.view.journal import read_journal


def test_every_word_fault_and_interruption_is_told_in_the_order_of_time(tmp_path: Path) -> None:
    manifest.begin(tmp_path, "furuta", "", {}, {"seed": "1"})
    manifest.robot(tmp_path, "/lab/episode_runner", "Qube 0815 on lab")
    manifest.thresholds(tmp_path, "A", {"risk": 0.05})
    manifest.command(tmp_path, "B", "pause")
    monitor = MonitorStore(tmp_path / "monitor.sqlite")
    monitor.log_command("stop", "", "C", 20.0)
    monitor.log_command("rearm", "{}", "D", 30.0)
    monitor.close()
    spool = Spool(tmp_path / "lab.episode_runner.sqlite")
    offer = Offer("furuta", "e", "", 7, np.zeros(2), "hash", "start")
    for i, broken in enumerate((False, True)):
        spool.begin(f"episode {i}", "request", offer, f"verdict {i}")
        spool.interrupt(f"episode {i}", "the cable", broken)
    spool.latch("the plant: the cable is off")
    spool.latch("")  # cleared, and still on record
    spool.log_command("clear", "{}", "E", 40.0)
    assert spool.fault() == ""
    spool.close()
    found = read_journal(tmp_path, manifest.read_manifest(tmp_path), {"verdict 0": 10.0, "verdict 1": 25.0})
    assert [(entry.who, entry.what) for entry in found[:5]] == [
        ("/lab/episode_runner", "proposal 7 was broken off: the cable"), ("C", "stop"),
        ("/lab/episode_runner", "proposal 7 was broken off, the plant failed: the cable"), ("D", "rearm"),
        ("E", "/lab/episode_runner: clear"),
    ]  # fmt: skip
    now = {(entry.who, entry.what.split(": crbo_ros")[0]) for entry in found[5:]}
    assert now == {
        (manifest.who(), "started"), ("/lab/episode_runner", "runs on Qube 0815 on lab"),
        ("A", "from now on: risk 0.05"), ("B", "pause"),
        ("the runner", "/lab/episode_runner: FAULT: the plant: the cable is off"),
    }  # fmt: skip
    assert found[0].when == "1970-01-01 00:00:10 UTC"


def test_a_damaged_store_is_named_and_the_rest_is_told(tmp_path: Path) -> None:
    (tmp_path / "runner.sqlite").write_text("no database")
    manifest.begin(tmp_path, "furuta", "", {}, {"seed": "1"})
    said = [entry.what for entry in read_journal(tmp_path, manifest.read_manifest(tmp_path), {})]
    assert said[0].startswith("its record cannot be read")
    assert said[1].startswith("started")
