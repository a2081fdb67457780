"""An episode on somebody else's nodes: started by a service, an action goal or nothing, ended by its answer or by time.

The return comes from a topic's field (aggregated over the episode), from the start's answer, or from another service.
Shared by the tuning task (parameters of any node) and the arm task (an arm behind ros2_control).
"""

from __future__ import annotations

import math
import threading
import time
from functools import partial
from typing import Any

from crbo_ros.errors import InvalidInput, PlantError, PlantFailed, PolicyFailed
from crbo_ros.plants.ros.config import Call, EpisodeConfig, ReturnConfig
from crbo_ros.plants.ros.goal import CANCEL, ActionGoal
from crbo_ros.returns.fields import number_at
from crbo_ros.ros.link import DISCOVERY, Poll, RosLink, fill, interface, no_poll

STOP, FIND = 5.0, 2.0  # s: the stop service's answer, and finding it
FAREWELL = CANCEL + STOP + FIND
SUCCEEDED = 4  # action_msgs/msg/GoalStatus
BACKLOG, LONGEST_BACKLOG = 0.15, 3.0  # s without a message: all have come; and how long that is waited for
OVERDUE = 4.0  # s for which a silent topic is waited for: a lost packet is sent again within 3 s
PARTS = {"service": "Request", "action": "Goal", "topic": "Message"}


class RosReturn:
    """Collects the return of one episode."""

    def __init__(self, link: RosLink, config: ReturnConfig) -> None:
        self.link, self.config = link, config
        self._lock = threading.Lock()
        self._collecting, self._problem = False, ""
        self._samples: list[Any] = []
        self._log: dict[str, list[tuple[float, float, Any]]] = {}  # of a definition's topics: s received, s sent
        self._since = -math.inf  # s, when the episode began
        self._until = math.inf  # s, the middleware's clock: what comes later does not count
        self._overdue: set[str] = set()  # topics that were silent up to the end: what was sent by then counts
        self._looked = self._newest = 0.0  # when the limits were last looked at, and when a message last came

    def connect(self) -> None:
        """Subscribe; PlantError for an unknown type or field."""
        config = self.config
        if config.service is not None:
            message_of(config.service, "Request")
            self.link.client(config.service.type, config.service.name)
        if config.definition is not None:
            self._listen(config.definition.topics)
        if not config.topic:
            return
        from rclpy.qos import QoSProfile, ReliabilityPolicy

        reliability = ReliabilityPolicy.BEST_EFFORT if config.best_effort else ReliabilityPolicy.RELIABLE
        self._subscription = self.link.node.create_subscription(
            interface(config.type), config.topic, self._on_message, QoSProfile(depth=1000, reliability=reliability)
        )
        if not self.link.wait(lambda: self.link.node.count_publishers(config.topic) > 0, DISCOVERY):
            raise PlantError(f"nobody publishes the return's topic {config.topic}; is its node running?")

    def _listen(self, topics: dict[str, str]) -> None:
        """To all topics of a definition. A path may be latched, or come with the episode: nobody is waited for."""
        from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

        reliability = ReliabilityPolicy.BEST_EFFORT if self.config.best_effort else ReliabilityPolicy.RELIABLE
        self._subscriptions = []
        for topic, type_ in topics.items():
            latched = self.link.wait(lambda t=topic: self.link.node.count_publishers(t) > 0, DISCOVERY) and all(  # type: ignore[misc]
                info.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL
                for info in self.link.node.get_publishers_info_by_topic(topic)
            )
            durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
            profile = QoSProfile(depth=5000, reliability=reliability, durability=durability)
            kind = interface(type_) if "/action/" not in type_ else interface(type_).Impl.FeedbackMessage
            self._subscriptions.append(
                self.link.node.create_subscription(kind, topic, partial(self._on_logged, topic), profile)
            )

    def _on_logged(self, topic: str, message: Any, info: Any) -> None:
        """With the time at which the middleware got it: this thread may be behind."""
        with self._lock:
            received, sent = 1e-9 * info["received_timestamp"], 1e-9 * info["source_timestamp"]
            counts = received <= self._until or (topic in self._overdue and sent <= self._until)
            if self._collecting and counts:
                self._log.setdefault(topic, []).append((received, sent, message))
                self._newest = time.monotonic()

    def _record(self) -> dict[str, list[tuple[float, Any]]]:
        """What was sent in this episode: a message of the one before may have been on its way for long.

        The publisher's clock need not be ours: the fastest message tells by how much they differ.
        """
        record = {}
        for topic, rows in self._log.items():
            fastest = min(received - sent for received, sent, _ in rows)
            record[topic] = [(received, message) for received, sent, message in rows if sent + fastest >= self._since]
        return record

    def check(self) -> None:
        """PolicyFailed as soon as no return can come of it any more: a number that is not finite, or a hard limit of
        the definition that is passed (looked at ten times a second)."""
        with self._lock:
            problem = self._problem
        if problem:
            raise PolicyFailed(problem)
        definition, now = self.config.definition, time.monotonic()
        if definition is None or not definition.limits or now - self._looked < 0.1:
            return
        self._looked = now
        with self._lock:
            log = self._record()
        if passed := definition.violations(log, partial=True):
            raise PolicyFailed(f"limit: {passed[0]}")

    def _heard_all(self) -> bool:
        with self._lock:
            return self._overdue <= self._log.keys()

    def _scored(self, timeout: float, poll: Poll) -> float:
        definition = self.config.definition
        assert definition is not None
        with self._lock:
            self._until = time.time() + self.config.settle
            self._overdue = set(definition.topics) - self._log.keys()
        self.link.wait(lambda: False, self.config.settle, poll)
        self.link.wait(self._heard_all, min(timeout, OVERDUE), poll)
        # Many messages at once (a simulation that is faster than real time) may not have got through this thread yet.
        self.link.wait(lambda: time.monotonic() - self._newest > BACKLOG, LONGEST_BACKLOG, poll)
        with self._lock:
            self._collecting = False
            log = self._record()
        try:
            self._result = definition.score(log)
        except InvalidInput as error:
            raise PlantError(f"the return: {error}") from None
        if self._result.violations:
            raise PlantError(f"limit: {self._result.violations[0]}")
        return self._result.value

    def _on_message(self, message: Any) -> None:
        with self._lock:
            if not self._collecting:
                return
            try:
                self._samples.append(number_at(message, self.config.field))
            except InvalidInput as error:
                self._problem = f"topic {self.config.topic}: {error}"

    def begin(self) -> None:
        with self._lock:
            self._collecting, self._samples, self._problem, self._log = True, [], "", {}
            self._since, self._until, self._overdue = time.time(), math.inf, set()

    def _count(self) -> int:
        with self._lock:
            return len(self._samples) + bool(self._problem)

    def end(self, answer: Any, timeout: float, poll: Poll) -> float:
        """The return. `answer`: what the start gave."""
        config = self.config
        if config.definition is not None:
            return self._scored(timeout, poll)
        if config.topic:
            # What was published just before the end may still be on its way.
            self.link.wait(lambda: False, config.settle, poll)
            if not self.link.wait(lambda: self._count() > 0, timeout, poll):
                raise PlantError(
                    f"no message on {config.topic} during the episode, nor within {timeout:g} s after it "
                    "(a publisher that is best effort needs `reliability: best_effort`)"
                )
            with self._lock:
                self._collecting = False
                samples, problem = list(self._samples), self._problem
            if problem:
                raise PolicyFailed(problem)
            return config.value(samples)
        if config.service is not None:
            call = config.service
            answer = self.link.call(call.type, call.name, message_of(call, "Request"), timeout, poll)
        try:
            return config.value([number_at(answer, config.field)])
        except InvalidInput as error:
            raise PolicyFailed(
                f"the answer of {config.service.name if config.service else 'the start'}: {error}"
            ) from None

    def abandon(self) -> None:
        with self._lock:
            self._collecting = False


class RosEpisode:
    """Starts and ends episodes as an EpisodeConfig says."""

    def __init__(self, link: RosLink, config: EpisodeConfig) -> None:
        self.link, self.config = link, config
        self._goal: ActionGoal | None = None

    def connect(self) -> None:
        """Check types and requests, and wait for the services; PlantError names what is missing."""
        start, stop = self.config.start, self.config.stop
        for call in (start, stop):
            if call is not None:
                message_of(call, PARTS[call.kind])
        if stop is not None:
            self.link.ready(stop.type, stop.name)
        if start is None:
            return
        if start.kind == "service":
            self.link.ready(start.type, start.name)
            return
        if start.kind == "topic":
            self._publisher = self.link.node.create_publisher(interface(start.type), start.name, 1)
            if not self.link.wait(lambda: self._publisher.get_subscription_count() > 0, DISCOVERY):
                raise PlantError(f"nobody listens to {start.name} ({start.type}); is its node running?")
            return
        self._goal = ActionGoal(self.link, start.type, start.name)
        self._goal.connect()

    def run(self, poll: Poll) -> tuple[Any, float]:
        """One episode: (the start's answer or result, s it took). Stopped or PlantError: `stop` must follow."""
        config, link = self.config, self.link
        link.wait(lambda: False, config.delay, poll)
        poll()
        began = time.monotonic()
        answer = None
        if config.start is not None and config.start.kind == "topic":
            self._publisher.publish(message_of(config.start, "Message"))
        elif config.start is not None:
            answer = self._service(poll) if config.start.kind == "service" else self._run_action(poll)
        if config.seconds is not None and (config.start is None or config.start.kind != "action"):
            link.wait(lambda: False, config.seconds, poll)
        return answer, time.monotonic() - began

    def _service(self, poll: Poll) -> Any:
        call = self.config.start
        assert call is not None
        answer = self.link.call(call.type, call.name, message_of(call, "Request"), self.config.timeout, poll)
        if getattr(answer, "success", True) is False:  # as in Trigger and SetBool
            raise PolicyFailed(f"{call.name} refused: {getattr(answer, 'message', '') or 'success is false'}")
        return answer

    def _run_action(self, poll: Poll) -> Any:
        call, config, link, goal = self.config.start, self.config, self.link, self._goal
        assert call is not None
        assert goal is not None
        result = goal.send(message_of(call, "Goal"), config.timeout, poll)
        what = f"the action {call.name}"
        if config.seconds is not None:  # it runs for a fixed time and is then cancelled
            link.wait(result.done, config.seconds, poll)
            if not result.done():
                goal.cancel(beat=poll)
            answer = link.finished(result, config.timeout, what, poll)
        else:
            answer = link.finished(result, config.timeout, what, poll)
            if answer.status != SUCCEEDED:
                goal.ended()
                raise PolicyFailed(f"the action {call.name} ended with status {answer.status} (not SUCCEEDED)")
        goal.ended()
        return answer.result

    def close(self) -> None:
        self._goal = None

    def stop(self, beat: Poll = no_poll) -> str:
        """End the episode, also by the stop service: what was seen of its end; PlantFailed if that was not seen."""
        seen, problem = [], ""
        if self._goal is not None:
            try:
                seen.append(self._goal.cancel(beat=beat))
            except PlantError as error:
                problem = str(error)
        if (call := self.config.stop) is not None:
            answer = self.link.call(call.type, call.name, message_of(call, "Request"), STOP, beat, discovery=FIND)
            if getattr(answer, "success", True) is False:
                raise PlantFailed(f"{call.name} refused: {getattr(answer, 'message', '')}")
            seen.append(f"{call.name} answered")
        if problem:
            raise PlantFailed(problem)
        return "; ".join(filter(None, seen)) or ("the episode itself is unstoppable" if self.config.unstoppable else "")


def message_of(call: Call, part: str) -> Any:
    """The request or goal of a call, filled."""
    try:
        kind = interface(call.type)
        return fill(kind() if part == "Message" else getattr(kind, part)(), call.request)
    except InvalidInput as error:
        raise PlantError(f"{call.kind} {call.name}: {part.lower()}: {error}") from None
