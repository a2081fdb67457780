"""A node as a process: spun on a thread of its own until a signal, its own end or its launcher's, and then led out."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import rclpy
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import try_shutdown

from crbo_ros.errors import explain
from crbo_ros.nodes import CRASHED, LEFT_BADLY, PARENT, REFUSED
from crbo_ros.nodes.way_out import WayOut
from crbo_ros.ros.spinner import Spinner
from crbo_ros.signals import Signals

if TYPE_CHECKING:
    from crbo_ros.nodes.base import ManagedNode


def run_node(make: Callable[[], ManagedNode]) -> int:
    """Run a node until a signal, its own end, or its parent's. Exit code 0 on SIGINT and SIGTERM, no traceback."""
    launcher = Launcher()
    signals = Signals()  # own handlers: rclpy's would shut the context down under our feet, before the plant is safe
    try:
        rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    except Exception as error:  # a parameter file, or an argument that ROS cannot read
        print(f"error: {explain(error)}", file=sys.stderr)
        return REFUSED
    node, spinner, code = None, Spinner(), REFUSED
    try:
        node = make()
        spinner.start(node)
        if node.begin():
            code = _live(node, spinner, signals, launcher)
    except Exception as error:
        print(f"error: {explain(error)}", file=sys.stderr)
    way_out = WayOut()
    if node is not None:
        node.leave(way_out)
    way_out.secured()
    if node is not None:
        way_out.step("ending the workers", node.end_workers)
    way_out.step("ending the executor", spinner.end)
    if node is not None:
        way_out.step("destroying the node", node.destroy_node)
    way_out.step("shutting rclpy down", try_shutdown)
    # The middleware's participant and its threads live until the last reference to the node is gone. They are ended
    # here, where that is watched, and not by the interpreter's own end.
    del node, spinner
    way_out.step("letting go of the middleware", gc.collect)
    way_out.step("exit handlers", atexit._run_exitfuncs)
    signals.ignore()
    return code if way_out.over() else LEFT_BADLY


def _live(node: ManagedNode, spinner: Spinner, signals: Signals, launcher: Launcher) -> int:
    """Until it is told to end, or has a reason of its own; the exit code."""
    while not (signals.wait(0.1) or node.done.is_set()):
        if launcher.gone():
            node.get_logger().warning("the process that started this node is gone; leaving")
            break
        if not spinner.alive:
            node.get_logger().fatal("the executor died")
            return CRASHED
    return node.exit_code


class Launcher:
    """Who started this process, if the environment names them (they may have put a shell between)."""

    def __init__(self) -> None:
        self._parent, self._named = os.getppid(), int(os.environ.get(PARENT) or 0)

    def gone(self) -> bool:
        if not self._named:
            return False
        if os.getppid() != self._parent:
            return True
        try:
            os.kill(self._named, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False
