"""best.json: the recommended policy of an experiment, with a digest over its content."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from crbo_ros.checks import read_json, whole
from crbo_ros.errors import InvalidInput


def digest(fields: dict[str, Any]) -> str:
    """Of everything but itself; Python writes the shortest exact number, so a changed digit shows."""
    content = {name: value for name, value in fields.items() if name != "digest"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def write(path: Path, fields: dict[str, Any]) -> None:
    """In its place when it is complete. OSError where it cannot be written."""
    with whole(path) as part:
        part.write_text(json.dumps({**fields, "digest": digest(fields)}, indent=1))


def read(path: Path) -> dict[str, Any]:
    """The fields; InvalidInput for a file that is not as it was written."""
    fields = read_json(path)
    if not isinstance(fields, dict):
        raise InvalidInput(f"{path}: holds no object")
    if "digest" not in fields and "experiment" in fields:
        raise InvalidInput(
            f"{path}: has no digest; ./crbo inspect EXPERIMENT --best FILE writes it anew from the store"
        )
    if "digest" in fields and fields["digest"] != digest(fields):
        raise InvalidInput(
            f"{path}: damaged or changed by hand (its digest does not fit its content); ./crbo inspect EXPERIMENT "
            "--best FILE writes it anew from the store. A policy of your own: leave out everything but theta"
        )
    return fields


def complaint(path: Path) -> str:
    try:
        read(path)
    except InvalidInput as error:
        return str(error)
    return ""
