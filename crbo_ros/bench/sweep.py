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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
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
            if n + 1 in (*CHECKPOINTS, *problem.checkpoints) or n + 1 == run.episodes:
                best = method.best()
                kept[str(n + 1)] = (problem.theta_0 if best is None else best.theta).tolist()
        return {
            "run": asdict(run),
            "rows": rows,
            "start": _rollouts(problem, problem.theta_0, run.seed),
            "final": _rollouts(problem, np.array(list(kept.values())[-1]), run.seed) if kept else [],
            "final_regret": problem.regret(np.array(list(kept.values())[-1])) if problem.regret and kept else None,
            "kept": kept,
            "at": {n: _rollouts(problem, np.array(kept[n]), run.seed) for n in kept if int(n) in problem.checkpoints},
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


def attempt(run: Run, deadline: float) -> tuple[Run, dict[str, Any] | None, str]:
    """(run, its record or None, error). On a worker: the record travels home, whoever asked writes it down."""
    if time.time() >= deadline:
        return run, None, ""
    try:
        return run, play(run), ""
    except MissingDependency as error:  # the others can go on
        return run, None, str(error)
    except Exception as error:  # a night's sweep does not end with one bad run
        return run, None, f"{run.problem} #{run.seed}: {type(error).__name__}: {error}"


def sweep(
    runs: Iterable[Run], folder: Path, *, jobs: int = 1, backend: str = "loky", minutes: float = math.inf
) -> list[Path]:
    """Carry out the runs that have no file yet, in order; returns the files of all that are there in the end."""
    from tqdm import tqdm

    runs = list(runs)
    todo = [run for run in runs if not (folder / "runs" / run.file).exists()]
    paths = {run.file: folder / "runs" / run.file for run in todo}  # named by the code that is loaded now
    deadline = time.time() + 60.0 * minutes
    problems: set[str] = set()
    bar = tqdm(total=len(runs), initial=len(runs) - len(todo), desc=folder.name, unit="run", file=sys.stderr)
    if backend not in BACKENDS:
        raise InvalidInput(f"--backend {backend!r} is none of {', '.join(BACKENDS)}")
    for run, record, error in BACKENDS[backend](todo, deadline, jobs) if todo else ():
        if error:
            problems.add(f"{run.method}: {error}")
        if record is not None:
            write_atomically(paths[run.file], json.dumps(record))
            bar.set_postfix_str(f"{run.problem} {run.method} #{run.seed}")
            bar.update()
    bar.close()
    for problem in sorted(problems):
        print(f"left out: {problem}", file=sys.stderr)
    return [path for run in runs if (path := folder / "runs" / run.file).exists()]


Attempts = Iterator[tuple[Run, "dict[str, Any] | None", str]]


def on_this_machine(todo: list[Run], deadline: float, jobs: int) -> Attempts:
    """Processes of this machine. Where one dies, what has no result yet is tried again, each run in one of its own."""
    if jobs == 1:
        yield from (attempt(run, deadline) for run in todo)
        return
    try:
        import joblib
        from joblib.externals.loky.process_executor import BrokenProcessPool
    except ImportError:
        raise MissingDependency("parallel sweeps need joblib: pip install joblib (or use --jobs 1)") from None

    def parallel(runs: list[Run]) -> Attempts:
        pool = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")
        yield from pool(joblib.delayed(attempt)(run, deadline) for run in runs)

    done: set[str] = set()
    try:
        for result in parallel(todo):
            done.add(result[0].file)
            yield result
    except BrokenProcessPool:
        for run in (run for run in todo if run.file not in done):
            try:
                yield from parallel([run])
            except BrokenProcessPool:
                yield run, None, f"{run.problem} #{run.seed}: its process died"


def on_dask(todo: list[Run], deadline: float, jobs: int) -> Attempts:
    """A Dask cluster (DASK_SCHEDULER_ADDRESS), or one of `jobs` local processes."""
    try:
        import distributed
    except ImportError:
        raise MissingDependency("--backend dask needs Dask: pip install distributed") from None
    address = os.environ.get("DASK_SCHEDULER_ADDRESS")
    local: dict[str, Any] = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
    dask: Any = distributed
    with dask.Client(address) if address else dask.Client(**local) as client:
        of = {client.submit(attempt, run, deadline, pure=False): run for run in todo}
        suspects = []  # Dask blames all that waited at a worker for its death: each gets a second try, alone
        for future in dask.as_completed(of):
            if future.status == "error":
                suspects.append(of[future])
            else:
                yield _home(of[future], future.result)
        for run in suspects:
            yield _home(run, client.submit(attempt, run, deadline, pure=False).result)


def on_ray(todo: list[Run], deadline: float, jobs: int) -> Attempts:
    """A Ray cluster (RAY_ADDRESS), or one of `jobs` local processes."""
    try:
        import ray
    except ImportError:
        raise MissingDependency("--backend ray needs Ray: pip install ray") from None
    address = os.environ.get("RAY_ADDRESS")
    ray.init(address=address, num_cpus=None if address else jobs, log_to_driver=False, include_dashboard=False)
    try:
        remote = ray.remote(max_retries=1)(attempt)
        of = {remote.remote(run, deadline): run for run in todo}
        while of:
            (ready, *_), _ = ray.wait(list(of))
            yield _home(of.pop(ready), partial(ray.get, ready))
    finally:
        ray.shutdown()


def _home(run: Run, result: Callable[[], Any]) -> tuple[Run, dict[str, Any] | None, str]:
    """A worker's result, or what became of it: a worker that dies costs its run alone."""
    try:
        found: tuple[Run, dict[str, Any] | None, str] = result()
        return found
    except Exception as error:  # each cluster has errors of its own for a worker that died
        return run, None, f"{run.problem} #{run.seed}: {type(error).__name__}: {str(error).splitlines()[0][:200]}"


BACKENDS = {"loky": on_this_machine, "dask": on_dask, "ray": on_ray}


def add_sweep_arguments(parser: argparse.ArgumentParser, name: str, repeats: int) -> None:
    """The options that all sweeps share."""
    parser.add_argument("--repeats", type=int, default=None, help=f"runs per method and setting (default {repeats})")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="processes")
    parser.add_argument("--seed", type=int, default=SEED, help=f"seed of the first repeat (default {SEED})")
    parser.add_argument(
        "--backend", choices=list(BACKENDS), default="loky", help="this machine, or a cluster of that kind"
    )
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no further run after this time")
    parser.add_argument("--out", type=Path, default=Path("results") / name, help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="a version of a few minutes: 2 repeats, fewer methods")
