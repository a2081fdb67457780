"""A policy for other programs: npz, ROS parameter or trajectory YAML, CSV, ONNX, TorchScript.

A task says what its policy is (`Task.exported`): a network (Agent), a movement (Movement) or named values (Values).
The npz of a network is a file of policies/agent.py, whose docstring is its formula; docs/DEPLOY.md runs it with NumPy.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros import checks
from crbo_ros.errors import InvalidInput, MissingDependency
from crbo_ros.policies.agent import Agent
from crbo_ros.policies.exported import Movement, Values
from crbo_ros.view.parameters import parameter_text

Policy = Agent | Movement | Values


def write_policy(policy: Policy, kind: str, path: Path, about: dict[str, Any]) -> Path:
    """The policy as a file of that kind; `about` (experiment, proposal, names) goes along. InvalidInput: not of it."""
    kinds: dict[type, dict[str, Callable[[Any, Path, dict[str, Any]], None]]] = {
        Agent: {"npz": _network, "onnx": _onnx, "torchscript": _torchscript},
        Movement: {"npz": _movement_npz, "yaml": _movement_yaml, "csv": _movement_csv},
        Values: {"npz": _values_npz, "yaml": _values_yaml},
    }
    writers = kinds[type(policy)]
    if kind not in writers:
        what = {Agent: "a network", Movement: "a movement", Values: "named parameters"}[type(policy)]
        raise InvalidInput(f"--policy {kind}: this policy is {what}, which can be {', '.join(writers)}")
    with checks.whole(path) as part:
        writers[kind](policy, part, about)
    return path


def _savez(path: Path, about: dict[str, Any], **arrays: Any) -> None:
    with open(path, "wb") as file:  # given a name, np.savez would append .npz on its own
        np.savez_compressed(file, meta=np.array(json.dumps(about)), **arrays)


# -- networks -----------------------------------------------------------------------------------------------------


def _network(agent: Agent, path: Path, about: dict[str, Any]) -> None:
    agent.meta = {**agent.meta, **about}
    with open(path, "wb") as file:
        agent.save(file)


def _onnx(agent: Agent, path: Path, about: dict[str, Any]) -> None:
    """In double precision: observation (n, n_in) -> action (n, n_out), or the greedy action's number (n, 1)."""
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise MissingDependency("--policy onnx needs a package: pip install onnx") from None
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(name: str, value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, dtype=np.float64), name))
        return name

    def apply(operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"x{len(nodes)}"
        nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    x = apply("Sub", "observation", constant("offset", agent.input_offset))
    x = apply("Mul", x, constant("scale", agent.input_scale))
    if np.isfinite(agent.input_clip):
        limit = agent.input_clip
        x = apply("Clip", x, constant("clip_low", -limit), constant("clip_high", limit))
    for i, (w, b) in enumerate(agent.layers, start=1):
        x = apply("Add", apply("MatMul", x, constant(f"w{i}", w)), constant(f"b{i}", b))
        if i < len(agent.layers):
            if agent.activation != "tanh":
                if agent.activation != "relu":
                    raise InvalidInput(
                        f"--policy onnx: activation {agent.activation} is not written; tanh and relu are"
                    )
                x = apply("Max", x, constant(f"zero{i}", 0.0))
            else:
                x = apply("Tanh", x)
    if agent.output == "greedy":
        x = apply("Cast", apply("ArgMax", x, axis=1, keepdims=1), to=TensorProto.DOUBLE)
    else:
        if agent.output == "squash":
            half = 0.5 * (agent.high - agent.low)
            x = apply("Mul", apply("Tanh", x), constant("half", half))
            x = apply("Add", x, constant("middle", agent.low + half))
        x = apply("Min", apply("Max", x, constant("low", agent.low)), constant("high", agent.high))
    nodes[-1].output[0] = "action"
    width = 1 if agent.output == "greedy" else agent.n_out
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "policy", [tensor("observation", TensorProto.DOUBLE, ["n", agent.n_in])],
        [tensor("action", TensorProto.DOUBLE, ["n", width])], constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="crbo_ros")
    model.ir_version = 8  # what runtimes of the last years read
    helper.set_model_props(model, {"crbo_ros": json.dumps(about)})
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def _torchscript(agent: Agent, path: Path, about: dict[str, Any]) -> None:
    """In double precision: observation (n, n_in) -> action (n, n_out), or the greedy action's number (n, 1)."""
    try:
        import torch
    except ImportError:
        raise MissingDependency("--policy torchscript needs a package: pip install torch") from None
    activations = {"tanh": torch.tanh, "relu": torch.relu, "silu": torch.nn.functional.silu,
                   "elu": torch.nn.functional.elu, "leaky_relu": torch.nn.functional.leaky_relu}  # fmt: skip

    def tensor(value: Any) -> Any:
        return torch.tensor(np.asarray(value), dtype=torch.float64)

    offset, scale, low, high = map(tensor, (agent.input_offset, agent.input_scale, agent.low, agent.high))
    layers = [(tensor(w), tensor(b)) for w, b in agent.layers]

    def forward(observation: Any) -> Any:
        x = torch.clamp((observation - offset) * scale, -agent.input_clip, agent.input_clip)
        for w, b in layers[:-1]:
            x = activations[agent.activation](x @ w + b)
        x = x @ layers[-1][0] + layers[-1][1]
        if agent.output == "greedy":
            return torch.argmax(x, dim=1, keepdim=True).to(torch.float64)
        if agent.output == "squash":
            x = low + 0.5 * (torch.tanh(x) + 1.0) * (high - low)
        return torch.minimum(torch.maximum(x, low), high)

    traced: Any = torch.jit.trace(forward, torch.zeros(1, agent.n_in, dtype=torch.float64))
    torch.jit.save(traced, str(path), _extra_files={"crbo_ros.json": json.dumps(about)})


# -- movements ----------------------------------------------------------------------------------------------------


def _movement_npz(movement: Movement, path: Path, about: dict[str, Any]) -> None:
    t = movement.trajectory
    arrays = {"time": t.time, "position": t.position, "velocity": t.velocity, "acceleration": t.acceleration}
    _savez(path, {**about, "joints": movement.joints, "units": ["s", "rad", "rad/s", "rad/s^2"]}, **arrays)


def _movement_csv(movement: Movement, path: Path, about: dict[str, Any]) -> None:
    t = movement.trajectory
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        kinds = ("position", "velocity", "acceleration")
        writer.writerow(["time", *(f"{joint} {kind}" for kind in kinds for joint in movement.joints)])
        columns: NDArray[np.float64] = np.hstack([t.time[:, None], t.position, t.velocity, t.acceleration])
        writer.writerows(columns.tolist())


def _movement_yaml(movement: Movement, path: Path, about: dict[str, Any]) -> None:
    """A trajectory_msgs/JointTrajectory, for `ros2 topic pub` and whoever reads messages from YAML."""
    import yaml

    t, points = movement.trajectory, []
    for i, seconds in enumerate(t.time):
        whole = int(seconds)
        point = {name: getattr(t, name[:-1] if name != "velocities" else "velocity")[i].tolist() for name in
                 ("positions", "velocities", "accelerations")}  # fmt: skip
        nanoseconds = min(round((seconds - whole) * 1e9), 999_999_999)
        points.append({**point, "time_from_start": {"sec": whole, "nanosec": nanoseconds}})
    path.write_text(yaml.safe_dump({"joint_names": list(movement.joints), "points": points}, sort_keys=False))


# -- parameters ---------------------------------------------------------------------------------------------------


def _values_npz(values: Values, path: Path, about: dict[str, Any]) -> None:
    names = [f"{node} {name}" for node, name, _ in values.parameters]
    _savez(path, {**about, "names": names}, theta=np.array([float(value) for _, _, value in values.parameters]))


def _values_yaml(values: Values, path: Path, about: dict[str, Any]) -> None:
    """A ROS parameter file, for --params-file."""
    path.write_text(parameter_text(values.parameters))
