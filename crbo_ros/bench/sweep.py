"""Sweeps: many independent runs (problem x method x setting x seed), in parallel, resumable.

Each finished run is one file in FOLDER/runs, written at once under its final name; a killed sweep goes on where it
was. The file's name holds a fingerprint of the task, the settings and the method's code, so that a changed one is run
again. Runs are ordered by repeat: repeat 0 of everything first, so that an unfinished sweep is a comparison with
fewer repeats.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.problems import make_run_method, open_problem, settings_fingerprint
from crbo_ros.errors import Exhausted, InvalidInput, MissingDependency

SEED = 5000  # of repeat 0; presets and tasks were chosen on seeds below 2000
FINAL_ROLLOUTS = 10  # for J(theta*), as in the paper
CHECKPOINTS = (40, 100)  # episodes after which the recommended policy is kept, besides the last


@dataclass(frozen=True)
class Run:
    """One optimization from its first episode to its last."""

    problem: str
    method: str  # "crbo-paper" is method crbo with a setting of its own
    label: str
    seed: int
    episodes: int
    settings: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def file(self) -> str:
        mark = settings_fingerprint(self.problem, self.method, self.settings)
        label = self.label.replace(" ", "_").replace(",", "")
        return f"{self.problem}.{self.method}.{label}.{self.episodes}.{mark}.{self.seed}.json"


def play(run: Run) -> dict[str, Any]:
    """Carry a run out and return its record (JSON values; NaN as null)."""
    with open_problem(run.problem, run.seed) as problem:
        method = make_run_method(run.method, problem.space, problem.theta_0, run.seed, run.settings)
        rows: list[dict[str, Any]] = []
        kept: dict[str, list[float]] = {}
        note = ""
        for n in range(run.episodes):
            started = time.process_time()
            try:
                proposal = method.ask()
            except Exhausted as error:
                note = str(error)
                break
            seconds = time.process_time() - started
            # the same noise for every method: it depends on seed and episode alone
            episode = problem.rollout(proposal.theta, np.random.default_rng([run.seed, 1, n]))
            if math.isfinite(episode.value):
                method.tell(proposal.id, episode.value)
            else:
                method.fail(proposal.id, episode.reason)
            rows.append(_row(n, proposal, episode, seconds, problem))
            if n + 1 in CHECKPOINTS or n + 1 == run.episodes:
                best = method.best()
                kept[str(n + 1)] = (problem.theta_0 if best is None else best.theta).tolist()
        return {
            "run": asdict(run),
            "rows": rows,
            "start": _rollouts(problem, problem.theta_0, run.seed),
            "final": _rollouts(problem, np.array(list(kept.values())[-1]), run.seed) if kept else [],
            "final_regret": problem.regret(np.array(list(kept.values())[-1])) if problem.regret and kept else None,
            "kept": kept,
            "note": note,
            "machine": machine(),
        }


def _row(n: int, proposal: Any, episode: Any, seconds: float, problem: Any) -> dict[str, Any]:
    row = {
        "episode": n,
        "return": episode.value,
        "end": episode.end,
        "kind": proposal.kind,
        "worst_case": proposal.worst_case,
        "worst_case_paper": proposal.worst_case_paper,
        "mean": proposal.mean,
        "sigma": proposal.sigma,
        "cpu_seconds": round(seconds, 6),
    }
    if problem.regret is not None:
        row["regret"] = problem.regret(proposal.theta)
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _rollouts(problem: Any, theta: Any, seed: int) -> list[float | None]:
    """J(theta) by rollouts with noise that no episode of the run has seen, the same for every method."""
    values = [problem.rollout(theta, np.random.default_rng([seed, 2, i])).value for i in range(FINAL_ROLLOUTS)]
    return [value if math.isfinite(value) else None for value in values]


def machine() -> dict[str, Any]:
    """Versions, machine and load, for the record."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in ("numpy", "scipy", "cma", "botorch", "torch", "pybullet", "gymnasium", "numba"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    load = os.getloadavg() if hasattr(os, "getloadavg") else (math.nan,) * 3
    return {
        "python": platform.python_version(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": [round(x, 2) for x in load],
        "versions": versions,
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def write_atomically(path: Path, text: str) -> None:
    """Either the whole file under its name, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def _job(run: Run, folder: Path, deadline: float) -> tuple[Run, float | None, str]:
    """(run, seconds or None if it was not started, error)."""
    if time.time() >= deadline:
        return run, None, ""
    started, path = time.time(), folder / "runs" / run.file  # its name before it runs: the code that is loaded now
    try:
        record = play(run)
    except MissingDependency as error:  # the others can go on
        return run, None, str(error)
    except Exception as error:  # a night's sweep does not end with one bad run
        return run, None, f"{run.problem} #{run.seed}: {type(error).__name__}: {error}"
    write_atomically(path, json.dumps(record))
    return run, time.time() - started, ""


def sweep(
    runs: Iterable[Run], folder: Path, *, jobs: int = 1, backend: str = "loky", minutes: float = math.inf
) -> list[Path]:
    """Carry out the runs that have no file yet, in order; returns the files of all that are there in the end."""
    from tqdm import tqdm

    runs = list(runs)
    todo = [run for run in runs if not (folder / "runs" / run.file).exists()]
    deadline = time.time() + 60.0 * minutes
    problems: set[str] = set()
    bar = tqdm(total=len(runs), initial=len(runs) - len(todo), desc=folder.name, unit="run", file=sys.stderr)
    for run, seconds, error in _parallel(todo, folder, deadline, jobs, backend):
        if error:
            problems.add(f"{run.method}: {error}")
        if seconds is not None:
            bar.set_postfix_str(f"{run.problem} {run.method} #{run.seed} {seconds:.0f} s")
            bar.update()
    bar.close()
    for problem in sorted(problems):
        print(f"left out: {problem}", file=sys.stderr)
    return [path for run in runs if (path := folder / "runs" / run.file).exists()]


def _parallel(todo: list[Run], folder: Path, deadline: float, jobs: int, backend: str) -> Iterable[Any]:
    if jobs == 1 and backend == "loky":
        return (_job(run, folder, deadline) for run in todo)
    try:
        import joblib
    except ImportError:
        raise MissingDependency("parallel sweeps need joblib: pip install joblib (or use --jobs 1)") from None
    _prepare(backend)
    with joblib.parallel_config(backend=backend):
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")
        return parallel(joblib.delayed(_job)(run, folder, deadline) for run in todo)


def _prepare(backend: str) -> None:
    """Connect to a cluster through joblib's own backends; workers have to see the results folder."""
    if backend == "dask":
        try:
            from distributed import Client
        except ImportError:
            raise MissingDependency("--backend dask needs Dask: pip install distributed") from None
        Client(os.environ.get("DASK_SCHEDULER_ADDRESS"))  # none: a local cluster
    elif backend == "ray":
        try:
            from ray.util.joblib import register_ray
        except ImportError:
            raise MissingDependency("--backend ray needs Ray: pip install 'ray[default]'") from None
        register_ray()
    elif backend != "loky":
        raise InvalidInput(f"--backend {backend!r} is none of loky, dask, ray")


def add_sweep_arguments(parser: argparse.ArgumentParser, name: str, repeats: int) -> None:
    """The options that all sweeps share."""
    parser.add_argument("--repeats", type=int, default=None, help=f"runs per method and setting (default {repeats})")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="processes")
    parser.add_argument("--seed", type=int, default=SEED, help=f"seed of the first repeat (default {SEED})")
    parser.add_argument("--backend", default="loky", help="loky (this machine), dask or ray (a cluster)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no further run after this time")
    parser.add_argument("--out", type=Path, default=Path("results") / name, help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="a version of a few minutes: 2 repeats, fewer methods")
