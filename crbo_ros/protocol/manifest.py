"""manifest.json and inputs/: what an experiment's stores do not know, so that its folder alone is the whole record.

Who ran what, how it was started, with which software, under which thresholds and who changed them; and a copy of every
file that the task read. The folder can be moved anywhere: report, export, rollout, resume and accept need nothing else.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from crbo_ros import __version__, checks
from crbo_ros.core.problem import differences, key_of
from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.file_lock import HeldError, take_lock
from crbo_ros.protocol import best_file
from crbo_ros.registry import load, task_problem

FILE, INPUTS = "manifest.json", "inputs"
FORMAT = 1
PACKAGES = "numpy scipy numba matplotlib jinja2 PyYAML gymnasium pybullet torch gpytorch rclpy".split()
ELSEWHERE = ("experiment", "experiments_dir", "params_file", "task_options", "attach")  # arguments that a move changes


def who() -> str:
    """The user and the machine."""
    try:
        return f"{getpass.getuser()} on {platform.node()}"
    except (KeyError, OSError):  # a user without a name, in a container
        return f"user {os.getuid()} on {platform.node()}"


def robot_of(task: Any = None) -> str:
    """Which robot a task moves: its serial number or name, where its plant knows one, and the host that it hangs on."""
    serial = str(getattr(getattr(task, "plant", None), "serial", "") or "")
    return f"{serial} on {platform.node()}" if serial else f"host {platform.node()}"


def software() -> dict[str, str]:
    """Versions of everything that can change a run."""
    found = {"crbo_ros": __version__, "commit": _commit(), "python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    found |= {"ros": os.environ.get("ROS_DISTRO", ""), "rmw": os.environ.get("RMW_IMPLEMENTATION", "")}
    found["platform"] = platform.platform()
    return {name: text for name, text in found.items() if text}


def _commit() -> str:
    """Of the sources, where they are a repository; with a + where they were changed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return ""
    line = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(line, capture_output=True, text=True, timeout=5.0, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


# -- writing ------------------------------------------------------------------------------------------------------


def begin(
    folder: Path,
    task: str,
    plant: str,
    options: Mapping[str, Any],
    arguments: Mapping[str, str] | None = None,
    params_file: Path | None = None,
) -> None:
    """Write both, or bring them up to date at another start. StoreError if the folder holds another problem."""
    given = {**{name: str(path) for name, path in load("tasks", task).own_files().items()}, **options}
    with checks.files_read() as read:
        problem = task_problem(task, plant or None, **given)
    known = read_manifest(folder) if (folder / FILE).is_file() else {}
    if known and known["problem"] != problem.identity:
        others = "; ".join(differences(key_of(known["problem"]), problem.key))
        raise StoreError(f"{folder}: holds another experiment ({others}); choose another experiment name")
    folder.mkdir(parents=True, exist_ok=True)
    named = {name: Path(v).resolve() for name, v in given.items() if isinstance(v, (str, Path)) and _is_file(v)}
    places = _places(folder.resolve() / INPUTS, named, {path.resolve() for path in read}, params_file)
    for source, place in places.items():
        if source != place:
            _copy(source, place)
    relative = {source: place.relative_to(folder.resolve()).as_posix() for source, place in places.items()}
    fields: dict[str, Any] = {
        "task": task,
        "plant": problem.plant,
        "problem": problem.identity,
        "task_options": {n: relative[named[n]] if n in named else v for n, v in given.items()},
        "inputs": {relative[source]: sha256(place) for source, place in sorted(places.items())},
    }
    if params_file is not None:
        fields["params_file"] = relative[params_file.resolve()]
    if arguments is not None:
        fields["arguments"] = {name: text for name, text in arguments.items() if name not in ELSEWHERE}
    _update(folder, fields, starts=[{"at": stamp(), "by": who(), "software": software()}] if arguments else [])


def _is_file(value: str | Path) -> bool:
    try:
        return Path(value).is_file()
    except (OSError, ValueError):
        return False


def _places(inputs: Path, named: dict[str, Path], read: set[Path], params_file: Path | None) -> dict[Path, Path]:
    """Where the copies lie: a file that another one refers to keeps its place relative to that one."""
    files = {*named.values(), *read}
    alone = len(files) <= len(set(named.values()))
    root = Path(os.path.commonpath([path.parent for path in files])) if files and not alone else None
    places: dict[Path, Path] = {}
    for source in sorted(files):
        if source.is_relative_to(inputs):
            places[source] = source
            continue
        place = inputs / (source.relative_to(root) if root else source.name)
        if place in places.values():
            place = inputs / next(name for name, path in named.items() if path == source) / source.name
        places[source] = place
    if params_file is not None:
        source = params_file.resolve()
        places[source] = source if source.is_relative_to(inputs) else inputs / "parameters" / source.name
    return places


def _copy(source: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with checks.whole(place) as part:
        shutil.copyfile(source, part)


def opened(folder: Path, *, uid: str, method: str, seed: int, settings: Mapping[str, Any]) -> None:
    """The optimizer has made the experiment, or carries on with it."""
    _update(folder, {"uid": uid, "method": method, "seed": seed, "settings": dict(settings)})


def thresholds(folder: Path, by: str, values: Mapping[str, Any]) -> None:
    """These hold from now on. What is not finite (no threshold) is written as text."""
    plain = {n: v if not isinstance(v, float) or abs(v) < float("inf") else str(v) for n, v in values.items()}
    known = effective(read_manifest(folder)) if (folder / FILE).is_file() else {}
    if changed := {name: value for name, value in plain.items() if known.get(name) != value}:
        _update(folder, {}, thresholds=[{"at": stamp(), "by": by, "values": changed}])


def robot(folder: Path, runner: str, which: str) -> None:
    """A runner moves this robot; written once for each."""
    known = read_manifest(folder).get("robots", []) if (folder / FILE).is_file() else []
    if (runner, which) not in [(entry["runner"], entry["robot"]) for entry in known]:
        _update(folder, {}, robots=[{"at": stamp(), "runner": runner, "robot": which}])


def command(folder: Path, by: str, words: str) -> None:
    """Somebody told the optimizer this."""
    _update(folder, {}, commands=[{"at": stamp(), "by": by, "command": words}])


def _update(folder: Path, fields: dict[str, Any], **more: list[Any]) -> None:
    """Fields are replaced, `more` is added at the end of lists. By one process at a time, and whole or not at all."""
    try:
        lock = take_lock(folder / "manifest.lock", os.getpid(), 5.0)
    except HeldError as error:
        raise StoreError(f"{folder / FILE}: process {error.holder} is writing it") from None
    try:
        known = read_manifest(folder) if (folder / FILE).is_file() else {}
        known.pop("digest", None)
        for name, entries in more.items():
            known[name] = [*known.get(name, []), *entries]
        best_file.write(folder / FILE, {"format": FORMAT, **known, **fields})
    finally:
        os.close(lock)


# -- reading ------------------------------------------------------------------------------------------------------


def read_manifest(folder: Path) -> dict[str, Any]:
    """What was written; InvalidInput for a file that is not there, damaged, or of a later version."""
    path = folder / FILE
    fields = checks.read_json(path)
    if not isinstance(fields, dict) or fields.get("digest") != best_file.digest(fields):
        raise InvalidInput(f"{path}: damaged or changed by hand (its digest does not fit its content)")
    if fields.get("format") != FORMAT:
        software = (fields.get("starts") or [{}])[-1].get("software", {}).get("crbo_ros", "unknown")
        raise InvalidInput(
            f"{path}: has format {fields.get('format')}, this is crbo_ros {__version__}, which reads {FORMAT}; it was "
            f"written by crbo_ros {software}: use that version for it. The stores beside it can still be inspected"
        )
    return fields


def effective(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The thresholds in effect when the record was last written."""
    found: dict[str, Any] = {}
    for entry in fields.get("thresholds", []):
        found |= entry["values"]
    return found


def recorded_options(folder: Path) -> dict[str, Any]:
    """The task's options, with the record's own copies of the files."""
    fields = read_manifest(folder)
    own = fields["inputs"]
    return {n: str(folder / v) if isinstance(v, str) and v in own else v for n, v in fields["task_options"].items()}


def recorded_plan(folder: Path) -> tuple[str, dict[str, str]]:
    """(task, arguments) that carry on with the experiment where its folder is now, from its own copies."""
    fields = read_manifest(folder)
    if "arguments" not in fields:
        raise InvalidInput(f"{folder / FILE}: its nodes were not started by `crbo run` or a launch file of ours")
    arguments = {str(name): str(text) for name, text in fields["arguments"].items()}
    arguments |= {"experiment": folder.name, "experiments_dir": str(folder.parent)}
    if options := recorded_options(folder):
        arguments["task_options"] = json.dumps(options)
    if "params_file" in fields:
        arguments["params_file"] = str(folder / fields["params_file"])
    return str(fields["task"]), arguments


def complaints(folder: Path) -> list[str]:
    """What is wrong with the manifest and the copies beside it."""
    try:
        fields = read_manifest(folder)
    except InvalidInput as error:
        return [str(error)]
    found = []
    for name, wanted in fields["inputs"].items():
        path = folder / name
        if not path.is_file():
            found.append(f"{path}: is not there")
        elif sha256(path) != wanted:
            found.append(f"{path}: is not as it was copied (its SHA-256 does not fit)")
    return found
