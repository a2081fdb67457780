"""Somebody else's task: only its domain is known here, and the runner is theirs (docs/INTEGRATION.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.problem import Problem, custom_problem
from crbo_ros.errors import InvalidInput
from crbo_ros.tasks.base import Outcome, Task, Watch


class Custom(Task):
    """`lower`, `upper`: the domain of theta; `theta_0`: the policy to start from; all in the policy's own units.

    `hardware`: whether the runner moves something real. It is taken for that unless it says false.
    """

    name = "custom"
    plants = ("own",)

    def __init__(
        self,
        plant: str | None = None,
        *,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        theta_0: ArrayLike | None = None,
        hardware: bool = True,
    ) -> None:
        raise InvalidInput("task custom has no plant of ours; bring your own runner (docs/INTEGRATION.md)")

    @classmethod
    def problem(
        cls,
        plant: str | None = None,
        *,
        lower: ArrayLike | None = None,
        upper: ArrayLike | None = None,
        theta_0: ArrayLike | None = None,
        hardware: bool = True,
    ) -> Problem:
        cls.plant_of(plant)
        named: dict[str, Any] = {"lower": lower, "upper": upper, "theta_0": theta_0}
        if missing := [name for name, value in named.items() if value is None]:
            raise InvalidInput(f"task custom needs the option {missing[0]}, a list of numbers (see config/custom.yaml)")
        domain = {name: np.asarray(value, dtype=np.float64) for name, value in named.items()}
        return custom_problem(**domain, hardware=hardware)

    def rollout(
        self, theta: ArrayLike, rng: np.random.Generator, *, record: bool = False, watch: Watch | None = None
    ) -> Outcome:
        raise NotImplementedError
