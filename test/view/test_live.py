"""A run as it happens: what is shown and which buttons apply, whatever arrives and in whatever order."""

import math
from typing import Any

import numpy as np
import pytest

from crbo_ros.protocol.records import Episode, Offer, Verdict
from crbo_ros.view.live import LiveView
from crbo_ros.view.progress import ProgressLine
from crbo_ros.view.values import Heartbeat, OptimizerState, Publishers, Reply, RunnerStatus

UID, MONITOR = "experiment 1", "monitor 1"


class Clock:
    now = 100.0

    def __call__(self) -> Any:
        return self.now


@pytest.fixture
def clock() -> Any:
    return Clock()


@pytest.fixture
def view(clock: Clock) -> Any:
    return LiveView(clock)


def state(word: str = "running", uid: str = UID, **fields: Any) -> Any:
    return OptimizerState("furuta", uid, "furuta", "crbo", word, **fields)


def episode(
    id: Any,
    value: float = math.nan,
    outcome: str = "completed",
    bound: float = math.nan,
    uid: str = UID,
    reason: str = "",
) -> Any:
    return Episode(f"{uid} {id} {outcome}", uid, id, "runner", np.zeros(2), outcome, value, reason,
                   predicted_worst_case=bound)  # fmt: skip


def proposed(id: Any, uid: str = UID, gamma: float = 0.4) -> Any:
    return Offer("furuta", uid, "problem", id, np.zeros(2), f"hash {id}", "acquisition", mean=0.5, sigma=0.1,
                 worst_case=0.1, gamma=gamma)  # fmt: skip


def verdict(
    id: Any, status: Any, stamp: float = 0.0, monitor: str = MONITOR, reason: str = "waits for the operator (because)"
) -> Any:
    return Verdict(status, UID, id, f"hash {id}", "runner", reason, monitor, stamp=stamp, worst_case=0.2)


def heartbeat(armed: bool = True, uid: str = MONITOR, reason: str = "") -> Any:
    return Heartbeat(uid, UID, armed, reason, 0.9)


def current_id(view: LiveView) -> int:
    row = view.current()
    return row.id if row else -1


HERE = Publishers("/furuta", True, True, True)


def test_the_curve_grows_with_each_episode(view: LiveView) -> None:
    for id, value in enumerate((0.3, 0.5, 0.4)):
        view.record([episode(id, value, bound=0.35 if id else math.nan)])
        series = view.run.series()
        assert len(series.points["completed"][0]) == id + 1
    np.testing.assert_array_equal(series.best[1], [0.3, 0.5, 0.5])
    np.testing.assert_allclose(series.average[1], [0.3, 0.4, 0.4])
    np.testing.assert_array_equal(series.bounds[0], [1, 2])
    np.testing.assert_array_equal(series.coverage[1], [1.0, 1.0])


def test_a_bound_that_did_not_hold_lowers_the_coverage(view: LiveView) -> None:
    view.record([episode(0, 0.5, bound=0.1), episode(1, 0.05, bound=0.1)])
    np.testing.assert_array_equal(view.run.series().coverage[1], [1.0, 0.5])


def test_a_veto_is_shown_at_its_bound_with_its_reason(view: LiveView) -> None:
    view.record([proposed(3), verdict(3, "vetoed", reason="worst case too low"), episode(3, outcome="vetoed")])
    ids, heights = view.run.series().points["vetoed"]
    assert (ids.tolist(), heights.tolist()) == ([3.0], [0.2])
    assert view.verdict_text() == ("vetoed", "vetoed: worst case too low")


def test_episodes_without_a_return_enter_no_curve(view: LiveView) -> None:
    view.record([episode(0, 0.5), episode(1, outcome="stopped"), episode(2, outcome="failed")])
    assert len(view.run.series().best[0]) == 1
    assert [row.outcome for row in view.run.rows] == ["completed", "stopped", "failed"]


def test_history_that_comes_twice_counts_once(view: LiveView) -> None:
    view.record([episode(0, 0.5), episode(1, 0.6)])
    changes = len(view.run.changes)
    view.record([episode(0, 0.5), episode(1, 0.6)])
    assert len(view.run.rows) == 2
    assert len(view.run.changes) == changes


def test_rows_are_in_the_order_of_their_ids_however_they_arrive(view: LiveView) -> None:
    view.record([episode(2, 0.1), proposed(0), episode(1, 0.2), episode(0, 0.3)])
    assert [row.id for row in view.run.rows] == [0, 1, 2]


def test_only_the_optimizers_experiment_is_shown(view: LiveView) -> None:
    view.record([episode(0, 0.1, uid="an older one"), episode(1, 0.2, uid="an older one"), episode(0, 0.3)])
    view.record([state()])
    assert [row.value for row in view.run.rows] == [0.3]
    view.record([state(uid="an older one")])
    assert [row.value for row in view.run.rows] == [0.1, 0.2]


def test_before_the_optimizer_is_heard_of_the_newest_experiment_is_shown(view: LiveView) -> None:
    view.record([episode(0, 0.3)])
    assert len(view.run.rows) == 1


def test_with_nobody_there_only_stop_can_be_clicked(view: LiveView) -> None:
    assert view.buttons() == {"stop": True, "pause": False, "resume": False, "rearm": False, "approve": False,
                               "reject": False, "clear": False, "violation": False}  # fmt: skip
    assert "nothing moves" in view.monitor_text()


def test_pause_and_resume_follow_the_optimizers_state(view: LiveView) -> None:
    view.record([HERE, state("running")])
    assert view.buttons()["pause"]
    assert not view.buttons()["resume"]
    view.record([state("paused")])
    assert view.buttons()["resume"]
    assert not view.buttons()["pause"]
    view.record([Publishers("/furuta", optimizer=False)])
    assert not view.buttons()["resume"]
    assert view.optimizer_text() == "gone (was paused)"


def test_stop_is_offered_until_all_is_held_and_rearm_then(view: LiveView) -> None:
    view.record([heartbeat()])
    assert view.buttons()["stop"]
    assert not view.buttons()["rearm"]
    view.record([heartbeat(armed=False, reason="stop was called")])
    assert not view.buttons()["stop"]
    assert view.buttons()["rearm"]
    assert view.monitor_text() == "HELD: stop was called"


def test_a_silent_monitor_is_shown_as_gone(view: LiveView, clock: Clock) -> None:
    view.record([heartbeat(armed=False)])
    clock.now += 1.5
    assert "gone" in view.monitor_text()
    assert view.buttons()["stop"]
    assert not view.buttons()["rearm"]


def test_approve_and_reject_need_a_proposal_that_waits_at_a_living_armed_monitor(view: LiveView, clock: Clock) -> None:
    view.record([heartbeat(), proposed(1), proposed(4), verdict(4, "waiting", 1.0)])
    assert view.buttons()["approve"]
    assert view.buttons()["reject"]
    assert current_id(view) == 4
    view.record([heartbeat(armed=False)])
    assert not view.buttons()["approve"]
    view.record([heartbeat(uid="a restarted monitor")])
    assert not view.buttons()["approve"]
    view.record([heartbeat(), verdict(4, "approved", 2.0)])
    assert not view.buttons()["approve"]


def test_a_proposal_that_waits_for_the_start_is_not_the_operators_business(view: LiveView) -> None:
    view.record([heartbeat(), proposed(4), verdict(4, "waiting", 1.0, reason="waits for theta_0's return: ...")])
    assert view.waiting() == []
    assert not view.buttons()["approve"]


def test_a_decision_is_asked_for_once(view: LiveView) -> None:
    view.record([heartbeat(), proposed(4), verdict(4, "waiting", 1.0)])
    view.asked("approve", "hash 4")
    view.record([verdict(4, "waiting", 1.5)])
    assert not view.buttons()["approve"]
    view.record([Reply("approve", True, "approved"), proposed(5), verdict(5, "waiting", 3.0)])
    assert view.buttons()["approve"]
    assert current_id(view) == 5


def test_a_failed_call_is_told_and_can_be_repeated(view: LiveView) -> None:
    view.record([HERE, state("running")])
    view.asked("pause")
    assert not view.buttons()["pause"]
    view.record([Reply("pause", False, "no answer within 5 s")])
    assert view.buttons()["pause"]
    assert view.message == "pause: not done: no answer within 5 s"


def test_a_refused_decision_can_be_made_again(view: LiveView) -> None:
    view.record([heartbeat(), proposed(4), verdict(4, "waiting", 1.0)])
    view.asked("reject", "hash 4")
    view.record([Reply("reject", False, "no answer")])
    assert view.buttons()["reject"]


def test_late_history_does_not_replace_a_newer_verdict(view: LiveView) -> None:
    view.record([verdict(0, "approved", 5.0), verdict(0, "waiting", 4.0)])
    assert view.verdict_text()[0] == "approved"


def test_repeated_waiting_verdicts_do_not_redraw(view: LiveView) -> None:
    view.record([verdict(0, "waiting", 1.0)])
    changes = len(view.run.changes)
    view.record([verdict(0, "waiting", 1.5), verdict(0, "waiting", 2.0)])
    assert len(view.run.changes) == changes


def test_runners_that_fall_silent_are_left_out(view: LiveView, clock: Clock) -> None:
    view.record([RunnerStatus("/a", "running", "proposal 3", 3, 1.25), RunnerStatus("/b", "waiting")])
    assert view.runner_text() == "1 running, 1 waiting"
    clock.now += 2.0
    view.record([RunnerStatus("/a", "running", "proposal 3", 3, 3.25)])
    clock.now += 1.0
    assert view.runner_text() == "running: proposal 3, 3.2 s"


def test_a_runner_that_prepares_its_plant_is_shown_with_its_proposal_and_what_was_broken_off(view: LiveView) -> None:
    view.record([proposed(2), proposed(3), RunnerStatus("/a", "preparing", "swings down", 2, interrupted=2)])
    assert view.runner_text() == "preparing: swings down, 2 interrupted"
    assert current_id(view) == 2
    view.record([RunnerStatus("/b", "running", "", 3, interrupted=1)])
    assert view.runner_text() == "1 preparing, 1 running, 3 interrupted"


def test_the_running_proposal_is_the_current_one(view: LiveView) -> None:
    view.record([proposed(1), proposed(2), proposed(3), RunnerStatus("/a", "running", "", 2)])
    assert current_id(view) == 2


def test_gamma_follows_the_proposals(view: LiveView) -> None:
    view.record([proposed(0, gamma=0.4), proposed(1, gamma=0.28), episode(0, 0.5)])
    np.testing.assert_array_equal(view.run.series().gamma[1], [0.4, 0.28])


def test_the_progress_line_says_where_the_run_stands_and_what_it_waits_for(view: LiveView, clock: Clock) -> None:
    progress = ProgressLine(view, clock)
    assert progress.line() == "starting ..."
    view.record([state(completed=1, budget=5, last_return=0.25), proposed(0), verdict(0, "approved")])
    assert "1/5  return 0.25  average –  best –  worst case 0.2  vetoes 0" in progress.line()
    assert "ETA --:--" in progress.line()
    clock.now += 30.0
    view.record([state(completed=3, budget=5, vetoed=1), RunnerStatus("/a", "held", "stop was called")])
    assert progress.line().endswith("vetoes 1  failed 0  ETA 0:30  (stop was called)")


def test_the_progress_line_says_what_an_episode_is_expected_to_gain(view: LiveView, clock: Clock) -> None:
    progress = ProgressLine(view, clock)
    view.record([state(completed=1, budget=5, best_mean=0.5), proposed(0)])
    assert "expected gain 0.03989  " in progress.line()  # sigma / sqrt(2 pi): as likely better as worse
    view.record([state(completed=2, budget=5, best_mean=0.5), episode(0, 0.5), proposed(1)])
    assert "expected gain 0  " in progress.line()  # the promise of the one before came to nothing
    assert progress.line() == progress.line()


def test_the_robot_is_what_the_runner_that_knows_least_says(view: LiveView) -> None:
    assert view.plant_text() == ("", "no runner tells")
    view.record([RunnerStatus("/a", "waiting", plant="plant_safe", plant_reason="0 V, at rest")])
    assert view.plant_text() == ("plant_safe", "in its safe state: 0 V, at rest")
    view.record([RunnerStatus("/b", "running", "", 7, plant="plant_moving")])
    assert view.plant_text() == ("plant_moving", "moves, policy of proposal 7")
    view.record([RunnerStatus("/c", "error", plant="plant_unknown", plant_reason="no answer from the card")])
    assert view.plant_text() == ("plant_unknown", "NOT KNOWN: keep away: no answer from the card")
