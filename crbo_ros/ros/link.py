"""A plant's own small piece of ROS: a node in a context of its own, spun on a thread, with calls that can be stopped.

A context of its own, because the plant must still be able to call (stop, restore) while the process that holds it shuts
its own node down. rclpy is imported when a link is opened, so that tasks can be made where ROS is not installed.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from crbo_ros.errors import InvalidInput, MissingDependency, PlantError

POLL = 0.02  # s between two looks at whether to go on
DISCOVERY = 15.0  # s to wait for a service to appear
GONE = 1.0  # s after which a service that is no longer offered counts as gone

# Called at every look; raises Stopped when somebody wants the episode to end.
Poll = Callable[[], None]


class Stopped(Exception):
    """The watch gave a reason to stop."""


class NoAnswer(PlantError):
    """A call got no answer in time."""


def no_poll() -> None:
    """Nobody can stop this."""


class RosLink:
    """open() ... close(). Not thread-safe: one caller at a time, and callbacks on the link's own thread."""

    def __init__(self, name: str) -> None:
        self.name = f"{name}_{os.getpid()}"
        self.node: Any = None
        self._clients: dict[tuple[str, str], Any] = {}

    def open(self) -> None:
        if self.node is not None:
            return
        try:
            import rclpy
            from rclpy.executors import SingleThreadedExecutor
            from rclpy.signals import SignalHandlerOptions
        except ImportError as error:
            raise MissingDependency(
                f"this plant needs ROS 2 (rclpy): source it, or use ./crbo, which installs it ({error})"
            ) from None
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        # Not the process's own arguments: a node name or namespace given to the runner must not rename this node too.
        self.node = rclpy.create_node(self.name, context=self._context, use_global_arguments=False)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self.node)
        self._quit = threading.Event()
        self._thread = threading.Thread(target=self._spin, name=self.name, daemon=True)
        self._thread.start()

    def _spin(self) -> None:
        while not self._quit.is_set():
            self._executor.spin_once(timeout_sec=0.2)

    def close(self) -> None:
        if self.node is None:
            return
        self._quit.set()
        self._executor.wake()
        self._thread.join()
        self._executor.shutdown()
        node, self.node = self.node, None
        node.destroy_node()
        self._context.try_shutdown()
        self._clients = {}

    def wait(self, condition: Callable[[], bool], seconds: float, poll: Poll = no_poll) -> bool:
        """Wait until a condition holds (True) or time is up (False); `poll` is asked at 50 Hz."""
        deadline = time.monotonic() + seconds
        while not condition():
            poll()
            left = deadline - time.monotonic()
            if left <= 0.0:
                return False
            time.sleep(min(POLL, max(left, 1e-4)))
        return True

    def finished(self, future: Any, seconds: float, what: str, poll: Poll = no_poll) -> Any:
        """A future's result, or PlantError when it did not come in time. Wakes at once when it is there."""
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        deadline = time.monotonic() + seconds
        while not done.wait(POLL):
            poll()
            if time.monotonic() > deadline:
                raise NoAnswer(f"{what} gave no answer within {seconds:g} s")
        return future.result()

    def client(self, type_: str, name: str) -> Any:
        key = (type_, name)
        if key not in self._clients:
            self._clients[key] = self.node.create_client(interface(type_), name)
        return self._clients[key]

    def ready(self, type_: str, name: str, seconds: float = DISCOVERY, poll: Poll = no_poll) -> None:
        """Wait for a service to appear; PlantError if it does not."""
        if not self.wait(self.client(type_, name).service_is_ready, seconds, poll):
            raise PlantError(f"nobody offers the service {name} ({type_}); is its node running, in this ROS domain?")

    def call(
        self, type_: str, name: str, request: Any, seconds: float, poll: Poll = no_poll, discovery: float = DISCOVERY
    ) -> Any:
        """One answer of a service. PlantError if there is no service, no answer in time, or it goes away meanwhile."""
        return self._call(type_, name, request, seconds, poll, discovery)

    def ask(
        self, type_: str, name: str, request: Any, seconds: float, poll: Poll = no_poll, discovery: float = DISCOVERY
    ) -> Any:
        """As `call`, for what may be asked twice: once more, and once more, when there is no answer.

        The first answers to a new client can get lost: a service is seen before it has seen the client in turn.
        """
        for _ in range(2):
            try:
                return self._call(type_, name, request, seconds / 3.0, poll, discovery)
            except NoAnswer:
                continue
        return self._call(type_, name, request, seconds / 3.0, poll, discovery)

    def _call(self, type_: str, name: str, request: Any, seconds: float, poll: Poll, discovery: float) -> Any:
        self.ready(type_, name, discovery, poll)
        client = self.client(type_, name)
        last_seen = time.monotonic()

        def look() -> None:
            nonlocal last_seen
            poll()
            if client.service_is_ready():
                last_seen = time.monotonic()
            elif time.monotonic() - last_seen > GONE:
                raise PlantError(f"the service {name} went away; did its node end?")

        future = client.call_async(request)
        try:
            return self.finished(future, seconds, f"the service {name}", look)
        except BaseException:
            client.remove_pending_request(future)
            raise


def interface(type_: str) -> Any:
    """The class of an interface type such as std_msgs/msg/Float64."""
    package, kind, name = type_.split("/")
    try:
        return getattr(import_module(f"{package}.{kind}"), name)
    except (ImportError, AttributeError):
        raise PlantError(f"the type {type_} is not known here; is its package installed and sourced?") from None


def fill(message: Any, fields: dict[str, Any], where: str = "") -> Any:
    """Set a message's fields from plain values (nested fields, lists of messages). InvalidInput names the field."""
    types = message.get_fields_and_field_types()
    for name, value in fields.items():
        path = f"{where}.{name}".lstrip(".")
        if name not in types:
            raise InvalidInput(f"{path}: {type(message).__name__} has no such field; it has: {', '.join(types)}")
        current = getattr(message, name)
        if isinstance(value, dict):
            if not hasattr(current, "get_fields_and_field_types"):
                raise InvalidInput(f"{path}: is a {types[name]}, not fields")
            fill(current, value, path)
            continue
        if isinstance(value, list) and value and all(isinstance(entry, dict) for entry in value):
            value = [fill(_entry(types[name], path), entry, f"{path}[{i}]") for i, entry in enumerate(value)]
        else:
            value = _plain(value, types[name], path)
        setattr(message, name, value)
    return message


def _plain(value: Any, declared: str, path: str) -> Any:
    """A plain value as a field of the declared type takes it; rclpy itself does not look before it is too late."""
    match = re.fullmatch(r"sequence<(.+?)(?:, \d+)?>|(.+)\[(\d+)\]", declared)
    if match:
        if not isinstance(value, list) or (match[3] and len(value) != int(match[3])):
            raise InvalidInput(f"{path}: {value!r} is not a {declared}")
        return [_plain(entry, match[1] or match[2], path) for entry in value]
    kinds = {"bool": ("boolean",), "int": ("int", "uint", "float", "double"), "float": ("float", "double")}
    wanted = kinds.get(type(value).__name__, ("string", "wstring"))
    if not isinstance(value, (bool, int, float, str)) or not declared.startswith(wanted):
        raise InvalidInput(f"{path}: {value!r} is not a {declared}")
    return float(value) if declared.startswith(("float", "double")) else value


def _entry(declared: str, path: str) -> Any:
    match = re.search(r"(\w+)/(\w+)", declared)
    if not match:
        raise InvalidInput(f"{path}: is a {declared}, not a list of fields")
    return interface(f"{match[1]}/msg/{match[2]}")()
