"""The parameters of any running node(s) as a plant: set them, run an episode on that node, put safe values back.

with RosParameters(read_config("examples/pid.yaml")) as plant:
    plant.apply([2.0, 0.5, 0.1])                 # each one accepted, or PlantError
    value, seconds = plant.episode(poll)

Values are set by the standard parameter services, and read back. Whatever happens, the node ends with values that
somebody chose: the best known (or the start values) on stop, failure or lost connection; the start values, by the host
(plants/host.py), when this process is killed, frozen or hangs; and, from a journal on disk, at the next start after a
power cut.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.safe import Safe
from crbo_ros.errors import CrboError, PlantError, PlantFailed, PolicyFailed
from crbo_ros.plants.base import Connection
from crbo_ros.plants.hosted import PlantHost
from crbo_ros.plants.journal import Journal
from crbo_ros.plants.ros.config import Call, Tuned, TuningConfig
from crbo_ros.plants.ros.episode import RosEpisode, RosReturn, message_of
from crbo_ros.plants.ros.safety_signals import SafetyListener
from crbo_ros.ros.link import Poll, RosLink, no_poll

SET, GET = "rcl_interfaces/srv/SetParameters", "rcl_interfaces/srv/GetParameters"
NOT_SET, BOOL, INTEGER, DOUBLE = 0, 1, 2, 3  # rcl_interfaces/msg/ParameterType
ANSWER = 6.0  # s for the answer of a parameter service, in three attempts
STOPPING = 3.0  # s for the same when the values to rest on are set
SILENCE = 0.4  # s without a beat of this process's loop; then the host sets the start values
RESTORING = 15.0  # s for the host to do so when it is asked to
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
        self.safety = SafetyListener(self.link, config.safety)
        self.start = np.array([parameter.start for parameter in config.parameters])
        self.rest = self.start  # what stop() sets
        self._types: dict[str, int] = {}  # by label
        self.former: list[tuple[str, str, Any]] = []  # (node, name, value) as they were found
        self._host: PlantHost | None = None
        self._journal = Journal(self._target)
        self._safe = Safe(False, "nobody has looked")
        self._touched = False  # the node may hold other values than `rest`
        self._running = False  # an episode may be under way

    # -- connection -------------------------------------------------------------------------------

    @property
    def _target(self) -> str:
        return " ".join(sorted({parameter.node for parameter in self.config.parameters}))

    def connect(self) -> None:
        """Find the nodes, their parameters, the episode's services and the return's source; put the host up."""
        if self._host is not None:
            if self._host.alive:
                return
            self.close()
        self.link.open()
        host = PlantHost(
            self._target, "crbo_ros.plants.ros.parameters:Restore",
            {"values": self._grouped(self.start), "calls": self._farewell()}, patience=SILENCE, log=self.log,
        )  # fmt: skip
        try:
            host.wait_ready()  # from here on nobody else is at work on these nodes
            self._restore_from_journal()
            self._look()
            self.runs.connect()
            self.returns.connect()
            self.safety.connect()
        except BaseException:
            host.dismiss()
            self.runs.close()
            self.link.close()
            raise
        self._host = host

    def _restore_from_journal(self) -> None:
        """Values that a run left behind which could not put them back, nor could its host: a power cut."""
        if (left := self._journal.read()) is None:
            return
        self.log(f"an earlier run ended without restoring its values: {_shown(left)} are set now")
        found = read(self.link, {node: list(named) for node, named in left.items()})
        write(self.link, left, {(node, name): found[node][name][0] for node, named in left.items() for name in named})
        self._journal.clear()

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
        host, self._host = self._host, None
        if host is not None and not self._touched:
            host.dismiss()
        elif host is not None:  # the values could not be restored: the host goes on trying
            self.log("the safe values are not set yet; the host goes on trying")
            host.abandon()
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
        """Set all parameters; PolicyFailed unless each was accepted and reads back as it was set."""
        if self._host is not None and not self._touched:
            self._host.check()
            self._journal.write(self._grouped(self.start))
        self._touched = True
        if self._host is not None and not self._host.armed:
            self._host.arm()
        self._write(theta, poll, seconds)

    def _write(self, theta: ArrayLike, poll: Poll, seconds: float) -> None:
        types = {(p.node, p.name): self._types[p.label] for p in (*self.config.parameters, *self.config.fixed)}

        def look() -> None:
            self.beat()
            poll()

        write(self.link, self._grouped(theta), types, look, seconds)

    def beat(self) -> None:
        """This process's loop is alive."""
        if self._host is not None:
            self._host.beat()

    def settle_on(self, theta: ArrayLike) -> None:
        """From now on these are the values that stop() sets."""
        self.rest = np.array(theta, dtype=float)
        self._touched = True

    # -- episodes ---------------------------------------------------------------------------------

    def episode(self, poll: Poll) -> tuple[float, float]:
        """(return, s). PlantError or Stopped: call stop()."""

        def look() -> None:
            self.beat()
            poll()
            self.returns.check()
            self.safety.check()

        self._running = True
        self.returns.begin()
        self.safety.begin()
        try:
            answer, seconds = self.runs.run(look)
            value = self.returns.end(answer, self.config.episode.timeout, look)
        finally:
            self.returns.abandon()
            self.safety.end()
        return value, seconds

    def limits_in_words(self) -> str:
        return "; ".join(f"{p.label} {p.lower:g} to {p.upper:g}" for p in self.config.parameters)

    def stop(self) -> Safe:
        """End the episode and set the values to rest on; CONFIRMED when they read back and its end was seen."""
        if self.link.node is None:
            return Safe(True, "not connected")
        if not self._touched and not self._running:
            return self._safe if self._safe.confirmed else Safe(True, "nothing was changed")
        ended, problems = "", []
        if self._running:
            try:
                ended = self.runs.stop(self._quiet_beat)
                self._running = False
            except CrboError as error:
                problems.append(f"stopping the episode: {error}")
        if self._touched:
            problems += self._rest()
        for problem in problems:
            self.log(problem)
        if problems:
            self._safe = Safe(False, "; ".join(problems))
            return self._safe
        what = f"{_shown(self._grouped(self.rest))} read back"
        self._safe = Safe(True, f"{what}; {ended}" if ended else what)
        if self._host is not None:
            self._host.disarm(self._safe)
        return self._safe

    def _rest(self) -> list[str]:
        """Set the values to rest on; if that does not work, the host sets the start values. What went wrong."""
        for attempt in range(2):
            try:
                self._write(self.rest, self._quiet_beat, STOPPING)
            except CrboError as error:
                self.log(f"setting the safe values (attempt {attempt + 1}): {error}")
                problem = str(error)
            else:
                self._touched = False
                self._journal.clear()
                return []
        if self._host is not None and self._host.alive:
            safe = self._host.make_safe(RESTORING)
            if safe.confirmed:
                self._touched = False
                self._journal.clear()
                self.log(f"the host has set the start values: {safe.reason}")
                return []
            problem = f"{problem}; the host: {safe.reason}"
        return [f"the safe values are not set: {problem}"]

    def _quiet_beat(self) -> None:
        """While it is being made safe anyway, a host that has acted already is no reason to stop doing so."""
        try:
            self.beat()
        except PlantFailed as error:
            self.log(str(error))


def _shown(values: Values) -> str:
    return "; ".join(
        f"{node}: " + ", ".join(f"{k} = {v:g}" for k, v in named.items()) for node, named in values.items()
    )


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
    """Set values on nodes; PolicyFailed names the first that is not finite, was refused, or did not stay as set."""
    from rcl_interfaces.msg import Parameter, ParameterValue
    from rcl_interfaces.srv import GetParameters, SetParameters

    for node, named in values.items():
        for name, value in named.items():  # nodes have been seen to take a NaN, and to fly with it
            if not math.isfinite(value):
                raise PolicyFailed(f"{node} {name}: {value} is not finite; nothing was set")
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
                raise PolicyFailed(f"{node} refused {name} = {value:g}: {result.reason or 'no reason given'}")
        back = link.ask(GET, f"{node}/get_parameters", GetParameters.Request(names=list(named)), seconds, poll)
        if len(back.values) != len(named):
            raise PlantFailed(f"{node} does not tell what it holds: {len(back.values)} of {len(named)} values")
        for (name, value), found in zip(named.items(), back.values, strict=True):
            if not _same(_number(found), value):
                raise PolicyFailed(f"{node} took {name} = {value:g} but holds {_number(found):g}")


def _same(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-9 * max(abs(a), abs(b))


class Restore:
    """The host's job: end the episode, set these values, see that they are set. Tries until `patience` is up."""

    def __init__(
        self, *, values: Values, calls: list[dict[str, Any]], say: Callable[[str], None], patience: float = 12.0
    ) -> None:
        self.values, self.say, self.patience = values, say, patience
        self.calls = [Call(**fields) for fields in calls]
        self.link = RosLink("crbo_host")
        self.link.open()
        for call in self.calls:  # clients that are there find their services in good time
            self.link.client(call.type, call.name)
        for node in values:
            self.link.client(GET, f"{node}/get_parameters")
            self.link.client(SET, f"{node}/set_parameters")
        self._types: dict[tuple[str, str], int] = {}
        with contextlib.suppress(PlantError):  # now, so that there is less to do when it counts
            self._look()

    def _look(self) -> None:
        found = read(self.link, {node: list(named) for node, named in self.values.items()})
        self._types = {(node, name): found[node][name][0] for node, named in self.values.items() for name in named}

    def command(self, values: Any) -> None:
        """A beat: nothing to do."""

    def make_safe(self, last: bool) -> Safe:
        """The stop is sent first and waited for last: values that come back do not wait for a node that hangs."""
        deadline, problems = time.monotonic() + self.patience, []
        sent = [
            (call, self.link.client(call.type, call.name).call_async(message_of(call, "Request")))
            for call in self.calls
        ]
        while True:
            try:
                if not self._types:
                    self._look()
                write(self.link, self.values, self._types)
                self.say(f"start values are set again ({_shown(self.values)})")
                break
            except PlantError as error:
                self.say(str(error))
                if time.monotonic() > deadline:
                    problems.append(f"the start values are not set: {error}")
                    break
                time.sleep(0.2)
        for call, future in sent:
            if not self.link.wait(future.done, 2.0):
                problems.append(f"{call.name} gave no answer")
        return Safe(not problems, "; ".join(problems) or f"{_shown(self.values)} read back")

    def close(self) -> None:
        self.link.close()
