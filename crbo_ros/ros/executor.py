"""A workaround for rclpy's SingleThreadedExecutor: what it waits for is gathered when that changes, not every time.

rclpy's own gathers some 40 entities and builds a wait set of them before it waits, twice for each callback: half a
millisecond each, with the GIL held, while the node's worker wants to compute (ros2/ros2 issue 1395; ros2/rclpy issue
1223 shows the two wait sets for each message). Gain: a service call of 2.4 instead of 4.0 ms, and the graph's cost
against one process 1.35 instead of 1.8 on a busy machine (`./crbo bench graph`, furuta, 100 episodes). Only that is
different here: who is called, when, and how, is left to rclpy. Where its inner parts are not those of Jazzy,
make_executor gives rclpy's own. It can go once rclpy keeps its wait set.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

from rclpy.exceptions import InvalidHandle
from rclpy.executors import ExternalShutdownException, ShutdownException, SingleThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.waitable import NumberOfEntities

KINDS = ("subscription", "timer", "client", "service")  # and waitables and guard conditions
INNER_PARTS = (
    "_context _guard _is_shutdown _make_handler _sigint_gc _take_client _take_guard_condition _take_service "
    "_take_subscription _take_timer _take_waitable _tasks _tasks_lock"
).split()


class LeanExecutor(SingleThreadedExecutor):
    """For nodes whose callbacks are plain functions (a coroutine would be polled, as by rclpy's own)."""

    def __init__(self, **options: Any) -> None:
        self._stale = True  # something may have come or gone since the last look
        self._held = contextlib.ExitStack()  # handles in the wait set: nobody may destroy them while they are in it
        super().__init__(**options)

    def wake(self) -> None:
        self._stale = True  # rclpy wakes the executor whenever an entity is made or destroyed
        super().wake()

    def add_node(self, node: Any) -> bool:
        added = super().add_node(node)
        self.wake()
        return added

    def remove_node(self, node: Any) -> None:
        super().remove_node(node)
        self.wake()

    def shutdown(self, timeout_sec: float | None = None) -> bool:
        """To be called when nobody spins any more."""
        done = super().shutdown(timeout_sec)
        self._held.close()
        return done

    def _gather(self) -> None:
        """What there is to wait for now, with its handles held."""
        self._stale = False  # first: what comes from here on asks for another look
        self._held.close()
        self._held = contextlib.ExitStack()
        self._entities: dict[str, dict[int, tuple[Any, Any]]] = {}  # kind -> pointer -> (entity, node)
        self._guards: list[tuple[Any, Any]] = []
        self._waitables: list[tuple[Any, Any]] = []
        nodes = self.get_nodes()
        count = NumberOfEntities()
        for kind in KINDS:
            self._entities[kind] = {}
            for node in nodes:
                for entity in getattr(node, f"{kind}s"):
                    with contextlib.suppress(InvalidHandle):  # destroyed meanwhile
                        self._held.enter_context(entity.handle)
                        self._entities[kind][entity.handle.pointer] = (entity, node)
        for node in nodes:
            for guard in node.guards:
                with contextlib.suppress(InvalidHandle):
                    self._held.enter_context(guard.handle)
                    self._guards.append((guard, node))
            for waitable in node.waitables:
                with contextlib.suppress(InvalidHandle):
                    self._held.enter_context(waitable)
                    self._waitables.append((waitable, node))
                    count += waitable.get_num_entities()
        for guard in (self._guard, self._sigint_gc):
            self._held.enter_context(guard.handle)
        context: Any = self._context.handle
        self._held.enter_context(context)
        sizes = {kind: len(found) for kind, found in self._entities.items()}
        self._wait_set = _rclpy.WaitSet(
            count.num_subscriptions + sizes["subscription"],
            count.num_guard_conditions + len(self._guards) + 2,
            count.num_timers + sizes["timer"],
            count.num_clients + sizes["client"],
            count.num_services + sizes["service"],
            count.num_events,
            context,
        )

    def _wait(self) -> list[tuple[Any, Any, Any]]:
        """Wait until something is ready: (entity, node, how to take from it) of all that is."""
        if self._stale:
            self._gather()
        wait_set = self._wait_set
        wait_set.clear_entities()
        for kind, found in self._entities.items():
            add = getattr(wait_set, f"add_{kind}")
            for entity, _ in found.values():
                add(entity.handle)
        for guard, _ in self._guards:
            if guard._executor_triggered:  # it was, and has not been called yet
                guard.trigger()
            wait_set.add_guard_condition(guard.handle)
        wait_set.add_guard_condition(self._guard.handle)
        wait_set.add_guard_condition(self._sigint_gc.handle)
        for waitable, _ in self._waitables:
            waitable.add_to_wait_set(wait_set)
        wait_set.wait(-1)
        if self._is_shutdown:
            raise ShutdownException()
        if not self._context.ok():
            raise ExternalShutdownException()
        ready = [(*pair, self._take_waitable) for pair in self._waitables if pair[0].is_ready(wait_set)]
        pointers = {kind: wait_set.get_ready_entities(kind) for kind in KINDS}
        triggered = wait_set.get_ready_entities("guard_condition")
        for guard, _ in self._guards:
            if guard.handle.pointer in triggered:
                guard._executor_triggered = True
        for kind in ("timer", "subscription"):
            found, take = self._entities[kind], getattr(self, f"_take_{kind}")
            ready += [(*found[p], take) for p in pointers[kind] if p in found]
        ready += [(*pair, self._take_guard_condition) for pair in self._guards if pair[0]._executor_triggered]
        for kind in ("client", "service"):
            found, take = self._entities[kind], getattr(self, f"_take_{kind}")
            ready += [(*found[p], take) for p in pointers[kind] if p in found]
        return ready

    def _wait_for_ready_callbacks(
        self, timeout_sec: Any = None, nodes: Any = None, condition: Any = lambda: False
    ) -> Generator[tuple[Any, Any, Any], None, None]:
        """As rclpy's own, but for how it waits; with a time limit or for some of the nodes it is rclpy's own."""
        if timeout_sec is not None or nodes is not None:
            yield from super()._wait_for_ready_callbacks(timeout_sec, nodes, condition)
            return
        yielded = False
        while not yielded and not self._is_shutdown and not condition():
            with self._tasks_lock:
                tasks = list(self._tasks)
            for task, entity, node in reversed(tasks):
                if not task.executing() and not task.done():
                    yielded = True
                    yield task, entity, node
            with self._tasks_lock:
                self._tasks = [one for one in self._tasks if not (one[0].done() or one[0].cancelled())]
            for entity, node, take in self._wait():
                if take == self._take_timer and not entity.handle.is_timer_ready():  # cancelled meanwhile
                    continue
                if entity.callback_group.can_execute(entity):
                    yielded = True
                    yield self._make_handler(entity, node, take), entity, node
        if self._is_shutdown:
            raise ShutdownException()


def make_executor() -> SingleThreadedExecutor:
    """The lean executor where it fits the installed rclpy, else rclpy's own: the same callbacks, in the same order."""
    lean = LeanExecutor()
    if all(hasattr(lean, part) for part in INNER_PARTS) and hasattr(
        SingleThreadedExecutor, "_wait_for_ready_callbacks"
    ):
        return lean
    lean.shutdown()
    return SingleThreadedExecutor()
