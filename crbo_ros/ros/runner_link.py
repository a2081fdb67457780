"""The loop over ROS: its link to optimizer and monitor, and the thread that drives it. For our node and the client."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import crbo_ros.msg as msg
import crbo_ros.srv as srv
from crbo_ros.clock import boottime
from crbo_ros.errors import StoreError
from crbo_ros.protocol import ports
from crbo_ros.protocol.database import Database
from crbo_ros.protocol.gate import Gate, Presence
from crbo_ros.protocol.ports import ANSWERS, RECEIPTS, Answer, Receipt, State, Status
from crbo_ros.protocol.records import Episode, Offer, Verdict
from crbo_ros.protocol.runner import EpisodeLoop
from crbo_ros.ros import convert, qos

SILENCE = 3.0  # s after which a server that says nothing was killed; the others speak once a second or more often
DISCOVERY = 1.0  # s after the start in which nobody is asked: two servers are not seen at the same moment
LOOK = 0.5  # s between two looks at who offers a service
ANSWER_WORDS = {code: word for word, code in ANSWERS.items()}
RECEIPT_WORDS = {code: word for word, code in RECEIPTS.items()}


class Driver:
    """Drives a loop on a thread of its own; what comes from others is posted to it."""

    def __init__(self, on_change: Callable[[Status], None], on_crash: Callable[[BaseException], None]) -> None:
        self.loop: EpisodeLoop | None = None
        self._events: queue.SimpleQueue[Callable[[float], None] | None] = queue.SimpleQueue()
        self._on_change, self._on_crash = on_change, on_crash
        self._thread: threading.Thread | None = None

    def post(self, event: Callable[[float], None]) -> None:
        """`event(now)` on the loop's thread."""
        self._events.put(event)

    def wake(self) -> None:
        self._events.put(None)

    def start(self, loop: EpisodeLoop) -> None:
        self.loop = loop
        self._thread = threading.Thread(target=self._work, name="episodes", daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Whether the loop has ended in time."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        assert self.loop is not None
        loop, told = self.loop, Status()
        try:
            while loop.state is not State.ENDED:
                pause = loop.step(boottime())
                if loop.status != told:
                    told = replace(loop.status)
                    self._on_change(told)
                if pause <= 0.0 and self._events.empty():
                    continue
                self._take_events(pause)
        except BaseException as error:
            self._on_crash(error)
            return
        self._on_change(loop.status)

    def _take_events(self, pause: float) -> None:
        try:
            event = self._events.get(timeout=max(min(pause, 0.5), 0.0)) if pause > 0.0 else self._events.get_nowait()
            while True:
                if event is not None:
                    event(boottime())
                event = self._events.get_nowait()
        except queue.Empty:
            return


class Server:
    """Whom a runner asks under one name: exactly one, alive."""

    def __init__(self, node: Any, clients: Sequence[Any]) -> None:
        self._node, self._clients = node, clients
        self._heard = Presence(SILENCE)
        self._looked, self._servers, self._several_since = -math.inf, 0, math.inf
        self._ask_from = boottime() + DISCOVERY

    def hear(self, who: str) -> None:
        self._heard.hear(boottime(), who)

    def obstacle(self) -> str:
        """Why nobody is asked now, or "". Looks anew at most twice a second, or always while there are too many.

        Discovery lists a killed node for some 20 s more. Where just one has been heard for a while, it is alone.
        """
        now = boottime()
        client = self._clients[0]
        if now < self._ask_from:
            return "is looked for"
        if not client.service_is_ready():
            self._looked = -math.inf
            return f"is not there ({client.srv_name})"
        if self._servers != 1 or now - self._looked > LOOK:
            self._looked, self._servers = now, self._node.count_services(client.srv_name)
            self._several_since = min(self._several_since, now) if self._servers > 1 else math.inf
        alone = self._servers <= 1 or (now - self._several_since > SILENCE and self._heard.count(now) == 1)
        if alone:
            return ""
        return (
            f"is not the only one: {self._servers} nodes offer {client.srv_name}; use a namespace for each experiment "
            "(or one was killed just now, and is soon forgotten); nothing moves"
        )


class RunnerLink:
    """See protocol.ports.Link. `name(relative)` gives a topic's or service's name; `publish_status` renews leases."""

    def __init__(
        self,
        node: Any,
        runner: str,
        gate: Gate,
        driver: Driver,
        *,
        name: Callable[[str], str] = str,
        publish_status: Callable[[], None] = lambda: None,
        on_report: Callable[[Episode], None] = lambda episode: None,
        memory: Callable[[], Database | None] = lambda: None,
    ) -> None:
        self.runner, self.gate, self.driver = runner, gate, driver
        self._publish_status, self._on_report, self._memory = publish_status, on_report, memory
        self._damage = ""  # of the runner's own store, as others know it
        self._propose = node.create_client(srv.ProposePolicy, name("propose_policy"))
        self._acknowledge = node.create_client(srv.AcknowledgeEpisode, name("acknowledge_episode"))
        self._check = node.create_client(srv.CheckRollout, name("check_rollout"))
        self._returns = node.create_publisher(msg.EpisodeReturn, name("episode_return"), qos.HISTORY)
        self._servers = {
            ports.OPTIMIZER: Server(node, (self._propose, self._acknowledge)),
            ports.MONITOR: Server(node, (self._check,)),
        }
        self._published: set[str] = set()
        self._waiting: tuple[Any, Any] | None = None  # the newest question: (client, future)
        self._subscriptions = (
            node.create_subscription(msg.SafetyHeartbeat, name("safety_heartbeat"), self._on_beat, qos.HEARTBEAT),
            node.create_subscription(msg.OptimizerState, name("optimizer_state"), self._on_optimizer, qos.LATCHED),
        )

    def _on_beat(self, message: msg.SafetyHeartbeat) -> None:
        told = message.holds != self.gate.holds
        self.gate.beat(boottime(), message.monitor_uid, message.armed, message.reason, message.holds)
        if told:
            self.driver.wake()  # the plant does not wait for the loop's next look
        self._servers[ports.MONITOR].hear(message.monitor_uid)

    def _on_optimizer(self, message: msg.OptimizerState) -> None:
        self._servers[ports.OPTIMIZER].hear(message.experiment_uid)

    # -- the loop's requests -----------------------------------------------------------------------

    def obstacle(self, whom: str) -> str:
        return f"has seen more than there is here: {self._damage}" if self._damage else self._servers[whom].obstacle()

    def _heads(self) -> list[Any]:
        memory = self._memory()
        return convert.to_heads(memory.heads) if memory is not None else []

    def _meet(self, answer: Any, whom: str) -> Any:
        """An answer, after a look at whether whoever gave it has seen more of the spool than there is."""
        memory = self._memory()
        try:
            if memory is not None:
                memory.meet(convert.from_heads(answer.heads), whom)
        except StoreError as error:
            self._damage = str(error)
        return answer

    def propose(self, nonce: str, request_id: str) -> None:
        request = srv.ProposePolicy.Request(runner=self.runner, request_id=request_id, heads=self._heads())
        self._call(
            self._propose,
            request,
            lambda now, answer: self._loop.proposed(now, nonce, to_answer(self._meet(answer, ports.OPTIMIZER))),
        )

    def check(self, nonce: str, offer: Offer, recent: Sequence[Episode]) -> None:
        request = srv.CheckRollout.Request(
            proposal=convert.to_message(offer), runner=self.runner, nonce=nonce,
            recent=[convert.to_message(episode) for episode in recent], heads=self._heads(),
        )  # fmt: skip
        self._call(
            self._check,
            request,
            lambda now, answer: self._loop.judged(
                now, nonce, convert.from_message(self._meet(answer, ports.MONITOR).verdict, Verdict)
            ),
        )

    def report(self, episode: Episode) -> None:
        message = convert.to_message(episode)
        if episode.episode_uid not in self._published:
            self._published.add(episode.episode_uid)
            self._returns.publish(message)
            self._on_report(episode)
        self._call(
            self._acknowledge,
            srv.AcknowledgeEpisode.Request(episode=message, heads=self._heads()),
            lambda now, answer: self._loop.acknowledged(
                now, episode.episode_uid, to_receipt(self._meet(answer, ports.OPTIMIZER))
            ),
        )

    def publish(self, episode: Episode) -> None:
        """A result of an earlier life, for late joiners."""
        self._published.add(episode.episode_uid)
        self._returns.publish(convert.to_message(episode))

    def renew(self, offer: Offer) -> None:
        self._publish_status()

    @property
    def _loop(self) -> EpisodeLoop:
        assert self.driver.loop is not None
        return self.driver.loop

    def _call(self, client: Any, request: Any, event: Callable[[float, Any], None]) -> None:
        """Ask; the answer becomes an event. One question at a time: an older one is forgotten."""
        if self._waiting is not None:
            old, future = self._waiting
            if not future.done():
                old.remove_pending_request(future)
        future = client.call_async(request)
        self._waiting = (client, future)

        def answered(done: Any) -> None:
            if not done.cancelled() and done.exception() is None:
                self.driver.post(lambda now: event(now, done.result()))

        future.add_done_callback(answered)


def say(logger: Any, level: str, text: str) -> None:
    """A line of the loop's. (rclpy wants one severity for each line of code that logs.)"""
    if level == "info":
        logger.info(text)
    elif level == "warning":
        logger.warning(text)
    elif level == "error":
        logger.error(text)
    else:
        logger.fatal(text)


def to_receipt(answer: Any) -> Receipt:
    """A response of acknowledge_episode as a value."""
    return Receipt(RECEIPT_WORDS.get(answer.status, ports.RETRY), answer.reason)


def to_answer(answer: Any) -> Answer:
    """A response of propose_policy as a value."""
    status = ANSWER_WORDS.get(answer.status, ports.WAIT)
    offer = convert.from_message(answer.proposal, Offer) if len(answer.proposal.theta) else None
    return Answer(status, answer.reason, answer.retry_after, offer, answer.proposal.experiment, answer.proposal.problem)
