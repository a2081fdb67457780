"""What a Qube's host owns: the driver, its checks, and 0 V that is measured.

A Qube cannot tell the voltage at its motor. But its arm does: with the model, the arm's angle over a tenth of a second
gives the voltage that drives it, roughly: over 300 states each of two simulated Qubes, one with twice the other's
friction, it was within 0.8 V when there was none, and above 0.85 V when there were 2.5 V (1 V is not told from 0).
`stop` is CONFIRMED by that, not by a write that returned.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.compiled import QubeParameters, qube_acceleration, wrap
from crbo_ros.core.safe import Safe
from crbo_ros.errors import PlantError
from crbo_ros.plants.qube.drivers import make_driver
from crbo_ros.plants.qube.model import nominal

Array = NDArray[np.float64]
STILL_VOLTAGE, STILL_SECONDS = 0.5, 0.3  # V, s: above this voltage for this long something must have moved
LIVELY, RECENT = 5, 25  # with so many changes of an encoder in the last so many periods nothing stands still at once
LOOK, LOOKS = 0.12, 2  # s of the arm's movement that the voltage is read off; how often that is tried
ZERO = 0.85  # V: what counts as 0 V, with the model's errors
RANGE = 2.0  # rad: beyond, an arm that stands may be held by its cable against a voltage
WATCHDOG = 0.1  # s, of the card's own


def driving_voltage(angles: Array, rate: float, parameters: QubeParameters | None = None) -> float:
    """The mean voltage that explains arm and pendulum (N, 2), rad, at `rate`: by the arm's change of speed.

    arm'' is affine in the voltage: with free and one the model's arm'' at 0 V and at 1 V,
    V = (change of arm' - sum of free dt) / (sum of (one - free) dt).
    """
    p = parameters or nominal()
    n = max(2, len(angles) // 4)  # samples of each end's speed
    unwrapped = np.unwrap(angles, axis=0)
    time_ = np.arange(n) / rate
    speeds = [np.polyfit(time_, part, 1)[0] for part in (unwrapped[:n, 0], unwrapped[-n:, 0])]
    rates = np.gradient(unwrapped, 1.0 / rate, axis=0)
    smooth = np.stack([np.convolve(np.pad(r, 2, "edge"), np.full(5, 0.2), "valid") for r in rates.T], axis=1)
    middle = slice(n // 2, len(angles) - (n - n // 2))  # between the middles of the two ends
    free = one = 0.0
    for (arm, pendulum), (arm_rate, pendulum_rate) in zip(unwrapped[middle], smooth[middle], strict=True):
        at_rest, _ = qube_acceleration(arm, wrap(pendulum), arm_rate, pendulum_rate, 0.0, p)
        driven, _ = qube_acceleration(arm, wrap(pendulum), arm_rate, pendulum_rate, 1.0, p)
        free += at_rest / rate
        one += (driven - at_rest) / rate
    return float((speeds[1] - speeds[0] - free) / one)


class QubeDevice:
    """The host's job. `max_voltage`: of the start-up too; the policy's own limit is the plant's."""

    def __init__(
        self,
        *,
        driver: str,
        options: dict[str, Any],
        rate: float,
        max_voltage: float,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.driver, self.rate, self.max_voltage, self.say = make_driver(driver, options), rate, max_voltage, say
        self.self_paced = self.driver.self_paced
        self._clock, self._sleep = clock, sleep
        self._still, self._last = 0, (math.nan, math.nan)  # driven periods since an encoder changed; what they told
        self._changes: deque[bool] = deque(maxlen=RECENT)
        self._doubt = ""  # why the encoders may be dead, until one changes
        driving_voltage(np.zeros((int(LOOK * rate), 2)), rate)  # compiled now, not when it counts
        self.driver.open(rate, max_voltage)
        why = self.driver.arm_watchdog(WATCHDOG)
        self._watched = not why
        self.notes = [why] if why else []

    def command(self, values: Sequence[float]) -> list[float]:
        voltage = float(values[0])
        if not abs(voltage) <= self.max_voltage:  # (NaN too)
            raise PlantError(f"a voltage of {voltage} is beyond the host's limit of {self.max_voltage:g} V")
        observation = self._checked(self.driver.exchange(voltage))
        self._look_for_movement(observation, voltage)
        self.driver.reload_watchdog()
        return observation

    def _checked(self, observation: Any) -> list[float]:
        found = np.asarray(observation, dtype=np.float64)
        values: list[float] = found.tolist()
        if found.shape != (4,) or not all(map(math.isfinite, values)):
            raise PlantError(f"the Qube's driver returned {found} instead of four finite numbers")
        return values

    def _look_for_movement(self, observation: list[float], voltage: float) -> None:
        changed = self._note_change(observation)
        if not changed and abs(voltage) >= STILL_VOLTAGE:  # (steps with less say nothing)
            self._still += 1
        if self._still > STILL_SECONDS * self.rate:
            raise PlantError(
                f"nothing moved for {STILL_SECONDS:g} s at over {STILL_VOLTAGE:g} V: check encoders, cables, amplifier"
            )

    def _note_change(self, observation: list[float]) -> bool:
        """Whether an encoder tells something else than before: then both the motor and the encoders are alive."""
        angles = (observation[0], observation[1])
        changed, self._last = angles != self._last, angles
        self._changes.append(changed)
        if changed:
            self._still, self._doubt = 0, ""
        return changed

    def _why_doubt(self) -> str:
        """Why encoders that stand still now may be dead rather than at rest; "" if there is no reason to think so."""
        if self._still:
            return f"nor did they in the last {self._still} periods at over {STILL_VOLTAGE:g} V"
        if sum(self._changes) >= LIVELY:
            return "though it moved just before, and nothing stands still at once"
        return ""

    def make_safe(self, last: bool) -> Safe:
        """0 V first; then the arm says whether it is not driven any more. Encoders that may be dead say nothing."""
        if blind := self.driver.zero(last):
            return Safe(False, blind)
        for _ in range(LOOKS):
            why = self._why_doubt()
            angles = self._look()
            if why and not any(self._changes):  # (it is shorter than a look)
                self._doubt = why
            voltage = driving_voltage(angles, self.rate)
            moved = float(np.ptp(np.unwrap(angles[:, 0])))
            what = f"0 V written; the arm's movement ({moved:.3f} rad in {LOOK:g} s) tells of {voltage:+.2f} V"
            if self._doubt:
                what = (
                    f"0 V written, but the encoders do not change, {self._doubt}: they may be dead, and cannot vouch "
                )
                what += "for it. Look whether it stands, turn the arm a little by hand, then clear"
                continue
            if np.max(np.abs(angles[:, 0])) > RANGE:
                return Safe(False, f"{what}, but it is beyond {RANGE:g} rad: its cable or a stop may hold it there")
            if abs(voltage) <= ZERO:
                return Safe(True, what)
            what = f"{what}, more than {ZERO:g} V: something still drives it"
        return Safe(False, what)

    def _look(self) -> Array:
        """Arm and pendulum for a while, at 0 V."""
        angles, due = [], self._clock()
        for _ in range(int(LOOK * self.rate)):
            observation = self._checked(self.driver.exchange(0.0))
            self._note_change(observation)
            angles.append(observation[:2])
            self.driver.reload_watchdog()
            due += 1.0 / self.rate
            if not self.self_paced and (left := due - self._clock()) > 0.0:
                self._sleep(left)
        return np.array(angles)

    def close(self) -> None:
        self.driver.close()
