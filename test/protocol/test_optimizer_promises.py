"""What the optimizer says of itself and refuses, from its first opening to its last: without ROS."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_store_and_optimizer import PROBLEM, episode, open_experiment, play

from crbo_ros.core.crbo import CRBO
from crbo_ros.core.trial import TrialStatus
from crbo_ros.errors import Exhausted, InvalidInput
from crbo_ros.protocol import optimizer
from crbo_ros.protocol.ports import ACCEPTED, DONE, OK, REFUSED, WAIT
from crbo_ros.protocol.records import Verdict
from crbo_ros.protocol.store import ExperimentStore, dump_state, load_state


def test_an_experiment_whose_budget_is_used_up_is_over_as_soon_as_it_is_opened(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 3)
    experiment.close()
    for budget, state in ((3, "finished"), (4, "running"), (0, "running")):
        experiment = open_experiment(tmp_path, budget=budget)
        assert experiment.state == state
        if state == "finished":
            assert experiment.message == "all 3 episodes are done"
            assert experiment.propose("r", "x").status == DONE
        experiment.close()


def test_carrying_on_with_another_gamma_changes_it_once_and_what_is_not_given_stays(tmp_path: Path) -> None:
    def changes(experiment: Any) -> int:
        return int(experiment.store.database.query("SELECT count(*) FROM events WHERE verb = 'configure'")[0][0])

    open_experiment(tmp_path).close()
    for settings, gamma, count in (({"gamma": 0.5}, 0.5, 0), ({"gamma": 0.3}, 0.3, 1), ({"gamma": 0.3}, 0.3, 1)):
        experiment = open_experiment(tmp_path, settings=settings)
        assert (experiment.method.report()["gamma"], changes(experiment)) == (gamma, count)
        experiment.close()
    experiment = open_experiment(tmp_path, settings={"gamma": None})
    assert (experiment.method.report()["gamma"], changes(experiment)) == (0.3, 1)


def test_earlier_episodes_cost_no_budget_and_come_before_everything_or_not_at_all(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path, budget=3)
    earlier = [(PROBLEM.theta_0, 0.1), (np.array([0.3, -0.2]), 0.2)]
    with pytest.raises(InvalidInput):
        experiment.attach([*earlier, (np.array([9.0, 9.0]), 0.3)], "a file")
    assert (experiment.method.n, experiment.budget, experiment.store.episodes()) == (0, 3, [])
    assert experiment.attach(earlier, "a file") == 2
    assert (experiment.attached, experiment.budget, experiment.method.n) == (2, 5, 2)
    assert [e.reason for e in experiment.store.episodes()] == ["from a file"] * 2
    assert experiment.attach(earlier, "a file") == 0, "there are trials already"
    experiment.close()
    experiment = open_experiment(tmp_path, budget=3)
    assert (experiment.budget, experiment.method.n, experiment.pending) == (5, 2, [])
    assert [row.end for row in experiment.store.proposals()] == [TrialStatus.COMPLETED] * 2
    play(experiment, 3)
    assert experiment.state == "finished"
    experiment.set_budget(4)
    assert (experiment.budget, experiment.state) == (6, "running")
    experiment.set_budget(0)
    assert (experiment.budget, experiment.state) == (0, "running")
    experiment.close()
    unlimited = open_experiment(tmp_path)
    assert unlimited.budget == 0, "no limit stays none"
    unlimited = open_experiment(tmp_path / "unlimited")
    assert unlimited.attach(earlier, "a file") == 2
    assert unlimited.budget == 0


def test_bad_settings_are_refused_before_an_experiment_is_made_of_them(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="gamma"):
        open_experiment(tmp_path, settings={"gamma": 5.0})
    store = ExperimentStore(tmp_path / "experiment.sqlite")
    assert store.experiment() is None
    store.close()
    assert open_experiment(tmp_path, settings={"gamma": 0.4}).method.report()["gamma"] == 0.4


def test_an_experiment_whose_folder_was_renamed_is_the_same_under_its_new_name(tmp_path: Path) -> None:
    first = open_experiment(tmp_path)
    uid = first.uid
    first.close()
    settings, seed = {"gamma": 0.5}, 3

    def make(settings: Any) -> CRBO:
        return CRBO(PROBLEM.space, PROBLEM.theta_0, seed=seed, **settings)

    again = optimizer.OptimizerServer.open(
        tmp_path / "experiment.sqlite", problem=PROBLEM, name="renamed", method="crbo", seed=seed, settings=settings,
        make=make,
    )  # fmt: skip
    assert (again.uid, again.name, again.propose("r", "q").experiment) == (uid, "renamed", "renamed")


def test_an_end_is_told_to_the_method_as_it_was_and_a_breach_with_it(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    for i, more in enumerate(({}, {"violation": "too hot"})):
        answer = experiment.propose("r", f"q{i}")
        experiment.acknowledge(episode(experiment, answer, 0.5, **more))
    rows = experiment.store.database.query("SELECT arguments FROM events WHERE verb = 'tell' ORDER BY sequence")
    assert [json.loads(arguments) for (arguments,) in rows] == [[0, 0.5], [1, 0.5, "too hot"]]
    for i, outcome in enumerate(("vetoed", "returned")):
        answer = experiment.propose("r", f"v{i}")
        never_ran = episode(experiment, answer, math.nan, outcome, violation="too hot")
        assert experiment.acknowledge(never_ran) == (ACCEPTED, ""), "what did not run breaks nothing"
        assert experiment.method.trials[answer.offer.id].violation == ""


def test_a_finished_run_goes_on_with_a_larger_budget_and_not_with_one_that_is_used_up(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 3)
    experiment.finish("enough")
    assert (experiment.state, experiment.message) == ("finished", "enough")
    for used_up in (2, 3):
        experiment.set_budget(used_up)
        assert experiment.propose("r", "x").status == DONE
        assert (experiment.message, experiment.store.flag("finished")) == ("enough", "enough"), "it was not by budget"
    experiment.set_budget(0)
    assert experiment.propose("r", "x").status == OK
    experiment.close()
    experiment = open_experiment(tmp_path)
    assert experiment.state == "running", "and that is remembered"
    experiment.set_budget(3)
    assert (experiment.state, experiment.message) == ("finished", "all 3 episodes are done")


def test_who_asks_says_who_it_is_and_for_which_experiment(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    for runner, request, uid, field in (("", "q", "", "runner"), ("r", "", "", "request_id"), ("r", "q", "x", "exp")):
        answer = experiment.propose(runner, request, uid)
        assert (answer.status, answer.reason.startswith(field), answer.experiment) == (REFUSED, True, "e")
    assert experiment.store.proposals() == []
    answer = experiment.propose("r", "q", experiment.uid)
    assert (answer.status, answer.problem) == (OK, PROBLEM.key)


def test_a_stranger_who_asks_and_asks_gets_no_more_than_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizer, "MOST_PENDING", 3)
    monkeypatch.setattr(optimizer, "MOST_VERDICTS", 2)
    experiment = open_experiment(tmp_path)
    play(experiment, 1)
    answers = [experiment.propose("r", f"x{i}") for i in range(5)]
    assert [answer.status for answer in answers] == [OK, OK, OK, WAIT, WAIT]
    assert "3 proposals are pending" in answers[3].reason
    for i in range(4):
        experiment.add_verdict(Verdict("approved", experiment.uid, 1, "h", "r", "", "m", verdict_id=f"v{i}"))
    experiment.add_verdict(Verdict("approved", experiment.uid, 99, "h", "r", "", "m", verdict_id="unknown"))
    assert [verdict["verdict_id"] for verdict in experiment.store.verdicts()] == ["v0", "v1"]


def test_the_returns_are_told_in_pages_oldest_first(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 4)
    vetoed = experiment.propose("r", "v")
    experiment.acknowledge(episode(experiment, vetoed, math.nan, "vetoed"))
    for start, limit, ids in ((0, 2, [0, 1]), (2, 2, [2, 3]), (3, 500, [3]), (4, 500, [])):
        count, found = experiment.returns(start, limit)
        assert (count, [e.proposal_id for e in found]) == (4, ids), "what was vetoed was not executed"


def test_the_summary_counts_every_end_and_the_message_names_the_last_that_went_wrong(tmp_path: Path) -> None:
    now = [0.0]
    experiment = open_experiment(tmp_path, lease=1.0, clock=lambda: now[0])
    empty = experiment.summary()
    assert (empty["completed"], empty["message"]) == (0, "")
    assert all(math.isnan(empty[name]) for name in ("last_return", "average_return", "start_return"))
    play(experiment, 2)
    values = [e.value for e in experiment.store.episodes()]
    for outcome in ("vetoed", "failed"):
        answer = experiment.propose("r", outcome)
        experiment.acknowledge(episode(experiment, answer, math.nan, outcome, reason=f"because {outcome}"))
        assert experiment.message == f"proposal {answer.offer.id} {outcome}: because {outcome}"
    experiment.propose("a", "lost")
    now[0] += 2.0
    (lost,) = experiment.expire_due()
    assert experiment.store.proposal(lost).end_reason == "nothing heard within 1 s"
    experiment.propose("b", "held")
    found = experiment.summary()
    assert [found[name] for name in ("completed", "pending", "vetoed", "failed", "expired")] == [2, 1, 1, 1, 1]
    assert (found["start_return"], found["last_return"]) == (values[0], values[1])
    assert found["average_return"] == pytest.approx(np.mean(values))
    assert (found["state"], found["best"].id) == ("running", experiment.best().id)
    assert found["message"] == experiment.message != ""
    assert found["propose_seconds"] >= 0.0
    assert experiment.knows("u0")
    assert not experiment.knows("u99")


def test_operators_commands_say_what_they_cannot_do(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    assert experiment.resume() == (False, "cannot resume: running")
    assert experiment.pause() == (True, "paused by the operator")
    assert experiment.pause() == (False, "cannot pause: paused")
    assert experiment.propose("r", "x").reason == "paused by the operator"
    experiment.set_budget(100)
    assert experiment.state == "paused", "a budget is no command to go on"
    assert experiment.resume() == (True, "running")
    assert experiment.message == ""
    with pytest.raises(InvalidInput, match="gamma: method 'random_search' has no such setting"):
        open_experiment(tmp_path / "other", method="random_search").configure(gamma=0.3)


def test_a_rollout_is_reported_once_and_only_one_that_there_was(tmp_path: Path) -> None:
    settings = {"gamma": 0.5, "j_min": -5.0, "risk": 0.9}
    experiment = open_experiment(tmp_path, settings=settings)
    play(experiment, 5)
    assert [experiment.mark(id, "it scraped") for id in (-1, 5, 4, 4)] == [False, False, True, False]
    assert [trial.violation for trial in experiment.method.trials] == ["", "", "", "", "it scraped"]
    play(experiment, 1)  # whose snapshot lies behind the report
    experiment.close()
    experiment = open_experiment(tmp_path, settings=settings)
    assert [trial.violation for trial in experiment.method.trials] == ["", "", "", "", "it scraped", ""]
    assert experiment.mark(0, "too")


def test_a_state_is_read_without_running_what_lies_in_it() -> None:
    buffer = io.BytesIO()
    np.savez(buffer, __json__=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        load_state(buffer.getvalue())
    state = {"a": 1, "b": np.array([1.0, 1.0 / 3.0]), "c": "text"}
    again = load_state(dump_state(state))
    assert (again["a"], again["c"], again["b"].tolist()) == (1, "text", [1.0, 1.0 / 3.0])


def test_an_early_proposal_is_discarded_when_somebody_reports_a_rollout(tmp_path: Path) -> None:
    found = []
    for early in (True, False):
        settings = {"gamma": 0.5, "j_min": -5.0, "risk": 0.9}
        experiment = open_experiment(tmp_path / str(early), settings=settings)
        play(experiment, 6)
        if early:
            assert experiment.prepare()
        experiment.mark(5, "it scraped")
        assert experiment.learner.unsaved is None
        found.append(experiment.propose("r", "x").offer.theta.tolist())
    assert found[0] == found[1]


def test_a_store_in_which_nothing_is_yet_says_so(tmp_path: Path) -> None:
    store = ExperimentStore(tmp_path / "experiment.sqlite", owner=True)
    assert (store.experiment(), store.identity(), store.proposals(), store.episodes()) == (None, None, [], [])
    assert (store.verdicts(), store.names(), store.flag("finished"), store.resume_point()) == ([], [], "", (None, []))
    assert (store.proposal(0), store.find_request("r", "q"), store.find_episode("u"), store.has_episode(0)) == (
        None, None, None, False,
    )  # fmt: skip
    store.close()


def test_other_terms_let_an_exhausted_run_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crbo_ros.core.crbo.MAX_VETOES", 1)
    experiment = open_experiment(tmp_path)
    play(experiment, 3)
    answer = experiment.propose("r", "x")
    experiment.acknowledge(episode(experiment, answer, math.nan, "vetoed"))
    assert experiment.propose("r", "y").status == DONE
    assert experiment.state == "exhausted"
    experiment.configure(gamma=0.2)
    assert (experiment.state, experiment.message) == ("running", "")


def test_a_known_episode_is_the_same_only_with_the_same_proposal_outcome_and_value(tmp_path: Path) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 1)
    answer = experiment.propose("r", "x")
    done = episode(experiment, answer, 0.4)
    assert experiment.acknowledge(done)[0] == ACCEPTED
    changes: list[dict[str, Any]] = [
        {"proposal_id": 0}, {"outcome": "terminated"}, {"value": 0.5}, {"outcome": "failed", "value": math.nan},
    ]  # fmt: skip
    for _ in range(2):  # known from this process, and from the disk
        for change in changes:
            assert experiment.acknowledge(replace(done, **change))[0] == REFUSED, change
        experiment.close()
        experiment = open_experiment(tmp_path)
    assert experiment.store.proposal(1).end is TrialStatus.COMPLETED


@pytest.mark.parametrize("error", [Exhausted("nothing left"), np.linalg.LinAlgError("not positive definite")])
def test_a_method_that_failed_half_way_through_a_proposal_makes_the_one_that_it_would_have_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    found = []
    for ill in (False, True):
        experiment = open_experiment(tmp_path / str(ill))
        play(experiment, 4)
        if ill:
            with monkeypatch.context() as patch:

                def broken(self: CRBO, id: int) -> None:
                    self.vetoes += 1  # (half done)
                    raise error

                patch.setattr(CRBO, "_propose", broken)
                experiment.prepare()
                experiment.propose("r", "x")
                assert experiment.method.vetoes == 0, "what it had half done is undone"
        experiment.configure(gamma=0.5)
        found.append(experiment.propose("r", "x").offer.theta.tolist())
    assert found[0] == found[1]


def test_a_method_that_stumbles_once_over_a_return_and_knows_it_then_is_no_trouble(tmp_path: Path) -> None:
    stumbles = [0.666]

    class Stumbling(CRBO):
        def tell(self, id: int, value: Any) -> None:
            super().tell(id, value)
            if value in stumbles:
                stumbles.remove(value)
                raise np.linalg.LinAlgError("not positive definite")

    experiment = open_experiment(
        tmp_path, make=lambda settings: Stumbling(PROBLEM.space, PROBLEM.theta_0, seed=3, **settings)
    )
    play(experiment, 2)
    answer = experiment.propose("r", "x")
    assert experiment.acknowledge(episode(experiment, answer, 0.666)) == (ACCEPTED, "")
    assert (stumbles, experiment.method.n, experiment.message) == ([], 3, "")


def test_what_a_proposal_cost_and_what_the_method_said_of_it_are_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = open_experiment(tmp_path)
    play(experiment, 2)
    ticks = iter([100.0, 100.25])
    monkeypatch.setattr("time.thread_time", lambda: next(ticks))
    id = experiment.propose("r", "x").offer.id
    assert experiment.summary()["propose_seconds"] == 0.25
    report = experiment.store.proposal(id).report
    assert report["gamma"] == 0.5
    assert any(isinstance(value, float) and not math.isfinite(value) for value in experiment.method.report().values())
    assert all(math.isfinite(value) for value in report.values() if isinstance(value, float)), "JSON has no NaN"
