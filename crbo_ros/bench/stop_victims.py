"""The processes that bench/stops.py breaks: a runner's half of each plant, moving for ever. Lines of JSON tell.

python -m crbo_ros.bench.stop_victims '{"plant": "qube", "record": "card", "fault": "raises"}'
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np

from crbo_ros.errors import InvalidInput, PlantError
from crbo_ros.nodes import PARENT

AFTER = 40  # steps until the policy breaks


def tell(event: str, **more: Any) -> None:
    more = {"time": time.monotonic(), "pid": os.getpid(), **more}
    print(json.dumps({"event": event, **more}), flush=True)


LAUNCHER_GONE = "the process that started this one is gone"
orphaned = threading.Event()


def launch(order: dict[str, Any]) -> None:
    """Start the victim as bringup starts a runner (a session of its own, told whom it must not outlive), and wait."""
    line = [sys.executable, "-m", "crbo_ros.bench.stop_victims", json.dumps(order)]
    subprocess.run(line, start_new_session=True, env={**os.environ, PARENT: str(os.getpid())}, check=False)


def watch_launcher() -> None:
    """As a node's process does (nodes/process.py), at its pace."""
    from crbo_ros.nodes.process import Launcher

    launcher = Launcher()

    def look() -> None:
        while not launcher.gone():
            time.sleep(0.1)
        orphaned.set()

    threading.Thread(target=look, daemon=True).start()


def qube(order: dict[str, Any]) -> None:
    """2.5 V to and fro; after an end it is stopped, told, and armed anew, `repeats` times."""
    from crbo_ros.plants.qube.hardware import QubeHardware

    options = {name: order[name] for name in ("record", "fault", "board") if name in order}
    plant = QubeHardware("crbo_ros.bench.broken:BrokenQube", after=order.get("after", 120), **options)
    plant.connect()
    for _ in range(order.get("repeats", 1)):
        plant._hurry(True)
        plant._connected().arm()
        tell("moving", host=plant._host.pid)
        try:
            step = 0
            while True:
                plant.step(np.array([2.5 * (-1) ** (step // 20)]))
                step += 1
                if step > AFTER and "policy" in order:
                    tell("breaks")
                    break_policy(order["policy"])
                if orphaned.is_set():
                    raise PlantError(LAUNCHER_GONE)
                if step == order.get("steps", -1):
                    tell("breaks")
                    break
            why = "its end"
        except PlantError as error:
            why = str(error)
        except MemoryError:
            why = "out of memory"
        safe = plant.stop()
        tell("end", why=why, confirmed=safe.confirmed, reason=safe.reason)
    try:
        plant.close()
    except Exception as error:
        tell("close", why=str(error))


def break_policy(how: float | str) -> None:
    if how == "hangs":
        time.sleep(0.3)
    elif how == "hangs with the lock":
        ctypes.PyDLL(None).usleep(300_000)
    elif how == "out of memory":
        resource.setrlimit(resource.RLIMIT_AS, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, -1))
        kept = []
        while True:
            kept.append(np.ones(1_000_000))
    else:
        time.sleep(1e-3 * float(how))


def tuning(order: dict[str, Any]) -> None:
    """A trial that lasts until somebody ends it; `trials` of them; or one that `ends` by itself."""
    from crbo_ros.registry import make_task

    with make_task("tuning", config=order["config"]) as task:
        tell("connected", host=task.plant._host.pid, values=task.plant._grouped(task.theta_0))
        last = time.monotonic()

        def watch(seconds: float, *_: Any) -> str | None:
            nonlocal last
            last = time.monotonic()
            if order.get("hang") and seconds > 0.5:
                tell("breaks")
                ctypes.PyDLL(None).usleep(3_000_000)
            if order.get("stop") and seconds > 0.5:
                return "stop was called"
            return LAUNCHER_GONE if orphaned.is_set() else None

        why = "no trial"
        try:
            for _ in range(order.get("trials", 1)):
                outcome = task.rollout(np.array(order["theta"]), np.random.default_rng(0), watch=watch)
                why = outcome.reason or f"the trial {outcome.end}"
            if order.get("stop") or order.get("ends"):
                tell("breaks", time=last)  # the watch's last word, or the episode's last look
        except InvalidInput as error:
            why = str(error)
        safe = task.stop()
        tell("end", why=why, confirmed=safe.confirmed, reason=safe.reason)


def arm(order: dict[str, Any]) -> None:
    """A slow movement that lasts until somebody ends it."""
    from crbo_ros.plants.ros.joint_trajectory import JointTrajectoryArm
    from crbo_ros.plants.trajectory import ArmLimits, minimum_jerk
    from crbo_ros.ros.link import Stopped

    limits = ArmLimits(("shoulder", "elbow"), *np.array([[-3.0, -3.0], [3.0, 3.0], [3.0, 3.0]]))
    with JointTrajectoryArm(limits, log=lambda text: tell("log", text=text)) as plant:
        plant.move_to([0.0, 0.6], 0.5)
        tell("connected", host=plant._host.pid)  # type: ignore[union-attr]
        began = time.monotonic()

        def poll() -> None:
            if order.get("hang") and time.monotonic() - began > 1.0:
                tell("breaks")
                ctypes.PyDLL(None).usleep(3_000_000)
            if order.get("stop") and time.monotonic() - began > 1.0:
                tell("breaks")
                raise Stopped("stop was called")
            if orphaned.is_set():
                raise Stopped(LAUNCHER_GONE)

        why = ""
        try:
            plant.execute(minimum_jerk(plant.position(), [2.5, 2.5], 8.0), poll)
        except (PlantError, Stopped) as error:
            why = str(error)
        safe = plant.stop()
        tell("end", why=why, confirmed=safe.confirmed, reason=safe.reason)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given.pop("launch", False):
        launch(given)
        sys.exit()
    if os.environ.get(PARENT):
        watch_launcher()
    {"qube": qube, "tuning": tuning, "arm": arm}[given["plant"]](given)
