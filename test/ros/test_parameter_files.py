"""Names and sections that are for nobody, and nested parameters. No ROS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from crbo_ros.errors import InvalidInput
from crbo_ros.ros import parameters
from crbo_ros.ros.parameter_files import complaint, files_of, sections

CONFIG = Path(__file__).parents[2] / "config"


def found(tmp_path: Path, text: str, node: str = "/lab/safety_monitor", given: tuple[str, ...] = ()) -> str:
    file = tmp_path / "limits.yaml"
    file.write_text(text)
    table = parameters.NODES[next(name for name in parameters.NODES if name in node)]
    return complaint(node, table, given, sections(file))


def test_there_are_at_most_20_parameters() -> None:
    names = {parameter.name for table in parameters.NODES.values() for parameter in table}
    assert len(names) <= 20


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("j_min_dropp", "parameter j_min_dropp of /lab/optimizer does not exist; did you mean 'j_min_drop'?"),
        (
            "require_operator",
            "parameter require_operator of /lab/optimizer does not exist; it is one of safety_monitor",
        ),
        ("task_options", "parameter task_options of /lab/optimizer is a group"),
        ("seed.a", "parameter seed.a of /lab/optimizer does not exist"),
        ("", "parameter  of /lab/optimizer does not exist"),
    ],
)
def test_a_name_that_the_node_does_not_have_is_refused(tmp_path: Path, name: str, words: str) -> None:
    assert found(tmp_path, "", "/lab/optimizer", ("seed", name)).startswith(words)


@pytest.mark.parametrize("name", ["seed", "task_options.a", "settings.a.b", "use_sim_time", "qos_overrides./tf.depth"])
def test_what_the_node_or_ros_has_is_accepted(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, "", "/lab/optimizer", (name,)) == ""


def test_what_is_written_for_all_nodes_must_be_a_parameter_of_one_of_them(tmp_path: Path) -> None:
    text = "/**:\n  ros__parameters: {{{}: 0.2}}\n"
    assert found(tmp_path, text.format("j_min_drop"), "/lab/optimizer", ("j_min_drop",)) == ""
    assert "does not exist" in found(tmp_path, text.format("j_min_dropp"), "/lab/optimizer", ("j_min_dropp",))


@pytest.mark.parametrize(
    "section",
    ["/lab/safety_monitor", "lab/safety_monitor", "/**/safety_monitor", "/*/safety_monitor", "/**", "/lab/*", "/lab/**",
     "/lab/optimizer", "/**/optimizer", "/lab/episode_runner_3"],
)  # fmt: skip
def test_sections_for_this_graph_are_accepted(tmp_path: Path, section: str) -> None:
    assert found(tmp_path, f"{section}:\n  ros__parameters: {{j_min_drop: 0.2}}\n") == ""
    assert found(tmp_path, "lab:\n  safety_monitor:\n    ros__parameters: {j_min_drop: 0.2}\n") == ""


@pytest.mark.parametrize(
    ("section", "advice"),
    [
        ("/safety_monitor", "write /**/safety_monitor"),
        ("safety_monitor", "write /**/safety_monitor"),
        ("/other/safety_monitor", "write /**/safety_monitor"),
        ("/*/*/safety_monitor", "write /**/safety_monitor"),
        ("/lab/saftey_monitor", "write /**/safety_monitor"),
        ("/optimizer", "write /**/optimizer"),
        ("/other/**", "/** is for all of them"),
        ("/*", "/** is for all of them"),
        ("/lab/controller", "its nodes are optimizer, safety_monitor, episode_runner"),
    ],
)
def test_sections_for_nobody_are_refused_with_advice(tmp_path: Path, section: str, advice: str) -> None:
    said = found(tmp_path, f"{section}:\n  ros__parameters: {{j_min_drop: 0.2}}\n")
    assert "limits.yaml: the section /" in said
    assert "is for no node of this graph (in /lab)" in said
    assert advice in said


def test_the_files_are_those_of_the_command_line() -> None:
    words = ["optimizer", "--ros-args", "--params-file", "a.yaml", "-p", "seed:=1", "--params-file", "b/c.yaml"]
    assert files_of(words) == [Path("a.yaml"), Path("b/c.yaml")]


@pytest.mark.parametrize("text", ["", "/**: {ros__parameters: null}"])
def test_a_parameter_file_may_say_nothing(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text) == ""


@pytest.mark.parametrize("text", ["3", "a: b", "[", "/**: {ros__parameters: 3}", "a: &x {ros__parameters: *x}", "a:"])
def test_what_is_no_parameter_file_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidInput, match=r"limits\.yaml"):
        found(tmp_path, text)


@pytest.mark.parametrize("file", sorted(CONFIG.glob("*.yaml")), ids=lambda file: file.name)
def test_our_own_files_hold_only_what_exists_and_differs_from_the_defaults(file: Path) -> None:
    for node, table in parameters.NODES.items():
        assert complaint(f"/any/{node}", table, (), sections(file)) == ""
    defaults = {p.name: p.default for table in parameters.NODES.values() for p in table}
    for pattern, content in (yaml.safe_load(file.read_text()) or {}).items():
        for name, value in content["ros__parameters"].items():
            assert name in defaults, f"{pattern} {name}"
            assert value != defaults[name] or name == "task"


@pytest.mark.parametrize(
    ("flat", "deep"),
    [
        ({}, {}),
        ({"a": 1, "b.c": [1.0], "b.d.e": "x"}, {"a": 1, "b": {"c": [1.0], "d": {"e": "x"}}}),
        ({"b": {"c": 1}, "b.d": 2}, {"b": {"c": 1, "d": 2}}),
    ],
)
def test_dotted_names_are_nested(flat: dict[str, Any], deep: dict[str, Any]) -> None:
    assert parameters.nested(flat) == deep
    assert parameters.nested(parameters.flatten(deep)) == deep


def test_json_becomes_what_ros_can_carry() -> None:
    given = {"a": [1, 2.5], "b": None, "c": {"d": {}, "e": ["x"]}, "f": True, "g": [True]}
    assert parameters.as_parameters(given, "o") == {"a": [1.0, 2.5], "c": {"e": ["x"]}, "f": True, "g": [True]}
    wrong: list[Any] = [[], [1, "x"], [{}], [None], [[1]], [True, 1]]
    for bad in wrong:
        with pytest.raises(InvalidInput, match=r"task_options\.c\.x: .* no list"):
            parameters.as_parameters({"c": {"x": bad}}, "task_options")


def test_a_budget_of_0_is_the_tasks_own_and_minus_1_is_none() -> None:
    assert [parameters.budget(episodes, 110) for episodes in (0, 7, -1)] == [110, 7, 0]
