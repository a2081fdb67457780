"""Values <-> messages: two functions. Fields have the same names in both; words stand for the constants."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from builtin_interfaces.msg import Duration, Time

from crbo_ros import msg  # type: ignore[attr-defined]  # built from msg/
from crbo_ros.protocol.chain import Head
from crbo_ros.protocol.records import CODES, OUTCOMES, VERDICTS, ContractState, Episode, Offer, Verdict, from_fields

Value = TypeVar("Value", Episode, Offer, Verdict, ContractState)
TYPES: dict[type, Any] = {
    Episode: msg.EpisodeReturn, Offer: msg.Proposal, Verdict: msg.SafetyVerdict, ContractState: msg.SafetyContract,
}  # fmt: skip
for _codes, _type in ((OUTCOMES, msg.EpisodeReturn), (VERDICTS, msg.SafetyVerdict)):
    assert all(getattr(_type, word.upper()) == code for word, code in _codes.items())


def to_time(seconds: float) -> Time:
    whole = math.floor(seconds)
    return Time(sec=int(whole), nanosec=min(int((seconds - whole) * 1e9), 999_999_999))


def to_seconds(stamp: Time | Duration) -> float:
    return float(stamp.sec + 1e-9 * stamp.nanosec)


def clip(text: str, declared: str) -> str:
    """A text that fits its field (declared as string<1024>, say); only reasons, for people, are ever that long."""
    limit = int(declared[7:-1]) if declared.startswith("string<") else len(text.encode())
    data = text.encode(errors="replace")
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "..."


def fit(message: Any) -> Any:
    """The message, with every text cut to what its field can hold."""
    kind: Any = type(message)
    for name, declared in _bounded(kind):
        setattr(message, name, clip(getattr(message, name), declared))
    return message


@cache
def _bounded(kind: Any) -> tuple[tuple[str, str], ...]:
    """(name, declaration) of the texts of a message that have a longest length."""
    declared = kind.get_fields_and_field_types().items()
    return tuple((name, text) for name, text in declared if text.startswith("string<"))


def to_heads(heads: Iterable[Head]) -> list[Any]:
    """How far stores are, for a request or an answer."""
    return [msg.Head(store=head.store, count=head.count, digest=head.digest) for head in heads]


def from_heads(heads: Iterable[Any]) -> list[Head]:
    return [Head(head.store, head.count, head.digest) for head in islice(heads, 8)]


def to_message(value: Episode | Offer | Verdict | ContractState) -> Any:
    """The message that carries this value."""
    message = TYPES[type(value)]()
    for name, declared in message.get_fields_and_field_types().items():
        field = getattr(value, name)
        if name in CODES:
            field = CODES[name][field]
        elif declared == "builtin_interfaces/Time":
            field = to_time(field)
        elif isinstance(field, np.ndarray):
            field = field.tolist()
        elif isinstance(field, tuple):
            field = list(field)
        elif isinstance(field, str):
            field = clip(field, declared)
        setattr(message, name, field)
    return message


def from_message(message: Any, kind: type[Value]) -> Value:
    """The value in a message, whatever it holds: whoever takes it in checks it."""
    return from_fields(message, kind)
