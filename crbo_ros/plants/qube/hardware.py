"""A real Qube Servo 2 as a plant: start-up, 250 Hz in real time, and 0 V whatever hangs.

The card belongs to a process of its own (plants/host.py with qube/device.py). What can go wrong, and what happens:
    this process is slow, hangs, is frozen or killed     the host writes 0 V after 3 periods without a fresh command
    the driver raises, returns nonsense or old readings  the host writes 0 V, without reading first
    the driver hangs, even with the interpreter's lock   the host is killed 50 ms later; the kernel closes the card.
                                                         What the card does then, nobody can measure: a FAULT
    the loop is late too often                           realtime.Pacer's limits, in the host
    the pendulum does not come up                        reset_timeout
`stop` says what was measured. The card's own watchdog is armed where the driver reaches it (pal). Not covered: power
loss of the machine while a card without a watchdog holds its last value. The operator's hand stays near the switch.
"""

from __future__ import annotations

import gc
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.safe import Safe
from crbo_ros.errors import InvalidInput, PlantError, PolicyFailed, UnknownName
from crbo_ros.plants.base import Plant, ResetStopped
from crbo_ros.plants.hosted import PlantHost
from crbo_ros.plants.qube.drivers import DRIVERS, require
from crbo_ros.plants.qube.start import MODES, Start
from crbo_ros.plants.realtime import LOOP, priority

Array = NDArray[np.float64]
log = logging.getLogger("crbo_ros.qube")
PERIODS = 3  # without a fresh command, then 0 V
PACE = {"late_share": 0.1, "max_gap": float(PERIODS), "max_stretch": 1.05}


class QubeHardware(Plant):
    """Observation (4,): arm, pendulum (0 = upright), their rates. Action (1,): V, clipped to +-max_voltage.

    `start`: "swing_up" (energy control, up to `start_voltage`) or "lift" (the operator lifts the pendulum). Before
    connecting, the arm must be at its centre and the pendulum hang at rest: the encoders are zeroed then.
    """

    joint_names = ("arm", "pendulum")
    is_hardware = True
    hosted = True
    reset_timeout = 60.0

    def __init__(
        self,
        driver: str = "gym_brt",
        *,
        start: str = "swing_up",
        rate: float = 250.0,
        max_voltage: float = 3.0,
        start_voltage: float = 13.0,
        reset_timeout: float = 60.0,
        silence: float = 0.05,
        open_timeout: float = 30.0,
        make_host: Callable[..., Any] = PlantHost,
        clock: Callable[[], float] = time.monotonic,
        **driver_options: Any,
    ) -> None:
        if driver not in DRIVERS and ":" not in driver:
            raise UnknownName(f"no Qube driver is called {driver!r}; there are: {', '.join(DRIVERS)}, or module:Class")
        if start not in MODES:
            raise InvalidInput(f"start: {start!r} is none of {', '.join(MODES)}")
        self.driver, self.start, self.driver_options = driver, start, driver_options
        self.rate, self.max_voltage, self.start_voltage = rate, max_voltage, start_voltage
        self.reset_timeout, self.silence, self.open_timeout = reset_timeout, silence, open_timeout
        self.serial = f"Qube, board {driver_options.get('board', 0)} of {driver}"
        self._make_host, self._clock = make_host, clock
        self._host: Any = None
        self._hurried = 0  # the thread that runs an episode
        self._check_direction, self._attempt = True, 0  # of the start-up, kept from one reset to the next

    def check(self) -> None:
        needs = DRIVERS[self.driver].needs if self.driver in DRIVERS else None
        if needs is not None:
            require(*needs)

    def connect(self) -> None:
        if self._host is not None:
            return
        host = self._make_host(
            f"qube {self.driver_options.get('board', 0)}",
            "crbo_ros.plants.qube.device:QubeDevice",
            {"driver": self.driver, "options": self.driver_options, "rate": self.rate,
             "max_voltage": self.start_voltage},
            patience=PERIODS / self.rate, rate=self.rate, limits=PACE, silence=self.silence, device=True,
            log=log.critical,
        )  # fmt: skip
        host.wait_ready(self.open_timeout)
        self._check_direction, self._host = True, host
        log.info("connected; %s", host.make_safe())
        for note in host.notes:
            log.warning("%s", note)

    def reset(self, rng: np.random.Generator) -> Array:
        """Settle, bring the pendulum up, hold it until it is in the start set. (rng is not used: nature is random.)"""
        host = self._connected()
        begun = self._clock()
        start = Start(
            self.start,
            rate=self.rate,
            max_voltage=self.start_voltage,
            check_direction=self._check_direction,
            attempt=self._attempt,
        )
        phase = ""
        self._hurry(True)
        host.arm()
        try:
            observation = host.command([0.0])
            while not (start.done and (self.reset_ready is None or self.reset_ready())):
                voltage = start.voltage(observation)
                if start.phase != phase:
                    phase = start.phase
                    log.info("start-up: %s", "LIFT THE PENDULUM" if phase == "lift" else phase)
                if not start.done and self._clock() - begun > self.reset_timeout:
                    raise PlantError(f"the Qube was not ready within {self.reset_timeout:g} s (last phase: {phase})")
                if self.reset_watch is not None and (reason := self.reset_watch(observation, np.array([voltage]))):
                    raise ResetStopped(reason)
                observation = host.command([voltage])
        except BaseException:
            self.stop()
            raise
        self._check_direction, self._attempt = False, start.attempt
        host.pace()
        return np.asarray(observation)

    def _connected(self) -> Any:
        if self._host is None:
            raise PlantError("the Qube is not connected; use it in a `with` block")
        closed = self._host.lapsed and self.driver == "gym_brt"  # (see its `zero`)
        if closed or not self._host.alive:  # a person has looked since, or nobody would reset it
            log.warning("a new host for the Qube: the arm must be at its centre and the pendulum hang at rest")
            self.close()
            self.connect()
        return self._host

    def step(self, action: Array) -> Array:
        voltage = float(action[0])
        if not math.isfinite(voltage):
            self.stop()
            raise PolicyFailed(f"action[0] is {voltage}; a voltage must be finite")
        if self._host is None:
            raise PlantError("the Qube is not connected; use it in a `with` block")
        observation: Array = self._host.command([min(max(voltage, -self.max_voltage), self.max_voltage)])
        return observation

    def limits_in_words(self) -> str:
        start = f", {self.start_voltage:g} V in the swing-up" if self.start == "swing_up" else ""
        return f"up to {self.max_voltage:g} V{start}; 0 V after {1e3 * PERIODS / self.rate:g} ms without a command"

    def stop(self) -> Safe:
        """0 V, now, and what the arm tells of it."""
        self._hurry(False)
        safe: Safe = Safe(True, "not connected") if self._host is None else self._host.stop()
        return safe

    def _hurry(self, now: bool) -> None:
        """No garbage collection, and priority for this thread where the system permits, from a reset to its stop."""
        if now:
            gc.collect()
            gc.disable()
            self._hurried = threading.get_ident()
            priority(LOOP)  # (the host has said whether that is permitted)
        elif self._hurried:
            gc.enable()
            if self._hurried == threading.get_ident():
                priority(0)
                self._hurried = 0

    def cut(self) -> None:
        if self._host is not None:
            self._host.cut()

    def close(self) -> None:
        self._hurry(False)
        host, self._host = self._host, None
        if host is not None:
            host.dismiss()

    def statistics(self) -> dict[str, float]:
        return {} if self._host is None else dict(self._host.statistics())
