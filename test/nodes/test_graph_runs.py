"""The graph as a whole: it runs, it shares, it resumes, it stops, it asks before it moves."""

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pytest
from ros_helpers import Peer, finished, open_store, wait_until

from crbo_ros.core.trial import TrialStatus


def run_to_end(graph: Any, timeout: float = 60.0) -> dict[str, Any]:
    with graph:
        wait_until(lambda: finished(graph), timeout, "the end of the run")
        codes = {p.spec.name: p.code for p in graph.of("episode_runner")}
        codes.update(graph.end())
    return codes


def test_a_run_completes_its_budget_under_approvals_and_every_process_exits_with_0(
    toy_graph: Callable[..., Any],
) -> None:
    graph = toy_graph(episodes=8)
    codes = run_to_end(graph)
    store = open_store(graph)
    episodes = store.episodes()
    with sqlite3.connect(graph.folder / "monitor.sqlite") as monitor:
        approved = {verdict_id for (verdict_id,) in monitor.execute("SELECT verdict_id FROM approvals")}
    assert len(episodes) == 8
    assert {e.verdict_id for e in episodes} <= approved, "on the monitor's own record"
    assert codes == {"optimizer": 0, "safety_monitor": 0, "episode_runner": 0}
    assert not any("Traceback" in line for line in graph.said)
    assert (graph.folder / "best.json").exists()
    assert graph.ledger.lines()[-1]["event"] == "safe"


@pytest.mark.slow
def test_two_runners_share_the_budget_and_nothing_runs_twice(toy_graph: Callable[..., Any]) -> None:
    graph = toy_graph(episodes=12, runners=2, toy={"seconds": 0.5})  # long enough for both to get started
    run_to_end(graph)
    episodes = open_store(graph).episodes()
    assert sorted(e.proposal_id for e in episodes) == list(range(12))
    assert {e.runner for e in episodes} == {"/episode_runner_0", "/episode_runner_1"}
    hashes = [line["hash"] for line in graph.ledger.lines("end")]
    # theta_0 comes twice where the first runner was alone with it: the same policy, two proposals
    assert len(hashes) == 12
    assert len(set(hashes)) == 12 - (hashes.count(hashes[0]) - 1)
    assert hashes.count(hashes[0]) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("limit", [{"j_min": 0.0}, {"j_min_drop": 1.0}])
def test_a_second_runner_waits_for_the_starts_return_where_there_is_a_threshold(
    toy_graph: Callable[..., Any], limit: dict[str, Any]
) -> None:
    graph = toy_graph(episodes=4, runners=2, toy={"seconds": 2.0}, monitor=limit)
    run_to_end(graph, 60)
    start = graph.ledger.lines("end")[0]
    assert min(line["time"] for line in graph.ledger.lines("start")[1:]) > start["time"]
    assert sum(e.counts for e in open_store(graph).episodes()) == 4


@pytest.mark.slow
def test_a_resumed_run_gives_the_same_data_as_one_that_was_never_interrupted(toy_graph: Callable[..., Any]) -> None:
    whole = toy_graph(episodes=10, experiment="whole")
    run_to_end(whole)
    for episodes in (4, 10):
        parts = toy_graph(episodes=episodes, experiment="parts")
        run_to_end(parts)
    one, two = open_store(whole).episodes(), open_store(parts).episodes()
    assert [(e.proposal_id, e.theta.tolist(), e.value) for e in one] == [
        (e.proposal_id, e.theta.tolist(), e.value) for e in two
    ]


@pytest.mark.slow
def test_started_twice_the_first_one_goes_on_and_the_second_one_says_why_it_does_not(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from std_srvs.srv import Trigger

    first, second = (toy_graph(episodes=100_000, toy={"seconds": 0.2}) for _ in range(2))
    with first:
        wait_until(lambda: len(first.ledger.lines("end")) > 2, 30, "some episodes")
        with second:
            wait_until(lambda: all(p.code is not None for p in second.processes.values()), 60, "the second one's end")
            assert {p.code for p in second.processes.values()} == {1}
        for name in ("optimizer", "safety_monitor", "episode_runner"):
            words = f"in use by process {first.processes[name].pid}: the same experiment runs already"
            assert any(name in line and words in line for line in second.said), second.said
        ends = len(first.ledger.lines("end"))
        wait_until(lambda: len(first.ledger.lines("end")) > ends + 2, 60, "episodes of the first one, which goes on")
        assert peer.call(Trigger, "finish").success
        wait_until(lambda: finished(first), 60, "the end of the first one")
    hashes = [line["hash"] for line in first.ledger.lines("end")]
    assert len(hashes) == len(open_store(first).episodes())
    assert hashes.count(hashes[0]) == 2, "theta_0"
    assert len(set(hashes)) == len(hashes) - 1, "and every other policy once"


@pytest.mark.slow
def test_stop_ends_a_rollout_and_holds_until_rearm(toy_graph: Callable[..., Any], peer: Peer) -> None:
    from std_srvs.srv import Trigger

    """(That it costs one action at most: test_rig.py; in ms: crbo bench stops.)"""
    graph = toy_graph(episodes=2, toy={"seconds": 20.0})
    with graph:
        for count in (1, 2, 3):
            wait_until(lambda count=count: len(graph.ledger.lines("start")) == count, 30, "a rollout")
            time.sleep(0.3)
            assert peer.call(Trigger, "stop").success
            wait_until(lambda count=count: len(graph.ledger.lines("stopped")) == count, 30, "the stop")
            time.sleep(0.7)
            assert len(graph.ledger.lines("start")) == count, "it moved although it was held"
            assert not peer.call(Trigger, "rearm").success, "without a proof nothing is loosened"
            assert peer.command(graph, "rearm").accepted
    assert graph.ledger.lines("end") == []
    store = open_store(graph)
    assert store.proposals()[0].end is TrialStatus.FAILED
    assert store.episodes()[0].outcome == "stopped"


@pytest.mark.slow
def test_a_stop_outlives_the_monitor(toy_graph: Callable[..., Any], peer: Peer) -> None:
    from std_srvs.srv import Trigger

    graph = toy_graph(episodes=3, toy={"seconds": 20.0})
    with graph:
        wait_until(lambda: graph.ledger.lines("start"), 30, "the first rollout")
        peer.call(Trigger, "stop")
        wait_until(lambda: graph.ledger.lines("stopped"), 30, "the stop")
        graph.processes["safety_monitor"].kill()
        graph.start("safety_monitor")
        wait_until(lambda: any("HELD" in line for line in graph.said), 60, "the restarted monitor's word")
        time.sleep(1.0)
        assert len(graph.ledger.lines("start")) == 1


@pytest.mark.slow
def test_without_a_monitor_nothing_moves_and_when_it_dies_the_rollout_stops_and_is_repeated(
    toy_graph: Callable[..., Any],
) -> None:
    graph = toy_graph(episodes=1, toy={"seconds": 4.0})
    with graph:
        wait_until(lambda: graph.ledger.lines("start"), 30, "the rollout")
        graph.processes["safety_monitor"].kill()
        wait_until(lambda: graph.ledger.lines("stopped"), 30, "the stop, before its own end")
        time.sleep(1.0)
        assert len(graph.ledger.lines("start")) == 1
        assert graph.ledger.lines("end") == []
        graph.start("safety_monitor")
        wait_until(lambda: finished(graph), 60, "the end")
    assert sum("2 nodes offer" in line for line in graph.said) < 3  # discovery lists the dead one for 20 s: 4 lines
    assert [e.outcome for e in open_store(graph).episodes()] == ["completed"]


@pytest.mark.slow
def test_an_optimizer_that_was_killed_is_not_taken_for_a_second_one(toy_graph: Callable[..., Any]) -> None:
    graph = toy_graph(episodes=8, toy={"seconds": 0.5})
    with graph:
        wait_until(lambda: len(graph.ledger.lines("end")) == 2, 30, "some episodes")
        graph.processes["optimizer"].kill()
        graph.start("optimizer")
        wait_until(lambda: finished(graph), 60, "the end")
    assert sum("2 nodes offer" in line for line in graph.said) < 3
    assert not any("gave no answer" in line for line in graph.said), "it waited for an answer of the dead one"
    assert len(open_store(graph).episodes()) == 8


@pytest.mark.slow
def test_an_idle_optimizer_gives_a_sign_of_life_every_second(toy_graph: Callable[..., Any], peer: Peer) -> None:
    from crbo_ros.msg import OptimizerState
    from crbo_ros.ros import qos

    states = peer.listen(OptimizerState, "optimizer_state", qos.LATCHED)
    with toy_graph(only=("optimizer",)):
        wait_until(lambda: len(states) >= 4, 20, "the same state again and again")
    assert len({(state.experiment_uid, state.stamp.sec, state.stamp.nanosec) for state in states[-3:]}) <= 2


@pytest.mark.slow
def test_trajectories_are_recorded_and_published_while_somebody_subscribes(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from crbo_ros.msg import EpisodeTrajectory
    from crbo_ros.ros import qos

    graph = toy_graph(episodes=100_000, toy={"seconds": 0.1})
    with graph:
        wait_until(lambda: len(graph.ledger.lines("end")) >= 2, 40, "two episodes")
        assert not any(line["record"] for line in graph.ledger.lines("start")), "nobody wants one"
        seen: list[Any] = []
        subscription = peer.node.create_subscription(EpisodeTrajectory, "episode_trajectory", seen.append, qos.LATCHED)
        wait_until(lambda: len(seen) >= 2, 30, "trajectories")
        peer.node.destroy_subscription(subscription)
        wait_until(lambda: not graph.ledger.lines("start")[-1]["record"], 30, "an episode that nobody watches")
    values = {episode.episode_uid: episode.theta[0] for episode in open_store(graph).episodes()}
    for message in seen:
        assert message.names == ["theta"]
        assert list(message.time) == [i / 100.0 for i in range(10)]
        assert list(message.values) == [values[message.episode_uid]] * 10


@pytest.mark.slow
def test_nothing_moves_while_there_are_two_monitors(toy_graph: Callable[..., Any]) -> None:
    graph = toy_graph(episodes=100_000, toy={"seconds": 0.2})
    other = toy_graph(only=("safety_monitor",), experiment="other")
    with graph:
        wait_until(lambda: graph.ledger.lines("end"), 30, "an episode")
        with other:
            wait_until(
                lambda: any("2 nodes offer check_rollout" in line for line in graph.said), 30, "the runner's word"
            )
            held = len(graph.ledger.lines("start"))
            time.sleep(6.0)
            assert len(graph.ledger.lines("start")) == held
        wait_until(lambda: len(graph.ledger.lines("end")) > held + 1, 60, "the next episodes")


@pytest.mark.slow
def test_every_proposal_waits_for_the_operator_when_that_is_asked_for(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from crbo_ros.srv import ReviewProposal

    graph = toy_graph(episodes=3, monitor={"require_operator": True})
    with graph:
        wait_until(lambda: peer.command(graph, "approve", proposal_id=0).accepted, 30)
        wait_until(lambda: len(graph.ledger.lines("end")) == 2, 30, "the approved rollout, and the same policy again")
        reject: dict[str, Any] = {"proposal_id": 2, "approve": False, "comment": "looks odd"}
        wait_until(lambda: peer.call(ReviewProposal, "review_proposal", **reject).accepted, 30)
        wait_until(lambda: open_store(graph).proposal(2).end is TrialStatus.VETOED, 30, "the veto")
        assert len(graph.ledger.lines("start")) == 2
        assert "looks odd" in open_store(graph).proposal(2).end_reason
        assert not peer.command(graph, "approve", proposal_id=7).accepted
        assert "proof" in peer.call(ReviewProposal, "review_proposal", proposal_id=3, approve=True).reason


@pytest.mark.slow
def test_where_the_monitor_approves_nothing_new_the_run_goes_on_with_what_is_proven(
    toy_graph: Callable[..., Any],
) -> None:
    graph = toy_graph(episodes=12, monitor={"j_min": 0.5, "risk": 0.0})  # the optimizer has no contract of its own
    codes = run_to_end(graph, 90)
    store = open_store(graph)
    ends = [row.end for row in store.proposals()]
    assert TrialStatus.VETOED in ends
    assert codes["episode_runner"] == 0
    assert sum("proposals were vetoed (the lowest" in line for line in graph.said) == 1, "the hint is given once"
    assert len({tuple(e.theta) for e in store.episodes() if e.counts}) == 1
    assert len([e for e in store.episodes() if e.counts]) == 12
    assert len(graph.ledger.lines("start")) == sum(e.counts for e in store.episodes())


@pytest.mark.slow
def test_a_plant_that_keeps_failing_is_held_for_a_person_with_its_reason(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from std_srvs.srv import Trigger

    graph = toy_graph(episodes=5, toy={"fail_after": 2})
    with graph:
        wait_until(lambda: any("10 episodes in a row failed" in line for line in graph.said), 60, "the runner's word")
        assert any("the toy's motor is broken" in line for line in graph.said)
        time.sleep(1.0)
        assert [e.outcome for e in open_store(graph).episodes()] == ["completed"] * 2 + ["failed"] * 10
        assert not peer.call(Trigger, "episode_runner/clear").success
        assert peer.command(graph, "clear", "episode_runner").accepted
        wait_until(lambda: len(open_store(graph).episodes()) > 12, 20, "another try after a person has looked")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["optimizer", "safety_monitor", "episode_runner"])
def test_lifecycle_transitions_work_and_an_invalid_one_is_refused_without_harm(
    toy_graph: Callable[..., Any], peer: Peer, name: str
) -> None:
    from lifecycle_msgs.msg import Transition
    from lifecycle_msgs.srv import ChangeState, GetState

    graph = toy_graph(only=(name,), **{name.split("_")[-1]: {"autostart": False}})
    with graph:

        def change(id: int) -> Any:
            return peer.call(ChangeState, f"{name}/change_state", transition=Transition(id=id)).success

        def label() -> Any:
            return peer.call(GetState, f"{name}/get_state").current_state.label

        assert not change(Transition.TRANSITION_ACTIVATE), "activated without being configured"
        assert label() == "unconfigured"
        assert change(Transition.TRANSITION_CONFIGURE)
        assert change(Transition.TRANSITION_ACTIVATE)
        assert label() == "active"
        assert change(Transition.TRANSITION_DEACTIVATE)
        assert change(Transition.TRANSITION_CLEANUP)
        assert label() == "unconfigured"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_impatient_operator_gets_a_safe_plant_and_clean_exits(toy_graph: Callable[..., Any], number: Any) -> None:
    graph = toy_graph(episodes=50, toy={"seconds": 5.0})
    with graph:
        wait_until(lambda: graph.ledger.lines("start"), 30, "a rollout")

        def again() -> bool:
            left = [process for process in graph.processes.values() if process.code is None]
            for process in left:
                os.kill(process.pid, number)
            return not left

        wait_until(again, 30, "the end of all of them")
        codes = {name: process.code for name, process in graph.processes.items()}
    assert set(codes.values()) == {0}, codes
    assert graph.ledger.lines("stopped")
    assert not any("Traceback" in line for line in graph.said)
