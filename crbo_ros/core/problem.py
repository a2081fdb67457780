"""A task's facts, readable without making a plant or connecting anything, and what makes two problems the same one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crbo_ros.core.space import Space, Vector
from crbo_ros.core.trial import NAN, theta_hash


def digest(value: Any) -> str:
    """A short fingerprint of a JSON value, of bytes, or of an array."""
    if isinstance(value, np.ndarray):
        value = np.ascontiguousarray(value, dtype="<f8").tobytes()
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()[:12]


@dataclass(frozen=True, eq=False)
class Problem:
    """What is optimised. Two are the same if their `identity` is."""

    task: str
    plant: str
    space: Space  # the policy's domain, in its own units
    theta_0: Vector  # the policy to start from
    gamma: float = 0.5  # the paper's confidence parameter for this task
    episodes: int = 100  # the paper's budget
    episode_seconds: float = 0.0  # longest episode with its reset and time-outs, s
    hardware: bool = False  # whether it can hurt somebody
    options: Mapping[str, Any] = field(default_factory=dict)  # JSON values that change the return
    policy: str = ""  # digest of the policy's content
    returns: str = ""  # digest of how the return is defined, where a file says so
    j_min_drop: float = (
        NAN  # the contract's threshold is J0 - j_min_drop |J0| unless somebody says otherwise; NaN: none
    )

    @property
    def identity(self) -> dict[str, str]:
        """Everything that makes a return comparable with another one, by name, in few characters each."""
        return {
            "task": self.task,
            "plant": self.plant,
            "hardware": "yes" if self.hardware else "no",
            "options": digest(dict(self.options)) if self.options else "-",
            "policy": self.policy or "-",
            "return": self.returns or "-",
            "domain": digest(self._domain()),
            "theta_0": theta_hash(self.theta_0)[:12],
        }

    def _domain(self) -> Vector:
        space = self.space
        parts = [space.lower, space.upper, space.log.astype(float)]
        if space.below or space.integer.any():
            parts += [space.integer.astype(float), np.array(space.below, dtype=float).ravel()]
        return np.concatenate(parts)

    @property
    def key(self) -> str:
        """The identity as one line, which travels in every message."""
        return key_of(self.identity)


def key_of(identity: Mapping[str, str]) -> str:
    """An identity as one line."""
    return " ".join(f"{name}={value}" for name, value in identity.items())


def differences(own: str, other: str) -> list[str]:
    """What differs between two keys, in words: "plant: stand_in, not nominal"."""
    a, b = (dict(part.split("=", 1) for part in key.split(" ") if "=" in part) for key in (own, other))
    return [f"{name}: {a.get(name, '-')}, not {b.get(name, '-')}" for name in {**a, **b} if a.get(name) != b.get(name)]


def custom_problem(lower: ArrayLike, upper: ArrayLike, theta_0: ArrayLike, hardware: bool = True) -> Problem:
    """The problem of somebody who brings a runner of their own: only the domain is known.

    What it moves nobody here can know, so it is taken for hardware unless somebody says that it is not.
    """
    space = Space(lower, upper)
    return Problem("custom", "own", space, space.check(theta_0, "theta_0"), hardware=hardware)
