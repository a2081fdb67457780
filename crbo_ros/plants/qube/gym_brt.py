"""gym-brt's own `QubeSimulator` as a plant, for users who have it.

Its back-EMF has the wrong sign (it speeds the arm up instead of braking it), so a policy behaves differently here than
on `nominal` and on the hardware. It is here to compare with results that others got on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crbo_ros.errors import InvalidInput, PlantError
from crbo_ros.plants.base import Plant
from crbo_ros.plants.qube.drivers import GYM_BRT, import_driver, require
from crbo_ros.plants.qube.simulation import START_SPREAD

Array = NDArray[np.float64]


class GymBrtSim(Plant):
    """Observation (4,): arm, pendulum (0 = upright), their rates. Action (1,): V, clipped to +-3 V."""

    joint_names = ("arm", "pendulum")

    def __init__(self, forward_model: str = "ode", rate: float = 250.0, max_voltage: float = 3.0) -> None:
        self.forward_model, self.rate, self.max_voltage = forward_model, rate, max_voltage
        self._simulator: Any = None

    def check(self) -> None:
        require("gym_brt", GYM_BRT)

    def connect(self) -> None:
        simulator = import_driver("gym_brt.quanser", "QubeSimulator", GYM_BRT)
        self._simulator = simulator(
            forward_model=self.forward_model, frequency=self.rate, integration_steps=1, max_voltage=self.max_voltage
        )

    def reset(self, rng: np.random.Generator) -> Array:
        if self._simulator is None:
            raise PlantError("gym-brt's simulator is not connected; use it in a `with` block")
        self._simulator.reset_up()  # it draws from NumPy's global generator, so the state is set again from ours
        self._simulator.state = rng.normal(0.0, START_SPREAD, 4)
        return self._simulator.state.copy()

    def step(self, action: Array) -> Array:
        voltage = float(np.asarray(action, dtype=np.float64).reshape(-1)[0])
        if not np.isfinite(voltage):
            raise InvalidInput(f"action[0] is {voltage}; a voltage must be finite")
        # a float, not an array: its integrator fails on arrays with newer versions of NumPy
        return np.array(self._simulator.step(voltage), dtype=np.float64)

    def stop(self) -> None:
        """Nothing moves between steps."""
