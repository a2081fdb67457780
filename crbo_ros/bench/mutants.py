"""Do the tests bite? Small wrong changes in what keeps the promises, one at a time: how many do the quick tests kill?

    ./crbo bench mutants --count 400 --seed 1              # a sample over all modules
    ./crbo bench mutants --module protocol/gate --all

What a mutant is stands in bench/mutations.py. The quick tests are collected once and run once under `coverage`, which
tells which of them reach which line. Each mutant is a fork of that process: it gets the changed function, runs the
tests that reach the line (first those that killed others of this module, then the quickest) and ends at the first one
that fails. Killed: a test fails, or hangs. What is done lies in --out: a killed mutant is not tried again while its
function and the test that killed it are what they were, a survivor not while the same tests reach it. Survivors that
somebody has looked at and found harmless stand in test/mutants.json with the reason, and are counted apart.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import inspect
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.bench.mutations import ROOT, Mutant, functions_of, mutants, mutate

JUDGED = ROOT / "test" / "mutants.json"
TESTS = (
    "protocol", "core", "ros/test_convert.py", "ros/test_throttle.py", "plants/test_host_loop.py",
    "commands/test_inspect_export.py", "nodes/test_rig.py",
)  # fmt: skip
BESIDE_THE_PROTOCOL = ("core/account", "core/bound", "core/contract", "ros/convert", "plants/host", "nodes/rig")
KILLED, SURVIVED, UNREACHED, IMPOSSIBLE = "killed", "survived", "reached by no test", "cannot be made"
MEMORY = "/dev/shm"
BUDGET = 6.0  # s of CPU of tests for one mutant, as they took unchanged; the slowest are left out beyond it
Reached = dict[str, dict[str, Any]]  # test -> its state, its seconds of CPU, lines by module, the modules' states
Fate = list[str]  # what became of a mutant, then its function's state and the killer with its state, or its tests'


def modules() -> list[str]:
    """What keeps the promises: all of protocol/, and what decides and stops beside it."""
    found = [f"protocol/{path.stem}" for path in sorted((ROOT / "crbo_ros" / "protocol").glob("*.py"))]
    return [name for name in found if not name.endswith("__init__")] + list(BESIDE_THE_PROTOCOL)


def state_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Session:
    """A pytest plugin: has the tests collected and hands them over instead of running them."""

    def __init__(self, work: Callable[[dict[str, Any]], None]) -> None:
        self.work = work

    def pytest_runtestloop(self, session: Any) -> bool:
        self.work({item.nodeid: item for item in session.items if not item.get_closest_marker("skip")})
        return True


def passes(item: Any) -> bool:
    """Run one test with its fixtures."""
    from _pytest.runner import runtestprotocol

    return all(report.outcome != "failed" for report in runtestprotocol(item, log=False, nextitem=None))


def fork(work: Callable[[], int], limit: float) -> int:
    """The exit code of `work` in a copy of this process, in which nothing is written; -1: it hangs or it died."""
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.setpgid(0, 0)
        code = 77
        try:
            code = work()
        finally:
            os._exit(code)
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def reach(items: dict[str, Any], out: Path) -> Reached:
    """Which lines each test reaches, by coverage; a test runs again when it, or what it reached, has changed."""
    file = out / "reached.json"
    known: Reached = json.loads(file.read_text()) if file.exists() else {}
    states = {name: state_of(inspect.getsource(item.function)) for name, item in items.items()}
    now = {module: state_of((ROOT / "crbo_ros" / f"{module}.py").read_text()) for module in modules()}
    found = {
        name: test
        for name, test in known.items()
        if states.get(name) == test["state"] and all(now.get(m) == was for m, was in test["modules"].items())
    }
    if fresh := {name: item for name, item in items.items() if name not in found}:
        part = file.with_suffix(f".{os.getpid()}.part")
        ended = fork(lambda: _cover(fresh, states, now, part), 1200.0)
        if ended or not part.exists():
            raise SystemExit(f"crbo: the tests under coverage ended with {ended}; do they pass?")
        found |= json.loads(part.read_text())
        part.write_text(json.dumps(found))
        part.replace(file)
    return found


def _cover(items: dict[str, Any], states: dict[str, str], now: dict[str, str], file: Path) -> int:
    import coverage

    include = {module: str(ROOT / "crbo_ros" / f"{module}.py") for module in modules()}
    recorder = coverage.Coverage(data_file=None, include=list(include.values()), config_file=False)
    found: Reached = {}
    recorder.start()
    for name, item in items.items():
        recorder.switch_context(name)
        begun = time.process_time()
        if passes(item):  # one that fails unchanged would kill everything
            seconds = time.process_time() - begun
            found[name] = {"state": states[name], "seconds": seconds, "lines": defaultdict(list), "modules": {}}
    recorder.stop()
    for module, path in include.items():
        for line, names in recorder.get_data().contexts_by_lineno(path).items():
            for name in names:
                if name in found:
                    found[name]["lines"][module].append(line)
                    found[name]["modules"][module] = now[module]
    file.write_text(json.dumps(found))
    return 0


class Trier:
    """Tries the mutants of one module on the tests that reach them."""

    def __init__(self, module: str, items: dict[str, Any], reached: Reached, file: Path) -> None:
        self.items, self.reached, self.file = items, reached, file
        self.functions = functions_of(module)
        self.of_line: dict[int, list[str]] = defaultdict(list)
        for name in sorted(reached, key=lambda name: float(reached[name]["seconds"])):
            for line in reached[name]["lines"].get(module, []):
                self.of_line[line].append(name)
        self.done: dict[str, Fate] = json.loads(file.read_text()) if file.exists() else {}
        self.killers: Counter[str] = Counter()

    def try_one(self, mutant: Mutant) -> None:
        tests = self.of_line[mutant.line]
        if self._stands(mutant, tests):
            return
        fate, killer = self._judge(mutant, tests)
        self.killers[killer] += 1
        rest = [killer, self.reached[killer]["state"]] if killer else [self._state(tests)]
        self.done[mutant.name] = [fate, mutant.state, *rest]
        self.file.write_text(json.dumps(self.done))
        if fate != KILLED:
            print(f"{fate}: {mutant.name}   (line {mutant.line})", flush=True)

    def knows(self, mutant: Mutant) -> bool:
        """Whether it was tried, with its function as it is now."""
        return self.done.get(mutant.name, ["", ""])[1] == mutant.state

    def settled(self, mutant: Mutant) -> bool:
        """Whether it was killed, or never tried."""
        return not self.knows(mutant) or self.done[mutant.name][0] == KILLED

    def _stands(self, mutant: Mutant, tests: list[str]) -> bool:
        """What was found before, of the same function by the same tests."""
        fate, state, *rest = self.done.get(mutant.name, ["", "", ""])
        if state != mutant.state:
            return False
        if fate == KILLED and len(rest) == 2:
            return rest[0] in self.reached and self.reached[rest[0]]["state"] == rest[1]
        return rest == [self._state(tests)]

    def _state(self, tests: list[str]) -> str:
        return state_of("".join(sorted(name + str(self.reached[name]["state"]) for name in tests)))

    def _judge(self, mutant: Mutant, tests: list[str]) -> tuple[str, str]:
        """(what became of it, the test that killed it if one did)."""
        chosen, total = list[str](), 0.0
        for name in sorted(tests, key=lambda name: -self.killers[name]):
            if total + self.reached[name]["seconds"] < BUDGET:
                chosen.append(name)
                total += self.reached[name]["seconds"]
        if not chosen:
            return UNREACHED, ""
        reached = multiprocessing.RawValue("i", 0)

        def attempt() -> int:
            try:
                mutate(mutant, self.functions)
            except ValueError:
                return 3
            for number, name in enumerate(chosen):
                reached.value = number
                if not passes(self.items[name]):
                    return 1
            return 0

        code = fork(attempt, 20.0 + 20.0 * total)  # (a busy machine)
        if code in (0, 3):
            return (SURVIVED, "") if code == 0 else (IMPOSSIBLE, "")
        return KILLED, chosen[reached.value]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=400, help="mutants to try, spread over all modules")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--module", nargs="+", choices=modules(), help="only these")
    parser.add_argument("--all", action="store_true", help="every mutant instead of a sample")
    parser.add_argument("--again", action="store_true", help="only those that survived before")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after so long")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "mutants", help="what is done already")
    parser.add_argument("--list", action="store_true", help="only count what there is")


def sample(chosen: list[str], count: int, seed: int, everything: bool) -> dict[str, set[str]]:
    """The names of the mutants to try, by module."""
    found = [(module, mutant.name) for module in chosen for mutant in mutants(module)]
    order = np.random.default_rng(seed).permutation(len(found))
    wanted: dict[str, set[str]] = {module: set() for module in chosen}
    for i in order if everything else order[:count]:
        wanted[found[i][0]].add(found[i][1])
    return wanted


def run(args: argparse.Namespace) -> int:
    import pytest
    from hypothesis import Phase, settings

    chosen = sample(args.module or modules(), args.count, args.seed, args.all)
    if args.list:
        print("\n".join(f"{module:24}{len(names):6}" for module, names in chosen.items()))
        return 0
    phases = (Phase.explicit, Phase.generate)  # that a test fails is enough; nobody needs the smallest example
    settings.register_profile("mutants", database=None, derandomize=True, phases=phases)
    settings.load_profile("mutants")
    args.out.mkdir(parents=True, exist_ok=True)
    fates: dict[str, dict[str, str]] = {}
    os.chdir(ROOT)
    sys.dont_write_bytecode = True

    def work(items: dict[str, Any]) -> None:
        fates.update(try_all(chosen, items, args))

    memory = MEMORY if os.access(MEMORY, os.W_OK) else None  # stores wait for the disk after every row
    with tempfile.TemporaryDirectory(prefix="crbo-mutants-", dir=memory) as scratch:
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        paths = [str(ROOT / "test" / test) for test in TESTS if (ROOT / "test" / test).exists()]
        options = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
        pytest.main([*options, f"--basetemp={scratch}/t", *paths], [Session(work)])
    return report(fates)


def try_all(chosen: dict[str, set[str]], items: dict[str, Any], args: argparse.Namespace) -> dict[str, dict[str, str]]:
    """module -> mutant -> what became of it, as far as the time allows."""
    reached, end = reach(items, args.out), time.monotonic() + 60.0 * args.minutes
    triers = {module: Trier(module, items, reached, args.out / f"{module.replace('/', '-')}.json") for module in chosen}
    gc.freeze()  # or each fork would copy what a collection only looks at
    found: dict[str, dict[str, str]] = {}
    for module, names in chosen.items():
        trier = triers[module]
        for mutant in mutants(module):
            if mutant.name in names and time.monotonic() < end and not (args.again and trier.settled(mutant)):
                trier.try_one(mutant)
            if mutant.name in names and trier.knows(mutant):
                found.setdefault(module, {})[mutant.name] = trier.done[mutant.name][0]
    return found


def report(fates: dict[str, dict[str, str]]) -> int:
    """Print the score, module by module."""
    judged = json.loads(JUDGED.read_text()) if JUDGED.exists() else {}
    total: Counter[str] = Counter()
    print(f"{'':26}{'tried':>7}{'killed':>8}{'harmless':>10}{'survived':>10}{'unreached':>11}{'score':>9}")
    for module, found in fates.items():
        counts = Counter("harmless" if fate in (SURVIVED, UNREACHED) and name in judged else fate
                         for name, fate in found.items() if fate != IMPOSSIBLE)  # fmt: skip
        _print(module, counts)
        total.update(counts)
    score = _print("all", total)
    known = {mutant.name for module in {key.split()[0] for key in judged} for mutant in mutants(module)}
    if gone := sorted(judged.keys() - known):
        print(f"{len(gone)} entries of {JUDGED.name} are of no mutant any more:", *gone, sep="\n  ")
    return 0 if score >= 0.9 else 1


def _print(name: str, counts: Counter[str]) -> float:
    tried = sum(counts.values())
    score = counts[KILLED] / max(tried - counts["harmless"], 1)
    row = f"{tried:7}{counts[KILLED]:8}{counts['harmless']:10}{counts[SURVIVED]:10}{counts[UNREACHED]:11}"
    print(f"{name:26}{row}{score:9.1%}")
    return score
