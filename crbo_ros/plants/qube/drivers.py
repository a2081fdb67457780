"""The two ways to a real Qube Servo 2, behind one face: gym-brt's `QubeHardware` and Quanser's own `pal`.

A driver opens in `open`, exchanges a voltage for an observation (ours: arm, pendulum with 0 = upright, their rates) in
`exchange`, and closes. Both packages reach the same card, so the voltage has the same sign in both; gym-brt negates the
arm's encoder and our arm angle is gym-brt's, hence pal's motorPosition is negated here. Encoders are zeroed when the
card is opened: the arm must then be at its centre and the pendulum hang at rest.

Nothing of either package is imported before `open`.
"""

from __future__ import annotations

import contextlib
import math
import sys
from abc import ABC, abstractmethod
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.compiled import rate_filter, wrap
from crbo_ros.errors import MissingDependency, PlantError, UnknownName
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


def require(module: str, advice: str) -> None:
    """MissingDependency with the advice where a package is not installed. Imports nothing of it."""
    if module not in sys.modules and find_spec(module) is None:
        raise MissingDependency(f"{advice}. (there is no package {module})")


def import_driver(module: str, name: str, advice: str) -> Any:
    """`name` from a package of somebody else's, or MissingDependency that says what to install.

    Whatever its import raises is caught: these packages fail in many ways on newer versions of what they need.
    """
    try:
        return getattr(import_module(module), name)
    except Exception as error:
        raise MissingDependency(f"{advice}. (importing {module}.{name}: {type(error).__name__}: {error})") from error


class QubeDriver(ABC):
    """All methods may hang or raise anything: they are called in the plant's host (device.py) and nowhere else."""

    needs: tuple[str, str] | None = None  # a package of somebody else's, and what to do where it is missing
    self_paced = False  # True: `exchange` waits for the card's clock itself

    @abstractmethod
    def open(self, rate: float, max_voltage: float) -> None: ...

    @abstractmethod
    def exchange(self, voltage: float) -> Array:
        """Read the sensors, then write the voltage (so that an action meets an observation one period old)."""

    @abstractmethod
    def zero(self, last: bool) -> str:
        """0 V; `last`: without reading first, at any price. Why nothing can be measured after it, or ""."""

    @abstractmethod
    def close(self) -> None:
        """0 V, amplifier off, card closed."""

    def arm_watchdog(self, seconds: float) -> str:
        """Have the card itself go to 0 V when it is not written to for so long; why that is not possible, or ""."""
        return f"{type(self).__name__} does not reach the card's own watchdog"

    def reload_watchdog(self) -> None:  # noqa: B027  (nothing to reload)
        """We are alive."""


class GymBrtDriver(QubeDriver):
    """gym-brt's QubeHardware. Its own resets can loop for ever and are not used."""

    needs = ("gym_brt", GYM_BRT + HIL)

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

    def zero(self, last: bool) -> str:
        if not last:
            self.exchange(0.0)
            return ""
        self.close()  # its wrapper can write without reading first only on its way out
        return "the card was closed (0 V written, amplifier off), since gym-brt cannot write 0 V without reading first"

    def close(self) -> None:
        if self._qube is not None:
            qube, self._qube = self._qube, None
            qube.close()  # 0 V, amplifier off, card closed; reads nothing


class PalDriver(QubeDriver):
    """Quanser's pal, Qube Servo 2 or 3, a real one or the virtual one of Quanser Interactive Labs."""

    needs = ("pal", PAL)

    def __init__(self, version: int = 2, board: int = 0, virtual: bool = False, signs: tuple[int, ...] = (-1, 1, 1)):
        self.version, self.board, self.virtual = version, board, virtual
        self.signs = signs  # of motorPosition, pendulumPosition and voltage against ours
        self._qube: Any = None
        self._memory = np.zeros(2)
        self._rate, self._watched = 250.0, False

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

    def zero(self, last: bool) -> str:
        self._qube.write_voltage(0.0)
        return ""

    def arm_watchdog(self, seconds: float) -> str:
        """By Quanser's HIL API. Most cards do not let the state be chosen; what this one does, `doctor` tries."""
        card = self._qube.card
        try:
            with contextlib.suppress(Exception):  # 0 V is the default where it cannot be chosen
                card.watchdog_set_analog_expiration_state(np.zeros(1, np.uint32), 1, np.zeros(1))
            card.watchdog_start(seconds)
        except Exception as error:
            return f"the card's own watchdog could not be armed ({type(error).__name__}: {error})"
        self._watched = True
        return ""

    def reload_watchdog(self) -> None:
        if self._watched:
            self._qube.card.watchdog_reload()

    def close(self) -> None:
        if self._qube is not None:
            qube, self._qube = self._qube, None
            try:
                qube.write_voltage(0.0)
                if self._watched:
                    qube.card.watchdog_stop()
            finally:
                qube.terminate()


DRIVERS: dict[str, type[QubeDriver]] = {"gym_brt": GymBrtDriver, "pal": PalDriver}


def make_driver(name: str, options: dict[str, Any]) -> QubeDriver:
    """A driver by its name, or by "module:Class" for one of somebody else's."""
    if ":" in name:
        module, attribute = name.split(":")
        driver: QubeDriver = getattr(import_module(module), attribute)(**options)
        return driver
    if name not in DRIVERS:
        raise UnknownName(f"no Qube driver is called {name!r}; there are: {', '.join(DRIVERS)}, or module:Class")
    return DRIVERS[name](**options)
