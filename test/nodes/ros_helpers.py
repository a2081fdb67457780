"""What tests of running nodes share: a node of their own, waiting, and a look at what really happened."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Peer:
    """A node of the test's own that calls services and listens."""

    def __init__(self, domain: int) -> None:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=domain)
        self.node = rclpy.create_node("peer", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.quit = threading.Event()
        self.thread = threading.Thread(target=self._spin, daemon=True)
        self.thread.start()
        self.clients: dict[str, Any] = {}
        self.heard: dict[str, list[Any]] = {}

    def _spin(self) -> None:
        while not self.quit.is_set():
            self.executor.spin_once(timeout_sec=0.05)

    def call(self, kind: Any, name: str, timeout: float = 20.0, **fields: Any) -> Any:
        if name not in self.clients:
            self.clients[name] = self.node.create_client(kind, name)
        client = self.clients[name]
        assert client.wait_for_service(timeout), f"{name} is not there"
        done = threading.Event()
        future = client.call_async(kind.Request(**fields))
        future.add_done_callback(lambda _: done.set())
        assert done.wait(timeout), f"{name} gave no answer"
        return future.result()

    def command(self, graph: Any, word: str, runner: str = "", **arguments: Any) -> Any:
        """An operator's command, with the proof that the graph's key makes."""
        from crbo_ros.ros.operator import fill
        from crbo_ros.srv import OperatorCommand

        name, fields = (
            f"{runner}/operator" if runner else "operator",
            ("command", "arguments", "who", "challenge", "proof"),
        )
        challenge = ""
        for _ in range(2):
            request = fill(OperatorCommand.Request(), graph.key, word, arguments, challenge)
            answer = self.call(OperatorCommand, name, **{field: getattr(request, field) for field in fields})
            challenge = answer.challenge
            if answer.accepted or not challenge:
                break
        return answer

    def listen(self, kind: Any, name: str, profile: Any) -> Any:
        messages = self.heard.setdefault(name, [])
        self.node.create_subscription(kind, name, messages.append, profile)
        return messages

    def publisher(self, kind: Any, name: str, profile: Any) -> Any:
        return self.node.create_publisher(kind, name, profile)

    def close(self) -> None:
        import rclpy

        self.quit.set()
        self.thread.join()
        self.executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


def wait_until(condition: Callable[..., Any], timeout: float = 20.0, what: str = "the condition") -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come true within {timeout:g} s")


class Ledger:
    """What the toy plant really did."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, event: Any = None) -> list[Any]:
        if not self.path.exists():
            return []
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [line for line in lines if event in (None, line["event"])]


def open_store(graph: Any) -> Any:
    from crbo_ros.protocol.store import ExperimentStore

    return ExperimentStore(graph.folder / "experiment.sqlite")


def finished(graph: Any) -> bool:
    return all(process.code is not None for process in graph.of("episode_runner"))
