"""The runner's last look before anything moves, and its memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.errors import StoreError
from crbo_ros.protocol.gate import HELD, LOST, MOST, SETTLED, Gate, Permit, Presence
from crbo_ros.protocol.records import APPROVED, VETOED, WAITING, Episode, Offer, Verdict
from crbo_ros.protocol.spool import Spool

OFFER = Offer("x", "e", "", 3, np.array([0.5]), "h", "start")
VERDICT = Verdict(APPROVED, "e", 3, "h", "r", "", "m", valid_for=5.0, nonce="n")


def open_gate(now: float = 0.0, uid: str = "m") -> Gate:
    gate = Gate(0.5)
    gate.beat(now - 0.1, uid, True)
    gate.beat(now, uid, True)
    return gate


def refusal(permit: Permit, now: float) -> str:
    found = permit.refusal(now)
    return found.reason if found else ""


def test_a_live_matching_unexpired_approval_opens_the_gate_and_nothing_else_does() -> None:
    gate = open_gate()
    permit = Permit(gate, VERDICT, asked=0.0)
    assert refusal(permit, 0.1) == ""
    assert permit.mismatch(OFFER, "r", "n", "") == ""
    for field, value in (
        ("experiment_uid", "x"), ("proposal_id", 4), ("theta_hash", "x"), ("runner", "x"), ("nonce", "x"),
    ):  # fmt: skip
        wrong: dict[str, Any] = {field: value}
        assert field in Permit(gate, replace(VERDICT, **wrong), 0.0).mismatch(OFFER, "r", "n", "")
    for change in ({"status": VETOED}, {"status": WAITING}, {"monitor_uid": "restarted"}, {"valid_for": 0.0}):
        changes: dict[str, Any] = change
        assert refusal(Permit(gate, replace(VERDICT, **changes), 0.0), 0.1), change
    assert "heartbeat" in refusal(permit, 0.6)


def test_an_approvals_age_counts_from_the_question() -> None:
    """However long the answer was under way, or the process frozen with the answer in hand."""
    gate = open_gate(now=7.0)
    assert "valid_for" in refusal(Permit(gate, VERDICT, asked=1.9), 7.1)
    assert refusal(Permit(gate, VERDICT, asked=2.2), 7.1) == ""
    assert "valid_for" in refusal(Permit(gate, VERDICT, asked=7.2), 7.1), "nor one from the future"


def test_a_verdict_without_the_key_of_this_graph_is_no_verdict() -> None:
    """A stranger that offers check_rollout may copy a heartbeat's uid; it has no key."""
    gate = open_gate()
    assert "proof" in Permit(gate, VERDICT, 0.0).mismatch(OFFER, "r", "n", "secret")
    assert "proof" in Permit(gate, VERDICT.signed("guess"), 0.0).mismatch(OFFER, "r", "n", "secret")
    forged = replace(VERDICT, proof="\u00e4\u202e")
    assert "proof" in Permit(gate, forged, 0.0).mismatch(OFFER, "r", "n", "secret"), "and no exception"
    signed = VERDICT.signed("secret")
    assert Permit(gate, signed, 0.0).mismatch(OFFER, "r", "n", "secret") == ""
    for change in ({"valid_for": 1e9}, {"status": WAITING}, {"verdict_id": "another"}):
        changes: dict[str, Any] = change
        assert not replace(signed, **changes).proven("secret"), "what was signed cannot be changed"


def test_a_held_monitor_says_why_and_how_often_it_was_stopped() -> None:
    gate = Gate(0.5)
    assert gate.holds == 0
    gate.beat(0.0, "m", False, "smoke", holds=4)
    obstacle = gate.obstacle(0.1)
    assert obstacle is not None
    assert (obstacle.kind, obstacle.reason, gate.holds) == (HELD, "smoke", 4)
    gate.beat(0.1, "m", False)
    obstacle = gate.obstacle(0.2)
    assert obstacle is not None
    assert "not armed" in obstacle.reason


def test_a_flood_of_names_is_counted_and_not_kept_and_those_that_were_heard_stay() -> None:
    presence = Presence(1.0)
    for i in range(1000):
        presence.hear(0.001 * i, f"s{i}")
    assert 1 < presence.count(1.0) == len(presence._heard) <= MOST
    presence.hear(1.0, "s0")
    assert presence._heard["s0"] == 1.0, "who is known already is heard again"
    presence.hear(2.5, "later")
    assert presence.count(2.5) == 1


def test_who_was_heard_in_time_is_there_and_who_will_be_heard_is_not() -> None:
    presence = Presence(1.0)
    presence.hear(0.0, "a")
    presence.hear(1.0, "b")
    assert (presence.count(1.0), presence.count(0.5)) == (2, 1), "a clock that went back counts nobody twice"


def test_the_gate_says_since_when_and_opens_as_soon_as_a_monitor_is_settled() -> None:
    gate = Gate(0.5)
    assert "never" in gate.obstacle(0.0).reason  # type: ignore[union-attr]
    gate.beat(0.0, "m", True)
    assert "only just now" in gate.obstacle(0.0).reason  # type: ignore[union-attr]
    gate.beat(SETTLED, "m", True)
    assert gate.obstacle(SETTLED, VERDICT) is None
    assert "1.95 s ago" in gate.obstacle(2.0).reason  # type: ignore[union-attr]


def test_the_gate_tells_a_lost_monitor_from_one_that_holds() -> None:
    gate = Gate(0.5)
    kinds = []
    for now, armed in ((0.0, None), (0.1, False), (0.2, True), (0.3, True)):
        if armed is not None:
            gate.beat(now, "m", armed, "" if armed else "smoke")
        obstacle = gate.obstacle(now, VERDICT)
        kinds.append(obstacle.kind if obstacle else "")
    assert kinds == [LOST, HELD, "", ""]
    assert gate.obstacle(0.35, replace(VERDICT, monitor_uid="old")).kind == LOST  # type: ignore[union-attr]


def test_a_burst_of_old_heartbeats_after_a_freeze_opens_no_gate() -> None:
    """A process that was frozen finds what was sent before its monitor died, all at once."""
    gate = open_gate(now=0.0)
    for late in (0.0, 0.001, 0.002):
        gate.beat(10.0 + late, "m", True)
        assert gate.obstacle(10.0 + late) is not None
    assert gate.obstacle(10.02) is not None
    gate.beat(10.0 + 2.0 * SETTLED, "m", True)
    assert gate.obstacle(10.0 + 2.0 * SETTLED) is None, "a living one goes on beating"


@pytest.mark.parametrize("jump", [-3600.0, 3600.0, 86400.0])
def test_a_jump_of_the_clock_opens_no_gate(jump: float) -> None:
    assert open_gate().obstacle(jump) is not None


def test_after_a_step_back_of_the_clock_a_living_monitor_opens_the_gate_again() -> None:
    gate = open_gate(now=100.0)
    gate.beat(5.0, "m", True)
    assert gate.obstacle(5.0) is not None, "heard only just now, on this clock"
    gate.beat(5.0 + 2.0 * SETTLED, "m", True)
    assert gate.obstacle(5.0 + 2.0 * SETTLED) is None


def test_two_living_monitors_open_no_gate() -> None:
    gate = Gate(0.5)
    for i in range(20):
        gate.beat(0.05 * i, f"m{i % 2}", True)
        assert gate.obstacle(0.05 * i) is not None


def test_presence_counts_those_who_spoke_lately() -> None:
    presence = Presence(3.0)
    assert presence.count(0.0) == 0
    for when, who, count in ((1.0, "a", 1), (2.0, "b", 2), (3.0, "b", 2), (4.5, "b", 1), (5.0, "c", 2)):
        presence.hear(when, who)
        assert presence.count(when) == count
    assert presence.count(9.0) == 0


def result(uid: str = "u5") -> Episode:
    return Episode(uid, "e", 5, "r", np.array([0.1, 1.0 / 3.0]), "completed", 0.1 + 0.2)


def reopened(spool: Spool, path: Path) -> Spool:
    spool.close()
    return Spool(path)


def test_the_spool_remembers_request_and_results_across_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    spool = Spool(path)
    request = spool.request_id()
    spool = reopened(spool, path)
    assert spool.request_id() == request
    following = spool.add(result())
    spool = reopened(spool, path)
    (kept,) = spool.pending()
    assert (kept.value, kept.theta.tolist()) == (result().value, result().theta.tolist())
    assert spool.request_id() == following != request, "the request was fulfilled with the result"
    spool.settle(kept.episode_uid, "done")
    assert spool.pending() == []
    assert [e.proposal_id for e in spool.history("e")] == [5]
    spool.close()


def test_what_was_begun_is_on_record_and_ends_once(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    spool = Spool(path)
    request = spool.request_id()
    spool.begin("u1", request, OFFER, "v1")
    spool = reopened(spool, path)  # killed
    assert (spool.recover(), spool.recover()) == (1, 0)
    assert spool.interruptions(request) == 1
    spool.begin("u2", request, OFFER, "v2")
    spool.interrupt("u2", "the monitor went away")
    assert spool.interruptions(request) == 2
    spool.begin("u5", request, OFFER, "v3")
    spool.add(result())
    assert (spool.recover(), spool.interruptions(request)) == (0, 2)
    spool.forgive(request)
    spool = reopened(spool, path)
    assert spool.interruptions(request) == 0, "a person has looked"
    spool.close()


def test_an_approval_is_used_once_says_the_disk(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite")
    spool.begin("u1", "q", OFFER, "v1")
    with pytest.raises(StoreError):
        spool.begin("u2", "q", OFFER, "v1")
    spool.close()


def test_a_fault_of_the_plant_stays_on_disk_until_a_person_clears_it(tmp_path: Path) -> None:
    path = tmp_path / "spool.sqlite"
    spool = Spool(path)
    assert spool.fault() == ""
    spool.latch("the card is silent")
    spool = reopened(spool, path)
    assert spool.fault() == "the card is silent"
    spool.latch("and hot")
    assert spool.fault() == "and hot"
    spool.latch("")
    assert reopened(spool, path).fault() == ""


def test_breaks_of_the_plant_are_counted_for_their_request_and_not_forgiven(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite")
    for uid, request, broken in (("u1", "q", True), ("u2", "q", False), ("u3", "other", True)):
        spool.begin(uid, request, OFFER, f"v{uid}")
        spool.interrupt(uid, "why", broken=broken)
    assert (spool.breaks("q"), spool.interruptions("q"), spool.breaks("none")) == (1, 1, 0)
    spool.forgive("q")
    assert (spool.breaks("q"), spool.interruptions("q")) == (1, 0)
    spool.close()


def test_what_a_person_told_the_runner_is_written_down(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.sqlite")
    spool.log_command("clear", "fault", "ann", 12.5)
    assert next(tuple(row) for row in spool.database.query("SELECT * FROM commands"))[:4] == (
        12.5, "ann", "clear", "fault",
    )  # fmt: skip
    spool.close()
