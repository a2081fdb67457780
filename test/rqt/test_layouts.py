"""The layouts for rqt, PlotJuggler and Foxglove name only what is really there."""

import ast
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from crbo_ros.view.values import TOPICS

ROOT = Path(__file__).parents[2]
TYPES = {topic: name for topic, (name, _) in TOPICS.items()}
SERVICES = {"pause", "resume", "finish", "stop", "rearm"}


def is_there(topic: Any, field: Any) -> Any:
    """Whether the topic's message has the field."""
    text = (ROOT / "msg" / f"{TYPES[topic]}.msg").read_text()
    return re.search(rf"^[\w/]+(\[\])? {field}\b(?!=)", text, re.MULTILINE) is not None


def test_the_check_itself_tells_fields_from_constants() -> None:
    assert is_there("safety_verdict", "status")
    assert not is_there("safety_verdict", "APPROVED")
    assert not is_there("safety_verdict", "stat")


def test_plotjuggler_curves_are_fields_of_our_messages() -> None:
    root: Any = ET.parse(ROOT / "config" / "plotjuggler_layout.xml").getroot()
    curves = [curve.get("name") for curve in root.iter("curve")]
    assert len(curves) >= 8
    for name in curves:
        assert is_there(*name.strip("/").split("/")), name
    subscribed = {topic.get("name") for topic in root.iter("topic")}
    assert {"/" + name.split("/")[1] for name in curves} == subscribed


def test_foxglove_paths_are_fields_and_its_buttons_are_services_of_ours() -> None:
    layout = json.loads((ROOT / "config" / "foxglove_layout.json").read_text())
    panels = layout["configById"]
    for panel in panels.values():
        for path in panel.get("paths", []):
            assert is_there(*path["value"].strip("/").split(".")), path["value"]
        if "serviceName" in panel:
            assert panel["serviceName"].strip("/") in SERVICES
    placed = []

    def walk(node: Any) -> None:
        if isinstance(node, str):
            placed.append(node)
        else:
            walk(node["first"])
            walk(node["second"])

    walk(layout["layout"])
    assert sorted(placed) == sorted(panels)


def test_the_rqt_perspective_starts_our_plugin_with_plots_of_real_fields() -> None:
    groups = json.loads((ROOT / "config" / "crbo.perspective").read_text())["groups"]
    manager = groups["pluginmanager"]
    running = ast.literal_eval(manager["keys"]["running-plugins"]["repr"])
    plugin: Any = ET.parse(ROOT / "plugin.xml").getroot().find("class")
    assert set(running) == {f"crbo_ros/{plugin.get('name')}", "rqt_plot/Plot", "rqt_runtime_monitor/RuntimeMonitor"}
    plots = manager["groups"]["plugin__rqt_plot__Plot__1"]["groups"]["plugin"]["keys"]["topics"]["repr"]
    for name in ast.literal_eval(plots):
        assert is_there(*name.strip("/").split("/")), name


def test_rqt_finds_the_plugin_where_package_xml_says() -> None:
    export: Any = ET.parse(ROOT / "package.xml").getroot().find("export/rqt_gui")
    assert export.get("plugin") == "${prefix}/plugin.xml"
    plugin: Any = ET.parse(ROOT / "plugin.xml").getroot().find("class")
    module, _, name = plugin.get("type").rpartition(".")
    source = ROOT / f"{module.replace('.', '/')}.py"
    assert f"class {name}(Plugin)" in source.read_text()


@pytest.mark.parametrize("name", ["crbo.perspective", "plotjuggler_layout.xml", "foxglove_layout.json"])
def test_layouts_are_installed_with_the_configuration(name: Any) -> None:
    assert (ROOT / "config" / name).is_file()
    assert re.search(r"install\(DIRECTORY [^)]*\bconfig\b", (ROOT / "CMakeLists.txt").read_text())
