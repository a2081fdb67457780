"""The window's ROS side, on a thread of its own: values come out of `poll`, calls go in by `call`.

Nothing here touches Qt, and nothing of Qt's waits for anything here.
"""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import Any

from rclpy.clock import Clock, ClockType

from crbo_ros.protocol.proofs import find_key, prove
from crbo_ros.ros import qos
from crbo_ros.ros.link import interface
from crbo_ros.ros.operator import fill
from crbo_ros.view.topics import TopicFeed
from crbo_ros.view.values import EpisodeTrajectory, OptimizerState, Publishers, Reply

TIMEOUT = 5.0  # s for a service to appear and to answer
PERIOD = 0.1  # s between two looks at whether calls can be sent
LOOK = 0.5  # s between two looks at who is there
TRIGGERS = ("pause", "resume", "stop", "rearm")
REVIEWS = ("approve", "reject")
Trigger = interface("std_srvs/srv/Trigger")
ReviewProposal = interface("crbo_ros/srv/ReviewProposal")
ReportViolation = interface("crbo_ros/srv/ReportViolation")
TrajectoryMessage = interface("crbo_ros/msg/EpisodeTrajectory")
VIOLATION = "violation"
OperatorCommand = interface("crbo_ros/srv/OperatorCommand")
LOOSENING = ("rearm", "approve")  # need a proof where the graph has a key


@dataclass
class _Call:
    """A click on its way."""

    button: str
    client: Any
    request: Any
    deadline: float
    future: Any = None


class RosClient(TopicFeed):
    """A context manager. Namespace "" is automatic: the first one in which an optimizer publishes; "/" is the root."""

    def __init__(self, namespace: str = "") -> None:
        super().__init__(name="crbo_monitor")
        self._wanted = namespace
        self._orders: deque[tuple[str, int, str]] = deque()
        self._calls: list[_Call] = []
        self._clients: dict[str, Any] = {}  # by button, of the present namespace
        self._looked = -1e9
        self._experiment = ""

    # -- for the widget: any thread -----------------------------------------------------------------

    def call(self, button: str, proposal_id: int = 0, text: str = "") -> None:
        """Ask for what a button says; the Reply comes out of `poll`. A service that is not there yet is waited for.

        `text` is the hash of the theta that is reviewed, or what a person has seen of a violation.
        """
        self._orders.append((button, proposal_id, text))
        self._rouse()

    def set_namespace(self, namespace: str) -> None:
        self._wanted = namespace
        self._looked = -1e9
        self._rouse()

    def _rouse(self) -> None:
        """Have the link's thread look at its orders now."""
        if self.node.context.ok():  # rqt's own signal handler shuts all of them down
            self._wake.trigger()

    def __enter__(self) -> RosClient:
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        return super().__enter__()

    def begin(self) -> None:
        """The namespace is settled on the link's thread, when it has looked around."""
        self._wake = self.node.create_guard_condition(self._serve)
        self.node.create_timer(PERIOD, self._serve, clock=Clock(clock_type=ClockType.STEADY_TIME))
        self._rouse()

    # -- the link's thread --------------------------------------------------------------------------

    def _serve(self) -> None:
        if time.monotonic() - self._looked > LOOK:
            self._look()
        while self._orders:
            self._begin(*self._orders.popleft())
        self._advance()

    def _look(self) -> None:
        """Who is there? Also settles on a namespace."""
        self._looked = time.monotonic()
        kind = "crbo_ros/msg/OptimizerState"
        node = self.node
        topics = node.get_topic_names_and_types()
        offered = [name for name, kinds in topics if kind in kinds and name.endswith("/optimizer_state")]
        spaces = sorted(name.rsplit("/", 1)[0] or "/" for name in offered if node.count_publishers(name))
        wanted = self._wanted.strip()
        if wanted:
            namespace = "/" + wanted.strip("/")
        elif self.namespace in spaces or not spaces:
            namespace = self.namespace or "/"
        else:
            namespace = spaces[0]
        if namespace != self.namespace:
            self.subscribe(namespace)
        optimizer, monitor, runner = (
            node.count_publishers(self.absolute(topic)) > 0
            for topic in ("optimizer_state", "safety_heartbeat", "runner_status")
        )
        self._values.append(Publishers(namespace, optimizer, monitor, runner, tuple(spaces)))

    def subscribe(self, namespace: str) -> None:
        super().subscribe(namespace)
        node = self.node
        topic, take = self.absolute("episode_trajectory"), partial(self._on_message, EpisodeTrajectory)
        self._subscriptions.append(node.create_subscription(TrajectoryMessage, topic, take, qos.LATCHED))
        for call in self._calls:
            self._values.append(Reply(call.button, False, "another namespace was chosen"))
        for client in {id(client): client for client in self._clients.values()}.values():
            node.destroy_client(client)
        review = node.create_client(ReviewProposal, self.absolute("review_proposal"))
        self._clients = {name: node.create_client(Trigger, self.absolute(name)) for name in TRIGGERS}
        self._clients |= dict.fromkeys(REVIEWS, review)
        self._clients[VIOLATION] = node.create_client(ReportViolation, self.absolute("report_violation"))
        self._clients["operator"] = node.create_client(OperatorCommand, self.absolute("operator"))
        self._calls = []

    def _begin(self, button: str, proposal_id: int, text: str) -> None:
        request: Any = Trigger.Request()
        client, key = self._clients.get(button), find_key(self._experiment)
        if button == "clear":  # of the runner that the text names
            kind, name = (OperatorCommand, f"{text}/operator") if key else (Trigger, f"{text}/clear")
            if key:
                request = fill(OperatorCommand.Request(), key, button, {})
            client = self._clients.setdefault(name, self.node.create_client(kind, name))
        elif button in LOOSENING and key:
            arguments = {} if button == "rearm" else {"proposal_id": proposal_id, "theta_hash": text}
            request, client = fill(OperatorCommand.Request(), key, button, arguments), self._clients["operator"]
        elif button in REVIEWS:
            request = ReviewProposal.Request(
                proposal_id=proposal_id, theta_hash=text, approve=button == "approve", comment="from the monitor"
            )
        elif button == VIOLATION:
            request = ReportViolation.Request(proposal_id=proposal_id, comment=text)
        self._calls.append(_Call(button, client, request, time.monotonic() + TIMEOUT))

    def _advance(self) -> None:
        """Send what can be sent, hand on what was answered, give up on what is overdue."""
        for call in list(self._calls):
            if call.future is None and call.client.service_is_ready():
                call.future = call.client.call_async(call.request)
                call.future.add_done_callback(lambda _: self._rouse())
            if call.future is not None and call.future.done():
                answer = call.future.result()
                if self._proved(call, answer):
                    continue
                success = answer.accepted if hasattr(answer, "accepted") else answer.success
                message = answer.reason if hasattr(answer, "reason") else answer.message
                self._values.append(Reply(call.button, success, message))
            elif time.monotonic() > call.deadline:
                if call.future is not None:
                    call.client.remove_pending_request(call.future)
                whom = "was not answered" if call.future is not None else "is offered by nobody"
                self._values.append(Reply(call.button, False, f"{call.client.srv_name} {whom} within {TIMEOUT:g} s"))
            else:
                continue
            self._calls.remove(call)

    def _proved(self, call: _Call, answer: Any) -> bool:
        """Whether the answer was a challenge and the command goes out again, with its proof."""
        challenge, key = getattr(answer, "challenge", ""), find_key(self._experiment)
        if not challenge or not key or call.request.proof:
            return False
        request = call.request
        request.challenge = challenge
        request.proof = prove(key, challenge, request.command, request.arguments, request.who)
        call.future = None
        self._rouse()
        return True

    def _on_message(self, kind: type, message: Any) -> None:
        if kind is OptimizerState:
            self._experiment = message.experiment  # whose key to look for
        super()._on_message(kind, message)
