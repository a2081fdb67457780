"""Computing never holds up a node's executor: the operator's stop and the heartbeats do not wait for it."""

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ros_helpers import Peer, wait_until

from crbo_ros.core.trial import theta_hash

PATIENT = 60.0  # s, for machines that stall


@pytest.fixture
def in_process(domain: int) -> Iterator[Callable[..., Any]]:
    """in_process(make, parameters) -> a node, spun as run_node does it, in this process."""
    import rclpy

    from crbo_ros.nodes.way_out import WayOut
    from crbo_ros.ros.spinner import Spinner

    ends = []

    def start(make: Any, parameters: Any = None, executor: Any = None) -> Any:
        arguments = [word for name, value in (parameters or {}).items() for word in ("-p", f"{name}:={value}")]
        rclpy.init(args=["--ros-args", *arguments], domain_id=domain)
        node, spinner = make(), Spinner(executor and executor())
        spinner.start(node)
        ends.append((node, spinner))
        return node

    yield start
    way_out = WayOut(60.0)
    for node, spinner in ends:
        getattr(node, "leave", lambda way_out: None)(way_out)
        way_out.step("workers", getattr(node, "end_workers", lambda: None))
        way_out.step("executor", spinner.end)
        way_out.step("node", node.destroy_node)
    rclpy.try_shutdown()
    assert way_out.over()


def test_stop_acts_and_heartbeats_go_on_while_the_monitor_computes_or_its_disk_hangs(
    in_process: Callable[..., Any], peer: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from std_srvs.srv import Trigger

    from crbo_ros.msg import Proposal, SafetyHeartbeat
    from crbo_ros.nodes.safety_monitor import SafetyMonitorNode
    from crbo_ros.ros import qos
    from crbo_ros.srv import CheckRollout

    beats = peer.listen(SafetyHeartbeat, "safety_heartbeat", qos.HEARTBEAT)
    node = in_process(SafetyMonitorNode, {"task": "toy", "experiments_dir": tmp_path})
    assert node.begin()
    wait_until(lambda: beats, PATIENT, "a heartbeat")
    check = peer.node.create_client(CheckRollout, "check_rollout")
    stop = peer.node.create_client(Trigger, "stop")
    assert check.wait_for_service(PATIENT)
    assert stop.wait_for_service(PATIENT)
    computing, go_on = threading.Event(), threading.Event()

    def compute_long() -> Any:
        with node.monitor.database.lock:  # a disk that hangs, too
            computing.set()
            assert go_on.wait(PATIENT)
        return beliefs()

    beliefs, node.monitor.beliefs = node.monitor.beliefs, compute_long
    theta = [0.4] * 3
    proposal = Proposal(experiment_uid="e", theta=theta, theta_hash=theta_hash(theta))
    verdict = check.call_async(CheckRollout.Request(proposal=proposal, runner="r"))
    assert computing.wait(PATIENT)
    before = len(beats)
    wait_until(lambda: len(beats) >= before + 2, PATIENT, "heartbeats that do not wait for the computation")
    timer = next(timer for timer in node.timers if timer.callback == node._beat)
    timer.callback = lambda: None  # no regular heartbeat: the stop is not to wait for one
    said: list[Any] = []
    monkeypatch.setattr(node, "_heartbeat", SimpleNamespace(publish=said.append))
    answer = stop.call_async(Trigger.Request())
    wait_until(lambda: any(not beat.armed for beat in said), PATIENT, "the heartbeat that says stop")
    said.clear()
    timer.callback = node._beat
    wait_until(lambda: len(said) >= 2, PATIENT, "heartbeats that do not wait for the disk")
    assert not answer.done(), "acknowledged before it was written down"
    go_on.set()
    wait_until(lambda: answer.done() and verdict.done(), PATIENT, "the answers")
    assert answer.result().success
    assert verdict.result().verdict.status == verdict.result().verdict.WAITING


def test_no_heartbeat_says_armed_after_one_that_says_stop(in_process: Callable[..., Any], tmp_path: Path) -> None:
    """Timer, stop and rearm beat from two threads; here one is held up between reading and publishing."""
    from crbo_ros.nodes.safety_monitor import SafetyMonitorNode

    node = in_process(SafetyMonitorNode, {"task": "toy", "experiments_dir": tmp_path})
    assert node.begin()
    late, go_on = threading.Event(), threading.Event()
    said: list[Any] = []

    class Publisher:
        def publish(self, message: Any) -> None:
            if threading.current_thread() is slow:
                late.set()
                assert go_on.wait(PATIENT)
            said.append(message.armed)

    slow = threading.Thread(target=node._beat)
    node._heartbeat = Publisher()
    slow.start()
    assert late.wait(PATIENT)
    stop = threading.Thread(target=lambda: node._hold(None))
    stop.start()
    wait_until(lambda: node.monitor.stopped, PATIENT, "the stop")
    time.sleep(0.3)
    go_on.set()
    slow.join()
    stop.join()
    assert True not in said[said.index(False) :], said


@pytest.mark.parametrize("kind", ["LeanExecutor", "SingleThreadedExecutor", "MultiThreadedExecutor"])
def test_a_deferred_service_answers_every_caller_and_the_others_meanwhile(
    in_process: Callable[..., Any], peer: Peer, kind: str
) -> None:
    import rclpy
    from rclpy import executors
    from std_srvs.srv import Trigger

    from crbo_ros.ros.executor import LeanExecutor
    from crbo_ros.ros.worker import Worker, defer

    release = threading.Event()
    errors: list[BaseException] = []

    def slow(request: Any, response: Any) -> Any:
        assert release.wait(PATIENT)
        response.message = "slow"
        return response

    def quick(request: Any, response: Any) -> Any:
        response.message = "quick"
        return response

    def make() -> Any:
        node = rclpy.create_node("server")
        defer(node.create_service(Trigger, "slow", slow), Worker("test", errors.append))
        node.create_service(Trigger, "quick", quick)
        return node

    in_process(make, executor=getattr(executors, kind, LeanExecutor))
    client = peer.node.create_client(Trigger, "slow")
    assert client.wait_for_service(PATIENT)
    waiting = [client.call_async(Trigger.Request()) for _ in range(3)]
    assert peer.call(Trigger, "quick").message == "quick"
    assert not any(future.done() for future in waiting)
    release.set()
    wait_until(lambda: all(future.done() for future in waiting), PATIENT, "the slow answers")
    assert [future.result().message for future in waiting] == ["slow"] * 3
    assert errors == []


def test_a_worker_does_its_jobs_in_order_and_reports_one_that_raised(domain: int) -> None:
    from crbo_ros.ros.worker import Worker

    done: list[int] = []
    errors: list[BaseException] = []
    worker = Worker("test", errors.append)
    for i in range(5):
        worker.submit(partial(done.append, i))
    worker.submit(lambda: 1 / 0)
    worker.end()
    assert worker.join(PATIENT)
    assert done == [0, 1, 2, 3, 4]
    assert [type(error) for error in errors] == [ZeroDivisionError]


@pytest.mark.parametrize("wrapped", [True, False])
@pytest.mark.parametrize(("silent", "arrives"), [(0, True), (3, True), (99, False)])
def test_an_answer_waits_for_a_client_that_discovery_has_half_found(
    domain: int, silent: int, arrives: bool, wrapped: bool
) -> None:
    """The middleware's error is played: as the next test shows it to be, or unwrapped by an rclpy that looks for it."""
    import contextlib

    from crbo_ros.ros.worker import TRIES, Worker, defer

    sent: list[Any] = []
    refused: list[Any] = []
    errors: list[BaseException] = []

    class Handle(contextlib.nullcontext[None]):
        def service_send_response(self, response: Any, header: Any) -> None:
            if len(refused) < silent:
                refused.append(header)
                lost = RuntimeWarning("failed to send response")
                if not wrapped:
                    raise lost
                raise SystemError("a result with an exception set") from lost
            else:
                sent.append((response, header))

    service: Any = SimpleNamespace(
        callback=lambda request, response: f"{request}, {response}",
        handle=Handle(),
        logger_name="server",
        service_name="/slow",
    )
    worker = Worker("test", errors.append)
    defer(service, worker)
    service.send_response(service.callback("asked", "answered"), SimpleNamespace(request_id=7))
    wait_until(lambda: sent or len(refused) == TRIES, PATIENT, "the end")
    worker.end()
    assert worker.join(PATIENT)
    assert sent == ([("asked, answered", 7)] if arrives else [])
    assert refused == [7] * min(silent, TRIES)
    assert errors == []


@pytest.mark.slow
def test_a_client_that_can_never_hear_the_answer_holds_up_nobody(
    in_process: Callable[..., Any], peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real thing: a client that asks for more than a service's answers offer is matched by halves, for good."""
    import rclpy
    from rclpy.qos import DurabilityPolicy, QoSProfile
    from std_srvs.srv import SetBool

    from crbo_ros.ros import worker
    from crbo_ros.ros.worker import Worker, defer

    asked: list[Any] = []
    unheard: list[Any] = []
    warned: list[str] = []
    errors: list[BaseException] = []
    reached = threading.Event()
    monkeypatch.setattr(worker, "get_logger", lambda name: SimpleNamespace(warning=warned.append))

    def answer(request: Any, response: Any) -> Any:
        asked.append("deaf" if request.data else "hears")
        reached.set()
        return response

    def make() -> Any:
        node = rclpy.create_node("server")
        defer(node.create_service(SetBool, "slow", answer), Worker("test", errors.append))
        return node

    in_process(make)
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    deaf = peer.node.create_client(SetBool, "slow", qos_profile=latched)

    def ask() -> Any:
        unheard.append(deaf.call_async(SetBool.Request(data=True)))
        return reached.wait(0.5)

    wait_until(ask, 20, "a request")  # what is asked before discovery has found the server is lost
    for _ in range(3):
        peer.call(SetBool, "slow")
    wait_until(lambda: len(warned) == asked.count("deaf"), 20, "a line for each answer that was given up")
    assert all(line.startswith("/slow: failed to send response") for line in warned)
    peer.call(SetBool, "slow")
    assert asked.count("hears") == 4
    assert errors == []
    assert not any(answer.done() for answer in unheard)


def test_the_executor_sees_what_is_made_and_destroyed_while_it_waits(
    in_process: Callable[..., Any], peer: Peer
) -> None:
    import rclpy
    from std_msgs.msg import String
    from std_srvs.srv import Trigger

    from crbo_ros.ros.executor import LeanExecutor

    node = in_process(lambda: rclpy.create_node("changing"))
    assert isinstance(node.executor, LeanExecutor)
    time.sleep(0.2)  # it waits, for nothing but its parameter services
    for _ in range(3):
        heard: list[Any] = []
        ticks: list[float] = []
        called: list[str] = []
        publisher = node.create_publisher(String, "word", 1)
        subscription = node.create_subscription(String, "word", heard.append, 1)
        timer = node.create_timer(0.02, lambda ticks=ticks: ticks.append(time.monotonic()))
        guard = node.create_guard_condition(lambda called=called: called.append("guard"))
        service = node.create_service(Trigger, "answer", lambda request, response: response)
        client = node.create_client(Trigger, "answer")
        wait_until(lambda p=publisher: p.get_subscription_count() == 1, 30, "the subscription")
        publisher.publish(String(data="x"))
        guard.trigger()
        wait_until(lambda h=heard, t=ticks, c=called: h and len(t) > 3 and c, 30, "topic, timer and guard condition")
        assert client.wait_for_service(30.0)
        assert client.call(Trigger.Request(), timeout_sec=30.0) is not None
        node.destroy_timer(timer)
        node.destroy_subscription(subscription)
        time.sleep(0.1)
        before = len(ticks)
        publisher.publish(String(data="y"))
        time.sleep(0.2)
        assert (len(heard), len(ticks)) == (1, before)
        assert called == ["guard"]
        for entity, kind in ((service, "service"), (client, "client"), (publisher, "publisher")):
            getattr(node, f"destroy_{kind}")(entity)
        node.destroy_guard_condition(guard)


def test_an_rclpy_with_other_inner_parts_gets_its_own_executor(domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

    from crbo_ros.ros import executor

    rclpy.init(domain_id=domain)
    try:
        assert type(executor.make_executor()) is executor.LeanExecutor
        monkeypatch.setattr(executor, "INNER_PARTS", [*executor.INNER_PARTS, "_renamed"])
        assert type(executor.make_executor()) is SingleThreadedExecutor
    finally:
        rclpy.try_shutdown()


@pytest.mark.slow
def test_acknowledgements_that_come_at_once_are_all_answered_and_the_optimizer_is_quiet_afterwards(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    import os

    from test_bad_input import ask, asked, result

    from crbo_ros.srv import AcknowledgeEpisode

    graph = toy_graph(only=("optimizer",), optimizer={"episodes": 20})
    with graph:
        first = asked(peer)
        client = peer.node.create_client(AcknowledgeEpisode, "acknowledge_episode")
        assert client.wait_for_service(PATIENT)
        proposals = [first, *(ask(peer, f"q{i}").proposal for i in range(3))]
        results = [result(p, episode_uid=f"u{p.id}", value=0.5 + 0.01 * p.id) for p in proposals]
        answers = [client.call_async(AcknowledgeEpisode.Request(episode=r)) for r in results]
        wait_until(lambda: all(answer.done() for answer in answers), PATIENT, "the acknowledgements")
        assert [answer.result().status for answer in answers] == [0] * 4
        clock = f"/proc/{graph.processes['optimizer'].pid}/stat"

        def seconds() -> Any:
            with open(clock) as file:
                return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")

        def quiet() -> bool:
            before = seconds()
            time.sleep(1.0)
            return bool(seconds() - before < 0.3)

        wait_until(quiet, PATIENT, "an optimizer that has nothing to do")


@pytest.mark.slow
def test_the_next_proposal_is_made_before_it_is_asked_for_and_a_new_gamma_discards_it(
    toy_graph: Callable[..., Any], peer: Peer
) -> None:
    from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
    from rcl_interfaces.srv import SetParameters
    from test_bad_input import ask, asked, result

    from crbo_ros.srv import AcknowledgeEpisode

    def change(gamma: Any) -> None:
        value = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=gamma)
        answer = peer.call(SetParameters, "optimizer/set_parameters", parameters=[Parameter(name="gamma", value=value)])
        assert answer.results[0].successful

    def play(name: str, when: Any = None) -> list[Any]:
        """Five episodes; before the last, gamma is changed `when` that is the case. Hashes of theta."""
        with toy_graph(only=("optimizer",), experiment=name, optimizer={"episodes": 20}):
            proposals = [asked(peer, request_id="q0")]
            for i in range(4):
                if i == 3 and when == "pending":
                    change(0.2)
                done = result(proposals[-1], episode_uid=f"u{i}", value=0.5 + 0.01 * i)
                assert peer.call(AcknowledgeEpisode, "acknowledge_episode", episode=done).status == 0
                if i == 3 and when == "nothing pending":
                    time.sleep(0.5)  # so that the next proposal has been made
                    change(0.2)
                proposals.append(ask(peer, f"q{i + 1}").proposal)
        return [p.theta_hash for p in proposals]

    plain, late, soon = play("plain"), play("late", "nothing pending"), play("soon", "pending")
    assert plain[:4] == late[:4] == soon[:4]
    assert late[4] == soon[4] != plain[4]
