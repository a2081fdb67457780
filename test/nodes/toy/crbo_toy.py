"""A task for tests, registered by entry point: a known return, a ledger of what really ran, and faults on request."""

import json
import os
import time
from typing import Any

import numpy as np

from crbo_ros.core.safe import Safe
from crbo_ros.core.space import Space
from crbo_ros.core.trial import theta_hash
from crbo_ros.protocol import optimizer
from crbo_ros.tasks.base import COMPLETED, FAILED, STOPPED, Outcome, Task, Trajectory

RATE = 100.0  # Hz
optimizer.LEASE = float(os.environ.get("TOY_LEASE") or optimizer.LEASE)  # nobody wants to wait for ten minutes


class Toy(Task):
    """Return 1 - |theta - 0.7|^2. Each start, first action, end and safe stop is a line in the ledger.

    `says`: the episode's seconds as others are told. `reset`: seconds on the way to a start that it then holds.
    `broken`: a file; while it is there, the first step raises what nobody expects. `real`: as if it could hurt.
    """

    name = "toy"
    plants = ("toy",)
    gamma = 0.5
    hardware = False
    incidental = ("ledger", "seconds", "says", "fail_after", "reset", "broken")

    def __init__(
        self,
        plant: Any = None,
        *,
        ledger: str = "",
        seconds: float = 0.0,
        says: float | None = None,
        fail_after: int = -1,
        reset: float = 0.0,
        broken: str = "",
        stop_raises: bool = False,
        real: bool = False,
    ) -> None:
        super().__init__(plant)
        self.hardware = real
        self.space = Space([0.0] * 3, [1.0] * 3)
        self.theta_0 = np.full(3, 0.4)
        self.ledger, self.seconds, self.fail_after = ledger, seconds, fail_after
        self.episode_seconds, self.stop_raises = seconds + reset if says is None else says, stop_raises
        self.reset, self.broken, self.holds_start = reset, broken, reset > 0.0
        self.runs = 0

    def limits_in_words(self) -> str:
        return "up to 1 V"

    def write(self, event: Any, **more: Any) -> None:
        if self.ledger:
            line = json.dumps({"event": event, "pid": os.getpid(), "time": time.time(), **more}) + "\n"
            with open(self.ledger, "a") as file:
                file.write(line)

    def rollout(self, theta: Any, rng: np.random.Generator, *, record: bool = False, watch: Any = None) -> Outcome:
        theta = self.space.check(theta)
        self.runs += 1
        self.write("start", hash=theta_hash(theta), record=record)
        if 0 <= self.fail_after < self.runs:
            return Outcome(float("nan"), FAILED, "the toy's motor is broken")
        steps = max(1, round(self.seconds * RATE))
        for step in range(-round(self.reset * RATE), steps):
            if watch is not None and (reason := watch(step / RATE, theta, theta)):
                self.write("stopped", hash=theta_hash(theta))
                return Outcome(float("nan"), STOPPED, reason, step, step / RATE)
            if step < 0:
                time.sleep(1.0 / RATE)
                continue
            if step == 0:
                self.write("act", hash=theta_hash(theta))
            if os.path.exists(self.broken):
                raise KeyError("a wire that nobody thought of")
            if self.seconds:
                time.sleep(1.0 / RATE)
        value = 1.0 - float(np.sum((theta - 0.7) ** 2)) + 0.01 * rng.standard_normal()
        self.write("end", hash=theta_hash(theta), value=value)
        trajectory = Trajectory(np.arange(steps) / RATE, {"theta": np.full(steps, theta[0])}) if record else None
        return Outcome(value, COMPLETED, "", steps, steps / RATE, trajectory=trajectory)

    def stop(self) -> Safe | None:
        if self.stop_raises and self.runs:
            raise RuntimeError("the toy's brake is broken")
        self.write("safe")
        return Safe(True, "the toy stands") if self.hardware else None

    def close(self) -> None:
        if self.stop_raises:
            self.write("closed")
