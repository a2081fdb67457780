"""The rooms and which may know of which, read off the imports (DESIGN: mathematics, promises, translations)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "crbo_ros"
SHARED = {
    "bag",
    "checks",
    "clock",
    "errors",
    "home",
    "numbers",
    "registry",
    "signals",
    "file_lock",
    "yaml_section",
    "compiled",
    "msg",
    "srv",
    "action",
    "",
}  # known to every room
# room -> the rooms that it may import from, besides itself and what is shared
MAY_KNOW: dict[str, set[str]] = {
    "core": set(),
    "methods": {"core"},
    "protocol": {"core"},
    "ros": {"core", "protocol"},
    "policies": {"core"},
    "returns": {"core"},
    "plants": {"core", "policies", "ros", "returns"},
    "tasks": {"core", "policies", "plants", "ros"},
    "nodes": {"core", "protocol", "ros", "policies", "tasks", "plants"},
    "bringup": {"core", "protocol", "ros", "nodes", "tasks"},
    "client": {"core", "protocol", "ros"},
    "view": {"core", "protocol", "ros"},
    "report": {"core", "protocol", "view", "tasks"},
    "rqt": {"core", "protocol", "ros", "view"},
    "training": {"core", "policies", "plants", "tasks"},
    "testing": {"core", "policies", "plants", "tasks", "methods", "protocol"},
    "bench": {"core", "protocol", "ros", "policies", "plants", "tasks", "methods", "nodes", "bringup", "view", "report",
              "rqt", "client", "training", "returns", "cli"},
    "commands": {"core", "returns", "protocol", "ros", "policies", "plants", "tasks", "methods", "nodes", "bringup",
                 "view", "report", "rqt", "training", "bench", "cli"},
    "cli": set(),
}  # fmt: skip
FORBIDDEN_IN_CORE = {"os", "io", "pathlib", "time", "datetime", "threading", "queue", "sqlite3", "subprocess", "socket",
                     "random", "rclpy", "multiprocessing", "tempfile"}  # fmt: skip


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem.replace("__init__", "")


def imported(path: Path) -> Iterator[tuple[str, int]]:
    """Modules that a file imports, wherever in it, except for types only."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_arrows_go_one_way(path: Path) -> None:
    own = room(path)
    wrong = []
    for name, line in imported(path):
        if name.startswith("crbo_ros."):
            other = name.split(".")[1]
            known = SHARED | MAY_KNOW.get(own, set()) | {own}
            if own not in SHARED and other not in known and (other in MAY_KNOW or (PACKAGE / other).exists()):
                wrong.append(f"{path.name}:{line} imports {name}")
    assert not wrong, f"{own} may not know of these: {wrong}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").glob("*.py")), ids=lambda path: path.name)
def test_core_is_mathematics_alone(path: Path) -> None:
    """No file, no clock, no thread, no ROS."""
    found = [(name, line) for name, line in imported(path) if name.split(".")[0] in FORBIDDEN_IN_CORE]
    assert not found
    calls = [node.func.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
             and isinstance(node.func, ast.Name)]  # fmt: skip
    assert "open" not in calls


def test_no_import_cycle() -> None:
    """At import time, between modules."""
    graph: dict[str, set[str]] = {}
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in modules()}
    for name, path in names.items():
        tree = ast.parse(path.read_text())
        top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        graph[name] = set()
        for node in top:
            if isinstance(node, ast.ImportFrom) and node.module:
                graph[name] |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)} & set(names)
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"import cycle: {' -> '.join([*trail[trail.index(name) :], name])}"
        if name not in done:
            for other in graph[name]:
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())
