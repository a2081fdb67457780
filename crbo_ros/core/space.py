"""The policy's own units <-> the unit box.

The paper maps the policy parameters from their domain [theta_l, theta_u] to [0, 1]^d (appendix,
"Methods"); every distance, lengthscale and exploration parameter of this package is in the unit box.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crbo_ros.errors import InvalidInput

Vector = NDArray[np.float64]


def as_vector(value: ArrayLike, name: str, dim: int | None = None) -> Vector:
    """A finite float vector of shape (dim,), or InvalidInput that names the field and the entry."""
    try:
        vector = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name}: not a vector of numbers ({error})") from None
    if vector.ndim != 1 or (dim is not None and len(vector) != dim):
        wanted = "a vector" if dim is None else f"a vector of {dim} numbers"
        raise InvalidInput(f"{name}: expected {wanted}, got shape {vector.shape}")
    bad = np.flatnonzero(~np.isfinite(vector))
    if bad.size:
        raise InvalidInput(f"{name}[{bad[0]}] is {vector[bad[0]]}; every entry must be finite")
    return vector


class Space:
    """A box in the policy's units, each dimension mapped linearly (or by its logarithm) to [0, 1].

    `integer` dimensions hold whole numbers (a switch: 0 and 1). `below`: pairs (i, j) with theta_i < theta_j. What
    from_unit returns, and so every proposal, respects both.
    """

    def __init__(
        self,
        lower: ArrayLike,
        upper: ArrayLike,
        *,
        log: ArrayLike | None = None,
        names: list[str] | None = None,
        integer: ArrayLike | None = None,
        below: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.lower = as_vector(lower, "lower")
        self.upper = as_vector(upper, "upper", len(self.lower))
        self.dim = len(self.lower)
        if self.dim == 0:
            raise InvalidInput("lower: a space needs at least one dimension")
        self.log = np.zeros(self.dim, bool) if log is None else np.array(log, dtype=bool)
        if self.log.shape != (self.dim,):
            raise InvalidInput(f"log: expected {self.dim} flags, got shape {self.log.shape}")
        bad = np.flatnonzero(self.lower >= self.upper)
        if bad.size:
            i = bad[0]
            raise InvalidInput(f"lower[{i}] = {self.lower[i]} is not below upper[{i}] = {self.upper[i]}")
        bad = np.flatnonzero(self.log & (self.lower <= 0.0))
        if bad.size:
            raise InvalidInput(f"lower[{bad[0]}] = {self.lower[bad[0]]}: a log scale needs positive bounds")
        self.named = names is not None
        self.names = names or [f"theta[{i}]" for i in range(self.dim)]
        self.integer = np.zeros(self.dim, bool) if integer is None else np.array(integer, dtype=bool)
        if self.integer.shape != (self.dim,):
            raise InvalidInput(f"integer: expected {self.dim} flags, got shape {self.integer.shape}")
        self.below = tuple((int(i), int(j)) for i, j in below)
        for i, j in self.below:
            if not (0 <= i < self.dim and 0 <= j < self.dim and self.lower[i] + self._gap(i, j) <= self.upper[j]):
                raise InvalidInput(f"below: ({i}, {j}) leaves no room for theta[{i}] < theta[{j}]")
        self._low = np.where(self.log, np.log(np.where(self.log, self.lower, 1.0)), self.lower)
        high = np.where(self.log, np.log(np.where(self.log, self.upper, 1.0)), self.upper)
        self._width = high - self._low
        # A switch takes the middle of its side of the unit box, a quarter from the other one: a cautious step must be
        # able to cross, and what is known is where it would land, not how far the step went.
        switch = self.integer & (self.upper - self.lower == 1.0) & ~self.log
        self._low = np.where(switch, self.lower - 1.5, self._low)
        self._width = np.where(switch, 4.0, self._width)
        if not np.all(np.isfinite(self._width)):
            raise InvalidInput("upper - lower overflows; use a smaller domain")

    def to_unit(self, theta: ArrayLike) -> Vector:
        """theta (..., d) in the policy's units -> x (..., d); points of the box land in [0, 1]."""
        theta = np.asarray(theta, dtype=np.float64)
        return (np.where(self.log, np.log(np.where(self.log, theta, 1.0)), theta) - self._low) / self._width

    def from_unit(self, x: ArrayLike) -> Vector:
        """x (..., d) in the unit box -> theta (..., d), clipped so that rounding never leaves the box."""
        theta = self._low + np.asarray(x, dtype=np.float64) * self._width
        theta = np.where(self.log, np.exp(np.where(self.log, theta, 0.0)), theta)
        theta = np.clip(theta, self.lower, self.upper)
        return self._repaired(theta) if self.below or self.integer.any() else theta

    def _gap(self, i: int, j: int) -> float:
        """How far theta_i stays below theta_j: 1 for whole numbers, else a thousandth of the narrower range."""
        if self.integer[i] or self.integer[j]:
            return 1.0
        return 1e-3 * float(min(self.upper[i] - self.lower[i], self.upper[j] - self.lower[j]))

    def _repaired(self, theta: Vector) -> Vector:
        """theta (..., d) in the box, with whole numbers where they must be, and both ends of each pair in order."""
        theta = np.where(self.integer, np.clip(np.rint(theta), np.ceil(self.lower), np.floor(self.upper)), theta)
        for i, j in self.below:  # both ends of a pair that is the wrong way round meet in the middle
            middle = 0.5 * (theta[..., i] + theta[..., j])
            wrong = theta[..., i] > theta[..., j]
            theta[..., i] = np.where(wrong, np.floor(middle) if self.integer[i] else middle, theta[..., i])
            theta[..., j] = np.where(wrong, np.ceil(middle) if self.integer[j] else middle, theta[..., j])
        for _ in self.below:  # (a < b < c: one pair may undo another)
            for i, j in self.below:
                high = np.maximum(theta[..., j], theta[..., i] + self._gap(i, j))
                theta[..., j] = np.minimum(np.ceil(high) if self.integer[j] else high, self.upper[j])
        for _ in self.below:
            for i, j in self.below:
                low = np.minimum(theta[..., i], theta[..., j] - self._gap(i, j))
                theta[..., i] = np.maximum(np.floor(low) if self.integer[i] else low, self.lower[i])
        return theta

    def check(self, theta: ArrayLike, name: str = "theta") -> Vector:
        """theta as a vector inside the box, or InvalidInput that names the entry and its bound."""
        theta = as_vector(theta, name, self.dim)
        slack = 1e-9 * (self.upper - self.lower)
        bad = np.flatnonzero((theta < self.lower - slack) | (theta > self.upper + slack))
        if bad.size:
            i = bad[0]
            raise InvalidInput(
                f"{name}[{i}] = {theta[i]:g} is outside [{self.lower[i]:g}, {self.upper[i]:g}] ({self.names[i]})"
            )
        for i, j in self.below:
            if not theta[i] < theta[j]:
                raise InvalidInput(
                    f"{name}: {self.names[i]} = {theta[i]:g} must be below {self.names[j]} = {theta[j]:g}"
                )
        return np.clip(theta, self.lower, self.upper)
