"""The two ways to a real Qube Servo 2, behind one face: gym-brt's `QubeHardware` and Quanser's own `pal`.

A driver opens in `open`, exchanges a voltage for an observation (ours: arm, pendulum with 0 = upright, their rates) in
`exchange`, and closes. Both packages reach the same card, so the voltage has the same sign in both; gym-brt negates the
arm's encoder and our arm angle is gym-brt's, hence pal's motorPosition is negated here. Encoders are zeroed when the
card is opened: the arm must then be at its centre and the pendulum hang at rest.

Nothing of either package is imported before `open`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.compiled import rate_filter, wrap
from crbo_ros.errors import MissingDependency, PlantError
from crbo_ros.plants.qube.model import FILTER_BANDWIDTH

Array = NDArray[np.float64]

GYM_BRT = (
    "the plant needs gym-brt: pip install git+https://github.com/BlueRiverTech/quanser-openai-driver "
    "(and `pip install vpython`, which it imports)"
)
HIL = " and, for hardware, Quanser's HIL SDK before it: https://github.com/quanser/hil_sdk_linux_x86_64"
PAL = (
    "the plant needs Quanser's Python packages (quanser-api and the folder with `pal` from Quanser's resources on "
    "PYTHONPATH): https://github.com/quanser/Quanser_Academic_Resources"
)


def import_driver(module: str, name: str, advice: str) -> Any:
    """`name` from a package of somebody else's, or MissingDependency that says what to install.

    Whatever its import raises is caught: these packages fail in many ways on newer versions of what they need.
    """
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        raise MissingDependency(f"{advice}. (importing {module}.{name}: {type(error).__name__}: {error})") from error


class QubeDriver(ABC):
    """All methods may hang or raise anything; the plant (qube_hardware.py) calls them under a timeout."""

    self_paced = False  # True: `exchange` waits for the card's clock itself

    @abstractmethod
    def open(self, rate: float, max_voltage: float) -> None: ...

    @abstractmethod
    def exchange(self, voltage: float) -> Array:
        """Read the sensors, then write the voltage (so that an action meets an observation one period old)."""

    @abstractmethod
    def close(self) -> None:
        """0 V, amplifier off, card closed."""


class GymBrtDriver(QubeDriver):
    """gym-brt's QubeHardware. Its own resets can loop for ever and are not used."""

    self_paced = True  # its reader task blocks until the card's next sample

    def __init__(self) -> None:
        self._qube: Any = None

    def open(self, rate: float, max_voltage: float) -> None:
        qube_class = import_driver("gym_brt.quanser", "QubeHardware", GYM_BRT + HIL)
        try:
            self._qube = qube_class(frequency=int(rate), max_voltage=max_voltage)
        except NameError as error:  # installed without the SDK, gym-brt only prints a warning and lacks its own wrapper
            raise MissingDependency(f"{GYM_BRT}{HIL}. ({error})") from error

    def exchange(self, voltage: float) -> Array:
        # its wrapper insists on a float64 array of shape (1,)
        return np.array(self._qube.step(np.array([voltage], dtype=np.float64)), dtype=np.float64)

    def close(self) -> None:
        if self._qube is not None:
            qube, self._qube = self._qube, None
            try:
                qube.step(np.zeros(1))
            finally:
                qube.close()


class PalDriver(QubeDriver):
    """Quanser's pal, Qube Servo 2 or 3, a real one or the virtual one of Quanser Interactive Labs."""

    def __init__(self, version: int = 2, board: int = 0, virtual: bool = False, signs: tuple[int, ...] = (-1, 1, 1)):
        self.version, self.board, self.virtual = version, board, virtual
        self.signs = signs  # of motorPosition, pendulumPosition and voltage against ours
        self._qube: Any = None
        self._memory = np.zeros(2)
        self._rate = 250.0

    def open(self, rate: float, max_voltage: float) -> None:
        qube_class = import_driver("pal.products.qube", f"QubeServo{self.version}", PAL)
        # readMode 0: immediate input and output, paced by us
        self._qube = qube_class(
            id=self.board, hardware=0 if self.virtual else 1, frequency=int(rate), pendulum=1, readMode=0
        )
        card = getattr(self._qube, "card", None)
        if card is None or not card.is_valid():  # pal prints errors of the card and goes on
            self._qube = None
            raise PlantError("the Qube's card could not be opened; is it plugged in, on, and free?")
        self._rate = rate
        arm, pendulum = self._angles()
        wrap(pendulum), rate_filter(pendulum, self._memory, 1, FILTER_BANDWIDTH, 1.0 / rate)  # compiled now, not later
        self._memory[:] = arm / FILTER_BANDWIDTH, pendulum / FILTER_BANDWIDTH

    def _angles(self) -> tuple[float, float]:
        self._qube.read_outputs()
        arm = self.signs[0] * float(np.asarray(self._qube.motorPosition).reshape(-1)[0])
        pendulum = self.signs[1] * float(np.asarray(self._qube.pendulumPosition).reshape(-1)[0])
        return arm, pendulum

    def exchange(self, voltage: float) -> Array:
        arm, pendulum = self._angles()
        self._qube.write_voltage(self.signs[2] * voltage)
        rates = [
            rate_filter(angle, self._memory, i, FILTER_BANDWIDTH, 1.0 / self._rate)
            for i, angle in enumerate((arm, pendulum))
        ]
        return np.array([arm, wrap(pendulum - math.pi), *rates])  # pal's 0 is hanging

    def close(self) -> None:
        if self._qube is not None:
            qube, self._qube = self._qube, None
            try:
                qube.write_voltage(0.0)
            finally:
                qube.terminate()


DRIVERS: dict[str, type[QubeDriver]] = {"gym_brt": GymBrtDriver, "pal": PalDriver}
