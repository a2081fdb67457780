"""What the monitor writes down and says of itself, and what it takes for an answer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.core import Space
from crbo_ros.core.problem import Problem
from crbo_ros.core.trial import theta_hash
from crbo_ros.errors import InvalidInput
from crbo_ros.protocol.monitor import SafetyMonitor
from crbo_ros.protocol.records import APPROVED, REFUSED, WAITING, Episode, Verdict

THETA_0, NEAR = np.array([0.5, 0.5]), np.array([0.5, 0.51])
PROBLEM = Problem("t", "nominal", Space([0.0, 0.0], [1.0, 1.0]), THETA_0)


def make(tmp_path: Path, **options: Any) -> SafetyMonitor:
    return SafetyMonitor(PROBLEM, tmp_path / "monitor.sqlite", **options)


def ask(monitor: SafetyMonitor, theta: Any, id: int, runner: str = "r", **more: Any) -> Verdict:
    return monitor.check(
        experiment_uid="e", proposal_id=id, theta=theta, hash=theta_hash(np.asarray(theta)), runner=runner, **more
    )


def ended(theta: Any, value: float, id: int, **more: Any) -> Episode:
    return Episode(f"u{id}", "e", id, "r", np.asarray(theta), "completed", value, **more)


def test_the_terms_are_on_record_for_whoever_recomputes_the_contract(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5, risk=0.1, budget=40, lipschitz=2.0)
    wanted = {"risk": 0.1, "j_min": 0.5, "budget": 40, "start_rollouts": 3, "lipschitz": 2.0}
    assert json.loads(monitor.store.flag("terms")) == wanted, "infinities are the defaults"
    assert monitor.configure("ann", j_min=0.6) == {"j_min": 0.6}
    assert json.loads(monitor.store.flag("terms")) == {**wanted, "j_min": 0.6}
    logged = len(monitor.store.settings_log())
    assert monitor.configure("ann", j_min=0.6) == {}
    assert len(monitor.store.settings_log()) == logged == 1, "what changes nothing is no change"
    monitor.close()


def test_it_counts_what_it_said_from_nothing(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5)
    assert (monitor.approved, monitor.vetoed, monitor.holds, monitor.n, monitor.waiting) == (0, 0, 0, 0, [])
    ask(monitor, THETA_0, 0)
    monitor.add_return(ended(THETA_0, 1.0, 0))
    assert ask(monitor, [2.0, 2.0], 1).status == REFUSED
    assert (monitor.approved, monitor.vetoed, monitor.n) == (1, 1, 1)
    monitor.stop("smoke")
    assert ask(monitor, THETA_0, 2).status == WAITING
    assert (monitor.approved, monitor.vetoed, monitor.holds) == (1, 1, 1), "who waits was neither"
    monitor.close()


def test_an_operator_decides_on_the_theta_that_was_shown_and_once(tmp_path: Path) -> None:
    monitor = make(tmp_path, require_operator=True)
    first = ask(monitor, THETA_0, 0)
    assert (first.status, first.rule, monitor.waiting) == (WAITING, "operator", [0])
    assert monitor.review(7, "", True)[0] is False, "another proposal"
    assert monitor.review(0, theta_hash(NEAR), True)[0] is False, "another theta"
    assert ask(monitor, THETA_0, 0).status == WAITING, "neither was an approval"
    assert monitor.review(0, first.theta_hash, True, "looks fine") == (True, "approved")
    approved = ask(monitor, THETA_0, 0)
    assert (approved.status, monitor.waiting) == (APPROVED, [])
    assert "approved by the operator: looks fine (" in approved.reason
    ask(monitor, NEAR, 1)
    assert monitor.review(1, "", False) == (True, "rejected")
    rejected = ask(monitor, NEAR, 1)
    assert (rejected.status, rejected.rule, rejected.reason) == (REFUSED, "operator", "rejected by the operator")
    for id, (approve, comment) in enumerate(((True, ""), (False, "too fast")), 2):
        theta = [0.5, 0.5 + 0.01 * id]
        ask(monitor, theta, id)
        monitor.review(id, "", approve, comment)
        assert ask(monitor, theta, id).status == (APPROVED if approve else REFUSED), "whatever the comment"
    monitor.close()


def test_a_question_without_an_experiment_is_refused(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    verdict = monitor.check(experiment_uid="", proposal_id=0, theta=THETA_0, hash=theta_hash(THETA_0), runner="r")
    assert (verdict.status, monitor.experiment_uid) == (REFUSED, "")
    assert "experiment_uid" in verdict.reason
    monitor.close()


def test_what_is_under_way_is_charged_to_others_and_not_to_the_one_that_asks_again(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5, budget=100)
    ask(monitor, THETA_0, 0)
    monitor.add_return(ended(THETA_0, 1.0, 0))
    assert ask(monitor, NEAR, 1).status == APPROVED
    assert (monitor.charged(), monitor.charged(1)) == (1, 0)
    again = ask(monitor, NEAR, 1)
    other = ask(monitor, [0.5, 0.49], 2, runner="s")
    assert other.account == pytest.approx(again.account - 1.0)
    assert monitor.charged() == 2
    stopped = replace(ended(NEAR, 0.0, 1), outcome="stopped")
    monitor.add_return(replace(stopped, verdict_id="v", experiment_uid="another"))
    assert monitor.charged() == 2, "of another experiment"
    monitor.add_return(stopped)
    assert monitor.charged() == 2, "an end without an approval ends nothing"
    monitor.add_return(replace(stopped, verdict_id="v"))
    assert monitor.charged() == 1
    ask(monitor, THETA_0, 3, runner="s")  # who asks about another one has ended the one before
    assert monitor.charged() == 0
    monitor.close()
    monitor = make(tmp_path, j_min=0.5, budget=100)
    assert monitor.charged() == 0, "also after a restart"
    monitor.close()


def test_a_rollout_whose_return_was_heard_is_charged_no_longer_also_after_a_restart(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5, budget=100)
    ask(monitor, THETA_0, 0)
    monitor.add_return(ended(THETA_0, 1.0, 0))
    verdict = ask(monitor, NEAR, 1)
    monitor.close()
    monitor = make(tmp_path, j_min=0.5, budget=100)
    assert monitor.charged() == 1
    monitor.add_return(ended(NEAR, 1.0, 1, verdict_id=verdict.verdict_id))
    assert monitor.charged() == 0
    monitor.store.log_command("rearm", "{}", "ann", 12.5)
    monitor.close()
    monitor = make(tmp_path, j_min=0.5, budget=100)
    assert (monitor.charged(), monitor.n) == (0, 2)
    (row,) = monitor.database.query("SELECT stamp, who, command, arguments FROM commands")
    assert tuple(row) == (12.5, "ann", "rearm", "{}"), "who loosened what, and when"
    monitor.close()


def test_signals_that_do_not_match_are_no_return(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    ask(monitor, THETA_0, 0)
    for wrong in ({"signal_names": ("a",)}, {"signal_values": (1.0,)}, {"signal_limits": (1.0,)}):
        changes: dict[str, Any] = wrong
        with pytest.raises(InvalidInput, match="signal_names"):
            monitor.add_return(replace(ended(THETA_0, 1.0, 0), **changes))
    assert monitor.n == 0
    assert monitor.add_return(ended(THETA_0, 1.0, 0))
    assert not monitor.add_return(ended(THETA_0, 1.0, 0)), "known"
    assert (monitor.n, monitor.lacks(3), monitor.lacks(0), monitor.knows("u0"), monitor.knows("u1")) == (
        1, 2, 0, True, False,
    )  # fmt: skip
    monitor.close()


def test_what_was_not_executed_or_has_no_id_is_no_return(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    ask(monitor, THETA_0, 0)
    for wrong in ({"outcome": "vetoed"}, {"outcome": "stopped"}, {"outcome": "returned"}, {"episode_uid": ""}):
        changes: dict[str, Any] = wrong
        assert monitor.add_return(replace(ended(THETA_0, 1.0, 0), **changes)) is False
    assert monitor.n == 0
    monitor.close()


def test_approvals_are_no_sign_of_a_run_that_creeps(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5, budget=400)
    ask(monitor, THETA_0, 0)
    monitor.add_return(ended(THETA_0, 1.0, 0))
    for id in range(1, 13):
        theta = [0.5, 0.5 + 1e-4 * id]
        verdict = ask(monitor, theta, id)
        assert (verdict.status, verdict.rule) == (APPROVED, "bound")
        monitor.add_return(ended(theta, 1.0, id, verdict_id=verdict.verdict_id))
    assert monitor.hint() == ""
    monitor.close()


def test_a_person_who_reports_says_what_was_seen_and_of_which_rollout(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5)
    ask(monitor, THETA_0, 0)
    monitor.add_return(ended(THETA_0, 1.0, 0))
    assert monitor.report_violation(0, "  ")[0] is False
    assert monitor.report_violation(5, "it scraped")[0] is False
    assert monitor.contract.account.violations == 0
    assert monitor.report_violation(0, "it scraped") == (True, "proposal 0 counts as a violation: 1 of 1")
    monitor.close()


def test_a_stop_without_a_reason_holds_and_a_rearm_is_for_the_stops_that_were_seen(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    monitor.stop("")
    assert (monitor.stopped, monitor.holds) == ("stopped", 1)
    assert monitor.rearm(holds=0) is False, "somebody said stop since"
    monitor.close()
    monitor = make(tmp_path)
    assert monitor.stopped == "stopped", "and that is on disk again"
    assert monitor.rearm(holds=0) is True
    monitor.close()
    monitor = make(tmp_path)
    assert monitor.stopped == "", "rearmed: also after a restart"
    monitor.close()


def test_a_question_without_an_experiment_does_not_cost_what_was_heard_before(tmp_path: Path) -> None:
    monitor = make(tmp_path)
    monitor.add_return(ended(THETA_0, 1.0, 0))
    monitor.check(experiment_uid="", proposal_id=0, theta=THETA_0, hash=theta_hash(THETA_0), runner="r")
    assert monitor.n == 0
    ask(monitor, NEAR, 1)
    assert monitor.n == 1
    monitor.close()


def test_the_worst_case_of_each_signal_is_told_for_the_policy_that_was_asked_about(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5)
    ask(monitor, THETA_0, 0)
    assert monitor.summary().signal_names == ()
    heat: dict[str, Any] = {"signal_names": ("heat",), "signal_values": (40.0,), "signal_limits": (80.0,)}
    monitor.add_return(ended(THETA_0, 1.0, 0, **heat))
    for theta in ([0.5, 0.6], [0.5, 0.9]):  # with one value it may reach its limit anywhere else
        ask(monitor, theta, 1)
        found = monitor.summary()
        assert (found.signal_names, found.signal_limits) == (("heat",), (80.0,))
        assert found.signal_bounds == pytest.approx((80.0,))
    ask(monitor, THETA_0, 2)
    assert monitor.summary().signal_bounds == pytest.approx((40.0,)), "there it was measured"
    monitor.close()


def test_a_verdict_names_the_account_only_where_there_is_a_threshold_to_keep(tmp_path: Path) -> None:
    free, bound = make(tmp_path / "free"), make(tmp_path / "bound", j_min=0.5)
    for monitor in (free, bound):
        ask(monitor, THETA_0, 0)
        monitor.add_return(ended(THETA_0, 1.0, 0))
    assert np.isnan(ask(free, NEAR, 1).account)
    assert np.isfinite(ask(bound, NEAR, 1).account)
    for monitor in (free, bound):
        monitor.close()


def test_theta_0_is_charged_to_nobody(tmp_path: Path) -> None:
    monitor = make(tmp_path, j_min=0.5)
    ask(monitor, THETA_0, 0)
    assert monitor.charged() == 0
    monitor.add_return(ended(THETA_0, 1.0, 0))
    assert (ask(monitor, THETA_0, 1).status, monitor.charged(), monitor.store.pending()) == (APPROVED, 0, {})
    monitor.close()
