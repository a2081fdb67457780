"""The monitor's ROS side: a node of its own on a thread of its own. Values come out of `poll`, calls go in by `call`.

Nothing here touches Qt, and nothing of Qt's waits for anything here.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

from crbo_ros import msg, srv
from crbo_ros.protocol.records import Episode, Verdict, new_uid
from crbo_ros.ros import convert, qos
from crbo_ros.view.values import Answer, Heartbeat, Presence, Proposed, State, Status

TIMEOUT = 5.0  # s for a service to appear and to answer
TRIGGERS = ("pause", "resume", "stop", "rearm")
REVIEWS = ("approve", "reject")
STATES = {getattr(msg.OptimizerState, word.upper()): word for word in "running paused finished exhausted error".split()}
RUNNER_STATES = {
    msg.RunnerStatus.IDLE: "idle",
    msg.RunnerStatus.WAITING: "waiting",
    msg.RunnerStatus.RUNNING: "running",
    msg.RunnerStatus.HELD: "held",
    msg.RunnerStatus.DONE: "done",
    msg.RunnerStatus.ERROR: "error",
}


@dataclass
class _Call:
    """A click on its way."""

    button: str
    client: Any
    request: Any
    deadline: float
    future: Any = field(default=None)


class RosClient:
    """A context manager. Namespace "" is automatic: the first one in which an optimizer publishes; "/" is the root."""

    def __init__(self, namespace: str = "") -> None:
        self._wanted = namespace
        self._namespace: str | None = None  # the one subscribed to
        self._values: deque[Any] = deque()
        self._calls: deque[tuple[str, int, str]] = deque()
        self._open: list[_Call] = []
        self._made: list[Any] = []  # (destroy, thing) of the present namespace
        self._clients: dict[str, Any] = {}
        self._quit = threading.Event()
        self._looked = -1e9

    # -- for the widget: any thread -----------------------------------------------------------------

    def poll(self) -> list[Any]:
        """What has arrived since the last call."""
        values = []
        while self._values:
            values.append(self._values.popleft())
        return values

    def call(self, button: str, proposal_id: int = 0, theta_hash: str = "") -> None:
        """Ask for what a button says; the Answer comes out of `poll`. A service that is not there yet is waited for."""
        self._calls.append((button, proposal_id, theta_hash))
        self._rouse()

    def set_namespace(self, namespace: str) -> None:
        self._wanted = namespace
        self._looked = -1e9
        self._rouse()

    def _rouse(self) -> None:
        """Have the thread look at its orders now."""
        if self._context.ok():
            self._wake.trigger()

    def __enter__(self) -> RosClient:
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        name = f"crbo_monitor_{new_uid()[:8]}"
        self._node = rclpy.create_node(
            name, context=self._context, use_global_arguments=False, start_parameter_services=False
        )
        self._wake = self._node.create_guard_condition(lambda: None)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._thread = threading.Thread(target=self._work, name="crbo gui", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the graph. Idempotent."""
        if self._quit.is_set():
            return
        self._quit.set()
        self._rouse()
        self._thread.join(5.0)
        self._executor.shutdown(timeout_sec=1.0)
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)

    # -- the thread ---------------------------------------------------------------------------------

    def _work(self) -> None:
        # rclpy's signal handler, where somebody (rqt) has installed it, shuts down every context of the process.
        with contextlib.suppress(ExternalShutdownException):
            self._serve()

    def _serve(self) -> None:
        while not self._quit.is_set() and self._context.ok():
            if time.monotonic() - self._looked > 0.5:
                self._look()
            while self._calls:
                self._begin(*self._calls.popleft())
            self._advance()
            self._executor.spin_once(timeout_sec=0.05 if self._open else 0.2)

    def _look(self) -> None:
        """Who is there? Also settles on a namespace."""
        self._looked = time.monotonic()
        kind = "crbo_ros/msg/OptimizerState"
        topics = self._node.get_topic_names_and_types()
        offered = [name for name, kinds in topics if kind in kinds and name.endswith("/optimizer_state")]
        spaces = sorted(name.rsplit("/", 1)[0] or "/" for name in offered if self._node.count_publishers(name))
        wanted = self._wanted.strip()
        if wanted:
            namespace = "/" + wanted.strip("/")
        elif self._namespace in spaces or not spaces:
            namespace = self._namespace or "/"
        else:
            namespace = spaces[0]
        if namespace != self._namespace:
            self._subscribe(namespace)
        there = {topic: self._node.count_publishers(self._name(topic)) > 0
                 for topic in ("optimizer_state", "safety_heartbeat", "runner_status")}  # fmt: skip
        self._values.append(Presence(namespace, *there.values(), tuple(spaces)))

    def _name(self, name: str) -> str:
        return f"{(self._namespace or '/').rstrip('/')}/{name}"

    def _subscribe(self, namespace: str) -> None:
        for destroy, thing in self._made:
            destroy(thing)
        for call in self._open:
            self._values.append(Answer(call.button, False, "another namespace was chosen"))
        self._made, self._clients, self._open, self._namespace = [], {}, [], namespace
        node, name = self._node, self._name
        # A function of ours that appends, for each topic: the values wait in a deque until Qt's timer takes them.
        for topic, kind, translate, profile in (
            ("optimizer_state", msg.OptimizerState, state_of, qos.LATCHED),
            ("proposal", msg.Proposal, proposed_of, qos.HISTORY),
            ("safety_verdict", msg.SafetyVerdict, verdict_of, qos.HISTORY),
            ("safety_heartbeat", msg.SafetyHeartbeat, heartbeat_of, qos.HEARTBEAT),
            ("episode_return", msg.EpisodeReturn, episode_of, qos.HISTORY),
            ("runner_status", msg.RunnerStatus, status_of, qos.LATCHED),
        ):
            made = node.create_subscription(kind, name(topic), partial(self._on_message, translate), profile)
            self._made.append((node.destroy_subscription, made))
        for service in TRIGGERS:
            self._clients[service] = node.create_client(Trigger, name(service))
        review = node.create_client(srv.ReviewProposal, name("review_proposal"))
        self._clients |= dict.fromkeys(REVIEWS, review)
        self._made += [(node.destroy_client, client) for client in {id(c): c for c in self._clients.values()}.values()]

    def _on_message(self, translate: Any, message: Any) -> None:
        self._values.append(translate(message))

    def _begin(self, button: str, proposal_id: int, theta_hash: str) -> None:
        client = self._clients.get(button)
        if client is None:
            self._values.append(Answer(button, False, "not connected yet", proposal_id))
            return
        request: Any = Trigger.Request()
        if button in REVIEWS:
            request = srv.ReviewProposal.Request(
                proposal_id=proposal_id, theta_hash=theta_hash, approve=button == "approve", comment="from the monitor"
            )
        self._open.append(_Call(button, client, request, time.monotonic() + TIMEOUT))

    def _advance(self) -> None:
        """Send what can be sent, hand on what was answered, give up on what is overdue."""
        for call in list(self._open):
            if call.future is None and call.client.service_is_ready():
                call.future = call.client.call_async(call.request)
                call.future.add_done_callback(lambda _: self._rouse())
            if call.future is not None and call.future.done():
                answer = call.future.result()
                success = answer.accepted if call.button in REVIEWS else answer.success
                message = answer.reason if call.button in REVIEWS else answer.message
                self._values.append(Answer(call.button, success, message))
            elif time.monotonic() > call.deadline:
                if call.future is not None:
                    call.client.remove_pending_request(call.future)
                whom = "was not answered" if call.future is not None else "is offered by nobody"
                self._values.append(Answer(call.button, False, f"{call.client.srv_name} {whom} within {TIMEOUT:g} s"))
            else:
                continue
            self._open.remove(call)


# -- messages -> values -------------------------------------------------------------------------------


def state_of(m: msg.OptimizerState) -> State:
    return State(
        m.experiment, m.experiment_uid, m.task, m.method, STATES.get(m.state, f"code {m.state}"), m.message,
        m.completed, m.budget, m.pending, m.best_id, m.best_mean, m.average_return, m.gamma_effective, m.coverage,
    )  # fmt: skip


def proposed_of(m: msg.Proposal) -> Proposed:
    return Proposed(
        m.experiment_uid, m.id, m.theta_hash, m.kind, m.reason, m.mean, m.sigma, m.worst_case,
        m.gamma,
    )  # fmt: skip


def verdict_of(m: msg.SafetyVerdict) -> Verdict:
    return convert.from_message(m, Verdict)


def episode_of(m: msg.EpisodeReturn) -> Episode:
    return convert.from_message(m, Episode)


def heartbeat_of(m: msg.SafetyHeartbeat) -> Heartbeat:
    return Heartbeat(m.monitor_uid, m.experiment_uid, m.armed, m.reason, m.coverage)


def status_of(m: msg.RunnerStatus) -> Status:
    state = RUNNER_STATES.get(m.state, f"code {m.state}")
    return Status(m.runner, state, m.message, m.proposal_id, m.episode_time)
