"""The simulated Qube Servo 2 as a plant: one compiled control period a step, seeded, repeatable bit for bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crbo_ros.compiled import QubeParameters, qube_measure, qube_step
from crbo_ros.errors import InvalidInput, PlantError, UnknownName
from crbo_ros.plants.base import Plant
from crbo_ros.plants.qube.model import PARAMETERS, changed

Array = NDArray[np.float64]
START_SPREAD = 0.01  # standard deviation of all four states at the start, rad and rad/s, as in gym-brt


class QubeSim(Plant):
    """Observation (4,): arm, pendulum (0 = upright), their rates. Action (1,): V, clipped to the plant's limit.

    `changes` are other values of some of its parameters: {"mp": 0.026}.
    """

    joint_names = ("arm", "pendulum")

    def __init__(
        self,
        parameters: str | QubeParameters = "nominal",
        start_spread: float = START_SPREAD,
        changes: dict[str, float] | None = None,
    ) -> None:
        if isinstance(parameters, str):
            if parameters not in PARAMETERS:
                raise UnknownName(f"no Qube is called {parameters!r}; there are: {', '.join(PARAMETERS)}")
            parameters = PARAMETERS[parameters]()
        if changes:
            parameters = changed(parameters, changes)
        self.parameters = parameters
        self.rate = parameters.rate
        self.start_spread = start_spread
        self.state = np.zeros(4)  # the true one; observations have passed the sensors
        self.memory = np.zeros(2)  # the velocity filters' states
        self.voltage = 0.0  # applied last
        self._ready = False

    def connect(self) -> None:
        """Nothing to open."""

    def reset(self, rng: np.random.Generator) -> Array:
        """Upright and at the centre, up to a small random offset of all four states."""
        return self.reset_to(rng.normal(0.0, self.start_spread, 4))

    def reset_to(self, state: Array) -> Array:
        """Start from a given state (4,), with the velocity filters settled on its angles."""
        self.state[:] = state
        if self.parameters.filter_bandwidth > 0.0:
            self.memory[:] = self.state[:2] / self.parameters.filter_bandwidth
        self.voltage = 0.0
        self._ready = True
        observation = np.empty(4)
        qube_measure(self.state, self.memory, self.parameters, observation)
        return observation

    def step(self, action: Array) -> Array:
        """Apply a voltage for one period. A voltage that is not finite is refused and 0 V are applied."""
        if not self._ready:
            raise PlantError("the simulated Qube must be reset before its first step")
        voltage = float(np.asarray(action, dtype=np.float64).reshape(-1)[0])
        if not np.isfinite(voltage):
            self.stop()
            raise InvalidInput(f"action[0] is {voltage}; a voltage must be finite")
        observation = np.empty(4)
        self.voltage = qube_step(self.state, self.memory, voltage, self.parameters, observation)
        return observation

    def stop(self) -> None:
        """0 V."""
        self.voltage = 0.0
