"""The policy comes out: files that others run, equal to ours, and 30 lines of NumPy that need nothing of ours."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from crbo_ros import cli
from crbo_ros.commands.export_policy import write_policy
from crbo_ros.errors import InvalidInput
from crbo_ros.policies.agent import Agent
from crbo_ros.policies.exported import Movement, Values
from crbo_ros.registry import make_task

DOC = Path(__file__).parents[2] / "docs" / "DEPLOY.md"


def network(output: str) -> Agent:
    rng = np.random.default_rng(3)
    sizes = [4, 16, 8, 2]
    layers = [(rng.normal(size=(a, b)), rng.normal(size=b)) for a, b in pairwise(sizes)]
    bounds = {} if output == "greedy" else {"low": [-1.0, -2.0], "high": [0.5, 2.0]}
    return Agent(layers, output=output, input_offset=rng.normal(size=4), input_scale=[1.0, 2.0, 0.5, 3.0],
                 input_clip=2.5, **bounds)  # type: ignore[arg-type]  # fmt: skip


def inputs(n: int = 200) -> Any:
    return np.random.default_rng(7).normal(scale=3.0, size=(n, 4))


@pytest.mark.parametrize("output", ["greedy", "clip", "squash"])
def test_onnx_gives_what_our_network_gives(output: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed: pip install onnx onnxruntime")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    agent, x = network(output), inputs()
    session = runtime.InferenceSession(str(write_policy(agent, "onnx", tmp_path / "p.onnx", {"task": "t"})))
    found = session.run(None, {"observation": x})[0]
    assert np.max(np.abs(found - np.array([agent(row) for row in x]))) < 1e-6


@pytest.mark.parametrize("output", ["greedy", "clip", "squash"])
def test_torchscript_gives_what_our_network_gives(output: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    agent, x = network(output), inputs()
    script = torch.jit.load(str(write_policy(agent, "torchscript", tmp_path / "p.pt", {"task": "t"})))
    found = script(torch.tensor(x)).numpy()
    assert np.max(np.abs(found - np.array([agent(row) for row in x]))) < 1e-6


def test_the_furuta_network_comes_out_as_it_runs_with_names_units_and_rate(make_store: Any, tmp_path: Path) -> None:
    store = make_store(episodes=4, task="furuta")
    file = tmp_path / "furuta.npz"
    assert cli.main(["export", str(store), "--policy", "npz", "--output", str(file)]) == 0
    agent, task = Agent.load(file), make_task("furuta")
    from crbo_ros.view.record import read_run

    best = read_run(store).best
    assert best is not None
    task.policy.set_weights(best.theta)
    for row in np.random.default_rng(1).normal(size=(50, 5)):
        assert abs(agent(row)[0] - np.clip(task.policy(row), -3.0, 3.0)[0]) < 1e-6
    assert agent.meta["rate"] == 250.0
    assert agent.meta["observations"][:2] == ["arm [rad]", "pendulum [rad]"]
    assert agent.meta["actions"] == ["voltage [V]"]


def test_best_json_and_the_npz_run_with_the_lines_of_numpy_in_the_docs(make_store: Any, tmp_path: Path) -> None:
    store = make_store(episodes=4, task="furuta")
    assert cli.main(["export", str(store), "--policy", "npz", "--output", str(tmp_path / "policy.npz")]) == 0
    assert cli.main(["inspect", str(store), "--best", str(tmp_path / "best.json")]) == 0
    code = re.findall(r"```python\n(.*?)```", DOC.read_text(), re.DOTALL)[0]
    assert len(code.splitlines()) <= 30
    assert "crbo" not in code
    run = code + "\nx = np.random.default_rng(1).normal(size=(20, 5))\nprint(*[float(act(row)[0]) for row in x])\n"
    done = subprocess.run([sys.executable, "-c", run], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    agent = Agent.load(tmp_path / "policy.npz")
    ours = [agent(row)[0] for row in np.random.default_rng(1).normal(size=(20, 5))]
    assert np.allclose(list(map(float, done.stdout.split())), ours, atol=1e-6, rtol=0.0)


def test_a_movement_comes_out_as_joint_trajectory_and_csv(tmp_path: Path) -> None:
    task = make_task("basketball")
    movement = task.exported(task.theta_0)
    assert isinstance(movement, Movement)
    message = yaml.safe_load(write_policy(movement, "yaml", tmp_path / "m.yaml", {}).read_text())
    assert len(message["joint_names"]) == len(message["points"][0]["positions"]) == 7
    with open(write_policy(movement, "csv", tmp_path / "m.csv", {})) as file:
        rows = list(csv.reader(file))
    assert rows[0][:2] == ["time", "A1 position"]
    assert np.array_equal(np.array(rows[1:], dtype=float)[:, 1:8], movement.trajectory.position)
    last = message["points"][-1]["time_from_start"]
    assert last["sec"] + 1e-9 * last["nanosec"] == pytest.approx(movement.trajectory.time[-1])


def test_parameters_come_out_as_a_ros_parameter_file_and_nothing_as_what_it_is_not(tmp_path: Path) -> None:
    values = Values([("/pid", "gains.kp", 2.5), ("/pid", "on", True)])
    text = write_policy(values, "yaml", tmp_path / "p.yaml", {}).read_text()
    assert yaml.safe_load(text) == {"/pid": {"ros__parameters": {"gains": {"kp": 2.5}, "on": True}}}
    with pytest.raises(InvalidInput, match=r"--policy onnx: this policy is named parameters, which can be npz, yaml"):
        write_policy(values, "onnx", tmp_path / "p.onnx", {})
