"""The graph's nodes as processes of ours, for where `ros2 launch` is not installed, and for tests."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from crbo_ros.bringup.graph import OPTIMIZER, RUNNER, NodeSpec
from crbo_ros.errors import StoreError
from crbo_ros.home import home
from crbo_ros.nodes import KEY, PARENT, died
from crbo_ros.protocol.database import private_folder
from crbo_ros.protocol.proofs import forget_key, keep_key

Say = Callable[[str], None]
Remap = Sequence[tuple[str, str]]

PATIENCE = 10.0  # s from the signal to SIGKILL: for all runners together, then for all others together
RESTARTS = 5  # of an optimizer or a monitor that died, in one run


def new_key() -> str:
    """What monitor and runners of one graph share; one from outside for a graph on several machines."""
    return os.environ.get(KEY) or secrets.token_hex(16)


def share_key(spec: NodeSpec, key: str) -> None:
    """Put the key where the operator's tools find it: into the experiment's folder, for its user alone."""
    with contextlib.suppress(OSError, StoreError):  # a folder that cannot be written is told by the nodes
        if folder := _folder_of(spec):
            private_folder(folder)
            keep_key(folder, key)


def withdraw_key(spec: NodeSpec, key: str) -> None:
    """The graph has ended: nothing is left in the record that should not be shared."""
    if folder := _folder_of(spec):
        forget_key(folder, key)


def _folder_of(spec: NodeSpec) -> Path | None:
    """The experiment's, where it has a name."""
    own = spec.configured()
    name = own.get("experiment")
    return home(str(own.get("experiments_dir") or "")) / str(name) if name else None


def environment(spec: NodeSpec, key: str) -> dict[str, str]:
    """What a node's process gets from us by environment: whom it must not outlive, and the key if it is to know it."""
    return {PARENT: str(os.getpid()), KEY: "" if spec.executable == OPTIMIZER else key}


def command(spec: NodeSpec, namespace: str, log_level: str, folder: Path, remap: Remap = ()) -> list[str]:
    """How a node is started; its own parameters go into a file, which keeps any string intact."""
    overrides = folder / f"{spec.name}.yaml"
    full_name = "/".join(["", *filter(None, [namespace.strip("/")]), spec.name])
    overrides.write_text(params_text(full_name, spec.parameters))
    line = [sys.executable, "-u", "-m", "crbo_ros.nodes", spec.executable, "--ros-args", "-r", f"__node:={spec.name}"]
    line += ["-r", f"__ns:=/{namespace.strip('/')}"] if namespace.strip("/") else []
    line += [word for old, new in remap for word in ("-r", f"{old}:={new}")]
    line += ["--params-file", str(spec.params_file), "--params-file", str(overrides), "--log-level", log_level]
    return [*line, *enclave(spec)]


def enclave(spec: NodeSpec) -> list[str]:
    """A node's own enclave, where SROS2 is switched on (see ros/security.py)."""
    return ["--enclave", f"/crbo/{spec.executable}"] if os.environ.get("ROS_SECURITY_ENABLE") == "true" else []


class Restarts:
    """Which node that ended is started again: an optimizer or a monitor that died, so often in a run.

    What moves things is not started again by itself: that is for a person to look at.
    """

    def __init__(self) -> None:
        self.count = 0

    def allow(self, spec: NodeSpec, code: int) -> str:
        """What to tell when it may be started again; else empty."""
        if spec.executable == RUNNER or not died(code) or self.count >= RESTARTS:
            return ""
        self.count += 1
        return f"{spec.name} died (exit code {code}); it is started again ({self.count} of {RESTARTS})"


class Process:
    """One node, its output passed on line by line with its name in front."""

    def __init__(self, spec: NodeSpec, line: list[str], key: str, say: Say) -> None:
        self.spec = spec
        # A session of its own: a Ctrl-C at the terminal reaches us alone, and we end the nodes in order, once each.
        self._popen = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True, env={**os.environ, **environment(spec, key)},
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

    def tell(self) -> None:
        """SIGINT: end. Waits for nothing."""
        if self.code is None:
            self._popen.send_signal(signal.SIGINT)

    def wait(self, deadline: float) -> int:
        """The exit code; SIGKILL if it still runs at the deadline (time.monotonic())."""
        try:
            self._popen.wait(max(0.0, deadline - time.monotonic()))
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
        self,
        specs: list[NodeSpec],
        *,
        namespace: str = "",
        log_level: str = "info",
        remap: Remap = (),
        say: Say = print,
    ) -> None:
        self.specs, self.namespace, self.log_level, self.remap, self.say = specs, namespace, log_level, remap, say
        self.processes: dict[str, Process] = {}
        self.key = new_key()
        self._restarts = Restarts()

    def start(self, name: str) -> Process:
        """Start (or start again) the node of that name."""
        spec = next(spec for spec in self.specs if spec.name == name)
        line = command(spec, self.namespace, self.log_level, Path(self._folder.name), self.remap)
        self.processes[name] = Process(spec, line, self.key, self.say)
        return self.processes[name]

    def of(self, executable: str) -> list[Process]:
        return [process for process in self.processes.values() if process.spec.executable == executable]

    def revive(self) -> dict[str, int]:
        """Start what died again, as far as that is allowed; exit codes of those that have ended for good."""
        ended = {}
        for name, process in list(self.processes.items()):
            if (code := process.code) is None:
                continue
            if line := self._restarts.allow(process.spec, code):
                self.say(f"crbo: {line}")
                self.start(name)
            else:
                ended[name] = code
        return ended

    def __enter__(self) -> Graph:
        os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
        self._folder = tempfile.TemporaryDirectory(prefix="crbo-")
        share_key(self.specs[0], self.key)
        try:
            for spec in self.specs:
                self.start(spec.name)
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def end(self) -> dict[str, int]:
        """End all processes: what moves first, all of it at once. Exit codes by name."""
        runners = self.of(RUNNER)
        codes = _end(runners) | _end([process for process in self.processes.values() if process not in runners])
        withdraw_key(self.specs[0], self.key)
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


def _end(processes: list[Process]) -> dict[str, int]:
    """Tell them all, then wait for them under one deadline."""
    for process in processes:
        process.tell()
    deadline = time.monotonic() + PATIENCE
    return {process.spec.name: process.wait(deadline) for process in processes}


def params_text(node: str, parameters: dict[str, Any]) -> str:
    """A parameter file for these values. JSON is YAML, but for infinity, which YAML writes .inf.

    By the node's full name: less specific entries would not override those of the config file.
    """
    text = json.dumps({node: {"ros__parameters": parameters}})
    return text.replace("-Infinity", "-.inf").replace("Infinity", ".inf")
