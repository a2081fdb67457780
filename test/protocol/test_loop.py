"""The runner's loop: random schedules in simulated time, and single promises one by one. (More: ./crbo bench loop)"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crbo_ros.bench import loop as simulation
from crbo_ros.core.problem import differences
from crbo_ros.core.space import Space
from crbo_ros.core.trial import theta_hash
from crbo_ros.protocol import ports, questions, runner
from crbo_ros.protocol.gate import Gate, Permit
from crbo_ros.protocol.ports import Answer, Command, Limits, Progress, Ran, Receipt, Safe, Stage, State
from crbo_ros.protocol.records import (
    APPROVED,
    COMPLETED,
    FAILED,
    RETURNED,
    STOPPED,
    VETOED,
    WAITING,
    Episode,
    Offer,
    Verdict,
)
from crbo_ros.protocol.runner import EpisodeLoop

THETA = np.array([0.25, 0.5])


def test_no_schedule_breaks_a_promise() -> None:
    broken = simulation.try_schedules(range(1_500))
    assert not broken, broken[:3]


# -- mutations: each breaks one promise, and the schedules must find it --------------------------------


def source(
    old: str, new: str, part: Any = runner, name: str = "EpisodeLoop", user: str = "crbo_ros.bench.simulated"
) -> Callable[[Any], None]:
    """The loop, or another `part` with the class `name` that `user` makes, with a piece of its source changed."""

    def mutate(patch: Any) -> None:
        import inspect
        import sys

        text = inspect.getsource(part)
        assert text.count(old) >= 1, old
        module = type(runner)("mutant")
        module.__dict__["__name__"] = "crbo_ros.protocol.mutant"
        patch.setitem(sys.modules, "crbo_ros.protocol.mutant", module)
        exec(compile(text.replace(old, new), "mutant", "exec"), module.__dict__)
        patch.setattr(f"{user}.{name}", module.__dict__[name])

    return mutate


def deaf_permit(patch: Any) -> None:
    patch.setattr(Permit, "obstacle", lambda self, now: None)


def ageless_permit(patch: Any) -> None:
    patch.setattr(Permit, "refusal", lambda self, now: self.obstacle(now))


def gullible_gate(patch: Any) -> None:
    patch.setattr("crbo_ros.protocol.gate.SETTLED", 0.0)


MUTATIONS: dict[str, Callable[[Any], None]] = {
    "begins before that is on disk": source(
        "            self.spool.begin(hand.episode_uid, hand.request_id, hand.offer, permit.verdict.verdict_id)\n",
        "            pass\n",
    ),
    "the permit is not looked at again after writing": source(
        "        if refusal := hand.permit.refusal(now):\n            return self._halt(refusal)\n", ""
    ),
    "an approval never grows old": ageless_permit,
    "a running policy does not ask": deaf_permit,
    "an answer to another question is taken": source(
        "question is None or question.nonce != nonce",
        "question is None",
        questions,
        "Questions",
        "crbo_ros.protocol.runner",
    ),
    "an interruption is not written": source(
        "        self.outbox.note(partial(self.spool.interrupt, uid, reason, broken))\n", ""
    ),
    "a lost monitor ends the proposal": source("(begun and ran.stopped_by == HELD)", "begun"),
    "a broken plant does not latch": source(
        "        self._latch(reason)\n        return", "        self._go(State.PREPARE, reason)\n        return"
    ),
    "an unsafe plant does not latch": source("        if fault:\n", "        if False:\n"),
    "a fault is forgotten by a restart": source("if fault := self.spool.fault():", 'if fault := "":'),
    "quit does not stop the plant": source("            self.rig.stop(QUIT, self._quitting)\n", "            pass\n"),
    "a result that the disk refuses is dropped": source(
        "                self.questions.wait(now, self.limits.retry, str(error))\n        if self.outbox.kept",
        "                self.outbox.kept = None\n        if self.outbox.kept",
    ),
    "a result is handed in once and forgotten": source(
        "        self.link.report(self.outbox.unreported[0])\n",
        "        self.link.report(self.outbox.unreported[0])\n        del self.outbox.unreported[0]\n",
    ),
    "what was broken off is repeated for ever": source("if hand.begun > self.limits.repeats:", "if False:"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_of_the_loop_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS[name](monkeypatch)
    for seed in range(2_000):
        if simulation.try_schedule(seed):
            return
    pytest.fail(f"2,000 schedules did not notice: {name}")


# -- single promises -----------------------------------------------------------------------------------


class FakeLink:
    """Keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.renewed = 0

    def obstacle(self, whom: str) -> str:
        return ""

    def propose(self, nonce: str, request_id: str) -> None:
        self.asked.append(("propose", (nonce, request_id)))

    def check(self, nonce: str, offer: Offer, recent: Any) -> None:
        self.asked.append(("check", (nonce, offer)))

    def report(self, episode: Episode) -> None:
        self.asked.append(("report", episode))

    def renew(self, offer: Offer) -> None:
        self.renewed += 1

    def last(self, verb: str) -> Any:
        return next(what for name, what in reversed(self.asked) if name == verb)

    def count(self, verb: str) -> int:
        return sum(name == verb for name, _ in self.asked)


class FakeRig:
    """Does what the test says."""

    def __init__(self) -> None:
        self.progress, self.unsafe, self.begun, self.rested = Progress(Stage.IDLE), "", 0, None

    def prepare(self, offer: Offer) -> None:
        self.progress = Progress(Stage.PREPARED)

    def begin(self, permit: Permit) -> None:
        self.begun += 1
        self.progress = Progress(Stage.RUNNING)

    def look(self) -> Progress:
        return self.progress

    def stop(self, kind: str, reason: str) -> None:
        if self.progress.stage in (Stage.PREPARED, Stage.RUNNING):
            self.progress = Progress(Stage.ENDED, Ran(STOPPED, reason=reason, stopped_by=kind))

    def safe(self) -> Safe:
        return Safe(not self.unsafe, self.unsafe)

    def rest(self, theta: Any) -> None:
        self.rested = theta


class Bench:
    """A loop with its time in hand."""

    def __init__(self, **options: Any) -> None:
        self.now = 100.0
        self.world = simulation.World(0, faults=False)
        self.memory = self.world.runners[0].memory
        self.link, self.rig, self.gate = FakeLink(), FakeRig(), Gate(0.5)
        self.said: list[str] = []
        self.world.runners[0].rig = self.rig  # type: ignore[assignment]
        self.options = options
        self.make()
        self.alive = True

    def make(self) -> None:
        self.loop = EpisodeLoop(
            "/r", self.memory, self.link, self.rig, self.gate, experiment="x",
            say=lambda level, text: self.said.append(text), **self.options,
        )  # fmt: skip

    def run(self, seconds: float = 0.0) -> State:
        """Some time, with the monitor's heartbeats."""
        end = self.now + seconds
        while True:
            if self.alive:
                self.gate.beat(self.now - 0.1 if self.now == 100.0 else self.now, "m", True)
            for _ in range(20):
                if self.loop.step(self.now) > 0.0:
                    break
            if self.now >= end:
                return self.loop.state
            self.now = min(end, self.now + 0.1)

    def offer(self, id: int = 0, **changes: Any) -> None:
        values: dict[str, Any] = {"lease": 600.0, "theta_hash": theta_hash(THETA), **changes}
        offer = Offer("x", "e", "", id, THETA, kind="start", **values)
        nonce, _ = self.link.last("propose")
        self.loop.proposed(self.now, nonce, Answer(ports.OK, offer=offer, experiment="x"))

    def judge(self, status: str = APPROVED, **changes: Any) -> None:
        nonce, offer = self.link.last("check")
        verdict = Verdict(status, "e", offer.id, offer.theta_hash, "/r", "why", "m", valid_for=5.0, nonce=nonce)
        self.loop.judged(self.now, nonce, replace(verdict, **changes))

    def to_run(self, id: int = 0) -> None:
        self.run(0.3)
        self.offer(id)
        self.run(0.1)
        self.judge()
        assert self.run(0.0) is State.RUN

    def end(self, value: float = 0.5) -> None:
        self.rig.progress = Progress(Stage.ENDED, Ran(COMPLETED, value))


def test_begun_is_on_disk_before_anything_moves_and_the_result_before_it_is_told() -> None:
    bench = Bench()
    bench.to_run()
    (execution,) = bench.memory.executions.values()
    assert execution.end == "begun"
    bench.end(0.75)
    assert bench.run() is State.HAND_IN
    (episode,) = bench.memory.results.values()
    assert (episode.value, episode.runner, bench.link.last("report")) == (0.75, "/r", episode)
    bench.loop.acknowledged(bench.now, episode.episode_uid, Receipt(ports.ACCEPTED))
    assert bench.run() is State.ASK


def test_a_monitor_that_comes_and_goes_makes_a_policy_start_three_times_at_most_and_then_a_person_looks() -> None:
    """It was started 13 times in 30 s, and nothing of that was on record."""
    bench = Bench()
    bench.to_run()
    for _ in range(10):
        bench.alive = False
        bench.run(1.0)
        bench.alive = True
        bench.run(0.4)
        if bench.loop.state is State.HELD:
            break
        bench.offer()
        bench.run(0.1)
        bench.judge()
        bench.run()
    assert bench.rig.begun == 3
    assert bench.loop.status.interrupted == 3
    assert [execution.end for execution in bench.memory.executions.values()] == ["interrupted"] * 3
    assert bench.memory.results == {}, "no result, and the proposal has not ended"
    bench.loop.told(Command.CLEAR)
    bench.run(0.2)
    assert bench.loop.state in (State.JUDGE, State.ASK, State.PREPARE)


def test_a_restart_counts_what_was_begun_before() -> None:
    """A plant that crashes its runner does so at most three times."""
    bench = Bench()
    for _ in range(3):
        bench.to_run()
        bench.make()  # killed in the middle and started again
    bench.run(0.3)
    bench.offer()
    assert bench.run(0.2) is State.HELD
    assert bench.rig.begun == 3


def test_the_approval_is_asked_for_when_the_plant_is_in_its_start_set() -> None:
    bench = Bench()
    bench.run(0.3)
    bench.offer()
    bench.rig.prepare = lambda offer: setattr(bench.rig, "progress", Progress(Stage.PREPARING))  # type: ignore[method-assign]
    bench.run(8.0)
    assert (bench.loop.state, bench.link.count("check")) == (State.READY, 0)
    bench.rig.progress = Progress(Stage.PREPARED)
    bench.run(0.1)
    assert (bench.loop.state, bench.link.count("check")) == (State.JUDGE, 1)


def test_an_approval_is_too_old_by_its_question_not_by_its_answer() -> None:
    bench = Bench()
    bench.run(0.3)
    bench.offer()
    bench.run(0.1)
    bench.now += 13.6  # frozen with the question under way
    bench.run(0.0)
    bench.judge()
    bench.run(0.3)
    assert bench.rig.begun == 0


def test_a_plant_is_made_safe_while_an_operator_takes_time_and_prepared_again_then() -> None:
    bench = Bench()
    bench.run(0.3)
    bench.offer()
    for _ in range(30):
        bench.run(0.2)
        if bench.loop.questions.in_hand is not None:
            bench.judge(WAITING)
    assert bench.rig.progress.stage is Stage.ENDED, "nobody balances a pendulum for a person who thinks"
    assert (bench.loop.state, bench.rig.begun) == (State.JUDGE, 0)
    bench.run(1.0)
    bench.judge(APPROVED)
    bench.run(0.1)
    assert bench.rig.begun == 0, "that approval was for a plant that was not ready"
    bench.judge(APPROVED)
    bench.run(0.0)
    assert bench.rig.begun == 1


def test_a_veto_is_a_result_and_nothing_moved() -> None:
    bench = Bench()
    bench.run(0.3)
    bench.offer()
    bench.run(0.1)
    bench.judge(VETOED)
    bench.run()
    (episode,) = bench.memory.results.values()
    assert (episode.outcome, episode.reason, bench.rig.begun, bench.memory.executions) == (VETOED, "why", 0, {})


def test_the_end_of_a_run_is_heard_while_everything_is_held() -> None:
    """finish while held: the runner did not learn of it, and a rollout began after rearm."""
    bench = Bench(exit_when_done=True)
    bench.run(0.3)
    bench.offer()
    bench.alive = False
    bench.run(3.0)
    assert bench.link.count("propose") > 1, "it goes on asking whether the run is over"
    nonce, _ = bench.link.last("propose")
    bench.loop.proposed(bench.now, nonce, Answer(ports.DONE, "finished", experiment="x"))
    bench.alive = True
    assert bench.run(0.5) is State.ENDED
    assert bench.rig.begun == 0


def test_a_runner_that_is_held_for_a_person_hears_that_the_run_is_over() -> None:
    bench = Bench(exit_when_done=True)
    for _ in range(3):
        bench.to_run()
        bench.make()
        bench.rig.progress = Progress(Stage.IDLE)
    bench.run(0.3)
    bench.offer()
    assert bench.run(0.2) is State.HELD
    before = bench.link.count("propose")
    bench.run(3.0)
    assert bench.link.count("propose") > before
    nonce, _ = bench.link.last("propose")
    bench.loop.proposed(bench.now, nonce, Answer(ports.DONE, "finished", experiment="x"))
    assert bench.run(0.5) is State.ENDED


def test_a_broken_plant_latches_and_the_same_proposal_runs_again_under_a_new_approval() -> None:
    bench = Bench()
    bench.to_run()
    bench.rig.progress = Progress(Stage.BROKEN, reason="no driver")
    bench.run(5.0)
    assert (bench.loop.state, bench.loop.status.message) == (State.FAULT, "no driver")
    assert bench.memory.results == {}
    bench.loop.told(Command.CLEAR)
    bench.rig.progress = Progress(Stage.IDLE)
    bench.run(0.1)
    bench.judge()
    bench.run()
    assert (bench.loop.state, bench.rig.begun) == (State.RUN, 2)
    assert len({execution.verdict_id for execution in bench.memory.executions.values()}) == 2


def test_a_plant_that_is_not_known_to_be_safe_keeps_its_result_and_latches() -> None:
    bench = Bench()
    bench.to_run()
    bench.rig.unsafe = "the voltage could not be read back"
    bench.end(0.5)
    bench.run(1.0)
    assert (bench.loop.state, bench.loop.status.plant) == (State.FAULT, ports.UNKNOWN)
    assert len(bench.memory.results) == 1
    bench.loop.told(Command.CLEAR)
    bench.run(1.0)
    assert bench.loop.state is State.FAULT, "a person's word alone does not make it safe"
    bench.rig.unsafe = ""
    bench.loop.told(Command.CLEAR)
    assert bench.run(1.0) is State.HAND_IN


def test_a_policy_under_which_the_plant_breaks_three_times_is_set_aside_by_name() -> None:
    bench = Bench()
    bench.to_run(7)
    for broken in range(1, 4):
        bench.rig.progress = Progress(Stage.BROKEN, reason="the arm fell off")
        assert bench.run(0.5) is State.FAULT
        assert bench.memory.results == {}, "a plant's fault ends no proposal"
        bench.rig.progress = Progress(Stage.IDLE)
        bench.loop.told(Command.CLEAR)
        bench.run(0.2)
        if broken < 3:
            bench.judge()
            assert bench.run() is State.RUN, "the same proposal, under a new approval"
    (episode,) = bench.memory.results.values()
    assert (episode.proposal_id, episode.outcome, bench.rig.begun) == (7, "failed", 3)
    assert "set aside: the plant failed 3 times under it" in episode.reason
    assert any("proposal 7 (start) is set aside" in text for text in bench.said)


def test_a_fault_outlives_its_runner_until_a_person_clears_it() -> None:
    bench = Bench()
    bench.to_run()
    bench.rig.progress = Progress(Stage.BROKEN, reason="the arm fell off")
    bench.run(0.1)
    bench.rig.progress = Progress(Stage.IDLE)
    bench.make()  # killed and started again
    assert bench.run(3.0) is State.FAULT
    assert bench.loop.status.message == "the arm fell off"
    bench.loop.told(Command.CLEAR)
    bench.run(0.2)
    bench.make()
    assert bench.run(0.2) is State.ASK


def test_nothing_begins_on_a_plant_that_is_not_known_to_be_safe_at_the_start() -> None:
    bench = Bench()
    bench.rig.unsafe = "the encoder does not answer"
    bench.make()
    assert bench.run(3.0) is State.FAULT
    assert bench.link.count("propose") == 0


def test_a_policy_that_hangs_on_a_plant_that_is_safe_is_told_as_it_is() -> None:
    bench = Bench(limits=Limits(safe=2.0))
    bench.to_run()
    bench.rig.stop = lambda kind, reason: None  # type: ignore[method-assign]
    bench.loop.told(Command.STOP)
    bench.alive = False
    bench.run(1.5)
    assert (bench.loop.state, bench.loop.status.plant) == (State.MAKE_SAFE, ports.SAFE), "its host has measured it"
    assert bench.run(1.5) is State.FAULT


@pytest.mark.parametrize("command", [Command.QUIT, Command.STOP])
def test_stop_and_quit_stop_the_plant_in_the_same_call(command: Command) -> None:
    bench = Bench()
    bench.to_run()
    bench.loop.told(command)
    assert bench.rig.progress.stage is Stage.ENDED
    state = bench.run(0.2)
    assert state is (State.ENDED if command is Command.QUIT else State.HAND_IN)


def test_told_to_quit_with_a_full_disk_a_result_waits_and_is_then_said_aloud() -> None:
    bench = Bench(limits=Limits(farewell=2.0))
    bench.to_run()
    bench.memory.full_until = math.inf
    bench.end(0.123)
    bench.run(0.5)
    bench.loop.told(Command.QUIT)
    bench.run(1.0)
    assert bench.loop.state is State.KEEP
    assert bench.run(3.0) is State.ENDED
    assert any("0.123" in text and "lost" in text for text in bench.said)


def test_what_cannot_be_written_down_does_not_move() -> None:
    bench = Bench()
    bench.run(0.3)
    bench.offer()
    bench.run(0.1)
    bench.memory.full_until = math.inf
    bench.judge()
    bench.run(0.5)
    assert bench.rig.begun == 0


def test_another_experiment_or_problem_is_not_run_and_named() -> None:
    bench = Bench(problem="task=furuta plant=stand_in")
    bench.run(0.3)
    nonce, _ = bench.link.last("propose")
    bench.loop.proposed(bench.now, nonce, Answer(ports.WAIT, experiment="y"))
    assert "'y'" in bench.loop.status.message
    bench.run(1.0)
    nonce, _ = bench.link.last("propose")
    answer = Answer(ports.OK, experiment="x", problem="task=furuta plant=nominal")
    bench.loop.proposed(bench.now, nonce, answer)
    assert "plant: nominal, not stand_in" in bench.loop.status.message
    assert differences("a=1 b=2", "a=1 b=3") == ["b: 2, not 3"]


def test_a_lease_is_renewed_while_the_episode_runs_and_asked_for_again_when_it_is_over() -> None:
    bench = Bench()
    bench.to_run()
    before = bench.link.renewed
    bench.run(5.0)
    assert bench.link.renewed - before >= 5
    bench = Bench()
    bench.run(0.3)
    bench.offer(lease=3.0)
    bench.alive = False
    bench.now += 100.0  # asleep
    bench.run(0.1)
    assert bench.link.count("propose") == 2


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, 86400.0])
def test_a_jump_of_the_clock_begins_nothing_and_stops_what_runs(jump: float) -> None:
    bench = Bench()
    bench.to_run()
    bench.alive = False
    bench.now += jump
    bench.run(0.2)
    assert bench.rig.progress.stage is Stage.ENDED
    assert bench.rig.begun == 1


def test_real_things_wait_for_the_operators_first_consent() -> None:
    bench = Bench(consent="task furuta moves the real plant qube_pal")
    assert bench.run(3.0) is State.HELD
    assert "waits for the operator's consent (clear): task furuta moves the real" in bench.loop.status.message
    bench.loop.consent += ". Threshold: 0.3"
    assert bench.run(0.2) is State.HELD
    assert bench.loop.status.message.endswith("Threshold: 0.3"), "as it stands now"
    bench.loop.told(Command.CLEAR)
    assert bench.run(0.2) is State.ASK


@pytest.mark.parametrize(
    ("theta", "hash", "said"),
    [([0.25, 7.0], "", "theta[1]"), ([0.25, 0.5], "0" * 64, "theta_hash"), ([0.2], "", "theta")],
)
def test_a_theta_that_is_damaged_or_outside_the_domain_never_runs_and_comes_back_as_failed(
    theta: list[float], hash: str, said: str
) -> None:
    bench = Bench(space=Space([0.0, 0.0], [1.0, 1.0]))
    bench.run(0.3)
    nonce, _ = bench.link.last("propose")
    vector = np.array(theta)
    offer = Offer("x", "e", "", 0, vector, kind="start", lease=600.0, theta_hash=hash or theta_hash(vector))
    bench.loop.proposed(bench.now, nonce, Answer(ports.OK, offer=offer, experiment="x"))
    bench.run(0.5)
    (episode,) = bench.memory.results.values()
    assert (episode.outcome, bench.rig.begun, bench.link.count("check")) == (FAILED, 0, 0)
    assert said in episode.reason


def test_what_a_command_does_not_say_it_does_not_do() -> None:
    bench = Bench()
    bench.to_run()
    bench.loop.told(Command.STOP)
    ran = bench.rig.progress.ran
    assert ran is not None
    assert (ran.reason, ran.stopped_by) == ("stop was called", "held")
    assert not bench.loop._cleared
    bench = Bench(consent="it moves")
    bench.loop.told(Command.CLEAR)
    assert (bench.loop._cleared, bench.loop._give_back) == (True, False)


def test_the_end_of_another_experiment_is_not_ours_while_held() -> None:
    bench = Bench(consent="it moves")
    bench.run(1.5)
    nonce, _ = bench.link.last("propose")
    bench.loop.proposed(bench.now, nonce, Answer(ports.DONE, reason="over", experiment="another"))
    assert bench.run(0.2) is State.HELD
    bench.run(5.0)
    nonce, _ = bench.link.last("propose")
    bench.loop.proposed(bench.now, nonce, Answer(ports.WAIT, reason="later", experiment="x"))
    assert bench.run(0.2) is State.HELD, "waiting is no end"
    bench.run(5.0)
    nonce, _ = bench.link.last("propose")
    bench.loop.proposed(bench.now, nonce, Answer(ports.DONE, reason="over", experiment="x"))
    assert bench.run(0.2) is State.DONE


def test_a_result_that_was_acknowledged_is_settled_on_disk_and_counted() -> None:
    bench = Bench()
    bench.to_run()
    bench.end()
    bench.run()
    (uid,) = bench.memory.results
    settled: list[Any] = []
    bench.memory.settle = lambda *what: settled.append(what)  # type: ignore[method-assign]
    bench.loop.acknowledged(bench.now, uid, Receipt(ports.ACCEPTED, "thanks"))
    bench.run(0.3)
    assert settled == [(uid, "done", "thanks")]
    assert bench.loop.status.episodes == 1


def test_what_was_stopped_keeps_its_own_reason() -> None:
    bench = Bench()
    bench.to_run()
    bench.rig.progress = Progress(Stage.ENDED, Ran(STOPPED, reason="smoke", stopped_by="held"))
    bench.run(0.2)
    (episode,) = bench.memory.results.values()
    assert (episode.outcome, episode.reason) == (STOPPED, "smoke")


def test_policies_that_fail_one_after_the_other_hold_the_runner_and_a_good_one_in_between_does_not() -> None:
    def one(id: int, outcome: str) -> State:
        bench.to_run(id)
        bench.rig.progress = Progress(Stage.ENDED, Ran(outcome, 0.5 if outcome == COMPLETED else math.nan, "why"))
        bench.run(0.2)
        bench.loop.acknowledged(bench.now, bench.link.last("report").episode_uid, Receipt(ports.ACCEPTED))
        return bench.run(0.2)

    bench = Bench()
    most = bench.loop.limits.failures
    states = [one(i, FAILED) for i in range(most - 1)]
    assert State.HELD not in states
    one(most, COMPLETED)
    states = [one(100 + i, FAILED) for i in range(most)]
    assert State.HELD not in states[:-1]
    assert states[-1] is State.HELD


def test_a_proposal_that_is_given_back_by_the_operator_is_returned_on_record() -> None:
    bench = Bench()
    for _ in range(3):
        bench.to_run()
        bench.make()
    bench.run(0.3)
    bench.offer()
    assert bench.run(0.2) is State.HELD
    bench.loop.told(Command.GIVE_BACK)
    bench.run(0.3)
    (episode,) = bench.memory.results.values()
    assert (episode.outcome, episode.reason) == (RETURNED, "given back by the operator")


def test_a_broken_plant_is_stopped_before_anything_is_written_and_its_state_is_said() -> None:
    bench = Bench()
    bench.to_run()
    stops: list[str] = []
    bench.rig.stop = lambda kind, reason: stops.append(reason)  # type: ignore[method-assign]
    bench.rig.progress, bench.rig.unsafe = Progress(Stage.BROKEN, reason="no driver"), "still 2 V"
    assert bench.run(0.1) is State.FAULT
    assert stops[:1] == ["no driver"]
    assert "still 2 V" in bench.loop.status.plant_reason


def test_told_to_end_while_the_plant_is_being_prepared_it_asks_nobody_any_more() -> None:
    bench = Bench()
    bench.run(0.3)
    bench.rig.prepare = lambda offer: setattr(bench.rig, "progress", Progress(Stage.PREPARING))  # type: ignore[method-assign]
    bench.offer()
    bench.run(0.1)
    bench.loop.told(Command.QUIT, "Ctrl-C")
    bench.rig.progress = Progress(Stage.PREPARED)
    bench.run(0.3)
    assert (bench.link.count("check"), bench.rig.begun) == (0, 0)
    assert bench.loop.state is State.ENDED


def test_the_robot_is_left_with_the_best_policy_once() -> None:
    bench = Bench()
    bench.run(0.3)
    nonce, _ = bench.link.last("propose")
    best = Offer("x", "e", "", 3, THETA, kind="best", theta_hash=theta_hash(THETA))
    bench.loop.proposed(bench.now, nonce, Answer(ports.DONE, reason="over", offer=best, experiment="x"))
    bench.run(0.2)
    assert bench.rig.rested is THETA


def test_what_it_waits_for_is_said_once_after_a_second_and_a_wrong_optimizer_once() -> None:
    bench = Bench()
    bench.link.obstacle = lambda whom: "is not there"  # type: ignore[method-assign]
    bench.run(0.8)
    assert [line for line in bench.said if "waits" in line] == []
    bench.run(5.0)
    assert len([line for line in bench.said if "waits" in line]) == 1
    bench = Bench()
    for _ in range(3):
        bench.run(0.8)
        nonce, _ = bench.link.last("propose")
        bench.loop.proposed(bench.now, nonce, Answer(ports.WAIT, reason="later", experiment="another"))
    assert len([line for line in bench.said if "another" in line]) == 1


def test_a_question_is_put_once_however_often_the_loop_is_called_at_that_moment() -> None:
    bench = Bench()
    bench.run(0.3)
    for _ in range(5):
        bench.loop.step(bench.now)
    assert bench.link.count("propose") == 1
