"""What is wrong with a node's parameters: names that it does not have, and sections of files that are for nobody.

ROS itself drops both without a word, and a misspelt threshold is then off. A node only sees what matched its name, so
the files are read here as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any

from crbo_ros.errors import InvalidInput
from crbo_ros.registry import did_you_mean
from crbo_ros.ros.parameters import GROUP, NODES, Parameter
from crbo_ros.yaml_section import load_yaml

OURS = re.compile(r"optimizer|safety_monitor|episode_runner(_\d+)?")
OF_ROS = re.compile(r"use_sim_time|start_type_description_service|qos_overrides\..*")


@dataclass(frozen=True)
class NodeSection:
    """The parameters that a file has for the nodes whose full name matches a pattern."""

    file: str
    pattern: str  # /lab/optimizer, /**/optimizer, /**
    names: frozenset[str]  # first parts: task_options for task_options.env

    @property
    def last(self) -> str:
        return self.pattern.rpartition("/")[2]

    def matches(self, full_name: str) -> bool:
        """As ROS matches: * is one part of a name, ** any number of them."""
        wild = {"**": r"(/\w+)*", "*": r"/\w+"}
        parts = [wild.get(part, "/" + re.escape(part)) for part in self.pattern.strip("/").split("/")]
        return re.fullmatch("".join(parts), full_name) is not None


def files_of(arguments: Sequence[str]) -> list[Path]:
    """The parameter files on a node's command line."""
    return [Path(path) for word, path in pairwise(arguments) if word == "--params-file"]


def sections(file: Path) -> list[NodeSection]:
    """The sections of a parameter file; InvalidInput for one that cannot be read."""

    def walk(pattern: str, content: Any) -> Iterable[NodeSection]:
        for key, value in content.items() if isinstance(content, dict) else ():
            if key == "ros__parameters":
                names = frozenset(str(name).split(".")[0] for name in value or ())
                yield NodeSection(file.name, pattern, names)
            else:
                yield from walk(f"{pattern}/{str(key).strip('/')}", value)

    return list(walk("", read(file)))


def read(file: Path) -> dict[str, Any]:
    """A parameter file as a mapping that is built as ROS wants it; InvalidInput says what is not."""
    found = load_yaml(file)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidInput(f"{file}: expected node names with ros__parameters below them, got {type(found).__name__}")
    for key, value in found.items():
        _check_shape(file, f"{key}", value)
    return found


def _check_shape(file: Path, where: str, content: Any) -> None:
    if content is None:
        raise InvalidInput(f"{file}: {where} is empty; expected ros__parameters below it")
    if not isinstance(content, dict):
        raise InvalidInput(f"{file}: {where} is {content!r:.60}; expected ros__parameters (or a node's name) below it")
    for key, value in content.items():
        if not isinstance(key, str):
            raise InvalidInput(f"{file}: {where}: {key!r:.60} is no name")
        if key != "ros__parameters":
            _check_shape(file, f"{where}.{key}", value)
        elif value is not None and not isinstance(value, dict):
            raise InvalidInput(f"{file}: {where}.ros__parameters is {value!r:.60}; expected NAME: VALUE below it")
        else:
            _check_names(file, f"{where}.ros__parameters", value or {})


def _check_names(file: Path, where: str, content: dict[Any, Any]) -> None:
    for key, value in content.items():
        if not isinstance(key, str) or not key:
            raise InvalidInput(f"{file}: {where}: {key!r:.60} is no name of a parameter")
        if isinstance(value, dict):
            _check_names(file, f"{where}.{key}", value)


def complaint(full_name: str, table: Sequence[Parameter], names: Iterable[str], found: Sequence[NodeSection]) -> str:
    """Why a node must not start with the parameters `names` and the sections of its files, or ""."""
    return unknown(full_name, table, names, found) or for_nobody(full_name, found)


def unknown(full_name: str, table: Sequence[Parameter], names: Iterable[str], found: Sequence[NodeSection]) -> str:
    own = {parameter.name: parameter.default == GROUP for parameter in table}
    for name in names:
        first, dot, _ = name.partition(".")
        if OF_ROS.fullmatch(name) or (first in own and own[first] == bool(dot)):
            continue
        what = f"parameter {name} of {full_name}"
        if own.get(first):
            return f"{what} is a group: give each of its values as a parameter below it, as in {name}.NAME: VALUE"
        others = [node for node, parameters in NODES.items() if first in {p.name for p in parameters}]
        if others and any(section.last in ("*", "**") and first in section.names for section in found):
            continue  # written for all nodes, and one of them has it
        hint = f"; it is one of {', '.join(others)}" if others and first not in own else did_you_mean(first, own)
        return f"{what} does not exist{hint}"
    return ""


def for_nobody(full_name: str, found: Sequence[NodeSection]) -> str:
    namespace = full_name.rpartition("/")[0]
    for section in found:
        ours = OURS.fullmatch(section.last)
        if section.matches(full_name) or (ours and section.matches(f"{namespace}/{section.last}")):
            continue
        what = f"{section.file}: the section {section.pattern} is for no node of this graph (in {namespace or '/'})"
        near = [section.last] if ours else get_close_matches(section.last, NODES, 1)
        if near:
            return f"{what}; write /**/{near[0]}, for any namespace"
        return f"{what}; its nodes are {', '.join(NODES)}, and /** is for all of them"
    return ""
