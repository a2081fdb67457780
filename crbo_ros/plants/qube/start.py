"""From wherever a Qube's last episode left it to the start set: arm at the centre, pendulum upright and held.

    settle    bring the arm to the centre and wait until the pendulum hangs at rest
    check     once after connecting: a short pulse must move arm and pendulum the way our signs say, else nothing more
    swing_up  pump energy into the pendulum; or
    lift      0 V until the operator has lifted it
    hold      balance it until it has been inside the start set for half a second

A state machine that is given observations and returns voltages; it knows no driver and no clock but its own step count,
so that the simulation can test all of it. Signs and order of the observation as everywhere (crbo_ros/compiled.py).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from crbo_ros.compiled import QubeParameters, qube_acceleration, wrap
from crbo_ros.errors import InvalidInput, PlantError
from crbo_ros.plants.qube.model import nominal

Array = NDArray[np.float64]
MODES = ("swing_up", "lift")

HOLD = np.array([-2.0, 35.0, -1.5, 3.0])  # V per rad and rad/s: V = HOLD . (arm, pendulum, arm rate, pendulum rate)
CENTRE = (4.0, 0.3)  # V per rad and rad/s, on the arm while the pendulum hangs
CATCH = math.radians(20.0)  # the balance controller takes over inside
START_ARM, START_PENDULUM = math.radians(8.0), math.radians(3.0)  # the start set
START_ARM_RATE, START_PENDULUM_RATE = 0.5, 0.5  # rad/s
ARM_GUARD = math.radians(100.0)  # beyond it the swing-up is broken off and the arm brought back
PULSE, PULSE_SECONDS = 1.5, 0.06  # V, s: the direction check
CHECK_ANGLE = math.radians(0.5)  # what the pulse must move at least
KICK, KICK_SECONDS = 2.0, 0.06  # V, s: the first push of the swing-up
ENERGY_AIM = 3e-3  # J; a little above the upright's 0, for the friction on the way
ENERGY_GAIN = 2e4  # of the arm's acceleration, (rad/s^2) / (J rad/s)
PUSHES = (60.0, 120.0, 45.0, 90.0)  # rad/s^2 at most, attempt by attempt: the right one depends on the plant's friction
ATTEMPT_SECONDS = 4.0
SWING_SPRING = (60.0, 3.0)  # 1/s^2, 1/s: keeps the arm near the centre while swinging


class Start:
    """`voltage(observation)` until `done`; `phase` says for the operator what is going on."""

    def __init__(
        self,
        mode: str = "swing_up",
        *,
        rate: float = 250.0,
        max_voltage: float = 13.0,
        check_direction: bool = True,
        attempt: int = 0,
        parameters: QubeParameters | None = None,
    ) -> None:
        if mode not in MODES:
            raise InvalidInput(f"start: {mode!r} is none of {', '.join(MODES)}")
        self.mode, self.rate, self.max_voltage = mode, rate, max_voltage
        self.check_direction, self.attempt = check_direction, attempt
        self.parameters = parameters or nominal()
        self.phase, self.done = "settle", False
        self._phases = {
            "settle": self._settle,
            "check": self._check,
            "swing_up": self._swing_up,
            "lift": self._lift,
            "hold": self._hold,
        }
        self._calm = 0  # consecutive steps in which the phase's aim held
        self._steps = 0  # since the phase began
        self._before = np.zeros(4)  # observation before the pulse
        self._past: list[Array] = []  # the last three pairs of angles
        qube_acceleration(0.0, wrap(0.0), 0.0, 0.0, 0.0, self.parameters)  # compiled now, not in the middle of a swing

    def voltage(self, observation: Array) -> float:
        """The next voltage, within +-max_voltage; PlantError if the direction check fails."""
        self._steps += 1
        self._past = [*self._past[-2:], np.array(observation[:2])]
        raw = self._phases[self.phase](observation)
        return float(min(max(raw, -self.max_voltage), self.max_voltage))

    def _enter(self, phase: str) -> None:
        self.phase, self._calm, self._steps = phase, 0, 0

    def _held(self, good: bool, seconds: float) -> bool:
        """Whether `good` has been true for that long without a break."""
        self._calm = self._calm + 1 if good else 0
        return self._calm >= seconds * self.rate

    def _settle(self, observation: Array) -> float:
        hanging = abs(wrap(observation[1] - math.pi))
        calm = hanging < math.radians(3.0) and abs(observation[2]) < 0.3 and abs(observation[3]) < 0.3
        if self._held(calm and abs(observation[0]) < 2.0 * START_ARM, 0.5):
            self._before = observation.copy()
            self._enter("check" if self.check_direction else self.mode)
            return 0.0
        return CENTRE[0] * observation[0] + CENTRE[1] * observation[2]  # a positive voltage lowers the arm's angle

    def _check(self, observation: Array) -> float:
        """A positive pulse turns the arm to negative angles and the hanging pendulum to positive ones."""
        if self._steps <= PULSE_SECONDS * self.rate:
            return PULSE
        arm = observation[0] - self._before[0]
        pendulum = wrap(observation[1] - self._before[1])
        if arm > -CHECK_ANGLE or pendulum < CHECK_ANGLE:
            raise PlantError(
                f"direction check: {PULSE:g} V moved the arm by {math.degrees(arm):+.1f} deg (should fall) and the "
                f"pendulum by {math.degrees(pendulum):+.1f} deg (should rise); check cables, amplifier and `signs`"
            )
        self.check_direction = False
        self._enter("settle")
        return 0.0

    def _swing_up(self, observation: Array) -> float:
        """Energy control (Astrom and Furuta, 2000) by the arm's acceleration, which the model turns into a voltage.

        With E the pendulum's energy, 0 at the upright, dE/dt = mp Lr l cos(pendulum) pendulum' arm'': the arm is
        accelerated in the direction of cos(pendulum) pendulum' while E < 0, and a soft spring keeps it near the centre.
        """
        arm, pendulum = observation[:2]
        if abs(pendulum) < CATCH:
            self._enter("hold")
            return self._hold(observation)
        if abs(arm) > ARM_GUARD or self._steps > ATTEMPT_SECONDS * self.rate:
            return self._again(observation)
        arm_rate, pendulum_rate = self._rates()
        p = self.parameters
        half = 0.5 * p.Lp
        energy = 0.5 * (p.Jp + p.mp * half**2) * pendulum_rate**2 + p.mp * p.g * half * (math.cos(pendulum) - 1.0)
        if self._steps < KICK_SECONDS * self.rate:
            return KICK  # at rest there is no direction to push in
        push = ENERGY_GAIN * (ENERGY_AIM - energy) * math.cos(pendulum) * pendulum_rate
        most = PUSHES[self.attempt % len(PUSHES)]
        push = min(max(push, -most), most)
        wanted = push - SWING_SPRING[0] * arm - SWING_SPRING[1] * arm_rate
        # the voltage that gives the arm this acceleration: accelerations are affine in the voltage
        free, _ = qube_acceleration(arm, pendulum, arm_rate, pendulum_rate, 0.0, p)
        one, _ = qube_acceleration(arm, pendulum, arm_rate, pendulum_rate, 1.0, p)
        return (wanted - free) / (one - free)

    def _again(self, observation: Array) -> float:
        self.attempt += 1
        self._enter("settle")
        return self._settle(observation)

    def _rates(self) -> Array:
        """Differences over two periods: noisier than the driver's filter, and without its 20 ms of delay."""
        change = [wrap(new - old) for new, old in zip(self._past[-1], self._past[0], strict=True)]
        return np.array(change) * self.rate / max(len(self._past) - 1, 1)

    def _lift(self, observation: Array) -> float:
        if abs(observation[1]) < CATCH / 4.0 and abs(observation[3]) < 1.0:
            self._enter("hold")
            return self._hold(observation)
        return 0.0

    def _hold(self, observation: Array) -> float:
        arm, pendulum, arm_rate, pendulum_rate = np.abs(observation)
        if pendulum > CATCH or arm > ARM_GUARD:
            return self._again(observation)
        inside = arm < START_ARM and pendulum < START_PENDULUM
        inside = inside and arm_rate < START_ARM_RATE and pendulum_rate < START_PENDULUM_RATE
        self.done = self._held(bool(inside), 0.5)
        return float(HOLD @ observation)
