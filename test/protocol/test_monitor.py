"""The safety monitor's decisions and the runner's last look, without ROS."""

import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core import Space
from crbo_ros.core.problem import Problem
from crbo_ros.core.trial import theta_hash
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.protocol.monitor import SafetyMonitor
from crbo_ros.protocol.records import APPROVED, REFUSED, WAITING, Episode
from crbo_ros.protocol.stops import Seen, Stops

SPACE = Space([0.0, 0.0], [1.0, 1.0])
THETA_0 = np.array([0.5, 0.5])
PROBLEM = Problem("t", "nominal", SPACE, THETA_0)


def make(tmp_path: Path, problem: Any = PROBLEM, **options: Any) -> SafetyMonitor:
    return SafetyMonitor(problem, tmp_path / "monitor.sqlite", **options)


def check(monitor: Any, theta: Any, id: int = 1, uid: str = "e", hash: Any = None, **more: Any) -> Any:
    theta = np.array(theta, float)
    return monitor.check(
        experiment_uid=uid, proposal_id=id, theta=theta, hash=hash or theta_hash(theta), runner="r", **more
    )


def seen(theta: Any, value: Any, id: int, verdict_id: str = "", uid: str = "e", problem: str = "") -> Episode:
    theta = np.array(theta, float)
    return Episode(f"u{id}", uid, id, "r", theta, "completed", value, verdict_id=verdict_id, problem=problem)


def test_theta_0_is_approved_because_the_operator_configured_it_and_nothing_else_before_it_ran(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.0)
    verdict = check(monitor, THETA_0, 0)
    assert (verdict.status, "configured" in verdict.reason) == (APPROVED, True)
    other = check(monitor, [0.5, 0.6])  # a second runner's, while the first one runs theta_0
    assert (other.status, "theta_0's return" in other.reason) == (WAITING, True)
    assert monitor.waiting == [], "not at the operator"


def test_the_bound_decides_and_the_verdict_says_how(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5, lipschitz=2.0)
    check(monitor, THETA_0, 0)
    assert monitor.add_return(seen(THETA_0, 1.0, 0))
    assert monitor.add_return(seen([0.5, 0.2], 0.9, 9))  # the first step: L begins with (J0 - J_min) / 0.3
    near, far = check(monitor, [0.5, 0.6], 1), check(monitor, [0.5, 0.8], 2)
    assert (near.status, far.status) == (APPROVED, REFUSED)
    assert near.gate == pytest.approx(1.0 - 2.0 * 0.1, abs=0.01), "the user's L is the floor of the calibrated one"
    assert (far.nearest_id, far.lipschitz_source, far.rule) == (0, "user", "bound")
    assert far.distance == pytest.approx(0.3)
    assert "below the threshold 0.5" in far.reason
    assert far.valid_for == 0.0


def test_an_operator_whose_run_creeps_is_told_why_and_what_to_do(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5)
    check(monitor, THETA_0, 0)
    for id, (theta, value) in enumerate([(THETA_0, 1.0), ([0.5, 0.51], 0.98), ([0.5, 0.52], -1.0)]):
        monitor.add_return(seen(theta, value, id))
    for id in range(3, 12):
        assert check(monitor, [0.1, 0.1], id).status == REFUSED
        assert monitor.hint() == ""
    check(monitor, [0.1, 0.1], 12)
    assert "10 of the last 11 proposals were vetoed" in monitor.hint()
    assert "the lowest return, -1, was proposal 2's" in monitor.hint()
    assert "with L = " in monitor.hint()
    monitor.j_min = -math.inf
    for id in range(13, 24):
        assert check(monitor, [0.1, 0.1], id).status == APPROVED
    assert monitor.hint() == ""


def test_what_an_operator_rejects_is_no_creeping_run(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=-10.0, lipschitz=1.0, require_operator=True)
    monitor.check(experiment_uid="e", proposal_id=0, theta=THETA_0, hash=theta_hash(THETA_0), runner="r")
    monitor.add_return(seen(THETA_0, 1.0, 0))
    for id in range(1, 15):
        theta = [0.5, 0.5 + 0.01 * id]
        assert check(monitor, theta, id).status == WAITING
        monitor.review(id, "", False)
        assert check(monitor, theta, id).status == REFUSED
    assert monitor.hint() == ""


def test_an_infinite_threshold_or_constant_lets_nothing_pass(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=math.inf)
    check(monitor, THETA_0, 0)
    monitor.add_return(seen(THETA_0, 1.0, 0))
    verdict = check(monitor, [0.5, 0.50001], 1)
    assert (verdict.status, verdict.rule) == (WAITING, "theta_0 falls"), "a person chooses another threshold"
    monitor.close()
    monitor = make(tmp_path, j_min=0.0, lipschitz=math.inf)
    monitor.add_return(seen([0.4, 0.4], 1.0, 1))
    with np.errstate(invalid="ignore"):  # infinity times a distance of 0
        assert check(monitor, [0.5, 0.50001], 2).status == REFUSED
        assert check(monitor, [0.4, 0.4], 2).rule == "proven"


def test_a_relative_threshold_follows_the_start(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min_drop=0.25, lipschitz=1.0)
    assert monitor.threshold == -math.inf
    check(monitor, THETA_0, 0)
    monitor.add_return(seen(THETA_0, -2.0, 0))
    assert monitor.threshold == -2.5


def test_a_relative_threshold_that_is_not_known_yet_lets_nothing_pass(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min_drop=0.5)
    check(monitor, THETA_0, 0)
    assert check(monitor, [0.5, 0.6]).status == WAITING
    monitor.add_return(seen([0.5, 0.50001], 1.0, 1))  # a return, but not theta_0's
    assert check(monitor, [0.5, 0.50002], 2).status == WAITING
    monitor.j_min_drop = math.inf
    assert check(monitor, [0.5, 0.50002], 2).status == APPROVED


def test_a_start_that_was_stopped_and_repeated_under_another_id_sets_the_threshold(tmp_path: Path) -> None:
    for _ in range(2):  # and after a restart
        monitor = make(tmp_path, j_min_drop=0.25)
        check(monitor, THETA_0, 1)
        monitor.add_return(seen(THETA_0, 2.0, 1))
        monitor.add_return(seen(THETA_0, 1.8, 7))  # J0 is the mean of theta_0's returns before any other policy's
        monitor.add_return(seen([0.4, 0.4], 9.0, 8))
        monitor.add_return(seen(THETA_0, 1.0, 9))
        assert monitor.threshold == pytest.approx(0.75 * 1.9)
        monitor.close()


@pytest.mark.parametrize(
    ("theta", "hash", "field"),
    [
        ([0.5, math.nan], None, "theta"),
        ([0.5], None, "theta"),
        ([0.5, 1.5], None, "theta"),
        ([0.5, 0.6], "x", "theta_hash"),
    ],
)
def test_bad_proposals_are_vetoed_by_field(tmp_path: Path, theta: list[Any], hash: str | None, field: str) -> None:
    verdict = check(make(tmp_path), theta, hash=hash)
    assert verdict.status == REFUSED
    assert verdict.reason.startswith(field)


def test_another_experiment_is_refused(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    assert check(monitor, THETA_0, uid="one").status == APPROVED
    assert "experiment_uid" in check(monitor, THETA_0, uid="two").reason
    assert check(monitor, THETA_0, uid="two").status == REFUSED
    assert not monitor.add_return(seen(THETA_0, 1.0, 0, uid="two"))


def test_stop_holds_everything_across_a_restart_until_rearm(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    monitor.stop("smoke")
    monitor.close()
    monitor = make(tmp_path)
    assert monitor.stopped == "smoke"
    assert check(monitor, THETA_0, 0).status == WAITING  # not a veto: the policy is not at fault
    monitor.rearm()
    assert check(monitor, THETA_0, 0).status == APPROVED


def test_a_hold_waits_neither_for_what_is_computed_nor_for_the_disk(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    held = threading.Thread(target=lambda: monitor.hold("smoke"))
    with monitor._lock, monitor.database.lock:  # as while it computes and writes
        held.start()
        held.join(60.0)
        assert monitor.stopped == "smoke"
        assert monitor.waiting == []


def test_a_rearm_that_was_called_before_a_stop_does_not_undo_it(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    monitor.stop("first")
    called = monitor.holds
    monitor.hold("second")  # between the call of rearm and its turn
    assert not monitor.rearm(called)
    assert monitor.stopped == "second"
    monitor.close()
    assert make(tmp_path).stopped == "second"


def test_fitting_ahead_changes_no_verdict(tmp_path: Path) -> None:
    verdicts: dict[str, list[Any]] = {}
    for name in ("ahead", "asked"):
        monitor, rng = make(tmp_path / name, j_min=0.0), np.random.default_rng(0)
        check(monitor, THETA_0, 0)
        for i in range(6):
            theta = THETA_0 + 0.01 * i
            monitor.add_return(seen(theta, 1.0 + rng.normal(), i))
            if name == "ahead":
                monitor.fit()
            verdict = check(monitor, theta + 0.02, i + 1)
            verdicts.setdefault(name, []).append((verdict.status, verdict.worst_case, verdict.lipschitz))
    assert verdicts["ahead"] == verdicts["asked"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e101])
def test_a_return_that_nobody_believes_is_refused_with_the_reason(tmp_path: Path, value: float) -> None:
    monitor = make(tmp_path, j_min=0.0)
    for _ in range(2):  # before it knows its experiment, and after
        with pytest.raises(InvalidInput, match="value"):
            monitor.add_return(seen(THETA_0, value, 0))
        check(monitor, THETA_0, 0)
    assert monitor.n == 0


# -- identity ----------------------------------------------------------------------------------------------

OTHERS: dict[str, Any] = {
    "plant": {"plant": "qube_hardware"},
    "options": {"options": {"mass": 2.0}},
    "policy": {"policy": "abc"},
    "theta_0": {"theta_0": np.array([0.5, 0.4])},
    "domain": {"space": Space([0.0, 0.0], [1.0, 2.0])},
}


@pytest.mark.parametrize("what", OTHERS)
def test_the_memory_of_another_problem_is_refused_by_name_and_kept(tmp_path: Path, what: Any) -> None:
    monitor = make(tmp_path)
    check(monitor, THETA_0, 0)
    monitor.add_return(seen(THETA_0, 1.0, 0))
    monitor.close()
    with pytest.raises(StoreError, match=rf"another problem \({what}: .*, not "):
        make(tmp_path, replace(PROBLEM, **OTHERS[what]))
    assert make(tmp_path).n == 1


def test_returns_of_a_simulation_or_of_nobody_knows_what_never_enter_the_data_for_hardware(tmp_path: Path) -> None:
    real = replace(PROBLEM, plant="qube_hardware", hardware=True)
    monitor = make(tmp_path, real, j_min=0.5)
    for _ in range(2):  # before it knows its experiment, and after
        for problem, word in ((PROBLEM.key, "plant: qube_hardware, not nominal"), ("", "empty")):
            with pytest.raises(InvalidInput, match=f"problem: .*{word}"):
                monitor.add_return(seen(THETA_0, 1.0, 0, problem=problem))
        check(monitor, THETA_0, 0, problem=real.key)
    assert monitor.n == 0
    assert monitor.add_return(seen(THETA_0, 1.0, 0, problem=real.key))


def test_a_proposal_of_another_problem_is_vetoed_by_name_and_does_not_make_it_the_guarded_one(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    verdict = check(monitor, THETA_0, 0, uid="other", problem=replace(PROBLEM, plant="real").key)
    assert (verdict.status, "plant: nominal, not real" in verdict.reason) == (REFUSED, True)
    assert check(monitor, THETA_0, 0, uid="e", problem=PROBLEM.key).status == APPROVED


# -- thresholds set at run time ----------------------------------------------------------------------------


def test_a_stricter_threshold_that_was_set_at_run_time_survives_a_restart_with_who_and_when(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min_drop=0.5, clock=lambda: 1234.5)
    monitor.configure("ann", j_min_drop=0.01, j_min=0.2, require_operator=True)
    monitor.close()
    monitor = make(tmp_path, j_min_drop=0.5)
    assert (monitor.j_min_drop, monitor.j_min, monitor.require_operator) == (0.01, 0.2, True)
    assert len(monitor.notes) == 3
    assert "j_min_drop 0.01 (ann, 19" in monitor.notes[0]
    assert monitor.store.settings_log()[0] == (1234.5, "ann", "j_min_drop", 0.01)
    monitor.configure("bob", j_min_drop=0.8, j_min=-math.inf, require_operator=False)
    assert monitor.j_min_drop == 0.8
    monitor.close()
    monitor = make(tmp_path, j_min_drop=0.5)
    assert (monitor.j_min_drop, monitor.j_min, monitor.require_operator, monitor.notes) == (0.5, -math.inf, False, [])


def test_a_threshold_that_cannot_be_written_down_is_not_effective(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.1)
    monitor.database.query("PRAGMA query_only=ON")
    with pytest.raises(StoreError):
        monitor.configure("ann", j_min=0.0)
    assert monitor.j_min == 0.1


# -- what the optimizer knows and the monitor does not -------------------------------------------------------


def test_a_monitor_that_lacks_a_return_waits_for_it_instead_of_approving(tmp_path: Path) -> None:
    """The bad return makes L larger and the account poorer: without it the verdict would be kinder."""
    monitor = make(tmp_path, j_min=0.5, risk=0.01, budget=20)
    check(monitor, THETA_0, 0)
    for id, (theta, value) in enumerate([(THETA_0, 1.0), ([0.5, 0.53], 1.0)]):
        monitor.add_return(seen(theta, value, id))
    assert check(monitor, [0.5, 0.51], 3, returns=2).status == APPROVED
    verdict = check(monitor, [0.5, 0.51], 3, returns=3)
    assert (verdict.status, "knows 2 of 3 returns" in verdict.reason) == (WAITING, True)
    assert monitor.lacks(3) == 1
    monitor.add_return(seen([0.5, 0.56], -3.0, 2))
    assert check(monitor, [0.5, 0.51], 3, returns=3).status == REFUSED
    assert check(monitor, THETA_0, 4, returns=9).status == APPROVED, "theta_0 needs no data"


def test_unverified_returns_count_are_named_and_become_verified_by_the_runners_own(tmp_path: Path) -> None:
    for _ in range(2):  # and after a restart
        monitor = make(tmp_path, j_min=0.5, lipschitz=1.0)
        check(monitor, THETA_0, 0)
        monitor.add_return(seen(THETA_0, 1.0, 0), verified=False)
        assert not monitor.add_return(seen(THETA_0, 1.0, 0), verified=False)
        verdict = check(monitor, [0.5, 0.6], 1, returns=1)
        assert (verdict.status, "1 of 1 returns unverified" in verdict.reason) == (APPROVED, True)
        assert not monitor.knows("u0")
        monitor.close()
    monitor = make(tmp_path, j_min=0.5, lipschitz=1.0)
    with pytest.raises(InvalidInput, match=r"value: .* but the optimizer's store says"):
        monitor.add_return(seen(THETA_0, 0.9, 0))
    monitor.add_return(seen(THETA_0, 1.0, 0))
    assert "unverified" not in check(monitor, [0.5, 0.6], 1, returns=1).reason
    monitor.close()
    assert make(tmp_path).knows("u0")


def test_a_verdict_answers_one_question_and_proves_who_gave_it(tmp_path: Path) -> None:
    monitor = make(tmp_path, key="secret")
    verdict = check(monitor, THETA_0, 0, nonce="n1")
    assert (verdict.nonce, verdict.proven("secret"), verdict.proven("other")) == ("n1", True, False)
    assert not replace(verdict, nonce="n2").proven("secret")
    monitor.close()
    assert check(make(tmp_path), THETA_0, 0).proof == ""


def test_nobody_is_advised_to_switch_the_thresholds_off(tmp_path: Path) -> None:
    verdict = check(make(tmp_path, j_min_drop=0.5), [0.5, 0.6])
    assert verdict.status == WAITING
    assert "off" not in verdict.reason.split()


def test_an_early_return_that_is_no_policy_does_not_disturb_the_first_question(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    with pytest.raises(InvalidInput, match="theta"):
        monitor.add_return(seen([0.5], 1.0, 0))
    assert check(monitor, THETA_0, 0).status == APPROVED


def test_coverage_is_scored_by_the_monitors_own_record_and_survives_a_restart(tmp_path: Path) -> None:
    monitor = make(tmp_path, lipschitz=1.0)
    check(monitor, THETA_0, 0)
    monitor.add_return(seen(THETA_0, 1.0, 0))
    good, bad = check(monitor, [0.5, 0.6], 1), check(monitor, [0.6, 0.5], 2)
    monitor.add_return(seen([0.5, 0.6], 1.0, 1, good.verdict_id))
    monitor.add_return(seen([0.6, 0.5], -9.0, 2, bad.verdict_id))
    monitor.add_return(seen([0.6, 0.5], -9.0, 2, bad.verdict_id))  # known already
    assert (monitor.n, monitor.score.coverage) == (3, 0.5)
    monitor.close()
    monitor = make(tmp_path)
    assert (monitor.n, monitor.score.coverage) == (3, 0.5)


def test_a_late_monitor_uses_the_history_that_it_heard_before_it_was_asked(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5, lipschitz=1.0)
    monitor.add_return(seen(THETA_0, 1.0, 0))
    assert check(monitor, [0.5, 0.6], 1).status == APPROVED
    assert monitor.n == 1


# -- what became of a stop -----------------------------------------------------------------------------


def test_a_stop_is_answered_runner_by_runner() -> None:
    stops = Stops()
    assert stops.answer(0.0, 1) == "no runner is heard"
    stops.hear("/a", Seen(10.0, 0, "safe", "0 V", False))
    stops.hear("/b", Seen(10.0, 0, "moving", "", False))
    stops.hear("/c", Seen(10.0, 0, "safe", "not connected", True))
    assert list(stops.unconfirmed(10.1, 1)) == ["/a", "/b"], "safe before the hold says nothing of after it"
    stops.hear("/a", Seen(10.2, 1, "safe", "0 V", False))
    stops.hear("/b", Seen(10.3, 1, "unknown", "no answer from the card", False))
    assert stops.answer(10.5, 1).split("; ", 2) == [
        "/a: SAFE (0 V)",
        "/c: SAFE (not connected)",
        "/b: NOT CONFIRMED (unknown, no answer from the card; last heard 0.2 s ago)",
    ]
    assert list(stops.unconfirmed(100.0, 1)) == ["/b"], "one that was not safe when it fell silent is not forgotten"
    assert stops.unconfirmed(100.0, 2) == stops.unconfirmed(100.0, 1), "a runner that went away safely is"


# -- the contract --------------------------------------------------------------------------------------------


def fall(monitor: SafetyMonitor, id: int, value: float = 0.0, runner: str = "r") -> Any:
    """A novel policy, closer to theta_0 after each fall, and what becomes of it if it may run."""
    theta = THETA_0 + 0.1 * 0.3**monitor.contract.account.violations + 1e-6 * id
    verdict = monitor.check(
        experiment_uid="e", proposal_id=id, theta=theta, hash=theta_hash(theta), runner=runner, nonce=""
    )
    if verdict.status == APPROVED:
        monitor.add_return(replace(seen(theta, value, id, verdict.verdict_id), runner=runner))
    return verdict


def begin(tmp_path: Path, **options: Any) -> SafetyMonitor:
    monitor = make(tmp_path, **{"j_min": 0.5, "risk": 0.05, "budget": 100, **options})
    check(monitor, THETA_0, 0)
    monitor.add_return(seen(THETA_0, 1.0, 0))
    return monitor


def test_a_lying_optimizer_whose_every_policy_falls_gets_its_budget_and_no_more_across_restarts(tmp_path: Path) -> None:
    monitor, fallen = begin(tmp_path), 0
    for id in range(1, 300):
        verdict = fall(monitor, id, value=-1.0)
        fallen += verdict.status == APPROVED
        assert fallen <= monitor.contract.account.limit
        if verdict.rule == "account":
            assert verdict.reason.startswith("the account is empty: ")
            assert "it fills by 0.025 per episode" in verdict.reason
            monitor.add_return(seen(THETA_0, 1.0, 1000 + id))  # a proven policy earns
        if id % 50 == 0:
            account, L = monitor.contract.account, monitor.contract.lipschitz
            monitor.close()
            monitor = make(tmp_path, j_min=0.5, risk=0.05, budget=100)
            assert vars(monitor.contract.account) == vars(account)
            assert monitor.contract.lipschitz == L
        if monitor.contract.account.n >= 100:
            break
    assert 3 <= fallen <= 5


def test_a_rollout_that_is_under_way_is_charged_until_its_end_is_heard_and_also_after_a_restart(tmp_path: Path) -> None:
    monitor = begin(tmp_path, risk=0.01)  # one violation in all
    first = check(monitor, [0.5, 0.5001], 1)
    assert first.status == APPROVED
    for _ in range(2):
        other = monitor.check(
            experiment_uid="e", proposal_id=2, theta=[0.5, 0.5002], hash=theta_hash([0.5, 0.5002]), runner="second"
        )
        assert (other.status, other.rule, "1 more" in other.reason) == (REFUSED, "account", True)
        assert check(monitor, [0.5, 0.5001], 1).status == APPROVED, "it is not charged for itself"
        assert monitor.summary().pending == 1
        monitor.close()
        monitor = make(tmp_path, j_min=0.5, risk=0.01, budget=100)
    monitor.add_return(seen([0.5, 0.5001], 1.0, 1, first.verdict_id))
    assert check(monitor, [0.5, 0.50005], 2).status == APPROVED


def test_what_a_runner_gave_back_or_left_behind_is_charged_no_longer(tmp_path: Path) -> None:
    monitor = begin(tmp_path, risk=0.01)
    first = check(monitor, [0.5, 0.5001], 1)
    monitor.add_return(replace(seen([0.5, 0.5001], math.nan, 1, first.verdict_id), outcome="returned"))
    assert monitor.summary().pending == 0
    assert check(monitor, [0.5, 0.5002], 2).status == APPROVED
    assert check(monitor, [0.5, 0.5003], 3).status == APPROVED, "the runner that asks has ended the one before"
    assert monitor.summary().pending == 1


def test_an_episode_without_a_return_counts_by_the_policys_fault_alone(tmp_path: Path) -> None:
    monitor = begin(tmp_path)
    for id, (outcome, verdict_id) in enumerate(
        [("stopped", "v"), ("returned", "v"), ("failed", ""), ("failed", "v")], 1
    ):
        monitor.add_return(replace(seen([0.5, 0.51], math.nan, id, verdict_id), outcome=outcome))
    summary = monitor.summary()
    assert (summary.executed, summary.violations, monitor.n) == (2, 1, 1)
    monitor.close()
    assert make(tmp_path, j_min=0.5).summary().violations == 1


def test_a_violation_that_a_person_reports_counts_and_survives_a_restart(tmp_path: Path) -> None:
    monitor = begin(tmp_path)
    fall(monitor, 1, 1.0)
    assert monitor.report_violation(7, "scraped")[0] is False
    assert monitor.report_violation(1, " ")[0] is False
    for _ in range(2):  # twice is once
        assert monitor.report_violation(1, "it scraped the table") == (True, "proposal 1 counts as a violation: 1 of 2")
    assert check(monitor, THETA_0 + 0.1 + 1e-6, 2).rule == "bound", "it is no longer proven"
    monitor.close()
    summary = make(tmp_path, j_min=0.5, budget=100).summary()
    assert (summary.novel_violations, summary.reported) == (1, (1,))


def test_a_contract_that_theta_0_itself_breaks_is_refused_and_the_operator_chooses(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min_drop=0.1, budget=100)
    for id, value in enumerate([1.0, 0.7, 1.3]):
        assert check(monitor, THETA_0, id).status == APPROVED
        monitor.add_return(seen(THETA_0, value, id))
    verdict = check(monitor, [0.5, 0.51], 3)
    assert (verdict.status, verdict.rule) == (WAITING, "theta_0 falls")
    assert "fell below J_min = 0.9 in 1 of its 3 start rollouts" in verdict.reason
    assert monitor.summary().state == "refused"
    monitor.configure("ann", j_min_drop=0.5)
    assert check(monitor, [0.5, 0.51], 3).status == APPROVED


def test_with_risk_0_only_what_the_users_own_constant_vouches_for_may_run(tmp_path: Path) -> None:
    monitor = begin(tmp_path, risk=0.0)
    assert "none is set" in check(monitor, [0.5, 0.501], 1).reason
    monitor.close()
    monitor = begin(tmp_path / "own", risk=0.0, lipschitz=2.0)
    assert check(monitor, [0.5, 0.55], 1).status == APPROVED
    assert check(monitor, [0.5, 0.9], 1).rule == "bound"
    monitor.add_return(seen([0.5, 0.55], 0.4, 1))
    refused = check(monitor, [0.5, 0.501], 2)
    assert (refused.rule, "it does not fill again" in refused.reason) == ("account", True)
    assert check(monitor, THETA_0, 3).status == APPROVED


def test_the_proven_policy_may_always_run_again_and_who_fell_may_not(tmp_path: Path) -> None:
    monitor = begin(tmp_path, budget=20)
    fall(monitor, 1, 2.0)
    fall(monitor, 2, -1.0)
    assert monitor.summary().state == "empty"
    assert monitor.summary().proven_id == 1
    assert check(monitor, THETA_0 + 0.1 + 1e-6, 4).rule == "proven"
    assert check(monitor, THETA_0 + 0.1 + 2e-6, 5).rule == "account"


@pytest.mark.parametrize("seed", [1, 2])
def test_three_runners_at_once_a_lying_optimizer_and_restarts_do_not_break_the_promise(
    tmp_path: Path, seed: int
) -> None:
    rng, monitor = np.random.default_rng(seed), begin(tmp_path, budget=60, risk=0.1)
    under_way: dict[str, Any] = {}  # runner -> the novel rollout that it has begun
    fallen = id = 0
    for step in range(120):
        runner = f"r{rng.integers(3)}"
        if runner in under_way:
            monitor.add_return(under_way.pop(runner))
            fallen += 1
        else:
            id += 1
            theta = THETA_0 + 0.1 * 0.5**fallen * rng.uniform(-1.0, 1.0, 2)
            verdict = monitor.check(
                experiment_uid="e", proposal_id=id, theta=theta, hash=theta_hash(theta), runner=runner
            )
            if verdict.status == APPROVED:
                under_way[runner] = replace(seen(theta, -1.0, id, verdict.verdict_id), runner=runner)
            elif rng.random() < 0.3:
                monitor.add_return(seen(THETA_0, 1.0, 1000 + step))
        assert fallen + len(under_way) <= monitor.contract.account.limit
        if step % 40 == 39:
            monitor.close()
            monitor = make(tmp_path, j_min=0.5, budget=60, risk=0.1)
    assert fallen >= 2


def test_a_monitor_that_lost_its_memory_has_the_same_account_from_the_optimizers_store(tmp_path: Path) -> None:
    monitor = begin(tmp_path / "old")
    told = [seen(THETA_0, 1.0, 0)]
    for id in range(1, 6):
        theta = THETA_0 + 0.05 * 0.4**id
        told.append(seen(theta, -1.0 if id % 2 else 1.0, id))
        told[-1] = replace(told[-1], outcome="failed", value=math.nan, verdict_id="v") if id == 3 else told[-1]
        monitor.add_return(told[-1])
    fresh = make(tmp_path / "new", j_min=0.5, budget=100)
    check(fresh, THETA_0, 0)
    for episode in told:
        fresh.add_return(episode, verified=False)
    assert vars(fresh.contract.account) == vars(monitor.contract.account)
    assert fresh.contract.account.violations == 3
    assert fresh.contract.lipschitz == monitor.contract.lipschitz
