"""Safety signals of somebody else's robot, heard: what topics and joint states say, against the limits of a YAML file.

Each message of an episode counts, also what came between two looks. A number that is not finite is beyond every limit.
One with a hard limit must be heard all the time: silent for longer than its `silence`, the episode ends as well, by no
fault of the policy. What the file says: plants/ros/config.py, SafetySignal.
"""

from __future__ import annotations

import math
import threading
import time
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.errors import PlantError
from crbo_ros.plants.ros.config import SafetySignal
from crbo_ros.ros.link import DISCOVERY, RosLink, interface

Array = NDArray[np.float64]


class SafetyListener:
    """Hears the signals of one episode. Callbacks come on the link's own thread."""

    def __init__(self, link: RosLink, signals: tuple[SafetySignal, ...]) -> None:
        self.link, self.signals = link, signals
        self._lock = threading.Lock()
        self._listening = False
        self._subscriptions: list[Any] = []
        self.reset()

    def connect(self) -> None:
        """Subscribe; PlantError for an unknown type, or where nobody publishes: what is not heard is not watched."""
        from rclpy.qos import QoSProfile, ReliabilityPolicy

        node, self._subscriptions = self.link.node, []
        for topic, type_ in {signal.topic: signal.type for signal in self.signals}.items():
            if not self.link.wait(lambda t=topic: node.count_publishers(t) > 0, DISCOVERY):  # type: ignore[misc]
                raise PlantError(f"nobody publishes the safety signal's topic {topic}; is its node running?")
            offered = {info.qos_profile.reliability for info in node.get_publishers_info_by_topic(topic)}
            reliable = offered == {ReliabilityPolicy.RELIABLE}
            profile = QoSProfile(
                depth=1000, reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
            )
            self._subscriptions.append(
                node.create_subscription(interface(type_), topic, partial(self._hear, topic), profile)
            )

    def reset(self) -> None:
        """What was heard before belongs to nobody."""
        with self._lock:
            self._listening = False
            self._largest = np.zeros(len(self.signals))
            self._count = np.zeros(len(self.signals), dtype=int)
            self._heard = np.full(len(self.signals), time.monotonic())

    def begin(self) -> None:
        """From here on what is heard belongs to this episode."""
        self.reset()
        with self._lock:
            self._listening = True

    def end(self) -> None:
        with self._lock:
            self._listening = False

    def _hear(self, topic: str, message: Any) -> None:
        with self._lock:
            for i, signal in enumerate(self.signals if self._listening else ()):
                if signal.topic == topic and (value := signal.value(message)) is not None:
                    self._largest[i] = max(self._largest[i], value)
                    self._count[i] += 1
                    self._heard[i] = time.monotonic()

    def largest(self) -> Array:
        """The largest |value| of each signal in this episode so far (n,); zeros before it began."""
        with self._lock:
            return self._largest.copy()

    def check(self) -> None:
        """PlantError where a signal with a hard limit has fallen silent."""
        with self._lock:
            silent = time.monotonic() - self._heard if self._listening else np.zeros(len(self.signals))
        for signal, seconds in zip(self.signals, silent, strict=True):
            if math.isfinite(signal.hard) and seconds > signal.silence:
                raise PlantError(f"safety signal {signal.name}: nothing on {signal.topic} for {seconds:.1f} s")

    def heard(self, complete: bool = True) -> dict[str, float]:
        """The largest |value| of each signal, by name; PlantError for one of which nothing was heard, if `complete`."""
        with self._lock:
            rows = list(zip(self.signals, self._largest, self._count, strict=True))
        for signal, _, count in rows:
            if not count and complete:
                raise PlantError(f"safety signal {signal.name}: nothing on {signal.topic} during the episode")
        return {signal.name: float(largest) for signal, largest, count in rows if count}
