"""Whom a runner asks, the optimizer and the safety monitor: one of each, alive, and never for ever in silence."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from rclpy.client import Client

from crbo_ros.msg import RunnerStatus as Status
from crbo_ros.nodes.base import ManagedNode
from crbo_ros.protocol.gate import Presence

DISCOVERY = 1.0  # s after its start in which a runner only looks who else is there
PATIENCE = 20.0  # s for one answer
SILENCE = 3.0  # s after which a server that says nothing was killed; the others speak once a second or more often


class Partner:
    """One of the two. `hear` of its signs of life; `show(state, message)` what the runner waits for meanwhile."""

    def __init__(self, node: ManagedNode, whom: str, quit: threading.Event, show: Callable[[int, str], None]) -> None:
        self._node, self._whom, self._quit, self._show = node, whom, quit, show
        self._heard = Presence(SILENCE)
        self.hear = self._heard.hear
        self._looked, self._servers, self._several_since = 0.0, 0, math.inf
        self._asks_from = time.monotonic() + DISCOVERY

    def ask(self, client: Client, request: Any, meanwhile: Callable[[], None] = lambda: None) -> Any | None:
        """One answer, or None (and a log line) when there was none in time; waits for the service with back-off.

        `meanwhile` is called once the request is under way.
        """
        log = self._node.get_logger()
        pause = 0.2
        while not client.service_is_ready():
            self._show(Status.WAITING, f"waits for {self._whom} ({client.srv_name})")
            if pause > 1.0:  # discovery alone may take some seconds: not worth a line
                log.info(f"waits for {self._whom} ({client.srv_name}), looks again in {pause:.1f} s at the latest")
            if self._quit.is_set() or (not client.wait_for_service(min(pause, 0.5)) and self._quit.wait(pause - 0.2)):
                return None
            pause = min(1.5 * pause, 5.0)
        if self._quit.wait(max(self._asks_from - time.monotonic(), 0.0)):
            return None
        if (servers := self._count(client)) > 1:
            reason = (
                f"{servers} nodes offer {client.srv_name}: use a namespace for each experiment (or one was killed just "
                "now, and is soon forgotten); nothing moves"
            )
            log.error(reason, throttle_duration_sec=5.0)
            self._show(Status.HELD, reason)
            self._quit.wait(0.5)
            return None
        answered = threading.Event()
        future = client.call_async(request)
        future.add_done_callback(lambda _: answered.set())
        meanwhile()
        patience = PATIENCE
        deadline = time.monotonic() + patience
        while not answered.wait(0.05):
            if self._quit.is_set():
                why = ""
            elif not client.service_is_ready():
                why = "went away"
            elif self._count(client) > 1:  # started again after it was killed with this question, perhaps
                why = "is not the only one any more"
            elif time.monotonic() > deadline:
                why = f"gave no answer within {patience:g} s"
            else:
                continue
            client.remove_pending_request(future)
            if why:
                log.warning(f"{self._whom} ({client.srv_name}) {why}; trying again")
            return None
        return future.result()

    def _count(self, client: Client) -> int:
        """How many nodes offer this service; asked anew at most twice a second, or always while there are too many.

        Discovery lists a killed node for some 20 s more. Where just one has been heard for a while, it is alone.
        """
        now = time.monotonic()
        if self._servers != 1 or now - self._looked > 0.5:
            self._looked, self._servers = now, self._node.count_services(client.srv_name)
            self._several_since = min(self._several_since, now) if self._servers > 1 else math.inf
        return 1 if now - self._several_since > SILENCE and self._heard.count() == 1 else self._servers
