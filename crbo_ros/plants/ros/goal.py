"""An action's goal that can be ended whatever state it is in: its id is chosen before it is sent, and cancelled by id.

A goal that is accepted late, after a stop, is cancelled then; a cancel that is refused or not answered is asked for
again, until the goal's terminal status is seen or time is up. Nobody takes "I asked for it" for "it has ended".
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

from crbo_ros.errors import PlantError, PlantFailed, PolicyFailed
from crbo_ros.ros.link import DISCOVERY, POLL, Poll, RosLink, interface, no_poll

TERMINAL = {4: "SUCCEEDED", 5: "CANCELED", 6: "ABORTED"}  # action_msgs/msg/GoalStatus
CODES = {0: "accepted", 1: "refused", 2: "the goal is not known", 3: "it has ended already"}  # CancelGoal
CANCEL = 2.0  # s for a goal to come to its end
AGAIN = 0.2  # s until an unanswered cancel is asked for again


class ActionGoal:
    """One goal at a time of one action."""

    def __init__(self, link: RosLink, type_: str, name: str) -> None:
        from rclpy.action.client import ActionClient
        from rclpy.qos import DurabilityPolicy, QoSProfile

        self.link, self.name = link, name
        self._client: Any = ActionClient(link.node, interface(type_), name)
        link.at_end(self._client.destroy)
        latched = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        status = interface("action_msgs/msg/GoalStatusArray")
        self._subscription = link.node.create_subscription(status, f"{name}/_action/status", self._hear, latched)
        self._cancels = link.client("action_msgs/srv/CancelGoal", f"{name}/_action/cancel_goal")
        self._statuses: dict[bytes, int] = {}
        self.id = b""  # of the goal that may be under way; empty: none

    def _hear(self, message: Any) -> None:
        for status in message.status_list:
            self._statuses[bytes(status.goal_info.goal_id.uuid)] = status.status

    def connect(self) -> None:
        if not self.link.wait(self._client.server_is_ready, DISCOVERY):
            raise PlantError(f"nobody offers the action {self.name}; is its node running?")

    def send(self, goal: Any, seconds: float, poll: Poll = no_poll) -> Any:
        """The future of its result, once it is accepted. Whatever is raised: `cancel` must follow."""
        id = interface("unique_identifier_msgs/msg/UUID")(uuid=list(uuid.uuid4().bytes))
        self.id = bytes(id.uuid)
        handle = self.link.finished(self._client.send_goal_async(goal, goal_uuid=id), seconds, self.name, poll)
        if not handle.accepted:
            self.id = b""
            raise PolicyFailed(f"the action {self.name} refused the goal")
        return handle.get_result_async()

    def ended(self) -> None:
        """Its result is here."""
        self.id = b""

    def cancel(self, seconds: float = CANCEL, beat: Callable[[], None] = no_poll) -> str:
        """What its end was; PlantFailed when none was seen. Idempotent."""
        if not self.id:
            return ""
        request = interface("action_msgs/srv/CancelGoal").Request()
        request.goal_info.goal_id.uuid = list(self.id)
        deadline, said, future, asked = time.monotonic() + seconds, "no answer", None, 0.0
        while time.monotonic() < deadline:
            beat()
            if self._statuses.get(self.id) in TERMINAL:
                end = TERMINAL[self._statuses[self.id]]
                self.id = b""
                return f"the goal's terminal status is {end}"
            if future is not None and future.done():
                answer, future = future.result(), None
                said = CODES.get(answer.return_code, "an unknown answer")
                if answer.return_code == 3:  # a status that a late subscriber has missed
                    self.id = b""
                    return "the server says that the goal has ended"
                if answer.return_code == 0 and not answer.goals_canceling:  # rclpy's servers refuse like this
                    said = "refused: no goal is being cancelled"
            if time.monotonic() - asked > AGAIN:
                asked, future = time.monotonic(), self._cancels.call_async(request)
            time.sleep(POLL)
        raise PlantFailed(
            f"the goal of {self.name} was not seen to end within {seconds:g} s (answer to the last cancel: {said})"
        )
