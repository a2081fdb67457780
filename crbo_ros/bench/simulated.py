"""Models of everything around the runner's loop, in simulated time: optimizer, monitor, disk, plant, and its process.

Each keeps its own promises, may be killed, frozen and started again, and a ledger that sees everything checks what
docs/PROTOCOL.md promises at the moment it happens. bench/loop.py makes a world of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from crbo_ros.core.trial import theta_hash
from crbo_ros.errors import StoreError
from crbo_ros.protocol import ports
from crbo_ros.protocol.gate import HELD, Gate, Permit
from crbo_ros.protocol.ports import Answer, Command, Limits, Progress, Ran, Receipt, Safe, Stage, State
from crbo_ros.protocol.records import APPROVED, COMPLETED, FAILED, STOPPED, VETOED, WAITING, Episode, Offer, Verdict
from crbo_ros.protocol.runner import EpisodeLoop

if TYPE_CHECKING:
    from crbo_ros.bench.loop import World

TIMEOUT, BEAT = 0.5, 0.2  # s
DELAY = 0.25  # s, the most that a heartbeat is under way
VALID = 1.0  # s, less than an answer may take
LEASE = 30.0  # s
STEP = 0.1  # s between two control steps of the plant
HASHES = [theta_hash(np.array([float(id)])) for id in range(200)]
LIMITS = Limits(answer=2.0, patience=1.0, recheck=0.7, renew=1.0, look=0.2, retry=0.5, farewell=1.0, safe=3.0)


class Broken(AssertionError):
    """A promise was broken; the message says which and when."""


@dataclass
class Offered:
    """A proposal in the optimizer's store."""

    runner: str
    request_id: str
    status: str = "pending"
    leased_until: float = math.inf
    result: str = ""


class SimulatedProcess:
    """Something that can be killed, frozen and started again."""

    def __init__(self, world: World) -> None:
        self.world, self.alive, self.life, self.frozen_until = world, True, 0, 0.0
        self.gone = False  # for good
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    @property
    def frozen(self) -> bool:
        return self.world.now < self.frozen_until

    def deliver(self, life: int, what: Callable[[], None]) -> None:
        if not self.alive or life != self.life:
            return
        if self.frozen:
            self._waiting.append((life, what))
        else:
            what()

    def every(self, seconds: float, what: Callable[[], None]) -> None:
        """A timer of this life; it stands still while the process is frozen."""
        life = self.life

        def tick() -> None:
            if self.alive and self.life == life:
                if not self.frozen:
                    what()
                self.world.after(seconds, tick)

        self.world.after(seconds, tick)

    def freeze(self, seconds: float) -> None:
        self.frozen_until = max(self.frozen_until, self.world.now + seconds)
        self.world.at(self.frozen_until, self.thaw)

    def thaw(self) -> None:
        if self.frozen and not self.world.calm:
            return
        self.frozen_until = 0.0
        waiting, self._waiting = self._waiting, []
        if self.alive:
            for life, what in waiting:
                self.deliver(life, what)
            self.thawed()

    def thawed(self) -> None:
        """Once more under way."""

    def kill(self, back_after: float | None = None) -> None:
        self.alive, self._waiting, self.frozen_until = False, [], 0.0
        self.life += 1
        if back_after is not None:
            self.world.after(back_after, self._back)

    def _back(self) -> None:
        if not self.alive and not self.gone:
            self.start()

    def start(self) -> None:
        self.alive = True
        self.life += 1


class Optimizer(SimulatedProcess):
    """The optimizer's side of the protocol: a store that survives, leases that do not."""

    def __init__(self, world: World, name: str = "ours") -> None:
        super().__init__(world)
        self.name = name
        self.offered: list[Offered] = []
        self.results: dict[str, tuple[int, float]] = {}
        self.every(1.0, self._expire)

    def start(self) -> None:
        super().start()
        for offered in self.offered:
            offered.leased_until = self.world.now + LEASE
        self.every(1.0, self._expire)

    def _expire(self) -> None:
        for offered in self.offered:
            if offered.status == "pending" and self.world.now > offered.leased_until:
                offered.status = "expired"

    def offer(self, id: int) -> Offer:
        theta = np.array([float(id)])
        return Offer(self.name, f"uid-{self.name}", "", id, theta, HASHES[id], "test", lease=LEASE)

    def propose(self, runner: Runner, nonce: str, request_id: str) -> None:
        answer = self._answer(runner.name, request_id)
        self.world.send(runner, partial(runner.on_proposed, nonce, answer))

    def _answer(self, runner: str, request_id: str) -> Answer:
        for id, offered in enumerate(self.offered):
            if (offered.runner, offered.request_id) == (runner, request_id):
                if offered.status != "pending":
                    return Answer(ports.REFUSED, f"has ended ({offered.status})", experiment=self.name)
                offered.leased_until = self.world.now + LEASE
                return Answer(ports.OK, offer=self.offer(id), experiment=self.name)
        counted = sum(math.isfinite(value) for _, value in self.results.values())
        pending = sum(offered.status == "pending" for offered in self.offered)
        if counted >= self.world.budget:
            return Answer(ports.DONE, "all done", offer=self.offer(0), experiment=self.name)
        if counted + pending >= self.world.budget:
            return Answer(ports.WAIT, "the rest is pending", 0.3, experiment=self.name)
        self.offered.append(Offered(runner, request_id, leased_until=self.world.now + LEASE))
        return Answer(ports.OK, offer=self.offer(len(self.offered) - 1), experiment=self.name)

    def record(self, runner: Runner, episode: Episode) -> None:
        receipt = self._receipt(episode)
        self.world.send(runner, partial(runner.on_acknowledged, episode.episode_uid, receipt))

    def _receipt(self, episode: Episode) -> Receipt:
        if episode.experiment_uid != f"uid-{self.name}":
            return Receipt(ports.REFUSED, "another experiment")
        if episode.episode_uid in self.results:
            return Receipt(ports.DUPLICATE)
        offered = self.offered[episode.proposal_id]
        if offered.result:
            raise Broken(f"2: two results for proposal {episode.proposal_id}")
        offered.result, offered.status = episode.episode_uid, episode.outcome
        self.results[episode.episode_uid] = (episode.proposal_id, episode.value)
        return Receipt(ports.ACCEPTED)

    def renew(self, runner: str, id: int) -> None:
        if id < len(self.offered) and self.offered[id].runner == runner:
            self.offered[id].leased_until = self.world.now + LEASE


class Monitor(SimulatedProcess):
    """The monitor's side: heartbeats, verdicts, stop and rearm."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.armed, self.held_at, self.uid, self.sent, self.started = True, math.inf, "", 0.0, 0.0
        world.all_monitors.append(self)
        self.approvals: dict[str, tuple[str, str, str]] = {}  # verdict_id -> (uid, runner, theta_hash)
        self.start()

    def start(self) -> None:
        super().start()
        self.uid, self.started = f"m{len(self.world.all_monitors)}-{self.life}", self.world.now
        self.every(BEAT, self._beat)

    def _beat(self) -> None:
        self.sent = self.world.now
        for runner in self.world.runners:
            self.world.send(runner, partial(runner.on_beat, self.uid, self.armed), DELAY)

    def rearm(self) -> None:
        self.armed, self.held_at = True, math.inf

    def check(self, runner: Runner, nonce: str, offer: Offer) -> None:
        draw = self.world.rng.random()
        status = WAITING if not self.armed or draw < 0.1 else VETOED if draw < 0.2 else APPROVED
        number = f"v{len(self.approvals)}-{self.uid}-{self.world.rng.random()}"
        verdict = Verdict(
            status, offer.experiment_uid, offer.id, offer.theta_hash, runner.name, "", self.uid, number,
            valid_for=VALID, nonce=nonce,
        )  # fmt: skip
        if status == APPROVED:
            self.approvals[number] = (self.uid, runner.name, offer.theta_hash)
        self.world.send(runner, partial(runner.on_judged, nonce, verdict))


@dataclass
class Execution:
    """A row of the runner's disk."""

    request_id: str
    proposal_id: int
    verdict_id: str
    end: str = "begun"


class SimulatedDisk:
    """The spool's promises in memory: it survives its runner, and may be full."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.world, self.full_until = runner, runner.world, 0.0
        self.tries: list[str] = []  # requests of what was begun since a person last looked
        self.request, self._count, self.latched = "", 0, ""
        self.executions: dict[str, Execution] = {}
        self.results: dict[str, Episode] = {}
        self.settled: set[str] = set()

    def _write(self) -> None:
        if self.world.now < self.full_until:
            raise StoreError("disk full")

    def request_id(self) -> str:
        return self.request or self._next()

    def _next(self) -> str:
        self._count += 1
        self.request = f"q{self._count}"
        return self.request

    def new_request(self) -> str:
        return self._next()

    def begin(self, episode_uid: str, request_id: str, offer: Offer, verdict_id: str) -> None:
        self._write()
        if verdict_id in {execution.verdict_id for execution in self.executions.values()}:
            raise Broken(f"1: verdict {verdict_id} is used twice")
        self.executions[episode_uid] = Execution(request_id, offer.id, verdict_id)
        self.tries = [*self.tries, request_id]
        if self.tries.count(request_id) > 1 + LIMITS.repeats:
            raise Broken(f"2: proposal {offer.id} begins once more, and nobody has looked")
        if self.breaks(request_id) >= LIMITS.breaks:
            raise Broken(f"3: proposal {offer.id} begins again after the plant failed under it three times")
        if not self.world.calm and self.world.rng.random() < 0.05:  # a slow disk
            self.runner.lag_until = self.world.now + self.world.rng.uniform(0.0, 2.0)

    def interrupt(self, episode_uid: str, reason: str, broken: bool = False) -> None:
        self._write()
        if self.executions[episode_uid].end == "begun":
            self.executions[episode_uid].end = "broken" if broken else "interrupted"

    def breaks(self, request_id: str) -> int:
        return sum(e.request_id == request_id and e.end == "broken" for e in self.executions.values())

    def latch(self, fault: str) -> None:
        self._write()
        self.latched = fault

    def fault(self) -> str:
        return self.latched

    def recover(self) -> int:
        begun = [execution for execution in self.executions.values() if execution.end == "begun"]
        for execution in begun:
            execution.end = "interrupted"
        return len(begun)

    def interruptions(self, request_id: str) -> int:
        return sum(e.request_id == request_id and e.end == "interrupted" for e in self.executions.values())

    def forgive(self, request_id: str) -> None:
        self._write()
        for execution in self.executions.values():
            if execution.request_id == request_id and execution.end == "interrupted":
                execution.end = "forgiven"

    def add(self, episode: Episode) -> str:
        self._write()
        if episode.episode_uid in self.results:
            raise Broken(f"2: result {episode.episode_uid} is kept twice")
        execution = self.executions.get(episode.episode_uid)
        if execution is not None:
            if execution.end != "begun":
                raise Broken(f"2: execution {episode.episode_uid} ended as {execution.end} and has a result")
            execution.end = "ended"
            ran = self.runner.rig.progress.ran
            if episode.outcome == STOPPED and (ran is None or ran.stopped_by != HELD):
                raise Broken("2: somebody else's fault ended a proposal")
        elif episode.counts:
            raise Broken("1: a result of something that never began")
        self.results[episode.episode_uid] = episode
        if episode.counts:
            self.world.measured[episode.episode_uid] = (episode.runner, episode.value)
        return self._next()

    def pending(self) -> list[Episode]:
        return [episode for uid, episode in self.results.items() if uid not in self.settled]

    def settle(self, episode_uid: str, state: str, answer: str = "") -> None:
        self._write()
        if state == "refused":
            raise Broken(f"2: the result {episode_uid} was refused: {answer}")
        self.settled.add(episode_uid)


class SimulatedRig:
    """A plant that resets, runs some steps under its permit, may break, and may not be known to be safe."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.world = runner, runner.world
        self.broken = self.unsafe = False
        self.progress = Progress(Stage.IDLE)
        self.fault = ""  # since a broken plant was seen, until a person looked
        self.permit: Permit | None = None
        self.generation = 0
        self.stops = 0

    def prepare(self, offer: Offer) -> None:
        if self.fault:
            raise Broken(f"3: prepares although {self.fault}")
        self.offer, self.permit = offer, None
        self._set(Stage.PREPARING)
        self._later(self.world.rng.uniform(0.0, 0.4), self._prepared)

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        generation, life = self.generation, self.runner.life

        def go() -> None:
            if self.generation == generation and self.runner.life == life and self.runner.alive:
                if self.runner.frozen:  # the plant's own process froze with it: it goes on when that thaws
                    self.world.at(self.runner.frozen_until, go)
                else:
                    what()

        self.world.after(seconds, go)

    def _set(self, stage: Stage, ran: Ran | None = None, reason: str = "") -> None:
        self.progress = Progress(stage, ran, reason)
        self.runner.wake()

    def _break(self) -> bool:
        if self.broken:
            self.generation += 1
            self.fault = "the plant broke"
            self._set(Stage.BROKEN, reason=self.fault)
        return self.broken

    def _prepared(self) -> None:
        if not self._break():
            self._set(Stage.PREPARED)

    def begin(self, permit: Permit) -> None:
        now = self.runner.clock()
        if self.fault or self.runner.told_to_quit:
            raise Broken(f"{'3' if self.fault else '4'}: begins although {self.fault or 'told to quit'}")
        if permit.refusal(now) is not None or self.progress.stage is not Stage.PREPARED:
            raise Broken(f"1: begins against {permit.refusal(now)} in {self.progress.stage}")
        self.check_truth(permit, beginning=True)
        if permit.verdict.verdict_id not in {e.verdict_id for e in self.runner.memory.executions.values()}:
            raise Broken("1: begins before that is on disk")
        self.permit, self.left = permit, self.world.rng.randint(1, 12)
        self._set(Stage.RUNNING)
        self._later(0.0, self._step)

    def check_truth(self, permit: Permit, beginning: bool = False) -> None:
        """What somebody who sees everything says of this permit."""
        verdict, world = permit.verdict, self.world
        monitors = [m for m in world.all_monitors if verdict.verdict_id in m.approvals]
        if not monitors:
            raise Broken("1: moves without an approval on any monitor's record")
        monitor = monitors[0]
        if monitor.approvals[verdict.verdict_id] != (verdict.monitor_uid, self.runner.name, self.offer.theta_hash):
            raise Broken("1: moves under an approval for something else")
        late = TIMEOUT + DELAY + 1e-6
        if world.now - monitor.sent > late:
            raise Broken(f"1: moves {world.now - monitor.sent:.2f} s after the monitor's last heartbeat")
        if monitor.uid != verdict.monitor_uid and world.now - monitor.started > late + BEAT:
            raise Broken("1: moves under the approval of a monitor that was started again since")
        if world.now - monitor.held_at > late + BEAT:
            raise Broken(f"1: moves {world.now - monitor.held_at:.2f} s after the monitor was told to stop")
        if beginning and world.now - self.runner.asked_at.get(verdict.nonce, -math.inf) > VALID + 1e-6:
            raise Broken("1: begins under an approval that is too old")

    def _step(self) -> None:
        assert self.permit is not None
        if self._break():
            return
        now = self.runner.clock()
        if (obstacle := self.permit.obstacle(now)) is not None:
            self._end(Ran(STOPPED, reason=obstacle.reason, stopped_by=obstacle.kind))
            return
        self.check_truth(self.permit)
        self.left -= 1
        if self.left <= 0:
            failed = self.world.rng.random() < 0.1
            self._end(Ran(FAILED, reason="fell") if failed else Ran(COMPLETED, self.world.rng.random(), steps=1))
        else:
            self._later(STEP, self._step)

    def _end(self, ran: Ran) -> None:
        self.generation += 1
        self._set(Stage.ENDED, ran)

    def look(self) -> Progress:
        return self.progress

    def stop(self, kind: str, reason: str) -> None:
        self.stops += 1
        if self.progress.stage in (Stage.PREPARING, Stage.PREPARED, Stage.RUNNING):
            self._end(Ran(STOPPED, reason=reason, stopped_by=kind))

    def safe(self) -> Safe:
        if self.unsafe:
            self.fault = "it is not known to be safe"
        return Safe(not self.unsafe, self.fault)

    def cleared(self) -> None:
        """A person has looked and put it right."""
        self.broken = self.unsafe = False
        self.fault = ""

    def rest(self, theta: np.ndarray) -> None:
        """Nothing to keep."""


class Runner(SimulatedProcess):
    """A process with the real loop in it. Its clock may differ from the world's; its disk survives it."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world)
        self.name, self.offset, self.lag_until = name, world.rng.uniform(0.0, 1e6), 0.0
        self.memory = SimulatedDisk(self)
        self.asked_at: dict[str, float] = {}
        self.told_to_quit = False
        self._make()

    def _make(self) -> None:
        self.gate, self.rig = Gate(TIMEOUT), SimulatedRig(self)
        self.told_to_quit = False
        self.loop = EpisodeLoop(
            self.name, self.memory, self, self.rig, self.gate, LIMITS, experiment="ours", stamp=lambda: 0.0
        )
        self._next = self.world.now
        self.wake()
        self.every(1.5, self._operator)

    def start(self) -> None:
        broken, unsafe = self.rig.broken, self.rig.unsafe
        super().start()
        self._make()
        self.rig.broken, self.rig.unsafe, self.rig.fault = broken, unsafe, self.memory.latched

    def clock(self) -> float:
        return self.world.now + self.offset

    def wake(self) -> None:
        life = self.life
        self._next = self.world.now
        self.world.after(0.0, partial(self._turn, life, self._next))

    def thawed(self) -> None:
        self.wake()

    def _turn(self, life: int, when: float) -> None:
        if not self.alive or life != self.life or when < self._next or self.frozen:
            return
        if self.world.now < self.lag_until:  # the machine is busy
            self._next = self.lag_until
            self.world.at(self.lag_until, partial(self._turn, life, self.lag_until))
            return
        pause = self.loop.step(self.clock())
        if self.loop.state is State.ENDED:
            self.kill(back_after=self.world.rng.uniform(0.0, 1.0))
            return
        self._next = self.world.now + max(min(pause, 5.0), 0.002)
        self.world.at(self._next, partial(self._turn, life, self._next))

    def _operator(self) -> None:
        """A person who looks now and then."""
        if self.loop.state in (State.HELD, State.FAULT):
            self.rig.cleared()
            self.memory.tries = []
            give_back = self.world.rng.random() < 0.2
            self.loop.told(Command.GIVE_BACK if give_back else Command.CLEAR)
            self.wake()

    def quit(self) -> None:
        if not self.alive or self.frozen:
            return
        stops, self.told_to_quit = self.rig.stops, True
        self.loop.told(Command.QUIT)
        if self.rig.stops == stops or self.rig.progress.stage is Stage.RUNNING:
            raise Broken("4: told to quit, and the plant was not stopped in the same call")
        self.wake()

    # -- the loop's link ---------------------------------------------------------------------------

    def obstacle(self, whom: str) -> str:
        world = self.world
        servers = world.optimizers if whom == ports.OPTIMIZER else world.monitors
        alive = sum(server.alive for server in servers)
        if alive > 1 and world.rng.random() < 0.7:  # discovery takes its time
            return "is not the only one"
        return "" if alive else "is not there"

    def propose(self, nonce: str, request_id: str) -> None:
        for optimizer in self.world.optimizers:
            self.world.send(optimizer, partial(optimizer.propose, self, nonce, request_id))

    def check(self, nonce: str, offer: Offer, recent: Sequence[Episode]) -> None:
        self.asked_at[nonce] = self.world.now
        for monitor in self.world.monitors:
            self.world.send(monitor, partial(monitor.check, self, nonce, offer))

    def report(self, episode: Episode) -> None:
        self.world.send(self.world.optimizers[0], partial(self.world.optimizers[0].record, self, episode))

    def renew(self, offer: Offer) -> None:
        optimizer = self.world.optimizers[0]
        self.world.send(optimizer, partial(optimizer.renew, self.name, offer.id))

    # -- what comes back ---------------------------------------------------------------------------

    def on_proposed(self, nonce: str, answer: Answer) -> None:
        self.loop.proposed(self.clock(), nonce, answer)
        self.wake()

    def on_judged(self, nonce: str, verdict: Verdict) -> None:
        self.loop.judged(self.clock(), nonce, verdict)
        self.wake()

    def on_acknowledged(self, uid: str, receipt: Receipt) -> None:
        self.loop.acknowledged(self.clock(), uid, receipt)
        self.wake()

    def on_beat(self, uid: str, armed: bool) -> None:
        self.gate.beat(self.clock(), uid, armed, "" if armed else "stop was called")
