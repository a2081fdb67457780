"""What the three nodes share: lifecycle with autostart, declared parameters, diagnostics, and a clean way out."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor, SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import ParameterException
from rclpy.impl.implementation_singleton import rclpy_implementation as _rclpy
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.service import Service
from rclpy.timer import Timer

from crbo_ros import checks
from crbo_ros.core.problem import Problem
from crbo_ros.errors import CrboError, InvalidInput, explain
from crbo_ros.home import home
from crbo_ros.nodes import CRASHED, ENDED, LEFT_BADLY
from crbo_ros.nodes.process import run_node as run_node
from crbo_ros.nodes.way_out import WayOut
from crbo_ros.registry import task_problem
from crbo_ros.ros.parameter_files import complaint, files_of, sections
from crbo_ros.ros.parameters import GROUP, Parameter, nested
from crbo_ros.ros.throttle import Throttle
from crbo_ros.ros.worker import Worker, defer

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
STEADY = Clock(clock_type=ClockType.STEADY_TIME)


class ManagedNode(LifecycleNode):
    """A lifecycle node. Subclasses fill in open, start, halt, close and diagnose.

    Its callbacks run on one executor thread and must be quick; what takes time or waits for a disk is left to a worker.
    """

    PARAMETERS: tuple[Parameter, ...] = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, automatically_declare_parameters_from_overrides=True)
        self.active = False
        self.done = threading.Event()  # set: the process should exit
        self.exit_code = ENDED
        self._table = {parameter.name: parameter for parameter in self.PARAMETERS}
        self._check_parameters()
        for parameter in self.PARAMETERS:
            self._declare(parameter)
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._workers: list[Worker] = []
        self._leaving = False
        self.complain = Throttle(lambda text: self.get_logger().warning(text))  # about what others send
        defer(self.own_service("change_state"), self.make_worker("transitions"))
        # A timer also keeps an idle node from missing signals.
        self.steady_timer(1.0, self._publish_diagnostics)

    # -- for subclasses -----------------------------------------------------------------------------

    def open(self) -> None:
        """configure: open stores, make objects. CrboError: refused."""

    def start(self) -> None:
        """activate: motion is permitted from now on."""

    def halt(self) -> None:
        """deactivate: nothing moves when this returns."""

    def close(self) -> None:
        """cleanup: release everything."""

    def apply(self, changes: dict[str, Any]) -> None:
        """A changeable parameter was changed at run time. CrboError: refused."""

    def diagnose(self) -> tuple[bytes, str, dict[str, Any]]:
        """(level, message, values) for /diagnostics."""
        return OK, "", {}

    def steady_timer(self, period: float, callback: Callable[[], None]) -> Timer:
        """A timer that neither a step of the system's clock nor use_sim_time touches."""
        return self.create_timer(period, callback, clock=STEADY)

    # -- work off the executor's thread -------------------------------------------------------------

    def make_worker(self, name: str) -> Worker:
        worker = Worker(f"{self.get_name()} {name}", self._on_worker_error)
        self._workers.append(worker)
        return worker

    def own_service(self, name: str) -> Service:
        """A service that rclpy made for this node (set_parameters, change_state), by the last part of its name."""
        return next(s for s in self.services if s.srv_name.rsplit("/", 1)[-1] == name)

    def _on_worker_error(self, error: BaseException) -> None:
        """Nothing is known about what state it left behind: as with an executor that died, the process ends."""
        if self._leaving:  # what the job needed has just been closed
            return
        self.get_logger().fatal(explain(error))
        self.exit_code = CRASHED
        self.done.set()

    # -- parameters ---------------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        """Refuse what this node does not have, and sections of its parameter files that are for nobody."""
        found = [section for file in files_of(sys.argv) for section in sections(file)]
        parameters = self.get_parameters_by_prefix("")
        if wrong := complaint(self.get_fully_qualified_name(), self.PARAMETERS, parameters, found):
            raise InvalidInput(wrong)

    def _declare(self, parameter: Parameter) -> None:
        """Declare it again (rclpy did with its value), with its description, type and range."""
        if parameter.default == GROUP:
            for name in self.get_parameters_by_prefix(parameter.name):
                self.undeclare_parameter(f"{parameter.name}.{name}")
                descriptor = ParameterDescriptor(description=parameter.description, read_only=True, dynamic_typing=True)
                self.declare_parameter(f"{parameter.name}.{name}", None, descriptor)
            return
        if self.has_parameter(parameter.name):
            self.undeclare_parameter(parameter.name)
        described = parameter.description
        if parameter.choices:
            described += f" ({', '.join(parameter.choices)})"
        descriptor = ParameterDescriptor(description=described, read_only=not parameter.changeable)
        if parameter.minimum is not None or parameter.maximum is not None:
            low = -sys.float_info.max if parameter.minimum is None else parameter.minimum
            high = sys.float_info.max if parameter.maximum is None else parameter.maximum
            if isinstance(parameter.default, float):
                if parameter.maximum is not None:  # (a range with an infinite default would be refused)
                    descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
            else:
                high = 2**62 if parameter.maximum is None else int(high)
                descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high))]
        try:
            value = self.declare_parameter(parameter.name, parameter.default, descriptor).value
        except ParameterException as error:
            raise InvalidInput(f"parameter {parameter.name}: {error}") from None
        if complaint := parameter.complaint(value):
            raise InvalidInput(f"parameter {complaint}")

    def value(self, name: str) -> Any:
        """A parameter's value; of a group a dict of plain values."""
        if self._table[name].default == GROUP:
            group: dict[str, Any] = dict(self.get_parameters_by_prefix(name))
            return nested({n: list(p.value) if hasattr(p.value, "tolist") else p.value for n, p in group.items()})
        return self.get_parameter(name).value

    def _on_set_parameters(self, parameters: list[Any]) -> SetParametersResult:
        changes = {p.name: p.value for p in parameters if p.name in self._table}
        for name, value in changes.items():
            if complaint := self._table[name].complaint(value):
                return SetParametersResult(successful=False, reason=complaint)
        try:
            if changes:
                self.apply(changes)
        except CrboError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def problem(self) -> Problem:
        """The facts of the configured task; no plant is made, nothing is connected."""
        return task_problem(self.value("task"), self.value("plant") or None, **self.value("task_options"))

    def folder(self) -> Path:
        """The experiment's folder."""
        name = checks.name(self.value("experiment"), "parameter experiment")
        return home(self.value("experiments_dir")) / name

    # -- lifecycle ----------------------------------------------------------------------------------

    def _try(self, action: Any, what: str) -> TransitionCallbackReturn:
        try:
            action()
        except Exception as error:  # rclpy would swallow it
            self.get_logger().error(f"{what}: {explain(error)}")
            return TransitionCallbackReturn.FAILURE
        return TransitionCallbackReturn.SUCCESS

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._try(self.open, "cannot configure")

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        result = self._try(self.start, "cannot activate")
        if result is TransitionCallbackReturn.SUCCESS:
            self.active = True
            super().on_activate(state)
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.active = False
        self.halt()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        self.close()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        way_out = WayOut()
        self.leave(way_out)
        if not way_out.over():
            self.exit_code = LEFT_BADLY
        return super().on_shutdown(state)

    def _LifecycleNodeMixin__on_change_state(self, request: Any, response: Any) -> Any:
        """rclpy's own handler dies on an invalid transition (ros2/rclpy #1209); refuse it instead."""
        try:
            return super()._LifecycleNodeMixin__on_change_state(request, response)  # type: ignore[misc]
        except _rclpy.RCLError as error:
            self.get_logger().warning(f"transition refused: {error}")
            response.success = False
            return response

    def begin(self) -> bool:
        """configure and activate, unless autostart is off."""
        if not self.value("autostart"):
            self.get_logger().info("waits for lifecycle transitions (autostart is off)")
            return True
        success = TransitionCallbackReturn.SUCCESS
        return self.trigger_configure() == success and self.trigger_activate() == success

    def leave(self, way_out: WayOut) -> None:
        """Halt and close, from whatever state. Called on every way out."""
        self.active, self._leaving = False, True
        way_out.step("halt", self.halt)
        way_out.step("close", self.close)

    def end_workers(self, seconds: float = 3.0) -> None:
        """Tell all, and wait for them under one deadline."""
        for worker in self._workers:
            worker.end()
        deadline = time.monotonic() + seconds
        if busy := [worker.name for worker in self._workers if not worker.join(deadline - time.monotonic())]:
            raise RuntimeError(f"still busy after {seconds:g} s: {', '.join(busy)}")

    # -- diagnostics --------------------------------------------------------------------------------

    def _publish_diagnostics(self) -> None:
        try:
            level, message, values = self.diagnose()
        except CrboError as error:
            level, message, values = ERROR, str(error), {}
        status = DiagnosticStatus(level=level, name=self.get_fully_qualified_name().lstrip("/"), message=message)
        status.hardware_id = "crbo_ros"
        status.values = [KeyValue(key=key, value=str(value)) for key, value in values.items()]
        array = DiagnosticArray(status=[status])
        array.header.stamp = self.get_clock().now().to_msg()
        self._diagnostics.publish(array)
