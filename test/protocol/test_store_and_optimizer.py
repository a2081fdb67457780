"""The optimizer's side of the protocol, without ROS: idempotent, crash-safe, and clear about what it refuses."""

import contextlib
import math
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros.cli import main
from crbo_ros.core import Space
from crbo_ros.core.crbo import CRBO
from crbo_ros.core.problem import Problem
from crbo_ros.core.trial import TrialStatus
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.protocol.optimizer import OptimizerServer
from crbo_ros.protocol.ports import ACCEPTED, DONE, DUPLICATE, OK, REFUSED, RETRY, WAIT
from crbo_ros.protocol.records import Episode, Verdict
from crbo_ros.protocol.spool import Spool
from crbo_ros.protocol.store import SCHEMA_VERSION, ExperimentStore, scale_blob, stored_space
from crbo_ros.registry import make_method

SPACE = Space([-1.0, -2.0], [1.0, 2.0])
THETA_0 = np.array([0.2, -0.3])
PROBLEM = Problem("t", "nominal", SPACE, THETA_0)


def open_experiment(
    path: Path, budget: int = 0, seed: int = 3, problem: Any = PROBLEM, method: str = "crbo", **options: Any
) -> Any:
    def make(settings: Any) -> Any:
        return make_method(method, problem.space, problem.theta_0, seed=seed, **settings)

    options.setdefault("settings", {"gamma": 0.5} if method == "crbo" else {})
    options.setdefault("make", make)
    return OptimizerServer.open(
        path / "experiment.sqlite", problem=problem, name="e", method=method, seed=seed, budget=budget, **options
    )


def episode(
    experiment: Any, answer: Any, value: float = 0.5, outcome: str = "completed", uid: Any = None, **fields: Any
) -> Episode:
    proposal = answer.offer
    base = {"theta": proposal.theta, "proposal_id": proposal.id, "experiment_uid": experiment.uid}
    return Episode(
        **{"episode_uid": uid or f"u{proposal.id}", "runner": "r", "outcome": outcome, "value": value, **base, **fields}
    )


def play(experiment: Any, count: int) -> list[Any]:
    """Run `count` episodes of a known function; the proposals."""
    found = []
    for _ in range(count):
        answer = experiment.propose("r", f"q{len(experiment.store.proposals())}")
        assert answer.status == OK
        value = 1.0 - float(np.sum((answer.offer.theta - 0.4) ** 2))
        assert experiment.acknowledge(episode(experiment, answer, value)) == (ACCEPTED, "")
        found.append(answer.offer)
    return found


def test_the_same_request_gives_the_same_proposal_and_another_a_different_one(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 3)
    one, again, other = (experiment.propose(*who).offer for who in (("a", "x"), ("a", "x"), ("b", "y")))
    assert one.id == again.id
    assert np.array_equal(one.theta, again.theta)
    assert other.id != one.id
    assert not np.allclose(other.theta, one.theta)


def test_a_restart_at_any_point_carries_on_bit_for_bit(tmp_path: Path) -> None:
    whole = play(open_experiment(tmp_path / "whole"), 12)
    experiment = open_experiment(tmp_path / "parts")
    parts: list[Any] = []
    for i in range(12):
        if i % 2:  # sometimes between the proposal and its return
            experiment.propose("r", f"q{i}")
        experiment.close()
        experiment = open_experiment(tmp_path / "parts")
        experiment.best()  # looking must not change what comes next
        parts += play(experiment, 1) if i % 2 == 0 else [_finish_pending(experiment, i)]
    assert [p.theta.tolist() for p in whole] == [p.theta.tolist() for p in parts]


def _finish_pending(experiment: Any, i: Any) -> Any:
    answer = experiment.propose("r", f"q{i}")
    value = 1.0 - float(np.sum((answer.offer.theta - 0.4) ** 2))
    assert experiment.acknowledge(episode(experiment, answer, value))[0] == ACCEPTED
    return answer.offer


def test_an_episode_is_taken_in_once_and_a_repeat_is_a_duplicate(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    answer = experiment.propose("r", "q")
    assert experiment.acknowledge(episode(experiment, answer)) == (ACCEPTED, "")
    assert experiment.acknowledge(episode(experiment, answer))[0] == DUPLICATE
    status, reason = experiment.acknowledge(episode(experiment, answer, 0.9))
    assert (status, "episode_uid" in reason) == (REFUSED, True)
    status, reason = experiment.acknowledge(episode(experiment, answer, uid="other"))
    assert (status, "already ended" in reason) == (REFUSED, True)
    assert experiment.method.n == 1
    assert experiment.propose("r", "q").status == REFUSED  # the request's proposal has ended: make a new request


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"value": math.nan}, "value"),
        ({"value": math.inf}, "value"),
        ({"value": 1e200}, "value"),
        ({"theta": np.array([0.2])}, "theta"),
        ({"theta": np.array([0.2, -0.31])}, "theta"),
        ({"proposal_id": 7}, "proposal_id"),
        ({"experiment_uid": "another"}, "experiment_uid"),
        ({"outcome": "code 99"}, "outcome"),
        ({"uid": ""}, "episode_uid"),
    ],
)
def test_bad_results_are_refused_by_field_and_leave_the_data_alone(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    experiment = open_experiment(tmp_path)
    answer = experiment.propose("r", "q")
    bad = episode(experiment, answer, **{k: v for k, v in change.items() if k != "uid"})
    if "uid" in change:
        bad = Episode(**{**bad.__dict__, "episode_uid": ""})
    status, reason = experiment.acknowledge(bad)
    assert status == REFUSED
    assert reason.startswith(field)
    assert experiment.method.n == 0
    assert experiment.store.episodes() == []
    assert experiment.acknowledge(episode(experiment, answer)) == (ACCEPTED, "")


# -- leases ----------------------------------------------------------------------------------------------


def test_a_lease_is_counted_on_a_steady_clock_and_renewed_by_the_runner_that_holds_the_proposal(tmp_path: Path) -> None:
    now = [1000.0]
    experiment = open_experiment(tmp_path, lease=60.0, clock=lambda: now[0])
    play(experiment, 2)
    held, lost = experiment.propose("a", "1"), experiment.propose("b", "2")
    assert held.offer.lease == 60.0
    now[0] += 50.0
    assert experiment.renew(held.offer.id, "a")
    assert not experiment.renew(lost.offer.id, "a"), "another runner's"
    assert not experiment.renew(99, "a")
    now[0] += 11.0
    assert experiment.expire_due() == [lost.offer.id]
    assert experiment.expire_due() == []
    assert not experiment.renew(lost.offer.id, "b"), "it has ended"
    assert experiment.store.proposal(held.offer.id).end is TrialStatus.PENDING


def test_a_step_of_the_system_clock_ends_no_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = open_experiment(tmp_path, lease=60.0)
    experiment.propose("a", "1")
    monkeypatch.setattr("time.time", lambda: 1e12)
    assert experiment.expire_due() == []


def test_time_stands_still_for_leases_while_nobody_is_there(tmp_path: Path) -> None:
    now = [1000.0]
    experiment = open_experiment(tmp_path, lease=60.0, clock=lambda: now[0])
    id = experiment.propose("a", "1").offer.id
    experiment.close()
    now[0] = 3.0  # another boot
    experiment = open_experiment(tmp_path, lease=60.0, clock=lambda: now[0])
    now[0] += 59.0
    assert experiment.expire_due() == []
    assert experiment.renew(id, "a")
    now[0] += 61.0
    assert experiment.expire_due() == [id]


def test_asking_again_for_a_proposal_renews_its_lease(tmp_path: Path) -> None:
    now = [0.0]
    experiment = open_experiment(tmp_path, lease=60.0, clock=lambda: now[0])
    experiment.propose("a", "1")
    now[0] += 59.0
    experiment.propose("a", "1")
    now[0] += 59.0
    assert experiment.expire_due() == []


@pytest.mark.parametrize(("episode", "lease"), [(20.0, 600.0), (1000.0, 2000.0)])
def test_a_lease_is_never_shorter_than_two_of_the_longest_episodes(
    tmp_path: Path, episode: float, lease: float
) -> None:
    experiment = open_experiment(tmp_path, problem=replace(PROBLEM, episode_seconds=episode))
    assert experiment.propose("r", "q").offer.lease == lease


# -- late, and given back --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["crbo", "cma_es", "turbo", "gibo"])  # those that keep books of ends
@pytest.mark.parametrize("given_back", [False, True])
def test_a_measured_return_is_never_refused_because_it_is_late(tmp_path: Path, method: str, given_back: bool) -> None:
    if method == "cma_es":
        pytest.importorskip("cma")
    now = [1000.0]
    experiment = open_experiment(tmp_path, lease=60.0, clock=lambda: now[0], method=method)
    play(experiment, 2)
    late = experiment.propose("b", "2")
    if given_back:
        back = episode(experiment, late, math.nan, "returned", uid="back", reason="the plant is broken")
        assert experiment.acknowledge(back) == (ACCEPTED, "")
        assert experiment.acknowledge(back)[0] == DUPLICATE
    else:
        now[0] += 61.0
        assert experiment.expire_due() == [late.offer.id]
    play(experiment, 1)
    assert experiment.prepare()
    assert experiment.acknowledge(episode(experiment, late, 0.7)) == (ACCEPTED, "")
    assert experiment.acknowledge(episode(experiment, late, 0.7))[0] == DUPLICATE
    for again in ("completed", "failed"):
        status, reason = experiment.acknowledge(episode(experiment, late, 0.7, again, uid="second"))
        assert (status, "already ended" in reason) == (REFUSED, True)
    assert experiment.method.n == 4
    assert experiment.method.trials[late.offer.id].end is TrialStatus.COMPLETED
    assert experiment.store.proposal(late.offer.id).end is TrialStatus.COMPLETED
    assert [e.proposal_id for e in experiment.store.episodes()] == [0, 1, 3, 2]
    assert experiment.returns(start=2)[0] == 4
    assert [e.proposal_id for e in experiment.returns(start=2)[1]] == [3, 2]
    experiment.close()
    assert open_experiment(tmp_path, method=method).method.n == 4


def test_after_a_late_return_a_restart_gives_the_same_next_proposal(tmp_path: Path) -> None:
    found = []
    for restart in (False, True):
        now = [0.0]
        experiment = open_experiment(tmp_path / str(restart), lease=1.0, clock=lambda now=now: now[0])
        play(experiment, 4)
        late = experiment.propose("b", "late")
        now[0] += 2.0
        experiment.expire_due()
        experiment.prepare()
        experiment.acknowledge(episode(experiment, late, 0.3))
        if restart:
            experiment.close()
            experiment = open_experiment(tmp_path / "True", lease=1.0)
        found.append(experiment.propose("r", "next").offer.theta.tolist())
    assert found[0] == found[1]


def test_what_was_given_back_ends_as_expired_and_is_no_hint(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 4)
    before = experiment.method.report()["gamma_effective"]
    answer = experiment.propose("r", "x")
    experiment.acknowledge(episode(experiment, answer, math.nan, "returned", reason="the driver is gone"))
    row = experiment.store.proposal(answer.offer.id)
    assert (row.end, row.end_reason) == (TrialStatus.EXPIRED, "the driver is gone")
    assert experiment.method.report()["gamma_effective"] == before
    assert experiment.summary()["failed"] == 0


def test_a_late_failure_is_on_record_and_changes_nothing(tmp_path: Path) -> None:
    now = [0.0]
    experiment = open_experiment(tmp_path, lease=1.0, clock=lambda: now[0])
    play(experiment, 3)
    late = experiment.propose("b", "late")
    now[0] += 2.0
    experiment.expire_due()
    assert experiment.acknowledge(episode(experiment, late, math.nan, "failed", uid="f")) == (ACCEPTED, "")
    assert experiment.acknowledge(episode(experiment, late, math.nan, "failed", uid="g"))[0] == REFUSED
    assert experiment.store.proposal(late.offer.id).end is TrialStatus.EXPIRED
    assert experiment.acknowledge(episode(experiment, late, 0.4, uid="h")) == (ACCEPTED, "")
    assert experiment.method.n == 4


def test_a_return_for_a_vetoed_proposal_is_refused(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 2)
    vetoed = experiment.propose("a", "1")
    veto = episode(experiment, vetoed, math.nan, "vetoed", uid="v", reason="too risky")
    assert experiment.acknowledge(veto) == (ACCEPTED, "")
    status, reason = experiment.acknowledge(episode(experiment, vetoed, uid="late"))
    assert (status, "already ended" in reason) == (REFUSED, True)
    assert experiment.store.proposal(vetoed.offer.id).end is TrialStatus.VETOED


# -- a method that cannot digest what it is told -----------------------------------------------------------


class Allergic(CRBO):
    """Raises at certain returns, and goes on doing so."""

    def tell(self, id: int, value: Any) -> None:
        super().tell(id, value)
        if value == 0.666:
            raise np.linalg.LinAlgError("not positive definite")


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_a_return_that_breaks_the_method_stays_on_record_and_breaks_nothing_else(
    tmp_path: Path, killed: bool, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    options: dict[str, Any] = {
        "make": lambda settings: Allergic(SPACE, THETA_0, seed=3, **settings),
        "clock": lambda: now[0],
    }
    experiment = open_experiment(tmp_path, lease=1.0, **options)
    play(experiment, 3)
    answer = experiment.propose("r", "x")
    if late:
        now[0] += 2.0
        experiment.expire_due()
    if killed:  # between the commit and the method's death, so that only the replay can notice
        experiment.learner.tell = lambda *_: ""
    status, reason = experiment.acknowledge(episode(experiment, answer, 0.666))
    assert status == ACCEPTED
    assert killed or "could not use it (LinAlgError: not positive definite)" in reason
    assert killed or experiment.message == reason
    if not killed:
        play(experiment, 2)
    experiment.close()
    experiment = open_experiment(tmp_path, lease=1.0, **options)
    assert "set aside" in caplog.text
    assert experiment.acknowledge(episode(experiment, answer, 0.666))[0] == DUPLICATE
    assert experiment.store.find_episode(f"u{answer.offer.id}")[2] == 0.666
    assert experiment.method.n == len(experiment.store.episodes()) - 1
    assert experiment.method.pending == []
    play(experiment, 2)


def test_a_method_that_cannot_propose_is_said_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy = play(open_experiment(tmp_path / "healthy"), 5)
    experiment, asked = open_experiment(tmp_path / "ill"), []
    play(experiment, 4)
    with monkeypatch.context() as ill:

        def broken(self: CRBO, id: int) -> None:
            asked.append(id)
            raise np.linalg.LinAlgError("not positive definite")

        ill.setattr(CRBO, "_propose", broken)
        assert not experiment.prepare(), "for whoever asks to hear of"
        answer = experiment.propose("r", "x")
        assert (answer.status, answer.alarm, experiment.state) == (WAIT, True, "error")
        assert "method crbo made no proposal (LinAlgError: not positive definite)" in answer.reason
        assert "resume" in answer.reason
        assert "finish" in answer.reason
        count = len(asked)
        assert experiment.propose("r", "x").status == WAIT
        assert not experiment.prepare()
        assert len(asked) == count, "it is not tried again and again"
        assert experiment.summary()["state"] == "error"
        assert (experiment.method.n, experiment.pending, len(experiment.store.episodes())) == (4, [], 4)
        experiment.resume()
        assert experiment.propose("r", "x").status == WAIT, "tried again when a person says so"
        experiment.close()
        experiment = open_experiment(tmp_path / "ill")
        assert experiment.propose("r", "x").status == WAIT, "and after a restart"
    assert experiment.resume()[0]
    assert np.array_equal(experiment.propose("r", "x").offer.theta, healthy[4].theta)
    with monkeypatch.context() as ill:
        ill.setattr(CRBO, "_propose", broken)
        assert experiment.propose("b", "y").status == WAIT
        late = experiment.propose("r", "x")
        assert late.status == OK, "what is in hand is"
        assert experiment.acknowledge(episode(experiment, late, 0.7))[0] == ACCEPTED
        assert experiment.state == "running", "there are other data now"
        assert experiment.propose("b", "y").status == WAIT
        experiment.finish()
        answer = experiment.propose("r", "z")
        assert (answer.status, answer.offer.kind) == (DONE, "best")


def test_the_budget_counts_pending_proposals_and_ends_the_run_with_the_best_policy(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path, budget=3)
    play(experiment, 2)
    last = experiment.propose("a", "1")
    assert experiment.propose("b", "2").status == WAIT
    experiment.acknowledge(episode(experiment, last, 0.1))
    answer = experiment.propose("b", "2")
    assert (answer.status, answer.offer.kind) == (DONE, "best")
    experiment.set_budget(4)
    assert experiment.propose("b", "3").status == OK


def test_pause_resume_and_finish(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 2)
    assert experiment.pause()[0]
    assert experiment.propose("r", "x").status == WAIT
    assert not experiment.pause()[0]
    assert experiment.resume()[0]
    assert experiment.propose("r", "x").status == OK
    assert experiment.finish()[0]
    assert experiment.propose("r", "x").status == DONE, "who asks again has not begun it: it does not begin any more"
    experiment.close()
    again = open_experiment(tmp_path)
    assert again.propose("r", "y").status == again.propose("r", "x").status == DONE  # remembered


def test_a_full_disk_loses_nothing_and_says_so(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 2)
    pages = experiment.store.database.query("PRAGMA page_count")[0][0]
    experiment.store.database.query(f"PRAGMA max_page_count={pages}")  # SQLite's own "disk full"
    answers = [experiment.propose("r", f"full{i}") for i in range(30)]
    full = next(a for a in answers if a.status == WAIT)
    assert "full" in full.reason
    assert full.alarm
    assert "full" in experiment.message, "and a person sees it"
    given = [a for a in answers if a.status == OK]
    waiting = [i for i, a in enumerate(answers) if a.status == WAIT]
    experiment.store.database.query("PRAGMA max_page_count=100000")
    after = experiment.propose("r", f"full{waiting[0]}")
    assert after.status == OK
    assert after.offer.id == (given[-1].offer.id if given else 1) + 1  # the one that could not be written
    assert experiment.acknowledge(episode(experiment, after)) == (ACCEPTED, "")


def test_a_result_that_cannot_be_written_is_not_acknowledged_nor_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = open_experiment(tmp_path)
    answer = experiment.propose("r", "q")
    experiment.store.database.query("PRAGMA query_only=ON")
    status, reason = experiment.acknowledge(episode(experiment, answer))
    assert (status, "read-only" in reason, experiment.message) == (RETRY, True, reason)
    assert experiment.method.n == 0
    experiment.store.database.query("PRAGMA query_only=OFF")
    assert experiment.acknowledge(episode(experiment, answer)) == (ACCEPTED, "")


# -- identity ----------------------------------------------------------------------------------------------

OTHERS: dict[str, Any] = {
    "task": {"task": "another"},
    "plant": {"plant": "stand_in"},
    "hardware": {"hardware": True},
    "options": {"options": {"mass": 2.0}},
    "policy": {"policy": "abc"},
    "return": {"returns": "abc"},
    "theta_0": {"theta_0": np.array([0.2, -0.31])},
    "domain": {"space": Space([-1.5, -2.0], [1.0, 2.0])},
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_store_of_another_problem_is_refused_with_what_differs(tmp_path: Path, what: Any) -> None:
    open_experiment(tmp_path).close()
    open_experiment(tmp_path).close()
    with pytest.raises(StoreError, match=rf"another experiment \({what}: .*, not .*\); choose"):
        open_experiment(tmp_path, problem=replace(PROBLEM, **OTHERS[what]))


def test_a_store_of_another_method_seed_setting_or_schema_is_refused_with_the_reason(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    assert experiment.identity == ExperimentStore(tmp_path / "experiment.sqlite").identity()
    experiment.close()
    with pytest.raises(StoreError, match="seed: 3, not 4"):
        open_experiment(tmp_path, seed=4)
    with pytest.raises(StoreError, match="method: crbo, not bo"):
        open_experiment(tmp_path, method="bo")
    with pytest.raises(StoreError, match="setting preset: -, not paper"):
        open_experiment(tmp_path, settings={"gamma": 0.5, "preset": "paper"})
    for version in (1, 99):
        with sqlite3.connect(tmp_path / "experiment.sqlite") as connection:
            connection.execute(f"PRAGMA user_version={version}")
        with pytest.raises(StoreError, match=f"number is {version}, not {SCHEMA_VERSION}"):
            open_experiment(tmp_path)


def test_an_episode_of_another_problem_is_refused_by_name_and_one_of_a_foreign_runner_is_not(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    answer = experiment.propose("r", "q")
    assert answer.offer.problem == PROBLEM.key
    other = replace(PROBLEM, plant="stand_in").key
    status, reason = experiment.acknowledge(episode(experiment, answer, problem=other))
    assert (status, reason.startswith("problem:"), "plant: nominal, not stand_in" in reason) == (REFUSED, True, True)
    assert experiment.acknowledge(episode(experiment, answer)) == (ACCEPTED, "")
    answer = experiment.propose("r", "n")
    assert answer.offer.returns == 1
    assert experiment.acknowledge(episode(experiment, answer, problem=PROBLEM.key)) == (ACCEPTED, "")
    assert [e.problem for e in experiment.store.episodes()] == ["", PROBLEM.key]


def test_a_corrupt_file_gives_a_clear_error_and_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "experiment.sqlite"
    file.write_bytes(b"this was a database once" * 100)
    with pytest.raises(StoreError, match="The file was kept"):
        open_experiment(tmp_path)
    assert file.read_bytes().startswith(b"this was a database once")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_gives_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be used"):
        open_experiment(tmp_path)


HOLD = """
import sys, time
from pathlib import Path
from crbo_ros.protocol.spool import Spool
spool = Spool(Path(sys.argv[1]))
print("mine", flush=True)
time.sleep(60)
"""


def test_one_process_at_a_time_has_a_store_and_a_killed_one_lets_go_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "runner.sqlite"
    monkeypatch.setattr("crbo_ros.protocol.database.PATIENCE", 0.2)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(file)], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        with pytest.raises(StoreError, match=f"in use by process {other.pid}: .* End that one first"):
            Spool(file)
        other.kill()
    Spool(file).close()


def test_an_experiment_that_runs_can_be_read_but_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("crbo_ros.protocol.database.PATIENCE", 0.2)
    experiment = open_experiment(tmp_path)
    play(experiment, 3)
    with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
        open_experiment(tmp_path)
    again = ["run", "pendulum", "--experiments-dir", str(tmp_path.parent), "--experiment", tmp_path.name]
    assert main(again) == 1
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err
    reader = ExperimentStore(tmp_path / "experiment.sqlite")
    assert len(reader.episodes()) == 3
    reader.close()
    play(experiment, 1)
    experiment.close()
    assert open_experiment(tmp_path).method.n == 4


def test_a_store_waits_for_one_that_is_about_to_end(tmp_path: Path) -> None:
    first = Spool(tmp_path / "runner.sqlite")
    threading.Timer(0.3, first.close).start()
    Spool(tmp_path / "runner.sqlite").close()


def test_a_changed_gamma_is_remembered(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 3)
    experiment.configure(gamma=0.3)
    one = experiment.propose("r", "n").offer
    experiment.close()
    experiment = open_experiment(tmp_path, settings={})
    assert experiment.method.report()["gamma"] == 0.3
    assert np.array_equal(experiment.propose("r", "n").offer.theta, one.theta)
    with pytest.raises(InvalidInput, match="gamma"):
        experiment.configure(gamma=1.5)


def test_verdicts_of_other_experiments_are_not_recorded(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    experiment.propose("r", "q")
    for uid in (experiment.uid, "another"):
        experiment.add_verdict(Verdict("approved", uid, 0, "h", "r", "fine", "m"))
    assert len(experiment.store.verdicts()) == 1


# -- the next proposal, made before anybody asks for it -----------------------------------------------


def thetas(proposals: Any) -> list[Any]:
    return [p.theta.tolist() for p in proposals]


@pytest.mark.parametrize("killed", [False, True])
def test_a_proposal_that_was_made_early_is_the_same_bit_for_bit_also_after_a_kill(tmp_path: Path, killed: bool) -> None:
    whole = play(open_experiment(tmp_path / "whole"), 10)
    experiment, parts = open_experiment(tmp_path / "early"), []
    for _ in range(10):
        assert experiment.prepare()
        experiment.best(), experiment.summary()  # looking must not change what comes next
        if killed:
            experiment.close()  # (lets go of the files; writes nothing)
            experiment = open_experiment(tmp_path / "early")
            experiment.prepare()
        parts += play(experiment, 1)
    assert thetas(parts) == thetas(whole)
    assert [row.proposal.id for row in experiment.store.proposals()] == list(range(10))


def test_an_early_proposal_is_nobodys_until_it_is_asked_for(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path, budget=4)
    play(experiment, 3)
    assert experiment.prepare()
    assert experiment.pending == []
    assert experiment.summary()["pending"] == 0
    assert len(experiment.store.proposals()) == 3
    assert experiment.propose("a", "x").status == OK
    assert experiment.pending == [3]
    assert not experiment.prepare(), "a result may come in and change it"
    assert experiment.propose("b", "y").status == WAIT


@pytest.mark.parametrize("change", [{"gamma": 0.2}, {"j_min": -5.0, "risk": 0.0}])
def test_an_early_proposal_is_discarded_when_the_operator_changes_what_it_rests_on(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    found = {}
    for name, early in (("early", True), ("plain", False)):
        experiment = open_experiment(tmp_path / name)
        play(experiment, 5)
        if early:
            assert experiment.prepare()
            unchanged = experiment.learner.unsaved
        experiment.configure(**change)
        found[name] = play(experiment, 3)
    assert thetas(found["early"]) == thetas(found["plain"])
    assert not np.array_equal(unchanged.theta, found["plain"][0].theta)


@pytest.mark.parametrize(("outcome", "value"), [("vetoed", math.nan), ("failed", math.nan)])
def test_an_early_proposal_after_a_veto_or_failure_is_the_one_that_would_have_been_made(
    tmp_path: Path, outcome: str, value: float
) -> None:
    found = {}
    for name in ("early", "plain"):
        experiment = open_experiment(tmp_path / name)
        play(experiment, 5)
        if name == "early":
            experiment.prepare()
        answer = experiment.propose("r", "refused")
        assert experiment.acknowledge(episode(experiment, answer, value, outcome))[0] == ACCEPTED
        if name == "early":
            assert experiment.prepare()
        found[name] = play(experiment, 2)
    assert thetas(found["early"]) == thetas(found["plain"])


def test_nothing_is_made_early_while_paused_nor_after_the_end(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path, budget=6)
    play(experiment, 4)
    experiment.pause()
    assert not experiment.prepare()
    experiment.resume()
    assert experiment.prepare()
    before = experiment.best()
    experiment.finish()
    assert experiment.method.pending == []
    assert not experiment.prepare()
    assert experiment.propose("r", "x").status == DONE
    assert experiment.best().id == before.id
    experiment.set_budget(7)
    assert len(play(experiment, 3)) == 3
    assert not experiment.prepare(), "the budget is used up"


def test_a_run_in_which_nothing_is_left_to_propose_says_so_when_asked_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crbo_ros.core.crbo.MAX_VETOES", 3)
    experiment = open_experiment(tmp_path)
    play(experiment, 3)
    for i in range(3):
        assert experiment.prepare()
        answer = experiment.propose("r", f"x{i}")
        experiment.acknowledge(episode(experiment, answer, math.nan, "vetoed"))
    assert not experiment.prepare()
    assert experiment.state == "running"
    answer = experiment.propose("r", "last")
    assert (answer.status, "vetoed" in answer.reason) == (DONE, True)


def test_a_change_that_cannot_be_written_down_is_not_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 4)

    def refuse(*_: Any) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(experiment.store, "add_event", refuse)
    with pytest.raises(StoreError):
        experiment.configure(gamma=0.1)
    assert experiment.method.report()["gamma"] == 0.5


def test_what_broke_the_contract_is_told_to_the_method_and_survives_a_restart(tmp_path: Path) -> None:
    """A failure after the approval, a signal beyond its limit, and a person's word; an operator's stop is none."""
    experiment = open_experiment(tmp_path, settings={"gamma": 0.5, "j_min": -5.0})
    endings: list[dict[str, Any]] = [
        {"value": 1.0}, {"value": 1.0}, {"value": math.nan, "outcome": "failed", "verdict_id": "v"},
        {"value": math.nan, "outcome": "stopped", "verdict_id": "v"}, {"value": 1.0, "violation": "torque 9 above 8"},
        {"value": 1.0},
    ]  # fmt: skip
    for i, fields in enumerate(endings):
        answer = experiment.propose("r", f"q{i}")
        experiment.acknowledge(episode(experiment, answer, **fields))
    for _ in range(2):
        experiment.mark(5, "reported by a person")
        trials = experiment.method.trials
        assert [bool(trial.violation) for trial in trials] == [False, False, True, False, True, True]
        assert experiment.method.contract.account.violations == 3
        assert [e.violation for e in experiment.returns()[1] if e.violation] == ["torque 9 above 8"]
        assert experiment.returns()[0] == 5, "a monitor without its memory hears of the failure, too"
        experiment.close()
        experiment = open_experiment(tmp_path, settings={"gamma": 0.5, "j_min": -5.0})


def test_bounds_and_scales_of_every_kind_of_axis_survive_reopening_and_another_one_is_refused_by_name(
    tmp_path: Path,
) -> None:
    kinds: dict[str, Any] = {"log": [False, True, False, True], "integer": [False, False, True, True]}
    space = Space([-1.0, 0.1, 0.0, 1.0], [1.0, 10.0, 5.0, 64.0], **kinds)
    problem = Problem("t", "nominal", space, np.array([0.0, 1.0, 2.0, 8.0]))
    experiment = open_experiment(tmp_path, problem=problem)
    before = [offer.theta.tolist() for offer in play(experiment, 6)]
    experiment.close()
    store = ExperimentStore(tmp_path / "experiment.sqlite")
    facts, proposals, names = store.experiment(), store.proposals(), store.names()
    store.close()
    assert facts is not None
    again = stored_space(facts)
    assert [again.log.tolist(), again.integer.tolist()] == [kinds["log"], kinds["integer"]]
    assert names == [], "who has no names gets none"
    assert scale_blob(space) == bytes([0, 1, 2, 3])
    assert [again.lower.tolist(), again.upper.tolist()] == [space.lower.tolist(), space.upper.tolist()]
    assert [row.proposal.theta.tolist() for row in proposals] == before
    named = replace(problem, space=Space(space.lower, space.upper, **kinds, names=["a", "b", "c", "d"]))
    with contextlib.closing(open_experiment(tmp_path / "named", problem=named).store) as store:
        assert store.names() == ["a", "b", "c", "d"]
    for name in ("log", "integer"):
        other = Space(space.lower, space.upper, **{**kinds, name: [False] * 4})
        with pytest.raises(StoreError, match=r"holds another experiment \(domain"):
            open_experiment(tmp_path, problem=replace(problem, space=other))
