"""More of the loop's single promises: what it says of itself, how it waits, and that it ends when it is told to."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
from test_loop import THETA, Bench

from crbo_ros.core.trial import theta_hash
from crbo_ros.errors import StoreError
from crbo_ros.protocol import ports
from crbo_ros.protocol.ports import Answer, Command, Limits, Progress, Ran, Receipt, Stage, State
from crbo_ros.protocol.records import STOPPED, WAITING, Offer


def answer(bench: Bench, status: str, **fields: Any) -> None:
    nonce, _ = bench.link.last("propose")
    bench.loop.proposed(bench.now, nonce, Answer(status, **{"experiment": "x", **fields}))


def handed_in(bench: Bench, status: str = ports.ACCEPTED, reason: str = "") -> None:
    bench.loop.acknowledged(bench.now, bench.link.last("report").episode_uid, Receipt(status, reason))


@pytest.mark.parametrize(("why", "said"), [("smoke", "smoke"), ("", "stop was called")])
def test_a_stop_carries_its_reason_to_the_plant(why: str, said: str) -> None:
    bench = Bench()
    bench.to_run()
    bench.loop.told(Command.STOP, why)
    ran = bench.rig.progress.ran
    assert ran is not None
    assert ran.reason == said


@pytest.mark.parametrize(("why", "said"), [("Ctrl-C", "Ctrl-C"), ("", "told to end")])
def test_an_end_carries_its_reason(why: str, said: str) -> None:
    bench = Bench()
    bench.to_run()
    bench.loop.told(Command.QUIT, why)
    assert bench.rig.progress.ran is not None
    assert bench.rig.progress.ran.reason == said
    assert bench.run(0.3) is State.ENDED
    assert bench.loop.status.message == said
    assert bench.loop.step(bench.now) == math.inf, "there is nothing left to do"


def test_told_to_end_it_ends_whatever_it_waits_for() -> None:
    asks = Bench()
    asks.run(0.3)
    hands_in = Bench()
    hands_in.to_run()
    hands_in.end()
    hands_in.run(0.3)
    held = Bench(consent="it moves")
    held.run(0.3)
    done = Bench()
    done.run(0.3)
    answer(done, ports.DONE, reason="over")
    done.run(0.3)
    prepares = Bench()
    prepares.run(0.3)
    prepares.alive = False
    prepares.now += 0.6
    prepares.offer()
    prepares.run(0.1)
    states = [bench.loop.state for bench in (asks, hands_in, held, done, prepares)]
    assert states == [State.ASK, State.HAND_IN, State.HELD, State.DONE, State.PREPARE]
    for bench in (asks, hands_in, held, done, prepares):
        asked = len(bench.link.asked)
        bench.loop.told(Command.QUIT, "Ctrl-C")
        assert bench.run(0.1) is State.ENDED
        assert len(bench.link.asked) == asked, "nobody is asked any more"


def test_an_answer_without_a_proposal_and_a_refusal_lead_to_the_next_request() -> None:
    bench = Bench()
    bench.run(0.3)
    for status in (ports.OK, ports.REFUSED):
        _, request = bench.link.last("propose")
        answer(bench, status, reason="its proposal has ended")
        assert (bench.loop.offer, bench.loop.status.message) == (None, "its proposal has ended")
        bench.run(0.2)
        assert bench.link.last("propose")[1] != request
    assert sum("request refused" in line for line in bench.said) == 2


def test_a_next_request_that_cannot_be_written_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(limits=Limits(retry=1.0))
    bench.run(0.3)
    with monkeypatch.context() as full:

        def refuse() -> str:
            raise StoreError("the disk is full")

        full.setattr(bench.memory, "new_request", refuse)
        answer(bench, ports.REFUSED, reason="ended")
    assert bench.loop.status.message == "the disk is full"
    asked = bench.link.count("propose")
    bench.run(0.9)
    assert bench.link.count("propose") == asked
    bench.run(0.3)
    assert bench.link.count("propose") == asked + 1


def test_who_is_told_to_wait_waits_so_long_and_asks_with_the_same_request() -> None:
    bench = Bench()
    bench.run(0.3)
    _, request = bench.link.last("propose")
    answer(bench, ports.WAIT, reason="paused", retry_after=2.0)
    assert bench.loop.status.message == "paused"
    bench.run(1.8)
    assert bench.link.count("propose") == 1
    bench.run(0.4)
    assert bench.link.count("propose") == 2
    assert bench.link.last("propose")[1] == request
    assert bench.said == [], "to wait is nothing to complain of"


def test_the_hold_that_it_has_obeyed_is_echoed() -> None:
    bench = Bench()
    bench.run(0.3)
    assert bench.loop.status.holds == 0
    bench.alive = False
    bench.gate.beat(bench.now, "m", False, "smoke", holds=4)
    bench.loop.step(bench.now)
    assert bench.loop.status.holds == 4


def test_a_lease_that_is_over_is_not_renewed_but_asked_for() -> None:
    bench = Bench()
    bench.run(0.3)
    bench.alive = False
    bench.now += 2.0
    bench.offer(lease=5.0)
    bench.run(1.0)
    renewed = bench.link.renewed
    assert renewed > 0
    bench.now += 60.0
    bench.loop.step(bench.now)
    assert bench.link.renewed == renewed
    assert bench.loop.state is State.ASK


def test_the_status_says_what_is_in_hand_and_what_the_plant_does() -> None:
    bench = Bench()
    bench.run(0.3)
    assert (bench.loop.status.proposal_id, bench.loop.status.plant) == (-1, ports.SAFE)
    bench.to_run(7)
    status = bench.loop.status
    assert (status.proposal_id, status.experiment_uid, status.message) == (7, "e", "proposal 7 (start)")
    assert (status.plant, status.held, status.interrupted) == (ports.MOVING, False, 0)
    assert status.verdict_id == next(iter(bench.memory.executions.values())).verdict_id != ""
    bench.end()
    bench.run(0.2)
    assert (status.verdict_id, status.plant, status.unreported, status.episodes) == ("", ports.SAFE, 1, 1)
    handed_in(bench)
    bench.run(0.2)
    assert (status.proposal_id, status.unreported) == (-1, 0)


def test_an_optimizer_that_cannot_take_a_result_is_asked_again_after_a_pause_and_a_strangers_answer_is_none() -> None:
    bench = Bench(limits=Limits(retry=1.0))
    bench.to_run()
    bench.end()
    bench.run(0.2)
    bench.loop.acknowledged(bench.now, "another", Receipt(ports.ACCEPTED))
    assert bench.loop.state is State.HAND_IN
    handed_in(bench, ports.RETRY, "the disk is full")
    assert any("cannot take episode 0: the disk is full" in line for line in bench.said)
    bench.run(0.8)
    assert bench.link.count("report") == 1
    bench.run(0.4)
    assert bench.link.count("report") == 2
    handed_in(bench, ports.DUPLICATE)
    bench.run(0.2)
    handed_in(bench)  # once more: there is nothing that it could be about
    assert bench.run(0.0) is State.ASK


def test_a_run_that_is_over_is_asked_about_again_and_goes_on_with_a_larger_budget() -> None:
    bench = Bench(limits=Limits(recheck=1.0))
    bench.run(0.3)
    best = Offer("x", "e", "", 3, THETA, kind="best", theta_hash=theta_hash(THETA))
    rested: list[Any] = []
    bench.rig.rest = lambda theta: rested.append(theta)  # type: ignore[method-assign]
    for _ in range(3):
        answer(bench, ports.DONE, reason="all are done", offer=best)
        assert (bench.loop.state, bench.loop.why_done) == (State.DONE, "all are done")
        begun, asked = bench.now, bench.link.count("propose")
        while bench.link.count("propose") == asked:
            bench.run(0.1)
        assert 0.5 < bench.now - begun < 1.5
    assert len(rested) == 1, "the best policy is left there once"
    bench.to_run()


def test_it_ends_when_the_run_is_over_if_it_should_and_not_before_the_plant_is_left() -> None:
    bench = Bench(exit_when_done=True)
    bench.run(0.3)
    bench.rig.progress = Progress(Stage.PREPARING)
    answer(bench, ports.DONE, reason="over")
    assert bench.run(0.3) is State.DONE
    bench.rig.progress = Progress(Stage.IDLE)
    assert bench.run(0.2) is State.ENDED
    assert bench.loop.status.message == "over"


def test_while_the_monitor_holds_or_is_gone_the_status_says_which() -> None:
    bench = Bench()
    bench.run(0.3)
    bench.alive = False
    bench.gate.beat(bench.now, "m", False, "smoke")
    bench.offer()
    bench.loop.step(bench.now)
    assert (bench.loop.status.held, bench.loop.status.message) == (True, "smoke")
    bench.now += 0.7
    bench.loop.step(bench.now)
    assert bench.loop.status.held is False
    assert "no heartbeat" in bench.loop.status.message
    bench.link.obstacle = lambda whom: "is not there"  # type: ignore[method-assign]
    bench.loop.step(bench.now)
    assert bench.loop.status.message.endswith(" is not there")


def test_a_plant_that_does_not_come_to_a_stop_in_time_is_a_fault() -> None:
    bench = Bench(limits=Limits(safe=2.0))
    bench.to_run()
    bench.rig.unsafe = "it moves"
    bench.rig.stop = lambda kind, reason: None  # type: ignore[method-assign]
    bench.loop.told(Command.STOP, "smoke")
    bench.alive = False
    bench.now += 1.0
    bench.loop.step(bench.now)
    assert bench.run(1.8) is State.MAKE_SAFE
    assert bench.run(0.5) is State.FAULT
    assert "did not come to an end within 2 s" in bench.loop.status.message
    assert bench.memory.fault() == bench.loop.status.message


def test_a_fault_that_is_cleared_while_the_plant_is_not_safe_stays_one() -> None:
    bench = Bench()
    bench.to_run()
    bench.rig.progress, bench.rig.unsafe = Progress(Stage.BROKEN, reason="no driver"), "still 2 V"
    bench.run(0.1)
    bench.loop.told(Command.CLEAR)
    assert bench.run(0.3) is State.FAULT
    assert "was not known to be safe (still 2 V)" in bench.loop.status.message
    bench.rig.unsafe, bench.rig.progress = "", Progress(Stage.IDLE)
    assert bench.run(0.3) is State.FAULT, "a person clears it, not time"
    assert bench.loop.status.plant == ports.SAFE, "though it is said that it is safe now"
    bench.loop.told(Command.CLEAR)
    bench.run(0.3)
    assert bench.loop.state is not State.FAULT
    assert bench.memory.fault() == ""
    assert bench.loop.status.interrupted == 1


def test_an_operator_who_thinks_is_asked_ever_less_often() -> None:
    bench = Bench(limits=Limits(patience=100.0))
    bench.run(0.3)
    bench.offer()
    bench.run(0.1)
    times = [bench.now]
    for _ in range(8):
        asked = bench.link.count("check")
        bench.judge(WAITING)
        assert bench.loop.status.message == "why"
        while bench.link.count("check") == asked:
            bench.now += 0.01
            bench.gate.beat(bench.now, "m", True)
            bench.loop.step(bench.now)
        times.append(bench.now)
    pauses = [later - sooner for sooner, later in pairwise(times)]
    assert pauses[0] < 0.05
    assert pauses == sorted(pauses)
    assert pauses[-1] == pytest.approx(0.5, abs=0.06)


def test_what_had_not_begun_is_no_interruption() -> None:
    bench = Bench()
    bench.run(0.3)
    bench.offer()
    bench.run(0.1)
    bench.rig.progress = Progress(Stage.ENDED, Ran(STOPPED, reason="let go", stopped_by="lost"))
    bench.run(0.1)
    assert (bench.loop.status.interrupted, bench.memory.executions) == (0, {})
    assert any("proposal 0 does not run: let go" in line for line in bench.said)


def test_what_it_can_do_it_does_at_once() -> None:
    """From the proposal to the question about it, from the approval to the start, from the end to the report."""
    bench = Bench()
    bench.run(0.3)
    begun = bench.now
    bench.offer()
    bench.run()
    assert bench.link.count("check") == 1
    bench.judge()
    assert bench.run() is State.RUN
    bench.end()
    bench.run()
    assert bench.link.count("report") == 1
    asked = bench.link.count("propose")
    handed_in(bench)
    bench.run()
    assert (bench.link.count("propose"), bench.now) == (asked + 1, begun)


def test_a_monitor_that_is_lost_on_the_way_to_the_start_set_stops_the_plant() -> None:
    bench = Bench()
    bench.run(0.3)
    stops: list[tuple[str, str]] = []
    bench.rig.prepare = lambda offer: setattr(bench.rig, "progress", Progress(Stage.PREPARING))  # type: ignore[method-assign]
    bench.rig.stop = lambda kind, reason: stops.append((kind, reason))  # type: ignore[method-assign]
    bench.offer()
    assert bench.run(0.1) is State.READY
    assert stops == []
    bench.alive = False
    bench.now += 0.6
    bench.run()
    assert stops[0][0] == "lost"
    assert bench.loop.state is State.MAKE_SAFE


def test_a_result_that_the_disk_refuses_is_tried_again_after_a_pause_and_handed_in_then() -> None:
    bench = Bench(limits=Limits(retry=1.0))
    bench.to_run()
    tried: list[float] = []
    add = bench.memory.add

    def full(episode: Any) -> str:
        tried.append(bench.now)
        raise StoreError("the disk is full")

    bench.memory.add = full  # type: ignore[method-assign]
    bench.end()
    begun = bench.now
    assert bench.run(0.9) is State.KEEP
    assert (tried, bench.loop.status.message) == ([begun], "the disk is full")
    assert any("the result of proposal 0 cannot be kept: the disk is full" in line for line in bench.said)
    bench.run(0.3)
    assert len(tried) == 2
    bench.memory.add = add  # type: ignore[method-assign]
    assert bench.run(1.1) is State.HAND_IN
    assert bench.link.count("report") == 1


def test_a_result_is_kept_at_once_though_the_monitor_was_to_be_asked_later() -> None:
    bench = Bench(limits=Limits(patience=100.0))
    bench.run(0.3)
    bench.offer()
    bench.run(0.1)
    for _ in range(7):
        bench.judge(WAITING)
        bench.run(0.7)
    bench.judge(WAITING)
    bench.rig.progress = Progress(Stage.ENDED, Ran("failed", reason="it is no policy"))
    bench.run()
    (episode,) = bench.memory.results.values()
    assert (episode.outcome, bench.link.count("report")) == ("failed", 1)
    assert "proposal 0 failed: it is no policy" in bench.said


def test_of_a_policy_that_ran_well_nothing_is_complained() -> None:
    bench = Bench()
    bench.to_run()
    bench.end()
    bench.run(0.2)
    assert bench.said == []


def test_what_the_monitors_hold_stopped_is_a_result_of_its_own_and_counts_as_no_episode() -> None:
    bench = Bench()
    bench.to_run()
    bench.alive = False
    bench.gate.beat(bench.now, "m", False, "smoke")
    bench.run(0.1)
    (episode,) = bench.memory.results.values()
    assert (episode.outcome, episode.reason, bench.loop.status.episodes) == (STOPPED, "smoke", 0)
    vetoed = Bench()
    vetoed.run(0.3)
    vetoed.offer()
    vetoed.run(0.1)
    vetoed.judge("vetoed")
    vetoed.run(0.1)
    assert (len(vetoed.memory.results), vetoed.loop.status.episodes) == (1, 0)
