"""The loop's and the monitor's small parts, one promise at a time: questions, results on their way, stops, leases."""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core.contract import Terms
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.protocol import best_file
from crbo_ros.protocol.evidence import Evidence
from crbo_ros.protocol.hand import Hand
from crbo_ros.protocol.leases import Leases
from crbo_ros.protocol.monitor_store import KnownReturn
from crbo_ros.protocol.outbox import Outbox
from crbo_ros.protocol.ports import ACCEPTED, REFUSED, Limits, Ran, Receipt, Status
from crbo_ros.protocol.questions import Questions
from crbo_ros.protocol.records import ContractState, Episode, Experiment, Offer, Verdict
from crbo_ros.protocol.stops import FORGOTTEN, Seen, Stops

X0 = np.array([0.5, 0.5])


def known(id: int, x: Any, value: float, worst_case: float | None = None, **changes: Any) -> KnownReturn:
    values: dict[str, Any] = {"unverified": False, "violation": "", "signals": {}, **changes}
    return KnownReturn(f"u{id}", id, np.asarray(x, float), value, worst_case, **values)


def evidence(*returns: KnownReturn, **terms: Any) -> Evidence:
    found = Evidence(X0, Terms(**{"risk": 0.1, "j_min": 0.5, "budget": 40, **terms}))
    for one in returns:
        found.add(one)
    return found


# -- what the monitor judges by --------------------------------------------------------------------------


def test_the_state_says_where_the_contract_stands() -> None:
    def state(found: Evidence, pending: int = 0) -> ContractState:
        return found.state("e", "m", pending, 7.0)

    waits = state(evidence(j_min_drop=0.5, j_min=-math.inf))
    assert (waits.state, waits.proven_id, waits.stamp) == ("waits", -1, 7.0)
    assert waits.reason.startswith("waits for theta_0's return: the threshold is ")
    free = state(evidence(known(0, X0, 1.0), j_min=-math.inf))
    assert (free.state, free.reason) == ("none", "no threshold is configured")
    assert math.isnan(free.account)
    kept = evidence(known(0, X0, 1.0), known(1, [0.5, 0.52], 1.4, 0.9), known(2, [0.5, 0.54], 1.2, 1.0))
    found = state(kept)
    assert (found.state, found.reason, found.executed, found.novel, found.start_rollouts) == ("kept", "", 3, 2, 1)
    assert found.account == pytest.approx(kept.contract.account.balance)
    assert state(kept, 1).account == pytest.approx(found.account - 1.0), "what is under way is charged"
    assert found.slack == pytest.approx(np.median([0.5, 0.2]) / np.std([1.0, 1.4, 1.2]))
    assert found.proven_id in (0, 1, 2)
    assert math.isfinite(found.proven_mean)
    assert math.isnan(state(evidence(known(0, X0, 1.0))).slack), "no bound was shown yet"
    assert state(evidence(known(0, X0, 0.1))).state == "refused", "theta_0 itself falls"
    empty = evidence(known(0, X0, 1.0), *(known(i, [0.5, 0.5 + 0.01 * i], -1.0) for i in range(1, 5)))
    assert (state(empty).state, state(empty).violations) == ("empty", 4)


def test_what_a_person_reported_is_told_by_proposal_and_what_was_unverified_is_counted() -> None:
    found = evidence(known(0, X0, 1.0), known(7, [0.5, 0.6], 1.0, unverified=True))
    assert found.unverified == {"u7"}
    found.report(1, "reported: it scraped")
    state = found.state("e", "m", 0, 0.0)
    assert (state.reported, state.violations) == ((7,), 1)
    assert found.id_of(1) == 7


def test_returns_are_those_that_gave_one_and_beliefs_follow_data_and_terms() -> None:
    found = evidence(known(0, X0, 1.0), known(1, [0.5, 0.6], math.nan, violation="it gave no return"))
    assert [one.proposal_id for one in found.returns] == [0]
    before = found.beliefs()
    assert found.beliefs() is before, "nothing changed"
    found.add(known(2, [0.5, 0.7], 2.0))
    after = found.beliefs()
    assert len(after.X) == 2
    found.contract.change(Terms(risk=0.1, j_min=0.9, budget=40))
    assert found.beliefs() is not after, "what falls deep is clipped by the threshold of now"


def test_the_worst_case_of_a_signal_is_by_those_who_measured_it_and_its_newest_limit() -> None:
    found = evidence(
        known(0, X0, 1.0, signals={"heat": [40.0, 80.0]}), known(1, [0.5, 0.6], 1.0),
        known(2, [0.5, 0.7], 1.0, signals={"heat": [50.0, 90.0], "force": [1.0, 2.0]}),
    )  # fmt: skip
    found.look_at_signals(np.array([0.5, 0.7]))
    assert list(found.signals) == ["heat", "force"]
    assert found.signals["heat"] == pytest.approx((50.0, 90.0))
    assert found.signals["force"] == pytest.approx((1.0, 2.0))


def test_a_hint_says_what_keeps_a_run_from_going_on() -> None:
    assert evidence().hint([True], 0) == ""
    assert evidence(known(0, X0, 1.0), j_min=-math.inf).hint([True], 0) == ""
    creeping = evidence(known(0, X0, 1.0), known(1, [0.5, 0.6], 0.8), known(2, [0.5, 0.4], 0.9))
    said = creeping.hint([True, False, True], 0)
    assert said.startswith(
        "2 of the last 3 proposals were vetoed (the lowest return, 0.8, was proposal 1's): with L = "
    )
    room = (float(np.max(creeping.beliefs().mean)) - 0.5) / creeping.contract.lipschitz
    assert f"nothing further than {room:.2g} from the best policy" in said
    gentle = evidence(known(0, X0, 0.01), known(1, [0.5, 0.6], 0.009), j_min=0.005)
    assert gentle.contract.lipschitz < 1.0
    room = (float(np.max(gentle.beliefs().mean)) - 0.005) / gentle.contract.lipschitz
    assert f"nothing further than {room:.2g} from the best policy" in gentle.hint([True], 0)
    assert "nothing can pass" in evidence(known(0, X0, 0.2)).hint([True], 0)
    assert evidence(known(0, X0, 0.2)).beliefs().mean == pytest.approx([0.2], abs=1e-3), "where theta_0 itself falls"
    broke = evidence(known(0, X0, 1.0), *(known(i, [0.5, 0.5 + 0.01 * i], -1.0) for i in range(1, 5)))
    assert broke.contract.empty_reason(0) in broke.hint([True], 0)


# -- questions -------------------------------------------------------------------------------------------


class Link:
    """Somebody who is there or not."""

    away = ""

    def obstacle(self, whom: str) -> str:
        return self.away


def questions() -> tuple[Questions, Any, Status, list[tuple[str, str]]]:
    link, status, said = Link(), Status(), list[tuple[str, str]]()
    return Questions(link, Limits(answer=20.0), status, lambda *words: said.append(words)), link, status, said  # type: ignore[arg-type]


def test_one_question_at_a_time_and_once_more_when_no_answer_comes() -> None:
    asked, link, _, said = questions()
    assert asked.may_ask(5.0, "optimizer") == 0.0
    nonce = asked.ask(5.0)
    assert asked.ask(5.0, "mine") == "mine"
    assert asked.answered(nonce) is None, "an answer to the question before"
    assert asked.may_ask(5.0, "optimizer") == pytest.approx(0.1)
    assert asked.may_ask(24.95, "optimizer") == pytest.approx(0.05)
    assert said == []
    assert asked.may_ask(25.0, "optimizer") == 0.0
    assert said == [("warning", "optimizer gave no answer within 20 s; asking again")]
    assert asked.answered("mine") is None, "it comes too late"
    nonce = asked.ask(26.0)
    link.away = "is not there"
    assert asked.may_ask(26.1, "optimizer") == pytest.approx(0.1), "who is gone will not answer"
    assert said[-1] == ("warning", "optimizer is not there; asking again")
    assert asked.answered(nonce) is None


def test_a_question_is_answered_once_and_tells_when_it_was_put() -> None:
    asked, *_ = questions()
    nonce = asked.ask(3.0)
    question = asked.answered(nonce)
    assert question is not None
    assert (question.nonce, question.sent) == (nonce, 3.0)
    assert asked.answered(nonce) is None


def test_it_waits_as_long_as_it_was_told_and_raises_an_alarm_once() -> None:
    asked, _, status, said = questions()
    asked.wait(10.0, 2.0, "the disk is full", alarm=True)
    asked.wait(10.0, 2.0, "the disk is full", alarm=True)
    assert said == [("error", "the disk is full")]
    asked.wait(10.0, 2.0, "patience")
    assert (len(said), status.message) == (1, "patience")
    assert asked.may_ask(11.5, "monitor") == pytest.approx(0.5)
    assert asked.may_ask(12.0, "monitor") == 0.0
    asked.wait(12.0, 5.0, "patience")
    asked.forget()
    assert asked.may_ask(12.0, "monitor") == 0.0
    asked.forget(20.0)
    assert asked.may_ask(19.0, "monitor") == pytest.approx(1.0)


def test_what_it_waits_for_is_said_once_when_it_lasts() -> None:
    asked, link, status, said = questions()
    link.away = "is not there"
    for i in range(31):
        asked.may_ask(100.0 + 0.1 * i, "monitor")
    assert said == [("warning", "waits: monitor is not there")]
    assert status.message == "monitor is not there"
    link.away = "has no time"
    for i in range(9):
        asked.may_ask(110.0 + 0.1 * i, "monitor")
    assert len(said) == 1, "another reason begins anew"
    asked.may_ask(111.5, "monitor")
    assert said[-1] == ("warning", "waits: monitor has no time")


# -- results on their way ----------------------------------------------------------------------------------


class Disk:
    """A spool in memory that may be full."""

    def __init__(self) -> None:
        self.full, self.written = False, list[Any]()

    def _write(self, *what: Any) -> None:
        if self.full:
            raise StoreError("the disk is full")
        self.written.append(what)

    def request_id(self) -> str:
        return "q0"

    def recover(self) -> int:
        return 3

    def pending(self) -> list[Episode]:
        return []

    def add(self, episode: Episode) -> str:
        self._write("add", episode.episode_uid)
        return f"after {episode.episode_uid}"

    def settle(self, uid: str, end: str, answer: str) -> None:
        self._write("settle", uid, end, answer)


def result(id: int, outcome: str = "completed") -> Episode:
    return Episode(f"u{id}", "e", id, "r", X0, outcome, 0.5)


def test_a_result_is_on_disk_before_it_is_handed_in_and_settled_there_afterwards() -> None:
    disk, said = Disk(), list[tuple[str, str]]()
    outbox = Outbox(disk, lambda *words: said.append(words))  # type: ignore[arg-type]
    assert (outbox.request, outbox.interrupted, outbox.unreported) == ("q0", 3, [])
    outbox.keep()
    assert disk.written == [], "nothing to keep"
    outbox.kept, disk.full = result(1), True
    with pytest.raises(StoreError):
        outbox.keep()
    assert (outbox.unreported, outbox.request) == ([], "q0")
    assert outbox.kept is not None
    disk.full = False
    outbox.keep()
    assert (outbox.request, [e.proposal_id for e in outbox.unreported]) == ("after u1", [1])
    outbox.keep()
    assert len(disk.written) == 1, "it is kept once"
    for id, outcome in ((2, "completed"), (3, "completed"), (4, "completed"), (5, "vetoed")):
        outbox.kept = result(id, outcome)
        outbox.keep()
    assert [e.proposal_id for e in outbox.recent] == [2, 3, 4], "the last three that were executed"
    outbox.settle(Receipt(ACCEPTED, ""))
    outbox.settle(Receipt(REFUSED, "too late"))
    assert [e.proposal_id for e in outbox.unreported] == [3, 4, 5]
    assert said == [("error", "episode 2 refused, kept aside: too late")]
    outbox.write_notes()
    outbox.write_notes()
    assert disk.written[-2:] == [("settle", "u1", "done", ""), ("settle", "u2", "refused", "too late")]


def test_notes_wait_for_the_disk_in_their_order_and_are_written_once() -> None:
    disk, said = Disk(), list[tuple[str, str]]()
    outbox = Outbox(disk, lambda *words: said.append(words))  # type: ignore[arg-type]
    disk.full = True
    for name in "ab":
        outbox.note(lambda name=name: disk._write(name))  # type: ignore[misc]
    assert said == [("error", "the disk is full")] * 2
    disk.full = False
    outbox.note(lambda: disk._write("c"))
    outbox.write_notes()
    assert disk.written == [("a",), ("b",), ("c",)]


def test_what_was_measured_is_in_the_result_and_so_is_the_approval() -> None:
    offer = Offer("x", "e", "p", 3, X0, "h", "start")
    hand = Hand(offer, "q", 0.0, 0, 0)
    ran = Ran(
        "completed", 0.5, "fine", steps=9, duration=2.0, signal_names=("a",), signal_values=(1.0,), signal_limits=(2.0,)
    )
    bare = hand.episode(ran, "r", 12.0)
    assert (bare.verdict_id, bare.stamp, bare.problem, len(bare.episode_uid) > 8) == ("", 12.0, "p", True)
    assert math.isnan(bare.predicted_worst_case)
    hand.episode_uid = "u"
    hand.permit = type("P", (), {"verdict": Verdict("approved", "e", 3, "h", "r", "", "m", "v", worst_case=0.1)})()
    found = hand.episode(ran, "r", 12.0)
    assert (found.episode_uid, found.verdict_id, found.predicted_worst_case) == ("u", "v", 0.1)
    assert (found.steps, found.duration, found.signal_values, found.theta is X0) == (9, 2.0, (1.0,), True)
    hand.released, hand.pause, hand.ran, hand.prepared_at = True, 0.5, ran, 3.0
    hand.start_over()
    again: Any = hand
    assert (again.permit, again.ran, again.pause, again.released) == (None, None, 0.02, False)
    assert math.isnan(hand.prepared_at)


# -- leases, stops ---------------------------------------------------------------------------------------


def test_a_lease_is_its_runners_alone_and_ends_by_time_or_by_its_end() -> None:
    now = [0.0]
    leases = Leases(10.0, lambda: now[0])
    leases.begin(1, "a")
    leases.begin(2, "b")
    leases.begin(3, "")
    assert [leases.renew(id, who) for id, who in ((1, "b"), (9, "a"), (9, ""), (3, ""))] == [False] * 4
    now[0] = 10.0
    assert leases.due() == [], "to its last moment"
    assert leases.renew(2, "b")
    now[0] = 10.5
    assert leases.due() == [1, 3]
    leases.end(1)
    leases.end(1)
    assert leases.due() == [3]


def test_a_runner_that_went_away_safely_is_forgotten_after_a_while_and_not_before() -> None:
    stops = Stops()
    stops.hear("/a", Seen(10.0, 0, "safe", "", False))
    for silent, open_ in ((FORGOTTEN - 0.1, True), (FORGOTTEN, True), (FORGOTTEN + 0.1, False)):
        assert bool(stops.unconfirmed(10.0 + silent, 1)) is open_
        assert stops.confirmed(10.0 + silent, 1) == {}
    stops.hear("/a", Seen(20.0, 1, "safe", "", False))
    assert stops.confirmed(20.0 + FORGOTTEN, 1) == {"/a": "safe"}
    assert stops.confirmed(20.1 + FORGOTTEN, 1) == {}
    stops.hear("/a", Seen(30.0, 1, "moving", "", True))
    assert stops.unconfirmed(30.0, 1) == {"/a": "moving; last heard 0.0 s ago"}


def test_whoever_waits_for_a_runners_word_hears_it_when_it_comes() -> None:
    stops, begun = Stops(), time.monotonic()
    waiting = threading.Thread(target=stops.wait, args=(60.0,))
    waiting.start()
    while waiting.is_alive() and time.monotonic() < begun + 30.0:
        stops.hear("/a", Seen(10.0, 0, "safe", "", False))
        waiting.join(0.01)
    assert not waiting.is_alive()
    begun = time.monotonic()
    stops.wait(0.05)
    assert time.monotonic() - begun >= 0.04, "and no shorter than that"


# -- records ---------------------------------------------------------------------------------------------


def test_what_counts_what_was_executed_and_what_broke_the_contract() -> None:
    def of(outcome: str, **more: Any) -> tuple[bool, bool, str]:
        episode = Episode("u", "e", 1, "r", X0, outcome, **more)
        return episode.counts, episode.executed, episode.breach

    assert of("completed") == of("terminated") == (True, True, "")
    assert of("stopped", verdict_id="v") == of("vetoed", verdict_id="v") == (False, False, "")
    assert of("failed") == (False, False, ""), "it never began"
    assert of("failed", verdict_id="v") == (False, True, "it gave no return: failed")
    assert of("failed", verdict_id="v", reason="it fell") == (False, True, "it gave no return: it fell")
    assert of("completed", violation="too hot") == (True, True, "too hot")


def test_another_experiment_is_one_whose_method_seed_or_fixed_settings_differ() -> None:
    one = Experiment("u", "n", "", "crbo", {"gamma": 0.5, "preset": "paper"}, 1)
    assert (
        one.differences(Experiment("v", "other", "", "crbo", {"gamma": 0.1, "preset": "paper", "risk": 0.2}, 1)) == []
    )
    other = Experiment("v", "n", "", "bo", {"preset": "x", "more": 1}, 2)
    assert one.differences(other) == [
        "method: crbo, not bo", "seed: 1, not 2", "setting preset: paper, not x", "setting more: -, not 1",
    ]  # fmt: skip


def test_the_threshold_is_told_in_words_to_the_person_who_consents() -> None:
    def words(state: str, reason: str = "") -> str:
        numbers: dict[str, Any] = dict.fromkeys(ContractState.__dataclass_fields__, 0)
        more = {"state": state, "reason": reason, "threshold": 0.25, "risk": 0.1}
        return ContractState(**{**numbers, **more}).threshold_in_words

    assert words("none") == "NONE, everything is permitted"
    assert words("waits", "waits for theta_0") == "waits for theta_0; risk 0.1"
    assert words("kept") == "0.25; risk 0.1"


def test_best_json_is_what_was_written_or_a_policy_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "best.json"
    best_file.write(path, {"experiment": "e", "theta": [0.1, 1.0 / 3.0]})
    assert best_file.complaint(path) == ""
    assert best_file.read(path)["theta"] == [0.1, 1.0 / 3.0]
    assert not (tmp_path / "best.json.part").exists()
    content = json.loads(path.read_text())
    for change, words in (({"theta": [0.1, 0.3]}, "digest does not fit"), ({"digest": None}, "no digest")):
        changed = {**content, **change}
        path.write_text(json.dumps({k: v for k, v in changed.items() if v is not None}))
        assert words in best_file.complaint(path)
    path.write_text('{"theta": [1]}')
    assert best_file.read(path) == {"theta": [1]}, "one's own"
    path.write_text("[1]")
    with pytest.raises(InvalidInput, match="no object"):
        best_file.read(path)
