"""One's own small piece of ROS: a node in a context of its own, spun on a thread, with calls that can be stopped.

For plants, clients and tools. A context of its own, because a plant must still be able to call (stop, restore) while
the process that holds it shuts its own node down. rclpy is imported when a link is opened, so that tasks can be made
where ROS is not installed.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from types import TracebackType
from typing import Any

from crbo_ros.errors import InvalidInput, MissingDependency, PlantError

POLL = 0.02  # s between two looks at whether to go on
DISCOVERY = 15.0  # s to wait for a service to appear
GONE = 1.0  # s after which a service that is no longer offered counts as gone
TRIES = 3  # of a question that may be asked twice

# Called at every look; raises Stopped when somebody wants the episode to end.
Poll = Callable[[], None]


class Stopped(Exception):
    """The watch gave a reason to stop."""


class NoAnswer(PlantError):
    """A call got no answer in time."""


def no_poll() -> None:
    """Nobody can stop this."""


class RosLink:
    """open() ... close(), or `with`. Not thread-safe: one caller at a time, and callbacks on the link's own thread."""

    def __init__(self, name: str, namespace: str = "") -> None:
        self.name, self.namespace = f"{name}_{os.getpid()}", namespace
        self.node: Any = None
        self._clients: dict[tuple[str, str], Any] = {}
        self._farewells: list[Callable[[], object]] = []

    def open(self) -> None:
        if self.node is not None:
            return
        try:
            import rclpy
            from rclpy.context import Context
            from rclpy.executors import SingleThreadedExecutor
            from rclpy.signals import SignalHandlerOptions

            from crbo_ros.ros.spinner import Spinner
        except ImportError as error:
            raise MissingDependency(
                f"this needs ROS 2 (rclpy): source it, or use the crbo of a clone, which installs it ({error})"
            ) from None
        self._context = Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        # Not the process's own arguments: a node name or namespace given to the runner must not rename this node too.
        self.node = rclpy.create_node(
            self.name, namespace=self.namespace, context=self._context, use_global_arguments=False
        )
        self._spinner = Spinner(SingleThreadedExecutor(context=self._context))
        self._spinner.start(self.node)

    def close(self) -> None:
        """Every step is tried whatever becomes of the others."""
        if self.node is None:
            return
        node, self.node, self._clients = self.node, None, {}
        farewells, self._farewells = self._farewells, []
        with ExitStack() as steps:
            steps.callback(self._context.try_shutdown)
            steps.callback(node.destroy_node)
            for farewell in farewells:
                steps.callback(farewell)
            steps.callback(self._spinner.end)

    def at_end(self, farewell: Callable[[], object]) -> None:
        """To be called by close(), when nothing spins any more: what is destroyed before that may be waited for."""
        self._farewells.append(farewell)

    def __enter__(self) -> RosLink:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

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
        self, type_: str, name: str, request: Any, seconds: float, poll: Poll = no_poll, discovery: float = DISCOVERY,
        tries: int = 1,
    ) -> Any:  # fmt: skip
        """One answer of a service. PlantError if there is no service, no answer in time, or it goes away meanwhile.

        `tries` share the seconds. The first answers to a new client can get lost: a service is seen before it has seen
        the client in turn.
        """
        self.ready(type_, name, discovery, poll)
        for left in reversed(range(tries)):
            try:
                return self._call(self.client(type_, name), name, request, seconds / tries, poll)
            except NoAnswer as error:
                if not left:
                    raise
                self.node.get_logger().warning(f"{error}; asked again, {left} more")
        raise AssertionError("tries: at least one")

    def ask(
        self, type_: str, name: str, request: Any, seconds: float, poll: Poll = no_poll, discovery: float = DISCOVERY
    ) -> Any:
        """`call` for what may be asked twice."""
        return self.call(type_, name, request, seconds, poll, discovery, TRIES)

    def _call(self, client: Any, name: str, request: Any, seconds: float, poll: Poll) -> Any:
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
