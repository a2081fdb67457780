"""Somebody else's package, once it is installed, adds a task, a method and a plant."""

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crbo_ros import registry
from crbo_ros.errors import UnknownName

PACKAGE = Path(__file__).parents[1] / "third_party_package"


def test_without_the_package_its_names_are_unknown() -> None:
    with pytest.raises(UnknownName, match=r"no task is called 'tiny'; there are: .*furuta"):
        registry.make_task("tiny")
    with pytest.raises(UnknownName, match="has no plant 'tiny_qube'"):
        registry.make_task("furuta", "tiny_qube")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package built into a folder with its metadata, as pip does; on sys.path for the tests of this file."""
    pytest.importorskip("setuptools")
    sources, target = tmp_path_factory.mktemp("sources") / "package", tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE, sources)
    steps = ["build_py", "--build-lib", str(target), "egg_info", "--egg-base", str(target)]
    subprocess.run([sys.executable, "setup.py", "-q", *steps], cwd=sources, check=True, timeout=120)
    sys.path.insert(0, str(target))
    importlib.invalidate_caches()
    yield target
    sys.path.remove(str(target))
    for name in [name for name in sys.modules if name.startswith("tiny_robot")]:
        del sys.modules[name]


def test_a_task_and_a_method_are_found_by_name_and_work_together(installed: Any) -> None:
    assert "tiny" in registry.names("tasks")
    assert "coin_toss" in registry.names("methods")
    task = registry.make_task("tiny", distance=0.5)
    method = registry.make_method("coin_toss", task.space, task.theta_0, seed=1, step=0.2)
    with task:
        for _ in range(30):
            proposal = method.ask()
            method.tell(proposal.id, task.rollout(proposal.theta, np.random.default_rng(proposal.id)).value)
    returns = method.data()[1]
    assert method.best().observed > returns[0] + 0.05


def test_our_method_works_on_their_task(installed: Any) -> None:
    task = registry.make_task("tiny")
    method = registry.make_method("crbo", task.space, task.theta_0, seed=1, gamma=task.gamma)
    for _ in range(8):
        proposal = method.ask()
        method.tell(proposal.id, task.rollout(proposal.theta, np.random.default_rng(0)).value)
    assert method.best().mean > method.data()[1][0]


def test_a_plant_is_found_for_a_task_of_ours(installed: Any) -> None:
    task = registry.make_task("furuta", "tiny_qube")
    with task:
        outcome = task.rollout(
            task.theta_0, np.random.default_rng(0), watch=lambda t, *_: "enough" if t > 0.1 else None
        )
    assert outcome.end == "stopped"
    assert task.plant.steps == outcome.steps > 20
    with pytest.raises(UnknownName, match=r"choose one of stand_in, .*tiny_qube"):
        registry.make_task("furuta", "nothing")


@pytest.mark.ros
@pytest.mark.slow
def test_their_task_and_method_run_on_the_graph_by_name(installed: Any, tmp_path: Path) -> None:
    pytest.importorskip("rclpy")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]),
        "ROS_DOMAIN_ID": str(20 + os.getpid() % 80),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    }
    words = ["run", "tiny", "--method", "coin_toss", "--episodes", "10", "--experiments-dir", str(tmp_path)]
    command = [sys.executable, "-m", "crbo_ros.cli", *words, "--no-report"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "episodes   10" in ran.stdout
