"""The one interface for everything that moves: simulations, a Qube Servo 2, an arm, a gymnasium environment.

    with plant:                              # connect
        observation = plant.reset(rng)       # bring it to the start set, or PlantError after a time-out
        observation = plant.step(action)     # one control period
                                             # every way out of the block: stop (safe state), then close

`stop` puts the plant into its safe state (0 V, a held pose) and must work at any moment after connect, more than
once, and from any error; it answers with what was measured. What moves something real lives in a process of its own
(plants/hosted.py), so that it is safe whatever hangs. `step` on a simulation returns at once; on
hardware it paces itself at `rate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from crbo_ros.core.safe import Safe
from crbo_ros.errors import PlantError

Array = NDArray[np.float64]


Connected = TypeVar("Connected", bound="Connection")


class Connection:
    """Something that is connected for the length of a `with` block and made safe on every way out of it."""

    serial = ""  # of the robot, or its name: for the record; known at the latest when it is connected

    def check(self) -> None:
        """MissingDependency if a package that connect needs is not installed. Connects and moves nothing."""

    def connect(self) -> None:
        """Open the connection; MissingDependency or PlantError with what to do if that fails."""

    def limits_in_words(self) -> str:
        """What holds whatever a policy asks for, for the person who consents; empty: nothing that it knows of."""
        return ""

    def stop(self) -> Safe | None:
        """Safe state, now, and what was measured (None: it does not say). Idempotent, whatever failed before."""
        return None

    def close(self) -> None:
        """Release the connection."""

    def __enter__(self: Connected) -> Connected:
        self.connect()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            self.close()


class ResetStopped(PlantError):
    """Somebody stopped what was under way (`Plant.reset_watch`, or the host was told to); it goes safe."""


class Plant(Connection, ABC):
    """A context manager with a fixed control rate. Observations and actions are float vectors, SI and radians."""

    rate: float  # control rate, Hz
    joint_names: tuple[str, ...] = ()  # names of the first len(joint_names) observation entries (positions)
    is_hardware = False  # True: it can hurt somebody
    hosted = False  # True: its `stop` and `cut` may be called from any thread (plants/hosted.py)
    reset_timeout = 30.0  # s
    # Asked with (observation, action) in every period of a reset that moves the plant; a returned string ends it with
    # ResetStopped, so that an operator's stop does not have to wait until the pendulum is up.
    reset_watch: Callable[[Array, Array], str | None] | None = None
    # Asked in every period once the plant is in its start set: a reset that holds the plant there (a balanced pendulum)
    # goes on holding it until this says that the policy may take over.
    reset_ready: Callable[[], bool] | None = None

    @abstractmethod
    def connect(self) -> None: ...

    @abstractmethod
    def reset(self, rng: np.random.Generator) -> Array:
        """Bring the plant into its start set within `reset_timeout`, else PlantError. Returns the observation."""

    @abstractmethod
    def step(self, action: Array) -> Array:
        """Apply an action (clipped to the plant's limits) for one period and return the next observation."""

    @abstractmethod
    def stop(self) -> Safe | None: ...

    def cut(self) -> None:
        """Begin to stop, from any thread, without waiting: for an operator who does not wait for the control loop."""

    def statistics(self) -> dict[str, float]:
        """Figures about the last episode (deadline misses, jitter); empty for simulations."""
        return {}
