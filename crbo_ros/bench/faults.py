"""Kill, freeze and delay random nodes of a real graph at random moments, step their clocks, slow their disks down; then
look at what is left.

The plant is a witness (bench/witness.py). Every start must have been on the runner's record and on the monitor's before
it moved, every result must be in the store, once; and with one runner the data must be, bit for bit, what the same loop
gives undisturbed in one process. A runner that is held for a person is cleared by the bench, as a person would.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.clocks import Clocks
from crbo_ros.bench.in_process import read_data_file, run_in_process
from crbo_ros.bench.witness import PROMISES, Witness, account, ledger, moved, query, register
from crbo_ros.bringup.graph import RUNNER, NodeSpec, graph
from crbo_ros.bringup.processes import Graph, Process
from crbo_ros.clock import boottime
from crbo_ros.errors import PlantError
from crbo_ros.ros import qos
from crbo_ros.ros.link import RosLink

NAMESPACE = "faults"
PROMPTLY = 0.3  # s from Ctrl-C to the last step of every runner that is not frozen
EPISODE = 0.8  # s: longer than a monitor may be silent
PAUSE = 0.6  # s at most from a fault to the next sign of life, and from there to the next fault
ROUND = 600.0  # s after which an experiment that is not complete has failed
CLOCK_STEPS = {"clock -1 h": -3600, "clock +1 day": 86400}
SLOW_DISK = "slow disk"  # each fsync takes 0.4 s longer, for 2 s
KINDS = ("kill", "freeze 0.3 s", "freeze 3 s", "delay", SLOW_DISK, *CLOCK_STEPS)

UDP_PROFILE = """<dds xmlns="http://www.eprosima.com"><profiles>
  <transport_descriptors><transport_descriptor>
    <transport_id>loopback</transport_id><type>UDPv4</type>
    <interfaceWhiteList><address>127.0.0.1</address></interfaceWhiteList>
  </transport_descriptor></transport_descriptors>
  <participant profile_name="loopback" is_default_profile="true"><rtps>
    <userTransports><transport_id>loopback</transport_id></userTransports>
    <useBuiltinTransports>false</useBuiltinTransports>
  </rtps></participant>
</profiles></dds>
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--faults", type=int, default=300, help="in all")
    parser.add_argument("--runners", default="1,2,4", help="numbers of runners, each with its share of the faults")
    parser.add_argument("--episodes", type=int, default=30, help="of each experiment, for each runner")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ctrl-c", type=int, default=2, metavar="TIMES", help="end four runners in mid-rollout")
    parser.add_argument("--out", type=Path, default=Path("results/faults"))


def run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    os.environ["ROS_DOMAIN_ID"] = str(80 + os.getpid() % 20)
    numbers = [int(word) for word in args.runners.split(",")]
    rounds: list[dict[str, Any]] = []
    rng, began = np.random.default_rng(args.seed), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="crbo-faults-") as name:
        folder = Path(name)
        talk_by_udp(folder)
        register(folder)
        sys.path.append(name)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [name, os.environ.get("PYTHONPATH", "")]))
        clocks = Clocks(folder / "clocks")
        if reason := clocks.build():
            print(f"clocks are not stepped: {reason}")
        with tqdm(total=args.faults, unit="fault", file=sys.stderr) as bar:
            for index, runners in enumerate(numbers):
                left = args.faults // len(numbers) + (index < args.faults % len(numbers))
                while left > 0:
                    seed = args.seed + len(rounds)
                    storm = Storm(clocks, "" if reason else "clocks", rng, left, bar.update)
                    rounds.append(one_round(args, folder / f"round-{seed}", runners, seed, storm))
                    left -= sum(storm.done.values())
                    bar.set_postfix_str(f"{sum(len(r['problems']) for r in rounds)} problems")
        stops = [last_steps(folder / f"stop-{i}", clocks, frozen=i % 2 == 1) for i in range(2 * args.ctrl_c)]
    problems = report(args, numbers, rounds, stops, time.perf_counter() - began)
    return 1 if problems else 0


def talk_by_udp(folder: Path) -> None:
    """Nodes as on machines of their own, over loopback and without shared memory.

    So this bench says nothing about clock steps over Fast DDS's shared memory, which the discovery range LOCALHOST uses
    whatever FASTDDS_BUILTIN_TRANSPORTS says. There, runs under clock steps came to a standstill (nothing lost, nothing
    unapproved), for a reason that is not known; those under kills, freezes and delays completed.
    """
    (folder / "udp.xml").write_text(UDP_PROFILE)
    os.environ["FASTRTPS_DEFAULT_PROFILES_FILE"] = str(folder / "udp.xml")
    os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "SYSTEM_DEFAULT"
    os.environ["RMW_IMPLEMENTATION"] = "rmw_fastrtps_cpp"


class Storm:
    """Faults at random moments to random nodes, which overlap; `update` is called for each."""

    def __init__(
        self, clocks: Clocks, can_step: str, rng: np.random.Generator, left: int, update: Callable[[int], Any]
    ) -> None:
        self.clocks, self.rng, self.left, self.update = clocks, rng, left, update
        self.kinds = [kind for kind in KINDS if can_step or kind not in (*CLOCK_STEPS, SLOW_DISK)]
        self.done: Counter[str] = Counter()
        self._pool = ThreadPoolExecutor(8)
        self._busy: dict[str, Future[None]] = {}

    def strike(self, processes: Graph) -> None:
        """One fault, on a thread of its own, to a node that has none just now."""
        idle = [spec.name for spec in processes.specs if spec.name not in self._busy or self._busy[spec.name].done()]
        if self.left <= sum(self.done.values()) or not idle:
            return
        kind, name = str(self.rng.choice(self.kinds)), str(self.rng.choice(idle))
        pauses = self.rng.uniform(0.02, 0.2, 20).tolist()
        self.done[kind] += 1
        self._busy[name] = self._pool.submit(self._do, kind, name, processes, pauses)
        self.update(1)

    def _do(self, kind: str, name: str, processes: Graph, pauses: list[float]) -> None:
        process = processes.processes[name]
        if kind == "kill":
            process.kill()
            processes.start(name)
        elif kind in CLOCK_STEPS:
            self.clocks.step(name, CLOCK_STEPS[kind])
        elif kind == SLOW_DISK:
            self.clocks.slow_down(name, 400)
            time.sleep(2.0)
            self.clocks.slow_down(name, 0)
        else:
            seconds = {"freeze 0.3 s": [0.3, 0.0], "freeze 3 s": [3.0, 0.0]}.get(kind, pauses)
            for frozen, awake in zip(seconds[::2], seconds[1::2], strict=True):
                freeze(process, frozen)
                time.sleep(awake)

    def calm(self) -> None:
        """Wait for what is under way; an error of the bench's own is raised here."""
        self._pool.shutdown()
        for future in self._busy.values():
            future.result()


def freeze(process: Process, seconds: float) -> None:
    """A process that has ended is left alone."""
    if process.code is None:
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(seconds)
        if process.code is None:
            os.kill(process.pid, signal.SIGCONT)


class WatchedGraph(Graph):
    """A graph whose nodes have clocks that can be stepped."""

    def __init__(self, specs: list[NodeSpec], clocks: Clocks, said: list[str]) -> None:
        super().__init__(specs, namespace=NAMESPACE, say=said.append)
        self._clocks, self._one = clocks, threading.Lock()

    def start(self, name: str) -> Process:
        with self._one:
            before = dict(os.environ)
            os.environ.update(self._clocks.environment(name))
            try:
                return super().start(name)
            finally:
                os.environ.clear()
                os.environ.update(before)


class Operator:
    """A person who clears every runner that is held for one; counts how often, by the runner's reason."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.cleared: list[str] = []
        self.faults: list[str] = []
        self._statuses: dict[str, Any] = {}
        self._quit = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Operator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._quit.set()
        self._thread.join()

    def _work(self) -> None:
        from crbo_ros.msg import RunnerStatus

        with RosLink("operator", NAMESPACE) as link:

            def hear(status: Any) -> None:
                self._statuses[status.runner] = status

            link.node.create_subscription(RunnerStatus, "runner_status", hear, qos.LATCHED)
            while not self._quit.wait(0.3):
                for runner, status in list(self._statuses.items()):
                    if status.state in (RunnerStatus.HELD, RunnerStatus.ERROR):
                        self._statuses.pop(runner, None)
                        self._clear(link, runner, status)

    def _clear(self, link: RosLink, runner: str, status: Any) -> None:
        from crbo_ros.ros.operator import command

        try:
            answer = command(link, self.key, f"{runner}/operator", "clear", {}, 3.0, discovery=1.0)
        except PlantError:  # frozen or killed just now: it will say again what it wants
            return
        if answer.accepted:
            (self.faults if status.state == status.ERROR else self.cleared).append(f"{runner}: {status.message}")


def specs_for(folder: Path, runners: int, episodes: int, seed: int, seconds: float) -> list[NodeSpec]:
    """The graph, each runner with a witness of its own."""
    arguments = {"experiments_dir": str(folder.parent), "experiment": folder.name, "seed": str(seed)}
    arguments |= {"episodes": str(episodes), "runners": str(runners), "j_min_drop": "inf"}
    folder.mkdir(parents=True)
    specs = []
    for spec in graph("witness", arguments):
        options = {"folder": str(folder), "seconds": seconds}
        more: dict[str, Any] = {"task_options": options}
        if spec.executable == RUNNER:
            more = {"task_options": {**options, "runner": file_name(spec)}}
        specs.append(replace(spec, parameters={**spec.parameters, **more}))
    return specs


def file_name(spec: NodeSpec) -> str:
    return f"{NAMESPACE}.{spec.name}"


def one_round(args: argparse.Namespace, folder: Path, runners: int, seed: int, storm: Storm) -> dict[str, Any]:
    """One experiment under fire: what was done to it, what became of it, and problems in words."""
    episodes, said, problems = runners * args.episodes, list[str](), list[str]()
    specs = specs_for(folder, runners, episodes, seed, EPISODE)
    began, written = time.monotonic(), 0

    def size() -> int:
        return sum(path.stat().st_size for path in folder.glob("*.ledger"))

    with WatchedGraph(specs, storm.clocks, said) as processes, Operator(processes.key) as operator:
        processes.wait_for(lambda: size() > 0, 60.0)
        while time.monotonic() - began < ROUND and not complete(folder, episodes):
            before = written
            if processes.wait_for(lambda: size() > before, PAUSE):  # noqa: B023 (called at once): something moves again
                written = size()
            time.sleep(storm.rng.uniform(0.0, PAUSE))
            storm.strike(processes)
        storm.calm()
        if not processes.wait_for(lambda: all(p.code is not None for p in processes.of(RUNNER)), 60.0):
            problems.append(f"the run did not end: {[p.spec.name for p in processes.of(RUNNER) if p.code is None]}")
        codes = processes.end()
    problems += [f"{name} exited with {code}" for name, code in codes.items() if code]
    problems += [line for line in said if "Traceback" in line]
    problems += [f"a fault of the plant that there was not: {line}" for line in operator.faults]
    found = account(folder, {file_name(s): f"/{NAMESPACE}/{s.name}" for s in specs if s.executable == RUNNER})
    problems += found.sentences
    if runners == 1:  # with several the order of returns is a matter of chance
        reference = run_in_process(Witness(), folder / "here", episodes=episodes, seed=seed)
        data = read_data_file(folder / "experiment.sqlite")[1]
        if data != reference.data:
            same = sum(a == b for a, b in zip(data, reference.data, strict=False))
            problems.append(f"data differ: {len(data)} episodes, {same} of {len(reference.data)} as undisturbed")
    counts = found.counts + Counter({"held, cleared": len(operator.cleared)})
    counts.update({promise: len(sentences) for promise, sentences in found.broken.items()})
    if problems:
        (args.out / f"seed-{seed}").mkdir(parents=True, exist_ok=True)
        (args.out / f"seed-{seed}" / "log.txt").write_text("\n".join([*problems, "", *said]))
    return {
        "seed": seed, "runners": runners, "faults": dict(storm.done), "counts": dict(counts), "problems": problems,
        "seconds": time.monotonic() - began,
    }  # fmt: skip


def complete(folder: Path, episodes: int) -> bool:
    """Whether the store holds all returns."""
    found = query(folder / "experiment.sqlite", "SELECT count(*) FROM episodes WHERE value IS NOT NULL")
    return bool(found) and found[0][0] >= episodes


def last_steps(folder: Path, clocks: Clocks, *, frozen: bool) -> dict[str, Any]:
    """Four runners in mid-rollout, Ctrl-C: s until the last step of each; with one of them frozen, of the others.

    Negative: there was none any more.
    """
    specs = specs_for(folder, 4, 8, 1, 30.0)
    runners = [spec for spec in specs if spec.executable == RUNNER]
    with WatchedGraph(specs, clocks, []) as processes:
        if not processes.wait_for(lambda: all(boottime() - moved(folder, file_name(s)) < 0.1 for s in runners), 120.0):
            raise SystemExit("the four runners did not all begin")
        if frozen:
            os.kill(processes.processes[runners[0].name].pid, signal.SIGSTOP)
        told = boottime()
        processes.end()
    seconds = {s.name: moved(folder, file_name(s)) - told for s in runners[1 if frozen else 0 :]}
    starts = [line["time"] for s in runners for line in ledger(folder, file_name(s)) if line["event"] == "start"]
    return {"frozen": frozen, "seconds": seconds, "begun after": sum(start > told for start in starts)}


def report(
    args: argparse.Namespace,
    numbers: list[int],
    rounds: list[dict[str, Any]],
    stops: list[dict[str, Any]],
    seconds: float,
) -> list[str]:
    """Print the table and write it; all problems."""
    problems = [f"seed {r['seed']}, {r['runners']} runners: {problem}" for r in rounds for problem in r["problems"]]
    rows = [("fault", kind, "faults") for kind in KINDS]
    rows += [("", name, "counts") for name in ("starts", "ended", "interrupted", "held, cleared", "episodes")]
    rows += [("", promise, "counts") for promise in PROMISES]
    print(f"{'':24}" + "".join(f"{f'{n} runner' + 's' * (n > 1):>11}" for n in numbers) + f"{'all':>8}")
    for _, name, group in rows:
        cells = [sum(r[group].get(name, 0) for r in rounds if r["runners"] == n) for n in numbers]
        print(f"{name:24}" + "".join(f"{cell:11}" for cell in cells) + f"{sum(cells):8}")
    for stop in stops:
        names = ", ".join(f"{value:.3f}" for value in stop["seconds"].values())
        print(f"Ctrl-C, {'one of four frozen' if stop['frozen'] else 'four runners'}: last step after {names} s")
        problems += [
            f"{name} moved for {value:.2f} s after Ctrl-C"
            for name, value in stop["seconds"].items()
            if value > PROMPTLY
        ]
        problems += [f"{stop['begun after']} rollouts began after Ctrl-C"] if stop["begun after"] else []
    args.out.mkdir(parents=True, exist_ok=True)
    result = {"rounds": rounds, "ctrl_c": stops, "load": os.getloadavg(), "seconds": seconds, "problems": problems}
    (args.out / "faults.json").write_text(json.dumps(result, indent=1))
    for problem in problems:
        print(problem)
    count = sum(sum(r["faults"].values()) for r in rounds)
    print(
        f"{count} faults in {len(rounds)} experiments, seed {args.seed}: {len(problems)} problems "
        f"({seconds:.0f} s, load {os.getloadavg()[0]:.1f})"
    )
    return problems
