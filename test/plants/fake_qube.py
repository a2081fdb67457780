"""A Qube that is not there: fakes of gym-brt's and pal's classes with the real signatures, moved by our own physics.

Time is faked too: sleeping and waiting for the card's clock move `FakeClock` on, so that 20 s pass in moments.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crbo_ros.compiled import QubeParameters
from crbo_ros.core.safe import Safe
from crbo_ros.errors import PlantFailed
from crbo_ros.plants.host import load
from crbo_ros.plants.qube.model import stand_in
from crbo_ros.plants.qube.simulation import QubeSim
from crbo_ros.plants.realtime import Pacer

TICK = 2.0 * math.pi / 2048.0


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 1e-6)


class FakeCard:
    """The device behind both drivers: raw encoder counts (arm sign as on the card), raw voltage, and its faults."""

    def __init__(self, parameters: QubeParameters | None = None, clock: FakeClock | None = None) -> None:
        parameters = (parameters or stand_in())._replace(max_voltage=15.0, latency=0.0, encoder_counts=0.0)
        self.plant = QubeSim(parameters._replace(filter_bandwidth=0.0))
        self.plant.reset_to(np.array([0.0, math.pi, 0.0, 0.0]))  # hanging
        self.clock = clock or FakeClock()
        self.voltages: list[float] = []
        self.closed = False
        self.arm_sign = -1.0  # our arm angle falls when the card's rises
        self.fail_at: int | None = None  # write that raises
        self.hang_at: int | None = None  # write that never returns
        self.frozen = False  # encoders that no longer change
        self.slow = 0.0  # s that every exchange takes too long
        self.lift_at: float | None = None  # time at which somebody lifts the pendulum
        self._counts = (0, 0)
        self._released = threading.Event()

    def counts(self) -> tuple[int, int]:
        if not self.frozen:
            arm = round(self.arm_sign * self.plant.state[0] / TICK)
            self._counts = (arm, round((self.plant.state[1] - math.pi) / TICK))
        return self._counts

    def write(self, voltage: float) -> None:
        if self.hang_at is not None and len(self.voltages) == self.hang_at:
            self.hang_at = None
            self._released.wait(5.0)  # for a test as good as for ever
        if self.fail_at is not None and len(self.voltages) == self.fail_at:
            self.fail_at = None
            raise OSError("HIL: the device was unplugged")
        self.voltages.append(float(voltage))
        if self.lift_at is not None and self.clock.now > self.lift_at:
            self.lift_at = None
            self.plant.state[:] = 0.0, 0.02, 0.0, 0.0
        self.plant.step(np.array([voltage]))

    def release(self) -> None:
        self._released.set()


class InProcessHost:
    """What PlantHost offers, without a process and on the card's clock. (test_host.py tries the real one.)"""

    clock: Any = None  # of whatever test is under way

    def __init__(
        self, target: str, job: str, arguments: dict[str, Any], *, rate: float, limits: Any, **options: Any
    ) -> None:
        self._make: Any = lambda: load(job)(
            say=print, clock=type(self).clock, sleep=type(self).clock.sleep, **arguments
        )
        self.pacer = Pacer(rate, clock=type(self).clock, sleep=type(self).clock.sleep, **limits)
        self.armed, self.alive, self.lapsed = False, True, ""
        self.notes: list[str] = []
        self.safe = Safe(True, "nothing was commanded")

    def wait_ready(self, timeout: float) -> None:
        self.job = self._make()

    def arm(self) -> None:
        self.armed = True
        self.pacer.start()

    def pace(self) -> None:
        self.pacer.start()

    def command(self, values: Any) -> Any:
        if not self.armed:  # (the real one insists on being armed first)
            self.arm()
        try:
            if not self.job.self_paced:
                self.pacer.wait()
            measured = self.job.command(values)
            if self.job.self_paced:
                self.pacer.mark()
        except Exception as error:
            self.lapsed, self.armed = str(error), False
            self.safe = self._make_safe(True)
            raise PlantFailed(f"{error}") from None
        return measured

    def _make_safe(self, last: bool) -> Safe:
        try:
            found: Safe = self.job.make_safe(last)
            return found
        except Exception as error:
            return Safe(False, str(error))

    def make_safe(self) -> Safe:
        self.armed = True
        return self.stop()

    def stop(self) -> Safe:
        if self.armed:
            self.armed, self.safe = False, self._make_safe(False)
        return self.safe

    def statistics(self) -> dict[str, float]:
        return self.pacer.statistics()

    def dismiss(self) -> None:
        self.job.close()


def install_gym_brt(monkeypatch: pytest.MonkeyPatch, card: FakeCard) -> None:
    """`from gym_brt.quanser import QubeHardware, QubeSimulator`, as in gym-brt."""

    class QubeHardware:
        def __init__(self, frequency: float = 250, max_voltage: float = 18.0) -> None:
            self._frequency = frequency
            self._filters = np.zeros(2)

        def step(self, action: Any, led: Any = None) -> Any:
            assert isinstance(action, np.ndarray)
            assert action.shape == (1,)
            assert action.dtype == np.float64
            arm, pendulum = card.counts()
            card.clock.sleep(1.0 / self._frequency + card.slow)  # its reader task blocks until the next sample
            card.write(action[0])
            angles = np.array([-arm * TICK, pendulum * TICK])
            rates = -2500.0 * self._filters + 50.0 * angles
            self._filters += (-50.0 * self._filters + angles) / self._frequency
            return np.array([angles[0], angles[1] % (2.0 * np.pi) - np.pi, *rates])

        def close(self, type: Any = None, value: Any = None, traceback: Any = None) -> None:
            card.voltages.append(0.0)  # as the wrapper's __exit__
            card.plant.stop()
            card.closed = True

    class QubeSimulator:
        def __init__(
            self,
            forward_model: str = "ode",
            frequency: float = 250,
            integration_steps: int = 1,
            max_voltage: float = 18.0,
        ) -> None:
            self._plant = QubeSim(stand_in()._replace(max_voltage=max_voltage, rate=float(frequency)))
            self.state: Any = np.random.randn(4) * 0.01  # noqa: NPY002  (as gym-brt does)

        def step(self, action: Any, led: Any = None) -> Any:
            assert np.ndim(action) == 0  # its integrator fails on arrays
            self._plant.reset_to(np.array(self.state))
            self._plant.step(np.array([action]))
            self.state = tuple(self._plant.state)
            return self.state

        def reset_up(self) -> Any:
            self.state = np.random.randn(4) * 0.01  # noqa: NPY002  (as gym-brt does)
            return self.state

    package = types.ModuleType("gym_brt")
    module: Any = types.ModuleType("gym_brt.quanser")
    module.QubeHardware, module.QubeSimulator = QubeHardware, QubeSimulator
    monkeypatch.setitem(sys.modules, "gym_brt", package)
    monkeypatch.setitem(sys.modules, "gym_brt.quanser", module)


def install_pal(monkeypatch: pytest.MonkeyPatch, card: FakeCard, *, valid: bool = True) -> None:
    """`from pal.products.qube import QubeServo2`, as in Quanser's packages."""

    class Card:
        def is_valid(self) -> bool:
            return valid

    class QubeServo2:
        def __init__(
            self, id: int = 0, hardware: int = 1, frequency: float = 500, pendulum: int = 0, readMode: int = 1
        ) -> None:
            assert readMode == 0
            self.card = Card()
            self.motorPosition: Any = np.zeros(1)
            self.pendulumPosition: Any = np.zeros(1)

        def read_outputs(self) -> None:
            arm, pendulum = card.counts()
            self.motorPosition = arm * TICK
            self.pendulumPosition = pendulum * TICK

        def write_voltage(self, voltage: float) -> None:
            card.clock.sleep(card.slow)
            card.write(np.clip(voltage, -15, 15))

        def terminate(self) -> None:
            card.closed = True

    names = ("pal", "pal.products", "pal.products.qube")
    modules: dict[str, Any] = {name: types.ModuleType(name) for name in names}
    modules["pal.products.qube"].QubeServo2 = QubeServo2
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


def wait_until(condition: Callable[[], Any], timeout: float = 2.0) -> bool:
    """True as soon as the condition holds, False after the timeout (wall clock)."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False
