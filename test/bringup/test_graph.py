"""The graph as a description: names, nested parameters, and what overrides what. No ROS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from crbo_ros.bringup.graph import NodeSpec, graph
from crbo_ros.bringup.plan import make_plan
from crbo_ros.bringup.processes import params_text
from crbo_ros.errors import InvalidInput, MissingDependency, UnknownName


def configured(task: str, **given: str) -> dict[str, dict[str, Any]]:
    return {spec.name: spec.configured() for spec in graph(task, given)}


@pytest.mark.parametrize(
    ("task", "given", "name"),
    [
        ("furuta", {}, "furuta-stand_in-crbo-s1"),
        ("furuta", {"plant": "qube_hardware", "seed": "3"}, "furuta-qube_hardware-crbo-s3"),
        ("basketball", {"method": "cma_es"}, "basketball-pybullet-cma_es-s1"),
        ("custom", {}, "custom-own-crbo-s1"),
        ("furuta", {"experiment": "mine", "plant": "nominal"}, "mine"),
    ],
)
def test_the_default_name_of_an_experiment_contains_the_plant(task: str, given: dict[str, str], name: str) -> None:
    assert {values["experiment"] for values in configured(task, **given).values()} == {name}


def test_a_file_may_name_the_experiment_plant_method_and_seed(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "/**: {ros__parameters: {plant: nominal}}\n/**/optimizer: {ros__parameters: {method: cma_es, seed: 7}}\n"
    )
    assert configured("furuta", params_file=str(file))["optimizer"]["experiment"] == "furuta-nominal-cma_es-s7"
    file.write_text("/**: {ros__parameters: {experiment: monday}}\n")
    assert configured("furuta", params_file=str(file))["episode_runner"]["experiment"] == "monday"


def test_json_on_the_command_line_becomes_nested_parameters_of_the_nodes(tmp_path: Path) -> None:
    options = {"plant_options": {"noise": [1, 2.5]}, "stepped": True, "nothing": None}
    given = {"task_options": json.dumps(options), "realtime": "true", "settings": '{"beta": 2}', "weights": "a.npz"}
    specs = graph("furuta", given)
    wanted = {"plant_options": {"noise": [1.0, 2.5]}, "stepped": True, "realtime": True}
    for spec in specs:
        assert spec.parameters["task_options"] == {**wanted, "weights": str(Path("a.npz").resolve())}
        assert ("settings" in spec.parameters) == (spec.name == "optimizer")
    text = params_text("/lab/optimizer", specs[0].parameters)  # what the node is started with
    assert yaml.safe_load(text)["/lab/optimizer"]["ros__parameters"]["settings"] == {"beta": 2}


def test_options_of_the_command_line_are_added_to_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text("/**:\n  ros__parameters:\n    task_options: {stepped: true, plant_options: {a: 1}}\n")
    spec = NodeSpec("optimizer", "optimizer", file, {"task_options": {"plant_options": {"b": 2}}})
    assert spec.configured() == {"task_options": {"stepped": True, "plant_options": {"a": 1, "b": 2}}}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"settings": "[3]"}, "settings: .* is not a JSON object"),
        ({"task_options": "{"}, "task_options: is no JSON"),
        ({"task_options": "{", "env": "x"}, "task_options: is no JSON"),
        ({"task_options": '{"a": [1, "x"]}'}, r"task_options\.a: .* no list that a ROS parameter can hold"),
        ({"realtime": "yes"}, "realtime: 'yes' is not true or false"),
        ({"episodes": "1.5"}, "episodes: '1.5' is not a whole number"),
        ({"runners": "65"}, "runners: 65 is not from 0 to 64"),
        ({"params_file": "/no/such/file"}, "params_file: /no/such/file does not exist"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        graph("furuta", given)
    with pytest.raises(UnknownName, match=r"no task is called 'moon'; there are: .*furuta"):
        graph("moon", {})


@pytest.mark.parametrize(
    ("plant", "words"), [("qube_hardware", "gym-brt"), ("gym_brt_sim", "gym-brt"), ("qube_pal", "pal")]
)
def test_a_package_that_a_plant_lacks_is_told_before_anything_starts(
    plant: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crbo_ros.plants.qube.drivers.find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match=words):
        make_plan("furuta", {"plant": plant, "experiments_dir": str(tmp_path)})
