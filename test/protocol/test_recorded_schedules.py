"""Schedules of the loop as its link sees them, with what it decided: for runners that are no EpisodeLoop.

Each is one run of bench/loop.py's world. For each proposal it holds the verdicts in order, an approval with how the
execution under it ended, and the optimizer's answers to the result. A runner in any language that is given the same
answers must decide the same (test/integration/test_own_runner.py replays them over ROS). To record anew:

    python test/protocol/test_recorded_schedules.py
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from crbo_ros.bench.loop import World
from crbo_ros.bench.simulated import VALID, Runner, SimulatedDisk, SimulatedRig
from crbo_ros.protocol import ports
from crbo_ros.protocol.gate import Permit
from crbo_ros.protocol.ports import Receipt, State
from crbo_ros.protocol.records import APPROVED, Episode, Verdict

FILE = Path(__file__).parent / "recorded_schedules.json"
SEEDS = (14, 30, 80, 134, 253)  # none with a plant that failed, or with a proposal that had to wait for a person
Schedule = dict[str, Any]


class Recorder(World):
    """A world whose faults are those that another runner can be shown: it is not killed, and its disk is its own."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, budget=3)
        self.runners[0].gone = True
        self.runners[0].kill()
        self.events: list[tuple[str, int, str]] = []
        self.runners = [RecordedRunner(self, "/recorded")]

    def note(self, what: str, proposal_id: int, how: str = "") -> None:
        self.events.append((what, proposal_id, how))

    def _fault(self) -> None:
        """The monitor falls silent for a while, is started again, or is told to stop."""
        monitor = self.monitors[0]
        kind = self.rng.choice(["silent", "killed", "stop"])
        if kind == "silent":
            monitor.freeze(self.rng.choice([0.7, 2.0]))
        elif kind == "killed":
            monitor.kill(back_after=self.rng.uniform(0.0, 2.0))
        else:
            monitor.armed, monitor.held_at = False, self.now
            self.after(self.rng.uniform(0.5, 2.0), monitor.rearm)


class RecordedDisk(SimulatedDisk):
    runner: RecordedRunner

    def add(self, episode: Episode) -> str:
        request_id = super().add(episode)
        self.runner.record.note("result", episode.proposal_id, episode.outcome)
        return request_id


class RecordedRig(SimulatedRig):
    runner: RecordedRunner

    def begin(self, permit: Permit) -> None:
        self.runner.record.note("begin", self.offer.id)
        super().begin(permit)


class RecordedRunner(Runner):
    """Writes down what its loop is told and does; some verdicts and receipts are changed on their way to it."""

    def __init__(self, world: Recorder, name: str) -> None:
        self.record = world
        super().__init__(world, name)
        self.loop.spool = self.loop.outbox.spool = self.memory = RecordedDisk(self)
        self.loop.rig = self.rig = RecordedRig(self)

    def on_judged(self, nonce: str, verdict: Verdict) -> None:
        question = self.loop.questions.in_hand
        draw = self.world.rng.random()
        if question is not None and question.nonce == nonce and self.loop.state is State.JUDGE:
            how = verdict.status
            if draw < 0.15:
                how, verdict = "foreign", replace(verdict, nonce="another")
            elif verdict.status == APPROVED and self.clock() - question.sent > VALID:
                how = "old"
            self.record.note("verdict", verdict.proposal_id, how)
        super().on_judged(nonce, verdict)

    def on_acknowledged(self, uid: str, receipt: Receipt) -> None:
        unreported = self.loop.outbox.unreported
        if unreported and unreported[0].episode_uid == uid:
            if self.world.rng.random() < 0.2:
                receipt = Receipt(ports.RETRY, "disk full")
            self.record.note("receipt", unreported[0].proposal_id, receipt.status)
        super().on_acknowledged(uid, receipt)


def record(seed: int) -> Schedule:
    """One schedule, and what the loop decided."""
    world = Recorder(seed)
    world.run()
    proposals = len(world.optimizers[0].offered)
    schedule: Schedule = {
        "seed": seed,
        "verdicts": [[] for _ in range(proposals)],
        "receipts": [[] for _ in range(proposals)],
        "executions": [],
        "results": [],
    }
    for number, (what, id, how) in enumerate(world.events):
        if what == "verdict":
            schedule["verdicts"][id].append(how if how != APPROVED else _end(world.events[number + 1 :]))
        elif what == "receipt":
            schedule["receipts"][id].append(how)
        elif what == "begin":
            schedule["executions"].append(id)
        else:
            schedule["results"].append([id, how])
    return schedule


def _end(later: list[tuple[str, int, str]]) -> str:
    """What became of an approval: how its execution ended, "lost" without a result, or "closed" if there was none."""
    end = "closed"
    for what, _, how in later:
        if what == "verdict":
            break
        if what == "begin":
            end = "lost"
        elif what == "result":
            return how
    return end


def test_the_loop_decides_as_recorded() -> None:
    recorded = json.loads(FILE.read_text())
    assert [record(seed) for seed in SEEDS] == recorded, "if the loop or its world was changed on purpose, record anew"


def test_the_recorded_schedules_hold_every_kind_of_answer() -> None:
    recorded = json.loads(FILE.read_text())
    verdicts = {how for schedule in recorded for answers in schedule["verdicts"] for how in answers}
    assert verdicts == {"waiting", "vetoed", "foreign", "old", "closed", "lost", "stopped", "completed"}
    receipts = {how for schedule in recorded for answers in schedule["receipts"] for how in answers}
    assert receipts == {"accepted", "duplicate", "retry"}
    assert all(answers.count("lost") <= 2 for schedule in recorded for answers in schedule["verdicts"])


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(record(seed)) for seed in SEEDS)
    FILE.write_text(f"[\n{lines}\n]\n")
