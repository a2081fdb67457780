"""The optimizer as a library, in an environment that has NumPy and SciPy and nothing else: no rclpy, no numba."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder with crbo_ros, numpy and scipy, to be the whole of sys.path besides the standard library."""
    site = tmp_path_factory.mktemp("site")
    (site / "crbo_ros").symlink_to(ROOT / "crbo_ros")
    for name in ("numpy", "scipy"):
        spec = find_spec(name)
        assert spec is not None
        package = Path(str(spec.origin)).parent
        (site / name).symlink_to(package)
        for libraries in package.parent.glob(f"{name}.libs"):
            (site / libraries.name).symlink_to(libraries)
    return site


def python(site: Any, *arguments: Any) -> Any:
    keep = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH", "HOME")}
    environment = {**keep, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-S", *map(str, arguments)]  # -S: no site-packages
    return subprocess.run(command, env=environment, cwd=site, capture_output=True, text=True, timeout=120, check=False)


def test_the_environment_really_has_no_ros(bare: Any) -> None:
    found = python(bare, "-c", "import rclpy")
    assert "No module named 'rclpy'" in found.stderr


def test_the_example_runs_and_improves_without_ros(bare: Any) -> None:
    ran = python(bare, ROOT / "examples" / "library.py")
    assert ran.returncode == 0, ran.stderr
    told = re.search(r"start (\S+), best (\S+) at", ran.stdout)
    assert told is not None
    start, best = map(float, told.groups())
    assert start == pytest.approx(0.195, abs=0.001)
    assert best > 0.8  # the optimum is 1


def test_tasks_that_need_ros_say_so_only_when_they_connect(bare: Any) -> None:
    code = (
        "from crbo_ros.ros.link import RosLink\n"
        "from crbo_ros.errors import MissingDependency\n"
        "try:\n    RosLink('x').open()\nexcept MissingDependency as error:\n    print(error)"
    )
    ran = python(bare, "-c", code)
    assert "needs ROS 2 (rclpy)" in ran.stdout, ran.stderr
