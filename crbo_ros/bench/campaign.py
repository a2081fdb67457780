"""The campaign: everything that may go wrong, counted, with what must hold afterwards. Writes docs/RELIABILITY.md.

    ./crbo bench campaign --quick              # some minutes: a part of each, as CI runs it
    ./crbo bench campaign --minutes 120        # carries on where it was ended; the full numbers take some hours

Each part is cut into chunks with a seed of their own; a chunk that is done lies in --out and is not done again. Lost,
doubled: executed episodes that are not in the store, or twice. Unapproved: starts without an approval on the monitor's
record. Silent: damage that changed what is read and was not told. In "kills and freezes" real processes are killed and
frozen; "schedules" are the same loop in simulated time.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros import __version__, checks
from crbo_ros.bench import bad_inputs, disks, flips, hostile
from crbo_ros.bench.loop import try_schedule

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "RELIABILITY.md"
BEGIN, END = "<!-- campaign: begin (./crbo bench campaign writes this) -->", "<!-- campaign: end -->"
BROKEN = ("lost", "doubled", "unapproved", "silent", "tracebacks", "hangs", "other")
Counts = Counter[str]


def do_flips(count: int, seed: int) -> Counts:
    found: Counts = Counter()
    for name, fate, why, mended in flips.campaign(count, seed):
        found["done"] += 1
        found[fate] += 1
        found["silent"] += mended == "silent"  # (a silent flip counts as such already)
        found["tracebacks"] += (fate == flips.TRACEBACK) + mended.startswith("traceback")
        found[f"repair: {mended}"] += mended in ("all back", "some lost", "not repaired")
        if fate in (flips.SILENT, flips.TRACEBACK) or mended.startswith(("silent", "traceback")):
            print(f"  {name}: {fate} {why} {mended}")
    return found


def do_cuts(count: int, seed: int) -> Counts:
    found: Counts = Counter()
    for name, fate, why, _ in flips.campaign(count, seed, repairs=False, damage=flips.cut):
        found["done"] += 1
        found[fate] += 1
        found["tracebacks"] += fate == flips.TRACEBACK
        if fate in (flips.SILENT, flips.TRACEBACK):
            print(f"  {name}: {fate} {why}")
    return found


def do_inputs(count: int, seed: int) -> Counts:
    found: Counts = Counter()
    for case, fate, said in bad_inputs.campaign(count, seed):
        found["done"] += 1
        found[fate] += 1
        found["tracebacks"] += fate == bad_inputs.TRACEBACK
        found["hangs"] += fate == bad_inputs.HANG
        found["other"] += fate == bad_inputs.ACCEPTED and not case.fine
        if bad_inputs.is_wrong(case, fate):
            print(f"  {case.words} {case.content[:60]!r}: {fate}: {said[-300:]}")
    return found


def do_hostile(count: int, seed: int) -> Counts:
    outcome = hostile.flood(count, seed)
    for line in outcome.broken[:5]:
        print(f"  {line}")
    times = np.array(outcome.times)
    return Counter(
        {"done": outcome.count, "other": len(outcome.broken), "us p50": round(1e6 * float(np.median(times))),
         "us p99": round(1e6 * float(np.quantile(times, 0.99))), "over 1 ms": int(np.sum(times > 1e-3))}
    )  # fmt: skip


def do_disks(count: int, seed: int) -> Counts:
    refused, wrong = disks.rounds(count, seed)
    for line in wrong:
        print(f"  {line}")
    return Counter({"done": count, "refused": refused, "lost": len(wrong)})


def do_schedules(count: int, seed: int) -> Counts:
    found: Counts = Counter({"done": count})
    for number in range(count):
        if problem := try_schedule(seed * 1_000_000 + number):
            found["other"] += 1
            print(f"  {problem}")
    return found


def in_a_process(bench: str, *words: str) -> dict[str, Any] | None:
    """What a bench that starts nodes, which must not be ours, has written; None, and its output said, if nothing."""
    with tempfile.TemporaryDirectory() as out:
        line = [sys.executable, "-m", "crbo_ros.cli", "bench", bench, *words, "--out", out]
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, check=False)
        try:
            return dict(json.loads((Path(out) / f"{bench}.json").read_text()))
        except (OSError, ValueError):
            print(done.stdout[-2000:])
            return None


def do_strangers(count: int, seed: int) -> Counts:
    result = in_a_process("strangers", "--count", str(count), "--seed", str(seed))
    if result is None:
        return Counter({"other": 1})
    for problem in result["problems"]:
        print(f"  {problem}")
    found: Counts = Counter({"done": result["count"], "other": len(result["problems"])})
    return found + Counter({name: result.get("counts", {}).get(name, 0) for name in BROKEN})


def do_kills(count: int, seed: int) -> Counts:
    runners, stops = ("1,2,4", seed % 5 == 0) if count >= 60 else ("1,2", False)
    words = ["--faults", str(count), "--seed", str(seed), "--runners", runners, "--episodes", "20"]
    result = in_a_process("faults", *words, "--ctrl-c", str(int(stops)))
    if result is None:
        return Counter({"other": 1})
    found: Counts = Counter()
    for one in result["rounds"]:
        found["done"] += sum(one["faults"].values())
        found.update({f"fault: {kind}": number for kind, number in one["faults"].items()})
        for promise, number in one["counts"].items():
            found[promise] += number
    found["other"] += len(result["problems"])
    for problem in result["problems"]:
        print(f"  {problem}")
    return found


@dataclass(frozen=True)
class Part:
    """One row of the table."""

    name: str
    what: str
    do: Callable[[int, int], Counts]
    total: int
    chunk: int
    quick: int


PARTS = (
    Part("bit flips", "one bit, in every file of an experiment, ended or killed", do_flips, 1000, 100, 40),
    Part("cut files", "stores and logs cut at a random place", do_cuts, 300, 100, 20),
    Part("bad inputs", "command lines, parameter files, YAML, JSON, npz, CSV, bags", do_inputs, 1000, 250, 120),
    Part("hostile messages", "forged, wrong, huge, repeated; by value", do_hostile, 1_000_000, 100_000, 8_000),
    Part("flood over DDS", "at a running graph; stop, finish, memory", do_strangers, 100_000, 50_000, 4_000),
    Part("full disks", "rounds of 4 episodes; each step may find a full disk", do_disks, 100, 20, 2),
    Part("schedules", "kills, freezes, losses, clock steps, two monitors; simulated", do_schedules, 20_000, 1000, 200),
    Part("kills and freezes", "real processes; delays, clocks, slow disks; 1, 2, 4 runners", do_kills, 1000, 100, 12),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="a part of each, in some minutes; docs are left alone")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no chunk after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "campaign", help="chunks that are done")
    parser.add_argument("--parts", default="", help="only these, with commas between")
    parser.add_argument("--no-docs", action="store_true", help="do not write docs/RELIABILITY.md")


def run(args: argparse.Namespace) -> int:
    for name in filter(None, args.parts.split(",")):
        checks.choice(name, tuple(part.name for part in PARTS), "--parts")
    chosen = [part for part in PARTS if not args.parts or part.name in args.parts.split(",")]
    end, found = time.monotonic() + 60.0 * args.minutes, dict[str, Counts]()
    for part in chosen:
        print(f"{part.name}: {part.what}", flush=True)
        found[part.name] = _quick(part, args.seed) if args.quick else _chunks(part, args, end)
    print("\n".join(table(found)))
    if not args.quick and not args.no_docs:
        write(found, args.seed)
    return 1 if any(bad(counts) for counts in found.values()) else 0


def _quick(part: Part, seed: int) -> Counts:
    return part.do(part.quick, seed)


def _chunks(part: Part, args: argparse.Namespace, end: float) -> Counts:
    """The chunks that are done, and those that can be until the end."""
    found: Counts = Counter()
    args.out.mkdir(parents=True, exist_ok=True)
    for number in range(-(-part.total // part.chunk)):
        file = args.out / f"{re.sub(r'[^a-z]', '-', part.name)}-{args.seed}-{number}.json"
        if file.exists():
            found.update(json.loads(file.read_text()))
        elif time.monotonic() < end:
            counts = part.do(min(part.chunk, part.total - number * part.chunk), 1000 * args.seed + number)
            file.write_text(json.dumps(counts))
            found.update(counts)
    return found


def bad(counts: Counts) -> int:
    return sum(counts[name] for name in BROKEN)


def table(found: dict[str, Counts]) -> list[str]:
    """The table in Markdown."""
    lines = ["| part | done | of | " + " | ".join(BROKEN) + " | more |", "|---" * (len(BROKEN) + 4) + "|"]
    for part in PARTS:
        if part.name in found:
            counts = found[part.name]
            chunks = max(1, round(counts["done"] / part.chunk))
            known = {k: v // chunks if k.startswith("us ") else v for k, v in counts.items()}
            hidden = (*BROKEN, "done")
            more = ", ".join(f"{value:,} {name}" for name, value in known.items() if name not in hidden and value)
            cells = " | ".join(str(counts[name]) for name in BROKEN)
            lines.append(f"| {part.name} | {counts['done']:,} | {part.total:,} | {cells} | {more} |")
    return lines


def write(found: dict[str, Counts], seed: int) -> None:
    """Into docs/RELIABILITY.md, between our marks; what others wrote there stays."""
    head = "# Reliability\n\nWhat was tried, how often, and what broke. Each table says which command wrote it.\n"
    text = REPORT.read_text() if REPORT.exists() else head
    notes = "\n".join(f"- **{part.name}**: {part.what}" for part in PARTS)
    about = (
        f"crbo_ros {__version__}, seed {seed}, `./crbo bench campaign`, Python {sys.version.split()[0]}, "
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end. 0 is what must hold in the columns from "
        "*lost* to *other*; *done* is how much of it has been run so far."
    )
    body = "\n".join([BEGIN, "## The campaign", "", about, "", *table(found), "", notes, END])
    if BEGIN in text and END in text:
        text = text[: text.index(BEGIN)] + body + text[text.index(END) + len(END) :]
    else:
        text = text.rstrip("\n") + "\n\n" + body + "\n"
    REPORT.write_text(text)
