"""The monitor's model: what is shown and which buttons apply, whatever arrives and in whatever order."""

import math

import numpy as np
import pytest

from crbo_ros.protocol.records import Episode, Verdict
from crbo_ros.view.model import MonitorModel
from crbo_ros.view.values import Answer, Heartbeat, Presence, Proposed, State, Status

UID, MONITOR = "experiment 1", "monitor 1"


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def model(clock):
    return MonitorModel(clock)


def state(word="running", uid=UID, **fields):
    return State("furuta", uid, "furuta", "crbo", word, **fields)


def episode(id, value=math.nan, outcome="completed", bound=math.nan, uid=UID, reason=""):
    return Episode(f"{uid} {id} {outcome}", uid, id, "runner", np.zeros(2), outcome, value, reason,
                   predicted_worst_case=bound)  # fmt: skip


def proposed(id, uid=UID, gamma=0.4):
    return Proposed(uid, id, f"hash {id}", "acquisition", mean=0.5, sigma=0.1, worst_case=0.1, gamma=gamma)


def verdict(id, status, stamp=0.0, monitor=MONITOR, reason="waits for the operator (because)"):
    return Verdict(status, UID, id, f"hash {id}", "runner", reason, monitor, stamp=stamp, worst_case=0.2)


def heartbeat(armed=True, uid=MONITOR, reason=""):
    return Heartbeat(uid, UID, armed, reason, 0.9)


HERE = Presence("/furuta", True, True, True)


def test_the_curve_grows_with_each_episode(model):
    for id, value in enumerate((0.3, 0.5, 0.4)):
        model.take([episode(id, value, bound=0.35 if id else math.nan)])
        series = model.series()
        assert len(series.points["completed"][0]) == id + 1
    np.testing.assert_array_equal(series.best[1], [0.3, 0.5, 0.5])
    np.testing.assert_allclose(series.average[1], [0.3, 0.4, 0.4])
    np.testing.assert_array_equal(series.bounds[0], [1, 2])
    np.testing.assert_array_equal(series.coverage[1], [1.0, 1.0])


def test_a_bound_that_did_not_hold_lowers_the_coverage(model):
    model.take([episode(0, 0.5, bound=0.1), episode(1, 0.05, bound=0.1)])
    np.testing.assert_array_equal(model.series().coverage[1], [1.0, 0.5])


def test_a_veto_is_shown_at_its_bound_with_its_reason(model):
    model.take([proposed(3), verdict(3, "vetoed", reason="worst case too low"), episode(3, outcome="vetoed")])
    ids, heights = model.series().points["vetoed"]
    assert (ids.tolist(), heights.tolist()) == ([3.0], [0.2])
    assert model.verdict_text() == ("vetoed", "vetoed: worst case too low")


def test_episodes_without_a_return_enter_no_curve(model):
    model.take([episode(0, 0.5), episode(1, outcome="stopped"), episode(2, outcome="failed")])
    assert len(model.series().best[0]) == 1
    assert [row.outcome for row in model.rows] == ["completed", "stopped", "failed"]


def test_history_that_comes_twice_counts_once(model):
    model.take([episode(0, 0.5), episode(1, 0.6)])
    version = model.version
    model.take([episode(0, 0.5), episode(1, 0.6)])
    assert len(model.rows) == 2
    assert model.version == version


def test_rows_are_in_the_order_of_their_ids_however_they_arrive(model):
    model.take([episode(2, 0.1), proposed(0), episode(1, 0.2), episode(0, 0.3)])
    assert [row.id for row in model.rows] == [0, 1, 2]


def test_only_the_optimizers_experiment_is_shown(model):
    model.take([episode(0, 0.1, uid="an older one"), episode(1, 0.2, uid="an older one"), episode(0, 0.3)])
    model.take([state()])
    assert [row.value for row in model.rows] == [0.3]
    model.take([state(uid="an older one")])
    assert [row.value for row in model.rows] == [0.1, 0.2]


def test_before_the_optimizer_is_heard_of_the_newest_experiment_is_shown(model):
    model.take([episode(0, 0.3)])
    assert len(model.rows) == 1


def test_with_nobody_there_only_stop_can_be_clicked(model):
    assert model.buttons() == {"stop": True, "pause": False, "resume": False, "rearm": False, "approve": False,
                               "reject": False}  # fmt: skip
    assert "nothing moves" in model.monitor_text()


def test_pause_and_resume_follow_the_optimizers_state(model):
    model.take([HERE, state("running")])
    assert model.buttons()["pause"]
    assert not model.buttons()["resume"]
    model.take([state("paused")])
    assert model.buttons()["resume"]
    assert not model.buttons()["pause"]
    model.take([Presence("/furuta", optimizer=False)])
    assert not model.buttons()["resume"]
    assert model.optimizer_text() == "gone (was paused)"


def test_stop_is_offered_until_all_is_held_and_rearm_then(model):
    model.take([heartbeat()])
    assert model.buttons()["stop"]
    assert not model.buttons()["rearm"]
    model.take([heartbeat(armed=False, reason="stop was called")])
    assert not model.buttons()["stop"]
    assert model.buttons()["rearm"]
    assert model.monitor_text() == "HELD: stop was called"


def test_a_silent_monitor_is_shown_as_gone(model, clock):
    model.take([heartbeat(armed=False)])
    clock.now += 1.5
    assert "gone" in model.monitor_text()
    assert model.buttons()["stop"]
    assert not model.buttons()["rearm"]


def test_approve_and_reject_need_a_proposal_that_waits_at_a_living_armed_monitor(model, clock):
    model.take([heartbeat(), proposed(1), proposed(4), verdict(4, "waiting", 1.0)])
    assert model.buttons()["approve"]
    assert model.buttons()["reject"]
    assert model.current().id == 4
    model.take([heartbeat(armed=False)])
    assert not model.buttons()["approve"]
    model.take([heartbeat(uid="a restarted monitor")])
    assert not model.buttons()["approve"]
    model.take([heartbeat(), verdict(4, "approved", 2.0)])
    assert not model.buttons()["approve"]


def test_a_proposal_that_waits_for_the_start_is_not_the_operators_business(model):
    model.take([heartbeat(), proposed(4), verdict(4, "waiting", 1.0, reason="waits for theta_0's return: ...")])
    assert model.waiting() == []
    assert not model.buttons()["approve"]


def test_a_decision_is_asked_for_once(model):
    model.take([heartbeat(), proposed(4), verdict(4, "waiting", 1.0)])
    model.asked("approve", "hash 4")
    model.take([verdict(4, "waiting", 1.5)])
    assert not model.buttons()["approve"]
    model.take([Answer("approve", True, "approved"), proposed(5), verdict(5, "waiting", 3.0)])
    assert model.buttons()["approve"]
    assert model.current().id == 5


def test_a_failed_call_is_told_and_can_be_repeated(model):
    model.take([HERE, state("running")])
    model.asked("pause")
    assert not model.buttons()["pause"]
    model.take([Answer("pause", False, "no answer within 5 s")])
    assert model.buttons()["pause"]
    assert model.message == "pause: not done: no answer within 5 s"


def test_a_refused_decision_can_be_made_again(model):
    model.take([heartbeat(), proposed(4), verdict(4, "waiting", 1.0)])
    model.asked("reject", "hash 4")
    model.take([Answer("reject", False, "no answer")])
    assert model.buttons()["reject"]


def test_late_history_does_not_replace_a_newer_verdict(model):
    model.take([verdict(0, "approved", 5.0), verdict(0, "waiting", 4.0)])
    assert model.verdict_text()[0] == "approved"


def test_repeated_waiting_verdicts_do_not_redraw(model):
    model.take([verdict(0, "waiting", 1.0)])
    version = model.version
    model.take([verdict(0, "waiting", 1.5), verdict(0, "waiting", 2.0)])
    assert model.version == version


def test_runners_that_fall_silent_are_left_out(model, clock):
    model.take([Status("/a", "running", "proposal 3", 3, 1.25), Status("/b", "waiting")])
    assert model.runner_text() == "1 running, 1 waiting"
    clock.now += 2.0
    model.take([Status("/a", "running", "proposal 3", 3, 3.25)])
    clock.now += 1.0
    assert model.runner_text() == "running: proposal 3, 3.2 s"


def test_the_running_proposal_is_the_current_one(model):
    model.take([proposed(1), proposed(2), proposed(3), Status("/a", "running", "", 2)])
    assert model.current().id == 2


def test_gamma_follows_the_proposals(model):
    model.take([proposed(0, gamma=0.4), proposed(1, gamma=0.28), episode(0, 0.5)])
    np.testing.assert_array_equal(model.series().gamma[1], [0.4, 0.28])
