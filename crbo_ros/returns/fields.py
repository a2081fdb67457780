"""A number somewhere in a message of rclpy or of a bag: `pose.covariance[7]`, `ranges[min]`, `data`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from crbo_ros.errors import InvalidInput

STEP = re.compile(r"([A-Za-z_]\w*)((?:\[(?:-?\d+|min|max|mean|norm)\])*)")
OVER: dict[str, Callable[[list[float]], float]] = {
    "min": min,
    "max": max,
    "mean": lambda v: math.fsum(v) / len(v),
    "norm": lambda v: math.sqrt(math.fsum(x * x for x in v)),
}


def field_steps(path: str) -> list[str | int]:
    """`pose.covariance[7]` -> ["pose", "covariance", 7]; `ranges[min]` -> ["ranges", "[min]"]."""
    steps: list[str | int] = []
    for part in path.split("."):
        match = STEP.fullmatch(part)
        if not match:
            raise InvalidInput(f"{path!r} is not a field such as data, pose.position.x, data[2] or ranges[min]")
        steps.append(match[1])
        steps += [int(w) if w.lstrip("-").isdigit() else f"[{w}]" for w in re.findall(r"\[([^\]]+)\]", match[2])]
    return steps


def number_at(message: Any, path: str) -> float:
    """The number at a field; a text is read as a number (a Trigger's message). InvalidInput says what is wrong.

    Over a list (a laser's ranges), entries that are not finite are left out: nothing was seen there.
    """
    found = message
    for step in field_steps(path):
        try:
            if isinstance(step, str) and step.startswith("["):
                finite = [float(v) for v in found if math.isfinite(v)]
                if not finite:
                    raise InvalidInput(f"field {path!r}: no finite entry")
                found = OVER[step[1:-1]](finite)
            else:
                found = found[step] if isinstance(step, int) else getattr(found, step)
        except (AttributeError, IndexError, TypeError):
            there = f"; it has {', '.join(fields_of(found))}" if isinstance(step, str) and fields_of(found) else ""
            raise InvalidInput(f"field {path!r}: {type(found).__name__} has no {step!r}{there}") from None
    if hasattr(found, "sec") and hasattr(found, "nanosec"):  # a Time or a Duration, in s
        found = found.sec + 1e-9 * found.nanosec
    try:
        value = float(found)
    except (TypeError, ValueError):
        raise InvalidInput(f"field {path!r}: {found!r} is not a number") from None
    if not math.isfinite(value):
        raise InvalidInput(f"field {path!r}: is {value}")
    return value


def fields_of(message: Any) -> list[str]:
    """The names of a message's fields, of rclpy or of a bag."""
    names = getattr(message, "__slots__", None) or getattr(message, "__dict__", {})
    return [name.lstrip("_") for name in names if name.lstrip("_") != "check_fields"]
