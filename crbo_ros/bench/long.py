"""Long experiments: what opening one costs, and what a proposal costs and writes, as episodes accumulate.

The store is filled with a made-up history (a noisy walk up a bowl), then opened as a restarted optimizer opens it, and
asked for proposals as a runner asks. Bytes are those that the process hands to the system, journal included.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.sweep import machine, write_atomically
from crbo_ros.bench.tables import markdown
from crbo_ros.core.problem import Problem
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal
from crbo_ros.protocol.database import null, to_blob
from crbo_ros.protocol.optimizer import OptimizerServer
from crbo_ros.protocol.ports import ACCEPTED, OK
from crbo_ros.protocol.records import Episode, new_uid
from crbo_ros.protocol.store import dump_state
from crbo_ros.registry import make_method

BARS = {"open": 2.0, "cpu": 0.15, "bytes": 20_000.0}  # at n = 10,000, d = 65: s, s, bytes a proposal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dim", type=int, default=65)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100, 1000, 10_000], help="episodes before the first ask"
    )
    parser.add_argument("--asks", type=int, default=20, help="proposals measured at each size (median CPU, mean bytes)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results") / "long", help="folder of the results")


def bowl(theta: Any) -> float:
    return -float(np.sum((theta - 0.3) ** 2))


def open_experiment(path: Path, dim: int, seed: int) -> OptimizerServer:
    problem = Problem("long", "none", Space(-np.ones(dim), np.ones(dim)), np.zeros(dim))

    def make(settings: Any) -> Any:
        return make_method("crbo", problem.space, problem.theta_0, seed=seed, **settings)

    return OptimizerServer.open(path, problem=problem, name="long", method="crbo", make=make, seed=seed, settings={})


def fill(path: Path, n: int, dim: int, seed: int) -> None:
    """A store with n completed episodes of a walk towards the bowl's centre, as an optimizer would have left it."""
    server, rng = open_experiment(path, dim, seed), np.random.default_rng([seed, n, dim])
    store, report = server.store, json.dumps(server.method.report(), default=str)
    with store.database.transaction():
        for i in range(n):
            share = 1.0 - math.exp(-3.0 * i / n)
            theta = np.clip(0.3 * share + 0.05 * rng.standard_normal(dim), -1.0, 1.0) if i else np.zeros(dim)
            p = Proposal(i, theta, "acquisition" if i else "start", 0.0, 0.1, -1.0, -1.0, 0.5)
            store.database.insert(
                "proposals", id=i, runner="r", request_id=new_uid(), theta=to_blob(p.theta), kind=p.kind,
                reason="", mean=p.mean, sigma=p.sigma, worst_case=p.worst_case, worst_case_paper=p.worst_case_paper,
                gamma=null(p.gamma), created=0.0, report=report, events=i, end="completed",
                ended=0.0,
            )  # fmt: skip
            value = bowl(theta) + 0.05 * float(rng.standard_normal())
            store._insert(Episode(f"e{i}", server.uid, i, "r", theta, "completed", value))
            store.database.insert("events", verb="tell", arguments=json.dumps([i, value]))
        state = dump_state(server.method.head())
        store.database.execute("INSERT OR REPLACE INTO snapshot VALUES (1, ?, ?)", n, state)
    server.close()


def written() -> float:
    """Bytes that this process has handed to write calls; NaN where the system does not say."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return math.nan
    return float(next(line.split()[1] for line in lines if line.startswith("wchar")))


def measure(folder: Path, n: int, dim: int, seed: int, asks: int) -> dict[str, float]:
    """Seconds of CPU to open, the median CPU of a proposal, and the mean bytes of a proposal and of its result."""
    path = folder / f"long-{n}.sqlite"
    fill(path, n, dim, seed)
    begun = time.process_time()
    server = open_experiment(path, dim, seed)
    opened = time.process_time() - begun
    rows = []
    for i in range(asks):
        start, before = time.process_time(), written()
        answer = server.propose("r", new_uid())
        cpu, bytes_ = time.process_time() - start, written() - before
        assert answer.status == OK
        assert answer.offer is not None
        offer, before = answer.offer, written()
        episode = Episode(f"a{i}", server.uid, offer.id, "r", offer.theta, "completed", bowl(offer.theta))
        assert server.acknowledge(episode)[0] == ACCEPTED
        rows.append((cpu, bytes_, written() - before))
    server.close()
    _, bytes_, result = np.mean(rows, axis=0)
    return {"open": opened, "cpu": float(np.median(rows, axis=0)[0]), "bytes": float(bytes_), "result": float(result)}


def run(args: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        cells = {n: measure(Path(folder), n, args.dim, args.seed, args.asks) for n in args.sizes}
    rows = [[f"d = {args.dim}", *(f"n = {n}" for n in cells)]]
    for key, label, show in (
        ("open", "CPU to open the experiment, s", "{:.2f}"),
        ("cpu", "CPU of a proposal, fit and store included, s", "{:.3f}"),
        ("bytes", "bytes written for a proposal", "{:.0f}"),
        ("result", "bytes written for its result", "{:.0f}"),
    ):
        rows.append([label, *(show.format(cell[key]) for cell in cells.values())])
    facts = machine()
    text = (
        f"# Long experiments\n\n{markdown(rows)}\n\nBars at n = 10,000, d = 65: {BARS['open']:g} s to open, "
        f"{BARS['cpu']:g} s and {BARS['bytes']:g} bytes a proposal. {args.asks} proposals, seed {args.seed}, "
        f"{facts['processor']}, load average {facts['load'][0]}, {facts['date']} UTC.\n"
    )
    write_atomically(args.out / "long.json", json.dumps({"machine": facts, "dim": args.dim, "cells": cells}, indent=1))
    write_atomically(args.out / "long.md", text)
    print(text)
    return 0
