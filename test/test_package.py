"""The package as others take it: one version, a change log that tools read, and every dependency in package.xml."""

import ast
import re
import sys
from pathlib import Path

import pytest

import crbo_ros

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "package.xml").exists(), reason="only where the sources are")

KEYS = {  # what is imported -> its rosdep key (ros/rosdistro, rosdep/python.yaml, looked up in August 2026)
    "PIL": "python3-pil",
    "cycler": "python3-matplotlib",  # (which needs it)
    "gymnasium": "python3-gymnasium-pip",
    "hypothesis": "python3-hypothesis",
    "jinja2": "python3-jinja2",
    "matplotlib": "python3-matplotlib",
    "mcap": "mcap-ros2-support",
    "mcap_ros2": "mcap-ros2-support",
    "numba": "python3-numba",
    "numpy": "python3-numpy",
    "pybullet": "python3-pybullet-pip",
    "pybullet_data": "python3-pybullet-pip",
    "pyqtgraph": "python3-pyqtgraph",
    "pytest": "python3-pytest",
    "_pytest": "python3-pytest",
    "scipy": "python3-scipy",
    "tqdm": "python3-tqdm",
    "yaml": "python3-yaml",
}
FROM_PIP = {  # extras of setup.py: what CRBO is compared with, training, other file formats, other people's benchmarks
    *"PySide6 botorch cma cmaes coverage distributed gpytorch joblib mujoco onnx pandas ray torch".split(),
    "stable_baselines3",
}


INPUTS = {  # what the actions take, by their own action.yml
    "actions/checkout@v4": {"path", "ref", "fetch-depth"},
    "actions/setup-python@v5": {"python-version", "cache"},
    "actions/upload-artifact@v4": {"name", "path"},
}


def dependencies() -> set[str]:
    return {*re.findall(r"<(?:\w+_)?depend\b[^>]*>([\w-]+)<", (ROOT / "package.xml").read_text())}


def imported() -> dict[str, Path]:
    """Top-level modules of others that the package imports, and where."""
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "crbo_ros").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            found |= {name.split(".")[0]: path for name in names}
    ours = {*sys.stdlib_module_names, "crbo_ros", *FROM_PIP}
    return {name: path for name, path in found.items() if name not in ours}


def test_there_is_one_version_and_the_newest_entry_of_the_change_log_is_its() -> None:
    declared = re.findall(r"<version>(.+)</version>", (ROOT / "package.xml").read_text())
    assert declared == [crbo_ros.__version__]
    titles = re.findall(
        r"(?m)^(Forthcoming|\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\))\n-+$", (ROOT / "CHANGELOG.rst").read_text()
    )
    assert next(title for title in titles if title != "Forthcoming").split()[0] == crbo_ros.__version__


def test_the_change_log_is_one_that_the_release_tools_read() -> None:
    changelog = pytest.importorskip("catkin_pkg.changelog")
    pytest.importorskip("docutils")
    read = changelog.get_changelog_from_path(str(ROOT), "crbo_ros")
    version, date, entries = next(iter(read.foreach_version()))
    assert version == crbo_ros.__version__
    assert date is not None
    assert len(entries[0].bullets) > 50


def test_whatever_is_imported_stands_in_package_xml_under_its_rosdep_key() -> None:
    listed = dependencies()
    for name, path in imported().items():
        assert KEYS.get(name, name) in listed, f"{path.relative_to(ROOT)} imports {name}"
    assert not {*KEYS.values()} - listed


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({"ROS_DISTRO": "jazzy"}, set()),
        ({"ROS_DISTRO": "jazzy", "CRBO_SIMULATORS": "yes"}, {"python3-gymnasium-pip", "mcap-ros2-support"}),
        (
            {"ROS_DISTRO": "humble", "CRBO_SIMULATORS": "yes"},
            {"python3-gymnasium-pip", "mcap-ros2-support", "python3-pybullet-pip"},
        ),
    ],
)
def test_rosdep_installs_by_pip_only_what_is_asked_for(environment: dict[str, str], wanted: set[str]) -> None:
    package = pytest.importorskip("catkin_pkg.package").parse_package(str(ROOT / "package.xml"))
    package.evaluate_conditions(environment)
    found = {dependency.name for dependency in package.exec_depends if dependency.evaluated_condition}
    assert {name for name in found if name.endswith("-pip") or name.startswith("mcap")} == wanted
    assert {"rclpy", "python3-numpy"} <= found


def test_the_workflow_tries_every_python_that_is_supported_and_gives_actions_what_they_take() -> None:
    yaml = pytest.importorskip("yaml")
    file = ROOT / ".github" / "workflows" / "ci.yml"
    if not file.exists():
        pytest.skip("only in a clone")
    jobs = yaml.safe_load(file.read_text())["jobs"]
    supported = re.findall(r"\| Python \| ([\d., ]+) \|", (ROOT / "docs" / "SUPPORT.md").read_text())
    assert jobs["quick"]["strategy"]["matrix"]["python"] == supported[0].split(", ")
    for step in (step for job in jobs.values() for step in job["steps"]):
        assert ("uses" in step) != ("run" in step)
        assert "uses" not in step or set(step.get("with", {})) <= INPUTS[step["uses"]]
    assert {*jobs} == {"quick", "slow", "docs", "library", "ros"}
