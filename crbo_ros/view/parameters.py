"""Named parameters for people and for ROS: what changed, a parameter file, and its difference from another one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from crbo_ros.checks import whole
from crbo_ros.numbers import number


def changes(names: Sequence[str], old: Iterable[float], new: Iterable[float]) -> list[str]:
    """`name = new (was old)`, one line each, in columns."""
    width = max(map(len, names), default=0)
    return [
        f"{name:{width}} = {number(b)}" + (f"  (was {number(a)})" if a != b else "  (as it was)")
        for name, a, b in zip(names, old, new, strict=True)
    ]


def short(names: Sequence[str], theta: Iterable[float], most: int = 8) -> str:
    """`kp = 2.1, ki = 0.3`: the first ones, without their nodes."""
    shown = [f"{name.rpartition(' ')[2]} = {number(value)}" for name, value in zip(names, theta, strict=False)]
    return ", ".join(shown[:most]) + (", ..." if len(shown) > most else "")


def parameter_text(parameters: Sequence[tuple[str, str, Any]]) -> str:
    """A ROS parameter file for (node, name, value), ready for --params-file."""
    import yaml

    nodes: dict[str, Any] = {}
    for node, name, value in parameters:
        inner = nodes.setdefault(node, {"ros__parameters": {}})["ros__parameters"]
        *above, last = name.split(".")
        for part in above:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return str(yaml.safe_dump(nodes, sort_keys=False))


def difference(old: str, new: str, before: str, after: str) -> str:
    """The unified diff of two parameter files."""
    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), before, after)
    return "".join(lines)


def write_text(path: Path, text: str) -> Path:
    """Written whole or not at all."""
    with whole(path) as part:
        part.write_text(text)
    return path
