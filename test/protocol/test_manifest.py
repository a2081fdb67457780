"""The record: what a run depends on is in its folder, and the folder can be moved anywhere."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

import pytest

from crbo_ros.errors import InvalidInput, StoreError
from crbo_ros.protocol import best_file, manifest
from crbo_ros.registry import make_task, task_problem

PID = Path(__file__).parents[2] / "examples" / "pid.yaml"


def test_the_manifest_says_who_what_and_how_and_the_policy_is_copied(tmp_path: Path) -> None:
    manifest.begin(tmp_path, "furuta", "stand_in", {}, {"seed": "3", "experiments_dir": "/elsewhere"})
    manifest.opened(tmp_path, uid="u", method="crbo", seed=3, settings={"gamma": 0.5})
    found = manifest.read_manifest(tmp_path)
    assert (found["task"], found["plant"], found["uid"], found["seed"]) == ("furuta", "stand_in", "u", 3)
    assert found["problem"] == task_problem("furuta").identity
    assert found["task_options"] == {"weights": "inputs/furuta.npz"}
    assert found["arguments"] == {"seed": "3"}
    software = found["starts"][0]["software"]
    assert {"crbo_ros", "python", "numpy", "scipy", "platform"} <= set(software)
    assert found["inputs"] == {"inputs/furuta.npz": manifest.sha256(tmp_path / "inputs" / "furuta.npz")}
    assert manifest.complaints(tmp_path) == []


def test_a_moved_record_makes_the_same_problem_without_the_original_files(tmp_path: Path) -> None:
    source = tmp_path / "source" / "configs"
    source.mkdir(parents=True)
    text = PID.read_text()
    shutil.copy(PID, source / "pid.yaml")
    before = task_problem("tuning", config=str(source / "pid.yaml")).key
    manifest.begin(tmp_path / "a", "tuning", "", {"config": str(source / "pid.yaml")}, {"seed": "1"})
    shutil.rmtree(tmp_path / "source")
    shutil.move(tmp_path / "a", tmp_path / "b")
    options = manifest.recorded_options(tmp_path / "b")
    assert Path(options["config"]).read_text() == text
    assert task_problem("tuning", **options).key == before
    task, arguments = manifest.recorded_plan(tmp_path / "b")
    assert (task, arguments["experiment"], arguments["experiments_dir"]) == ("tuning", "b", str(tmp_path))
    assert json.loads(arguments["task_options"]) == options


def test_files_that_a_file_refers_to_are_copied_and_keep_their_place(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "configs").mkdir(parents=True)
    (source / "returns").mkdir()
    for path, content in {
        "configs/robot.yaml": STACK, "returns/track.yaml": RETURN,
    }.items():  # fmt: skip
        (source / path).write_text(content)
    options = {"config": str(source / "configs" / "robot.yaml")}
    before = task_problem("tuning", **options).key
    manifest.begin(tmp_path / "a", "tuning", "", options)
    shutil.rmtree(source)
    assert set(manifest.read_manifest(tmp_path / "a")["inputs"]) == {
        "inputs/configs/robot.yaml", "inputs/returns/track.yaml",
    }  # fmt: skip
    assert task_problem("tuning", **manifest.recorded_options(tmp_path / "a")).key == before


def test_thresholds_are_recorded_over_time_with_who_changed_them(tmp_path: Path) -> None:
    manifest.begin(tmp_path, "furuta", "", {})
    manifest.thresholds(tmp_path, "A", {"risk": 0.05, "j_min": float("-inf")})
    manifest.thresholds(tmp_path, "A", {"risk": 0.05})  # nothing new
    manifest.thresholds(tmp_path, "B", {"risk": 0.02, "j_min": 0.3})
    found = manifest.read_manifest(tmp_path)["thresholds"]
    assert [(entry["by"], entry["values"]) for entry in found] == [
        ("A", {"risk": 0.05, "j_min": "-inf"}), ("B", {"risk": 0.02, "j_min": 0.3}),
    ]  # fmt: skip


def test_robots_and_commands_are_recorded_and_a_robot_once(tmp_path: Path) -> None:
    manifest.begin(tmp_path, "furuta", "", {})
    for which in ("Qube, board 0 on lab", "Qube, board 0 on lab", "Qube, board 1 on lab"):
        manifest.robot(tmp_path, "/runner", which)
    manifest.command(tmp_path, "somebody", "pause")
    found = manifest.read_manifest(tmp_path)
    assert [entry["robot"] for entry in found["robots"]] == ["Qube, board 0 on lab", "Qube, board 1 on lab"]
    assert [(entry["by"], entry["command"]) for entry in found["commands"]] == [("somebody", "pause")]


def test_a_robot_is_its_serial_number_or_else_its_host(tmp_path: Path) -> None:
    text = PID.read_text() + "\nrobot: mobile base 7\n"
    (tmp_path / "pid.yaml").write_text(text)
    task = make_task("tuning", config=str(tmp_path / "pid.yaml"))
    assert manifest.robot_of(task) == f"mobile base 7 on {platform.node()}"
    assert task_problem("tuning", config=str(tmp_path / "pid.yaml")).key != task_problem("tuning", config=str(PID)).key
    assert manifest.robot_of(make_task("furuta")) == f"host {platform.node()}"
    hardware = make_task("furuta", plant="qube_hardware")
    assert manifest.robot_of(hardware) == f"Qube, board 0 of gym_brt on {platform.node()}"


def test_damage_another_problem_and_another_format_are_told(tmp_path: Path) -> None:
    manifest.begin(tmp_path, "furuta", "", {})
    with pytest.raises(StoreError, match=r"another experiment .*plant: stand_in, not nominal"):
        manifest.begin(tmp_path, "furuta", "nominal", {})
    (tmp_path / "inputs" / "furuta.npz").write_bytes(b"no")
    assert "SHA-256" in manifest.complaints(tmp_path)[0]
    fields = json.loads((tmp_path / manifest.FILE).read_text())
    later = {**fields, "format": 2, "starts": [{"software": {"crbo_ros": "9.9"}}]}
    best_file.write(tmp_path / manifest.FILE, later)
    with pytest.raises(InvalidInput, match=r"format 2.*written by crbo_ros 9\.9"):
        manifest.read_manifest(tmp_path)
    (tmp_path / manifest.FILE).write_text(json.dumps({**fields, "task": "gym"}))
    with pytest.raises(InvalidInput, match="damaged"):
        manifest.read_manifest(tmp_path)


STACK = """
parameters:
  - {node: /pid_plant, name: kp, lower: 0.2, upper: 50.0, start: 2.0, scale: log}
episode: {start: {service: /pid_plant/run}, unstoppable: true, timeout: 10.0}
return: {definition: ../returns/track.yaml}
"""
RETURN = """
signals:
  x: {topic: /x, type: std_msgs/msg/Float64, field: data}
terms:
  - {metric: mean, of: x}
"""
