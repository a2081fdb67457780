"""Random schedules for the runner's loop in simulated time: `./crbo bench loop`.

The loop itself (protocol/runner.py), its gate and its permits are the real ones. Optimizer, monitor, disk, plant and
network are small models that keep their own promises and break everything else: messages are dropped, delayed, doubled
and reordered, processes are frozen, killed and started again, clocks jump, a second server appears, disks fill up,
plants break, operators stop and rearm. A ledger that sees everything checks, at the moment it happens, what
docs/PROTOCOL.md promises; afterwards all faults cease and the run must complete.
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
import random
import sys
import time
from collections.abc import Callable
from functools import partial

from crbo_ros.bench.simulated import Broken, Monitor, Optimizer, Runner, SimulatedProcess
from crbo_ros.protocol.ports import State

FAULTS_UNTIL, GIVE_UP = 8.0, 400.0  # s of simulated time


class World:
    """Time, a queue of what happens next, and the network."""

    def __init__(self, seed: int, *, runners: int = 1, budget: int = 3, faults: bool = True) -> None:
        self.rng, self.now, self.budget = random.Random(seed), 0.0, budget
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.calm = not faults
        self.optimizers = [Optimizer(self)]
        self.all_monitors: list[Monitor] = []  # also those that are gone
        self.monitors = [Monitor(self)]
        self.runners = [Runner(self, f"/r{i}") for i in range(runners)]
        self.measured: dict[str, tuple[str, float]] = {}  # episode_uid -> (runner, value) once it is on a disk
        if faults:
            for _ in range(self.rng.randint(1, 7)):
                self.at(self.rng.uniform(0.0, FAULTS_UNTIL), self._fault)
            self.at(FAULTS_UNTIL + 1.0, self._peace)

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._queue, (max(when, self.now), self._number, what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.at(self.now + seconds, what)

    def send(self, to: SimulatedProcess, what: Callable[[], None], most: float = 1.5) -> None:
        """A message: late, twice or never. A frozen process gets it when it thaws, a dead one does not."""
        copies = 1
        if not self.calm:
            draw = self.rng.random()
            copies = 0 if draw < 0.04 else 2 if draw < 0.08 else 1
        for _ in range(copies):
            slow = not self.calm and self.rng.random() < 0.1
            delay = self.rng.uniform(0.0, most) if slow else self.rng.uniform(0.0005, 0.01)
            self.after(delay, partial(to.deliver, to.life, what))

    def run(self) -> None:
        while self._queue and not self.complete():
            self.now, _, what = heapq.heappop(self._queue)
            if self.now > GIVE_UP:
                states = [(r.loop.state, r.loop.status.message) for r in self.runners]
                raise Broken(f"liveness: not complete after {GIVE_UP:g} s of which most in peace: {states}")
            what()
        self.check_end()

    def complete(self) -> bool:
        return self.calm and all(r.loop.state is State.DONE for r in self.runners)

    # -- faults ------------------------------------------------------------------------------------

    def _fault(self) -> None:
        rng = self.rng
        process = rng.choice([*self.optimizers, *self.monitors, *self.runners])
        runner = rng.choice(self.runners)
        kind = rng.choice(
            "kill freeze suspend jump stop quit disk break unsafe second_optimizer second_monitor lag finish".split()
        )
        if kind == "kill":
            process.kill(back_after=rng.uniform(0.0, 2.0))
        elif kind == "freeze":
            process.freeze(rng.choice([0.2, 0.7, 2.0, 6.0]))
        elif kind == "suspend":  # the whole machine sleeps; every clock has moved on when it wakes
            for one in [*self.optimizers, *self.monitors, *self.runners]:
                one.freeze(rng.choice([1.0, 40.0]))
        elif kind == "jump":  # no clock of ours does that; should one, no gate opens
            runner.offset += rng.choice([-3600.0, 3600.0, 86400.0])
        elif kind == "stop":
            monitor = rng.choice(self.monitors)
            monitor.armed, monitor.held_at = False, self.now
            self.after(rng.uniform(0.2, 2.0), monitor.rearm)
        elif kind == "quit":
            runner.quit()
        elif kind == "disk":
            runner.memory.full_until = self.now + rng.uniform(0.2, 3.0)
        elif kind == "break":
            runner.rig.broken = True
        elif kind == "unsafe":
            runner.rig.unsafe = True
        elif kind == "second_monitor" and len(self.monitors) == 1:
            self.monitors.append(Monitor(self))
            self.after(rng.uniform(0.5, 3.0), self._remove_second_monitor)
        elif kind == "second_optimizer" and len(self.optimizers) == 1:
            self.optimizers.append(Optimizer(self, "other"))
            self.after(rng.uniform(0.5, 3.0), self._remove_second_optimizer)
        elif kind == "lag":
            runner.lag_until = self.now + rng.uniform(0.3, 2.0)

    def _remove_second_monitor(self) -> None:
        for monitor in self.monitors[1:]:
            monitor.gone = True
            monitor.kill()
        del self.monitors[1:]

    def _remove_second_optimizer(self) -> None:
        for optimizer in self.optimizers[1:]:
            optimizer.gone = True
            optimizer.kill()
        del self.optimizers[1:]

    def _peace(self) -> None:
        """No more faults; what a person would put right is put right."""
        self.calm = True
        self._remove_second_monitor()
        self._remove_second_optimizer()
        for process in [*self.optimizers, *self.monitors, *self.runners]:
            process.thaw()
            if not process.alive:
                process.start()
        for monitor in self.monitors:
            monitor.rearm()
        for runner in self.runners:
            runner.memory.full_until, runner.rig.broken, runner.rig.unsafe = 0.0, False, False

    # -- the ledger's last look --------------------------------------------------------------------

    def check_end(self) -> None:
        store = self.optimizers[0]
        for runner in self.runners:
            for uid, execution in runner.memory.executions.items():
                if execution.end == "begun":
                    raise Broken(f"2: execution {uid} of proposal {execution.proposal_id} has no end")
            for uid in runner.memory.results:
                if uid not in store.results:
                    raise Broken(f"2: result {uid} is on the runner's disk and not in the store")
        for uid, (_, value) in self.measured.items():
            if store.results.get(uid, (0, math.nan))[1] != value:
                raise Broken(f"2: the measured result {uid} was lost")
        done = [offered for offered in store.offered if offered.result]
        if len({offered.result for offered in done}) != len(done):
            raise Broken("2: one result counts for two proposals")
        if sum(value == value for _, value in store.results.values()) < self.budget:
            raise Broken("liveness: the budget was not used up")


# -- the bench -----------------------------------------------------------------------------------------


def try_schedule(seed: int) -> str:
    """One schedule; what was broken, or ""."""
    rng = random.Random(seed)
    world = World(seed, runners=rng.choice([1, 1, 2, 3]), budget=rng.choice([1, 2, 3, 4]))
    try:
        world.run()
    except Broken as broken:
        return f"seed {seed} at {world.now:.3f} s: {broken}"
    except Exception as error:
        return f"seed {seed} at {world.now:.3f} s: {type(error).__name__}: {error}"
    return ""


def try_schedules(seeds: range) -> list[str]:
    return [broken for seed in seeds if (broken := try_schedule(seed))]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--schedules", type=int, default=100_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")


def run(args: argparse.Namespace) -> int:
    from concurrent.futures import ProcessPoolExecutor

    from tqdm import tqdm

    chunks = [
        range(s, min(s + 250, args.seed + args.schedules)) for s in range(args.seed, args.seed + args.schedules, 250)
    ]
    broken: list[str] = []
    began = time.perf_counter()
    with ProcessPoolExecutor(args.jobs) as pool, tqdm(total=args.schedules, unit="schedule", file=sys.stderr) as bar:
        for chunk, found in zip(chunks, pool.map(try_schedules, chunks), strict=True):
            broken += found
            bar.update(len(chunk))
            bar.set_postfix_str(f"{len(broken)} broken")
    for line in broken[:20]:
        print(line)
    seconds, load = time.perf_counter() - began, os.getloadavg()[0]
    print(
        f"{args.schedules} schedules from seed {args.seed}: {len(broken)} violations ({seconds:.0f} s, load {load:.1f})"
    )
    return 1 if broken else 0
