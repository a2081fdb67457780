"""What the graph publishes, as values: a link of its own that fills a queue. The queue is emptied by `poll`."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from crbo_ros.protocol.records import new_uid
from crbo_ros.ros import convert, qos
from crbo_ros.ros.link import RosLink, interface
from crbo_ros.view.values import CODES, TOPICS

PROFILES = {
    "optimizer_state": qos.LATCHED, "runner_status": qos.LATCHED, "safety_contract": qos.LATCHED,
    "safety_heartbeat": qos.HEARTBEAT,
}  # fmt: skip
MESSAGES = {topic: interface(f"crbo_ros/msg/{name}") for topic, (name, _) in TOPICS.items()}
for _topic, (_, _kind) in TOPICS.items():
    for _codes in CODES.get(_kind, {}).values():
        assert all(getattr(MESSAGES[_topic], word.upper()) == code for word, code in _codes.items())

Feed = TypeVar("Feed", bound="TopicFeed")


def value_of(kind: type, message: Any) -> Any:
    """A message as a value of one of the kinds in TOPICS."""
    value = convert.from_message(message, kind)  # type: ignore[type-var]
    words: dict[str, Any] = {}
    for name, codes in CODES.get(kind, {}).items():
        code = getattr(message, name)
        words[name] = next((word for word, number in codes.items() if number == code), f"code {code}")
    return replace(value, **words)


class TopicFeed:
    """A context manager. `poll` may be called from any one thread; messages arrive on the link's."""

    def __init__(self, namespace: str = "", name: str = "crbo_view") -> None:
        self.namespace = namespace
        self.link = RosLink(f"{name}_{new_uid()[:8]}")
        self._values: deque[Any] = deque()
        self._subscriptions: list[Any] = []

    def __enter__(self: Feed) -> Feed:
        self.link.open()
        self.node: Any = self.link.node  # (the link forgets it while it closes, with callbacks still under way)
        self.begin()
        return self

    def begin(self) -> None:
        self.subscribe(self.namespace)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the graph. Idempotent."""
        self.link.close()

    def poll(self) -> list[Any]:
        """What has arrived since the last call."""
        return [self._values.popleft() for _ in range(len(self._values))]

    def subscribe(self, namespace: str) -> None:
        """To this namespace's topics, and to no other's."""
        for subscription in self._subscriptions:
            self.node.destroy_subscription(subscription)
        self.namespace = namespace
        self._subscriptions = [
            self.node.create_subscription(
                MESSAGES[topic], self.absolute(topic), partial(self._on_message, kind), PROFILES.get(topic, qos.HISTORY)
            )
            for topic, (_, kind) in TOPICS.items()
        ]

    def absolute(self, name: str) -> str:
        """The full name of a topic or service in the namespace."""
        return f"/{self.namespace.strip('/')}/{name}" if self.namespace.strip("/") else f"/{name}"

    def _on_message(self, kind: type, message: Any) -> None:
        self._values.append(value_of(kind, message))
