"""Seconds of CPU for one new evaluation point, hyperparameter fit included, for each method in one run.

d = 112 with n = 25, 50, 100 and 200 returns, d = 65 and 130 with n = 100. The data: points around theta_0 on a smooth
function, as a local search leaves them. A method is given them as if it had asked for them, then asked `--asks` times
(each answer is told); the median counts. CMA-ES, which draws whole generations, runs from its first episode on. One
BLAS thread.
"""

from __future__ import annotations

import argparse
import json
import math
import time as clock
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.figures import label
from crbo_ros.bench.sweep import machine, write_atomically
from crbo_ros.bench.tables import markdown
from crbo_ros.core.method import Method, TrialRecord
from crbo_ros.core.space import Space
from crbo_ros.core.trial import Proposal, TrialStatus
from crbo_ros.errors import MissingDependency
from crbo_ros.registry import make_method

SIZES = ((112, 25), (112, 50), (112, 100), (112, 200), (65, 100), (130, 100))
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "CRBO": ("crbo", {}),
    "CRBO, paper's setting": ("crbo", {"preset": "paper"}),
    "TuRBO, joint draw (its paper's)": ("turbo", {"length": 0.2, "draw": "joint"}),
    "TuRBO, pathwise draw": ("turbo", {"length": 0.2}),
    "Local BO": ("local_bo", {}),
    "BO (box, UCB)": ("bo", {}),
    "LogEI (BoTorch)": ("logei", {}),
    "noisy LogEI (BoTorch)": ("logei", {"noisy": True}),
    "LogEI, linear kernel": ("linear_bo", {}),
    "LES, 250 draws (its paper's)": ("les", {"draws": 250}),
    "LES, 32 draws": ("les", {}),
    "GIBO": ("gibo", {}),
    "HCI-GIBO": ("hci_gibo", {}),
    "MinUCB": ("min_ucb", {}),
    "LA-MinUCB": ("la_min_ucb", {}),
    "CMA-ES": ("cma_es", {}),
    "Safe CMA-ES": ("safe_cma", {}),
    "Sobol": ("sobol", {}),
    "random search": ("random_search", {}),
}
PAPER = {"CRBO": "0.501 +- 0.391", "TuRBO": "2.618 +- 0.170", "Local BO": "9.495 +- 0.383"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--asks", type=int, default=3, help="proposals timed per method and size (the median counts)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results") / "time", help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="d = 112 with n = 100 only, no noisy LogEI")


def objective(theta: np.ndarray, direction: np.ndarray) -> float:
    """Smooth, with a slope along one direction and a bowl in all."""
    return float(np.tanh(3.0 * theta @ direction) - 0.2 * theta @ theta)


def feed(method: Method, thetas: np.ndarray, values: np.ndarray) -> None:
    """Make the method believe that it asked for thetas (n, d) and was told values (n,)."""
    for theta, value in zip(thetas, values, strict=True):
        id = len(method.trials)
        kind = "start" if id == 0 else "acquisition"
        method.trials.append(TrialRecord(Proposal(id, theta, kind), TrialStatus.COMPLETED, float(value)))
        method._completed.append(id)
    if hasattr(method, "_members"):  # Local BO: the last ones are its current iteration
        method._members = list(range(len(values) - 10, len(values)))


def measure(name: str, settings: dict[str, Any], dim: int, n: int, seed: int, asks: int) -> list[float]:
    """CPU seconds of `asks` proposals at d = dim from n returns on."""
    rng = np.random.default_rng([seed, dim, n])
    space, direction = Space(-np.ones(dim), np.ones(dim)), rng.standard_normal(dim) / math.sqrt(dim)
    thetas = np.clip(
        np.cumsum(rng.standard_normal((n, dim)), axis=0) * 0.03 + 0.1 * rng.standard_normal((n, dim)), -1, 1
    )
    thetas[0] = 0.0
    values = np.array([objective(theta, direction) for theta in thetas]) + 1e-3 * rng.standard_normal(n)
    method = make_method(name, space, thetas[0], seed=seed, **settings)
    if name == "cma_es":
        for _ in range(n):
            proposal = method.ask()
            method.tell(proposal.id, objective(proposal.theta, direction))
        asks = 3 * method.report()["popsize"]  # whole generations: the update comes with the last return of each
    else:
        feed(method, thetas, values)
        if name == "local_bo":  # an iteration's points come ten at a time
            asks = 10 * asks
    seconds = []
    for _ in range(asks):
        started = clock.process_time()
        proposal = method.ask()
        value = objective(proposal.theta, direction)
        method.tell(proposal.id, value)
        seconds.append(clock.process_time() - started)
    # the first ask fits from the start values, the others from the last fit, as in a run; of batches the mean
    return [float(np.mean(seconds))] if name in ("cma_es", "local_bo") else seconds


def run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    sizes = ((112, 100),) if args.quick else SIZES
    methods = {k: v for k, v in METHODS.items() if not (args.quick and k.startswith("noisy"))}
    cells: dict[str, dict[str, float]] = {name: {} for name in methods}
    for name, size in tqdm([(name, size) for size in sizes for name in methods], desc="time", unit="cell"):
        method, settings = methods[name]
        try:
            seconds = measure(method, settings, size[0], size[1], args.seed, args.asks)
        except MissingDependency as error:
            tqdm.write(str(error))
            continue
        cells[name][f"{size[0]},{size[1]}"] = float(np.median(seconds))
    facts = machine()
    rows = [["method", *(f"d={d} n={n}" for d, n in sizes), "ratio to CRBO at d=112, n=100"]]
    reference = cells["CRBO"]["112,100"]
    for name, cell in cells.items():
        at = cell.get("112,100", math.nan)
        row = [f"{cell.get(f'{d},{n}', math.nan):.4f}" for d, n in sizes]
        rows.append([name, *row, f"{at / reference:.2f}"])
    paper = ", ".join(f"{label(k)} {v}" for k, v in PAPER.items())
    text = f"""# CPU seconds for one new evaluation point, hyperparameter fit included

{markdown(rows)}

Median of {args.asks} proposals, CPU time, one thread. The paper's table (basketball, i5-7300, s, very probably
without the fit): {paper}. {facts["processor"]}, load average {facts["load"][0]}, Python {facts["python"]},
{", ".join(f"{k} {v}" for k, v in facts["versions"].items())}; {facts["date"]} UTC; seed {args.seed}.
"""
    write_atomically(args.out / "summary.md", text)
    record = {"cells": cells, "asks": args.asks, "machine": facts}
    write_atomically(args.out / "time.json", json.dumps(record, indent=1))
    print(text)
    return 0
