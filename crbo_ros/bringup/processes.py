"""The graph's nodes as processes of ours, for where `ros2 launch` is not installed, and for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from crbo_ros.bringup.graph import NodeSpec
from crbo_ros.nodes import PARENT

Say = Callable[[str], None]


class Process:
    """One node, its output passed on line by line with its name in front."""

    def __init__(self, spec: NodeSpec, namespace: str, log_level: str, folder: Path, say: Say) -> None:
        self.spec = spec
        overrides = folder / f"{spec.name}.yaml"  # a file keeps any string intact
        full_name = "/".join(["", *filter(None, [namespace.strip("/")]), spec.name])
        overrides.write_text(params_text(full_name, spec.parameters))
        command = [sys.executable, "-u", "-m", "crbo_ros.nodes", spec.executable]
        command += ["--ros-args", "-r", f"__node:={spec.name}"]
        command += ["-r", f"__ns:=/{namespace.strip('/')}"] if namespace.strip("/") else []
        command += ["--params-file", str(spec.params_file), "--params-file", str(overrides), "--log-level", log_level]
        # A session of its own: a Ctrl-C at the terminal reaches us alone, and we end the nodes in order, once each.
        self._popen = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, PARENT: str(os.getpid())},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._pass_on, args=(say,), daemon=True)
        self._reader.start()

    def _pass_on(self, say: Say) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            say(f"[{self.spec.name}] {line.rstrip()}")

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def code(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._popen.poll()

    def end(self, timeout: float = 10.0) -> int:
        """SIGINT once, and SIGKILL if that did not help in time; the exit code."""
        if self.code is None:
            self._popen.send_signal(signal.SIGINT)
        return self.wait(timeout)

    def wait(self, timeout: float) -> int:
        try:
            self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(1.0)
        return int(self._popen.returncode)

    def kill(self) -> None:
        """SIGKILL, and wait for it."""
        self._popen.kill()
        self._popen.wait()


class Graph:
    """All processes of a graph; a context manager that ends them on every way out, runners first."""

    def __init__(
        self, specs: list[NodeSpec], *, namespace: str = "", log_level: str = "info", say: Say = print
    ) -> None:
        self.specs, self.namespace, self.log_level, self.say = specs, namespace, log_level, say
        self.processes: dict[str, Process] = {}

    def start(self, name: str) -> Process:
        """Start (or start again) the node of that name."""
        spec = next(spec for spec in self.specs if spec.name == name)
        self.processes[name] = Process(spec, self.namespace, self.log_level, Path(self._folder.name), self.say)
        return self.processes[name]

    def of(self, executable: str) -> list[Process]:
        return [process for process in self.processes.values() if process.spec.executable == executable]

    def __enter__(self) -> Graph:
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        self._folder = tempfile.TemporaryDirectory(prefix="crbo-")
        for spec in self.specs:
            self.start(spec.name)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def end(self) -> dict[str, int]:
        """End all processes: what moves first. Exit codes by name."""
        order = sorted(self.processes.values(), key=lambda process: process.spec.executable != "episode_runner")
        codes = {process.spec.name: process.end() for process in order}
        self._folder.cleanup()
        return codes

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds; False when time is up."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(0.02)
        return False


def params_text(node: str, parameters: dict[str, Any]) -> str:
    """A parameter file for these values. JSON is YAML, but for infinity, which YAML writes .inf.

    By the node's full name: less specific entries would not override those of the config file.
    """
    text = json.dumps({node: {"ros__parameters": parameters}})
    return text.replace("-Infinity", "-.inf").replace("Infinity", ".inf")
