"""Whatever ends a `with` block, a plant is made safe first and let go then; a task does that with its plant."""

from typing import Any

import numpy as np
import pytest

from crbo_ros.plants.base import Connection
from crbo_ros.tasks.base import Outcome, Task


class Recorder(Connection):
    def __init__(self, *, broken: bool = False) -> None:
        self.calls: list[str] = []
        self.broken = broken

    def connect(self) -> None:
        self.calls.append("connect")

    def stop(self) -> None:
        self.calls.append("stop")
        if self.broken:
            raise OSError("the driver is gone")

    def close(self) -> None:
        self.calls.append("close")


class OfATask(Task):
    name, plants = "recorded", ("recorder",)

    def __init__(self, plant: Any) -> None:
        super().__init__()
        self.plant = plant

    def rollout(self, theta: Any, rng: np.random.Generator, *, record: bool = False, watch: Any = None) -> Outcome:
        raise NotImplementedError


@pytest.mark.parametrize("wrap", [lambda plant: plant, OfATask])
@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("broken", [False, True])
def test_a_plant_is_stopped_and_then_closed_on_every_way_out(wrap: Any, error: Any, broken: bool) -> None:
    plant = Recorder(broken=broken)
    try:
        with wrap(plant):
            if error:
                raise error
    except (RuntimeError, KeyboardInterrupt, OSError):
        pass
    assert plant.calls == ["connect", "stop", "close"]


def test_a_task_without_a_plant_has_nothing_to_stop() -> None:
    with OfATask(None) as task:
        task.stop()
