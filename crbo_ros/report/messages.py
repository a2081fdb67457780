"""A run as the messages that were on the topics, in the order of their time: (topic, type, time, fields).

Fields are plain values by the names of msg/*.msg, so this needs no ROS; the definitions are read from these files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from crbo_ros.errors import InvalidInput
from crbo_ros.view.run_view import RunView
from crbo_ros.view.states import states
from crbo_ros.view.values import CODES, TOPICS

BUILTIN = {
    "builtin_interfaces/Time": "int32 sec\nuint32 nanosec\n",
    "builtin_interfaces/Duration": "int32 sec\nuint32 nanosec\n",
}
RECORDED = ("proposal", "safety_verdict", "episode_return", "optimizer_state")  # topics whose messages are in a store

Message = tuple[str, str, float, dict[str, Any]]  # topic, type, seconds, fields


def definition(name: str) -> str:
    """The full text of msg/<name>.msg with what it refers to, as MCAP's schema encoding "ros2msg" wants it."""
    places = [Path(__file__).parents[2] / "msg"]
    places += [Path(p) / "share/crbo_ros/msg" for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    for place in places:
        if (place / f"{name}.msg").is_file():
            text = (place / f"{name}.msg").read_text()
            used = [builtin for builtin in BUILTIN if builtin in text]
            return text + "".join(f"\n{'=' * 80}\nMSG: {builtin}\n{BUILTIN[builtin]}" for builtin in used)
    raise InvalidInput(
        f"{name}.msg was found neither beside the sources nor in an installed crbo_ros (source its setup)"
    )


def messages(run: RunView) -> Iterator[Message]:
    """What was published, from the store, in the order of time."""
    values: list[Any] = []
    for row in run.rows:
        values += [value for value in (row.proposal, *row.verdicts, row.episode) if value is not None]
    values += states(run)
    topics = {kind: topic for topic, (_, kind) in TOPICS.items()}
    for value in sorted(values, key=lambda value: value.stamp):
        topic = topics[type(value)]
        yield topic, TOPICS[topic][0], value.stamp, plain(value)


def plain(value: Any) -> dict[str, Any]:
    """A value as the fields of its message."""
    found: dict[str, Any] = {}
    for name in (field.name for field in fields(value)):
        content = getattr(value, name)
        if codes := CODES.get(type(value), {}).get(name):
            content = codes.get(content, 0)
        elif name == "stamp":
            content = stamp(content)
        content = list(content) if isinstance(content, tuple) else content
        found[name] = content.tolist() if isinstance(content, np.ndarray) else content
        if isinstance(content, tuple):
            found[name] = list(content)
    return found


def stamp(seconds: float) -> dict[str, int]:
    """Seconds as builtin_interfaces/Time."""
    whole = math.floor(seconds)
    return {"sec": int(whole), "nanosec": min(int((seconds - whole) * 1e9), 999_999_999)}
