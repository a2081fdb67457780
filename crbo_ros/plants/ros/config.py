"""The YAML file of the tuning task (docs/INTEGRATION.md, examples/pid.yaml) as values, checked. No ROS.

`safety` is the arm's as well; it names what must not be exceeded, however good the return was:

    safety:
      - {name: current, topic: /motor/state, type: my_msgs/msg/Motor, field: current, limit: 5.0, hard: 8.0}
      - {joint: elbow, of: effort, limit: 20.0, hard: 30.0}        # an arm's joint: position, velocity or effort
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput
from crbo_ros.returns.definition import ReturnDefinition, definition, read_definition
from crbo_ros.returns.fields import field_steps, number_at
from crbo_ros.yaml_section import Section, read_yaml

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": math.fsum,
    "mean": lambda values: math.fsum(values) / len(values),
    "min": min,
    "max": max,
    "last": lambda values: values[-1],
}
SILENCE = 1.0  # s without a message of a safety signal that has a hard limit
QUANTITIES = ("position", "velocity", "effort")  # of sensor_msgs/msg/JointState


@dataclass(frozen=True)
class Tuned:
    """One parameter of a node."""

    node: str
    name: str
    lower: float
    upper: float
    start: float
    log: bool = False
    kind: str = "double"  # or integer, or bool: how its node holds it

    @property
    def label(self) -> str:
        return f"{self.node} {self.name}"

    def typed(self, value: float) -> Any:
        """A value of theta as the node holds it."""
        return float(value) if self.kind == "double" else bool(round(value)) if self.kind == "bool" else round(value)


@dataclass(frozen=True)
class Call:
    """A service or an action, its type, and what is sent to it."""

    kind: str  # "service", "action", or "topic": a message that is published once
    name: str
    type: str
    request: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EpisodeConfig:
    """How an episode is started and ended. s throughout."""

    start: Call | None = None  # None: it lasts `seconds`, nothing is called
    seconds: float | None = None  # from the start service's answer (or the goal's acceptance); None: until its end
    stop: Call | None = None  # called at the end of every episode, and whenever one is stopped
    unstoppable: bool = False  # whoever wrote the file says that nothing can end an episode before its time
    delay: float = 0.0  # between setting the parameters and the start
    timeout: float = 60.0  # for any single answer

    @property
    def longest(self) -> float:
        """From the start to the end, with every time-out."""
        answers = (
            0 if self.start is None or self.start.kind == "topic" else 2 if self.start.kind == "action" else 1
        )  # acceptance, and result
        return self.delay + answers * self.timeout + (self.seconds or 0.0)


@dataclass(frozen=True)
class ReturnConfig:
    """Where the return comes from: a topic's field during the episode, the start's answer, another service, or, by a
    definition (crbo_ros.returns), metrics of what several topics said."""

    field: str
    topic: str = ""
    type: str = ""
    aggregate: str = "last"
    settle: float = 0.1  # s for which messages are still recorded after the end
    best_effort: bool = False
    service: Call | None = None
    negate: bool = False
    definition: ReturnDefinition | None = None

    def longest(self, timeout: float) -> float:
        """s after an episode's end within which the return is there, or has failed."""
        return self.settle + timeout if self.topic or self.definition else timeout if self.service else 0.0

    def value(self, samples: Sequence[float]) -> float:
        value = AGGREGATES[self.aggregate](samples)
        return -value if self.negate else value


@dataclass(frozen=True)
class SafetySignal:
    """The absolute value of a number that a topic tells, and its limits."""

    name: str
    topic: str
    type: str
    field: str  # of a joint state: position, velocity or effort
    limit: float  # beyond it the episode is a violation
    hard: float = math.inf  # beyond it the episode ends, too
    silence: float = SILENCE
    joint: str = ""  # whose, in a joint state

    def value(self, message: Any) -> float | None:
        """|number|; infinite where it is not finite, None where the message is about something else."""
        if not self.joint:
            try:
                return abs(number_at(message, self.field))
            except InvalidInput:
                return math.inf
        found = dict(zip(message.name, getattr(message, self.field), strict=False))
        if self.joint not in found:
            return None
        return abs(found[self.joint]) if math.isfinite(found[self.joint]) else math.inf


@dataclass(frozen=True)
class TuningConfig:
    parameters: tuple[Tuned, ...]
    episode: EpisodeConfig
    returns: ReturnConfig
    gamma: float = 0.5
    rest: str = "best"  # the values between episodes and after a stop: best known so far, or start
    fixed: tuple[Tuned, ...] = ()  # set with the others, always to their start value; no part of theta
    below: tuple[tuple[int, int], ...] = ()  # theta_i < theta_j
    safety: tuple[SafetySignal, ...] = ()
    robot: str = ""  # its serial number or name, for the record

    @property
    def space(self) -> Space:
        return Space(
            [p.lower for p in self.parameters],
            [p.upper for p in self.parameters],
            log=[p.log for p in self.parameters],
            names=[p.label for p in self.parameters],
            integer=[p.kind != "double" for p in self.parameters],
            below=self.below,
        )


def read_config(path: str | Path) -> TuningConfig:
    """The configuration, or InvalidInput with file, line and field."""
    root = read_yaml(path)
    sections = root.list("parameters")
    listed = [(section.flag("fixed"), _tuned(section)) for section in sections]
    parameters = tuple(parameter for fixed, parameter in listed if not fixed)
    labels = [parameter.label for _, parameter in listed]
    for i, section in enumerate(sections):
        if labels[i] in labels[:i]:
            raise section.error(f"{labels[i]} is listed twice", "name")
    if not parameters:
        raise root.error("all of them are fixed: nothing is left to tune", "parameters")
    episode = read_episode(root.required("episode"))
    returns = read_return(root.required("return"), episode.start is not None and episode.start.kind != "topic")
    config = TuningConfig(
        parameters, episode, returns, read_gamma(root), root.text("rest", "best", choices=("best", "start")),
        fixed=tuple(parameter for fixed, parameter in listed if fixed), below=_below(root, parameters),
        safety=read_safety(root), robot=root.text("robot", ""),
    )  # fmt: skip
    root.close()
    return config


def read_gamma(root: Section) -> float:
    gamma = root.number("gamma", 0.5, positive=True)
    if gamma > 1.0:
        raise root.error(f"{gamma:g} is outside (0, 1]", "gamma")
    return gamma


def _below(root: Section, parameters: Sequence[Tuned]) -> tuple[tuple[int, int], ...]:
    """`constraints: [a < b]`, by names (with their nodes, where a name is not unique)."""
    found = []
    for text in root.texts("constraints") if root.has("constraints") else ():
        low, less, high = (part.strip() for part in text.partition("<"))
        pair = []
        for word in (low, high):
            fits = [i for i, p in enumerate(parameters) if word in (p.name, p.label)]
            if not less or len(fits) != 1:
                raise root.error(f"{text!r} is not of the form a < b, of parameters that move", "constraints")
            pair.append(fits[0])
        i, j = pair
        if not parameters[i].start < parameters[j].start:
            raise root.error(f"{text!r} does not hold for the start values", "constraints")
        found.append((i, j))
    return tuple(found)


def _tuned(section: Section) -> Tuned:
    kind = section.text("type", "double", choices=("double", "integer", "bool"))
    if kind == "bool":
        on = section.flag("start")
        return Tuned(section.absolute_name("node"), section.text("name"), 0.0, 1.0, float(on), kind=kind)
    if section.flag("fixed"):
        value = section.number("start")
        return Tuned(section.absolute_name("node"), section.text("name"), value, value, value, kind=kind)
    lower, upper, start = (section.number(name) for name in ("lower", "upper", "start"))
    log = section.text("scale", "linear", choices=("linear", "log")) == "log"
    if lower >= upper:
        raise section.error(f"{lower:g} is not below upper ({upper:g})", "lower")
    if not lower <= start <= upper:
        raise section.error(f"{start:g} is outside [{lower:g}, {upper:g}]", "start")
    if log and lower <= 0.0:
        raise section.error(f"{lower:g}: a log scale needs bounds above 0", "lower")
    return Tuned(section.absolute_name("node"), section.text("name"), lower, upper, start, log, kind)


def read_safety(root: Section, states: str = "", joints: tuple[str, ...] = ()) -> tuple[SafetySignal, ...]:
    """The file's `safety`, if there is one; `states` and `joints` are an arm's."""
    found: list[SafetySignal] = []
    for section in root.list("safety") if root.has("safety") else ():
        if joints and section.has("joint"):
            joint, of = section.text("joint", choices=joints), section.text("of", choices=QUANTITIES)
            source = (f"{joint} {of}", states, "sensor_msgs/msg/JointState", of)
        else:
            joint, field = "", section.text("field")
            try:
                field_steps(field)
            except InvalidInput as error:
                raise section.error(str(error), "field") from None
            topic, type_ = section.absolute_name("topic"), section.interface("type", "msg")
            source = (section.text("name", f"{topic} {field}"), topic, type_, field)
        limit, hard = section.number("limit", positive=True), section.number("hard", None, positive=True)
        if hard is not None and hard < limit:
            raise section.error(f"{hard:g} is below the limit {limit:g}", "hard")
        if source[0] in [signal.name for signal in found]:
            raise section.error(f"{source[0]!r} is there twice")
        silence = section.seconds("silence", SILENCE)
        found.append(SafetySignal(*source, limit, math.inf if hard is None else hard, silence, joint))
    return tuple(found)


def read_episode(section: Section) -> EpisodeConfig:
    started, stopped = section.section("start"), section.section("stop")
    start = None if started is None else _call(started, ("service", "action", "topic"))
    stop = None if stopped is None else _call(stopped, ("service",))
    seconds = section.seconds("seconds", None)
    if (start is None or start.kind == "topic") and seconds is None:
        raise section.error("needs `start` (a service or an action), or `seconds`, or both")
    unstoppable = section.flag("unstoppable")
    cancelled = start is not None and start.kind == "action"
    if stop is None and not cancelled and not unstoppable:
        raise section.error("needs `stop` (a service that ends an episode), or `unstoppable: true` if there is no way")
    if unstoppable and (stop is not None or cancelled):
        raise section.error("there is a way to stop it: leave this out", "unstoppable")
    return EpisodeConfig(
        start,
        seconds,
        stop,
        unstoppable,
        section.seconds("delay", 0.0, positive=False),
        section.seconds("timeout", 60.0),
    )


def read_return(section: Section, has_answer: bool) -> ReturnConfig:
    if section.has("terms") or section.has("definition"):
        best_effort = section.text("reliability", "reliable", choices=("reliable", "best_effort")) == "best_effort"
        settle = section.seconds("settle", 0.1, positive=False)
        if section.has("terms"):
            found = definition(section)
        else:
            found = read_definition(Path(section.file).parent / section.text("definition"))
        return ReturnConfig("", settle=settle, best_effort=best_effort, definition=found)
    field = section.text("field")
    try:
        field_steps(field)
    except InvalidInput as error:
        raise section.error(str(error), "field") from None
    negate = section.flag("negate")
    chosen = [name for name in ("topic", "service", "answer") if section.has(name)]
    if len(chosen) != 1:
        raise section.error(f"needs exactly one of topic, service, answer; there are: {', '.join(chosen) or 'none'}")
    if chosen == ["topic"]:
        return ReturnConfig(
            field,
            section.absolute_name("topic"),
            section.interface("type", "msg"),
            section.text("aggregate", choices=tuple(AGGREGATES)),
            section.seconds("settle", 0.1, positive=False),
            section.text("reliability", "reliable", choices=("reliable", "best_effort")) == "best_effort",
            negate=negate,
        )
    if chosen == ["service"]:
        call = Call(
            "service", section.absolute_name("service"), section.interface("type", "srv"), section.plain("request")
        )
        return ReturnConfig(field, service=call, negate=negate)
    if not section.flag("answer") or not has_answer:
        raise section.error("must be `true`, and needs episode.start (a service or an action)", "answer")
    return ReturnConfig(field, negate=negate)


def _call(section: Section, kinds: tuple[str, ...]) -> Call:
    chosen = [kind for kind in kinds if section.has(kind)]
    if len(chosen) != 1:
        raise section.error(f"needs exactly one of {', '.join(kinds)}; there are: {', '.join(section.names)}")
    kind = chosen[0]
    name = section.absolute_name(kind)
    if kind == "action":
        return Call(kind, name, section.interface("type", "action"), section.plain("goal"))
    if kind == "topic":
        return Call(kind, name, section.interface("type", "msg"), section.plain("message"))
    default = None if section.has("type") else "std_srvs/srv/Trigger"
    return Call(kind, name, default or section.interface("type", "srv"), section.plain("request"))
