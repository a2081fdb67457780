"""Bad input over real services and topics: refused with a reason that names the field, the data set untouched."""

import contextlib
import math
import os
import resource
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ros_helpers import Peer, finished, open_store, wait_until

from crbo_ros.core.trial import theta_hash


def ask(peer: Any, request_id: str = "q", runner: str = "r", **fields: Any) -> Any:
    from crbo_ros.srv import ProposePolicy

    return peer.call(ProposePolicy, "propose_policy", runner=runner, request_id=request_id, **fields)


def asked(peer: Any, **fields: Any) -> Any:
    """The first proposal, once the optimizer is active."""
    answers: list[Any] = []

    def offered() -> bool:
        answers.append(ask(peer, **fields))
        return bool(answers[-1].status == answers[-1].OK)

    wait_until(offered, 30, "a proposal")
    return answers[-1].proposal


def result(proposal: Any, **change: Any) -> Any:
    from crbo_ros.msg import EpisodeReturn

    fields = {
        "experiment_uid": proposal.experiment_uid, "proposal_id": proposal.id, "episode_uid": "u", "runner": "r",
        "theta": proposal.theta, "outcome": EpisodeReturn.COMPLETED, "value": 0.5,
    }  # fmt: skip
    return EpisodeReturn(**{**fields, **change})


def test_the_optimizer_refuses_bad_results_by_field_and_takes_the_good_one_once(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from crbo_ros.msg import EpisodeReturn
    from crbo_ros.ros import qos
    from crbo_ros.srv import AcknowledgeEpisode

    graph = toy_graph(only=("optimizer",))
    topic = peer.publisher(EpisodeReturn, "episode_return", qos.HISTORY)
    with graph:
        proposal = asked(peer)
        bad: dict[str, Any] = {
            "value": [{"value": math.nan}, {"value": math.inf}],
            "theta": [{"theta": [0.4]}, {"theta": [math.nan] * 3}, {"theta": []}],
            "proposal_id": [{"proposal_id": 99}],
            "outcome": [{"outcome": 0}, {"outcome": 77}],
            "experiment_uid": [{"experiment_uid": "another"}, {"experiment_uid": ""}],
            "episode_uid": [{"episode_uid": ""}],
        }
        for field, changes in bad.items():
            for change in changes:
                topic.publish(result(proposal, **change))
                answer = peer.call(AcknowledgeEpisode, "acknowledge_episode", episode=result(proposal, **change))
                assert answer.status == answer.REFUSED, change
                assert answer.reason.startswith(field), answer.reason
        assert open_store(graph).episodes() == []
        answer = peer.call(AcknowledgeEpisode, "acknowledge_episode", episode=result(proposal))
        assert answer.status == answer.ACCEPTED
        answer = peer.call(AcknowledgeEpisode, "acknowledge_episode", episode=result(proposal))
        assert answer.status == answer.DUPLICATE
        answer = peer.call(AcknowledgeEpisode, "acknowledge_episode", episode=result(proposal, episode_uid="v"))
        assert (answer.status, "already ended" in answer.reason) == (answer.REFUSED, True)
        assert ask(peer, runner="").status == 3
        assert ask(peer, "n", experiment_uid="another").status == 3
        later = ask(peer, "n").proposal
        topic.publish(result(later, episode_uid="by topic"))  # a foreign runner may simply publish
        wait_until(lambda: len(open_store(graph).episodes()) == 2, 60, "the return from the topic")


def test_the_monitor_vetoes_bad_proposals_by_field(toy_graph: Callable[..., Any], peer: Peer) -> None:
    from crbo_ros.msg import Proposal, SafetyVerdict
    from crbo_ros.srv import CheckRollout

    with toy_graph(only=("safety_monitor",)):

        def verdict(theta: Any, hash: Any = None, uid: str = "e") -> Any:
            proposal = Proposal(experiment_uid=uid, id=0, theta=theta, theta_hash=hash or theta_hash(theta))
            return peer.call(CheckRollout, "check_rollout", proposal=proposal, runner="r").verdict

        wait_until(lambda: verdict([0.4] * 3).status == SafetyVerdict.APPROVED, 20, "the approval of theta_0")
        for theta, hash, uid, field in (
            ([math.nan, 0.0, 0.0], None, "e", "theta"),
            ([0.4] * 2, None, "e", "theta"),
            ([0.4, 0.4, 1.7], None, "e", "theta"),
            ([0.4, 0.4, 0.5], theta_hash([0.4] * 3), "e", "theta_hash"),
            ([0.4] * 3, None, "another", "experiment_uid"),
        ):
            answer = verdict(theta, hash, uid)
            assert answer.status == SafetyVerdict.VETOED
            assert answer.reason.startswith(field)
            assert answer.valid_for == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"proposal_id": 1},
        pytest.param({"theta_hash": "x"}, marks=pytest.mark.slow),
        pytest.param({"runner": "/other"}, marks=pytest.mark.slow),
        pytest.param({"experiment_uid": "x"}, marks=pytest.mark.slow),
    ],
)
def test_a_monitor_that_answers_for_something_else_moves_nothing(
    toy_graph: Callable[..., Any], peer: Peer, wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRBO_KEY", "known to the impostor")

    def spoil(verdict: Any) -> None:
        for name, value in wrong.items():
            setattr(verdict, name, value)

    impostor(peer, spoil)
    graph = toy_graph(only=("optimizer", "episode_runner"))
    with graph:
        wait_until(lambda: any("discarded" in line for line in graph.said), 30, "the runner's word")
        time.sleep(0.5)
        assert graph.ledger.lines("start") == []


@pytest.mark.slow
def test_an_approval_that_arrives_late_or_from_a_dead_monitor_moves_nothing(
    toy_graph: Callable[..., Any], peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRBO_KEY", "known to the impostor")

    def spoil(verdict: Any) -> None:
        verdict.valid_for = 0.0

    impostor(peer, spoil)
    graph = toy_graph(only=("optimizer", "episode_runner"))
    with graph:
        wait_until(lambda: any("valid for 0 s" in line for line in graph.said), 30, "the runner's word")
        time.sleep(0.5)
        assert graph.ledger.lines("start") == []


@pytest.mark.slow
def test_a_stranger_that_copies_a_heartbeats_uid_cannot_approve_anything(
    toy_graph: Callable[..., Any], peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no key. (Discovery may be slow to tell the runner that two nodes offer check_rollout.)"""
    monkeypatch.setenv("CRBO_KEY", "secret")
    graph = toy_graph(only=("optimizer", "episode_runner"))
    with graph:
        monkeypatch.setenv("CRBO_KEY", "a guess")
        impostor(peer, lambda verdict: None)
        wait_until(lambda: any("proof: " in line for line in graph.said), 30, "the runner's word")
        assert graph.ledger.lines("start") == []


@pytest.mark.slow
def test_beside_a_muted_second_monitor_nothing_moves_without_an_approval_on_the_guarding_ones_record(
    toy_graph: Callable[..., Any], peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives no sign of life, so that after a while it is taken for dead; but it answers every question, first."""
    from crbo_ros.msg import SafetyHeartbeat
    from crbo_ros.ros import qos

    def rows(file: str, sql: str) -> set[str]:
        with contextlib.closing(sqlite3.connect(f"file:{graph.folder / file}?mode=ro", uri=True)) as connection:
            return {str(value) for (value,) in connection.execute(sql)}

    def copy_uid(verdict: Any) -> None:
        answers.append(verdict.proposal_id)
        verdict.monitor_uid, verdict.verdict_id = beats[-1].monitor_uid, f"forged {len(answers)}"

    answers: list[int] = []
    monkeypatch.setenv("CRBO_KEY", "secret")
    graph = toy_graph(episodes=100_000, toy={"seconds": 0.05})
    beats = peer.listen(SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT)
    with graph:
        wait_until(lambda: graph.ledger.lines("end") and beats, 40, "an episode")
        monkeypatch.setenv("CRBO_KEY", "a guess")
        impostor(peer, copy_uid, muted=True)
        wait_until(lambda: len(answers) >= 5, 40, "the second monitor's answers")
        time.sleep(2.0)
    begun = rows("episode_runner.sqlite", "SELECT verdict_id FROM executions")
    assert len(begun) == len(graph.ledger.lines("start")), "each under an approval of its own"
    assert begun <= rows("monitor.sqlite", "SELECT verdict_id FROM approvals")
    assert any("proof: " in line for line in graph.said), "the runner says what it does not believe"


def impostor(peer: Any, spoil: Any, muted: bool = False) -> None:
    """A monitor of the test's own that approves everything, after `spoil` has had its way with the verdict."""

    from crbo_ros.msg import SafetyHeartbeat, SafetyVerdict
    from crbo_ros.protocol.records import Verdict
    from crbo_ros.ros import convert, qos
    from crbo_ros.srv import CheckRollout

    heartbeat = peer.publisher(SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT)
    beat = SafetyHeartbeat(monitor_uid="impostor", armed=True)
    if not muted:
        peer.node.create_timer(0.05, lambda: heartbeat.publish(beat))

    def check(request: Any, response: Any) -> Any:
        response.verdict = SafetyVerdict(
            status=SafetyVerdict.APPROVED, verdict_id="v", monitor_uid="impostor",
            experiment_uid=request.proposal.experiment_uid, proposal_id=request.proposal.id,
            theta_hash=request.proposal.theta_hash, runner=request.runner, valid_for=5.0, nonce=request.nonce,
        )  # fmt: skip
        spoil(response.verdict)
        value = convert.from_message(response.verdict, Verdict)
        response.verdict = convert.to_message(value.signed(os.environ["CRBO_KEY"]))
        return response

    peer.node.create_service(CheckRollout, "check_rollout", check)


@pytest.mark.slow
def test_a_runner_takes_no_proposal_of_another_experiment_and_none_from_one_of_two_optimizers(
    toy_graph: Callable[..., Any],
) -> None:
    one, two = (toy_graph(only=("optimizer",), episodes=30, experiment=name) for name in ("one", "two"))
    rest = toy_graph(only=("safety_monitor", "episode_runner"), experiment="two", toy={"seconds": 0.1})

    def said(words: Any) -> Callable[..., Any]:
        return lambda: any(words in line for line in rest.said)

    with one, rest:
        wait_until(said("is of experiment 'one', this runner of 'two'"), 30, "the runner's word")
        time.sleep(0.7)
        assert rest.ledger.lines("start") == []
        with two:
            wait_until(said("2 nodes offer"), 30, "the runner's second word")
            held = len(rest.ledger.lines("start"))  # what it was given before discovery told it of both
            time.sleep(6.0)
            assert len(rest.ledger.lines("start")) == held
            one.end()
            wait_until(lambda: finished(rest), 60, "the end of the run that is left")
    episodes = open_store(two).episodes()
    assert len(episodes) == 30
    assert sorted(line["hash"] for line in rest.ledger.lines("start")) == sorted(theta_hash(e.theta) for e in episodes)
    assert open_store(one).episodes() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gamma": 1.7}, "gamma"),
        ({"method": "nonsense"}, "no method is called 'nonsense'"),
        ({"settings": "{gamma: 1}"}, "settings"),
        ({"settings": {"nonsense": 1}}, "nonsense"),
        ({"task": "nonsense"}, "no task is called 'nonsense'"),
        ({"experiment": "a/b"}, "experiment"),
        ({"experiments_dir": "/proc/nowhere"}, "cannot be used"),
    ],
)
def test_a_wrong_parameter_is_refused_at_start_with_its_name_and_exit_code_1(
    toy_graph: Callable[..., Any], change: dict[str, Any], said: str
) -> None:
    graph = toy_graph(only=("optimizer",), optimizer=change)
    with graph:
        wait_until(lambda: graph.processes["optimizer"].code is not None, 60, "the exit")
        assert graph.processes["optimizer"].code == 1
    assert any(said in line for line in graph.said), graph.said
    assert not any("Traceback" in line for line in graph.said)


@pytest.mark.slow
def test_a_full_disk_stops_the_run_without_losing_an_episode_and_it_goes_on_when_there_is_room(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    graph = toy_graph(episodes=40, toy={"seconds": 0.02})
    with graph:
        wait_until(lambda: len(graph.ledger.lines("end")) >= 3, 30, "some episodes")
        optimizer = graph.processes["optimizer"].pid
        size = max(file.stat().st_size for file in graph.folder.glob("experiment.sqlite*"))
        resource.prlimit(optimizer, resource.RLIMIT_FSIZE, (size + 4096, resource.RLIM_INFINITY))  # no file may grow
        wait_until(lambda: any("could not be stored" in s or "not written" in s for s in graph.said), 30, "complaint")
        assert graph.processes["optimizer"].code is None, "it died of a full disk"
        resource.prlimit(optimizer, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        wait_until(lambda: finished(graph), 60, "the end")
    episodes = open_store(graph).episodes()
    assert len(episodes) == 40
    ran = {(line["hash"], line["value"]) for line in graph.ledger.lines("end")}
    assert {(theta_hash(np.array(e.theta)), e.value) for e in episodes} == ran
