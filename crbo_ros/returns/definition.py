"""A return as a YAML file defines it: signals by topic and field, metrics of them with weights, and hard limits.

    signals:
      setpoint:    {topic: /c/controller_state, type: control_msgs/msg/JointTrajectoryControllerState,
                    field: "reference.positions[0]", unit: rad}
      measurement: {topic: /c/controller_state, type: ..., field: "feedback.positions[0]", unit: rad}
    terms:
      - {metric: itae, of: measurement, against: setpoint, weight: -1.0}
    limits:
      - {metric: max_error, of: measurement, against: setpoint, above: 0.8}

The return is the sum of weight times metric. A limit that is passed ends the episode, which then has no return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.errors import InvalidInput
from crbo_ros.returns import metrics
from crbo_ros.returns.metrics import Array
from crbo_ros.yaml_section import Section, read_yaml

Log = Mapping[str, Sequence[tuple[float, Any]]]  # topic -> (s, message), in order
SUCCEEDED = 4  # action_msgs/msg/GoalStatus


@dataclass(frozen=True)
class Metric:
    """One kind of metric: what it is made from, and its unit ({u}: the signal's)."""

    make: Callable[..., float]
    kind: str  # pair: of, against; signal: of; track: of; path: of, against
    unit: str
    option: str = ""  # a further number that it needs


METRICS = {
    "iae": Metric(metrics.iae, "pair", "{u} s"),
    "ise": Metric(metrics.ise, "pair", "{u}² s"),
    "itae": Metric(metrics.itae, "pair", "{u} s²"),
    "rms_error": Metric(metrics.rms_error, "pair", "{u}"),
    "max_error": Metric(metrics.max_error, "pair", "{u}"),
    "overshoot": Metric(metrics.overshoot, "pair", "of the step"),
    "rise_time": Metric(metrics.rise_time, "pair", "s"),
    "settling_time": Metric(metrics.settling_time, "pair", "s"),
    "effort": Metric(metrics.effort, "signal", "{u}² s"),
    "total_variation": Metric(metrics.total_variation, "signal", "{u}"),
    "saturation": Metric(metrics.saturation, "signal", "of the time", "limit"),
    "mean": Metric(metrics.mean, "signal", "{u}"),
    "min": Metric(metrics.smallest, "signal", "{u}"),
    "max": Metric(metrics.largest, "signal", "{u}"),
    "last": Metric(metrics.last, "signal", "{u}"),
    "duration": Metric(metrics.duration, "signal", "s"),
    "acceleration": Metric(metrics.acceleration, "signal", "{u}²/s"),
    "path_length": Metric(metrics.path_length, "track", "m"),
    "path_ratio": Metric(metrics.path_ratio, "path", "of the plan"),
    "cross_track": Metric(metrics.cross_track, "path", "m"),
    "cross_track_max": Metric(metrics.cross_track_max, "path", "m"),
    "goal_error": Metric(metrics.goal_error, "path", "m"),
}


@dataclass(frozen=True)
class TopicSignal:
    """What a topic says: a number (`field`), a position (Odometry, PoseStamped, ...) or a path (nav_msgs/Path)."""

    name: str
    topic: str
    type: str
    field: str = ""
    unit: str = "1"


@dataclass(frozen=True)
class Term:
    metric: str
    of: str
    against: str = ""
    weight: float = 1.0
    option: float = math.nan
    above: float = math.inf  # of a limit
    below: float = -math.inf

    @property
    def label(self) -> str:
        return f"{self.metric} of {self.of}" + (f" against {self.against}" if self.against else "")


@dataclass(frozen=True)
class ScoredTerm:
    label: str
    value: float
    unit: str
    weight: float

    @property
    def part(self) -> float:
        return self.weight * self.value


@dataclass(frozen=True)
class Scored:
    """A return with what it is made of, and the limits that were passed."""

    value: float
    terms: tuple[ScoredTerm, ...]
    violations: tuple[str, ...]


@dataclass(frozen=True)
class ReturnDefinition:
    signals: tuple[TopicSignal, ...]
    terms: tuple[Term, ...]
    limits: tuple[Term, ...] = ()

    @property
    def topics(self) -> dict[str, str]:
        """topic -> type, of the signals that a term or a limit uses."""
        used = {name for term in (*self.terms, *self.limits) for name in (term.of, term.against)}
        return {signal.topic: signal.type for signal in self.signals if signal.name in used}

    def score(self, log: Log) -> Scored:
        """The return of a record; InvalidInput says what is missing in it."""
        terms = tuple(self._scored(term, log) for term in self.terms)
        return Scored(math.fsum(term.part for term in terms), terms, tuple(self.violations(log)))

    def violations(self, log: Log, *, partial: bool = False) -> list[str]:
        """The limits that are passed. `partial`: the record is not at its end; what cannot be told yet is left out."""
        found = []
        for limit in self.limits:
            try:
                scored = self._scored(limit, log)
            except InvalidInput:
                if partial:
                    continue
                raise
            if scored.value > limit.above or scored.value < limit.below:
                side = f"above {limit.above:g}" if scored.value > limit.above else f"below {limit.below:g}"
                found.append(f"{scored.label} is {scored.value:.4g} {scored.unit}, {side}")
        return found

    def _scored(self, term: Term, log: Log) -> ScoredTerm:
        metric, of = METRICS[term.metric], self._signal(term.of)
        try:
            if metric.kind == "track":
                value = metric.make(track(of, log))
            elif metric.kind == "path":
                value = metric.make(track(of, log), path(self._signal(term.against), log))
            else:
                t, y = series(of, log)
                inputs = [held(*series(self._signal(term.against), log), t)] if metric.kind == "pair" else []
                value = metric.make(t, *inputs, y, *([term.option] if metric.option else []))
        except InvalidInput as error:
            raise InvalidInput(f"{term.label}: {error}") from None
        if not math.isfinite(value):
            raise InvalidInput(f"{term.label}: is {value}")
        return ScoredTerm(term.label, value, metric.unit.format(u=of.unit), term.weight)

    def _signal(self, name: str) -> TopicSignal:
        return next(signal for signal in self.signals if signal.name == name)


# -- from messages to arrays ----------------------------------------------------------------------------


def _messages(signal: TopicSignal, log: Log) -> Sequence[tuple[float, Any]]:
    found = log.get(signal.topic, ())
    if not found:
        raise InvalidInput(f"no message on {signal.topic}")
    return found


def when(received: float, message: Any) -> float:
    """The message's own stamp where it has one (a simulation may be faster than real time), else its arrival."""
    stamp = getattr(getattr(message, "header", None), "stamp", None)
    if stamp is not None and (stamp.sec or stamp.nanosec):
        return float(stamp.sec + 1e-9 * stamp.nanosec)
    return received


def series(signal: TopicSignal, log: Log) -> tuple[Array, Array]:
    """(t, y) of a number, in the order of time."""
    from crbo_ros.returns.fields import number_at

    rows = [(when(t, m), number_at(m, signal.field)) for t, m in _messages(signal, log)]
    rows.sort(key=lambda row: row[0])
    if len(rows) < 2 or rows[-1][0] <= rows[0][0]:
        raise InvalidInput(f"{signal.topic}: fewer than two samples")
    t, y = np.array(rows).T
    return t, y


def held(t: Array, y: Array, at: Array) -> Array:
    """A signal at other times: its newest value then, its first one before that."""
    return np.asarray(y[np.clip(np.searchsorted(t, at, side="right") - 1, 0, len(t) - 1)])


def position(message: Any) -> tuple[float, float]:
    """x and y of an Odometry, a Pose (stamped, with covariance), a TransformStamped, or an action's feedback."""
    for names in (("feedback", "current_pose"), ("pose", "pose"), ("pose",), ("transform",), ()):
        found = message
        for name in names:
            found = getattr(found, name, None)
        while found is not None and hasattr(found, "pose") and not hasattr(found, "position"):
            found = found.pose
        point = getattr(found, "position", None) or getattr(found, "translation", None)
        if point is not None:
            return float(point.x), float(point.y)
    raise InvalidInput(f"{type(message).__name__} has no position")


def track(signal: TopicSignal, log: Log) -> Array:
    """Positions (n, 2)."""
    found = np.array([position(message) for _, message in _messages(signal, log)])
    if len(found) < 2 or not np.all(np.isfinite(found)):
        raise InvalidInput(f"{signal.topic}: fewer than two positions, or one that is not finite")
    return found


def path(signal: TopicSignal, log: Log) -> Array:
    """The first path (m, 2) that a topic gave."""
    for _, message in _messages(signal, log):
        points = [position(pose) for pose in getattr(message, "poses", ())]
        if len(points) > 1:
            return np.array(points)
    raise InvalidInput(f"{signal.topic}: no path with two points")


# -- YAML -----------------------------------------------------------------------------------------------


def read_definition(file: str | Path) -> ReturnDefinition:
    """A file with signals, terms and limits, at its top or below `return`. InvalidInput with line and field."""
    root = read_yaml(file)
    if root.has("return"):
        return definition(root.required("return"))
    found = definition(root)
    root.close()
    return found


def definition(section: Section) -> ReturnDefinition:
    signals = []
    below = section.required("signals")
    for name in below.names:
        at = below.required(name)
        topic, type_ = at.absolute_name("topic"), at.interface("type", "msg")
        signals.append(TopicSignal(name, topic, type_, at.text("field", ""), at.text("unit", "1")))
    known = [signal.name for signal in signals]
    terms = tuple(_term(part, known, signals) for part in section.list("terms"))
    limits = tuple(_term(part, known, signals, limit=True) for part in section.list("limits")) if (
        section.has("limits")) else ()  # fmt: skip
    return ReturnDefinition(tuple(signals), terms, limits)


def _term(section: Section, known: list[str], signals: list[TopicSignal], limit: bool = False) -> Term:
    name = section.text("metric", choices=tuple(METRICS))
    metric = METRICS[name]
    of = section.text("of", choices=tuple(known))
    against = section.text("against", choices=tuple(known)) if metric.kind in ("pair", "path") else ""
    if metric.kind in ("pair", "signal"):
        for word in filter(None, (of, against)):
            if not next(signal for signal in signals if signal.name == word).field:
                raise section.error(f"{name} needs a number: give the signal {word} a field", "of")
    option = section.number(metric.option) if metric.option else math.nan
    if not limit:
        return Term(name, of, against, section.number("weight", 1.0), option)
    above, under = section.number("above", None), section.number("below", None)
    if above is None and under is None:
        raise section.error("needs `above` or `below`")
    return Term(
        name, of, against, 0.0, option, math.inf if above is None else above, -math.inf if under is None else under
    )
