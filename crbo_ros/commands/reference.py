"""Write docs/API.md: messages, services, topics, parameters and launch arguments, as tables, from their declarations;
and the layouts for PlotJuggler and Foxglove in config/, from the table of topics.

    ./crbo reference            write them
    ./crbo reference --check    exit code 1 if one of them is not up to date (CI)

Read from msg/*.msg, srv/*.srv, ros/parameters.py, bringup/graph.py and, for the topics and services of each node, from
the create_publisher, create_subscription, create_service and create_client calls in its source. Needs no ROS.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crbo_ros.bringup import graph
from crbo_ros.errors import InvalidInput
from crbo_ros.ros import parameters
from crbo_ros.view.layouts import layouts

NODES = (("optimizer", "OPTIMIZER"), ("safety_monitor", "MONITOR"), ("episode_runner", "RUNNER"))
SOURCES = Path(__file__).parents[1] / "nodes"
HEADER = """\
# API reference

Written by `./crbo reference` from the declarations; do not edit. How the parts play together: PROTOCOL.md. How to plug
in your own: INTEGRATION.md. All names are relative: remap them, or give the graph a namespace.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="only say whether they are up to date")


def run(args: argparse.Namespace) -> int:
    root = Path(os.environ.get("CRBO_ROOT", Path(__file__).parents[2]))
    if not (root / "msg").is_dir():
        raise InvalidInput(f"{root}: no msg folder; run this in a clone")
    texts = {root / "docs" / "API.md": reference(root)}
    texts |= {root / "config" / name: text for name, text in layouts().items()}
    old = [file for file, text in texts.items() if not file.is_file() or file.read_text() != text]
    for file in old:
        if args.check:
            print(f"{file.relative_to(root)} is not up to date; run ./crbo reference", file=sys.stderr)
        else:
            file.write_text(texts[file])
            print(f"written: {file}")
    if not old:
        print("docs/API.md and the layouts in config/ are up to date")
    return 1 if old and args.check else 0


def reference(root: Path) -> str:
    """The whole page."""
    parts = [HEADER, topics(), services(), all_parameters(), arguments(), interfaces(root)]
    return "\n".join(parts)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


# -- topics and services, from the nodes' sources ------------------------------------------------------


def calls(node: str) -> Iterator[tuple[str, str, str, str]]:
    """(verb, type, name, qos) for each create_* call of a node and of what all nodes share."""
    shared = ["../ros/runner_link.py"] if node == "episode_runner" else []  # the loop's link, the client's as well
    for file in (f"{node}.py", "base.py", *shared):
        tree = ast.parse((SOURCES / file).read_text())
        loops = {
            id(inner): loop
            for loop in ast.walk(tree)
            if isinstance(loop, ast.For)
            for inner in ast.walk(loop)
            if isinstance(inner, ast.Call)
        }
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            verb = call.func.attr
            if verb not in ("create_publisher", "create_subscription", "create_service", "create_client"):
                continue
            qos = ast.unparse(call.args[-1]) if verb in ("create_publisher", "create_subscription") else ""
            for name in names(call.args[1], loops.get(id(call))):
                yield verb, type_name(ast.unparse(call.args[0])), name, quality(qos)


def names(argument: ast.expr, loop: ast.For | None) -> list[str]:
    """A literal name, also within `name(...)`, or those that a `for name in (...)` goes through."""
    if isinstance(argument, ast.Call) and ast.unparse(argument.func) == "name":
        argument = argument.args[0]
    if isinstance(argument, ast.Constant):
        return [str(argument.value)]
    if loop is not None and ast.unparse(loop.target) == ast.unparse(argument):
        return [str(name) for name in ast.literal_eval(loop.iter)]
    raise InvalidInput(f"reference: cannot tell the name in {ast.unparse(argument)!r}; use a literal")


def type_name(source: str) -> str:
    if source.startswith(("msg.", "srv.")):
        return "crbo_ros/" + source.replace(".", "/")
    if source == "Status":  # the runner's short word
        return "crbo_ros/msg/RunnerStatus"
    known = {"Trigger": "std_srvs/srv", "JointState": "sensor_msgs/msg", "DiagnosticArray": "diagnostic_msgs/msg"}
    if source not in known:
        raise InvalidInput(f"reference: the package of {source} is not known here; add it")
    return f"{known[source]}/{source}"


def quality(source: str) -> str:
    """A profile of ros/qos.py in words."""
    if source.isdigit():
        return f"reliable, depth {source}"
    if not source:
        return ""
    for node in ast.parse((SOURCES.parent / "ros" / "qos.py").read_text()).body:
        if isinstance(node, ast.Assign) and f"qos.{ast.unparse(node.targets[0])}" == source:
            if not isinstance(node.value, ast.Call):
                return "sensor data (best effort, depth 5)"
            given = {word.arg: ast.unparse(word.value).split(".")[-1] for word in node.value.keywords}
            words = [given["reliability"].lower().replace("_", " ")]
            words += ["transient local"] if given.get("durability") == "TRANSIENT_LOCAL" else []
            return ", ".join([*words, f"depth {given['depth']}"])
    raise InvalidInput(f"reference: no profile {source} in ros/qos.py")


def topics() -> str:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for node, _ in NODES:
        for verb, type_, name, qos in calls(node):
            if verb in ("create_publisher", "create_subscription"):
                row = found.setdefault((name, type_), {"from": [], "to": [], "qos": qos})
                row["from" if verb == "create_publisher" else "to"].append(node)
    rows = [
        (f"`{name}`", type_, ", ".join(row["from"]) or "you", ", ".join(row["to"]) or "tools", row["qos"])
        for (name, type_), row in sorted(found.items())
    ]
    return "## Topics\n\n" + table(("topic", "type", "published by", "subscribed by", "QoS"), rows)


def services() -> str:
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for node, _ in NODES:
        for verb, type_, name, _qos in calls(node):
            if verb in ("create_service", "create_client"):
                row = found.setdefault((name, type_), {"server": [], "client": []})
                row["server" if verb == "create_service" else "client"].append(node)
    rows = [
        (f"`{name}`", type_, ", ".join(row["server"]), ", ".join(row["client"]) or "operators, tools")
        for (name, type_), row in sorted(found.items())
    ]
    text = "## Services\n\n" + table(("service", "type", "offered by", "called by"), rows)
    return text + (
        "\nEvery node is a lifecycle node and also has the standard services for lifecycle (`~/change_state`, ...) and "
        "parameters.\n"
    )


# -- parameters and arguments --------------------------------------------------------------------------


def all_parameters() -> str:
    parts = ["## Parameters\n"]
    common = {parameter.name for parameter in parameters.COMMON}
    parts.append("### All nodes\n\n" + _parameters(parameters.COMMON))
    for node, table_name in NODES:
        own = tuple(p for p in getattr(parameters, table_name) if p.name not in common)
        parts.append(f"### {node}\n\n" + _parameters(own))
    parts.append(
        "A group is any number of parameters below that name, nested in a file. A node with a parameter that it does "
        "not have, or with a file that has a section for no node of the graph, does not start. Where the environment "
        "variable `CRBO_PARENT` is a process id, the node ends when its parent is not that process any more, and a "
        "runner when nothing is left to propose. `episode_trajectory` is published while somebody subscribes to it.\n"
    )
    return "\n".join(parts)


def _parameters(declared: tuple[parameters.Parameter, ...]) -> str:
    rows = []
    for p in declared:
        kind = type(p.default).__name__
        kind = {"str": "string", "float": "double", "int": "integer", "dict": "group"}.get(kind, kind)
        low, high = ("" if limit is None else f"{limit:g}" for limit in (p.minimum, p.maximum))
        allowed = ", ".join(p.choices) or (f"{low} .. {high}".strip() if low or high else "")
        rows.append((f"`{p.name}`", kind, _shown(p.default), allowed, "yes" if p.changeable else "", p.description))
    return table(("parameter", "type", "default", "range", "at run time", "meaning"), rows)


def _shown(value: Any) -> str:
    if value == parameters.GROUP:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text or chr(34) * 2}`"


def arguments() -> str:
    rows = []
    short = (*graph.TASK_OPTIONS, *graph.SETTINGS)
    for a in (*graph.ARGUMENTS, *short, graph.RUNNERS, graph.NAMESPACE, graph.CONFIG, graph.LOG_LEVEL):
        option, kind = "--" + a.name.replace("_", "-"), "JSON" if a.type is dict else a.type.__name__
        rows.append((f"`{a.name}`", f"`{option}`", kind, ", ".join(a.nodes) or "", a.description))
    text = "## Launch arguments and options of `crbo run`\n\nEmpty: the value of config/TASK.yaml.\n\n"
    return text + table(("launch argument", "option", "type", "parameter of", "meaning"), rows)


# -- messages and services -----------------------------------------------------------------------------


def interfaces(root: Path) -> str:
    parts = ["## Messages\n"]
    parts += [f"### {file.stem}\n\n{definition(file.read_text())}" for file in sorted(root.glob("msg/*.msg"))]
    parts.append("## Service types\n")
    for file in sorted(root.glob("srv/*.srv")):
        request, response = re.split(r"^---$", file.read_text(), flags=re.MULTILINE)
        parts.append(f"### {file.stem}\n\nRequest. {definition(request)}\nAnswer. {definition(response)}")
    return "\n".join(parts)


def definition(text: str) -> str:
    """Introduction, fields and constants of one part of a definition, with their comments."""
    introduction: list[str] = []
    fields: list[list[str]] = []
    constants: list[list[str]] = []
    last = introduction
    for line in text.splitlines():
        code, _, comment = (part.strip() for part in line.partition("#"))
        if not code:
            if comment and last is introduction:
                introduction.append(comment)
            elif comment:
                last[-1] = f"{last[-1]} {comment}"  # a comment that goes on
            continue
        type_, rest = code.split(None, 1)
        if "=" in rest:
            name, value = rest.split("=")
            constants.append([f"`{name.strip()}`", value.strip(), comment])
            last = constants[-1]
        else:
            fields.append([f"`{rest}`", type_, comment])
            last = fields[-1]
    text = " ".join(introduction) + "\n\n"
    if constants:
        text += table(("constant", "value", "meaning"), [tuple(c) for c in constants]) + "\n"
    return text + (table(("field", "type", "meaning"), [tuple(f) for f in fields]) if fields else "No fields.\n")
