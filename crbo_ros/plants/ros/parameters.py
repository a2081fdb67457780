"""The parameters of any running node(s) as a plant: set them, run an episode on that node, put safe values back.

with RosParameters(read_config("examples/pid.yaml")) as plant:
    plant.apply([2.0, 0.5, 0.1])                 # each one accepted, or PlantError
    value, seconds = plant.episode(poll)

Values are set by the standard parameter services. Whatever happens, the node ends with values that somebody chose: the
best known (or the start values) on stop, failure or lost connection; the start values, by the guardian, when this
process is killed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.errors import CrboError, PlantError
from crbo_ros.plants.base import Connection
from crbo_ros.plants.ros.config import Call, Tuned, TuningConfig
from crbo_ros.plants.ros.episode import RosEpisode, RosReturn, message_of
from crbo_ros.plants.watchdog import Watchdog
from crbo_ros.ros.link import Poll, RosLink, no_poll

SET, GET = "rcl_interfaces/srv/SetParameters", "rcl_interfaces/srv/GetParameters"
NOT_SET, BOOL, INTEGER, DOUBLE = 0, 1, 2, 3  # rcl_interfaces/msg/ParameterType
ANSWER = 6.0  # s for the answer of a parameter service, in three attempts
STOPPING = 3.0  # s for the same when the values to rest on are set
Values = dict[str, dict[str, float]]  # node -> name -> value


class RosParameters(Connection):
    """See the module's docstring. `log` gets lines for people."""

    is_hardware = True  # for all we know
    joint_names: tuple[str, ...] = ()

    def __init__(self, config: TuningConfig, log: Callable[[str], None] = print) -> None:
        self.config, self.log = config, log
        self.link = RosLink("crbo_tuning")
        self.runs = RosEpisode(self.link, config.episode)
        self.returns = RosReturn(self.link, config.returns)
        self.start = np.array([parameter.start for parameter in config.parameters])
        self.rest = self.start  # what stop() sets
        self._types: dict[str, int] = {}  # by label
        self.former: list[tuple[str, str, Any]] = []  # (node, name, value) as they were found
        self._guardian: Watchdog | None = None
        self._touched = False  # the node may hold other values than `rest`
        self._running = False  # an episode may be under way

    # -- connection -------------------------------------------------------------------------------

    def connect(self) -> None:
        """Find the nodes, their parameters, the episode's services and the return's source; put the guardian up."""
        if self._guardian is not None:
            return
        self.link.open()
        nodes = sorted({parameter.node for parameter in self.config.parameters})
        guardian = Watchdog(
            " ".join(nodes),
            "crbo_ros.plants.ros.parameters:Restore",
            {"values": self._grouped(self.start), "calls": self._farewell()},
        )
        try:
            self._look()
            self.runs.connect()
            self.returns.connect()
            guardian.wait_ready()
        except BaseException:
            guardian.dismiss()
            self.runs.close()
            self.link.close()
            raise
        self._guardian = guardian

    def _farewell(self) -> list[dict[str, Any]]:
        """What ends an episode that a killed runner left behind: the stop service, or cancelling all goals."""
        episode, calls = self.config.episode, []
        if episode.start is not None and episode.start.kind == "action":
            name = f"{episode.start.name}/_action/cancel_goal"
            calls.append(asdict(Call("service", name, "action_msgs/srv/CancelGoal")))
        if episode.stop is not None:
            calls.append(asdict(episode.stop))
        return calls

    def _look(self) -> None:
        """Every parameter exists and is a number; what differs from the start values is said."""
        self.former = []
        found = read(self.link, {node: list(names) for node, names in self._grouped(self.start).items()})
        for parameter in (*self.config.parameters, *self.config.fixed):
            kind, value = found[parameter.node][parameter.name]
            if kind == NOT_SET:
                raise PlantError(f"node {parameter.node} has no parameter {parameter.name!r}")
            if kind not in (BOOL, INTEGER, DOUBLE):
                raise PlantError(f"parameter {parameter.name!r} of {parameter.node} is not a number")
            self._types[parameter.label] = kind
            self.former.append((parameter.node, parameter.name, {BOOL: bool, INTEGER: int}.get(kind, float)(value)))
            if not _same(value, self._typed(parameter, parameter.start)):
                self.log(f"{parameter.label} is {value:g} now; the start value {parameter.start:g} will be set")

    def close(self) -> None:
        guardian, self._guardian = self._guardian, None
        if guardian is not None and not self._touched:
            guardian.dismiss()
        elif guardian is not None:  # the values could not be restored: the guardian goes on trying
            self.log("the safe values are not set yet; the guardian goes on trying")
            guardian.abandon()
        self.runs.close()
        self.link.close()

    # -- values -----------------------------------------------------------------------------------

    def _typed(self, parameter: Tuned, value: float) -> float:
        return float(value) if self._types.get(parameter.label, DOUBLE) == DOUBLE else float(round(value))

    def _grouped(self, theta: ArrayLike) -> Values:
        grouped: Values = {}
        for parameter, value in zip(self.config.parameters, np.asarray(theta, dtype=float), strict=True):
            grouped.setdefault(parameter.node, {})[parameter.name] = self._typed(parameter, float(value))
        for parameter in self.config.fixed:
            grouped.setdefault(parameter.node, {})[parameter.name] = self._typed(parameter, parameter.start)
        return grouped

    def apply(self, theta: ArrayLike, poll: Poll = no_poll, seconds: float = ANSWER) -> None:
        """Set all parameters; PlantError unless each was accepted and reads back as it was set."""
        self._touched = True
        types = {(p.node, p.name): self._types[p.label] for p in (*self.config.parameters, *self.config.fixed)}
        write(self.link, self._grouped(theta), types, poll, seconds)

    def settle_on(self, theta: ArrayLike) -> None:
        """From now on these are the values that stop() sets."""
        self.rest = np.array(theta, dtype=float)
        self._touched = True

    # -- episodes ---------------------------------------------------------------------------------

    def episode(self, poll: Poll) -> tuple[float, float]:
        """(return, s). PlantError or Stopped: call stop()."""

        def look() -> None:
            poll()
            self.returns.check()

        self._running = True
        self.returns.begin()
        try:
            answer, seconds = self.runs.run(look)
            value = self.returns.end(answer, self.config.episode.timeout, poll)
        finally:
            self.returns.abandon()
        return value, seconds

    def stop(self) -> None:
        """End the episode and set the values to rest on. Idempotent; says what did not work instead of raising."""
        if self.link.node is None:
            return
        if self._running:
            self._running = False
            try:
                self.runs.stop()
            except CrboError as error:
                self.log(f"stopping the episode: {error}")
        for attempt in range(2 if self._touched else 0):
            try:
                self.apply(self.rest, seconds=STOPPING)
                self._touched = False
                return
            except CrboError as error:
                self.log(f"setting the safe values (attempt {attempt + 1}): {error}")


# -- the standard parameter services -------------------------------------------------------------------


def read(link: RosLink, wanted: dict[str, list[str]]) -> dict[str, dict[str, tuple[int, float]]]:
    """node -> name -> (type, value; NaN where it is not a number)."""
    from rcl_interfaces.srv import GetParameters

    found: dict[str, dict[str, tuple[int, float]]] = {}
    for node, names in wanted.items():
        answer = link.ask(GET, f"{node}/get_parameters", GetParameters.Request(names=names), ANSWER)
        if len(answer.values) != len(names):  # nodes that refuse undeclared parameters answer with an empty list
            answer.values = [_single(link, node, name) for name in names]
        found[node] = {name: (v.type, _number(v)) for name, v in zip(names, answer.values, strict=True)}
    return found


def _single(link: RosLink, node: str, name: str) -> Any:
    from rcl_interfaces.msg import ParameterValue
    from rcl_interfaces.srv import GetParameters

    values = link.ask(GET, f"{node}/get_parameters", GetParameters.Request(names=[name]), ANSWER).values
    return values[0] if values else ParameterValue()


def _number(value: Any) -> float:
    known = {BOOL: float(value.bool_value), INTEGER: float(value.integer_value), DOUBLE: value.double_value}
    return known.get(value.type, math.nan)


def write(
    link: RosLink, values: Values, types: dict[tuple[str, str], int], poll: Poll = no_poll, seconds: float = ANSWER
) -> None:
    """Set values on nodes; PlantError names the first that was refused, or that did not stay as it was set."""
    from rcl_interfaces.msg import Parameter, ParameterValue
    from rcl_interfaces.srv import GetParameters, SetParameters

    for node, named in values.items():
        request = SetParameters.Request()
        for name, value in named.items():
            kind = types.get((node, name), DOUBLE)
            value = named[name] = float(value) if kind == DOUBLE else float(round(value))
            typed: dict[int, dict[str, Any]] = {
                BOOL: {"bool_value": bool(value)},
                INTEGER: {"integer_value": int(value)},
            }
            field = typed.get(kind, {"double_value": value})
            request.parameters.append(Parameter(name=name, value=ParameterValue(type=kind, **field)))
        answer = link.ask(SET, f"{node}/set_parameters", request, seconds, poll, discovery=seconds)
        for (name, value), result in zip(named.items(), answer.results, strict=True):
            if not result.successful:
                raise PlantError(f"{node} refused {name} = {value:g}: {result.reason or 'no reason given'}")
        back = link.ask(GET, f"{node}/get_parameters", GetParameters.Request(names=list(named)), seconds, poll)
        for (name, value), found in zip(named.items(), back.values, strict=False):
            if not _same(_number(found), value):
                raise PlantError(f"{node} took {name} = {value:g} but holds {_number(found):g}")


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


class Restore:
    """The guardian's job: end the episode, set these values, see that they are set. Tries until `patience` is up."""

    def __init__(
        self, *, values: Values, calls: list[dict[str, Any]], say: Callable[[str], None], patience: float = 30.0
    ) -> None:
        self.values, self.say, self.patience = values, say, patience
        self.calls = [Call(**fields) for fields in calls]
        self.link = RosLink("crbo_guardian")
        self.link.open()
        for call in self.calls:  # clients that are there find their services in good time
            self.link.client(call.type, call.name)
        for node in values:
            self.link.client(GET, f"{node}/get_parameters")
            self.link.client(SET, f"{node}/set_parameters")

    def __call__(self) -> None:
        deadline = time.monotonic() + self.patience
        for call in self.calls:
            try:
                self.link.call(call.type, call.name, message_of(call, "Request"), 2.0, discovery=5.0)
            except PlantError as error:
                self.say(str(error))
        while True:
            try:
                found = read(self.link, {node: list(named) for node, named in self.values.items()})
                types = {(node, name): found[node][name][0] for node, named in self.values.items() for name in named}
                write(self.link, self.values, types)
                break
            except PlantError as error:
                self.say(str(error))
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        shown = [f"{n}: " + ", ".join(f"{k} = {v:g}" for k, v in named.items()) for n, named in self.values.items()]
        self.say(f"start values are set again ({'; '.join(shown)})")

    def close(self) -> None:
        self.link.close()
