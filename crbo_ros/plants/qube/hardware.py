"""A real Qube Servo 2 as a plant: start-up, 250 Hz in real time, and 0 V on every way out.

What can go wrong and what happens then (always: 0 V, and PlantError that says what):
    the driver hangs or raises           each call runs in its own thread under a timeout
    the pendulum does not come up        reset_timeout
    the loop is too late too often       realtime.Pacer's limits
    nothing moves although voltage is on `STILL_*`: a frozen encoder, a loose cable or a dead amplifier (both drivers
                                         print the card's errors and go on returning old readings)
    SIGTERM, Ctrl-C, an error, exit      SIGTERM is turned into SystemExit; leaving the `with` block stops; atexit too
What cannot be handled here: SIGKILL and a lost USB cable. The operator's hand stays near the switch.
"""

from __future__ import annotations

import atexit
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.errors import CrboError, InvalidInput, MissingDependency, PlantError, UnknownName
from crbo_ros.plants.base import Plant, ResetStopped
from crbo_ros.plants.qube.drivers import DRIVERS, QubeDriver
from crbo_ros.plants.qube.start import MODES, Start
from crbo_ros.plants.realtime import DriverThread, Pacer

Array = NDArray[np.float64]
log = logging.getLogger("crbo_ros.qube")

STILL_VOLTAGE, STILL_SECONDS = 1.0, 0.4  # V, s: above this voltage for this long something must move


class QubeHardware(Plant):
    """Observation (4,): arm, pendulum (0 = upright), their rates. Action (1,): V, clipped to +-max_voltage.

    `start`: "swing_up" (energy control, up to `start_voltage`) or "lift" (the operator lifts the pendulum). Before
    connecting, the arm must be at its centre and the pendulum hang at rest: the encoders are zeroed then.
    """

    joint_names = ("arm", "pendulum")
    is_hardware = True
    reset_timeout = 60.0

    def __init__(
        self,
        driver: str | QubeDriver = "gym_brt",
        *,
        start: str = "swing_up",
        rate: float = 250.0,
        max_voltage: float = 3.0,
        start_voltage: float = 13.0,
        reset_timeout: float = 60.0,
        step_timeout: float = 0.25,
        open_timeout: float = 20.0,
        max_misses: int = 25,
        max_gap: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        **driver_options: Any,
    ) -> None:
        if isinstance(driver, str):
            if driver not in DRIVERS:
                raise UnknownName(f"no Qube driver is called {driver!r}; there are: {', '.join(DRIVERS)}")
            driver = DRIVERS[driver](**driver_options)
        if start not in MODES:
            raise InvalidInput(f"start: {start!r} is none of {', '.join(MODES)}")
        self.driver, self.start = driver, start
        self.rate, self.max_voltage, self.start_voltage = rate, max_voltage, start_voltage
        self.reset_timeout, self.step_timeout, self.open_timeout = reset_timeout, step_timeout, open_timeout
        self._clock = clock
        self._pacer = Pacer(rate, max_misses=max_misses, max_gap=max_gap, clock=clock, sleep=sleep)
        self._worker: DriverThread | None = None
        self._given_up = False  # the card was closed because 0 V could not be written
        self._check_direction, self._attempt = True, 0  # of the start-up, kept from one reset to the next
        self._still = 0
        self._last = np.full(2, np.nan)
        self._old_handler: Any = None

    def connect(self) -> None:
        if self._worker is not None:
            return
        self._given_up, self._check_direction = False, True
        worker = DriverThread("qube-driver")
        self._worker = worker
        atexit.register(self.close)
        self._catch_sigterm()
        try:
            worker.call(lambda: self.driver.open(self.rate, self.start_voltage), self.open_timeout, "opening the Qube")
        except PlantError as error:
            self.close()
            if isinstance(error.__cause__, MissingDependency | PlantError):
                raise error.__cause__ from None
            raise

    def _catch_sigterm(self) -> None:
        """Python's default for SIGTERM skips every `finally`; where nobody else handles it, make it an exception.

        rclpy's handlers are installed below Python, which does not know of them: its nodes are left to it.
        """
        if "rclpy" in sys.modules:
            return
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._old_handler = signal.signal(signal.SIGTERM, _exit_on_signal)

    def reset(self, rng: np.random.Generator) -> Array:
        """Settle, bring the pendulum up, hold it until it is in the start set. (rng is not used: nature is random.)"""
        begun = self._clock()
        start = Start(
            self.start,
            rate=self.rate,
            max_voltage=self.start_voltage,
            check_direction=self._check_direction,
            attempt=self._attempt,
        )
        self._pacer.start()
        self._still = 0
        observation = self._exchange(0.0)
        phase = ""
        try:
            while not (start.done and (self.reset_ready is None or self.reset_ready())):
                voltage = start.voltage(observation)
                if start.phase != phase:
                    phase = start.phase
                    log.info("start-up: %s", "LIFT THE PENDULUM" if phase == "lift" else phase)
                if not start.done and self._clock() - begun > self.reset_timeout:
                    raise PlantError(f"the Qube was not ready within {self.reset_timeout:g} s (last phase: {phase})")
                if self.reset_watch is not None and (reason := self.reset_watch(observation, np.array([voltage]))):
                    raise ResetStopped(reason)
                observation = self._exchange(voltage)
        except BaseException:
            self.stop()
            raise
        self._check_direction, self._attempt = False, start.attempt
        self._pacer.start()
        return observation

    def step(self, action: Array) -> Array:
        voltage = float(np.asarray(action, dtype=np.float64).reshape(-1)[0])
        if not np.isfinite(voltage):
            self.stop()
            raise InvalidInput(f"action[0] is {voltage}; a voltage must be finite")
        return self._exchange(min(max(voltage, -self.max_voltage), self.max_voltage))

    def _exchange(self, voltage: float) -> Array:
        """One period: wait for its deadline, read, write. Any failure stops the plant and is a PlantError."""
        worker = self._worker
        if worker is None:
            raise PlantError("the Qube is not connected; use it in a `with` block")
        if self._given_up:
            raise PlantError(
                "the Qube's card was closed after a failure; let the pendulum hang at rest and connect anew"
            )
        try:
            if not self.driver.self_paced:
                self._pacer.wait()
            observation = worker.call(lambda: self.driver.exchange(voltage), self.step_timeout, "the Qube's driver")
            if self.driver.self_paced:
                self._pacer.mark()
            if observation.shape != (4,) or not np.all(np.isfinite(observation)):
                raise PlantError(f"the Qube's driver returned {observation} instead of four finite numbers")
            self._look_for_movement(observation, voltage)
        except CrboError:
            self.stop()
            raise
        return observation

    def _look_for_movement(self, observation: Array, voltage: float) -> None:
        moved = not np.array_equal(observation[:2], self._last)
        self._last = observation[:2].copy()
        self._still = 0 if moved or abs(voltage) < STILL_VOLTAGE else self._still + 1
        if self._still > STILL_SECONDS * self.rate:
            raise PlantError(
                f"nothing moved for {STILL_SECONDS:g} s at over {STILL_VOLTAGE:g} V: check encoders, cables, amplifier"
            )

    def stop(self) -> None:
        """0 V, now; if the driver is stuck, close the card from another thread, which switches the amplifier off."""
        worker = self._worker
        if worker is None:
            return
        try:
            worker.call(lambda: self.driver.exchange(0.0), self.step_timeout, "stopping the Qube")
        except PlantError as error:
            if self._given_up:
                return
            log.error("%s; closing the card instead", error)
            self._given_up = True
            self._close_driver(DriverThread("qube-emergency"))

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        self._close_driver(DriverThread("qube-emergency") if worker.stuck else worker)
        worker.end()
        atexit.unregister(self.close)
        if self._old_handler is not None and signal.getsignal(signal.SIGTERM) is _exit_on_signal:
            signal.signal(signal.SIGTERM, self._old_handler)
        self._old_handler = None

    def _close_driver(self, worker: DriverThread) -> None:
        try:
            worker.call(self.driver.close, self.open_timeout, "closing the Qube")
        except PlantError as error:
            log.critical("%s: SWITCH THE QUBE OFF BY HAND", error)

    def statistics(self) -> dict[str, float]:
        return self._pacer.statistics()


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
