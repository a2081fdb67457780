"""Layouts for PlotJuggler and Foxglove, from the table of topics: a curve is a topic and a field of its message.

crbo reference                      writes them to config/, with docs/API.md: for topics in the root, and recordings
crbo export EXPERIMENT --layouts    for the namespace in which an experiment runs
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any
from xml.sax.saxutils import quoteattr

from crbo_ros.errors import InvalidInput
from crbo_ros.view.colors import ALARM, AVERAGE, BEST, BOUND, COVERAGE, GAMMA, GOOD, NEUTRAL, OUTCOME_COLORS
from crbo_ros.view.values import TOPICS


@dataclass(frozen=True)
class Curve:
    """A field of a topic over time."""

    topic: str
    field: str
    label: str
    color: str
    line: bool = True  # or points

    def __post_init__(self) -> None:
        if self.topic not in TOPICS or self.field not in {f.name for f in fields(TOPICS[self.topic][1])}:
            raise InvalidInput(f"layouts: no topic has {self.topic}.{self.field}; view/values.py lists them")


@dataclass(frozen=True)
class Plot:
    """Curves that share their axes."""

    key: str
    title: str
    curves: tuple[Curve, ...]
    share: int  # of the height, percent
    limits: tuple[float, float] | None = None


PLOTS = (
    Plot("returns", "Returns", (
        Curve("episode_return", "value", "return", OUTCOME_COLORS["completed"], line=False),
        Curve("episode_return", "predicted_worst_case", "worst-case bound", BOUND, line=False),
        Curve("optimizer_state", "best_mean", "best", BEST),
        Curve("optimizer_state", "average_return", "average", AVERAGE),
        Curve("safety_verdict", "threshold", "threshold", OUTCOME_COLORS["vetoed"]),
    ), 40),
    Plot("contract", "Contract", (
        Curve("safety_contract", "novel_violations", "falls of new policies", OUTCOME_COLORS["vetoed"]),
        Curve("safety_contract", "allowed", "allowed by now", BOUND),
        Curve("safety_contract", "account", "account", BEST),
        Curve("safety_contract", "needed", "a new policy needs", GAMMA),
    ), 20),
    Plot("caution", "Coverage and gamma", (
        Curve("optimizer_state", "coverage", "coverage of the bound", COVERAGE),
        Curve("optimizer_state", "gamma_effective", "effective gamma", GAMMA),
    ), 15, (0.0, 1.05)),
    Plot("hyperparameters", "Hyperparameters", (
        Curve("optimizer_state", "lengthscale", "lengthscale", COVERAGE),
        Curve("optimizer_state", "r0", "r0", OUTCOME_COLORS["terminated"]),
        Curve("optimizer_state", "lipschitz", "L", AVERAGE),
    ), 15),
    Plot("safety", "Safety", (
        Curve("safety_heartbeat", "armed", "armed", GOOD),
        Curve("safety_verdict", "status", "verdict", OUTCOME_COLORS["vetoed"]),
    ), 10),
)  # fmt: skip
BUTTONS = (
    ("stop", "STOP", ALARM),
    ("rearm", "Re-arm", GOOD),
    ("pause", "Pause", NEUTRAL),
    ("resume", "Resume", NEUTRAL),
)
MESSAGES = (("verdict", "Verdict", "safety_verdict"), ("state", "Optimizer", "optimizer_state"))


def layouts(namespace: str = "") -> dict[str, str]:
    """The text of each file, by its name, for topics and services in a namespace."""
    root = "/".join(["", *filter(None, [namespace.strip("/")]), ""])
    return {"plotjuggler_layout.xml": plotjuggler(root), "foxglove_layout.json": foxglove(root)}


# -- PlotJuggler --------------------------------------------------------------------------------------


def plotjuggler(root: str) -> str:
    sizes = ";".join(f"{plot.share / 100:g}" for plot in PLOTS)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<root>",
        ' <tabbed_widget name="Main Window" parent="main_window">',
        '  <Tab tab_name="CRBO" containers="1">',
        "   <Container>",
        f'    <DockSplitter orientation="-" count="{len(PLOTS)}" sizes="{sizes}">',
    ]
    for plot in PLOTS:
        style = "Steps" if all(curve.line for curve in plot.curves) else "Dots"
        lines.append(f"     <DockArea name={quoteattr(plot.title.lower())}>")
        lines.append(f'      <plot mode="TimeSeries" style="{style}" flip_x="false" flip_y="false">')
        lines.append("       <limitY/>")
        lines += [f'       <curve name="{root}{c.topic}/{c.field}" color="{c.color}"/>' for c in plot.curves]
        lines += ["      </plot>", "     </DockArea>"]
    lines += ["    </DockSplitter>", "   </Container>", "  </Tab>", '  <currentTabIndex index="0"/>']
    lines += [" </tabbed_widget>", ' <use_relative_time_offset enabled="1"/>', " <Plugins>"]
    lines += ['  <plugin ID="ROS2 Topic Subscriber">', '   <use_header_stamp value="false"/>']
    lines += ['   <discard_large_arrays value="true"/>', '   <max_array_size value="200"/>', "   <selected_topics>"]
    topics = sorted({curve.topic for plot in PLOTS for curve in plot.curves})
    lines += [f'    <topic name="{root}{topic}"/>' for topic in topics]
    lines += [
        "   </selected_topics>",
        "  </plugin>",
        " </Plugins>",
        " <customMathEquations/>",
        " <snippets/>",
        "</root>",
    ]
    return "\n".join(lines) + "\n"


# -- Foxglove -----------------------------------------------------------------------------------------


def foxglove(root: str) -> str:
    panels: dict[str, Any] = {f"Plot!{plot.key}": _plot(plot, root) for plot in PLOTS}
    for key, title, topic in MESSAGES:
        panels[f"RawMessages!{key}"] = {
            "foxglovePanelTitle": title, "topicPath": f"{root}{topic}", "diffEnabled": False, "diffMethod": "custom",
            "diffTopicPath": "", "showFullMessageForDiff": False,
        }  # fmt: skip
    panels["DiagnosticSummary!all"] = {
        "minLevel": 0, "pinnedIds": [], "hardwareIdFilter": "", "topicToRender": "/diagnostics", "sortByLevel": True,
    }  # fmt: skip
    for service, text, color in BUTTONS:
        panels[f"CallService!{service}"] = {
            "foxglovePanelTitle": f"{root}{service}", "serviceName": f"{root}{service}", "requestPayload": "{}",
            "layout": "vertical", "buttonText": text, "buttonColor": color, "editingMode": False, "timeoutSeconds": 10,
        }  # fmt: skip
    plots = _split("column", [(f"Plot!{plot.key}", plot.share) for plot in PLOTS])
    buttons = _split("row", [(f"CallService!{service}", 1) for service, _, _ in BUTTONS])
    words: list[tuple[Any, int]] = [(f"RawMessages!{key}", 30) for key, _, _ in MESSAGES]
    side = _split("column", [(buttons, 18), *words, ("DiagnosticSummary!all", 22)])
    layout = {
        "configById": panels, "globalVariables": {}, "userNodes": {}, "playbackConfig": {"speed": 1},
        "layout": _split("row", [(plots, 62), (side, 38)]),
    }  # fmt: skip
    return json.dumps(layout, indent=2) + "\n"


def _plot(plot: Plot, root: str) -> dict[str, Any]:
    paths = [
        {
            "value": f"{root}{c.topic}.{c.field}", "enabled": True, "timestampMethod": "receiveTime", "label": c.label,
            "color": c.color, "showLine": c.line, "lineSize": 1.5,
        }
        for c in plot.curves
    ]  # fmt: skip
    limits = {} if plot.limits is None else {"minYValue": plot.limits[0], "maxYValue": plot.limits[1]}
    return {
        "foxglovePanelTitle": plot.title, "paths": paths, "showXAxisLabels": True, "showYAxisLabels": True,
        "showLegend": True, "legendDisplay": "floating", "showPlotValuesInLegend": False, "isSynced": True,
        "xAxisVal": "timestamp", "sidebarDimension": 240, **limits,
    }  # fmt: skip


def _split(direction: str, parts: list[tuple[Any, int]]) -> Any:
    """A binary tree of panels: each beside the rest, by their shares."""
    (first, share), *rest = parts
    if not rest:
        return first
    percentage = round(100 * share / sum(weight for _, weight in parts))
    return {"direction": direction, "first": first, "second": _split(direction, rest), "splitPercentage": percentage}
