"""The YAML file of the tuning task (docs/INTEGRATION.md, examples/pid.yaml) as values, checked. No ROS."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crbo_ros.core.space import Space
from crbo_ros.errors import InvalidInput
from crbo_ros.yaml_section import Missing, Section, read_yaml

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": math.fsum,
    "mean": lambda values: math.fsum(values) / len(values),
    "min": min,
    "max": max,
    "last": lambda values: values[-1],
}
INTERFACE = re.compile(r"[A-Za-z]\w*/(msg|srv|action)/[A-Za-z]\w*")
STEP = re.compile(r"([A-Za-z_]\w*)((?:\[-?\d+\])*)")


@dataclass(frozen=True)
class Tuned:
    """One parameter of a node."""

    node: str
    name: str
    lower: float
    upper: float
    start: float
    log: bool = False

    @property
    def label(self) -> str:
        return f"{self.node} {self.name}"


@dataclass(frozen=True)
class Call:
    """A service or an action, its type, and what is sent to it."""

    kind: str  # "service" or "action"
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
        answers = 0 if self.start is None else 2 if self.start.kind == "action" else 1  # acceptance, and result
        return self.delay + answers * self.timeout + (self.seconds or 0.0)


@dataclass(frozen=True)
class ReturnConfig:
    """Where the return comes from: a topic's field during the episode, the start's answer, or another service."""

    field: str
    topic: str = ""
    type: str = ""
    aggregate: str = "last"
    settle: float = 0.1  # s for which messages are still recorded after the end
    best_effort: bool = False
    service: Call | None = None
    negate: bool = False

    def longest(self, timeout: float) -> float:
        """s after an episode's end within which the return is there, or has failed."""
        return self.settle + timeout if self.topic else timeout if self.service else 0.0

    def value(self, samples: Sequence[float]) -> float:
        value = AGGREGATES[self.aggregate](samples)
        return -value if self.negate else value


@dataclass(frozen=True)
class TuningConfig:
    parameters: tuple[Tuned, ...]
    episode: EpisodeConfig
    returns: ReturnConfig
    gamma: float = 0.5
    rest: str = "best"  # the values between episodes and after a stop: best known so far, or start

    @property
    def space(self) -> Space:
        return Space(
            [p.lower for p in self.parameters],
            [p.upper for p in self.parameters],
            log=[p.log for p in self.parameters],
            names=[p.label for p in self.parameters],
        )


def read_config(path: str | Path) -> TuningConfig:
    """The configuration, or InvalidInput with file, line and field."""
    root = read_yaml(path)
    sections = root.list("parameters")
    parameters = tuple(_tuned(section) for section in sections)
    labels = [parameter.label for parameter in parameters]
    for i, section in enumerate(sections):
        if labels[i] in labels[:i]:
            raise section.error(f"{labels[i]} is listed twice", "name")
    episode = read_episode(root.required("episode"))
    returns = read_return(root.required("return"), episode.start is not None)
    config = TuningConfig(
        parameters, episode, returns, read_gamma(root), root.text("rest", "best", choices=("best", "start"))
    )
    root.close()
    return config


def read_gamma(root: Section) -> float:
    gamma = root.number("gamma", 0.5, positive=True)
    if gamma > 1.0:
        raise root.error(f"{gamma:g} is outside (0, 1]", "gamma")
    return gamma


def _tuned(section: Section) -> Tuned:
    lower, upper, start = (section.number(name) for name in ("lower", "upper", "start"))
    log = section.text("scale", "linear", choices=("linear", "log")) == "log"
    if lower >= upper:
        raise section.error(f"{lower:g} is not below upper ({upper:g})", "lower")
    if not lower <= start <= upper:
        raise section.error(f"{start:g} is outside [{lower:g}, {upper:g}]", "start")
    if log and lower <= 0.0:
        raise section.error(f"{lower:g}: a log scale needs bounds above 0", "lower")
    return Tuned(absolute_name(section, "node"), section.text("name"), lower, upper, start, log)


def read_episode(section: Section) -> EpisodeConfig:
    started, stopped = section.section("start"), section.section("stop")
    start = None if started is None else _call(started, ("service", "action"))
    stop = None if stopped is None else _call(stopped, ("service",))
    seconds = section.number("seconds", None, positive=True)
    if start is None and seconds is None:
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
        section.number("delay", 0.0, minimum=0.0),
        section.number("timeout", 60.0, positive=True),
    )


def read_return(section: Section, has_answer: bool) -> ReturnConfig:
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
            absolute_name(section, "topic"),
            _interface(section, "type", "msg"),
            section.text("aggregate", choices=tuple(AGGREGATES)),
            section.number("settle", 0.1, minimum=0.0),
            section.text("reliability", "reliable", choices=("reliable", "best_effort")) == "best_effort",
            negate=negate,
        )
    if chosen == ["service"]:
        call = Call(
            "service", absolute_name(section, "service"), _interface(section, "type", "srv"), section.plain("request")
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
    name = absolute_name(section, kind)
    if kind == "action":
        return Call(kind, name, _interface(section, "type", "action"), section.plain("goal"))
    default = None if section.has("type") else "std_srvs/srv/Trigger"
    return Call(kind, name, default or _interface(section, "type", "srv"), section.plain("request"))


def absolute_name(section: Section, name: str, default: Any = Missing) -> str:
    """A ROS name that does not depend on a namespace: the runner has one of its own."""
    text = section.text(name, default)
    if text is default:
        return text
    if not re.fullmatch(r"(/[A-Za-z_]\w*)+", text):
        raise section.error(f"{text!r} is not an absolute ROS name, such as /arm/controller", name)
    return text


def _interface(section: Section, name: str, kind: str) -> str:
    text = section.text(name)
    match = INTERFACE.fullmatch(text)
    if not match or match[1] != kind:
        example = {"msg": "std_msgs/msg/Float64", "srv": "std_srvs/srv/Trigger", "action": "nav2_msgs/action/Wait"}
        raise section.error(f"{text!r} is not a type such as {example[kind]}", name)
    return text


# -- a field of a message ------------------------------------------------------------------------------


def field_steps(path: str) -> list[str | int]:
    """`pose.covariance[7]` -> ["pose", "covariance", 7]."""
    steps: list[str | int] = []
    for part in path.split("."):
        match = STEP.fullmatch(part)
        if not match:
            raise InvalidInput(f"{path!r} is not a field such as data, pose.position.x or data[2]")
        steps.append(match[1])
        steps += [int(number) for number in re.findall(r"-?\d+", match[2])]
    return steps


def field_value(message: Any, path: str) -> float:
    """The number at a field; a text is read as a number (a Trigger's message). InvalidInput says what is wrong."""
    found = message
    for step in field_steps(path):
        try:
            found = found[step] if isinstance(step, int) else getattr(found, step)
        except (AttributeError, IndexError, TypeError):
            raise InvalidInput(f"field {path!r}: {type(found).__name__} has no {step!r}") from None
    try:
        value = float(found)
    except (TypeError, ValueError):
        raise InvalidInput(f"field {path!r}: {found!r} is not a number") from None
    if not math.isfinite(value):
        raise InvalidInput(f"field {path!r}: is {value}")
    return value
