"""What is deployed of an experiment, and what was there before: deployed.json, former.json, tuned.yaml, tuned.diff."""

from __future__ import annotations

import getpass
import hashlib
import json
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crbo_ros import checks
from crbo_ros.errors import InvalidInput
from crbo_ros.view.parameters import difference, parameter_text, write_text

Values = list[tuple[str, str, Any]]  # (node, name, value)


def former_values(folder: Path) -> Values:
    """The parameters as they were before the experiment changed them; none where nobody wrote them down."""
    file = folder / "former.json"
    if not file.is_file():
        return []
    try:
        return [(str(node), str(name), value) for node, name, value in json.loads(file.read_text())]
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{file} is damaged: {error}") from None


def write_parameters(folder: Path, config: Any, old: Iterable[float], new: Iterable[float]) -> tuple[Path, Path]:
    """tuned.yaml with the new values, and tuned.diff against what was there (else the old ones)."""

    def text(theta: Iterable[float]) -> str:
        values = [(p.node, p.name, p.typed(float(v))) for p, v in zip(config.parameters, theta, strict=True)]
        return parameter_text([*values, *((p.node, p.name, p.typed(p.start)) for p in config.fixed)])

    former = former_values(folder)
    before = parameter_text(former) if former else text(old)
    write_text(folder / "former.yaml", before)
    after = text(new)
    file = write_text(folder / "tuned.yaml", after)
    return file, write_text(folder / "tuned.diff", difference(before, after, "former.yaml", "tuned.yaml"))


def sign_off(by: str = "") -> dict[str, str]:
    """Who decided, where and when."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"by": checks.signature(by, "--by") or getpass.getuser(), "host": platform.node(), "at": at}


def sealed(record: dict[str, Any]) -> dict[str, Any]:
    """With the SHA-256 of everything else in it."""
    text = json.dumps(record, sort_keys=True)
    return {**record, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def intact(record: dict[str, Any]) -> bool:
    """Whether a record is as it was sealed."""
    rest = {key: value for key, value in record.items() if key != "sha256"}
    return sealed(rest)["sha256"] == record.get("sha256")


def deployed(folder: Path) -> list[dict[str, Any]]:
    """What was deployed, oldest first; the last is what is deployed now."""
    file = folder / "deployed.json"
    if not file.is_file():
        return []
    try:
        found = json.loads(file.read_text())
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            raise ValueError("no list of records")
    except ValueError as error:
        raise InvalidInput(f"{file} is damaged: {error}") from None
    return found


def deploy(folder: Path, what: str, theta: Iterable[float], **about: Any) -> None:
    """Write down what is deployed from now on."""
    record = sealed({"policy": what, "theta": [float(v) for v in theta], **about})
    write_text(folder / "deployed.json", json.dumps([*deployed(folder), record], indent=1))
