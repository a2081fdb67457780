"""Check this installation: versions, ROS and its middleware, a real ProposePolicy round trip, optional parts."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from crbo_ros import __version__
from crbo_ros.errors import PlantError, as_called
from crbo_ros.ros.link import RosLink

OPTIONAL = (
    ("numba", "fast simulations", "pip install numba"),
    ("matplotlib", "plots and reports", "pip install matplotlib"),
    ("jinja2", "reports", "pip install jinja2"),
    ("pybullet", "task basketball", "pip install pybullet (Python 3.12 and newer: pybullet-arm64)"),
    ("gymnasium", "tasks pendulum, cartpole, mountaincar, gym", "pip install gymnasium"),
    ("torch", "training, gpytorch surrogates", "./crbo train NAME installs it"),
    ("gpytorch", "surrogate: gpytorch", "./crbo bench NAME installs it"),
    ("botorch", "method logei", "./crbo bench NAME installs it"),
    ("cma", "method cma_es", "./crbo bench NAME installs it"),
    ("stable_baselines3", "training of the gym agents", "./crbo train NAME installs it"),
    ("PySide6", "the window without rqt", "./crbo gui installs it"),
    (
        "gym_brt",
        "plants qube_hardware, gym_brt_sim",
        "from BlueRiverTech/quanser-openai-driver, with Quanser's HIL SDK",
    ),
    ("pal", "plant qube_pal", "from Quanser's SDK for the Qube Servo 2"),
    ("launch_ros", "ros2 launch", "part of ROS 2 Jazzy from apt"),
    ("rqt_gui", "rqt", "part of ROS 2 Jazzy from apt"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-round-trip", action="store_true", help="do not start a node")
    parser.add_argument("--fix", action="store_true", help="mend the environment of a clone first (./crbo)")
    parser.add_argument("--plant", help="try the ways to the safe state on this real plant, with you there")
    parser.add_argument("--config", default="", help="YAML file (plants of the tasks tuning and arm)")


def run(args: argparse.Namespace) -> int:
    if args.plant is not None:
        from crbo_ros.commands.doctor_plant import try_plant

        return try_plant(args.plant, {"config": args.config} if args.config else {})
    print(f"crbo_ros     {__version__}")
    print(f"Python       {platform.python_version()} ({sys.executable})")
    for name in ("numpy", "scipy"):
        print(f"{name:12} {importlib.import_module(name).__version__}")
    print(f"real time    {real_time_text()}")
    problems = [] if args.no_round_trip else check_ros()
    print("\noptional parts")
    for module, use, how in OPTIONAL:
        found = importlib.util.find_spec(module) is not None
        print(
            f"  {'ok' if found else '--'} {module:18} {_version(module) if found else '':12} {use}"
            + ("" if found else f": {advice(how)}")
        )
    for problem in problems:
        print(f"\nproblem: {as_called(problem)}", file=sys.stderr)
    print("\nall well" if not problems else "\nnot well")
    return 1 if problems else 0


def advice(how: str) -> str:
    """A clone installs what a command needs; elsewhere pip's extra of the command's name does."""
    if how.startswith("./crbo ") and not os.environ.get("CRBO_ROOT"):
        return f'pip install "crbo_ros[{how.split()[1]}]"'
    return how


def real_time_text() -> str:
    """What a plant host may have on this machine: tried in a process of its own."""
    code = "from crbo_ros.plants.realtime import real_time; print('; '.join(real_time()))"
    tried = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return tried.stdout.strip() or "memory can be locked, priority raised (for hardware)"


def _version(module: str) -> str:
    try:
        return version(module.replace("_", "-"))
    except PackageNotFoundError:
        return ""


def check_ros() -> list[str]:
    """ROS, its middleware, and a proposal from an optimizer in another process. Problems, in words."""
    try:
        from rclpy.utilities import get_rmw_implementation_identifier
    except ImportError as error:
        return [f"rclpy cannot be imported ({error}); source ROS 2 Jazzy, or use the crbo of a clone, with its own"]
    try:
        from crbo_ros.srv import ProposePolicy  # built from srv/
    except ImportError as error:
        return [f"the interfaces are not built ({error}): use the crbo of a clone, or colcon build and source it"]
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    os.environ["ROS_DOMAIN_ID"] = str(20 + os.getpid() % 60)
    print(f"ROS          {os.environ.get('ROS_DISTRO', '?')}, {get_rmw_implementation_identifier()}")
    from crbo_ros.bringup.graph import NodeSpec
    from crbo_ros.bringup.processes import Graph

    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "doctor.yaml"
        file.write_text("/**:\n  ros__parameters:\n    task: custom\n")
        options = {"lower": [0.0], "upper": [1.0], "theta_0": [0.25], "hardware": False}
        parameters = {"experiment": "doctor", "experiments_dir": folder, "task_options": options}
        with Graph([NodeSpec("optimizer", "optimizer", file, parameters)], say=said.append), RosLink("doctor") as link:
            return _round_trip(link, ProposePolicy.Request(runner="doctor", request_id="1"), said)


def _round_trip(link: RosLink, request: Any, said: list[str]) -> list[str]:
    service = ("crbo_ros/srv/ProposePolicy", "/propose_policy")
    start = time.monotonic()
    try:
        link.ready(*service, seconds=30.0)
        while time.monotonic() - start < 30.0:
            asked = time.monotonic()
            answer = link.ask(*service, request, 15.0)
            if answer.status == answer.OK:
                theta = list(answer.proposal.theta)
                ready, answered = asked - start, 1e3 * (time.monotonic() - asked)
                print(
                    f"round trip   ProposePolicy from another process in {answered:.1f} ms (ready after {ready:.1f} s)"
                )
                return [] if theta == [0.25] else [f"the optimizer proposed {theta} instead of theta_0"]
            time.sleep(0.2)
        problem = answer.reason
    except PlantError as error:
        problem = str(error)
    tail = "\n  ".join(said[-5:])
    return [f"no proposal came from an optimizer in another process within 30 s: {problem}. It said:\n  {tail}"]
