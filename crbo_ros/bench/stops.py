"""`./crbo bench stops`: what becomes of each plant under each fault, and how long it takes until it is safe.

Every row breaks something real, for good: a process that is killed, frozen or hangs with the interpreter's lock held, a
driver that stays broken, a node that is gone. A cell is good if the plant is safe by the card's (node's, arm's) own
record and that was CONFIRMED, or if the truth was said (UNCONFIRMED: a FAULT that a person must clear). A plant that
was called safe and is not is a LIE; one LIE, and the command fails. The latency is from the fault to the safe state on
that record, not to its confirmation. Only fakes: no real Qube and no real arm are here.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.broken import Record
from crbo_ros.bench.sweep import machine
from crbo_ros.bench.tables import markdown

PATIENCE = 90.0  # s for a process to come up, or to tell its end
TUNING = """\
parameters:
- {node: /victim, name: gain, lower: 0.0, upper: 10.0, start: 2.0}
- {node: /victim, name: damping, lower: 0.0, upper: 10.0, start: 1.0}
episode: {seconds: 30.0, unstoppable: true, timeout: 5.0}
return: {topic: /victim/cost, type: std_msgs/msg/Float64, field: data, aggregate: last}
rest: start
"""
SHORT = TUNING.replace("30.0", "1.0")
ACTION = """\
parameters: [{node: /victim, name: gain, lower: 0.0, upper: 10.0, start: 2.0}]
episode: {start: {action: /victim/work, type: test_msgs/action/Fibonacci, goal: {order: 5}}, timeout: 20.0}
return: {answer: true, field: "sequence[0]"}
rest: start
"""


@dataclass
class Cell:
    """One fault on one plant."""

    plant: str
    fault: str
    order: dict[str, Any] = field(default_factory=dict)  # of the victim
    node: dict[str, Any] | None = None  # of the node that it works on
    strike: str = ""  # what the bench itself does: kill, freeze, kill host, kill launcher, kill node, power loss
    repeats: int = 3
    at_once: bool = False  # all repeats in one victim

    @property
    def config(self) -> str:
        """The tuning's YAML."""
        return ACTION if self.plant == "action" else SHORT if self.order.get("ends") else TUNING


def qube_cells(central: int) -> list[Cell]:
    drivers = ["hangs with the lock", "hangs", "raises", "calls sys.exit", "old readings", "nan", "wrong shape"]
    cells = [Cell("qube", f"driver {fault}", {"fault": fault}) for fault in drivers]
    cells.append(Cell("qube", "amplifier stuck at 2.5 V", {"fault": "amplifier stuck", "steps": 110}))
    ends = ("stop raises", "stop hangs", "close raises")
    cells += [Cell("qube", fault, {"fault": fault, "steps": 160}) for fault in ends]
    for policy in (41, 60, 95):
        cells.append(Cell("qube", f"policy step of {policy} ms", {"policy": policy}, repeats=20, at_once=True))
    cells += [
        Cell("qube", "policy hangs", {"policy": "hangs"}, repeats=central, at_once=True),
        Cell("qube", "policy hangs with the lock", {"policy": "hangs with the lock"}, repeats=20, at_once=True),
        Cell("qube", "runner out of memory", {"policy": "out of memory"}),
        Cell("qube", "runner frozen", strike="freeze", repeats=central, at_once=True),
        Cell("qube", "runner killed", strike="kill", repeats=10),
        Cell("qube", "host killed", strike="kill host"),
        Cell("qube", "launcher killed", {"launch": True}, strike="kill launcher"),
    ]
    return cells


def ros_cells() -> list[Cell]:
    return [*tuning_cells(), *action_cells(), *arm_cells()]


def tuning_cells() -> list[Cell]:
    """The last five are what happened to others: each is the failure that the named report describes."""
    tuned, theta = {"node": "tuned"}, {"theta": [5.0, 3.0]}
    stop = {**theta, "stop": True}
    return [
        Cell("tuning", "runner hangs with the lock", {**theta, "hang": True}, tuned),
        Cell("tuning", "runner frozen", theta, tuned, "freeze"),
        Cell("tuning", "runner killed", theta, tuned, "kill"),
        Cell("tuning", "host killed", theta, tuned, "kill host"),
        Cell("tuning", "launcher killed", {**theta, "launch": True}, tuned, "kill launcher"),
        Cell("tuning", "power loss, next start", theta, tuned, "power loss"),
        Cell("tuning", "node gone", theta, tuned, "kill node"),
        Cell("tuning", "node slow (1 s an answer)", stop, {**tuned, "mode": "slow"}),
        Cell("tuning", "a value is refused", theta, {**tuned, "mode": "refuses"}),
        Cell("tuning", "a set that is not kept", theta, {**tuned, "mode": "forgets"}),
        Cell("tuning", "originals refused", stop, {**tuned, "mode": "stuck"}),
        Cell("tuning", "a trial is aborted (PX4 28699)", stop, tuned),
        Cell("tuning", "one value is NaN (PX4 28699)", {"theta": [5.0, math.nan]}, tuned),
        Cell("tuning", "the controller goes unstable (PX4 18905)", theta, {**tuned, "mode": "unstable"}),
        Cell("tuning", "aborted a second time (ArduPilot 13423)", {**stop, "trials": 2}, tuned),
        Cell("tuning", "a trial ends well (ArduPilot 22919)", {**theta, "ends": True}, tuned),
    ]


def action_cells() -> list[Cell]:
    order = {"theta": [5.0]}
    modes = {
        "": "stop",
        "refuses": "cancel refused",
        "mute": "cancel unanswered",
        "slow": "cancel accepted 1 s late",
        "late": "goal accepted 1 s late",
    }
    cells = [
        Cell("action", words, {**order, "stop": True}, {"node": "action", "mode": m}) for m, words in modes.items()
    ]
    cells.append(Cell("action", "launcher killed", {**order, "launch": True}, {"node": "action"}, "kill launcher"))
    return cells


def arm_cells() -> list[Cell]:
    arm = {"node": "arm"}
    return [
        Cell("arm", "stop", {"stop": True}, arm),
        Cell("arm", "runner hangs with the lock", {"hang": True}, arm),
        Cell("arm", "runner frozen", {}, arm, "freeze"),
        Cell("arm", "runner killed", {}, arm, "kill"),
        Cell("arm", "host killed", {}, arm, "kill host"),
        Cell("arm", "launcher killed", {"launch": True}, arm, "kill launcher"),
        Cell("arm", "states stop", {}, {**arm, "mode": "silent"}),
        Cell("arm", "states turn NaN", {}, {**arm, "mode": "nan"}),
    ]


class Victim:
    """A victim or a node: its lines are read by a thread."""

    def __init__(self, module: str, order: dict[str, Any]) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.popen = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(order)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=environment,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line)

    def events(self, name: str) -> list[dict[str, Any]]:
        told = [json.loads(line) for line in list(self.lines) if line.startswith("{")]
        return [event for event in told if event["event"] == name]

    def wait_for(self, name: str, count: int = 1, patience: float = PATIENCE) -> dict[str, Any] | None:
        wait(lambda: len(self.events(name)) >= count or self.popen.poll() is not None, patience)
        found = self.events(name)
        return found[count - 1] if len(found) >= count else None

    def end(self) -> None:
        for number in (signal.SIGCONT, signal.SIGKILL):
            if self.popen.poll() is None:
                self.popen.send_signal(number)
        self.popen.wait()
        self._reader.join(1.0)


def wait(condition: Callable[[], Any], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


@dataclass
class Stop:
    """One trial of a cell: how it ended, and the s from the fault to the safe state (inf: it never was)."""

    latency: float
    end: str
    said: str


def try_cell(cell: Cell) -> list[Stop]:
    stops: list[Stop] = []
    while len(stops) < cell.repeats:
        stops += _try(cell)
    return stops


def _try(cell: Cell) -> list[Stop]:
    with tempfile.TemporaryDirectory() as folder:
        record = Record(f"{folder}/record")
        os.environ["CRBO_STATE"] = folder
        order: dict[str, Any] = {"plant": cell.plant, **cell.order}
        if cell.plant == "qube":
            order |= {"record": f"{folder}/record", "board": folder, "repeats": cell.repeats if cell.at_once else 1}
        if cell.plant in ("tuning", "action"):
            Path(f"{folder}/tuning.yaml").write_text(cell.config)
            order |= {"config": f"{folder}/tuning.yaml", "plant": "tuning"}
        node = None
        if cell.node is not None:
            node = Victim("crbo_ros.bench.stop_nodes", {**cell.node, "record": f"{folder}/record"})
            wait(lambda: "up\n" in node.lines, PATIENCE)
        victim = Victim("crbo_ros.bench.stop_victims", order)
        try:
            return _strike(cell, order, victim, node, record)
        finally:
            victim.end()
            if node is not None:
                node.end()
            time.sleep(0.2)


def _strike(cell: Cell, order: dict[str, Any], victim: Victim, node: Victim | None, record: Record) -> list[Stop]:
    if cell.at_once:
        return [_one(cell, victim, record, number) for number in range(1, cell.repeats + 1)]
    first = victim.wait_for("moving" if cell.plant == "qube" else "connected")
    if first is None:
        return [Stop(math.inf, "DID NOT START", "".join(victim.lines[-3:]))]
    began = time.monotonic()
    if cell.strike:
        wait(lambda: record.voltage != 0.0, PATIENCE)
        time.sleep(0.3 if cell.plant == "qube" else 1.0)
        began = time.monotonic()
        host, runner = first["host"], first["pid"]
        targets = {
            "kill": [runner],
            "kill launcher": [victim.popen.pid],
            "freeze": [runner],
            "kill host": [host],
            "power loss": [host, runner],
        }
        targets["kill node"] = [node.popen.pid] if node is not None else []
        for pid in targets[cell.strike]:
            os.kill(pid, signal.SIGSTOP if cell.strike == "freeze" else signal.SIGKILL)
    if cell.strike == "kill launcher":  # the runner is an orphan: its lines still come, and then it ends by itself
        wait(lambda: victim.events("end"), PATIENCE)
        if not wait(lambda: not Path(f"/proc/{first['pid']}").exists(), 10.0):
            os.kill(first["pid"], signal.SIGKILL)
            return [Stop(math.inf, "LEFT BEHIND", "the runner lived on")]
    if cell.strike == "power loss":
        time.sleep(1.0)
        left, began = record.voltage, time.monotonic()
        victim.popen.wait()
        again = Victim("crbo_ros.bench.stop_victims", {**order, "trials": 0})
        try:
            ended = again.wait_for("end")
            time.sleep(0.3)
            stop = settle(record, began, ended is not None, "restored from the journal at the next start")
            return [stop if left else Stop(stop.latency, stop.end, "the values were not left behind")]
        finally:
            again.end()
    if cell.strike in ("kill", "freeze"):
        wait(lambda: record.voltage == 0.0, 10.0)
        time.sleep(0.3)
        return [settle(record, began, None, "by its host, while the runner was gone")]
    end = victim.wait_for("end")
    if end is None:
        code = victim.popen.poll()
        return [settle(record, began, None, f"the runner ended with {code}: {''.join(victim.lines[-2:])[:200]}")]
    breaks = victim.events("breaks")
    began = record.broken_at or (breaks[0]["time"] if breaks else began)
    said = f"{'CONFIRMED' if end['confirmed'] else 'UNCONFIRMED'}: {end['reason']}; {end['why']}"
    time.sleep(0.3)
    return [settle(record, began, end["confirmed"], said)]


def _one(cell: Cell, victim: Victim, record: Record, number: int) -> Stop:
    """The n-th stop of a victim that is stopped again and again."""
    moving = victim.wait_for("moving", number)
    if moving is None:
        return Stop(math.inf, "DID NOT START", "".join(victim.lines[-3:]))
    if cell.strike == "freeze":
        wait(lambda: abs(record.voltage) == 2.5, PATIENCE)
        time.sleep(0.2)
        began = time.monotonic()
        victim.popen.send_signal(signal.SIGSTOP)
        time.sleep(0.25)
        rows = record.rows()
        victim.popen.send_signal(signal.SIGCONT)
        victim.wait_for("end", number)
    else:
        end = victim.wait_for("end", number)
        rows = record.rows()
        assert end is not None
        broke = [e["time"] for e in victim.events("breaks") if moving["time"] <= e["time"] <= end["time"]]
        began = max(broke, default=math.nan)  # none: the machine itself was too slow before
    end = victim.events("end")[number - 1]
    rows = rows[rows[:, 0] <= end["time"]]
    on = np.flatnonzero(rows[:, 1])
    if not len(on) or on[-1] == len(rows) - 1:
        return Stop(math.inf, "LIE" if end["confirmed"] else "FAULT", end["reason"])
    said = f"{'CONFIRMED' if end['confirmed'] else 'UNCONFIRMED'}: {end['reason']}"
    latency = rows[on[-1] + 1, 0] - began
    return Stop(max(latency, 0.0) if latency == latency else math.nan, "safe" if end["confirmed"] else "FAULT", said)


def settle(record: Record, began: float, confirmed: bool | None, said: str) -> Stop:
    """By the plant's own record."""
    since = record.safe_since()
    latency = max(since - began, 0.0) if math.isfinite(since) else (0.0 if since < 0 else math.inf)
    if record.voltage != 0.0:
        return Stop(math.inf, "LIE" if confirmed else "FAULT", said)
    return Stop(latency, "FAULT" if confirmed is False else "safe", said)


def line(cell: Cell, stops: list[Stop]) -> list[str]:
    ends = {stop.end: sum(other.end == stop.end for other in stops) for stop in stops}
    times = np.array([1e3 * stop.latency for stop in stops if math.isfinite(stop.latency)])
    shown = [f"{np.quantile(times, q):.0f}" for q in (0.5, 0.99, 1.0)] if len(times) else ["never"] * 3
    if len(times) and any(stop.latency == math.inf for stop in stops):
        shown[2] = "never"
    said = stops[-1].said.replace("|", "/").replace("\n", " ")
    return [cell.plant, cell.fault, ", ".join(f"{n} x {end}" for end, n in ends.items()), *shown, said[:160]]


def table(cells: list[Cell], done: dict[tuple[str, str], list[str]]) -> list[list[str]]:
    """A heading, and the rows that are there, in the cells' order; a row that is no longer a cell is left out."""
    heading = ["plant", "fault", "end", "p50", "p99", "worst", "what was said (the last one)", "load"]
    return [heading, *(done[cell.plant, cell.fault] for cell in cells if (cell.plant, cell.fault) in done)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--central", type=int, default=100, help="stops in each of the two central cells (default 100)")
    parser.add_argument("--repeats", type=int, default=10, help="stops in each other cell, at most (default 10)")
    parser.add_argument("--plants", nargs="+", default=["qube", "tuning", "action", "arm"], help="which (default: all)")
    parser.add_argument("--resume", action="store_true", help="keep the JSON file's rows; only what it does not have")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no row after this time (then --resume)")
    parser.add_argument("--faults", default="", help="only those with this in their name")
    parser.add_argument("--out", type=Path, default=Path("results/stops.json"), help="JSON file (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    about = machine()
    print(f"load average {about['load']}; latency in ms from the fault to the safe state on the plant's own record")
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ["ROS_DOMAIN_ID"] = str(20 + os.getpid() % 60)
    done = {}
    if args.resume and args.out.exists():
        done = {(row[0], row[1]): row for row in json.loads(args.out.read_text())["rows"][1:]}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    cells, left = [*qube_cells(args.central), *ros_cells()], 0
    rows = table(cells, done)
    ends = time.monotonic() + 60.0 * args.minutes
    for cell in cells:
        if cell.plant not in args.plants or args.faults not in cell.fault or (cell.plant, cell.fault) in done:
            continue
        if time.monotonic() > ends:
            left += 1
            continue
        cell.repeats = cell.repeats if cell.at_once else min(cell.repeats, args.repeats)
        row = [*line(cell, try_cell(cell)), f"{os.getloadavg()[0]:.1f}"]
        print(" | ".join(row), flush=True)
        done[cell.plant, cell.fault] = row
        rows = table(cells, done)
        args.out.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
    if left:
        print(f"{left} rows are left: the same command with --resume goes on")
    lies = [row for row in rows if any(word in row[2] for word in ("LIE", "START", "BEHIND"))]
    args.out.with_suffix(".md").write_text(markdown(rows))
    print(f"{len(lies)} cells with a lie; written: {args.out} and {args.out.with_suffix('.md')}")
    return 1 if lies else 0
