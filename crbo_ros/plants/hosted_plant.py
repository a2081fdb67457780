"""Any plant in a host of its own, by one line: it keeps its driver, and gets the host's deadline, lock and answers.

    plant = HostedPlant("my_package.my_robot:MyRobot", {"port": "/dev/ttyUSB0"}, target="/dev/ttyUSB0")

MyRobot is a Plant (plants/base.py) with a `stop` that answers with a Safe. It is made, reset, stepped and stopped in
the host's process. No step for 3 periods, a parent that is frozen, hung or dead: its `stop` is called there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crbo_ros.core.safe import Safe
from crbo_ros.errors import PlantError, PolicyFailed
from crbo_ros.plants.base import Array, Plant, ResetStopped
from crbo_ros.plants.host import load
from crbo_ros.plants.hosted import PlantHost

PERIODS = 3
SILENCE = 0.5  # s without a word of the parent during a reset
STEP, RESET, BEAT, READY = 0.0, 1.0, 2.0, 3.0  # what a command asks for: its first value


class PlantJob:
    """The host's end: a plant, and what its parent says meanwhile (`heard`, set by the host)."""

    self_paced = True  # a plant's step keeps its own period

    def __init__(self, *, plant: str, options: dict[str, Any], say: Callable[[str], None]) -> None:
        self.plant: Plant = load(plant)(**options)
        self.heard: Callable[[], list[Sequence[float]] | None] = lambda: []  # since then; None: a request waits
        self.plant.connect()

    def command(self, values: Sequence[float]) -> Array | None:
        if values[0] == STEP:
            return np.asarray(self.plant.step(np.array(values[1:])), dtype=np.float64)
        return self._reset(int(values[1])) if values[0] == RESET else None

    def _reset(self, seed: int) -> Array:
        last, ready = time.monotonic(), False

        def watch(*_: Any) -> str | None:
            nonlocal last, ready
            if (words := self.heard()) is None:
                return "stopped"
            if words:
                last, ready = time.monotonic(), ready or any(word[0] == READY for word in words)
            return None if time.monotonic() - last <= SILENCE else "the runner fell silent during the reset"

        self.plant.reset_watch, self.plant.reset_ready = watch, lambda: ready
        observation = self.plant.reset(np.random.default_rng(seed))
        while not ready:  # a plant that does not hold itself waits here
            if reason := watch():
                raise ResetStopped(reason)
            time.sleep(0.005)
        return np.asarray(observation, dtype=np.float64)

    def make_safe(self, last: bool) -> Safe | None:
        return self.plant.stop()

    def close(self) -> None:
        self.plant.close()


class HostedPlant(Plant):
    """See the module's docstring. `rate`: of the plant, Hz."""

    is_hardware = True
    hosted = True

    def __init__(
        self,
        plant: str,
        options: Mapping[str, Any] | None = None,
        *,
        target: str = "",
        rate: float = 0.0,
        silence: float = 0.05,
        make_host: Callable[..., Any] = PlantHost,
    ) -> None:
        kind = load(plant)
        self._plant, self._options, self._target = plant, dict(options or {}), target or plant
        self.rate = rate or float(kind.rate)
        self.joint_names, self.reset_timeout = kind.joint_names, kind.reset_timeout
        self._silence, self._make_host = silence, make_host
        self._host: Any = None

    def connect(self) -> None:
        if self._host is None:
            arguments = {"plant": self._plant, "options": self._options}
            limits = {"late_share": 0.1, "max_gap": float(PERIODS), "max_stretch": 1.05}
            host = self._make_host(
                self._target, "crbo_ros.plants.hosted_plant:PlantJob", arguments, patience=PERIODS / self.rate,
                rate=self.rate, limits=limits, silence=self._silence, device=True,
            )  # fmt: skip
            host.wait_ready()
            host.make_safe()
            self._host = host

    def reset(self, rng: np.random.Generator) -> Array:
        if self._host is None:
            raise PlantError("not connected; use it in a `with` block")
        if not self._host.alive:
            self.close()
            self.connect()
        self._host.arm()
        deadline = time.monotonic() + self.reset_timeout

        def waiting() -> list[float]:
            """Asked at every slice of the wait; what the host is told meanwhile."""
            if self.reset_watch is not None and (reason := self.reset_watch(np.empty(0), np.empty(0))):
                raise ResetStopped(reason)
            ready = self.reset_ready is None or self.reset_ready()
            if not ready and self.reset_ready is None and time.monotonic() > deadline:
                raise PlantError(f"not ready within {self.reset_timeout:g} s")
            return [READY if ready else BEAT]

        try:
            observation: Array = self._host.command([RESET, float(rng.integers(2**31))], waiting)
            self._host.pace()
        except BaseException:
            self.stop()
            raise
        return observation

    def step(self, action: Array) -> Array:
        if self._host is None:
            raise PlantError("not connected; use it in a `with` block")
        if not np.all(np.isfinite(action)):
            self.stop()
            raise PolicyFailed(f"the action {action} is not finite")
        observation: Array = self._host.command([STEP, *np.asarray(action, dtype=np.float64)])
        return observation

    def stop(self) -> Safe:
        safe: Safe = Safe(True, "not connected") if self._host is None else self._host.stop()
        return safe

    def cut(self) -> None:
        if self._host is not None:
            self._host.cut()

    def close(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.dismiss()

    def statistics(self) -> dict[str, float]:
        return {} if self._host is None else dict(self._host.statistics())
