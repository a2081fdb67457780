"""Who says what to whom: the one table of topics and services, and SROS2's policies made from it.

Names are relative to the graph's namespace; ~/ stands for the node's own name, / for a global one. A test holds the
table against what the running nodes really offer. Roles are enclaves: /crbo/optimizer, /crbo/safety_monitor, ...
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from xml.sax.saxutils import quoteattr

OPTIMIZER, MONITOR, RUNNER = "optimizer", "safety_monitor", "episode_runner"
OPERATOR, VIEWER = "operator", "viewer"  # a person's tools: may loosen; and who only looks (and may stop)
NODES = (OPTIMIZER, MONITOR, RUNNER)
ROLES = (*NODES, OPERATOR, VIEWER)
PEOPLE = (OPERATOR, VIEWER)


class Channel(NamedTuple):
    """A topic (from publishers to subscribers) or a service (from servers to clients)."""

    name: str
    sources: tuple[str, ...]
    sinks: tuple[str, ...]


TOPICS = (
    Channel("optimizer_state", (OPTIMIZER,), (RUNNER, *PEOPLE)),
    Channel("proposal", (OPTIMIZER,), PEOPLE),
    Channel("episode_return", (RUNNER,), (OPTIMIZER, MONITOR, *PEOPLE)),
    Channel("safety_verdict", (MONITOR,), (OPTIMIZER, *PEOPLE)),
    Channel("safety_heartbeat", (MONITOR,), (RUNNER, *PEOPLE)),
    Channel("safety_contract", (MONITOR,), (OPTIMIZER, RUNNER, *PEOPLE)),
    Channel("runner_status", (RUNNER,), (OPTIMIZER, MONITOR, *PEOPLE)),
    Channel("episode_trajectory", (RUNNER,), PEOPLE),
    Channel("joint_states", (RUNNER,), PEOPLE),
    Channel("/diagnostics", NODES, PEOPLE),
    Channel("~/transition_event", NODES, PEOPLE),
    Channel("/rosout", ROLES, PEOPLE),
    Channel("/parameter_events", ROLES, ROLES),
)
SERVICES = (
    Channel("propose_policy", (OPTIMIZER,), (RUNNER,)),
    Channel("acknowledge_episode", (OPTIMIZER,), (RUNNER,)),
    Channel("get_best_policy", (OPTIMIZER,), PEOPLE),
    Channel("get_episodes", (OPTIMIZER,), (MONITOR, *PEOPLE)),
    *(Channel(name, (OPTIMIZER,), (OPERATOR,)) for name in ("pause", "resume", "finish")),
    Channel("check_rollout", (MONITOR,), (RUNNER,)),
    Channel("stop", (MONITOR,), PEOPLE),  # whoever may see may stop
    Channel("report_violation", (MONITOR,), PEOPLE),
    *(Channel(name, (MONITOR,), (OPERATOR,)) for name in ("rearm", "review_proposal", "operator")),
    *(Channel(f"~/{name}", (RUNNER,), (OPERATOR,)) for name in ("clear", "give_back", "operator")),
    *(Channel(f"~/{name}", NODES, PEOPLE) for name in (
        "describe_parameters", "get_parameter_types", "get_parameters", "list_parameters", "get_type_description",
        "get_state", "get_available_states", "get_available_transitions", "get_transition_graph")),
    *(Channel(f"~/{name}", NODES, (OPERATOR,)) for name in (
        "set_parameters", "set_parameters_atomically", "change_state")),
)  # fmt: skip


def absolute(name: str, namespace: str, node: str) -> str:
    """The full name of a topic or service of a node."""
    base = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    if name.startswith("/"):
        return name
    return f"{base}/{node}/{name[2:]}" if name.startswith("~/") else f"{base}/{name}"


def names(channels: Iterable[Channel], role: str, namespace: str, runners: int, *, source: bool) -> list[str]:
    """The full names with which a role speaks (source) or to which it listens (sink)."""
    found = set()
    for channel in channels:
        if role not in (channel.sources if source else channel.sinks):
            continue
        owners = (role,) if source else channel.sources
        for owner in owners if channel.name.startswith("~/") else owners[:1]:
            found |= {absolute(channel.name, namespace, node) for node in nodes_of(owner, runners)}
    return sorted(found)


def nodes_of(role: str, runners: int) -> list[str]:
    """The names of a role's nodes: several runners are numbered."""
    return [f"{role}_{i}" for i in range(runners)] if role == RUNNER and runners > 1 else [role]


def policies(namespace: str = "", runners: int = 1) -> str:
    """SROS2's policy file, for `ros2 security create_permission`."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', '<policy version="0.2.0">', "  <enclaves>"]
    for role in ROLES:
        lines += [f'    <enclave path="/crbo/{role}">', "      <profiles>"]
        for node in nodes_of(role, runners) if role in NODES else ["crbo_" + role]:
            place = quoteattr("/" + namespace.strip("/"))
            lines.append(f"        <profile ns={place} node={quoteattr(node)}>")
            for tag, channels, verb, source in (
                ("topic", TOPICS, "publish", True), ("topic", TOPICS, "subscribe", False),
                ("service", SERVICES, "reply", True), ("service", SERVICES, "request", False),
            ):  # fmt: skip
                allowed = names(channels, role, namespace, runners, source=source)
                if allowed:
                    lines.append(f'          <{tag}s {verb}="ALLOW">')
                    lines += [f"            <{tag}>{name}</{tag}>" for name in allowed]
                    lines.append(f"          </{tag}s>")
            lines.append("        </profile>")
        lines += ["      </profiles>", "    </enclave>"]
    return "\n".join([*lines, "  </enclaves>", "</policy>", ""])
